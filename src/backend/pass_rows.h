// What every backend does with the rows of a pass before and around its kernels.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/backend/backend.h"
#include "src/kv/recent_blocks.h"

namespace sluice {

// What a backend was made for.
struct PassLimits {
  LayerRange layers;            // that it has
  std::uint32_t positions = 0;  // positions are below this
  std::uint32_t max_rows = 0;
  std::uint32_t max_logits = 0;
  std::uint32_t most_top_logits = 0;
};

// Whether forward() can run these rows: everything that depends on the caller. kFailed.
Status check_pass(const ModelSpec& spec, const PassLimits& limits, std::uint32_t block_tokens,
                  std::span<const BatchRow> rows, const KvCache& kv, LayerRange layers,
                  const ForwardIo& io);

// The embedding of a token, [embedding] floats, scaled as the model wants it.
void embed_token(const ModelSpec& spec, const MatrixRef& table, std::int32_t token,
                 std::span<float> out);

// Cosines and sines of a position, [rope_dims / 2] each.
void rotation(const Rope& rope, std::uint32_t position, std::span<float> cosine,
              std::span<float> sine);

// Rows of a pass that belong to one sequence: consecutive, with ascending positions.
struct RowRun {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
};
// The runs of a pass, each of at most `most` rows and with all positions in one block of
// `block_tokens`; 0: as long as they are.
std::vector<RowRun> row_runs(std::span<const BatchRow> rows, std::uint32_t most,
                             std::uint32_t block_tokens = 0);

// The blocks that the rows of a pass write, and which of their tokens.
std::vector<BlockWrite> block_writes(std::span<const BatchRow> rows, const KvCache& kv);

// Tokens whose keys and values the rows of a run see together in a layer.
std::uint64_t tokens_seen(std::span<const BatchRow> rows, RowRun run, std::uint32_t window);

}  // namespace sluice

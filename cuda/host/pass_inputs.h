// What a pass needs besides weights and cache: positions, rotations, who sees whom. Put together on
// the host in one piece, so that one copy brings it over. Where each part lies depends on the
// pass's shape alone; a graph that was recorded for a shape finds the inputs of every pass like it.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <vector>

#include "cuda/arguments.h"
#include "cuda/host/runtime.h"
#include "src/backend/backend.h"
#include "src/kv/recent_blocks.h"

namespace sluice::cuda {

// Everything that the arguments and grids of a pass's launches depend on.
struct PassShape {
  std::int32_t rows = 0;
  std::int32_t wanted = 0;  // rows with logits
  std::int32_t top = 0;     // of the largest of each row; 0: all
  std::int32_t candidates = 0;
  std::int32_t tiles = 0;        // of attention
  std::int32_t full_blocks = 0;  // that the pass makes 4 bits of
  bool narrow = true;            // no tile has more than eight columns
  // Pieces of the context that a tile sees at most, by the layer's window (see
  // PassInputs::windows()); rounded up, so that a shape lasts.
  std::vector<std::int32_t> pieces;
  LayerRange layers;
  std::strong_ordering operator<=>(const PassShape& other) const;
  bool operator==(const PassShape& other) const = default;
};

// Pointers into device memory, as the kernels' arguments want them.
struct PassPointers {
  Global<const std::int32_t> position;
  Global<const std::uint32_t> row_block;  // int4: the slot of the row's block
  Global<const FullBlock> full_blocks;    // [full_blocks]
  Global<const AttentionRow> row;
  Global<const std::int32_t> wanted_row;  // [wanted]
  Global<const AttentionTile> tiles;
  std::vector<Global<const float>> cosine;  // of each of ModelSpec::ropes, [rows][rope_dims / 2]
  std::vector<Global<const float>> sine;
  Global<const std::uint32_t> blocks;
};

class PassInputs {
 public:
  // Memory for passes of up to `max_rows` rows with positions below `positions`.
  static Result<PassInputs> create(Device& device, const ModelSpec& spec, std::uint32_t max_rows,
                                   std::uint32_t positions);
  // Device bytes that create() takes.
  static std::uint64_t bytes_needed(const ModelSpec& spec, std::uint32_t max_rows,
                                    std::uint32_t positions);

  // The different windows of the model's layers, 0 for full attention.
  const std::vector<std::uint32_t>& windows() const { return windows_; }

  // Fills in a pass and queues its copy to the device. The pass before must be done. `recent` of an
  // int4 cache, open for the pass, otherwise null: then all rows of a tile lie in one block.
  PassShape set(Device& device, const ModelSpec& spec, std::span<const BatchRow> rows,
                const KvCache& kv, const RecentBlocks* recent, LayerRange layers);
  // Where things are on the device for a shape.
  PassPointers pointers(const ModelSpec& spec, const PassShape& shape) const;

 private:
  HostMemory host_;
  Memory device_;
  std::vector<std::uint32_t> windows_;
};

}  // namespace sluice::cuda

#include "src/backend/pass_rows.h"

#include <algorithm>
#include <cmath>

#include "src/quant/codec.h"

namespace sluice {

Status check_pass(const ModelSpec& spec, const PassLimits& limits, std::uint32_t block_tokens,
                  std::span<const BatchRow> rows, const KvCache& kv, LayerRange layers,
                  const ForwardIo& io) {
  if (rows.empty() || rows.size() > limits.max_rows) {
    return failed("a pass of {} rows was asked for; 1 to {} are possible", rows.size(),
                  limits.max_rows);
  }
  if (layers.first >= layers.last || layers.first < limits.layers.first ||
      layers.last > limits.layers.last) {
    return failed("layers {} to {} were asked for; this backend has {} to {}", layers.first,
                  layers.last, limits.layers.first, limits.layers.last);
  }
  std::size_t wanted = 0;
  for (const BatchRow& row : rows) {
    wanted += row.logits ? 1 : 0;
    if (row.token < 0 || static_cast<std::uint32_t>(row.token) >= spec.vocabulary) {
      return failed("token {} is outside the vocabulary of {}", row.token, spec.vocabulary);
    }
    if (row.position >= limits.positions ||
        row.position / block_tokens >= kv.blocks(row.sequence).size()) {
      return failed("position {} has no room in the KV cache", row.position);
    }
  }
  if (wanted > limits.max_logits) {
    return failed("logits of {} rows were asked for; {} are possible in a pass", wanted,
                  limits.max_logits);
  }
  const bool first_given = layers.first == 0 || io.hidden.size() >= rows.size() * spec.embedding;
  const LogitsOut& out = io.logits;
  const bool ends = layers.last == spec.layers;
  if (ends && (out.top > limits.most_top_logits || out.top > out.candidates ||
               out.candidates > spec.vocabulary)) {
    return failed("{} of {} logits of a row were asked for; {} are possible", out.top,
                  out.candidates, limits.most_top_logits);
  }
  const bool logits_given = out.top == 0 ? out.whole.size() >= wanted * spec.vocabulary
                                         : out.top_ids.size() >= wanted * out.top &&
                                               out.top_logits.size() >= wanted * out.top;
  const bool last_given = ends ? logits_given : io.hidden.size() >= rows.size() * spec.embedding;
  if (!first_given || !last_given) return failed("the buffers of a pass are too small");
  return {};
}

void embed_token(const ModelSpec& spec, const MatrixRef& table, std::int32_t token,
                 std::span<float> out) {
  const std::size_t bytes = table.row_bytes();
  decode_blocks(table.type, {table.data + static_cast<std::size_t>(token) * bytes, bytes}, out);
  if (spec.embedding_scale == 1.0f) return;
  for (float& value : out) value *= spec.embedding_scale;
}

void rotation(const Rope& rope, std::uint32_t position, std::span<float> cosine,
              std::span<float> sine) {
  for (std::size_t i = 0; i < cosine.size(); ++i) {
    const double angle = position * rope.inverse_frequency[i];
    cosine[i] = static_cast<float>(std::cos(angle)) * rope.magnitude;
    sine[i] = static_cast<float>(std::sin(angle)) * rope.magnitude;
  }
}

std::vector<RowRun> row_runs(std::span<const BatchRow> rows, std::uint32_t most,
                             std::uint32_t block_tokens) {
  std::vector<RowRun> runs;
  for (std::uint32_t i = 0; i < rows.size(); ++i) {
    const bool joins = !runs.empty() && rows[i].sequence == rows[i - 1].sequence &&
                       (most == 0 || runs.back().count < most) &&
                       (block_tokens == 0 ||
                        rows[i].position / block_tokens == rows[i - 1].position / block_tokens);
    if (joins) {
      ++runs.back().count;
    } else {
      runs.push_back({i, 1});
    }
  }
  return runs;
}

std::vector<BlockWrite> block_writes(std::span<const BatchRow> rows, const KvCache& kv) {
  const std::uint32_t size = kv.block_tokens();
  std::vector<BlockWrite> writes;
  for (const RowRun& run : row_runs(rows, 0, size)) {
    const BatchRow& first = rows[run.first];
    const BatchRow& last = rows[run.first + run.count - 1];
    writes.push_back({kv.blocks(first.sequence)[first.position / size], first.position % size,
                      last.position % size + 1});
  }
  return writes;
}

std::uint64_t tokens_seen(std::span<const BatchRow> rows, RowRun run, std::uint32_t window) {
  const std::uint64_t last = rows[run.first + run.count - 1].position + std::uint64_t{1};
  return window == 0 ? last : std::min<std::uint64_t>(last, window + run.count - 1u);
}

}  // namespace sluice

#include "cuda/host/pass_inputs.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <tuple>

#include "cuda/kv_pages.h"
#include "src/backend/pass_rows.h"

namespace sluice::cuda {
namespace {

constexpr std::int32_t kTileColumns = 16;

std::size_t aligned(std::size_t bytes) { return (bytes + 15) / 16 * 16; }

// Where the parts begin, in bytes.
struct Offsets {
  std::size_t position, row_block, row, wanted, tiles, full, rotations, rotation_bytes, blocks;
};

Offsets offsets(const ModelSpec& spec, std::int32_t rows, std::int32_t wanted, std::int32_t tiles,
                std::int32_t full_blocks) {
  const auto r = static_cast<std::size_t>(rows);
  Offsets at{};
  std::size_t next = 0;
  const auto take = [&next](std::size_t bytes) {
    const std::size_t begin = next;
    next += aligned(bytes);
    return begin;
  };
  at.position = take(4 * r);
  at.row_block = take(4 * r);
  at.row = take(sizeof(AttentionRow) * r);
  at.wanted = take(4 * static_cast<std::size_t>(wanted));
  at.tiles = take(sizeof(AttentionTile) * static_cast<std::size_t>(tiles));
  at.full = take(sizeof(FullBlock) * static_cast<std::size_t>(full_blocks));
  at.rotation_bytes = aligned(r * (spec.rope_dims / 2) * sizeof(float));
  at.rotations = take(2 * spec.ropes.size() * at.rotation_bytes);  // cosines, sines of each rope
  at.blocks = next;
  return at;
}

// Whether the rows of a run, all in one block, end with its last token.
bool fills_block(std::span<const BatchRow> rows, const RowRun& run) {
  return rows[run.first + run.count - 1].position % kPageTokens == kPageTokens - 1;
}

std::int32_t most_tiles(const ModelSpec& spec, std::uint32_t rows) {
  const std::uint32_t group = spec.heads / spec.kv_heads;
  return static_cast<std::int32_t>(rows * ((group + kTileColumns - 1) / kTileColumns));
}

std::size_t capacity(const ModelSpec& spec, std::uint32_t rows, std::uint32_t positions) {
  const auto r = static_cast<std::int32_t>(rows);
  const std::size_t tables = std::size_t{rows} * (positions / kPageTokens + 1) * 4;
  return offsets(spec, r, r, most_tiles(spec, rows), r).blocks + tables;
}

}  // namespace

std::strong_ordering PassShape::operator<=>(const PassShape& other) const {
  const auto key = [](const PassShape& s) {
    return std::tie(s.rows, s.wanted, s.top, s.candidates, s.tiles, s.full_blocks, s.narrow,
                    s.pieces, s.layers.first, s.layers.last);
  };
  return key(*this) <=> key(other);
}

std::uint64_t PassInputs::bytes_needed(const ModelSpec& spec, std::uint32_t max_rows,
                                       std::uint32_t positions) {
  return capacity(spec, max_rows, positions);
}

Result<PassInputs> PassInputs::create(Device& device, const ModelSpec& spec, std::uint32_t max_rows,
                                      std::uint32_t positions) {
  PassInputs inputs;
  const std::size_t bytes = capacity(spec, max_rows, positions);
  SLUICE_ASSIGN_OR_RETURN(inputs.host_, device.allocate_host("inputs of a pass", bytes));
  SLUICE_ASSIGN_OR_RETURN(inputs.device_, device.allocate("inputs of a pass", bytes));
  for (const LayerSpec& layer : spec.layer) inputs.windows_.push_back(layer.window);
  std::sort(inputs.windows_.begin(), inputs.windows_.end());
  inputs.windows_.erase(std::unique(inputs.windows_.begin(), inputs.windows_.end()),
                        inputs.windows_.end());
  return inputs;
}

PassShape PassInputs::set(Device& device, const ModelSpec& spec, std::span<const BatchRow> rows,
                          const KvCache& kv, const RecentBlocks* recent, LayerRange layers) {
  const auto group = static_cast<std::int32_t>(spec.heads / spec.kv_heads);
  const std::vector<RowRun> runs = row_runs(rows, 0, recent != nullptr ? kPageTokens : 0);
  PassShape shape;
  shape.rows = static_cast<std::int32_t>(rows.size());
  shape.layers = layers;
  for (const BatchRow& row : rows) shape.wanted += row.logits ? 1 : 0;
  for (const RowRun& run : runs) {
    shape.tiles += (static_cast<std::int32_t>(run.count) * group + kTileColumns - 1) / kTileColumns;
    if (recent != nullptr && fills_block(rows, run)) ++shape.full_blocks;
  }

  const Offsets at = offsets(spec, shape.rows, shape.wanted, shape.tiles, shape.full_blocks);
  auto* position = host_.as<std::int32_t>(at.position);
  auto* row_block = host_.as<std::uint32_t>(at.row_block);
  auto* row_place = host_.as<AttentionRow>(at.row);
  auto* wanted = host_.as<std::int32_t>(at.wanted);
  auto* tile = host_.as<AttentionTile>(at.tiles);
  auto* full = host_.as<FullBlock>(at.full);
  auto* blocks = host_.as<std::uint32_t>(at.blocks);

  const std::uint32_t pairs = spec.rope_dims / 2;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const BatchRow& row = rows[i];
    position[i] = static_cast<std::int32_t>(row.position);
    row_block[i] = kv.blocks(row.sequence)[row.position / kPageTokens];
    if (recent != nullptr) row_block[i] = recent->slot(row_block[i]);
    if (row.logits) *wanted++ = static_cast<std::int32_t>(i);
    for (std::size_t k = 0; k < spec.ropes.size(); ++k) {
      auto* cosine = host_.as<float>(at.rotations + 2 * k * at.rotation_bytes) + i * pairs;
      auto* sine = host_.as<float>(at.rotations + (2 * k + 1) * at.rotation_bytes) + i * pairs;
      rotation(spec.ropes[k], row.position, {cosine, pairs}, {sine, pairs});
    }
  }

  shape.pieces.assign(windows_.size(), 1);
  std::int32_t tiles = 0, table = 0, next_table = 0;
  for (const RowRun& run : runs) {
    // Runs of one sequence that stand behind each other share a table, which grows with them.
    const bool goes_on = run.first > 0 && rows[run.first - 1].sequence == rows[run.first].sequence;
    if (!goes_on) table = next_table;
    const auto first = static_cast<std::int32_t>(run.first);
    const std::int32_t columns = static_cast<std::int32_t>(run.count) * group;
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(run.count); ++i) {
      const std::int32_t column = i * group;
      row_place[first + i] = {tiles + column / kTileColumns, column % kTileColumns};
    }
    for (std::int32_t column = 0; column < columns; column += kTileColumns, ++tiles) {
      const std::int32_t count = std::min(kTileColumns, columns - column);
      tile[tiles] = {first, column, count, table};
      shape.narrow = shape.narrow && count <= 8;
      const std::int32_t begin = position[first + column / group];
      const std::int32_t end = position[first + (column + count - 1) / group];
      for (std::size_t w = 0; w < windows_.size(); ++w) {
        const auto window = static_cast<std::int32_t>(windows_[w]);
        const std::int32_t seen = window == 0 ? 0 : std::max(0, begin - window + 1);
        shape.pieces[w] = std::max(shape.pieces[w], end / kPieceTokens - seen / kPieceTokens + 1);
      }
    }
    const std::uint32_t last = rows[run.first + run.count - 1].position / kPageTokens;
    const auto run_blocks = kv.blocks(rows[run.first].sequence).first(last + 1);
    const std::int32_t known = next_table - table;
    std::copy(run_blocks.begin() + known, run_blocks.end(), blocks + next_table);
    next_table = table + static_cast<std::int32_t>(run_blocks.size());
    if (recent != nullptr && fills_block(rows, run)) {
      *full++ = {run_blocks[last], recent->slot(run_blocks[last])};
    }
  }
  for (std::int32_t& pieces : shape.pieces) {
    pieces = static_cast<std::int32_t>(std::bit_ceil(static_cast<std::uint32_t>(pieces)));
  }
  device.upload(device_.at<std::uint8_t>(), host_.data(),
                at.blocks + 4 * static_cast<std::size_t>(next_table));
  return shape;
}

PassPointers PassInputs::pointers(const ModelSpec& spec, const PassShape& shape) const {
  const Offsets at = offsets(spec, shape.rows, shape.wanted, shape.tiles, shape.full_blocks);
  const auto pointer = [this]<class T>(std::size_t offset, T) {
    return device_.at<const T>(static_cast<std::int64_t>(offset));
  };
  PassPointers p;
  p.position = pointer(at.position, std::int32_t{});
  p.row_block = pointer(at.row_block, std::uint32_t{});
  p.full_blocks = pointer(at.full, FullBlock{});
  p.row = pointer(at.row, AttentionRow{});
  p.wanted_row = pointer(at.wanted, std::int32_t{});
  p.tiles = pointer(at.tiles, AttentionTile{});
  for (std::size_t k = 0; k < spec.ropes.size(); ++k) {
    p.cosine.push_back(pointer(at.rotations + 2 * k * at.rotation_bytes, float{}));
    p.sine.push_back(pointer(at.rotations + (2 * k + 1) * at.rotation_bytes, float{}));
  }
  p.blocks = pointer(at.blocks, std::uint32_t{});
  return p;
}

}  // namespace sluice::cuda

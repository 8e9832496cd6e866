// What the kinds of pages (attention_int8.cuh, attention_f16.cuh) and the algorithm around them
// (attention.cuh) share: a block's shared memory, its tile, and a lane's part of a page.
//
// Of 16 columns by 32 tokens lane (g, t) = (lane / 4, lane % 4) has, as the fragments of mma share
// them out (cuda/simt.h),
//
//   share[half][j][i]   column g + 8 half, token 8 j + 2 t + i of the page
//
// A page's part of the results goes to the other warps through shared memory:
//
//   maxima, sums   [16 columns][8 pages] float    of the piece
//   sight          [16 columns][2] int32          first and last position that the column sees
//   tile           8 words, see TileView
//   states         [16 columns][2] float          maximum and sum so far
//   factors        [16 columns][4] words: two floats, a flag, see factors_slot
//   stage          [8 pages][16 columns][36] float, 32 used: element 8 t + 2 j + i is dimension
//                  8 j + 2 t + i, so that a lane with a share writes 16 bytes; 36 spreads the banks
//   own            what the kind of pages wants: queries at least
//   out            [groups][16 columns][32] float, the chunk's result so far, in the stage's order;
//                  absent where a chunk is one piece
#pragma once

#include "cuda/kernels/attention_parts.cuh"

namespace sluice::cuda {

inline constexpr std::int32_t kPiecePages = kPieceTokens / kPageTokens;
inline constexpr std::int32_t kAttendThreads = 32 * kPiecePages;

// -- Shared memory -------------------------------------------------------------------------------

// Offsets, see above.
struct AttendShared {
  static constexpr std::int32_t kMaxima = 0;
  static constexpr std::int32_t kSums = kMaxima + kTileColumns * kPiecePages * 4;
  static constexpr std::int32_t kSight = kSums + kTileColumns * kPiecePages * 4;
  static constexpr std::int32_t kTile = kSight + kTileColumns * 2 * 4;
  static constexpr std::int32_t kStates = kTile + 32;
  static constexpr std::int32_t kFactors = kStates + kTileColumns * 2 * 4;
  static constexpr std::int32_t kStage = kFactors + kTileColumns * 4 * 4;
  static constexpr std::int32_t kStageColumn = 36 * 4;
  static constexpr std::int32_t kStagePage = kTileColumns * kStageColumn;
  static constexpr std::int32_t kOwn = kStage + kPiecePages * kStagePage;
};

// The tile of this block of attend_chunk.
SIMT_DEVICE AttentionTile block_tile(const AttentionArgs& args) {
  const auto block = static_cast<std::int32_t>(simt::block_index());
  return simt::load(args.tiles + block / args.chunks / args.kv_heads);
}
// What a block of threads keeps of its tile in shared memory.
struct TileView {
  Sight sight;  // of all columns together
  std::int32_t columns;
  std::int32_t table;
  std::int32_t kv_head;
  std::int32_t first_piece;  // of the chunk
  std::int32_t last_piece;
  float inverse_cap;  // 1 / softcap
};
SIMT_DEVICE simt::Shared<std::uint32_t> tile_slot() {
  return simt::cast<std::uint32_t>(simt::dynamic_shared() + AttendShared::kTile);
}
SIMT_DEVICE void store_tile(const TileView& tile) {
  const auto word = [](std::int32_t x) { return static_cast<std::uint32_t>(x); };
  simt::store_words(tile_slot(), {{word(tile.sight.first), word(tile.sight.last),
                                   word(tile.columns), word(tile.table)}});
  simt::store_words(tile_slot() + 4, {{word(tile.kv_head), word(tile.first_piece),
                                       word(tile.last_piece), simt::float_bits(tile.inverse_cap)}});
}
SIMT_DEVICE TileView load_tile() {
  const simt::Words low = simt::load_words(tile_slot());
  const simt::Words high = simt::load_words(tile_slot() + 4);
  const auto number = [](std::uint32_t x) { return static_cast<std::int32_t>(x); };
  return {{number(low.word[0]), number(low.word[1])},
          number(low.word[2]),
          number(low.word[3]),
          number(high.word[0]),
          number(high.word[1]),
          number(high.word[2]),
          simt::float_of_bits(high.word[3])};
}

// Positions that a column sees.
SIMT_DEVICE simt::Shared<std::int32_t> sight_slot(std::int32_t column) {
  return simt::cast<std::int32_t>(simt::dynamic_shared() + AttendShared::kSight) + 2 * column;
}
SIMT_DEVICE Sight column_sight(std::int32_t column) {
  const simt::Shared<std::int32_t> sight = sight_slot(column);
  return {simt::load(sight), simt::load(sight + 1)};
}

// -- A lane's part of a page ---------------------------------------------------------------------

// A lane's share of a matrix of columns by 32 tokens, see above. kHalves is 2; where a tile has at
// most eight columns 1 does, at half the work.
template <int kHalves>
struct Share {
  float x[kHalves][4][2];
};
// A bit for each place of a share: bit 2 j + i of each half.
template <int kHalves>
struct Visible {
  std::uint32_t bits[kHalves];
};
// x, or 0 where a place is not visible, without a branch.
template <int kHalves>
SIMT_DEVICE float if_visible(const Visible<kHalves>& visible, int half, int j, int i, float x) {
  const std::uint32_t mask = 0u - (visible.bits[half] >> (2 * j + i) & 1u);
  return simt::float_of_bits(simt::float_bits(x) & mask);
}

}  // namespace sluice::cuda

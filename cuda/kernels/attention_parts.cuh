// What the two kernels of attention (attention.cuh, attention_merge.cuh) share: which positions a
// row sees, where columns of tiles belong, and how two parts of a softmax become one.
#pragma once

#include "cuda/arguments.h"
#include "cuda/kernels/math.cuh"
#include "cuda/kv_pages.h"

namespace sluice::cuda {

inline constexpr std::int32_t kTileColumns = 16;

// -- Who sees what -------------------------------------------------------------------------------

// Positions that a row sees.
struct Sight {
  std::int32_t first;
  std::int32_t last;
};

SIMT_DEVICE Sight sight_of(const AttentionArgs& args, std::int32_t row) {
  const std::int32_t last = simt::load(args.position + row);
  const bool cut = args.window > 0 && last >= args.window;
  return {cut ? last - args.window + 1 : 0, last};
}

// The row of the pass that a tile's column belongs to.
SIMT_DEVICE std::int32_t column_row(const AttentionArgs& args, const AttentionTile& tile,
                                    std::int32_t column) {
  return tile.first_row + (tile.column + column) / (args.heads / args.kv_heads);
}
// Row and head of a column in one number, row * heads + head.
SIMT_DEVICE std::int64_t column_query(const AttentionArgs& args, const AttentionTile& tile,
                                      std::int32_t kv_head, std::int32_t column) {
  const std::int32_t group = args.heads / args.kv_heads;
  return std::int64_t{column_row(args, tile, column)} * args.heads + kv_head * group +
         (tile.column + column) % group;
}
// The piece that chunk 0 of a tile begins with.
SIMT_DEVICE std::int32_t first_piece(const AttentionArgs& args, const AttentionTile& tile) {
  return sight_of(args, column_row(args, tile, 0)).first / kPieceTokens;
}

// -- The state of a softmax ----------------------------------------------------------------------

// What outputs are multiplied by when two parts become one.
struct MergeFactors {
  float old_part;
  float new_part;
};

// Merges the maximum of a further part into that of a state; sums and outputs follow with the
// factors. The operations are the CPU's (generic_attention.cpp). A part with nothing but NaNs or
// infinities in it makes the factors NaN, and a sum that is NaN stays so.
SIMT_DEVICE MergeFactors merge_maximum(float& maximum, float part) {
  const float larger = maximum > part ? maximum : part;
  const MergeFactors factors = {exp_of(maximum - larger), exp_of(part - larger)};
  maximum = larger;
  return factors;
}
SIMT_DEVICE float merge_value(float old_value, float value, const MergeFactors& factors) {
  return simt::fma(value, factors.new_part, old_value * factors.old_part);
}

}  // namespace sluice::cuda

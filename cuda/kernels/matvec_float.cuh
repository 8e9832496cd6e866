// Matrix of floats (F32, F16, BF16, as in the file) times rows of float activations.
//
// A warp makes one weight row for all activation rows, eight of them at a time, so that weights are
// read from memory once; a block of threads has eight weight rows. Element k belongs to lane
// k % 32:
//
//   weight row   | lane 0 | lane 1 | ... | lane 31 | lane 0 | ...     one element each
//   x row        the same
//
// Order of accumulation, which depends on the number of columns alone: a lane takes its elements in
// sequence, acc = fma(weight, x, acc), and then the lanes are added in pairs (add_lanes).
//
// Rows begin at multiples of the element's size, no more: with an odd number of columns nothing is
// aligned, which is why elements are loaded one by one. The loads of a few steps are under way
// together.
//
// The grid is one-dimensional: items (mixture of experts; one where there are none) times groups of
// eight weight rows, the groups of an item side by side.
#pragma once

#include "cuda/arguments.h"
#include "cuda/kernels/math.cuh"

namespace sluice::cuda {

inline constexpr std::int32_t kMatvecFloatThreads = 256;
inline constexpr std::int32_t kMatvecFloatRows = kMatvecFloatThreads / 32;  // weight rows a block
inline constexpr std::int32_t kMatvecFloatXRows = 8;  // activation rows at a time

// Blocks of an item; the grid has items times as many.
SIMT_ANYWHERE std::int32_t matvec_float_item_blocks(std::int32_t rows) {
  return rows / kMatvecFloatRows + (rows % kMatvecFloatRows != 0 ? 1 : 0);
}
SIMT_ANYWHERE std::int64_t matvec_float_blocks(std::int32_t rows, std::int32_t items) {
  return std::int64_t{items} * matvec_float_item_blocks(rows);
}

SIMT_ANYWHERE std::int32_t float_type_bytes(FloatType type) {
  return type == FloatType::kF32 ? 4 : 2;
}

// Element k of a weight row.
template <FloatType kType>
SIMT_DEVICE float load_element(simt::Global<const std::uint8_t> row, std::int64_t k) {
  if constexpr (kType == FloatType::kF32) {
    return simt::load(simt::cast<const float>(row) + k);
  } else {
    const std::uint16_t bits = simt::load(simt::cast<const std::uint16_t>(row) + k);
    if constexpr (kType == FloatType::kF16) {
      return simt::half_to_float(bits);
    } else {
      return simt::float_of_bits(static_cast<std::uint32_t>(bits) << 16);
    }
  }
}

// Results [out_row, out_row + count) of one weight row, at most kXRows of them. Rows past `count`
// are those of the last one once more, and are not written.
template <FloatType kType, int kXRows>
SIMT_DEVICE void multiply_x_rows(const MatvecFloatArgs& args, simt::Global<const std::uint8_t> row,
                                 std::int64_t weight_row, std::int64_t out_row,
                                 std::int32_t count) {
  constexpr int kSteps = kXRows == 1 ? 16 : 8;  // whose weights are under way together
  const auto lane = static_cast<std::int32_t>(simt::lane());
  simt::Global<const float> x[kXRows];
  SIMT_UNROLL
  for (int r = 0; r < kXRows; ++r) {
    const std::int64_t at = out_row + (r < count ? r : count - 1);
    const std::int64_t x_row = simt::is_null(args.x_row) ? at : simt::load(args.x_row + at);
    x[r] = args.x + x_row * args.x_stride;
  }

  float acc[kXRows] = {};
  std::int32_t k = lane;
  for (; k - lane <= args.cols - 32 * kSteps; k += 32 * kSteps) {
    float weight[kSteps];
    SIMT_UNROLL
    for (int s = 0; s < kSteps; ++s) weight[s] = load_element<kType>(row, k + 32 * s);
    SIMT_UNROLL
    for (int s = 0; s < kSteps; ++s) {
      SIMT_UNROLL
      for (int r = 0; r < kXRows; ++r) {
        acc[r] = simt::fma(weight[s], simt::load(x[r] + (k + 32 * s)), acc[r]);
      }
    }
  }
  for (; k < args.cols; k += 32) {
    const float weight = load_element<kType>(row, k);
    SIMT_UNROLL
    for (int r = 0; r < kXRows; ++r) acc[r] = simt::fma(weight, simt::load(x[r] + k), acc[r]);
  }

  SIMT_UNROLL
  for (int r = 0; r < kXRows; ++r) {
    const float sum = add_lanes(acc[r]);
    if (lane == r && r < count) {
      simt::store(args.out + (out_row + r) * args.out_stride + weight_row, sum);
    }
  }
}

template <FloatType kType>
SIMT_DEVICE void multiply_weight_row(const MatvecFloatArgs& args, const ExpertItem& item,
                                     std::int64_t weight_row) {
  const simt::Global<const std::uint8_t> row =
      args.weights + (item.expert * args.expert_bytes +
                      weight_row * args.cols * std::int64_t{float_type_bytes(kType)});
  for (std::int32_t done = 0; done < item.count; done += kMatvecFloatXRows) {
    const std::int64_t out_row = std::int64_t{item.first} + done;
    const std::int32_t left = item.count - done;
    if (left == 1) {
      multiply_x_rows<kType, 1>(args, row, weight_row, out_row, left);
    } else if (left <= 4) {
      multiply_x_rows<kType, 4>(args, row, weight_row, out_row, left);
    } else {
      multiply_x_rows<kType, 8>(args, row, weight_row, out_row, left < 8 ? left : 8);
    }
  }
}

SIMT_KERNEL(kMatvecFloatThreads) matvec_float(MatvecFloatArgs args) {
  simt::wait_for_previous();
  const auto blocks = static_cast<std::uint32_t>(matvec_float_item_blocks(args.rows));
  const std::int64_t group = simt::block_index() % blocks;
  const std::int64_t weight_row = group * kMatvecFloatRows + simt::warp();
  if (weight_row >= args.rows) return;  // the whole warp
  ExpertItem item = {0, 0, args.x_rows};
  if (!simt::is_null(args.items)) item = simt::load(args.items + simt::block_index() / blocks);
  switch (args.type) {
    case FloatType::kF32:
      multiply_weight_row<FloatType::kF32>(args, item, weight_row);
      break;
    case FloatType::kF16:
      multiply_weight_row<FloatType::kF16>(args, item, weight_row);
      break;
    case FloatType::kBF16:
      multiply_weight_row<FloatType::kBF16>(args, item, weight_row);
      break;
  }
}

}  // namespace sluice::cuda

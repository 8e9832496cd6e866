// Adds a result to the residual stream and takes the root mean square norm of the sum; a block of
// threads a row, see NormArgs.
//
//   added   = add [+ add_bias]
//   added   = added * (1 / sqrt(mean(added^2) + epsilon)) * add_norm      where there is add_norm
//   hidden += added                                          written back when something is added
//   normed  = hidden * (1 / sqrt(mean(hidden^2) + epsilon)) * norm    floats, int8 codes, or both
//
// The operations on an element are those of rms_norm in src/backend/cpu/generic.cpp. The sum of
// squares has an order of its own, which depends on the number of columns alone:
//
//   thread t   acc = fma(x, x, acc) over columns c with c / 4 % 256 == t, ascending
//   block      lanes in pairs at a distance of 16, 8, 4, 2, 1; then warps at 4, 2, 1
//
// A thread reads and writes the same columns in all steps, so that only the sums need a barrier.
#pragma once

#include "cuda/arguments.h"
#include "cuda/kernels/quantize.cuh"
#include "cuda/kernels/rows.cuh"

namespace sluice::cuda {

inline constexpr std::int32_t kNormThreads = kRowThreads;
inline constexpr std::int32_t kNormSharedBytes = 2 * kRowWarps * 4;  // a sum of warps for each norm

// The grid; `rows` counts what comes out.
SIMT_ANYWHERE std::int32_t norm_blocks(std::int32_t rows) { return rows; }

// Steps whose loads are under way together.
inline constexpr std::int32_t kNormBatch = 4;

// A row that a block goes through.
struct NormRow {
  std::int32_t cols;
  bool vectors;  // see load_four
  SIMT_DEVICE Four load(simt::Global<const float> p, std::int32_t col) const {
    return load_four(p, col, cols, vectors);
  }
};

// This thread's first column in step `step` of a batch that begins at column `start`.
SIMT_DEVICE std::int32_t norm_col(std::int32_t start, std::int32_t step) {
  return start + step * kRowStep + 4 * static_cast<std::int32_t>(simt::thread_index());
}

// What is added, before its norm. Values past the end are zeros.
SIMT_DEVICE void load_added(const NormArgs& args, const NormRow& row, simt::Global<const float> add,
                            std::int32_t start, Four (&added)[kNormBatch]) {
  SIMT_UNROLL
  for (std::int32_t i = 0; i < kNormBatch; ++i) added[i] = row.load(add, norm_col(start, i));
  if (simt::is_null(args.add_bias)) return;
  SIMT_UNROLL
  for (std::int32_t i = 0; i < kNormBatch; ++i) {
    const Four bias = row.load(args.add_bias, norm_col(start, i));
    SIMT_UNROLL
    for (int j = 0; j < 4; ++j) added[i].x[j] += bias.x[j];
  }
}

SIMT_DEVICE float add_squares(const Four& four, float acc) {
  SIMT_UNROLL
  for (int j = 0; j < 4; ++j) acc = simt::fma(four.x[j], four.x[j], acc);
  return acc;
}

// 1 / sqrt(mean + epsilon) from this thread's sum of squares.
SIMT_DEVICE float inverse_root(const NormArgs& args, float squares, simt::Shared<float> sums) {
  const float mean = add_threads(squares, sums) / static_cast<float>(args.cols);
  return 1.0f / simt::square_root(mean + args.epsilon);
}

// The sum of squares of what is added.
SIMT_DEVICE float squares_of_added(const NormArgs& args, const NormRow& row,
                                   simt::Global<const float> add) {
  float squares = 0.0f;
  for (std::int32_t start = 0; start < args.cols; start += kNormBatch * kRowStep) {
    Four added[kNormBatch];
    load_added(args, row, add, start, added);
    SIMT_UNROLL
    for (std::int32_t i = 0; i < kNormBatch; ++i) squares = add_squares(added[i], squares);
  }
  return squares;
}

// Adds a batch to x. `inverse`: of the norm of what is added, where there is one.
SIMT_DEVICE void add_batch(const NormArgs& args, const NormRow& row, simt::Global<const float> add,
                           float inverse, std::int32_t start, Four (&x)[kNormBatch]) {
  Four added[kNormBatch];
  load_added(args, row, add, start, added);
  if (!simt::is_null(args.add_norm)) {
    SIMT_UNROLL
    for (std::int32_t i = 0; i < kNormBatch; ++i) {
      const Four weight = row.load(args.add_norm, norm_col(start, i));
      SIMT_UNROLL
      for (int j = 0; j < 4; ++j) added[i].x[j] = added[i].x[j] * inverse * weight.x[j];
    }
  }
  SIMT_UNROLL
  for (std::int32_t i = 0; i < kNormBatch; ++i) {
    SIMT_UNROLL
    for (int j = 0; j < 4; ++j) x[i].x[j] += added[i].x[j];
  }
}

SIMT_KERNEL(kNormThreads) add_and_normalise(NormArgs args) {
  simt::wait_for_previous();
  const std::int64_t out_row = simt::block_index();
  const bool gathers = !simt::is_null(args.row);
  const std::int64_t in_row = gathers ? simt::load(args.row + out_row) : out_row;
  const bool adds = !gathers && !simt::is_null(args.add);
  const NormRow row = {args.cols, args.cols % 4 == 0};
  const simt::Global<float> hidden = args.hidden + in_row * args.cols;
  const simt::Global<const float> add = args.add + out_row * args.cols;
  const simt::Shared<float> sums = simt::cast<float>(simt::dynamic_shared());

  float add_inverse = 1.0f;
  if (adds && !simt::is_null(args.add_norm)) {
    add_inverse = inverse_root(args, squares_of_added(args, row, add), sums);
  }

  float squares = 0.0f;
  for (std::int32_t start = 0; start < args.cols; start += kNormBatch * kRowStep) {
    Four x[kNormBatch];
    SIMT_UNROLL
    for (std::int32_t i = 0; i < kNormBatch; ++i) x[i] = row.load(hidden, norm_col(start, i));
    if (adds) {
      add_batch(args, row, add, add_inverse, start, x);
      SIMT_UNROLL
      for (std::int32_t i = 0; i < kNormBatch; ++i) {
        store_four(hidden, norm_col(start, i), row.cols, row.vectors, x[i]);
      }
    }
    SIMT_UNROLL
    for (std::int32_t i = 0; i < kNormBatch; ++i) squares = add_squares(x[i], squares);
  }
  if (simt::is_null(args.norm)) return;

  const float inverse = inverse_root(args, squares, sums + kRowWarps);
  for (std::int32_t start = 0; start < args.cols; start += kNormBatch * kRowStep) {
    Four x[kNormBatch];
    Four weight[kNormBatch];
    SIMT_UNROLL
    for (std::int32_t i = 0; i < kNormBatch; ++i) {
      x[i] = row.load(hidden, norm_col(start, i));
      weight[i] = row.load(args.norm, norm_col(start, i));
    }
    SIMT_UNROLL
    for (std::int32_t i = 0; i < kNormBatch; ++i) {
      if (start + i * kRowStep >= args.cols) break;  // for the whole block
      const std::int32_t col = norm_col(start, i);
      SIMT_UNROLL
      for (int j = 0; j < 4; ++j) x[i].x[j] = x[i].x[j] * inverse * weight[i].x[j];
      if (!simt::is_null(args.normed)) {
        store_four(args.normed + out_row * args.cols, col, row.cols, row.vectors, x[i]);
      }
      if (!simt::is_null(args.quantized.q)) {
        quantize_four(bits_of_four(x[i]), col < args.cols, out_row * args.cols + col,
                      args.quantized);
      }
    }
  }
}

}  // namespace sluice::cuda

// What kernels that go through rows of floats have in common: four neighbouring values a thread,
// and sums over a block of threads.
//
//   row = | thread 0: 4 values | thread 1 | ... | thread 255 | thread 0: the next 4 | ...
//
// Rows of a number of columns that is no multiple of 4 begin anywhere: their values are loaded one
// by one, by the same threads, so that the order of sums is the same function of the columns.
#pragma once

#include "cuda/kernels/math.cuh"
#include "cuda/simt.h"

namespace sluice::cuda {

inline constexpr std::int32_t kRowThreads = 256;
inline constexpr std::int32_t kRowWarps = kRowThreads / 32;
inline constexpr std::int32_t kRowStep = 4 * kRowThreads;  // columns that a block takes at a time

struct Four {
  float x[4];
};

SIMT_DEVICE simt::Words bits_of_four(const Four& four) {
  simt::Words words;
  SIMT_UNROLL
  for (int i = 0; i < 4; ++i) words.word[i] = simt::float_bits(four.x[i]);
  return words;
}

// Columns col .. col + 3 of a row; zeros past its end. `vectors`: the row begins at a multiple of
// 16 bytes, and so do all groups of four in it.
SIMT_DEVICE Four load_four(simt::Global<const float> row, std::int32_t col, std::int32_t cols,
                           bool vectors) {
  Four four = {};
  if (vectors) {
    if (col < cols) {
      const simt::Words words = simt::load_words(row + col);
      SIMT_UNROLL
      for (int i = 0; i < 4; ++i) four.x[i] = simt::float_of_bits(words.word[i]);
    }
  } else {
    SIMT_UNROLL
    for (int i = 0; i < 4; ++i) {
      if (col + i < cols) four.x[i] = simt::load(row + (col + i));
    }
  }
  return four;
}

// The reverse; nothing is written past the end.
SIMT_DEVICE void store_four(simt::Global<float> row, std::int32_t col, std::int32_t cols,
                            bool vectors, const Four& four) {
  if (vectors) {
    if (col < cols) simt::store_words(row + col, bits_of_four(four));
  } else {
    SIMT_UNROLL
    for (int i = 0; i < 4; ++i) {
      if (col + i < cols) simt::store(row + (col + i), four.x[i]);
    }
  }
}

// Adds what the threads of a block of kRowThreads have, in one fixed order: the lanes of each warp
// (add_lanes), then the sums of warps in pairs at a distance of 4, 2, 1. All threads get it. `sums`
// has room for kRowWarps floats that nobody uses since the block's last barrier.
SIMT_DEVICE float add_threads(float x, simt::Shared<float> sums) {
  const float of_warp = add_lanes(x);
  if (simt::lane() == 0) simt::store(sums + simt::warp(), of_warp);
  simt::sync_threads();  // the sums of all warps are there
  float sum[kRowWarps];
  SIMT_UNROLL
  for (int i = 0; i < kRowWarps; ++i) sum[i] = simt::load(sums + i);
  SIMT_UNROLL
  for (int distance = kRowWarps / 2; distance > 0; distance /= 2) {
    SIMT_UNROLL
    for (int i = 0; i < distance; ++i) sum[i] += sum[i + distance];
  }
  return sum[0];
}

struct Before {
  std::uint32_t lower;  // what threads of lower index have
  std::uint32_t all;
};

// Adds up what the threads of the block have. `sums`: room for kRowWarps numbers that nobody uses
// since the block's last barrier.
SIMT_DEVICE Before sum_before(std::uint32_t value, simt::Shared<std::uint32_t> sums) {
  const std::uint32_t lane = simt::lane();
  std::uint32_t sum = value;  // of this and lower lanes
  SIMT_UNROLL
  for (std::uint32_t lanes = 1; lanes < 32; lanes *= 2) {
    const std::uint32_t other =
        simt::shuffle(simt::kAllLanes, sum, lane < lanes ? lane : lane - lanes);
    if (lane >= lanes) sum += other;
  }
  if (lane == 31) simt::store(sums + simt::warp(), sum);
  simt::sync_threads();  // the numbers of all warps are there
  Before before = {sum - value, 0};
  SIMT_UNROLL
  for (std::uint32_t w = 0; w < kRowWarps; ++w) {
    const std::uint32_t of_warp = simt::load(sums + w);
    if (w < simt::warp()) before.lower += of_warp;
    before.all += of_warp;
  }
  return before;
}

}  // namespace sluice::cuda

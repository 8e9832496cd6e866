// Quantized matrix times up to 8 or 16 rows of activations by int8 tensor cores, mma m16n8k32: a is
// 16 weight rows of a block, b is 8 activation rows of it. The int32 sums are exact, and what
// follows is the same as in matvec_dp4a.cuh, so the results are the same bits.
//
// One ldmatrix on a plane of a record gives lane (g, t) the words of four rows:
//
//   word i = bytes 4t..4t+3 of row g + 8 i, that is
//   low[i]   columns 4t..4t+3        Q4_0: low nibbles,  Q8_0: word of plane 0
//   high[i]  columns 16+4t..16+4t+3  Q4_0: high nibbles, Q8_0: word of plane 1
//   rows 16 m ..:  a = { low[2 m], low[2 m + 1], high[2 m], high[2 m + 1] }
//
// and one on the activations, whose planes lie one behind the other, 16 bytes a row:
//
//   8 rows:   word 0 = b[0], word 1 = b[1]
//   16 rows:  word n = b[0] of rows 8 n .., word 2 + n = b[1]
//
// Results: c[i] of half m and row group n belongs to weight row 16 m + g + 8 (i / 2) and activation
// row 8 n + 2 t + i % 2.
#pragma once

#include "cuda/kernels/matvec.cuh"

namespace sluice::cuda {

// Codes of rows g + 8 i (i < 4): low[i] columns 4t..4t+3, high[i] columns 16+4t..16+4t+3.
template <class Tiles>
SIMT_DEVICE void load_fragments(SharedBytes stage, std::uint32_t (&low)[4],
                                std::uint32_t (&high)[4]) {
  const auto lane = static_cast<std::int32_t>(simt::lane());
  const simt::Words plane = simt::load_matrices_x4(stage + 16 * lane);
  if constexpr (Tiles::kPlanes == 1) {
    SIMT_UNROLL
    for (int i = 0; i < 4; ++i) {
      low[i] = low_nibbles(plane.word[i]);
      high[i] = high_nibbles(plane.word[i]);
    }
  } else {
    const simt::Words second = simt::load_matrices_x4(stage + (kPlaneBytes + 16 * lane));
    SIMT_UNROLL
    for (int i = 0; i < 4; ++i) {
      low[i] = plane.word[i];
      high[i] = second.word[i];
    }
  }
}

template <class Tiles, int kXRows>
SIMT_KERNEL(kMatvecThreads)
matvec_mma(MatvecArgs args) {
  static_assert(kXRows == 8 || kXRows == 16);
  constexpr int kGroups = kXRows / 8;
  using Layout = Stage<Tiles, kXRows>;
  const auto lane = static_cast<std::int32_t>(simt::lane());
  const std::int32_t g = lane / 4;
  const std::int32_t t = lane % 4;
  float acc[2][kGroups][4] = {};  // [tile half][group of x rows][of the fragment]

  stream_segment<Tiles, kXRows>(args, [&](SharedBytes stage) {
    std::uint32_t low[4];
    std::uint32_t high[4];
    load_fragments<Tiles>(stage, low, high);
    float w_scale[4];  // of rows g + 8 i
    SIMT_UNROLL
    for (int i = 0; i < 4; ++i) {
      w_scale[i] = simt::half_to_float(
          simt::load(simt::cast<std::uint16_t>(stage + (Layout::kScales + 2 * (g + 8 * i)))));
    }
    simt::Words x;
    if constexpr (kXRows == 8) {
      x = simt::load_matrices_x2(stage + (Layout::kX + 16 * (lane % 16)));
    } else {
      x = simt::load_matrices_x4(stage + (Layout::kX + 16 * lane));
    }
    SIMT_UNROLL
    for (int n = 0; n < kGroups; ++n) {
      const std::uint32_t b[2] = {x.word[n], x.word[kGroups + n]};
      float x_scale[2];  // of x rows 8 n + 2 t, + 1
      SIMT_UNROLL
      for (int i = 0; i < 2; ++i) {
        x_scale[i] =
            simt::load(simt::cast<float>(stage + (Layout::kXScales + 4 * (8 * n + 2 * t + i))));
      }
      SIMT_UNROLL
      for (int m = 0; m < 2; ++m) {
        const std::uint32_t a[4] = {low[2 * m], low[2 * m + 1], high[2 * m], high[2 * m + 1]};
        std::int32_t dot[4] = {};
        simt::mma_s8(dot, a, b);
        SIMT_UNROLL
        for (int i = 0; i < 4; ++i) {
          float& sum = acc[m][n][i];
          sum = accumulate<Tiles>(w_scale[2 * m + i / 2], x_scale[i % 2], dot[i], sum);
        }
      }
    }
  });

  SIMT_UNROLL
  for (int n = 0; n < kGroups; ++n) {
    SIMT_UNROLL
    for (int m = 0; m < 2; ++m) {
      SIMT_UNROLL
      for (int i = 0; i < 4; ++i) {
        simt::store(partial_sum<kXRows>(static_cast<std::int32_t>(simt::warp()),
                                        8 * n + 2 * t + i % 2, 16 * m + g + 8 * (i / 2)),
                    acc[m][n][i]);
      }
    }
  }
  finish_tile<kXRows>(args);
}

}  // namespace sluice::cuda

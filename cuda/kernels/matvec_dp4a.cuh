// Quantized matrix times one to four rows of activations by dp4a: four products of bytes an
// instruction. Lane r has row r of the tile; the activations are the same for all lanes.
//
//   lane r:  codes of row r, 16 or 32 bytes    8 words of 4 columns
//   all:     an x row of the block, 32 bytes    8 words of 4 columns     -> 8 dp4a
//
// 64 lanes a clock and multiprocessor: enough for full bandwidth up to about four rows.
#pragma once

#include "cuda/kernels/matvec.cuh"

namespace sluice::cuda {

// The codes of this lane's row, words 0-3: columns 0-15, words 4-7: columns 16-31.
template <class Tiles>
SIMT_DEVICE void load_row_codes(SharedBytes stage, std::uint32_t (&codes)[8]) {
  const auto lane = static_cast<std::int32_t>(simt::lane());
  const simt::Words plane = simt::load_words(stage + 16 * lane);
  if constexpr (Tiles::kPlanes == 1) {
    SIMT_UNROLL
    for (int i = 0; i < 4; ++i) {
      codes[i] = low_nibbles(plane.word[i]);
      codes[4 + i] = high_nibbles(plane.word[i]);
    }
  } else {
    const simt::Words second = simt::load_words(stage + (kPlaneBytes + 16 * lane));
    SIMT_UNROLL
    for (int i = 0; i < 4; ++i) {
      codes[i] = plane.word[i];
      codes[4 + i] = second.word[i];
    }
  }
}

template <class Tiles, int kXRows>
SIMT_KERNEL(kMatvecThreads)
matvec_dp4a(MatvecArgs args) {
  using Layout = Stage<Tiles, kXRows>;
  const auto lane = static_cast<std::int32_t>(simt::lane());
  float acc[kXRows] = {};

  stream_segment<Tiles, kXRows>(args, [&](SharedBytes stage) {
    std::uint32_t codes[8];
    load_row_codes<Tiles>(stage, codes);
    const float w_scale = simt::half_to_float(
        simt::load(simt::cast<std::uint16_t>(stage + (Layout::kScales + 2 * lane))));
    SIMT_UNROLL
    for (int r = 0; r < kXRows; ++r) {
      const simt::Words low = simt::load_words(stage + (Layout::kX + 16 * r));
      const simt::Words high = simt::load_words(stage + (Layout::kX + Layout::kXPlane + 16 * r));
      std::int32_t dot = 0;
      SIMT_UNROLL
      for (int i = 0; i < 4; ++i) {
        dot = simt::dp4a(codes[i], low.word[i], dot);
        dot = simt::dp4a(codes[4 + i], high.word[i], dot);
      }
      const float x_scale = simt::load(simt::cast<float>(stage + (Layout::kXScales + 4 * r)));
      acc[r] = accumulate<Tiles>(w_scale, x_scale, dot, acc[r]);
    }
  });

  SIMT_UNROLL
  for (int r = 0; r < kXRows; ++r) {
    simt::store(partial_sum<kXRows>(static_cast<std::int32_t>(simt::warp()), r, lane), acc[r]);
  }
  finish_tile<kXRows>(args);
}

}  // namespace sluice::cuda

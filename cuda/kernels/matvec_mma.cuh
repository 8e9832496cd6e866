// Quantized matrix times up to 8 or 16 rows of activations by int8 tensor cores: a is 16 weight
// rows of a block, b is 8 activation rows of it. The int32 sums are exact, and what follows is the
// same as in matvec_dp4a.cuh, so the results are the same bits.
//
// One ldmatrix on a plane of a record gives lane (g, t) word t of rows g + 8 i, see
// load_fragments(); one on the activations, whose planes lie one behind the other, 16 bytes a row:
//
//   8 rows:   word 0 = b[0], word 1 = b[1]
//   16 rows:  word n = b[0] of rows 8 n .., word 2 + n = b[1]
//
// Results: c[i] of half m and row group n belongs to weight row 16 m + g + 8 (i / 2) and activation
// row 8 n + 2 t + i % 2.
#pragma once

#include "cuda/kernels/matvec.cuh"

namespace sluice::cuda {

// This warp's partial sums, to shared memory.
template <class Tiles, int kXRows, int kTiles>
SIMT_DEVICE void sum_by_mma(const MatvecArgs& args, const MatvecWork& work) {
  static_assert(kXRows == 8 || kXRows == 16);
  constexpr int kGroups = kXRows / 8;
  using Layout = Stage<Tiles, kXRows>;
  const auto lane = static_cast<std::int32_t>(simt::lane());
  const std::int32_t g = lane / 4;
  const std::int32_t t = lane % 4;
  float acc[kTiles][kGroups][2][4] = {};  // [tile][group of x rows][tile half][of the fragment]
  HeaderScales<4> header = {};

  const auto consume = [&](int tile, SharedBytes stage, bool new_header) {
    if (new_header) load_header<Tiles>(stage, 4 * g, header);
    std::uint32_t low[4];
    std::uint32_t high[4];
    load_fragments<Tiles>(stage + Layout::kRecord, low, high);
    const auto scales = load_scales<Tiles>(stage + Layout::kRecord, 4 * g, header);
    XFragment x[2];
    if constexpr (kXRows == 8) {
      const simt::Words words = simt::load_matrices_x2(stage + (Layout::kX + 16 * (lane % 16)));
      x[0] = {{words.word[0], words.word[1]}};
    } else {
      load_x_fragments<Tiles, kXRows>(stage + Layout::kX, 0, x);
    }
    SIMT_UNROLL
    for (int n = 0; n < kGroups; ++n) {
      XGroup<Tiles::kParts> groups[2];
      load_x_groups<Tiles, kXRows>(stage + Layout::kX, n, groups);
      multiply_block<Tiles>(low, high, scales, x[n], groups, acc[tile][n]);
    }
  };
  stream_segment<Tiles, kXRows, kTiles>(args, work, consume);

  const auto segment = static_cast<std::int32_t>(simt::warp());
  SIMT_UNROLL
  for (int i = 0; i < kTiles * kGroups * 8; ++i) {
    const int tile = i / (8 * kGroups);
    const int n = i / 8 % kGroups;
    const int m = i / 4 % 2;
    simt::store(partial_sum<kXRows, kTiles>(segment, 8 * n + 2 * t + i % 2,
                                            kTileRows * tile + 16 * m + g + 8 * (i % 4 / 2)),
                acc[tile][n][m][i % 4]);
  }
}

// Two blocks of threads on a multiprocessor are enough; if not told, ptxas spills registers to fit
// in more.
template <class Tiles, int kXRows>
SIMT_KERNEL(kMatvecThreads, 2)
matvec_mma(MatvecArgs args) {
  const MatvecWork work = matvec_work<Tiles>(args);
  if (work.count == 0) return;
  sum_by_mma<Tiles, kXRows, 1>(args, work);
  finish_tile<kXRows>(args, work);
}

}  // namespace sluice::cuda

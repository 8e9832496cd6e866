// Quantized matrix times one to four rows of activations by dp4a: four products of bytes an
// instruction. Lane r has row r of the tile; the activations are the same for all lanes.
//
//   lane r:  codes of row r, 16 or 32 bytes    8 words of 4 columns
//   all:     an x row of the block, 32 bytes    8 words of 4 columns     -> 8 dp4a
//
// 64 lanes a clock and multiprocessor: from some number of rows on tensor cores are faster, which
// the device measures (cuda/host/few_rows.h).
#pragma once

#include "cuda/kernels/matvec.cuh"

namespace sluice::cuda {

// This warp's partial sums, to shared memory.
template <class Tiles, int kXRows, int kTiles>
SIMT_DEVICE void sum_by_dp4a(const MatvecArgs& args, const MatvecWork& work) {
  using Layout = Stage<Tiles, kXRows>;
  using XLayout = XStage<Tiles, kXRows>;
  const auto lane = static_cast<std::int32_t>(simt::lane());
  const std::int32_t place = row_place(lane);
  float acc[kTiles][kXRows] = {};
  HeaderScales<1> header = {};

  const auto consume = [&](int tile, SharedBytes stage, bool new_header) {
    if (new_header) load_header<Tiles>(stage, place, header);
    std::uint32_t codes[8];
    load_row_codes<Tiles>(stage + Layout::kRecord, codes);
    const auto scales = load_scales<Tiles>(stage + Layout::kRecord, place, header);
    const SharedBytes x = stage + Layout::kX;
    SIMT_UNROLL
    for (int r = 0; r < kXRows; ++r) {
      const simt::Words low = simt::load_words(x + 16 * r);
      const simt::Words high = simt::load_words(x + (XLayout::kPlane + 16 * r));
      std::int32_t dot[Tiles::kParts];
      SIMT_UNROLL
      for (std::int32_t& part : dot) part = kDotStart;
      SIMT_UNROLL
      for (int i = 0; i < 4; ++i) {
        std::int32_t& first = dot[0];
        std::int32_t& last = dot[Tiles::kParts - 1];
        first = simt::dp4a(codes[i], low.word[i], first);
        last = simt::dp4a(codes[4 + i], high.word[i], last);
      }
      const std::uint32_t scale =
          simt::load(simt::cast<std::uint32_t>(x + (XLayout::kScales + 4 * r)));
      std::uint32_t sums = 0;
      if constexpr (Tiles::kHasMin) {
        sums = simt::load(simt::cast<std::uint32_t>(x + (XLayout::kSums + 4 * r)));
      }
      const auto group = x_group<Tiles>(scale, sums);
      SIMT_UNROLL
      for (int part = 0; part < Tiles::kParts; ++part) {
        acc[tile][r] = accumulate<Tiles>(scales, part, 0, group, dot[part], acc[tile][r]);
      }
    }
  };
  stream_segment<Tiles, kXRows, kTiles>(args, work, consume);

  const auto segment = static_cast<std::int32_t>(simt::warp());
  SIMT_UNROLL
  for (int tile = 0; tile < kTiles; ++tile) {
    SIMT_UNROLL
    for (int r = 0; r < kXRows; ++r) {
      simt::store(partial_sum<kXRows, kTiles>(segment, r, kTileRows * tile + lane), acc[tile][r]);
    }
  }
}

template <class Tiles, int kXRows>
SIMT_KERNEL(kMatvecThreads, 2)
matvec_dp4a(MatvecArgs args) {
  const MatvecWork work = matvec_work<Tiles>(args);
  if (work.count == 0) return;
  sum_by_dp4a<Tiles, kXRows, 1>(args, work);
  finish_tile<kXRows>(args, work);
}

}  // namespace sluice::cuda

// A feed-forward block's two matrices of the same input, with what follows them:
//
//   out[r] = int8 of activation(gate * x[r]) * (up * x[r])
//
// without a way of the products through memory. The matrices lie tile by tile, one of gate, one of
// up:
//
//   weights = | gate tile 0 | up tile 0 | gate tile 1 | up tile 1 | ...
//
// A block of threads makes both tiles of a pair, as matvec.cuh does one, and has 32 neighbouring
// values of each activation row then: a group of int8 activations. Warp w does rows w, w + 8, ...
// of them, lane r value r. The operations are those of the kernels that it stands for
// (matvec_dp4a.cuh or matvec_mma.cuh, then activate.cuh), and so are the bits.
#pragma once

#include "cuda/kernels/math.cuh"
#include "cuda/kernels/matvec_dp4a.cuh"
#include "cuda/kernels/matvec_mma.cuh"
#include "cuda/kernels/quantize.cuh"

namespace sluice::cuda {

// Activates and quantizes the sums of a pair of tiles.
template <int kXRows>
SIMT_DEVICE void finish_pair(const GatedArgs& args, const MatvecWork& work) {
  simt::sync_threads();  // the sums of all segments are there
  const auto lane = static_cast<std::int32_t>(simt::lane());
  const std::int32_t segments = segments_of(args.product.cols / kBlockCols);
  for (auto x_row = static_cast<std::int32_t>(simt::warp()); x_row < work.count;
       x_row += kSegments) {
    const float gate = sum_segments<kXRows, 2>(segments, x_row, lane);
    const float up = sum_segments<kXRows, 2>(segments, x_row, kTileRows + lane);
    const float value = (args.gelu ? gelu_of(gate) : silu_of(gate)) * up;
    const std::int64_t row = std::int64_t{work.first} + x_row;
    quantize_lanes(value, row * args.product.rows + work.first_row + lane, args.out);
  }
}

template <class Tiles, int kXRows>
SIMT_KERNEL(kMatvecThreads, 2)
gated_dp4a(GatedArgs args) {
  const MatvecWork work = matvec_work<Tiles, 2>(args.product);
  if (work.count == 0) return;
  sum_by_dp4a<Tiles, kXRows, 2>(args.product, work);
  finish_pair<kXRows>(args, work);
}

template <class Tiles, int kXRows>
SIMT_KERNEL(kMatvecThreads, 2)
gated_mma(GatedArgs args) {
  const MatvecWork work = matvec_work<Tiles, 2>(args.product);
  if (work.count == 0) return;
  sum_by_mma<Tiles, kXRows, 2>(args.product, work);
  finish_pair<kXRows>(args, work);
}

}  // namespace sluice::cuda

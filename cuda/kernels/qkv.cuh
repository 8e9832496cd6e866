// The matrices of queries, keys and values with what follows them: biases, norms, rotation, int8
// or f16, and the way into the cache.
//
// Blocks of threads make tiles of 32 rows, as matvec.cuh says, and leave them in `product.out`. A
// head is some neighbouring tiles; the last of its blocks to arrive sees the work of the others and
// finishes the head for all activation rows, a warp a row, as rope.cuh does. The operations are
// those of the kernels that this one stands for, and so are the bits.
#pragma once

#include "cuda/kernels/matvec_dp4a.cuh"
#include "cuda/kernels/matvec_mma.cuh"
#include "cuda/kernels/rope.cuh"

namespace sluice::cuda {

// Shared memory of a block of threads: the matrix's, later a head for each warp.
template <class Tiles, int kXRows>
SIMT_ANYWHERE std::int32_t qkv_shared_bytes() {
  constexpr std::int32_t kProduct = matvec_shared_bytes<Tiles, kXRows>();
  constexpr std::int32_t kHeads = kSegments * kMaxHeadDim * 4;
  return kProduct > kHeads ? kProduct : kHeads;
}

SIMT_DEVICE void finish_head(const QkvArgs& args, const MatvecWork& work) {
  const std::int32_t head = work.first_row / args.rope.head_dim;
  const auto tiles = static_cast<std::uint32_t>(args.rope.head_dim / kTileRows);
  if (!simt::arrive_last(args.arrivals + head, tiles)) return;
  const auto warp = static_cast<std::int32_t>(simt::warp());
  const simt::Shared<float> staged = simt::cast<float>(simt::dynamic_shared()) + warp * kMaxHeadDim;
  SIMT_NO_UNROLL
  for (std::int32_t row = warp; row < work.count; row += kSegments) {
    const std::int32_t number = args.first_head + head;
    const Head values = rotated_head(args.rope, row, number, staged);
    if (args.half_pages) {
      store_head<HalfPages>(args.rope, row, number, values);
    } else {
      store_head<Int8Pages>(args.rope, row, number, values);
    }
  }
}

// Two blocks of threads on a multiprocessor, see matvec_mma.cuh.
template <class Tiles, int kXRows>
SIMT_KERNEL(kMatvecThreads, 2)
qkv_dp4a(QkvArgs args) {
  const MatvecWork work = matvec_work<Tiles>(args.product);
  sum_by_dp4a<Tiles, kXRows, 1>(args.product, work);
  finish_tile<kXRows>(args.product, work);
  finish_head(args, work);
}

template <class Tiles, int kXRows>
SIMT_KERNEL(kMatvecThreads, 2)
qkv_mma(QkvArgs args) {
  const MatvecWork work = matvec_work<Tiles>(args.product);
  sum_by_mma<Tiles, kXRows, 1>(args.product, work);
  finish_tile<kXRows>(args.product, work);
  finish_head(args, work);
}

}  // namespace sluice::cuda

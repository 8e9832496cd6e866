// The kernels that the library holds: one line for each, so that nvcc makes code of them.
#include "cuda/kernels/attention.cuh"
#include "cuda/kernels/matvec_dp4a.cuh"
#include "cuda/kernels/matvec_mma.cuh"
#include "cuda/kernels/quantize.cuh"
#include "cuda/kernels/rope.cuh"

namespace sluice::cuda {

// quantize_rows, rope_and_store, attend_chunk and merge_chunks are no templates: including them is
// enough.

template __global__ void matvec_dp4a<TilesQ4_0, 1>(MatvecArgs);
template __global__ void matvec_dp4a<TilesQ4_0, 2>(MatvecArgs);
template __global__ void matvec_dp4a<TilesQ4_0, 3>(MatvecArgs);
template __global__ void matvec_dp4a<TilesQ4_0, 4>(MatvecArgs);
template __global__ void matvec_mma<TilesQ4_0, 8>(MatvecArgs);
template __global__ void matvec_mma<TilesQ4_0, 16>(MatvecArgs);

template __global__ void matvec_dp4a<TilesQ8_0, 1>(MatvecArgs);
template __global__ void matvec_dp4a<TilesQ8_0, 2>(MatvecArgs);
template __global__ void matvec_dp4a<TilesQ8_0, 3>(MatvecArgs);
template __global__ void matvec_dp4a<TilesQ8_0, 4>(MatvecArgs);
template __global__ void matvec_mma<TilesQ8_0, 8>(MatvecArgs);
template __global__ void matvec_mma<TilesQ8_0, 16>(MatvecArgs);

}  // namespace sluice::cuda

// The kernels that the library holds, so that nvcc makes code of them.
#include "cuda/kernels/gemm.cuh"
#include "cuda/kernels/matvec_dp4a.cuh"
#include "cuda/kernels/matvec_mma.cuh"
#include "cuda/kernels/quantize.cuh"

namespace sluice::cuda {

// quantize_rows is no template: including it is enough.

// A quantized matrix times rows, for one layout of weights.
#define SLUICE_TILE_KERNELS(Tiles)                            \
  template __global__ void matvec_dp4a<Tiles, 1>(MatvecArgs); \
  template __global__ void matvec_dp4a<Tiles, 2>(MatvecArgs); \
  template __global__ void matvec_dp4a<Tiles, 3>(MatvecArgs); \
  template __global__ void matvec_dp4a<Tiles, 4>(MatvecArgs); \
  template __global__ void matvec_mma<Tiles, 8>(MatvecArgs);  \
  template __global__ void matvec_mma<Tiles, 16>(MatvecArgs); \
  template __global__ void gemm<Tiles>(MatvecArgs);

SLUICE_TILE_KERNELS(TilesQ4_0)
SLUICE_TILE_KERNELS(TilesQ8_0)
SLUICE_TILE_KERNELS(TilesIQ4_NL)
SLUICE_TILE_KERNELS(TilesMXFP4)
SLUICE_TILE_KERNELS(TilesQ4_K)
SLUICE_TILE_KERNELS(TilesQ5_K)
SLUICE_TILE_KERNELS(TilesQ6_K)
SLUICE_TILE_KERNELS(TilesWide)
SLUICE_TILE_KERNELS(TilesWideHalves)

}  // namespace sluice::cuda

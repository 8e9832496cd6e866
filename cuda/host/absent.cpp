// In place of the CUDA backend where the program is built without CUDA.
#include "cuda/host/cuda_platform.h"

namespace sluice::cuda {

const GpuPlatform* platform() { return nullptr; }

}  // namespace sluice::cuda

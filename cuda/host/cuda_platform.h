// GPUs through CUDA, for main to hand to the rest of the program.
#pragma once

#include "src/backend/gpu.h"

namespace sluice::cuda {

// Null where the program was built without CUDA (cuda/host/absent.cpp).
const GpuPlatform* platform();

}  // namespace sluice::cuda

// The tables of the units that are compiled for one instruction set.
#pragma once

#include "src/backend/cpu/kernels.h"

namespace sluice::cpu {

extern const Kernels kAvx2Kernels;
extern const Kernels kAvxVnniKernels;
extern const Kernels kAvx512Kernels;
// avxvnni.cpp and avx512.cpp compiled against SIMDe, in their test only.
extern const Kernels kEmulatedAvxVnniKernels;
extern const Kernels kEmulatedAvx512Kernels;

}  // namespace sluice::cpu

// The tables of the units that are compiled for one instruction set.
#pragma once

#include "src/backend/cpu/kernels.h"

namespace sluice::cpu {

extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;

}  // namespace sluice::cpu

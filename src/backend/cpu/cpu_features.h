// Which of the kernel tables this machine can run. Asked before any code that was compiled for one
// of them, so it is defined in a unit that is compiled for every machine.
#pragma once

namespace sluice::cpu {

bool avx2_supported();     // AVX2, FMA and F16C
bool avxvnni_supported();  // those, and AVX-VNNI
bool avx512_supported();   // those of avx2, and AVX-512 F, BW, VL, DQ and VNNI

}  // namespace sluice::cpu

// Vector intrinsics: the compiler's, or, to test instruction sets that the machine lacks, SIMDe's
// functions of the same names. Included only by units that are compiled for one instruction set.
//
// Those units must not share inline functions or templates with others: the linker keeps one copy
// of each, possibly one that an older machine cannot run. Hence everything in the simd_*.h headers
// has internal linkage, and standard library templates stay out of them.
#pragma once

#ifdef SLUICE_EMULATE_SIMD
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx2.h>
#include <simde/x86/avx512.h>
#include <simde/x86/f16c.h>
#include <simde/x86/fma.h>
#else
#include <immintrin.h>
#endif

#define SLUICE_INLINE static inline __attribute__((always_inline))
#define SLUICE_MEMBER static inline __attribute__((always_inline))

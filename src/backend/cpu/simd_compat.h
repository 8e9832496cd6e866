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

#include "src/backend/cpu/simd_emulation.h"
#else
#include <immintrin.h>
#endif

// Forced inlining would make the emulation take minutes to compile.
#ifdef SLUICE_EMULATE_SIMD
#define SLUICE_ALWAYS_INLINE
#else
#define SLUICE_ALWAYS_INLINE __attribute__((always_inline))
#endif
#define SLUICE_INLINE static inline SLUICE_ALWAYS_INLINE
#define SLUICE_MEMBER static inline SLUICE_ALWAYS_INLINE

#include "src/backend/cpu/cpu_features.h"

#ifdef SLUICE_X86
#include <cpuid.h>
#endif

namespace sluice::cpu {

#ifdef SLUICE_X86

namespace {

// CPUID leaf 1, ECX bit 29. Clang 14's __builtin_cpu_supports does not know the name.
bool f16c_supported() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & (1U << 29)) != 0;
}

// CPUID leaf 7, subleaf 1, EAX bit 4; for the same reason.
bool has_avxvnni() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0 || eax < 1) return false;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax & (1U << 4)) != 0;
}

}  // namespace

bool avx2_supported() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && f16c_supported();
}

bool avxvnni_supported() { return avx2_supported() && has_avxvnni(); }

bool avx512_supported() {
  return avx2_supported() && __builtin_cpu_supports("avx512f") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni");
}

#else

bool avx2_supported() { return false; }
bool avxvnni_supported() { return false; }
bool avx512_supported() { return false; }

#endif

}  // namespace sluice::cpu

// The AVX-512 kernels on machines without AVX-512: the same source, compiled against SIMDe, must
// give the bits of the generic kernels.
#include <doctest/doctest.h>

#include <cstdio>

#include "src/backend/cpu/simd_tables.h"
#include "tests/kernels_testing.h"

using namespace sluice::cpu;

TEST_CASE("emulated AVX-512 kernels give the bits of the generic ones") {
  if (!kEmulatedAvx512Kernels.supported()) {
    std::fprintf(stderr, "SKIPPED: the emulation of AVX-512 needs AVX2, FMA and F16C\n");
    return;
  }
  testing::check_same_bits(*find_kernels("generic"), kEmulatedAvx512Kernels, 17);
}

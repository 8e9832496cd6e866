// The AVX-512 and AVX-VNNI kernels on machines without these: the same sources, compiled against
// SIMDe, must give the bits of the generic kernels.
#include <doctest/doctest.h>

#include <cstdio>

#include "src/backend/cpu/simd_tables.h"
#include "tests/kernels_testing.h"

using namespace sluice::cpu;

namespace {

void check_emulated(const Kernels& table, std::uint64_t seed) {
  if (!table.supported()) {
    std::fprintf(stderr, "SKIPPED: the emulation needs AVX2, FMA and F16C\n");
    return;
  }
  testing::check_same_bits(*find_kernels("generic"), table, seed);
}

}  // namespace

TEST_CASE("emulated AVX-512 kernels give the bits of the generic ones") {
  check_emulated(kEmulatedAvx512Kernels, 17);
}

TEST_CASE("emulated AVX-VNNI kernels give the bits of the generic ones") {
  check_emulated(kEmulatedAvxVnniKernels, 18);
}

#include "src/backend/cpu/kernels.h"

#include "src/backend/cpu/generic.h"
#include "src/backend/cpu/simd_tables.h"

namespace sluice::cpu {
namespace {

constexpr const Kernels* kTables[] = {
    &kGenericKernels,
#ifdef SLUICE_X86
    &kAvx2Kernels,
    &kAvxVnniKernels,
    &kAvx512Kernels,
#endif
};

}  // namespace

std::span<const Kernels* const> all_kernels() { return kTables; }

const Kernels& best_kernels() {
  const Kernels* best = kTables[0];
  for (const Kernels* table : kTables) {
    if (table->supported()) best = table;
  }
  return *best;
}

const Kernels* find_kernels(std::string_view name) {
  for (const Kernels* table : kTables) {
    if (table->name == name) return table;
  }
  return nullptr;
}

}  // namespace sluice::cpu

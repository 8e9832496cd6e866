#include "src/backend/cpu/kernels.h"

#include <array>

#include "src/backend/cpu/generic.h"

namespace sluice::cpu {
namespace {

constexpr std::array<const Kernels*, 1> kTables{&kGenericKernels};

}  // namespace

std::span<const Kernels* const> all_kernels() { return kTables; }

const Kernels& best_kernels() {
  const Kernels* best = kTables.front();
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

#include "src/engine/sampling/passes.h"

namespace sluice {

const VocabPasses& best_passes() {
  const VocabPasses* fast = avx2_passes();
  return fast ? *fast : generic_passes();
}

}  // namespace sluice

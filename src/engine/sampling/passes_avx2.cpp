// Compiled with -mavx2 on x86-64; elsewhere there is nothing to offer.
#include "src/engine/sampling/passes.h"

namespace sluice {

#ifdef __AVX2__
namespace {
namespace avx2 {
#include "src/engine/sampling/passes_body.h"
}  // namespace avx2
}  // namespace

const VocabPasses* avx2_passes() {
  return __builtin_cpu_supports("avx2") ? &avx2::kPasses : nullptr;
}
#else
const VocabPasses* avx2_passes() { return nullptr; }
#endif

}  // namespace sluice

#include "src/engine/sampling/passes.h"

namespace sluice {
namespace {
namespace generic {
#include "src/engine/sampling/passes_body.h"
}  // namespace generic
}  // namespace

const VocabPasses& generic_passes() { return generic::kPasses; }

}  // namespace sluice

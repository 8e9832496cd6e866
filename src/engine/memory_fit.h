// How large a KV cache a model gets, and what to say when even the smallest does not fit.
#pragma once

#include <cstdint>

#include "src/backend/placement.h"
#include "src/base/status.h"

namespace sluice {

// Blocks for `sequences` that fill the context (request.cpu.positions), or fewer where that takes
// more than half of the memory left on some device; at least one context. `kv_tokens` above the
// context is kept as it is.
std::uint32_t choose_kv_blocks(const PlacementRequest& request, const Placement& placement,
                               std::uint32_t kv_tokens, std::uint32_t sequences);

// Blocks that hold some tokens.
std::uint32_t blocks_for_tokens(std::uint64_t tokens);

// The message for a placement that does not fit: the numbers, and what would make it fit.
Error too_large(const PlacementRequest& request, const Placement& placement);

}  // namespace sluice

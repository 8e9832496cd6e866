// How much memory this process may still take.
#pragma once

#include <cstdint>

namespace sluice {

// Bytes available without swapping: the kernel's estimate, within the limits of the control group
// (container) that the process runs in. 0 when unknown.
std::uint64_t available_memory();

}  // namespace sluice

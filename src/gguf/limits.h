// What the reader and the writer of GGUF agree on.
#pragma once

#include <cstdint>

namespace sluice {

constexpr std::uint32_t kGgufDefaultAlignment = 32;
constexpr std::uint64_t kGgufMaxNameBytes = 65535;  // of keys and tensor names; a limit of ours

}  // namespace sluice

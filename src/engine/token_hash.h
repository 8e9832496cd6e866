// Tells runs of tokens apart; equal hashes are no proof, so exact users compare.
#pragma once

#include <cstdint>
#include <span>

namespace sluice {

inline std::uint64_t token_hash(std::span<const std::int32_t> tokens) {
  std::uint64_t h = 0xcbf29ce484222325;
  for (const std::int32_t token : tokens) {
    h = (h ^ static_cast<std::uint32_t>(token)) * 0x9E3779B97F4A7C15u;
    h ^= h >> 29;
  }
  return h;
}

}  // namespace sluice

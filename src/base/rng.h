// Counter-based random numbers: a draw is a pure function of (seed, stream, position), so a sampled
// run is the same whatever the scheduling, and a resumed one continues where it stopped.
// Method: Philox-4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy as 1, 2,
// 3", SC'11).
#pragma once

#include <array>
#include <cstdint>

namespace sluice {

// Four random words for a key and a 128-bit counter.
inline std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                               std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * counter[0];
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * counter[2];
    counter = {
        static_cast<std::uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(p1),
        static_cast<std::uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(p0)};
    key = {key[0] + 0x9E3779B9u, key[1] + 0xBB67AE85u};
  }
  return counter;
}

// 64 random bits. `stream` tells sequences apart, `position` is the index of the token being drawn,
// `use` tells several draws for one token apart.
inline std::uint64_t random_bits(std::uint64_t seed, std::uint32_t stream, std::uint64_t position,
                                 std::uint32_t use) {
  const auto words =
      philox4x32({static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(position >> 32),
                  stream, use},
                 {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  return (std::uint64_t{words[0]} << 32) | words[1];
}

// Uniform in [0, 1) with 53 bits.
inline double unit_interval(std::uint64_t bits) {
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

inline double uniform(std::uint64_t seed, std::uint32_t stream, std::uint64_t position,
                      std::uint32_t use) {
  return unit_interval(random_bits(seed, stream, position, use));
}

}  // namespace sluice

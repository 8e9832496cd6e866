// What an item's id alone decides: its shard, and its stream of random numbers.
#pragma once

#include <cstdint>
#include <string_view>

#include "src/base/status.h"

namespace sluice {

// FNV-1a over the bytes, then the finalizer of MurmurHash3; the same in every version and on every
// machine (docs/FORMATS.md has it too).
std::uint64_t stable_hash(std::string_view id);

// The item's stream of the seed's random numbers.
inline std::uint32_t random_stream(std::string_view id) {
  return static_cast<std::uint32_t>(stable_hash(id) >> 32);
}

// One of `count` parts of the items, numbered from 0.
struct Shard {
  std::uint32_t index = 0;
  std::uint32_t count = 1;

  bool owns(std::string_view id) const { return stable_hash(id) % count == index; }
  bool operator==(const Shard&) const = default;
};

// "0/3"; kUsage for anything else.
Result<Shard> parse_shard(std::string_view text);

}  // namespace sluice

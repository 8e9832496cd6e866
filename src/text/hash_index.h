// A flat hash table from byte strings kept elsewhere to their index: nothing is allocated per key,
// so a vocabulary of 150,000 tokens is indexed in milliseconds.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace sluice {

// a * b in 128 bits, the halves xored.
inline std::uint64_t fold_multiply(std::uint64_t a, std::uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = Wide{a} * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

inline std::uint64_t hash_bytes(std::string_view bytes) {
  constexpr std::uint64_t kOdd1 = 0x9e3779b97f4a7c15u, kOdd2 = 0xd6e8feb86659fd93u;
  std::uint64_t hash = kOdd2 ^ bytes.size();
  const char* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 8; at += 8, left -= 8) {
    std::uint64_t word;
    std::memcpy(&word, at, 8);
    hash = fold_multiply(hash ^ word, kOdd1);
  }
  std::uint64_t word = 0;  // the rest; overlapping loads are unambiguous for a known length
  if (left >= 4) {
    std::uint32_t low, high;
    std::memcpy(&low, at, 4);
    std::memcpy(&high, at + left - 4, 4);
    word = low | std::uint64_t{high} << 32;
  } else if (left > 0) {
    const auto byte = [&](std::size_t i) {
      return std::uint64_t{static_cast<unsigned char>(at[i])};
    };
    word = byte(0) | byte(left / 2) << 8 | byte(left - 1) << 16;
  }
  return fold_multiply(hash ^ word, kOdd2) ^ fold_multiply(hash, kOdd1);
}

// Of an ordered pair of strings, from the hashes of both.
inline std::uint64_t hash_pair(std::uint64_t left, std::uint64_t right) {
  return fold_multiply(left ^ 0xa0761d6478bd642fu, std::rotl(right, 32) ^ 0xe7037ed1a0b428dbu);
}

class HashIndex {
 public:
  static constexpr std::int64_t kInserted = -1;
  static constexpr std::int64_t kTooManyCollisions = -2;

  // Makes room for `count` keys. Indices must be below 2^32 - 1.
  void reset(std::size_t count) {
    slots_.assign(std::bit_ceil(2 * count + 2), Slot{});
    mask_ = slots_.size() - 1;
  }

  // Adds a key. `same(i)` says whether key i is the one to be added. Returns kInserted, or the
  // index of the equal key that is there already, or kTooManyCollisions when the keys were chosen
  // to collide (a load that would otherwise take quadratic time).
  template <class Same>
  std::int64_t insert(std::uint64_t hash, std::uint32_t index, Same same) {
    std::size_t at = hash & mask_;
    for (std::size_t probes = 0; probes < kMaxProbes; ++probes) {
      Slot& slot = slots_[at];
      if (slot.next_index == 0) {
        slot = {tag(hash), index + 1};
        return kInserted;
      }
      if (slot.tag == tag(hash) && same(slot.next_index - 1)) return slot.next_index - 1;
      at = (at + 1) & mask_;
    }
    return kTooManyCollisions;
  }

  // Index of the key for which `same` holds, or -1.
  template <class Same>
  std::int64_t find(std::uint64_t hash, Same same) const {
    std::size_t at = hash & mask_;
    while (slots_[at].next_index != 0) {
      if (slots_[at].tag == tag(hash) && same(slots_[at].next_index - 1)) {
        return slots_[at].next_index - 1;
      }
      at = (at + 1) & mask_;
    }
    return -1;
  }

 private:
  // At most half of the slots are taken, so that honest keys need a few dozen probes at worst.
  static constexpr std::size_t kMaxProbes = 1024;

  struct Slot {
    std::uint32_t tag = 0;         // upper half of the hash
    std::uint32_t next_index = 0;  // index + 1; 0: empty
  };
  static std::uint32_t tag(std::uint64_t hash) { return static_cast<std::uint32_t>(hash >> 32); }

  std::vector<Slot> slots_ = std::vector<Slot>(2);
  std::size_t mask_ = 1;
};

}  // namespace sluice

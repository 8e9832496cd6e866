// What the arithmetic could do if nothing had to be loaded, for any vector instruction set.
#pragma once

#include <cstdint>

#include "src/backend/cpu/simd_compat.h"

namespace sluice::cpu {
namespace {

template <class Isa>
static std::uint64_t byte_products(std::uint64_t rounds) {
  using I = typename Isa::I;
  constexpr int kSums = 8;  // independent, so that no step waits for the one before
  const I codes = Isa::set1_byte(3);
  I x = Isa::set1_byte(5);
  I sum[kSums];
  for (I& each : sum) each = Isa::set1_int(0);
  for (std::uint64_t round = 0; round < rounds; ++round) {
    for (I& each : sum) {
      if constexpr (Isa::kHasByteDot) {
        each = Isa::byte_dot(each, codes, x);
      } else {
        x = Isa::in_order(x);  // or the products would be made once
        each = Isa::in_order(Isa::add_pairs(each, Isa::multiply_pairs(codes, x)));
      }
    }
  }
  alignas(64) std::uint8_t kept[64 * kSums];
  for (int i = 0; i < kSums; ++i) Isa::store_bytes(kept + 64 * i, sum[i]);
  __asm__ volatile("" : : "r"(kept) : "memory");
  return rounds * kSums * 2 * 4 * Isa::kLanes;
}

}  // namespace
}  // namespace sluice::cpu

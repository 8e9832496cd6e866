// Arithmetic on sizes that come from files: every product and sum is checked before it is used.
#pragma once

#include <concepts>
#include <optional>

namespace sluice {

template <std::unsigned_integral T>
[[nodiscard]] std::optional<T> checked_add(T a, T b) {
  T sum;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

template <std::unsigned_integral T>
[[nodiscard]] std::optional<T> checked_mul(T a, T b) {
  T product;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

// Smallest multiple of `alignment` (a power of two) that is >= a.
template <std::unsigned_integral T>
[[nodiscard]] std::optional<T> checked_align(T a, T alignment) {
  const auto sum = checked_add<T>(a, alignment - 1);
  if (!sum) return std::nullopt;
  return static_cast<T>(*sum & ~(alignment - 1));
}

}  // namespace sluice

#include "src/engine/model_fingerprint.h"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace sluice {
namespace {

std::uint64_t hash_text(std::string_view text, std::uint64_t seed) {
  return hash_bytes(std::as_bytes(std::span(text)), seed);
}

std::uint64_t hash_number(std::uint64_t number, std::uint64_t seed) {
  return hash_bytes(std::as_bytes(std::span(&number, 1)), seed);
}

std::uint64_t hash_array(const GgufArray& array, std::uint64_t hash) {
  hash = hash_bytes(array.packed, hash_number(array.count, hash));
  for (const std::string_view text : array.strings) hash = hash_text(text, hash);
  for (const GgufArray& inner : array.arrays) hash = hash_array(inner, hash);
  return hash;
}

std::uint64_t hash_value(const GgufValue& value, std::uint64_t hash) {
  if (const auto* text = std::get_if<std::string_view>(&value.data)) return hash_text(*text, hash);
  if (const auto* array = std::get_if<GgufArray>(&value.data)) return hash_array(*array, hash);
  if (const auto* whole = std::get_if<std::uint64_t>(&value.data)) return hash_number(*whole, hash);
  if (const auto* number = std::get_if<std::int64_t>(&value.data)) {
    return hash_number(static_cast<std::uint64_t>(*number), hash);
  }
  const double real = std::get<double>(value.data);
  return hash_bytes(std::as_bytes(std::span(&real, 1)), hash);
}

}  // namespace

std::uint64_t hash_bytes(std::span<const std::byte> bytes, std::uint64_t seed) {
  constexpr std::uint64_t kPrime = 0x100000001b3;
  std::uint64_t hash = (0xcbf29ce484222325 ^ seed) + bytes.size();
  while (!bytes.empty()) {
    std::uint64_t word = 0;
    const std::size_t n = std::min(bytes.size(), sizeof word);
    std::memcpy(&word, bytes.data(), n);
    hash = (hash ^ word) * kPrime;
    hash ^= hash >> 32;  // the product alone never carries high bits down
    bytes = bytes.subspan(n);
  }
  return hash;
}

std::uint64_t model_fingerprint(const GgufFile& file) {
  constexpr std::size_t kSample = 256;
  std::uint64_t hash = 0;
  for (const auto& [key, value] : file.metadata()) hash = hash_value(value, hash_text(key, hash));
  for (const GgufTensor& tensor : file.tensors()) {
    hash = hash_number(static_cast<std::uint64_t>(tensor.type), hash_text(tensor.name, hash));
    for (const std::uint64_t dim : tensor.dims) hash = hash_number(dim, hash);
    const std::size_t n = std::min(tensor.data.size(), kSample);
    hash = hash_bytes(tensor.data.last(n), hash_bytes(tensor.data.first(n), hash));
  }
  return hash;
}

}  // namespace sluice

#include "src/backend/cpu/kv_layout.h"

#include <bit>

#include "src/base/half.h"

namespace sluice::cpu {

std::size_t KvLayout::key_bytes() const {
  switch (type) {
    case KvType::kInt8:
      return std::size_t{padded_dim()} * kKvBlock + padded_dim() / 32 * 64;
    case KvType::kInt4:
      return std::size_t{padded_dim()} * kKvBlock / 2 + padded_dim() / 32 * 128;
    case KvType::kF16:
      return std::size_t{head_dim} * kKvBlock * 2;
    case KvType::kF32:
      break;
  }
  return std::size_t{head_dim} * kKvBlock * 4;
}

std::size_t KvLayout::value_bytes() const {
  switch (type) {
    case KvType::kInt8:
      return std::size_t{padded_dim()} * kKvBlock + padded_dim() / 32 * 64;
    case KvType::kInt4:
      return std::size_t{padded_dim()} * kKvBlock / 2 + padded_dim() / 32 * 128;
    case KvType::kF16:
      return std::size_t{padded_dim()} * kKvBlock * 2;
    case KvType::kF32:
      break;
  }
  return std::size_t{padded_dim()} * kKvBlock * 4;
}

Int4Range int4_range(float min, float max) {
  const float scale = (max - min) / 15.0f + 0.0f;  // one zero
  Int4Range range;
  range.scale = float_to_half(scale);
  if (half_to_float(range.scale) < scale) ++range.scale;
  range.middle = float_to_half(0.5f * ((min + max) + half_to_float(range.scale)));
  return range;
}

std::uint16_t kv_scale_bits(std::uint32_t max_bits) {
  if (max_bits >= 0x7f800000u) return 0x7e00u;  // NaN
  const float scale = std::bit_cast<float>(max_bits) / 127.0f;
  std::uint16_t bits = float_to_half(scale);
  if (half_to_float(bits) < scale) ++bits;
  return bits > 0x7bffu ? std::uint16_t{0x7bffu} : bits;  // largest finite half
}

}  // namespace sluice::cpu

// Keys and values of single tokens as a cache holds them, quantized or rounded by the CPU.
#pragma once

#include <array>
#include <cstring>
#include <vector>

#include "cuda/kv_pages.h"
#include "src/backend/cpu/generic.h"
#include "src/backend/cpu/kv_layout.h"
#include "src/base/half.h"

namespace sluice::simt {

inline const char* pages_name(cuda::PageKind pages) {
  constexpr const char* kNames[] = {"int8", "f16", "int4"};
  return kNames[static_cast<int>(pages)];
}

// A key or value of one token and head as a cache holds it; int4: as long as its block is not in 4
// bits.
struct CachedVector {
  cuda::PageKind pages = cuda::PageKind::kInt8;  // kInt8 or kF16
  std::array<std::int8_t, cuda::kMaxHeadDim> code = {};
  std::array<std::uint16_t, cuda::kMaxHeadDim / 32> scale = {};  // f16
  std::array<std::uint16_t, cuda::kMaxHeadDim> half = {};        // f16, instead of the two
  float value(std::size_t dim) const {
    return pages == cuda::PageKind::kF16 ? half_to_float(half[dim])
                                         : half_to_float(scale[dim / 32]) * code[dim];
  }
};

// Key and value as the CPU stores them.
inline void store_halves(std::uint32_t head_dim, const float* key, const float* value,
                         CachedVector& key_out, CachedVector& value_out) {
  const cpu::KvLayout layout = {.type = cpu::KvType::kF16, .head_dim = head_dim};
  std::vector<std::byte> block(layout.head_bytes());
  cpu::generic_store_kv(layout, key, value, 0, block.data());
  key_out.pages = value_out.pages = cuda::PageKind::kF16;
  for (std::size_t d = 0; d < head_dim; ++d) {
    std::memcpy(&key_out.half[d], &block[d * cpu::kKvBlock * 2], 2);
  }
  std::memcpy(value_out.half.data(), &block[layout.key_bytes()], std::size_t{2} * head_dim);
}
inline void store_token(cuda::PageKind pages, std::uint32_t head_dim, const float* key,
                        const float* value, CachedVector& key_out, CachedVector& value_out) {
  if (pages != cuda::PageKind::kInt8) {
    store_halves(head_dim, key, value, key_out, value_out);
    return;
  }
  const cpu::KvLayout layout = {.type = cpu::KvType::kInt8, .head_dim = head_dim};
  const std::uint32_t groups = layout.padded_dim() / 32;
  std::vector<std::byte> block(layout.head_bytes());
  cpu::generic_store_kv(layout, key, value, 0, block.data());
  const std::byte* values = block.data() + layout.key_bytes();
  for (std::uint32_t g = 0; g < groups; ++g) {
    std::memcpy(&key_out.scale[g], &block[cpu::key_scale_offset(groups, 0, g)], 2);
    std::memcpy(&value_out.scale[g], values + cpu::value_scale_offset(groups, 0, g), 2);
    for (std::uint32_t d = 32 * g; d < 32 * g + 32; ++d) {
      key_out.code[d] = static_cast<std::int8_t>(block[cpu::key_code_offset(groups, 0, d)]);
      value_out.code[d] = static_cast<std::int8_t>(values[d]);
    }
  }
}

}  // namespace sluice::simt

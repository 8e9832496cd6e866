// The bytes of a block of the KV cache: kKvBlock tokens of one layer and one head, keys then
// values. G = padded_dim / 32 groups of 32 dimensions; padding dimensions hold zeros.
//
// int8 keys, laid out like packed weights with tokens as lanes, so that a score is the same integer
// kernel as a matrix row:
//   codes  i8  [2 token halves][G][8 quads][16 tokens][4 dimensions]      32 * padded_dim bytes
//   scales f16 [2 token halves][G][16 tokens]                             64 * G bytes
// int8 values:
//   codes  i8  [32 tokens][padded_dim]                                    32 * padded_dim bytes
//   scales f16 [G][32 tokens]                                             64 * G bytes
// f16 and f32 keys:   [head_dim][32 tokens]
// f16 and f32 values: [32 tokens][padded_dim]
//
// An int8 group's scale is max|x| / 127 rounded up to an f16; codes are x / scale rounded to
// nearest even. A group with a value that is not finite has scale NaN and codes 0.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/backend/cpu/kernels.h"

namespace sluice::cpu {

// Largest head_dim of the attention kernels.
inline constexpr std::uint32_t kMaxHeadDim = 1024;

// Offset of a key code, in bytes from the block's start.
constexpr std::size_t key_code_offset(std::uint32_t groups, std::uint32_t slot, std::uint32_t dim) {
  return (std::size_t{slot / 16} * groups + dim / 32) * 512 + dim % 32 / 4 * 64 + slot % 16 * 4 +
         dim % 4;
}
// Offset of a key scale, in bytes from the block's start.
constexpr std::size_t key_scale_offset(std::uint32_t groups, std::uint32_t slot,
                                       std::uint32_t group) {
  return std::size_t{1024} * groups +
         ((std::size_t{slot / 16} * groups + group) * 16 + slot % 16) * 2;
}
// Offset of a value scale, in bytes from the values' start.
constexpr std::size_t value_scale_offset(std::uint32_t groups, std::uint32_t slot,
                                         std::uint32_t group) {
  return std::size_t{1024} * groups + (std::size_t{group} * 32 + slot) * 2;
}

// The f16 bits of an int8 group's scale, from the bits of max|x|.
std::uint16_t kv_scale_bits(std::uint32_t max_bits);

}  // namespace sluice::cpu

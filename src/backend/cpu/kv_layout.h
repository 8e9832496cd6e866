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
// int4 keys, a scale and a middle for each dimension over the block's tokens:
//   codes   u4  [2 token halves][G][4 quads][16 tokens][4 dimensions]     16 * padded_dim bytes
//           the low nibble for dimensions 0 .. 15 of a group, the high one for 16 .. 31
//   scales  f16 [padded_dim], then middles f16 [padded_dim]               128 * G bytes
// int4 values, a scale and a middle for each token and group of dimensions:
//   codes   u4  [32 tokens][G][16 bytes], nibbles as above                16 * padded_dim bytes
//   scales  f16 [G][32 tokens], middles between: [G][2][32 tokens]        128 * G bytes
//
// A code c stands for middle + scale * (c - 8). The 32 numbers that share a scale s and a middle m
// have s = (max - min) / 15 rounded up to an f16, m = (min + max + s) / 2, also an f16, and
// c = round((x - m) / s) + 8 within 0 .. 15; c = 8 where s is 0 and in padding. If one of them is
// not finite, s and m are NaN and all codes 8. Source of the scheme, keys by channel and values by
// token, with the newest tokens in f16: KIVI (Liu et al., 2024). Only full blocks have this form.
//
// How attention reads an int4 block, for a query q of one head (padding of q is 0):
//   raw score:  base = sum of q[d] * m[d] by fma in 16 partial sums as norms have them; q[d] * s[d]
//               is quantized in groups as activations are; from base on, groups in sequence,
//               raw = fma(scale of the group, float(integer dot with c - 8), raw)
//   values:     acc[d] = fma(p[t] * s[t], float(c - 8), acc[d]) for tokens t in sequence, and for
//               each group of dimensions b[t % 16] = fma(p[t], m[t], b[t % 16]) over all such
//               blocks of a piece; acc[d] + sum of the b joins the output at the piece's end.
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

// The same for int4. Byte of a key's code, and of what a dimension's tokens share.
constexpr std::size_t int4_key_offset(std::uint32_t groups, std::uint32_t slot, std::uint32_t dim) {
  return (std::size_t{slot / 16} * groups + dim / 32) * 256 + dim % 16 / 4 * 64 + slot % 16 * 4 +
         dim % 4;
}
constexpr std::size_t int4_key_scale_offset(std::uint32_t groups, std::uint32_t dim) {
  return std::size_t{512} * groups + std::size_t{2} * dim;
}
constexpr std::size_t int4_key_middle_offset(std::uint32_t groups, std::uint32_t dim) {
  return std::size_t{576} * groups + std::size_t{2} * dim;
}
// Byte of a value's code, and of what a token's group shares, from the values' start.
constexpr std::size_t int4_value_offset(std::uint32_t groups, std::uint32_t slot,
                                        std::uint32_t dim) {
  return (std::size_t{slot} * groups + dim / 32) * 16 + dim % 16;
}
constexpr std::size_t int4_value_scale_offset(std::uint32_t groups, std::uint32_t slot,
                                              std::uint32_t group) {
  return std::size_t{512} * groups + std::size_t{128} * group + std::size_t{2} * slot;
}
constexpr std::size_t int4_value_middle_offset(std::uint32_t groups, std::uint32_t slot,
                                               std::uint32_t group) {
  return int4_value_scale_offset(groups, slot, group) + 64;
}

// What the numbers between `min` and `max`, both finite, share in an int4 block: f16 bits.
struct Int4Range {
  std::uint16_t scale = 0;
  std::uint16_t middle = 0;
};
inline constexpr Int4Range kInt4NotFinite = {0x7e00, 0x7e00};
Int4Range int4_range(float min, float max);

// The f16 bits of an int8 group's scale, from the bits of max|x|.
std::uint16_t kv_scale_bits(std::uint32_t max_bits);

}  // namespace sluice::cpu

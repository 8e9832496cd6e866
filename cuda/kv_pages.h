// How keys and values lie in GPU memory: written by kernels/rope.cuh and quantize_pages.cuh, read
// by kernels/attention.cuh.
//
// A block of the cache holds 32 tokens. A layer's blocks follow each other; a block is
//
//   block  = | KV head 0 | KV head 1 | ...          head = | keys | values |
//   keys   = | record of dimensions 0-31 | 32-63 | ...        (padded_dim / 32 of them)
//   values = the same
//
// Dimensions from head_dim to padded_dim are zeros. There are kinds of pages, which differ in their
// records of 32 tokens by 32 dimensions; kernels are templates over them.
//
// Int8Pages
//
//   record = | plane 0: 32 lanes x 16 bytes | plane 1 | 32 scales, f16: one a token |
//   scale 8 t + 2 j + i is that of token 8 j + 2 t + i, so that lane (g, t) loads its eight at once
//
// The 16 bytes of lane L = 4 g + t are what that lane of a warp needs as a fragment of mma m16n8k32
// (cuda/simt.h), so one 16-byte load serves four of them. int8 codes:
//
//   keys    plane h, word j: token 8 j + g,     dimensions 16 h + 4 t .. + 3
//   values  plane h, word j: dimension 8 j + g, tokens 16 h + 8 (b / 2) + 2 t + b % 2 for byte b
//
// The order of a value's tokens is the one in which the scores' fragments have them: results c[0],
// c[1] of a product of queries and keys belong to tokens 2 t and 2 t + 1 of eight, and two such
// products make the four bytes of an operand.
//
// HalfPages: f16, 32 rows of 32 numbers, so that sums run along the rows of both
//
//   keys    [32 tokens][32 dimensions]
//   values  [32 dimensions][32 tokens]
//
// Lane L loads 16 bytes at 512 h + 16 L: eight numbers of row 8 h + L / 4, from 8 (L % 4) on.
//
// Int4Pages: whole blocks in 4 bits, made of blocks of HalfPages (the formulas are those of
// src/backend/cpu/kv_layout.h). What is not whole yet, and what was lately, lies in slots of
// HalfPages of its own (src/kv/recent_blocks.h); a row sees its own block there, and all earlier
// ones in 4 bits.
//
//   record = | 32 lanes x 16 bytes | 32 scales, f16 | 32 middles, f16 |
//
// A code c stands for middle + scale * (c - 8). The nibbles of lane L are its bytes of Int8Pages,
// plane 0 the low ones and plane 1 the high ones: a mask and a shift make them two words of an
// operand. Scales and middles are those of a dimension of keys, of a token of values; the eight of
// lane t are side by side:
//
//   keys    number 8 t + 4 h + k is that of dimension 16 h + 4 t + k, which its words have
//   values  number 8 t + 2 j + i is that of token 8 j + 2 t + i, which its share has
#pragma once

#include <cstdint>

#include "cuda/simt.h"

namespace sluice::cuda {

inline constexpr std::int32_t kPageTokens = 32;    // tokens in a block of the cache
inline constexpr std::int32_t kPieceTokens = 256;  // tokens that share a softmax pass; fixed
inline constexpr std::int32_t kMaxHeadDim = 256;

struct Int8Pages {
  static constexpr std::int32_t kScales = 1024;  // offset of the scales in a record
  static constexpr std::int32_t kRecord = kScales + 64;
};
struct HalfPages {
  static constexpr std::int32_t kRecord = 32 * 32 * 2;
};
struct Int4Pages {
  static constexpr std::int32_t kScales = 512;
  static constexpr std::int32_t kMiddles = kScales + 64;
  static constexpr std::int32_t kRecord = kMiddles + 64;
};
enum class PageKind : std::uint8_t { kInt8, kF16, kInt4 };
// Calls visit(Int8Pages()) or whichever it is, and returns what it returns.
template <class Visit>
decltype(auto) visit_pages(PageKind kind, Visit&& visit) {
  if (kind == PageKind::kInt4) return visit(Int4Pages());
  return kind == PageKind::kF16 ? visit(HalfPages()) : visit(Int8Pages());
}
// The kind of the pages that single tokens are written to.
constexpr PageKind written_pages(PageKind kind) {
  return kind == PageKind::kInt4 ? PageKind::kF16 : kind;
}
template <class Visit>
decltype(auto) visit_written_pages(PageKind kind, Visit&& visit) {
  return written_pages(kind) == PageKind::kF16 ? visit(HalfPages()) : visit(Int8Pages());
}

SIMT_ANYWHERE std::int32_t page_groups(std::int32_t head_dim) { return (head_dim + 31) / 32; }
// Bytes of a block: all KV heads of one layer.
template <class Pages>
SIMT_ANYWHERE std::int64_t page_bytes(std::int32_t kv_heads, std::int32_t head_dim) {
  return std::int64_t{2} * kv_heads * page_groups(head_dim) * Pages::kRecord;
}
// Offset of the record of a group of 32 dimensions.
template <class Pages>
SIMT_ANYWHERE std::int64_t page_record(std::uint32_t block, std::int32_t kv_heads,
                                       std::int32_t head_dim, std::int32_t kv_head, bool values,
                                       std::int32_t group) {
  const std::int32_t groups = page_groups(head_dim);
  return block * page_bytes<Pages>(kv_heads, head_dim) +
         ((std::int64_t{2} * kv_head + (values ? 1 : 0)) * groups + group) * Pages::kRecord;
}

// Offsets of a number within its record; `dim` counts within the group.
SIMT_ANYWHERE std::int32_t key_place(Int8Pages, std::int32_t token, std::int32_t dim) {
  return 512 * (dim / 16) + 16 * (4 * (token % 8) + dim % 16 / 4) + 4 * (token / 8) + dim % 4;
}
SIMT_ANYWHERE std::int32_t value_place(Int8Pages, std::int32_t token, std::int32_t dim) {
  const std::int32_t byte = 2 * (token % 16 / 8) + token % 2;
  return 512 * (token / 16) + 16 * (4 * (dim % 8) + token % 8 / 2) + 4 * (dim / 8) + byte;
}
// Where the number of a token, or of a dimension of int4 keys, is among 32 scales.
SIMT_ANYWHERE std::int32_t token_number(std::int32_t token) {
  return 8 * (token % 8 / 2) + 2 * (token / 8) + token % 2;
}
SIMT_ANYWHERE std::int32_t dim_number(std::int32_t dim) {
  return 8 * (dim % 16 / 4) + 4 * (dim / 16) + dim % 4;
}
SIMT_ANYWHERE std::int32_t page_scale(std::int32_t token) {
  return Int8Pages::kScales + 2 * token_number(token);
}
SIMT_ANYWHERE std::int32_t key_place(HalfPages, std::int32_t token, std::int32_t dim) {
  return 2 * (32 * token + dim);
}
SIMT_ANYWHERE std::int32_t value_place(HalfPages, std::int32_t token, std::int32_t dim) {
  return 2 * (32 * dim + token);
}

}  // namespace sluice::cuda

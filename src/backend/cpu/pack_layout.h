// The bytes of a packed weight matrix.
//
// Rows go in groups of 16 ("lanes"), columns in blocks of 32. Blocks come in bundles: a header with
// the bundle's scales, then the codes of its blocks; everything is a multiple of 64 bytes, so a
// group is one aligned stream that is read front to back.
//
//   group = | bundle 0 | bundle 1 | ...            bundle = | header | codes 0 | codes 1 | ...
//
// Codes of a block: planes of 64-byte lines; a line holds 4 bytes for each of the 16 lanes, byte k
// of "quad" j belongs to column 4 * j + k (j < 8):
//   bytes    8 lines: line j = quad j
//   nibbles  4 lines: line j, low 4 bits = quad j, high 4 bits = quad j + 4
//   pairs    2 lines: line j % 2, bits 2 * (j / 2) and up = quad j
//   bits     1 line:  bit j = quad j
// A code is the low plane plus the high plane above its bits. Headers ([16] = one entry a lane):
//   Q4_0 Q5_0 Q8_0 IQ4_NL  2 blocks: f16 d[2][16]
//   Q4_1 Q5_1              1 block:  f16 d[16], f16 m[16]
//   MXFP4                  4 blocks: u8 e[4][16]
//   Q4_K Q5_K              8 blocks: f16 d[16], f16 dmin[16], u8 sc[8][16], u8 m[8][16]
//   IQ4_XS                 8 blocks: f16 d[16], 32 bytes unused, i8 sc[8][16]
//   Q3_K Q6_K              8 blocks: f16 d[16], 32 bytes unused, i8 sc[16][16]
//   Q2_K                   8 blocks: f16 d[16], f16 dmin[16], u8 sc_m[16][16] (low sc, high m)
// Float types have no blocks: a group is [cols][16] values of the stored type.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/backend/cpu/kernels.h"
#include "src/quant/block_type.h"

namespace sluice::cpu {

enum class LowPlane : std::uint8_t { kBytes, kNibbles, kPairs };
enum class HighPlane : std::uint8_t { kNone, kPairs, kBits };

struct PackLayout {
  LowPlane low;
  HighPlane high;
  std::uint8_t bundle_blocks;  // blocks of 32 columns in a bundle
  std::uint16_t header_bytes;
  std::uint8_t offset;        // a weight's integer is its code - offset
  bool has_min;               // a minimum is added
  std::uint8_t block_scales;  // scales in a block of 32: 1, or 2 where one covers 16 weights

  constexpr std::size_t low_bytes() const {
    return low == LowPlane::kBytes ? 512 : low == LowPlane::kNibbles ? 256 : 128;
  }
  constexpr std::size_t code_bytes() const {
    return low_bytes() + (high == HighPlane::kPairs ? 128 : high == HighPlane::kBits ? 64 : 0);
  }
  constexpr std::size_t bundle_bytes() const { return header_bytes + bundle_blocks * code_bytes(); }
};

// True for F32, F16 and BF16, which have no PackLayout.
constexpr bool is_float_type(BlockType type) {
  return type == BlockType::kF32 || type == BlockType::kF16 || type == BlockType::kBF16;
}

// The layout of a type that is not a float type.
constexpr PackLayout pack_layout(BlockType type) {
  using Low = LowPlane;
  using High = HighPlane;
  switch (type) {
    case BlockType::kQ4_0:
      return {Low::kNibbles, High::kNone, 2, 64, 8, false, 1};
    case BlockType::kQ4_1:
      return {Low::kNibbles, High::kNone, 1, 64, 0, true, 1};
    case BlockType::kQ5_0:
      return {Low::kNibbles, High::kBits, 2, 64, 16, false, 1};
    case BlockType::kQ5_1:
      return {Low::kNibbles, High::kBits, 1, 64, 0, true, 1};
    case BlockType::kQ2_K:
      return {Low::kPairs, High::kNone, 8, 320, 0, true, 2};
    case BlockType::kQ3_K:
      return {Low::kPairs, High::kBits, 8, 320, 4, false, 2};
    case BlockType::kQ4_K:
      return {Low::kNibbles, High::kNone, 8, 320, 0, true, 1};
    case BlockType::kQ5_K:
      return {Low::kNibbles, High::kBits, 8, 320, 0, true, 1};
    case BlockType::kQ6_K:
      return {Low::kNibbles, High::kPairs, 8, 320, 32, false, 2};
    case BlockType::kIQ4_NL:
      return {Low::kNibbles, High::kNone, 2, 64, 0, false, 1};
    case BlockType::kIQ4_XS:
      return {Low::kNibbles, High::kNone, 8, 192, 0, false, 1};
    case BlockType::kMXFP4:
      return {Low::kNibbles, High::kNone, 4, 64, 0, false, 1};
    case BlockType::kQ8_0:
    case BlockType::kF32:
    case BlockType::kF16:
    case BlockType::kBF16:
      break;
  }
  return {Low::kBytes, High::kNone, 2, 64, 0, false, 1};
}

// One packed block taken apart. A weight is scale * q + min, each operation rounded to float.
struct PackedBlock {
  std::int8_t q[kRowGroup][32];
  float scale[2][kRowGroup];  // entry 1 equals entry 0 where one scale covers the block
  float min[2][kRowGroup];    // zero for types without a minimum
};

// Takes block `block` of the group that starts at `group` apart (quantized types).
void unpack_packed_block(BlockType type, const std::byte* group, std::uint32_t block,
                         PackedBlock& out);

}  // namespace sluice::cpu

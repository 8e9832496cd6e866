// How the blocks of each type lie in a file, as structs, and how to take them apart.
// Source of the layouts: the structs of ggml (src/ggml-common.h) and the `gguf` Python package
// (gguf/quants.py); MXFP4 from the OCP Microscaling Formats specification v1.0.
//
// Every struct has alignment 1, so a block may be read in place at any address. All numbers are
// little-endian. `unpack` writes a block's integers in the order of its weights; a weight is then
//     one scale a block:                 scale * q   (+ min)
//     K types, group g of weights:       (d * sc[g]) * q  - (dmin * m[g])
// where the floats are multiplied in the order of the brackets, each product rounded to float.
// In the drawings, byte 0 is at the left, and "lo"/"hi" are the low and high 4 bits of a byte.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "src/base/half.h"

namespace sluice {

// A half float of a file at any address.
struct StoredHalf {
  std::uint8_t low;
  std::uint8_t high;

  std::uint16_t bits() const { return static_cast<std::uint16_t>(low | (high << 8)); }
  float value() const { return half_to_float(bits()); }
  static StoredHalf from_bits(std::uint16_t bits) {
    return {static_cast<std::uint8_t>(bits & 0xff), static_cast<std::uint8_t>(bits >> 8)};
  }
};

// -- One scale a block of 32 ---------------------------------------------------------------------

// | d:2 | qs:16 |  qs[i] = lo: weight i, hi: weight i + 16. w = d * (q - 8).
struct BlockQ4_0 {
  StoredHalf d;
  std::uint8_t qs[16];
};

// | d:2 | m:2 | qs:16 |  as Q4_0. w = d * q + m.
struct BlockQ4_1 {
  StoredHalf d;
  StoredHalf m;
  std::uint8_t qs[16];
};

// | d:2 | qh:4 | qs:16 |  low 4 bits as Q4_0; bit i of qh is bit 4 of weight i. w = d * (q - 16).
struct BlockQ5_0 {
  StoredHalf d;
  std::uint8_t qh[4];
  std::uint8_t qs[16];
};

// | d:2 | m:2 | qh:4 | qs:16 |  bits as Q5_0. w = d * q + m.
struct BlockQ5_1 {
  StoredHalf d;
  StoredHalf m;
  std::uint8_t qh[4];
  std::uint8_t qs[16];
};

// | d:2 | qs:32 |  w = d * q.
struct BlockQ8_0 {
  StoredHalf d;
  std::int8_t qs[32];
};

// | d:2 | qs:16 |  bits as Q4_0. w = d * kIq4Codebook[q].
struct BlockIQ4_NL {
  StoredHalf d;
  std::uint8_t qs[16];
};

// | e:1 | qs:16 |  bits as Q4_0. w = mxfp4_half_scale(e) * kMxfp4DoubledCodebook[q].
struct BlockMXFP4 {
  std::uint8_t e;
  std::uint8_t qs[16];
};

// -- Scales of scales: blocks of 256 -------------------------------------------------------------

// | scales:16 | qs:64 | d:2 | dmin:2 |
// 16 groups of 16 weights; scales[g] = lo: sc[g], hi: m[g].
// qs[32 * h + l], bits 2s and 2s+1: weight 128 * h + 32 * s + l (h < 2, s < 4, l < 32).
struct BlockQ2_K {
  std::uint8_t scales[16];
  std::uint8_t qs[64];
  StoredHalf d;
  StoredHalf dmin;
};

// | hmask:32 | qs:64 | scales:12 | d:2 |
// 16 groups of 16 weights, no minimum; sc[g] by unpack_q3_k_scales. Low 2 bits as Q2_K;
// bit j of hmask[l] is bit 2 of weight 32 * j + l. w = (d * sc) * (q - 4).
struct BlockQ3_K {
  std::uint8_t hmask[32];
  std::uint8_t qs[64];
  std::uint8_t scales[12];
  StoredHalf d;
};

// | d:2 | dmin:2 | scales:12 | qs:128 |
// 8 groups of 32 weights; sc[g], m[g] by unpack_q4_k_scales.
// qs[32 * c + l] = lo: weight 64 * c + l, hi: weight 64 * c + 32 + l (c < 4, l < 32).
struct BlockQ4_K {
  StoredHalf d;
  StoredHalf dmin;
  std::uint8_t scales[12];
  std::uint8_t qs[128];
};

// | d:2 | dmin:2 | scales:12 | qh:32 | qs:128 |
// As Q4_K; bit j of qh[l] is bit 4 of weight 32 * j + l.
struct BlockQ5_K {
  StoredHalf d;
  StoredHalf dmin;
  std::uint8_t scales[12];
  std::uint8_t qh[32];
  std::uint8_t qs[128];
};

// | ql:128 | qh:64 | scales:16 | d:2 |
// 16 groups of 16 weights, no minimum. ql[64 * h + l] = lo: weight 128 * h + l, hi: weight
// 128 * h + 64 + l (l < 64); qh[32 * h + l], bits 2s and 2s+1: bits 4 and 5 of weight
// 128 * h + 32 * s + l (l < 32). w = (d * scales[g]) * (q - 32).
struct BlockQ6_K {
  std::uint8_t ql[128];
  std::uint8_t qh[64];
  std::int8_t scales[16];
  StoredHalf d;
};

// | d:2 | scales_h:2 | scales_l:4 | qs:128 |
// 8 groups of 32 weights, no minimum; sc[g] by unpack_iq4_xs_scales.
// qs[16 * g + i] = lo: weight 32 * g + i, hi: weight 32 * g + 16 + i. w = (d * sc) * codebook[q].
struct BlockIQ4_XS {
  StoredHalf d;
  std::uint8_t scales_h[2];
  std::uint8_t scales_l[4];
  std::uint8_t qs[128];
};

static_assert(sizeof(BlockQ4_0) == 18 && alignof(BlockQ4_0) == 1);
static_assert(sizeof(BlockQ4_1) == 20 && alignof(BlockQ4_1) == 1);
static_assert(sizeof(BlockQ5_0) == 22 && alignof(BlockQ5_0) == 1);
static_assert(sizeof(BlockQ5_1) == 24 && alignof(BlockQ5_1) == 1);
static_assert(sizeof(BlockQ8_0) == 34 && alignof(BlockQ8_0) == 1);
static_assert(sizeof(BlockIQ4_NL) == 18 && alignof(BlockIQ4_NL) == 1);
static_assert(sizeof(BlockMXFP4) == 17 && alignof(BlockMXFP4) == 1);
static_assert(sizeof(BlockQ2_K) == 84 && alignof(BlockQ2_K) == 1);
static_assert(sizeof(BlockQ3_K) == 110 && alignof(BlockQ3_K) == 1);
static_assert(sizeof(BlockQ4_K) == 144 && alignof(BlockQ4_K) == 1);
static_assert(sizeof(BlockQ5_K) == 176 && alignof(BlockQ5_K) == 1);
static_assert(sizeof(BlockQ6_K) == 210 && alignof(BlockQ6_K) == 1);
static_assert(sizeof(BlockIQ4_XS) == 136 && alignof(BlockIQ4_XS) == 1);
static_assert(std::endian::native == std::endian::little, "blocks are read in place");

// -- Codebooks and scales ------------------------------------------------------------------------

// The 16 values of IQ4_NL and IQ4_XS.
inline constexpr std::array<std::int8_t, 16> kIq4Codebook{-127, -104, -83, -65, -49, -35, -22, -10,
                                                          1,    13,   25,  38,  53,  69,  89,  113};

// The 16 values of FP4 (E2M1), doubled so that they are integers.
inline constexpr std::array<std::int8_t, 16> kMxfp4DoubledCodebook{0, 1,  2,  3,  4,  6,  8,  12,
                                                                   0, -1, -2, -3, -4, -6, -8, -12};

// Half of the E8M0 scale 2^(e - 127): the half makes up for the doubled codebook. Exact for all
// 256 values (e = 255, NaN in the specification, is 2^127 here as in ggml).
inline float mxfp4_half_scale(std::uint8_t e) {
  const std::uint32_t bits = e < 2 ? 0x00200000u << e : static_cast<std::uint32_t>(e - 1) << 23;
  return std::bit_cast<float>(bits);
}

// Q4_K and Q5_K: eight 6-bit scales and eight 6-bit minima in 12 bytes.
//   byte i     (i < 4): bits 0-5 scale[i],  bits 6-7: bits 4-5 of scale[i + 4]
//   byte i + 4 (i < 4): bits 0-5 min[i],    bits 6-7: bits 4-5 of min[i + 4]
//   byte i + 8 (i < 4): lo: bits 0-3 of scale[i + 4], hi: bits 0-3 of min[i + 4]
inline void unpack_q4_k_scales(const std::uint8_t (&packed)[12], std::uint8_t (&scales)[8],
                               std::uint8_t (&mins)[8]) {
  for (int i = 0; i < 4; ++i) {
    scales[i] = packed[i] & 0x3f;
    mins[i] = packed[i + 4] & 0x3f;
    scales[i + 4] = static_cast<std::uint8_t>((packed[i + 8] & 0x0f) | ((packed[i] >> 2) & 0x30));
    mins[i + 4] = static_cast<std::uint8_t>((packed[i + 8] >> 4) | ((packed[i + 4] >> 2) & 0x30));
  }
}

// Q3_K: sixteen scales in -32..31, stored + 32 as 6 bits.
//   byte i     (i < 8): lo: bits 0-3 of scale[i], hi: bits 0-3 of scale[i + 8]
//   byte i + 8 (i < 4): bits 2s and 2s+1: bits 4-5 of scale[4 * s + i]
inline void unpack_q3_k_scales(const std::uint8_t (&packed)[12], std::int8_t (&scales)[16]) {
  for (int g = 0; g < 16; ++g) {
    const int low = g < 8 ? packed[g] & 0x0f : packed[g - 8] >> 4;
    const int high = (packed[8 + g % 4] >> (2 * (g / 4))) & 3;
    scales[g] = static_cast<std::int8_t>((low | (high << 4)) - 32);
  }
}

// IQ4_XS: eight scales in -32..31, stored + 32 as 6 bits.
//   scales_l[i] = lo: bits 0-3 of scale[2 * i], hi: bits 0-3 of scale[2 * i + 1]
//   scales_h as a 16-bit number, bits 2g and 2g+1: bits 4-5 of scale[g]
inline void unpack_iq4_xs_scales(const BlockIQ4_XS& block, std::int8_t (&scales)[8]) {
  const unsigned high = block.scales_h[0] | (unsigned{block.scales_h[1]} << 8);
  for (int g = 0; g < 8; ++g) {
    const unsigned low = (unsigned{block.scales_l[g / 2]} >> (4 * (g % 2))) & 0x0f;
    scales[g] =
        static_cast<std::int8_t>(static_cast<int>(low | (((high >> (2 * g)) & 3) << 4)) - 32);
  }
}

// -- A block's integers in the order of its weights ----------------------------------------------

// Range -8..7.
inline void unpack(const BlockQ4_0& block, std::int8_t (&q)[32]) {
  for (int i = 0; i < 16; ++i) {
    q[i] = static_cast<std::int8_t>((block.qs[i] & 0x0f) - 8);
    q[i + 16] = static_cast<std::int8_t>((block.qs[i] >> 4) - 8);
  }
}

// Range 0..15.
inline void unpack(const BlockQ4_1& block, std::int8_t (&q)[32]) {
  for (int i = 0; i < 16; ++i) {
    q[i] = static_cast<std::int8_t>(block.qs[i] & 0x0f);
    q[i + 16] = static_cast<std::int8_t>(block.qs[i] >> 4);
  }
}

// Five-bit integers of Q5_0 and Q5_1, range 0..31.
inline void unpack_five_bits(const std::uint8_t (&qh)[4], const std::uint8_t (&qs)[16],
                             std::int8_t (&q)[32]) {
  for (int i = 0; i < 16; ++i) {
    const int low_bit = (qh[i / 8] >> (i % 8)) & 1;
    const int high_bit = (qh[2 + i / 8] >> (i % 8)) & 1;
    q[i] = static_cast<std::int8_t>((qs[i] & 0x0f) | (low_bit << 4));
    q[i + 16] = static_cast<std::int8_t>((qs[i] >> 4) | (high_bit << 4));
  }
}

// Range -16..15.
inline void unpack(const BlockQ5_0& block, std::int8_t (&q)[32]) {
  unpack_five_bits(block.qh, block.qs, q);
  for (std::int8_t& value : q) value = static_cast<std::int8_t>(value - 16);
}

// Range 0..31.
inline void unpack(const BlockQ5_1& block, std::int8_t (&q)[32]) {
  unpack_five_bits(block.qh, block.qs, q);
}

// Range -128..127.
inline void unpack(const BlockQ8_0& block, std::int8_t (&q)[32]) {
  for (int i = 0; i < 32; ++i) q[i] = block.qs[i];
}

// Values of kIq4Codebook.
inline void unpack(const BlockIQ4_NL& block, std::int8_t (&q)[32]) {
  for (int i = 0; i < 16; ++i) {
    q[i] = kIq4Codebook[block.qs[i] & 0x0f];
    q[i + 16] = kIq4Codebook[block.qs[i] >> 4];
  }
}

// Values of kMxfp4DoubledCodebook.
inline void unpack(const BlockMXFP4& block, std::int8_t (&q)[32]) {
  for (int i = 0; i < 16; ++i) {
    q[i] = kMxfp4DoubledCodebook[block.qs[i] & 0x0f];
    q[i + 16] = kMxfp4DoubledCodebook[block.qs[i] >> 4];
  }
}

// Range 0..3.
inline void unpack(const BlockQ2_K& block, std::int8_t (&q)[256]) {
  for (int i = 0; i < 256; ++i) {
    const int byte = block.qs[32 * (i / 128) + i % 32];
    q[i] = static_cast<std::int8_t>((byte >> (2 * ((i / 32) % 4))) & 3);
  }
}

// Range -4..3.
inline void unpack(const BlockQ3_K& block, std::int8_t (&q)[256]) {
  for (int i = 0; i < 256; ++i) {
    const int low = (block.qs[32 * (i / 128) + i % 32] >> (2 * ((i / 32) % 4))) & 3;
    const int high = (block.hmask[i % 32] >> (i / 32)) & 1;
    q[i] = static_cast<std::int8_t>((low | (high << 2)) - 4);
  }
}

// Range 0..15.
inline void unpack(const BlockQ4_K& block, std::int8_t (&q)[256]) {
  for (int i = 0; i < 256; ++i) {
    const int byte = block.qs[32 * (i / 64) + i % 32];
    q[i] = static_cast<std::int8_t>((byte >> (4 * ((i / 32) % 2))) & 0x0f);
  }
}

// Range 0..31.
inline void unpack(const BlockQ5_K& block, std::int8_t (&q)[256]) {
  for (int i = 0; i < 256; ++i) {
    const int byte = block.qs[32 * (i / 64) + i % 32];
    const int low = (byte >> (4 * ((i / 32) % 2))) & 0x0f;
    const int high = (block.qh[i % 32] >> (i / 32)) & 1;
    q[i] = static_cast<std::int8_t>(low | (high << 4));
  }
}

// Range -32..31.
inline void unpack(const BlockQ6_K& block, std::int8_t (&q)[256]) {
  for (int i = 0; i < 256; ++i) {
    const int low = (block.ql[64 * (i / 128) + i % 64] >> (4 * ((i / 64) % 2))) & 0x0f;
    const int high = (block.qh[32 * (i / 128) + i % 32] >> (2 * ((i / 32) % 4))) & 3;
    q[i] = static_cast<std::int8_t>((low | (high << 4)) - 32);
  }
}

// Values of kIq4Codebook.
inline void unpack(const BlockIQ4_XS& block, std::int8_t (&q)[256]) {
  for (int i = 0; i < 256; ++i) {
    const int byte = block.qs[16 * (i / 32) + i % 16];
    q[i] = kIq4Codebook[static_cast<std::size_t>((byte >> (4 * ((i / 16) % 2))) & 0x0f)];
  }
}

}  // namespace sluice

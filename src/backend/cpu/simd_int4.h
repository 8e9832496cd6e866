// Blocks of the KV cache in 4 bits (kv_layout.h), with 256-bit vectors: making one, and preparing a
// query for one. Tables for wider vectors use it too.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/backend/cpu/kernels.h"
#include "src/backend/cpu/kv_layout.h"
#include "src/backend/cpu/math.h"
#include "src/backend/cpu/simd_compat.h"
#include "src/backend/cpu/simd_vectors.h"

namespace sluice::cpu {
namespace {

SLUICE_INLINE __m256 load_halves(const std::uint8_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

// Codes of `count` of 32 halves that share a scale and a middle, 8 behind them.
static Int4Range quantize_int4_group(const std::uint8_t* halves, std::uint32_t count,
                                     std::uint8_t* codes) {
  __m256 v[4];
  for (int i = 0; i < 4; ++i) v[i] = load_halves(halves + 16 * i);
  if (count < 32) {  // what lies behind is as the first one
    const __m256 first = _mm256_broadcastss_ps(_mm256_castps256_ps128(v[0]));
    for (int i = 0; i < 4; ++i)
      v[i] = Avx2::select(Avx2::lanes_in(8 * i, 0, static_cast<int>(count)), v[i], first);
  }
  const __m256i eights = _mm256_set1_epi8(8);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes), eights);
  if (largest_bits(v) >= kInfinityBits) return kInt4NotFinite;
  float low[8], high[8];
  _mm256_storeu_ps(low, _mm256_min_ps(_mm256_min_ps(v[0], v[1]), _mm256_min_ps(v[2], v[3])));
  _mm256_storeu_ps(high, _mm256_max_ps(_mm256_max_ps(v[0], v[1]), _mm256_max_ps(v[2], v[3])));
  for (int i = 1; i < 8; ++i) {
    low[0] = low[i] < low[0] ? low[i] : low[0];
    high[0] = high[i] > high[0] ? high[i] : high[0];
  }
  const Int4Range range = int4_range(low[0], high[0]);
  if (range.scale == 0) return range;
  const float scale = _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(range.scale)));
  const __m256 inverse = _mm256_set1_ps(1.0f / scale);
  const __m256 middle = _mm256_broadcastss_ps(_mm_cvtph_ps(_mm_cvtsi32_si128(range.middle)));
  for (int i = 0; i < 4; ++i) {
    v[i] = _mm256_mul_ps(_mm256_sub_ps(v[i], middle), inverse);
    v[i] = _mm256_max_ps(_mm256_min_ps(v[i], _mm256_set1_ps(7.0f)), _mm256_set1_ps(-8.0f));
  }
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes), _mm256_add_epi8(narrow(v), eights));
  for (std::uint32_t i = count; i < 32; ++i) codes[i] = 8;
  return range;
}

// Bytes with the nibbles of 16 codes and of 16 others.
SLUICE_INLINE __m128i join_nibbles(const std::uint8_t* low, const std::uint8_t* high) {
  return _mm_or_si128(_mm_loadu_si128(reinterpret_cast<const __m128i*>(low)),
                      _mm_slli_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(high)), 4));
}

// Keys of four dimensions `dim` and of the four that share their bytes, 16 dimensions on.
static void quantize_int4_keys(const std::uint8_t* keys, std::uint32_t head_dim,
                               std::uint32_t groups, std::uint32_t dim, std::uint8_t* block) {
  std::uint8_t codes[8][32];
  for (std::uint32_t i = 0; i < 8; ++i) {
    const std::uint32_t d = dim + i % 4 + i / 4 * 16;
    Int4Range range;
    if (d < head_dim) {
      range = quantize_int4_group(keys + std::size_t{2} * kKvBlock * d, kKvBlock, codes[i]);
    } else {
      __builtin_memset(codes[i], 8, 32);
    }
    __builtin_memcpy(block + int4_key_scale_offset(groups, d), &range.scale, 2);
    __builtin_memcpy(block + int4_key_middle_offset(groups, d), &range.middle, 2);
  }
  for (std::uint32_t t = 0; t < kKvBlock; t += 16) {
    __m128i rows[4];
    for (int i = 0; i < 4; ++i) rows[i] = join_nibbles(codes[i] + t, codes[4 + i] + t);
    // [dimension][token] to [token][dimension].
    const __m128i low01 = _mm_unpacklo_epi8(rows[0], rows[1]);
    const __m128i high01 = _mm_unpackhi_epi8(rows[0], rows[1]);
    const __m128i low23 = _mm_unpacklo_epi8(rows[2], rows[3]);
    const __m128i high23 = _mm_unpackhi_epi8(rows[2], rows[3]);
    auto* to = reinterpret_cast<__m128i*>(block + int4_key_offset(groups, t, dim));
    _mm_storeu_si128(to, _mm_unpacklo_epi16(low01, low23));
    _mm_storeu_si128(to + 1, _mm_unpackhi_epi16(low01, low23));
    _mm_storeu_si128(to + 2, _mm_unpacklo_epi16(high01, high23));
    _mm_storeu_si128(to + 3, _mm_unpackhi_epi16(high01, high23));
  }
}

static void quantize_kv(std::uint32_t head_dim, const std::byte* f16_block, std::byte* block) {
  const KvLayout f16{KvType::kF16, head_dim};
  const KvLayout int4{KvType::kInt4, head_dim};
  const std::uint32_t groups = (head_dim + 31) / 32;
  const auto* from = reinterpret_cast<const std::uint8_t*>(f16_block);
  auto* to = reinterpret_cast<std::uint8_t*>(block);
  for (std::uint32_t g = 0; g < groups; ++g) {
    for (std::uint32_t d = 0; d < 16; d += 4)
      quantize_int4_keys(from, head_dim, groups, 32 * g + d, to);
  }
  from += f16.key_bytes();
  to += int4.key_bytes();
  for (std::uint32_t t = 0; t < kKvBlock; ++t) {
    for (std::uint32_t g = 0; g < groups; ++g) {
      const std::uint32_t count = head_dim - 32 * g < 32 ? head_dim - 32 * g : 32;
      std::uint8_t codes[32];
      const Int4Range range =
          quantize_int4_group(from + std::size_t{64} * (t * groups + g), count, codes);
      __builtin_memcpy(to + int4_value_scale_offset(groups, t, g), &range.scale, 2);
      __builtin_memcpy(to + int4_value_middle_offset(groups, t, g), &range.middle, 2);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + int4_value_offset(groups, t, 32 * g)),
                       join_nibbles(codes, codes + 16));
    }
  }
}

// A group of dimensions of the values of a block as signed bytes, [32 tokens][32 dimensions].
SLUICE_INLINE void unpack_int4_values(const std::uint8_t* group, std::uint32_t groups,
                                      std::uint8_t* bytes) {
  const __m256i low = _mm256_set1_epi8(15);
  const __m256i eights = _mm256_set1_epi8(8);
  for (std::uint32_t t = 0; t < kKvBlock; ++t) {
    const __m128i both =
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(group + int4_value_offset(groups, t, 0)));
    const __m256i codes = _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(both, 4), both), low);
    _mm256_store_si256(reinterpret_cast<__m256i*>(bytes + std::size_t{32} * t),
                       _mm256_sub_epi8(codes, eights));
  }
}

// A query for one block of keys: its codes with a scale a group, and what is to be added to the
// dot products of its codes with unsigned ones. Returns what all raw scores begin with.
SLUICE_INLINE float prepare_int4_query(const float* x, std::uint32_t dim, const std::uint8_t* block,
                                       std::int8_t* q, float* scale, std::int32_t* offset) {
  const std::uint32_t groups = (dim + 31) / 32;
  __m256 partial[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
  for (std::uint32_t g = 0; g < groups; ++g) {
    __m256 v[4];
    load_floats(x + 32 * g, dim - 32 * g < 32 ? dim - 32 * g : 32, v);
    const std::uint8_t* scales = block + int4_key_scale_offset(groups, 32 * g);
    const std::uint8_t* middles = block + int4_key_middle_offset(groups, 32 * g);
    for (int i = 0; i < 4; ++i) {
      partial[i % 2] = _mm256_fmadd_ps(v[i], load_halves(middles + 16 * i), partial[i % 2]);
      v[i] = _mm256_mul_ps(v[i], load_halves(scales + 16 * i));
    }
    __m256i codes;
    scale[g] = quantize_vectors(v, codes);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(q + std::size_t{32} * g), codes);
    // Sums of 8 bytes, each 128 too large.
    const __m256i eights =
        _mm256_sad_epu8(_mm256_xor_si256(codes, _mm256_set1_epi8(-128)), _mm256_setzero_si256());
    const __m128i two =
        _mm_add_epi32(_mm256_castsi256_si128(eights), _mm256_extracti128_si256(eights, 1));
    const __m128i one = _mm_add_epi32(two, _mm_unpackhi_epi64(two, two));
    offset[g] = -8 * (_mm_cvtsi128_si32(one) - 128 * 32);
  }
  float sums[16];
  _mm256_storeu_ps(sums, partial[0]);
  _mm256_storeu_ps(sums + 8, partial[1]);
  return sum_partials(sums);
}

}  // namespace
}  // namespace sluice::cpu

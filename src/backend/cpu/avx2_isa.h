// AVX2, FMA and F16C as the vector templates want them: 8 rows a vector, so that a group of 16 rows
// is two halves.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/backend/cpu/simd_compat.h"

namespace sluice::cpu {
namespace {

struct Avx2 {
  using F = __m256;
  using I = __m256i;
  static constexpr int kLanes = 8;
  static constexpr int kHalves = 2;           // vectors that make a group of 16 rows
  static constexpr bool kHasByteDot = false;  // multiplies bytes and adds four of them to 32 bits

  SLUICE_MEMBER F zero() { return _mm256_setzero_ps(); }
  SLUICE_MEMBER F set1(float x) { return _mm256_set1_ps(x); }
  SLUICE_MEMBER F load(const float* p) { return _mm256_loadu_ps(p); }
  SLUICE_MEMBER void store(float* p, F v) { _mm256_storeu_ps(p, v); }
  SLUICE_MEMBER F add(F a, F b) { return _mm256_add_ps(a, b); }
  SLUICE_MEMBER F sub(F a, F b) { return _mm256_sub_ps(a, b); }
  SLUICE_MEMBER F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  SLUICE_MEMBER F div(F a, F b) { return _mm256_div_ps(a, b); }
  SLUICE_MEMBER F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  // a > b ? a : b, a < b ? a : b; so b where one is NaN.
  SLUICE_MEMBER F max(F a, F b) { return _mm256_max_ps(a, b); }
  SLUICE_MEMBER F min(F a, F b) { return _mm256_min_ps(a, b); }
  SLUICE_MEMBER F negate(F a) { return _mm256_xor_ps(a, _mm256_set1_ps(-0.0f)); }
  SLUICE_MEMBER F as_float(I v) { return _mm256_castsi256_ps(v); }
  SLUICE_MEMBER I as_int(F v) { return _mm256_castps_si256(v); }

  // Lanes base + i that lie in [begin, end).
  using M = __m256i;
  SLUICE_MEMBER M lanes_in(int base, int begin, int end) {
    const I lane =
        _mm256_add_epi32(_mm256_set1_epi32(base), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    return _mm256_andnot_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(begin), lane),
                               _mm256_cmpgt_epi32(_mm256_set1_epi32(end), lane));
  }
  SLUICE_MEMBER M less(F a, F b) { return as_int(_mm256_cmp_ps(a, b, _CMP_LT_OQ)); }
  SLUICE_MEMBER F select(M m, F yes, F no) { return _mm256_blendv_ps(no, yes, as_float(m)); }
  // Lanes outside the mask are 0 and are not read.
  SLUICE_MEMBER F load_masked(const float* p, M m) { return _mm256_maskload_ps(p, m); }

  SLUICE_MEMBER I load_bytes(const void* p) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(p));
  }
  SLUICE_MEMBER void store_bytes(void* p, I v) { _mm256_storeu_si256(static_cast<__m256i*>(p), v); }
  SLUICE_MEMBER I set1_int(std::int32_t x) { return _mm256_set1_epi32(x); }
  SLUICE_MEMBER I set1_byte(int x) { return _mm256_set1_epi8(static_cast<char>(x)); }
  SLUICE_MEMBER I bit_and(I a, I b) { return _mm256_and_si256(a, b); }
  SLUICE_MEMBER I bit_or(I a, I b) { return _mm256_or_si256(a, b); }
  SLUICE_MEMBER I bit_xor(I a, I b) { return _mm256_xor_si256(a, b); }
  SLUICE_MEMBER I add_int(I a, I b) { return _mm256_add_epi32(a, b); }
  SLUICE_MEMBER I sub_int(I a, I b) { return _mm256_sub_epi32(a, b); }
  // Shifts lanes of 16 bits, to the right for n > 0, to the left for n < 0.
  template <int n>
  SLUICE_MEMBER I shift16(I v) {
    if constexpr (n > 0) return _mm256_srli_epi16(v, n);
    if constexpr (n < 0) return _mm256_slli_epi16(v, -n);
    return v;
  }
  template <int n>
  SLUICE_MEMBER I shift_left32(I v) {
    return _mm256_slli_epi32(v, n);
  }
  template <int n>
  SLUICE_MEMBER I shift_right32(I v) {  // of signed numbers
    return _mm256_srai_epi32(v, n);
  }
  // table[low 4 bits], for indices below 16.
  SLUICE_MEMBER I lookup(const std::uint8_t* table, I index) {
    const __m128i t = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(t), index);
  }

  SLUICE_MEMBER F from_int(I v) { return _mm256_cvtepi32_ps(v); }
  // kLanes numbers of other types, widened.
  SLUICE_MEMBER F load_half(const void* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  }
  SLUICE_MEMBER F load_bfloat(const void* p) {
    const I wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)));
    return as_float(_mm256_slli_epi32(wide, 16));
  }
  SLUICE_MEMBER I load_u8(const void* p) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(p)));
  }
  SLUICE_MEMBER I load_i8(const void* p) {
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(p)));
  }
  // 2^(e - 128) as mxfp4_half_scale gives it.
  SLUICE_MEMBER F exponent_scale(I e) {
    const I normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    const I small = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
    const I is_small = _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e);
    return as_float(_mm256_blendv_epi8(normal, small, is_small));
  }

  // Keeps the compiler from turning a chain of sums into a tree, which needs more registers than
  // there are.
  SLUICE_MEMBER I in_order(I v) {
    __asm__("" : "+x"(v));
    return v;
  }

  // Dot products of 4 bytes a lane in steps. Unsigned codes times signed bytes add up pairwise in
  // 16 bits without overflow for a few quads, see Dot::quads.
  SLUICE_MEMBER I broadcast4(const std::int8_t* p) {
    std::int32_t word;
    __builtin_memcpy(&word, p, 4);
    return _mm256_set1_epi32(word);
  }
  SLUICE_MEMBER I multiply_pairs(I codes, I x) { return _mm256_maddubs_epi16(codes, x); }
  SLUICE_MEMBER I add_pairs(I a, I b) { return _mm256_add_epi16(a, b); }
  SLUICE_MEMBER I widen_pairs(I pairs) { return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)); }
  SLUICE_MEMBER I absolute(I v) { return _mm256_abs_epi8(v); }
  SLUICE_MEMBER I copy_sign(I v, I sign) { return _mm256_sign_epi8(v, sign); }
};

}  // namespace
}  // namespace sluice::cpu

// AVX-512 with VNNI as the vector templates want it: a vector is a group of 16 rows, and one
// instruction multiplies unsigned codes with signed bytes and adds four products to 32 bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/backend/cpu/simd_compat.h"

namespace sluice::cpu {
namespace {

struct Avx512 {
  using F = __m512;
  using I = __m512i;
  static constexpr int kLanes = 16;
  static constexpr int kHalves = 1;
  static constexpr bool kHasByteDot = true;

  SLUICE_MEMBER F zero() { return _mm512_setzero_ps(); }
  SLUICE_MEMBER F set1(float x) { return _mm512_set1_ps(x); }
  SLUICE_MEMBER F load(const float* p) { return _mm512_loadu_ps(p); }
  SLUICE_MEMBER void store(float* p, F v) { _mm512_storeu_ps(p, v); }
  SLUICE_MEMBER F add(F a, F b) { return _mm512_add_ps(a, b); }
  SLUICE_MEMBER F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  SLUICE_MEMBER F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  SLUICE_MEMBER F div(F a, F b) { return _mm512_div_ps(a, b); }
  SLUICE_MEMBER F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  // a > b ? a : b, a < b ? a : b; so b where one is NaN.
  SLUICE_MEMBER F max(F a, F b) { return _mm512_max_ps(a, b); }
  SLUICE_MEMBER F min(F a, F b) { return _mm512_min_ps(a, b); }
  SLUICE_MEMBER F as_float(I v) { return _mm512_castsi512_ps(v); }
  SLUICE_MEMBER I as_int(F v) { return _mm512_castps_si512(v); }
  SLUICE_MEMBER F negate(F a) {
    return as_float(_mm512_xor_si512(as_int(a), _mm512_set1_epi32(INT32_MIN)));
  }

  // Lanes base + i that lie in [begin, end).
  using M = __mmask16;
  SLUICE_MEMBER M lanes_in(int base, int begin, int end) {
    const int low = begin <= base ? 0 : begin - base < 16 ? begin - base : 16;
    const int high = end <= base ? 0 : end - base < 16 ? end - base : 16;
    return static_cast<M>(((1 << high) - 1) & ~((1 << low) - 1));
  }
  SLUICE_MEMBER M less(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
  SLUICE_MEMBER F select(M m, F yes, F no) { return _mm512_mask_blend_ps(m, no, yes); }
  // Lanes outside the mask are 0 and are not read.
  SLUICE_MEMBER F load_masked(const float* p, M m) { return _mm512_maskz_loadu_ps(m, p); }

  SLUICE_MEMBER I load_bytes(const void* p) { return _mm512_loadu_si512(p); }
  SLUICE_MEMBER void store_bytes(void* p, I v) { _mm512_storeu_si512(p, v); }
  SLUICE_MEMBER I set1_int(std::int32_t x) { return _mm512_set1_epi32(x); }
  SLUICE_MEMBER I set1_byte(int x) { return _mm512_set1_epi8(static_cast<char>(x)); }
  SLUICE_MEMBER I bit_and(I a, I b) { return _mm512_and_si512(a, b); }
  SLUICE_MEMBER I bit_or(I a, I b) { return _mm512_or_si512(a, b); }
  SLUICE_MEMBER I bit_xor(I a, I b) { return _mm512_xor_si512(a, b); }
  SLUICE_MEMBER I add_int(I a, I b) { return _mm512_add_epi32(a, b); }
  SLUICE_MEMBER I sub_int(I a, I b) { return _mm512_sub_epi32(a, b); }
  // Shifts lanes of 16 bits, to the right for n > 0, to the left for n < 0.
  template <int n>
  SLUICE_MEMBER I shift16(I v) {
    if constexpr (n > 0) return _mm512_srli_epi16(v, n);
    if constexpr (n < 0) return _mm512_slli_epi16(v, -n);
    return v;
  }
  template <int n>
  SLUICE_MEMBER I shift_left32(I v) {
    return _mm512_slli_epi32(v, n);
  }
  template <int n>
  SLUICE_MEMBER I shift_right32(I v) {  // of signed numbers
    return _mm512_srai_epi32(v, n);
  }
  // table[low 4 bits], for indices below 16.
  SLUICE_MEMBER I lookup(const std::uint8_t* table, I index) {
    const __m128i t = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(t), index);
  }

  SLUICE_MEMBER F from_int(I v) { return _mm512_cvtepi32_ps(v); }
  // kLanes numbers of other types, widened.
  SLUICE_MEMBER F load_half(const void* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
  }
  SLUICE_MEMBER F load_bfloat(const void* p) {
    const I wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
    return as_float(_mm512_slli_epi32(wide, 16));
  }
  SLUICE_MEMBER I load_u8(const void* p) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  }
  SLUICE_MEMBER I load_i8(const void* p) {
    return _mm512_cvtepi8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  }
  // 2^(e - 128) as mxfp4_half_scale gives it.
  SLUICE_MEMBER F exponent_scale(I e) {
    const I normal = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
    const I small = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), e);
    const M is_small = _mm512_cmpgt_epi32_mask(_mm512_set1_epi32(2), e);
    return as_float(_mm512_mask_blend_epi32(is_small, normal, small));
  }

  SLUICE_MEMBER I broadcast4(const std::int8_t* p) {
    std::int32_t word;
    __builtin_memcpy(&word, p, 4);
    return _mm512_set1_epi32(word);
  }
  // acc + the products of 4 unsigned codes and 4 signed bytes of each lane.
  SLUICE_MEMBER I byte_dot(I acc, I codes, I x) { return _mm512_dpbusd_epi32(acc, codes, x); }
};

}  // namespace
}  // namespace sluice::cpu

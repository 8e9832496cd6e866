// What SIMDe 0.7.4 lacks of the AVX-512 and AVX-VNNI functions that we use; the former made of
// 256-bit halves. For the test of emulated kernels only.
#pragma once

#include <cstdint>

struct Sluice512 {
  __m256i low;
  __m256i high;
};
static inline __m512i sluice_join(__m256i low, __m256i high) {
  const Sluice512 halves{low, high};
  __m512i v;
  __builtin_memcpy(&v, &halves, 64);
  return v;
}
static inline Sluice512 sluice_split(__m512i v) {
  Sluice512 halves;
  __builtin_memcpy(&halves, &v, 64);
  return halves;
}

#define _mm256_dpbusd_avx_epi32 sluice_dpbusd
#define _mm512_cvtepu8_epi32 sluice_cvtepu8
#define _mm512_cvtepi8_epi32 sluice_cvtepi8
#define _mm512_cvtepu16_epi32 sluice_cvtepu16
#define _mm512_cvtph_ps sluice_cvtph
#define _mm512_cvtepi32_ps sluice_cvtepi32
#define _mm512_srai_epi32 sluice_srai
#define _mm512_maskz_loadu_ps sluice_maskz_loadu

static inline __m256i sluice_dpbusd(__m256i acc, __m256i codes, __m256i x) {
  std::int32_t sums[8];
  std::uint8_t a[32];
  std::int8_t b[32];
  __builtin_memcpy(sums, &acc, 32);
  __builtin_memcpy(a, &codes, 32);
  __builtin_memcpy(b, &x, 32);
  for (int i = 0; i < 32; ++i) sums[i / 4] += a[i] * b[i];
  __m256i v;
  __builtin_memcpy(&v, sums, 32);
  return v;
}
static inline __m512i sluice_cvtepu8(__m128i v) {
  return sluice_join(_mm256_cvtepu8_epi32(v), _mm256_cvtepu8_epi32(_mm_srli_si128(v, 8)));
}
static inline __m512i sluice_cvtepi8(__m128i v) {
  return sluice_join(_mm256_cvtepi8_epi32(v), _mm256_cvtepi8_epi32(_mm_srli_si128(v, 8)));
}
static inline __m512i sluice_cvtepu16(__m256i v) {
  return sluice_join(_mm256_cvtepu16_epi32(_mm256_castsi256_si128(v)),
                     _mm256_cvtepu16_epi32(_mm256_extracti128_si256(v, 1)));
}
static inline __m512 sluice_cvtph(__m256i v) {
  return _mm512_castsi512_ps(
      sluice_join(_mm256_castps_si256(_mm256_cvtph_ps(_mm256_castsi256_si128(v))),
                  _mm256_castps_si256(_mm256_cvtph_ps(_mm256_extracti128_si256(v, 1)))));
}
static inline __m512 sluice_cvtepi32(__m512i v) {
  const Sluice512 h = sluice_split(v);
  return _mm512_castsi512_ps(sluice_join(_mm256_castps_si256(_mm256_cvtepi32_ps(h.low)),
                                         _mm256_castps_si256(_mm256_cvtepi32_ps(h.high))));
}
static inline __m512i sluice_srai(__m512i v, int n) {
  const Sluice512 h = sluice_split(v);
  return sluice_join(_mm256_srai_epi32(h.low, n), _mm256_srai_epi32(h.high, n));
}
static inline __m512 sluice_maskz_loadu(std::uint16_t mask, const float* p) {
  float lanes[16];
  for (int i = 0; i < 16; ++i) lanes[i] = (mask >> i) & 1 ? p[i] : 0.0f;
  __m512 v;
  __builtin_memcpy(&v, lanes, 64);
  return v;
}

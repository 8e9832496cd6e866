// Everything but matrices and attention, with 256-bit vectors: quantizing, norms, gates, rope,
// softmax, storing keys and values. Tables for wider vectors use it too.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/backend/cpu/avx2_isa.h"
#include "src/backend/cpu/kernels.h"
#include "src/backend/cpu/kv_layout.h"
#include "src/backend/cpu/math.h"
#include "src/backend/cpu/simd_compat.h"

namespace sluice::cpu {
namespace {

// exp of math.h, lane by lane.
template <class Isa>
SLUICE_INLINE typename Isa::F vector_exp(typename Isa::F x) {
  using F = typename Isa::F;
  using I = typename Isa::I;
  x = Isa::max(Isa::set1(kExpLowest), x);
  x = Isa::min(Isa::set1(kExpHighest), x);
  const F magic = Isa::set1(kRoundMagic);
  const F shifted = Isa::fma(x, Isa::set1(kInvLn2), magic);
  const F n = Isa::sub(shifted, magic);
  F r = Isa::fma(n, Isa::set1(-kLn2High), x);
  r = Isa::fma(n, Isa::set1(-kLn2Low), r);
  F p = Isa::set1(kExp5);
  p = Isa::fma(p, r, Isa::set1(kExp4));
  p = Isa::fma(p, r, Isa::set1(kExp3));
  p = Isa::fma(p, r, Isa::set1(kExp2));
  p = Isa::fma(p, r, Isa::set1(kExp1));
  p = Isa::fma(p, r, Isa::set1(kExp0));
  p = Isa::add(Isa::fma(p, Isa::mul(r, r), r), Isa::set1(1.0f));
  const I whole = Isa::sub_int(Isa::as_int(shifted), Isa::as_int(magic));
  const I half = Isa::template shift_right32<1>(whole);
  const I bias = Isa::set1_int(127);
  const F f1 = Isa::as_float(Isa::template shift_left32<23>(Isa::add_int(half, bias)));
  const F f2 =
      Isa::as_float(Isa::template shift_left32<23>(Isa::add_int(Isa::sub_int(whole, half), bias)));
  return Isa::mul(Isa::mul(p, f1), f2);
}

template <class Isa>
SLUICE_INLINE typename Isa::F vector_tanh(typename Isa::F y) {
  using F = typename Isa::F;
  using I = typename Isa::I;
  const I sign_bit = Isa::set1_int(INT32_MIN);
  const F magnitude = Isa::as_float(Isa::bit_and(Isa::as_int(y), Isa::set1_int(INT32_MAX)));
  const F z = Isa::mul(y, y);
  F p = Isa::set1(kTanh4);
  p = Isa::fma(p, z, Isa::set1(kTanh3));
  p = Isa::fma(p, z, Isa::set1(kTanh2));
  p = Isa::fma(p, z, Isa::set1(kTanh1));
  p = Isa::fma(p, z, Isa::set1(kTanh0));
  const F small = Isa::fma(Isa::mul(p, z), y, y);
  const F one = Isa::set1(1.0f);
  const F e = Isa::add(vector_exp<Isa>(Isa::add(magnitude, magnitude)), one);
  const F large = Isa::sub(one, Isa::div(Isa::set1(2.0f), e));
  const F signed_large =
      Isa::as_float(Isa::bit_or(Isa::as_int(large), Isa::bit_and(Isa::as_int(y), sign_bit)));
  return Isa::select(Isa::less(magnitude, Isa::set1(kTanhSmall)), small, signed_large);
}

// At most 32 floats, zeros behind `count`.
SLUICE_INLINE void load_floats(const float* x, std::uint32_t count, __m256 (&v)[4]) {
  if (count == 32) {
    for (int i = 0; i < 4; ++i) v[i] = _mm256_loadu_ps(x + 8 * i);
  } else {
    for (int i = 0; i < 4; ++i)
      v[i] = Avx2::load_masked(x + 8 * i, Avx2::lanes_in(8 * i, 0, static_cast<int>(count)));
  }
}

// Bits of the largest magnitude, as an integer: NaN and infinity come out as kInfinityBits or more.
SLUICE_INLINE std::uint32_t largest_bits(const __m256 (&v)[4]) {
  const __m256i magnitude = _mm256_set1_epi32(INT32_MAX);
  __m256i max = _mm256_and_si256(_mm256_castps_si256(v[0]), magnitude);
  for (int i = 1; i < 4; ++i)
    max = _mm256_max_epi32(max, _mm256_and_si256(_mm256_castps_si256(v[i]), magnitude));
  __m128i m = _mm_max_epi32(_mm256_castsi256_si128(max), _mm256_extracti128_si256(max, 1));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1));
  return static_cast<std::uint32_t>(_mm_cvtsi128_si32(m));
}

// Rounds to nearest even and narrows 32 floats within -127 .. 127.
SLUICE_INLINE __m256i narrow(const __m256 (&v)[4]) {
  const __m256i a = _mm256_packs_epi32(_mm256_cvtps_epi32(v[0]), _mm256_cvtps_epi32(v[1]));
  const __m256i b = _mm256_packs_epi32(_mm256_cvtps_epi32(v[2]), _mm256_cvtps_epi32(v[3]));
  // Packing works within 128-bit halves; put the groups of four back in order.
  return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(a, b),
                                     _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

// The codes of 32 activations; returns the scale.
SLUICE_INLINE float quantize_vectors(__m256 (&v)[4], __m256i& codes) {
  const std::uint32_t max_bits = largest_bits(v);
  codes = _mm256_setzero_si256();
  if (max_bits >= kInfinityBits) return float_of(0x7fc00000u);
  const float max = float_of(max_bits);
  if (max < kTinyGroup) return 0.0f;
  const __m256 inverse = _mm256_set1_ps(127.0f / max);
  for (int i = 0; i < 4; ++i) v[i] = _mm256_mul_ps(v[i], inverse);
  codes = narrow(v);
  return max / 127.0f;
}

// generic_quantize_group: the codes of up to 32 activations; returns the scale.
SLUICE_INLINE float quantize_group(const float* x, std::uint32_t count, __m256i& codes) {
  __m256 v[4];
  load_floats(x, count, v);
  return quantize_vectors(v, codes);
}

static void quantize_rows(const float* x, std::size_t stride, QuantizedRows out) {
  const std::uint32_t blocks = out.cols / kQuantGroup;
  for (std::uint32_t r = 0; r < out.rows; ++r) {
    for (std::uint32_t b = 0; b < blocks; ++b) {
      const std::size_t at = std::size_t{r} * blocks + b;
      __m256i codes;
      out.scale[at] = quantize_group(x + r * stride + b * kQuantGroup, kQuantGroup, codes);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out.q + at * kQuantGroup), codes);
      // Sums of 4 bytes a lane; the low four lanes are the first half of the group.
      const __m256i quads = Avx2::widen_pairs(_mm256_maddubs_epi16(_mm256_set1_epi8(1), codes));
      const __m256i twos = _mm256_hadd_epi32(quads, quads);
      const __m256i sums = _mm256_hadd_epi32(twos, twos);
      out.sum[2 * at] = _mm_cvtsi128_si32(_mm256_castsi256_si128(sums));
      out.sum[2 * at + 1] = _mm_cvtsi128_si32(_mm256_extracti128_si256(sums, 1));
    }
  }
}

// Codes of up to 32 values of a key or value; returns the bits of the scale.
SLUICE_INLINE std::uint16_t quantize_kv_group(const float* x, std::uint32_t count, __m256i& codes) {
  __m256 v[4];
  load_floats(x, count, v);
  const std::uint32_t max_bits = largest_bits(v);
  codes = _mm256_setzero_si256();
  const std::uint16_t scale_bits = kv_scale_bits(max_bits);
  const float scale = _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(scale_bits)));
  if (max_bits >= kInfinityBits || scale == 0.0f) return scale_bits;
  const __m256 inverse = _mm256_set1_ps(1.0f / scale);
  for (int i = 0; i < 4; ++i) {
    v[i] = _mm256_min_ps(_mm256_mul_ps(v[i], inverse), _mm256_set1_ps(127.0f));
    v[i] = _mm256_max_ps(v[i], _mm256_set1_ps(-127.0f));
  }
  codes = narrow(v);
  return scale_bits;
}

static void store_kv(const KvLayout& layout, const float* key, const float* value,
                     std::uint32_t slot, std::byte* block) {
  auto* keys = reinterpret_cast<std::uint8_t*>(block);
  auto* values = keys + layout.key_bytes();
  const std::uint32_t dim = layout.head_dim;
  const std::uint32_t padded = (dim + 31) / 32 * 32;
  if (layout.type == KvType::kInt8) {
    const std::uint32_t groups = padded / 32;
    for (std::uint32_t g = 0; g < groups; ++g) {
      const std::uint32_t count = dim - 32 * g < 32 ? dim - 32 * g : 32;
      __m256i codes;
      std::uint16_t scale = quantize_kv_group(key + 32 * g, count, codes);
      __builtin_memcpy(keys + key_scale_offset(groups, slot, g), &scale, 2);
      alignas(32) std::uint8_t quads[32];
      _mm256_store_si256(reinterpret_cast<__m256i*>(quads), codes);
      std::uint8_t* to = keys + key_code_offset(groups, slot, 32 * g);
      for (std::uint32_t j = 0; j < 8; ++j) __builtin_memcpy(to + 64 * j, quads + 4 * j, 4);
      scale = quantize_kv_group(value + 32 * g, count, codes);
      __builtin_memcpy(values + value_scale_offset(groups, slot, g), &scale, 2);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(values + std::size_t{slot} * padded + 32 * g),
                          codes);
    }
    return;
  }
  const bool is_half = layout.type == KvType::kF16;
  for (std::uint32_t d = 0; d < padded; d += 8) {
    const int count = d + 8 <= dim ? 8 : d < dim ? static_cast<int>(dim - d) : 0;
    const __m256i mask = Avx2::lanes_in(0, 0, count);
    const __m256 v = Avx2::load_masked(value + (count > 0 ? d : 0), mask);
    const __m256 k = Avx2::load_masked(key + (count > 0 ? d : 0), mask);
    if (is_half) {
      alignas(16) std::uint16_t halves[8];
      const __m128i narrow_v = _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(values + 2 * (std::size_t{slot} * padded + d)),
                       narrow_v);
      _mm_store_si128(reinterpret_cast<__m128i*>(halves),
                      _mm256_cvtps_ph(k, _MM_FROUND_TO_NEAREST_INT));
      for (int i = 0; i < count; ++i)
        __builtin_memcpy(keys + 2 * ((std::size_t{d} + i) * kKvBlock + slot), halves + i, 2);
    } else {
      _mm256_storeu_ps(reinterpret_cast<float*>(values) + std::size_t{slot} * padded + d, v);
      for (int i = 0; i < count; ++i)
        __builtin_memcpy(keys + 4 * ((std::size_t{d} + i) * kKvBlock + slot), key + d + i, 4);
    }
  }
}

// Calls body(offset, mask or all) over n floats, 8 at a time; the last one may be partial.
template <class Body>
SLUICE_INLINE void over_vectors(std::size_t n, const Body& body) {
  std::size_t i = 0;
  for (; i + 8 <= n; i += 8) body(i, _mm256_set1_epi32(-1));
  if (i < n) body(i, Avx2::lanes_in(0, 0, static_cast<int>(n - i)));
}

static void rms_norm(const float* x, const float* weight, std::uint32_t n, float eps, float* out) {
  __m256 partial[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
  over_vectors(n, [&](std::size_t i, __m256i mask) SLUICE_ALWAYS_INLINE {
    const __m256 v = _mm256_maskload_ps(x + i, mask);
    __m256& p = partial[i / 8 % 2];
    p = _mm256_fmadd_ps(v, v, p);
  });
  float sums[16];
  _mm256_storeu_ps(sums, partial[0]);
  _mm256_storeu_ps(sums + 8, partial[1]);
  const float mean = sum_partials(sums) / static_cast<float>(n);
  const __m256 inverse = _mm256_set1_ps(1.0f / __builtin_sqrtf(mean + eps));
  over_vectors(n, [&](std::size_t i, __m256i mask) SLUICE_ALWAYS_INLINE {
    __m256 y = _mm256_mul_ps(_mm256_maskload_ps(x + i, mask), inverse);
    if (weight != nullptr) y = _mm256_mul_ps(y, _mm256_maskload_ps(weight + i, mask));
    _mm256_maskstore_ps(out + i, mask, y);
  });
}

static void silu_mul(const float* gate, const float* up, std::size_t n, float* out) {
  over_vectors(n, [&](std::size_t i, __m256i mask) SLUICE_ALWAYS_INLINE {
    const __m256 g = _mm256_maskload_ps(gate + i, mask);
    const __m256 e = vector_exp<Avx2>(Avx2::negate(g));
    const __m256 y = _mm256_div_ps(g, _mm256_add_ps(e, _mm256_set1_ps(1.0f)));
    _mm256_maskstore_ps(out + i, mask, _mm256_mul_ps(y, _mm256_maskload_ps(up + i, mask)));
  });
}

static void gelu_mul(const float* gate, const float* up, std::size_t n, float* out) {
  over_vectors(n, [&](std::size_t i, __m256i mask) SLUICE_ALWAYS_INLINE {
    const __m256 g = _mm256_maskload_ps(gate + i, mask);
    const __m256 scaled = _mm256_mul_ps(_mm256_set1_ps(kGeluCubic), g);
    const __m256 cubic = _mm256_fmadd_ps(scaled, _mm256_mul_ps(g, g), g);
    const __m256 e = vector_exp<Avx2>(_mm256_mul_ps(_mm256_set1_ps(kGeluMinusTwoRoot), cubic));
    const __m256 y = _mm256_div_ps(g, _mm256_add_ps(e, _mm256_set1_ps(1.0f)));
    _mm256_maskstore_ps(out + i, mask, _mm256_mul_ps(y, _mm256_maskload_ps(up + i, mask)));
  });
}

static void add(float* x, const float* y, std::size_t n) {
  over_vectors(n, [&](std::size_t i, __m256i mask) SLUICE_ALWAYS_INLINE {
    const __m256 sum =
        _mm256_add_ps(_mm256_maskload_ps(x + i, mask), _mm256_maskload_ps(y + i, mask));
    _mm256_maskstore_ps(x + i, mask, sum);
  });
}

static void rope(float* x, std::uint32_t dims, bool interleaved, const float* cos,
                 const float* sin) {
  const std::uint32_t half = dims / 2;
  if (interleaved) {
    for (std::uint32_t i = 0; i < half; ++i) {
      const float a = x[2 * i];
      const float b = x[2 * i + 1];
      x[2 * i] = __builtin_fmaf(a, cos[i], -(b * sin[i]));
      x[2 * i + 1] = __builtin_fmaf(a, sin[i], b * cos[i]);
    }
    return;
  }
  over_vectors(half, [&](std::size_t i, __m256i mask) SLUICE_ALWAYS_INLINE {
    const __m256 c = _mm256_maskload_ps(cos + i, mask);
    const __m256 s = _mm256_maskload_ps(sin + i, mask);
    const __m256 a = _mm256_maskload_ps(x + i, mask);
    const __m256 b = _mm256_maskload_ps(x + half + i, mask);
    _mm256_maskstore_ps(x + i, mask, _mm256_fmsub_ps(a, c, _mm256_mul_ps(b, s)));
    _mm256_maskstore_ps(x + half + i, mask, _mm256_fmadd_ps(a, s, _mm256_mul_ps(b, c)));
  });
}

// The largest of 8 lanes, none of them NaN.
SLUICE_INLINE float largest(__m256 v) {
  float lanes[8];
  _mm256_storeu_ps(lanes, v);
  float max = lanes[0];
  for (int i = 1; i < 8; ++i) max = lanes[i] > max ? lanes[i] : max;
  return max + 0.0f;  // one zero
}

static void softmax(float* x, std::uint32_t n) {
  const __m256 lowest = _mm256_set1_ps(-__builtin_inff());
  __m256 max = lowest;
  over_vectors(n, [&](std::size_t i, __m256i mask) SLUICE_ALWAYS_INLINE {
    max = _mm256_max_ps(Avx2::select(mask, _mm256_maskload_ps(x + i, mask), lowest), max);
  });
  const __m256 top = _mm256_set1_ps(largest(max));
  __m256 partial[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
  over_vectors(n, [&](std::size_t i, __m256i mask) SLUICE_ALWAYS_INLINE {
    __m256 p = vector_exp<Avx2>(_mm256_sub_ps(_mm256_maskload_ps(x + i, mask), top));
    p = Avx2::select(mask, p, _mm256_setzero_ps());
    _mm256_maskstore_ps(x + i, mask, p);
    partial[i / 8 % 2] = _mm256_add_ps(partial[i / 8 % 2], p);
  });
  float sums[16];
  _mm256_storeu_ps(sums, partial[0]);
  _mm256_storeu_ps(sums + 8, partial[1]);
  const __m256 inverse = _mm256_set1_ps(1.0f / sum_partials(sums));
  over_vectors(n, [&](std::size_t i, __m256i mask) SLUICE_ALWAYS_INLINE {
    _mm256_maskstore_ps(x + i, mask, _mm256_mul_ps(_mm256_maskload_ps(x + i, mask), inverse));
  });
}

}  // namespace
}  // namespace sluice::cpu

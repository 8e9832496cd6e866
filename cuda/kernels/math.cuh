// exp, tanh, silu and gelu by the operations of src/backend/cpu/math.h, and so with its bits. That
// header has the sources of the polynomials and their errors.
#pragma once

#include "cuda/simt.h"

namespace sluice::cuda {

// Adding and subtracting it rounds |x| < 2^22 to the nearest integer, ties to even.
inline constexpr float kRoundMagic = 12582912.0f;

// 2^n * e^r, n = round(x / ln 2), r = x - n * ln 2 in two steps.
SIMT_DEVICE float exp_of(float x) {
  x = -104.0f > x ? -104.0f : x;  // NaN stays
  x = 89.0f < x ? 89.0f : x;
  const float shifted = simt::fma(x, 1.44269504088896341f, kRoundMagic);
  const float n = shifted - kRoundMagic;
  float r = simt::fma(n, -0.693359375f, x);
  r = simt::fma(n, 2.12194440e-4f, r);
  float p = 1.9875691500e-4f;
  p = simt::fma(p, r, 1.3981999507e-3f);
  p = simt::fma(p, r, 8.3334519073e-3f);
  p = simt::fma(p, r, 4.1665795894e-2f);
  p = simt::fma(p, r, 1.6666665459e-1f);
  p = simt::fma(p, r, 5.0000001201e-1f);
  p = simt::fma(p, r * r, r) + 1.0f;
  // 2^n in two factors, so that results reach down to subnormals and up to infinity.
  const auto whole =
      static_cast<std::int32_t>(simt::float_bits(shifted) - simt::float_bits(kRoundMagic));
  const std::int32_t half = whole >> 1;
  const float f1 = simt::float_of_bits(static_cast<std::uint32_t>(half + 127) << 23);
  const float f2 = simt::float_of_bits(static_cast<std::uint32_t>(whole - half + 127) << 23);
  return (p * f1) * f2;
}

SIMT_DEVICE float tanh_of(float y) {
  const float magnitude = simt::float_of_bits(simt::float_bits(y) & 0x7fffffffu);
  const float z = y * y;
  float p = -5.70498872745e-3f;
  p = simt::fma(p, z, 2.06390887954e-2f);
  p = simt::fma(p, z, -5.37397155531e-2f);
  p = simt::fma(p, z, 1.33314422036e-1f);
  p = simt::fma(p, z, -3.33332819422e-1f);
  const float small = simt::fma(p * z, y, y);
  const float large = 1.0f - 2.0f / (exp_of(magnitude + magnitude) + 1.0f);
  const float signed_large =
      simt::float_of_bits(simt::float_bits(large) | (simt::float_bits(y) & 0x80000000u));
  return magnitude < 0.625f ? small : signed_large;
}

SIMT_DEVICE float silu_of(float x) { return x / (exp_of(-x) + 1.0f); }

// The tanh form, rewritten: x / (1 + exp(-2 u)), u = sqrt(2 / pi) * (x + 0.044715 x^3).
SIMT_DEVICE float gelu_of(float x) {
  const float cubic = simt::fma(0.044715f * x, x * x, x);
  return x / (exp_of(-1.59576912160573f * cubic) + 1.0f);
}

// Adds what the 32 lanes have, in one fixed order, which all lanes get: pairs at a distance of 16,
// then 8, 4, 2, 1.
SIMT_DEVICE float add_lanes(float x) {
  SIMT_UNROLL
  for (std::uint32_t lanes = 16; lanes > 0; lanes /= 2) {
    x += simt::float_of_bits(simt::shuffle_xor(simt::kAllLanes, simt::float_bits(x), lanes));
  }
  return x;
}

}  // namespace sluice::cuda

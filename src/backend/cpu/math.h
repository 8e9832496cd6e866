// The scalar form of the functions that every instruction set computes with the same operations in
// the same order. Everything here has internal linkage: units compiled for different instruction
// sets must not share inline functions, or the linker could keep the wrong one.
//
// Polynomials: exp and tanh near zero after the single precision routines of the Cephes library
// (S. Moshier, netlib.org/cephes). Errors: exp below 1.5 units in the last place, tanh below 2.
#pragma once

#include <cstdint>
#include <cstring>

namespace sluice::cpu {

// exp(x) = 2^n * e^r, n = round(x / ln 2), r = x - n * ln 2 in two steps.
inline constexpr float kExpLowest = -104.0f;  // below: 0
inline constexpr float kExpHighest = 89.0f;   // above: infinity
inline constexpr float kInvLn2 = 1.44269504088896341f;
inline constexpr float kLn2High = 0.693359375f;
inline constexpr float kLn2Low = -2.12194440e-4f;
// Adding and subtracting it rounds |x| < 2^22 to the nearest integer, ties to even, and leaves the
// integer in the low bits.
inline constexpr float kRoundMagic = 12582912.0f;
inline constexpr float kExp5 = 1.9875691500e-4f;
inline constexpr float kExp4 = 1.3981999507e-3f;
inline constexpr float kExp3 = 8.3334519073e-3f;
inline constexpr float kExp2 = 4.1665795894e-2f;
inline constexpr float kExp1 = 1.6666665459e-1f;
inline constexpr float kExp0 = 5.0000001201e-1f;

inline constexpr float kTanhSmall = 0.625f;  // below: odd polynomial
inline constexpr float kTanh4 = -5.70498872745e-3f;
inline constexpr float kTanh3 = 2.06390887954e-2f;
inline constexpr float kTanh2 = -5.37397155531e-2f;
inline constexpr float kTanh1 = 1.33314422036e-1f;
inline constexpr float kTanh0 = -3.33332819422e-1f;

// gelu(x) = x / (1 + exp(-2 u)), u = sqrt(2 / pi) * (x + 0.044715 x^3): the tanh form rewritten.
inline constexpr float kGeluCubic = 0.044715f;
inline constexpr float kGeluMinusTwoRoot = -1.59576912160573f;  // -2 * sqrt(2 / pi)

// Activation groups whose largest magnitude is below this are stored as zeros.
inline constexpr float kTinyGroup = 1e-30f;
inline constexpr std::uint32_t kInfinityBits = 0x7f800000u;

static inline std::uint32_t bits_of(float f) {
  std::uint32_t bits;
  std::memcpy(&bits, &f, 4);
  return bits;
}
static inline float float_of(std::uint32_t bits) {
  float f;
  std::memcpy(&f, &bits, 4);
  return f;
}

static inline float scalar_exp(float x) {
  x = kExpLowest > x ? kExpLowest : x;  // NaN stays
  x = kExpHighest < x ? kExpHighest : x;
  const float shifted = __builtin_fmaf(x, kInvLn2, kRoundMagic);
  const float n = shifted - kRoundMagic;
  float r = __builtin_fmaf(n, -kLn2High, x);
  r = __builtin_fmaf(n, -kLn2Low, r);
  float p = kExp5;
  p = __builtin_fmaf(p, r, kExp4);
  p = __builtin_fmaf(p, r, kExp3);
  p = __builtin_fmaf(p, r, kExp2);
  p = __builtin_fmaf(p, r, kExp1);
  p = __builtin_fmaf(p, r, kExp0);
  p = __builtin_fmaf(p, r * r, r) + 1.0f;
  // 2^n in two factors, so that results reach down to subnormals and up to infinity.
  const auto whole = static_cast<std::int32_t>(bits_of(shifted) - bits_of(kRoundMagic));
  const std::int32_t half = whole >> 1;
  const float f1 = float_of(static_cast<std::uint32_t>(half + 127) << 23);
  const float f2 = float_of(static_cast<std::uint32_t>(whole - half + 127) << 23);
  return (p * f1) * f2;
}

static inline float scalar_tanh(float y) {
  const float magnitude = float_of(bits_of(y) & 0x7fffffffu);
  const float z = y * y;
  float p = kTanh4;
  p = __builtin_fmaf(p, z, kTanh3);
  p = __builtin_fmaf(p, z, kTanh2);
  p = __builtin_fmaf(p, z, kTanh1);
  p = __builtin_fmaf(p, z, kTanh0);
  const float small = __builtin_fmaf(p * z, y, y);
  const float large = 1.0f - 2.0f / (scalar_exp(magnitude + magnitude) + 1.0f);
  const float signed_large = float_of(bits_of(large) | (bits_of(y) & 0x80000000u));
  return magnitude < kTanhSmall ? small : signed_large;
}

static inline float scalar_silu(float x) { return x / (scalar_exp(-x) + 1.0f); }

static inline float scalar_gelu(float x) {
  const float cubic = __builtin_fmaf(kGeluCubic * x, x * x, x);
  return x / (scalar_exp(kGeluMinusTwoRoot * cubic) + 1.0f);
}

// Adds 16 partial sums in the fixed order.
static inline float sum_partials(const float* partial) {
  float p[16];
  for (int i = 0; i < 16; ++i) p[i] = partial[i];
  for (int step = 8; step > 0; step /= 2) {
    for (int i = 0; i < step; ++i) p[i] = p[i] + p[i + step];
  }
  return p[0];
}

}  // namespace sluice::cpu

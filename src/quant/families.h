// Internal: the decoders and encoders of every type, one family a file; codec.cpp is their table.
//
// decode_*: `blocks` blocks at `data` to block_size * blocks floats at `out`.
// encode_*: the other way. Values are finite. Returns kEncoded, or the index (in `in`) of a value
// that the type cannot hold.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "src/base/half.h"
#include "src/quant/layout.h"

namespace sluice {

inline constexpr std::size_t kEncoded = std::numeric_limits<std::size_t>::max();

// float_types.cpp
void decode_f32(const std::byte* data, std::size_t blocks, float* out);
void decode_f16(const std::byte* data, std::size_t blocks, float* out);
void decode_bf16(const std::byte* data, std::size_t blocks, float* out);
std::size_t encode_f32(const float* in, std::size_t blocks, std::byte* out);
std::size_t encode_f16(const float* in, std::size_t blocks, std::byte* out);
std::size_t encode_bf16(const float* in, std::size_t blocks, std::byte* out);

// legacy.cpp
void decode_q4_0(const std::byte* data, std::size_t blocks, float* out);
void decode_q4_1(const std::byte* data, std::size_t blocks, float* out);
void decode_q5_0(const std::byte* data, std::size_t blocks, float* out);
void decode_q5_1(const std::byte* data, std::size_t blocks, float* out);
void decode_q8_0(const std::byte* data, std::size_t blocks, float* out);
std::size_t encode_q4_0(const float* in, std::size_t blocks, std::byte* out);
std::size_t encode_q4_1(const float* in, std::size_t blocks, std::byte* out);
std::size_t encode_q5_0(const float* in, std::size_t blocks, std::byte* out);
std::size_t encode_q5_1(const float* in, std::size_t blocks, std::byte* out);
std::size_t encode_q8_0(const float* in, std::size_t blocks, std::byte* out);

// k_decode.cpp, k_encode.cpp
void decode_q2_k(const std::byte* data, std::size_t blocks, float* out);
void decode_q3_k(const std::byte* data, std::size_t blocks, float* out);
void decode_q4_k(const std::byte* data, std::size_t blocks, float* out);
void decode_q5_k(const std::byte* data, std::size_t blocks, float* out);
void decode_q6_k(const std::byte* data, std::size_t blocks, float* out);
std::size_t encode_q2_k(const float* in, std::size_t blocks, std::byte* out);
std::size_t encode_q3_k(const float* in, std::size_t blocks, std::byte* out);
std::size_t encode_q4_k(const float* in, std::size_t blocks, std::byte* out);
std::size_t encode_q5_k(const float* in, std::size_t blocks, std::byte* out);
std::size_t encode_q6_k(const float* in, std::size_t blocks, std::byte* out);

// codebook.cpp
void decode_iq4_nl(const std::byte* data, std::size_t blocks, float* out);
void decode_iq4_xs(const std::byte* data, std::size_t blocks, float* out);
void decode_mxfp4(const std::byte* data, std::size_t blocks, float* out);
std::size_t encode_iq4_nl(const float* in, std::size_t blocks, std::byte* out);
std::size_t encode_iq4_xs(const float* in, std::size_t blocks, std::byte* out);
std::size_t encode_mxfp4(const float* in, std::size_t blocks, std::byte* out);

// -- Shared by the encoders ----------------------------------------------------------------------

// The lowest and highest of n values and where they are.
struct Extremes {
  float low = 0;
  float high = 0;
  std::size_t low_at = 0;
  std::size_t high_at = 0;

  // The larger in size, with its sign, and where it is; and the size of the one on the other side
  // of zero (0 if all values lie on one side).
  float peak() const { return -low > high ? low : high; }
  std::size_t peak_at() const { return -low > high ? low_at : high_at; }
  float opposite() const { return std::max(-low > high ? high : -low, 0.0f); }
};

inline Extremes extremes_of(const float* in, std::size_t n) {
  Extremes e{in[0], in[0], 0, 0};
  for (std::size_t i = 1; i < n; ++i) {
    if (in[i] < e.low) {
      e.low = in[i];
      e.low_at = i;
    }
    if (in[i] > e.high) {
      e.high = in[i];
      e.high_at = i;
    }
  }
  return e;
}

// The bits of the half nearest to `scale`, or the next one further from zero where the nearest
// times `reach` (the largest integer of the type) would fall short of `extreme`. So the largest
// value of a block is never cut off, also where halves are coarse: tiny blocks keep a finite scale.
// Zero only if `extreme` is 0; infinite (see half_is_finite) if no half is large enough.
inline std::uint16_t half_that_reaches(float scale, float extreme, float reach) {
  if (extreme == 0) return 0;
  const std::uint16_t nearest = float_to_half(scale);
  if (std::fabs(half_to_float(nearest)) * reach >= std::fabs(extreme)) return nearest;
  return static_cast<std::uint16_t>(nearest + 1);
}

inline bool half_is_finite(std::uint16_t bits) { return (bits & 0x7c00) != 0x7c00; }

// Nearest integer to value / step within [low, high]; 0 for a step of 0. Ties go up.
inline int rounded_ratio(float value, float step, int low, int high) {
  if (step == 0) return 0;
  const float ratio = std::floor(value / step + 0.5f);
  return static_cast<int>(std::clamp(ratio, static_cast<float>(low), static_cast<float>(high)));
}

}  // namespace sluice

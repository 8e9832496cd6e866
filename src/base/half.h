// IEEE binary16 and bfloat16, as stored in GGUF files. Conversions are exact towards float and
// round to nearest even from float; they give the same bits as the F16C instructions.
#pragma once

#include <bit>
#include <cstdint>

namespace sluice {

float half_to_float(std::uint16_t h);
std::uint16_t float_to_half(float f);

inline float bfloat_to_float(std::uint16_t b) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(b) << 16);
}
std::uint16_t float_to_bfloat(float f);

}  // namespace sluice

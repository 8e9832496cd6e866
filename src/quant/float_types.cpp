// F32, F16 and BF16: one weight a block.
#include <cstring>

#include "src/quant/families.h"

namespace sluice {
namespace {

std::uint16_t load16(const std::byte* at) {
  std::uint16_t bits;
  std::memcpy(&bits, at, sizeof(bits));
  return bits;
}

void store16(std::byte* at, std::uint16_t bits) { std::memcpy(at, &bits, sizeof(bits)); }

}  // namespace

void decode_f32(const std::byte* data, std::size_t blocks, float* out) {
  std::memcpy(out, data, blocks * sizeof(float));
}

void decode_f16(const std::byte* data, std::size_t blocks, float* out) {
  for (std::size_t i = 0; i < blocks; ++i) out[i] = half_to_float(load16(data + 2 * i));
}

void decode_bf16(const std::byte* data, std::size_t blocks, float* out) {
  for (std::size_t i = 0; i < blocks; ++i) out[i] = bfloat_to_float(load16(data + 2 * i));
}

std::size_t encode_f32(const float* in, std::size_t blocks, std::byte* out) {
  std::memcpy(out, in, blocks * sizeof(float));
  return kEncoded;
}

std::size_t encode_f16(const float* in, std::size_t blocks, std::byte* out) {
  for (std::size_t i = 0; i < blocks; ++i) {
    const std::uint16_t half = float_to_half(in[i]);
    if (!half_is_finite(half)) return i;
    store16(out + 2 * i, half);
  }
  return kEncoded;
}

std::size_t encode_bf16(const float* in, std::size_t blocks, std::byte* out) {
  for (std::size_t i = 0; i < blocks; ++i) {
    const std::uint16_t bfloat = float_to_bfloat(in[i]);
    if ((bfloat & 0x7f80) == 0x7f80) return i;  // rounded up to infinity
    store16(out + 2 * i, bfloat);
  }
  return kEncoded;
}

}  // namespace sluice

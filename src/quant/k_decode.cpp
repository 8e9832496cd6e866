// Q2_K to Q6_K: 256 weights in groups of 16 or 32, each with an integer scale (and minimum) that
// is itself scaled by a half for the whole block. Layouts: layout.h.
#include "src/quant/families.h"

namespace sluice {
namespace {

constexpr int kSize = 256;

// out[i] = step[g] * q[i] - offset[g], g = i / group.
template <std::size_t kGroups>
void apply_with_minimum(const std::int8_t (&q)[kSize], const float (&step)[kGroups],
                        const float (&offset)[kGroups], float* out) {
  constexpr std::size_t kGroup = kSize / kGroups;
  for (std::size_t i = 0; i < kSize; ++i) {
    out[i] = step[i / kGroup] * static_cast<float>(q[i]) - offset[i / kGroup];
  }
}

// Q4_K and Q5_K differ only in their integers.
template <class Block>
void decode_q45_k(const std::byte* data, std::size_t blocks, float* out) {
  const auto* block = reinterpret_cast<const Block*>(data);
  std::int8_t q[kSize];
  std::uint8_t scales[8];
  std::uint8_t mins[8];
  float step[8];
  float offset[8];
  for (std::size_t b = 0; b < blocks; ++b, ++block, out += kSize) {
    unpack(*block, q);
    unpack_q4_k_scales(block->scales, scales, mins);
    const float d = block->d.value();
    const float dmin = block->dmin.value();
    for (int g = 0; g < 8; ++g) {
      step[g] = d * static_cast<float>(scales[g]);
      offset[g] = dmin * static_cast<float>(mins[g]);
    }
    apply_with_minimum(q, step, offset, out);
  }
}

// out[i] = (d * scales[i / 16]) * q[i].
void apply_scales(const std::int8_t (&q)[kSize], const std::int8_t (&scales)[16], float d,
                  float* out) {
  for (int i = 0; i < kSize; ++i) {
    const float step = d * static_cast<float>(scales[i / 16]);
    out[i] = step * static_cast<float>(q[i]);
  }
}

}  // namespace

void decode_q2_k(const std::byte* data, std::size_t blocks, float* out) {
  const auto* block = reinterpret_cast<const BlockQ2_K*>(data);
  std::int8_t q[kSize];
  float step[16];
  float offset[16];
  for (std::size_t b = 0; b < blocks; ++b, ++block, out += kSize) {
    unpack(*block, q);
    const float d = block->d.value();
    const float dmin = block->dmin.value();
    for (int g = 0; g < 16; ++g) {
      step[g] = d * static_cast<float>(block->scales[g] & 0x0f);
      offset[g] = dmin * static_cast<float>(block->scales[g] >> 4);
    }
    apply_with_minimum(q, step, offset, out);
  }
}

void decode_q3_k(const std::byte* data, std::size_t blocks, float* out) {
  const auto* block = reinterpret_cast<const BlockQ3_K*>(data);
  std::int8_t q[kSize];
  std::int8_t scales[16];
  for (std::size_t b = 0; b < blocks; ++b, ++block, out += kSize) {
    unpack(*block, q);
    unpack_q3_k_scales(block->scales, scales);
    apply_scales(q, scales, block->d.value(), out);
  }
}

void decode_q4_k(const std::byte* data, std::size_t blocks, float* out) {
  decode_q45_k<BlockQ4_K>(data, blocks, out);
}

void decode_q5_k(const std::byte* data, std::size_t blocks, float* out) {
  decode_q45_k<BlockQ5_K>(data, blocks, out);
}

void decode_q6_k(const std::byte* data, std::size_t blocks, float* out) {
  const auto* block = reinterpret_cast<const BlockQ6_K*>(data);
  std::int8_t q[kSize];
  for (std::size_t b = 0; b < blocks; ++b, ++block, out += kSize) {
    unpack(*block, q);
    apply_scales(q, block->scales, block->d.value(), out);
  }
}

}  // namespace sluice

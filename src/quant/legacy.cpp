// Q4_0, Q4_1, Q5_0, Q5_1, Q8_0: 32 weights share one scale, and in the _1 types one minimum.
#include "src/quant/families.h"

namespace sluice {
namespace {

constexpr std::size_t kSize = 32;

template <class Block>
void decode_scaled(const std::byte* data, std::size_t blocks, float* out) {
  const auto* block = reinterpret_cast<const Block*>(data);
  std::int8_t q[kSize];
  for (std::size_t b = 0; b < blocks; ++b, ++block, out += kSize) {
    unpack(*block, q);
    const float d = block->d.value();
    for (std::size_t i = 0; i < kSize; ++i) out[i] = d * static_cast<float>(q[i]);
  }
}

template <class Block>
void decode_with_minimum(const std::byte* data, std::size_t blocks, float* out) {
  const auto* block = reinterpret_cast<const Block*>(data);
  std::int8_t q[kSize];
  for (std::size_t b = 0; b < blocks; ++b, ++block, out += kSize) {
    unpack(*block, q);
    const float d = block->d.value();
    const float m = block->m.value();
    for (std::size_t i = 0; i < kSize; ++i) out[i] = d * static_cast<float>(q[i]) + m;
  }
}

// Stored integers, 0 up, to the bytes of a block.
void pack(const std::uint8_t (&q)[kSize], BlockQ4_0& block) {
  for (std::size_t i = 0; i < 16; ++i) {
    block.qs[i] = static_cast<std::uint8_t>(q[i] | (q[i + 16] << 4));
  }
}

void pack(const std::uint8_t (&q)[kSize], BlockQ4_1& block) {
  for (std::size_t i = 0; i < 16; ++i) {
    block.qs[i] = static_cast<std::uint8_t>(q[i] | (q[i + 16] << 4));
  }
}

void pack_five_bits(const std::uint8_t (&q)[kSize], std::uint8_t (&qh)[4], std::uint8_t (&qs)[16]) {
  for (std::size_t i = 0; i < 16; ++i) {
    qs[i] = static_cast<std::uint8_t>((q[i] & 0x0f) | ((q[i + 16] & 0x0f) << 4));
  }
  for (std::size_t byte = 0; byte < 4; ++byte) {
    unsigned bits = 0;
    for (std::size_t i = 0; i < 8; ++i) bits |= unsigned{q[8 * byte + i]} >> 4 << i;
    qh[byte] = static_cast<std::uint8_t>(bits);
  }
}

void pack(const std::uint8_t (&q)[kSize], BlockQ5_0& block) {
  pack_five_bits(q, block.qh, block.qs);
}

void pack(const std::uint8_t (&q)[kSize], BlockQ5_1& block) {
  pack_five_bits(q, block.qh, block.qs);
}

// Integers -kHalf .. kHalf - 1, stored + kHalf. The scale puts the value that is largest in size at
// -kHalf, with a sign of its own for that, and is widened where a value of the other sign would
// otherwise be more than half a step beyond kHalf - 1.
template <class Block, int kHalf>
std::size_t encode_signed(const float* in, std::size_t blocks, std::byte* out) {
  auto* block = reinterpret_cast<Block*>(out);
  std::uint8_t q[kSize];
  for (std::size_t b = 0; b < blocks; ++b, ++block, in += kSize) {
    const Extremes e = extremes_of(in, kSize);
    const float size =
        std::max(std::fabs(e.peak()) / kHalf, e.opposite() / (static_cast<float>(kHalf) - 0.5f));
    const std::uint16_t bits = half_that_reaches(e.peak() < 0 ? size : -size, e.peak(), kHalf);
    if (!half_is_finite(bits)) return b * kSize + e.peak_at();
    const float d = half_to_float(bits);
    for (std::size_t i = 0; i < kSize; ++i) {
      q[i] = static_cast<std::uint8_t>(rounded_ratio(in[i], d, -kHalf, kHalf - 1) + kHalf);
    }
    block->d = StoredHalf::from_bits(bits);
    pack(q, *block);
  }
  return kEncoded;
}

// Integers 0 .. kTop above a minimum. The scale is fitted to the minimum as stored.
template <class Block, int kTop>
std::size_t encode_with_minimum(const float* in, std::size_t blocks, std::byte* out) {
  auto* block = reinterpret_cast<Block*>(out);
  std::uint8_t q[kSize];
  for (std::size_t b = 0; b < blocks; ++b, ++block, in += kSize) {
    const Extremes e = extremes_of(in, kSize);
    const std::uint16_t minimum_bits = float_to_half(e.low);
    if (!half_is_finite(minimum_bits)) return b * kSize + e.low_at;
    const float minimum = half_to_float(minimum_bits);
    const float range = std::max(e.high - minimum, 0.0f);
    const std::uint16_t bits = half_that_reaches(range / kTop, range, kTop);
    if (!half_is_finite(bits)) return b * kSize + e.high_at;
    const float d = half_to_float(bits);
    for (std::size_t i = 0; i < kSize; ++i) {
      q[i] = static_cast<std::uint8_t>(rounded_ratio(in[i] - minimum, d, 0, kTop));
    }
    block->d = StoredHalf::from_bits(bits);
    block->m = StoredHalf::from_bits(minimum_bits);
    pack(q, *block);
  }
  return kEncoded;
}

}  // namespace

void decode_q4_0(const std::byte* data, std::size_t blocks, float* out) {
  decode_scaled<BlockQ4_0>(data, blocks, out);
}

void decode_q4_1(const std::byte* data, std::size_t blocks, float* out) {
  decode_with_minimum<BlockQ4_1>(data, blocks, out);
}

void decode_q5_0(const std::byte* data, std::size_t blocks, float* out) {
  decode_scaled<BlockQ5_0>(data, blocks, out);
}

void decode_q5_1(const std::byte* data, std::size_t blocks, float* out) {
  decode_with_minimum<BlockQ5_1>(data, blocks, out);
}

void decode_q8_0(const std::byte* data, std::size_t blocks, float* out) {
  decode_scaled<BlockQ8_0>(data, blocks, out);
}

std::size_t encode_q4_0(const float* in, std::size_t blocks, std::byte* out) {
  return encode_signed<BlockQ4_0, 8>(in, blocks, out);
}

std::size_t encode_q4_1(const float* in, std::size_t blocks, std::byte* out) {
  return encode_with_minimum<BlockQ4_1, 15>(in, blocks, out);
}

std::size_t encode_q5_0(const float* in, std::size_t blocks, std::byte* out) {
  return encode_signed<BlockQ5_0, 16>(in, blocks, out);
}

std::size_t encode_q5_1(const float* in, std::size_t blocks, std::byte* out) {
  return encode_with_minimum<BlockQ5_1, 31>(in, blocks, out);
}

std::size_t encode_q8_0(const float* in, std::size_t blocks, std::byte* out) {
  auto* block = reinterpret_cast<BlockQ8_0*>(out);
  for (std::size_t b = 0; b < blocks; ++b, ++block, in += kSize) {
    const Extremes e = extremes_of(in, kSize);
    const float peak = std::fabs(e.peak());
    const std::uint16_t bits = half_that_reaches(peak / 127, peak, 127);
    if (!half_is_finite(bits)) return b * kSize + e.peak_at();
    const float d = half_to_float(bits);
    for (std::size_t i = 0; i < kSize; ++i) {
      block->qs[i] = static_cast<std::int8_t>(rounded_ratio(in[i], d, -127, 127));
    }
    block->d = StoredHalf::from_bits(bits);
  }
  return kEncoded;
}

}  // namespace sluice

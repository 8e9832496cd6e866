// IQ4_NL, IQ4_XS and MXFP4: 4-bit indices into a fixed table of 16 values.
#include <array>
#include <bit>

#include "src/quant/families.h"

namespace sluice {
namespace {

// Index of the table value nearest to `value`; the lower index of two equally near.
template <std::size_t kCount>
std::uint8_t nearest_index(const std::array<std::int8_t, kCount>& table, float value) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < kCount; ++i) {
    if (std::fabs(static_cast<float>(table[i]) - value) <
        std::fabs(static_cast<float>(table[best]) - value)) {
      best = i;
    }
  }
  return static_cast<std::uint8_t>(best);
}

// Nearest index to each of 32 values / step, packed as in Q4_0.
template <std::size_t kCount>
void pack_nearest(const std::array<std::int8_t, kCount>& table, const float* in, float step,
                  std::uint8_t* qs) {
  std::uint8_t index[32];
  for (std::size_t i = 0; i < 32; ++i) {
    index[i] = nearest_index(table, step == 0 ? 0.0f : in[i] / step);
  }
  for (std::size_t i = 0; i < 16; ++i) {
    qs[i] = static_cast<std::uint8_t>(index[i] | (index[i + 16] << 4));
  }
}

// The table of IQ4 reaches from -127 to 113. The scale puts the value that is largest in size at
// -127; 125 = 113 and half a table step, for the largest value of the other sign.
float iq4_scale(const Extremes& e) {
  const float size = std::max(std::fabs(e.peak()) / 127, e.opposite() / 125);
  return e.peak() < 0 ? size : -size;
}

// With the next scale of MXFP4, 4 * 2^(e - 127) and 6 * 2^(e - 127) would be infinite as floats.
constexpr int kLargestE = 252;

}  // namespace

void decode_iq4_nl(const std::byte* data, std::size_t blocks, float* out) {
  const auto* block = reinterpret_cast<const BlockIQ4_NL*>(data);
  std::int8_t q[32];
  for (std::size_t b = 0; b < blocks; ++b, ++block, out += 32) {
    unpack(*block, q);
    const float d = block->d.value();
    for (std::size_t i = 0; i < 32; ++i) out[i] = d * static_cast<float>(q[i]);
  }
}

void decode_iq4_xs(const std::byte* data, std::size_t blocks, float* out) {
  const auto* block = reinterpret_cast<const BlockIQ4_XS*>(data);
  std::int8_t q[256];
  std::int8_t scales[8];
  for (std::size_t b = 0; b < blocks; ++b, ++block, out += 256) {
    unpack(*block, q);
    unpack_iq4_xs_scales(*block, scales);
    const float d = block->d.value();
    for (std::size_t i = 0; i < 256; ++i) {
      const float step = d * static_cast<float>(scales[i / 32]);
      out[i] = step * static_cast<float>(q[i]);
    }
  }
}

void decode_mxfp4(const std::byte* data, std::size_t blocks, float* out) {
  const auto* block = reinterpret_cast<const BlockMXFP4*>(data);
  std::int8_t q[32];
  for (std::size_t b = 0; b < blocks; ++b, ++block, out += 32) {
    unpack(*block, q);
    const float half_scale = mxfp4_half_scale(block->e);
    for (std::size_t i = 0; i < 32; ++i) out[i] = half_scale * static_cast<float>(q[i]);
  }
}

std::size_t encode_iq4_nl(const float* in, std::size_t blocks, std::byte* out) {
  auto* block = reinterpret_cast<BlockIQ4_NL*>(out);
  for (std::size_t b = 0; b < blocks; ++b, ++block, in += 32) {
    const Extremes e = extremes_of(in, 32);
    const std::uint16_t bits = half_that_reaches(iq4_scale(e), e.peak(), 127);
    if (!half_is_finite(bits)) return b * 32 + e.peak_at();
    pack_nearest(kIq4Codebook, in, half_to_float(bits), block->qs);
    block->d = StoredHalf::from_bits(bits);
  }
  return kEncoded;
}

std::size_t encode_iq4_xs(const float* in, std::size_t blocks, std::byte* out) {
  auto* block = reinterpret_cast<BlockIQ4_XS*>(out);
  float ideal[8];
  for (std::size_t b = 0; b < blocks; ++b, ++block, in += 256) {
    float widest = 0;
    for (std::size_t g = 0; g < 8; ++g) {
      ideal[g] = iq4_scale(extremes_of(in + 32 * g, 32));
      if (std::fabs(ideal[g]) > std::fabs(widest)) widest = ideal[g];
    }
    const std::uint16_t bits = half_that_reaches(-widest / 32, widest, 32);
    if (!half_is_finite(bits)) return b * 256 + extremes_of(in, 256).peak_at();
    const float d = half_to_float(bits);
    unsigned scales_h = 0;
    for (std::size_t i = 0; i < 4; ++i) block->scales_l[i] = 0;
    for (std::size_t g = 0; g < 8; ++g) {
      // Away from zero, so that the largest value of the group is not cut off.
      const float ratio = d == 0 ? 0.0f : ideal[g] / d;
      const float away = ratio < 0 ? std::floor(ratio) : std::ceil(ratio);
      const int scale = static_cast<int>(std::clamp(away, -32.0f, 31.0f));
      const auto stored = static_cast<unsigned>(scale + 32);
      scales_h |= (stored >> 4) << (2 * g);
      std::uint8_t& low = block->scales_l[g / 2];
      low = static_cast<std::uint8_t>(low | ((stored & 0x0f) << (4 * (g % 2))));
      pack_nearest(kIq4Codebook, in + 32 * g, d * static_cast<float>(scale), block->qs + 16 * g);
    }
    block->scales_h[0] = static_cast<std::uint8_t>(scales_h & 0xff);
    block->scales_h[1] = static_cast<std::uint8_t>(scales_h >> 8);
    block->d = StoredHalf::from_bits(bits);
  }
  return kEncoded;
}

std::size_t encode_mxfp4(const float* in, std::size_t blocks, std::byte* out) {
  auto* block = reinterpret_cast<BlockMXFP4*>(out);
  for (std::size_t b = 0; b < blocks; ++b, ++block, in += 32) {
    const float peak = std::fabs(extremes_of(in, 32).peak());
    // The smallest scale for which the peak is at most half a step (1) above the largest value (6):
    // 14 = 7 in doubled units.
    int e = 0;
    if (peak > 14 * mxfp4_half_scale(0)) {
      e = std::max(std::ilogb(peak) - 2 + 127, 0);
      if (peak > 14 * mxfp4_half_scale(static_cast<std::uint8_t>(e))) ++e;
    }
    if (e > kLargestE) return b * 32 + extremes_of(in, 32).peak_at();
    block->e = static_cast<std::uint8_t>(e);
    pack_nearest(kMxfp4DoubledCodebook, in, mxfp4_half_scale(block->e), block->qs);
  }
  return kEncoded;
}

}  // namespace sluice

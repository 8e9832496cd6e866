// Encoders of Q2_K to Q6_K: each group is fitted to its own extremes, then the groups' scales to
// the block's. Scales are rounded away from zero, so no group loses its largest value.
#include "src/quant/families.h"

namespace sluice {
namespace {

constexpr int kSize = 256;

// A ratio this little above an integer counts as that integer when it is rounded up: it keeps
// exactly representable blocks exact and costs at most qmax / 256 of a step.
constexpr float kSlack = 1.0f / 256;

// Smallest integer up to `top` whose product with `unit` reaches `value`; both are >= 0.
int rounded_up_ratio(float value, float unit, int top) {
  if (unit == 0) return 0;
  return static_cast<int>(std::min(std::ceil(value / unit - kSlack), static_cast<float>(top)));
}

// weight = (d * scales[g]) * q - (dmin * mins[g]), all integers >= 0.
struct FitWithMinimum {
  std::uint16_t d = 0;  // half bits
  std::uint16_t dmin = 0;
  std::uint8_t scales[16] = {};
  std::uint8_t mins[16] = {};
  std::uint8_t q[kSize] = {};
};

// Returns kEncoded or the index of a value out of range. `top` is the largest scale and minimum,
// `q_top` the largest q.
std::size_t fit_with_minimum(const float* in, int groups, int top, int q_top, FitWithMinimum& fit) {
  const int group = kSize / groups;
  Extremes extremes[16];
  float deepest = 0;  // the largest minimum, as a size
  const Extremes whole = extremes_of(in, kSize);
  for (int g = 0; g < groups; ++g) {
    extremes[g] = extremes_of(in + g * group, static_cast<std::size_t>(group));
    deepest = std::max(deepest, -extremes[g].low);
  }
  const auto top_float = static_cast<float>(top);
  fit.dmin = half_that_reaches(deepest / top_float, deepest, top_float);
  if (!half_is_finite(fit.dmin)) return whole.low_at;
  const float dmin = half_to_float(fit.dmin);

  float ideal[16];  // step of each group above its minimum as stored
  float widest = 0;
  for (int g = 0; g < groups; ++g) {
    const int m = rounded_up_ratio(std::max(-extremes[g].low, 0.0f), dmin, top);
    fit.mins[g] = static_cast<std::uint8_t>(m);
    const float range = std::max(extremes[g].high + dmin * static_cast<float>(m), 0.0f);
    ideal[g] = range / static_cast<float>(q_top);
    widest = std::max(widest, ideal[g]);
  }
  fit.d = half_that_reaches(widest / top_float, widest, top_float);
  if (!half_is_finite(fit.d)) return whole.peak_at();
  const float d = half_to_float(fit.d);
  for (int g = 0; g < groups; ++g) {
    const int scale = rounded_up_ratio(ideal[g], d, top);
    fit.scales[g] = static_cast<std::uint8_t>(scale);
    const float step = d * static_cast<float>(scale);
    const float offset = dmin * static_cast<float>(fit.mins[g]);
    for (int i = g * group; i < (g + 1) * group; ++i) {
      fit.q[i] = static_cast<std::uint8_t>(rounded_ratio(in[i] + offset, step, 0, q_top));
    }
  }
  return kEncoded;
}

// weight = (d * scales[g]) * q, q in -half .. half - 1, stored + half.
struct FitSigned {
  std::uint16_t d = 0;
  std::int8_t scales[16] = {};
  std::uint8_t q[kSize] = {};
};

// 16 groups; scales lie in -scale_half .. scale_half - 1.
std::size_t fit_signed(const float* in, int scale_half, int half, FitSigned& fit) {
  constexpr int kGroup = 16;
  float ideal[16];
  float widest = 0;  // the ideal scale that is largest in size, with its sign
  for (int g = 0; g < 16; ++g) {
    const Extremes e = extremes_of(in + g * kGroup, kGroup);
    const auto half_float = static_cast<float>(half);
    const float size =
        std::max(std::fabs(e.peak()) / half_float, e.opposite() / (half_float - 0.5f));
    ideal[g] = e.peak() < 0 ? size : -size;
    if (std::fabs(ideal[g]) > std::fabs(widest)) widest = ideal[g];
  }
  const auto scale_reach = static_cast<float>(scale_half);
  fit.d = half_that_reaches(-widest / scale_reach, widest, scale_reach);
  if (!half_is_finite(fit.d)) return extremes_of(in, kSize).peak_at();
  const float d = half_to_float(fit.d);
  for (int g = 0; g < 16; ++g) {
    int scale = rounded_up_ratio(std::fabs(ideal[g]), std::fabs(d), scale_half);
    if ((ideal[g] < 0) != (d < 0)) scale = -scale;
    scale = std::min(scale, scale_half - 1);
    fit.scales[g] = static_cast<std::int8_t>(scale);
    const float step = d * static_cast<float>(scale);
    for (int i = g * kGroup; i < (g + 1) * kGroup; ++i) {
      fit.q[i] = static_cast<std::uint8_t>(rounded_ratio(in[i], step, -half, half - 1) + half);
    }
  }
  return kEncoded;
}

// The inverse of unpack_q4_k_scales.
void pack_q4_k_scales(const FitWithMinimum& fit, std::uint8_t (&packed)[12]) {
  for (int i = 0; i < 4; ++i) {
    packed[i] = static_cast<std::uint8_t>(fit.scales[i] | ((fit.scales[i + 4] >> 4) << 6));
    packed[i + 4] = static_cast<std::uint8_t>(fit.mins[i] | ((fit.mins[i + 4] >> 4) << 6));
    packed[i + 8] =
        static_cast<std::uint8_t>((fit.scales[i + 4] & 0x0f) | ((fit.mins[i + 4] & 0x0f) << 4));
  }
}

// The low 4 bits of Q4_K and Q5_K.
void pack_low_nibbles(const FitWithMinimum& fit, std::uint8_t (&qs)[128]) {
  for (int i = 0; i < 128; ++i) {
    const std::uint8_t* chunk = fit.q + 64 * (i / 32) + i % 32;
    qs[i] = static_cast<std::uint8_t>((chunk[0] & 0x0f) | ((chunk[32] & 0x0f) << 4));
  }
}

// The low 2 bits of Q2_K and Q3_K.
void pack_low_pairs(const std::uint8_t (&q)[kSize], std::uint8_t (&qs)[64]) {
  for (int i = 0; i < 64; ++i) {
    unsigned bits = 0;
    for (int s = 0; s < 4; ++s) bits |= (q[128 * (i / 32) + 32 * s + i % 32] & 3u) << (2 * s);
    qs[i] = static_cast<std::uint8_t>(bits);
  }
}

// Bit `bit` of weights l, l + 32, ... to bits 0, 1, ... of out[l].
void pack_bit_planes(const std::uint8_t (&q)[kSize], int bit, std::uint8_t (&out)[32]) {
  for (int l = 0; l < 32; ++l) {
    unsigned bits = 0;
    for (int j = 0; j < 8; ++j) bits |= ((unsigned{q[32 * j + l]} >> bit) & 1u) << j;
    out[l] = static_cast<std::uint8_t>(bits);
  }
}

}  // namespace

std::size_t encode_q2_k(const float* in, std::size_t blocks, std::byte* out) {
  auto* block = reinterpret_cast<BlockQ2_K*>(out);
  FitWithMinimum fit;
  for (std::size_t b = 0; b < blocks; ++b, ++block, in += kSize) {
    const std::size_t bad = fit_with_minimum(in, 16, 15, 3, fit);
    if (bad != kEncoded) return b * kSize + bad;
    for (int g = 0; g < 16; ++g) {
      block->scales[g] = static_cast<std::uint8_t>(fit.scales[g] | (fit.mins[g] << 4));
    }
    pack_low_pairs(fit.q, block->qs);
    block->d = StoredHalf::from_bits(fit.d);
    block->dmin = StoredHalf::from_bits(fit.dmin);
  }
  return kEncoded;
}

std::size_t encode_q3_k(const float* in, std::size_t blocks, std::byte* out) {
  auto* block = reinterpret_cast<BlockQ3_K*>(out);
  FitSigned fit;
  for (std::size_t b = 0; b < blocks; ++b, ++block, in += kSize) {
    const std::size_t bad = fit_signed(in, 32, 4, fit);
    if (bad != kEncoded) return b * kSize + bad;
    for (int i = 0; i < 12; ++i) block->scales[i] = 0;
    for (int g = 0; g < 16; ++g) {
      const int stored = fit.scales[g] + 32;
      std::uint8_t& low = block->scales[g % 8];
      std::uint8_t& high = block->scales[8 + g % 4];
      low = static_cast<std::uint8_t>(low | ((stored & 0x0f) << (4 * (g / 8))));
      high = static_cast<std::uint8_t>(high | ((stored >> 4) << (2 * (g / 4))));
    }
    pack_low_pairs(fit.q, block->qs);
    pack_bit_planes(fit.q, 2, block->hmask);
    block->d = StoredHalf::from_bits(fit.d);
  }
  return kEncoded;
}

std::size_t encode_q4_k(const float* in, std::size_t blocks, std::byte* out) {
  auto* block = reinterpret_cast<BlockQ4_K*>(out);
  FitWithMinimum fit;
  for (std::size_t b = 0; b < blocks; ++b, ++block, in += kSize) {
    const std::size_t bad = fit_with_minimum(in, 8, 63, 15, fit);
    if (bad != kEncoded) return b * kSize + bad;
    pack_q4_k_scales(fit, block->scales);
    pack_low_nibbles(fit, block->qs);
    block->d = StoredHalf::from_bits(fit.d);
    block->dmin = StoredHalf::from_bits(fit.dmin);
  }
  return kEncoded;
}

std::size_t encode_q5_k(const float* in, std::size_t blocks, std::byte* out) {
  auto* block = reinterpret_cast<BlockQ5_K*>(out);
  FitWithMinimum fit;
  for (std::size_t b = 0; b < blocks; ++b, ++block, in += kSize) {
    const std::size_t bad = fit_with_minimum(in, 8, 63, 31, fit);
    if (bad != kEncoded) return b * kSize + bad;
    pack_q4_k_scales(fit, block->scales);
    pack_low_nibbles(fit, block->qs);
    pack_bit_planes(fit.q, 4, block->qh);
    block->d = StoredHalf::from_bits(fit.d);
    block->dmin = StoredHalf::from_bits(fit.dmin);
  }
  return kEncoded;
}

std::size_t encode_q6_k(const float* in, std::size_t blocks, std::byte* out) {
  auto* block = reinterpret_cast<BlockQ6_K*>(out);
  FitSigned fit;
  for (std::size_t b = 0; b < blocks; ++b, ++block, in += kSize) {
    const std::size_t bad = fit_signed(in, 128, 32, fit);
    if (bad != kEncoded) return b * kSize + bad;
    for (int g = 0; g < 16; ++g) block->scales[g] = fit.scales[g];
    for (int i = 0; i < 128; ++i) {
      const std::uint8_t* half = fit.q + 128 * (i / 64) + i % 64;
      block->ql[i] = static_cast<std::uint8_t>((half[0] & 0x0f) | ((half[64] & 0x0f) << 4));
    }
    for (int i = 0; i < 64; ++i) {
      unsigned bits = 0;
      for (int s = 0; s < 4; ++s) {
        bits |= unsigned{fit.q[128 * (i / 32) + 32 * s + i % 32]} >> 4 << (2 * s);
      }
      block->qh[i] = static_cast<std::uint8_t>(bits);
    }
    block->d = StoredHalf::from_bits(fit.d);
  }
  return kEncoded;
}

}  // namespace sluice

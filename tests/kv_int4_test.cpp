// The 4-bit form of a block of the KV cache: what its codes stand for, how far that is from what
// was stored, and attention over it against the same in double.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "src/backend/cpu/kv_layout.h"
#include "src/base/half.h"
#include "tests/kernels_testing.h"

using namespace sluice;
using namespace sluice::cpu;
using namespace sluice::cpu::testing;

namespace {

const Kernels& generic() { return *find_kernels("generic"); }

float half_at(const std::byte* p) {
  std::uint16_t bits;
  std::memcpy(&bits, p, 2);
  return half_to_float(bits);
}
double code_at(const std::byte* p, std::uint32_t dim) {
  const auto byte = std::to_integer<int>(*p);
  return (dim % 32 < 16 ? byte & 15 : byte >> 4) - 8;
}

// A number of an int4 block, its scale and middle, by the layout that kv_layout.h describes.
struct Stored {
  double scale, middle, code;
  double value() const { return middle + scale * code; }
};
Stored stored_key(const std::byte* block, std::uint32_t groups, std::uint32_t t, std::uint32_t d) {
  return {
      half_at(block + 512 * groups + 2 * d), half_at(block + 576 * groups + 2 * d),
      code_at(block + (t / 16 * groups + d / 32) * 256 + d % 16 / 4 * 64 + t % 16 * 4 + d % 4, d)};
}
Stored stored_value(const std::byte* values, std::uint32_t groups, std::uint32_t t,
                    std::uint32_t d) {
  const std::byte* shared = values + 512 * groups + 128 * (d / 32) + 2 * t;
  return {half_at(shared), half_at(shared + 64),
          code_at(values + (t * groups + d / 32) * 16 + d % 16, d)};
}

double f16(float x) { return half_to_float(float_to_half(x)); }

// Attention in double over what the blocks hold, of the query as it is quantized for them.
std::vector<double> attention_in_double(AttentionCase& c) {
  const std::uint32_t dim = c.layout.head_dim;
  const std::uint32_t groups = c.layout.padded_dim() / 32;
  std::vector<double> out(std::size_t{c.rows} * c.heads * dim);
  for (std::uint32_t rh = 0; rh < c.rows * c.heads; ++rh) {
    const std::uint32_t r = rh / c.heads;
    const std::uint32_t own = c.last[r] / kKvBlock;
    const float* q = c.query.data() + std::size_t{rh} * dim;
    std::vector<double> p(c.context);
    double max = -std::numeric_limits<double>::infinity();
    for (std::uint32_t t = c.first[r]; t <= c.last[r]; ++t) {
      double s = 0;
      const std::byte* block = c.blocks[t / kKvBlock].data();
      for (std::uint32_t g = 0; g < groups; ++g) {
        const std::uint32_t end = std::min(dim, 32 * g + 32);
        float max_scaled = 0;
        for (std::uint32_t d = 32 * g; d < end && t / kKvBlock != own; ++d)
          max_scaled = std::max(
              max_scaled,
              std::abs(q[d] * static_cast<float>(stored_key(block, groups, t % 32, d).scale)));
        for (std::uint32_t d = 32 * g; d < end; ++d) {
          if (t / kKvBlock == own) {
            s += q[d] * f16(c.key[std::size_t{t} * dim + d]);
            continue;
          }
          const Stored k = stored_key(block, groups, t % 32, d);
          const float scaled = q[d] * static_cast<float>(k.scale);
          if (max_scaled > 0)
            s += std::nearbyint(scaled * (127 / max_scaled)) * (max_scaled / 127) * k.code;
          s += q[d] * k.middle;
        }
      }
      for (std::uint32_t i = 0; i < c.outliers; ++i) {
        const float* coeff = &c.coeff[(std::size_t{rh} * c.outliers + i) * 2];
        s += double{coeff[0]} * c.table[2 * i * c.context + t];
        s += double{coeff[1]} * c.table[(2 * i + 1) * c.context + t];
      }
      s *= c.scale;
      if (c.softcap > 0) s = c.softcap * std::tanh(s / c.softcap);
      p[t] = s;
      max = std::max(max, s);
    }
    double sum = 0;
    for (std::uint32_t t = c.first[r]; t <= c.last[r]; ++t) sum += p[t] = std::exp(p[t] - max);
    for (std::uint32_t t = c.first[r]; t <= c.last[r]; ++t) {
      const std::byte* values = c.blocks[t / kKvBlock].data() + c.layout.key_bytes();
      for (std::uint32_t d = 0; d < dim; ++d) {
        const double v = t / kKvBlock == own ? f16(c.value[std::size_t{t} * dim + d])
                                             : stored_value(values, groups, t % 32, d).value();
        out[std::size_t{rh} * dim + d] += p[t] / sum * v;
      }
    }
  }
  return out;
}

void check_attention(AttentionCase c) {
  CAPTURE(c.layout.head_dim);
  CAPTURE(c.rows);
  CAPTURE(c.heads);
  CAPTURE(c.context);
  CAPTURE(c.window);
  c.store(generic());
  const auto state = c.run(generic(), 0, c.rows);
  const auto want = attention_in_double(c);
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double got = state.output[i] / state.sum[i / c.layout.head_dim];
    REQUIRE(std::abs(got - want[i]) <= 2e-5);
  }
  for (std::uint32_t r = 0; r < c.rows; r += 2) {  // rows alone give the same bits
    const auto alone = c.run(generic(), r, r + 1);
    const std::size_t n = std::size_t{c.heads} * c.layout.head_dim;
    CHECK(std::memcmp(alone.output.data() + r * n, state.output.data() + r * n, 4 * n) == 0);
  }
}

}  // namespace

TEST_CASE("a number of an int4 block is off by half a step, a number alone by nothing") {
  Random random(31);
  for (const std::uint32_t dim : {1u, 24u, 32u, 33u, 48u, 80u, 96u, 128u}) {
    CAPTURE(dim);
    AttentionCase c = AttentionCase::make(KvLayout{KvType::kInt4, dim}, 1, 1, 32, 0, 0, 0, random);
    // Channels and tokens of very different sizes and offsets, and one of each that is constant.
    for (std::uint32_t t = 0; t < 32; ++t) {
      for (std::uint32_t d = 0; d < dim; ++d) {
        float& key = c.key[std::size_t{t} * dim + d];
        key = key * std::exp2(static_cast<float>(d % 7) - 4) + static_cast<float>(d % 3) * 20;
        if (d == dim / 2) key = 1.75f;
        float& value = c.value[std::size_t{t} * dim + d];
        value = value * std::exp2(static_cast<float>(t % 5) - 3) - static_cast<float>(t % 4);
        if (t == 9) value = -0.3f;
      }
    }
    c.store(generic());
    const std::uint32_t groups = c.layout.padded_dim() / 32;
    const std::byte* block = c.blocks[0].data();
    const std::byte* values = block + c.layout.key_bytes();
    double codes_used[2] = {};
    for (std::uint32_t t = 0; t < 32; ++t) {
      for (std::uint32_t d = 0; d < dim; ++d) {
        const double key = f16(c.key[std::size_t{t} * dim + d]);
        double low = key, high = key;
        for (std::uint32_t other = 0; other < 32; ++other) {
          low = std::min(low, f16(c.key[std::size_t{other} * dim + d]));
          high = std::max(high, f16(c.key[std::size_t{other} * dim + d]));
        }
        const Stored k = stored_key(block, groups, t, d);
        REQUIRE(k.scale >= (high - low) / 15);
        REQUIRE(k.scale <= (high - low) / 15 * 1.001 + 1e-7);
        // Half a step, and what rounding the middle to an f16 adds.
        REQUIRE(std::abs(k.value() - key) <= 0.5001 * k.scale + std::abs(k.middle) / 2048);
        if (d == dim / 2) CHECK(k.value() == 1.75);
        const double value = f16(c.value[std::size_t{t} * dim + d]);
        const Stored v = stored_value(values, groups, t, d);
        REQUIRE(std::abs(v.value() - value) <= 0.5001 * v.scale + std::abs(v.middle) / 2048);
        if (t == 9) CHECK(v.value() == f16(-0.3f));
        codes_used[0] = std::min(codes_used[0], k.code);
        codes_used[1] = std::max(codes_used[1], k.code);
      }
      for (std::uint32_t d = dim; d < 32 * groups; ++d) {  // padding adds nothing
        CHECK(stored_key(block, groups, t, d).value() == 0);
        CHECK(stored_value(values, groups, t, d).code == 0);
      }
    }
    if (dim > 1) CHECK(codes_used[0] == -8);
    if (dim > 1) CHECK(codes_used[1] == 7);
  }
}

TEST_CASE("a number that is not finite poisons what shares its scale, and nothing else") {
  Random random(32);
  AttentionCase c = AttentionCase::make(KvLayout{KvType::kInt4, 64}, 1, 1, 32, 0, 0, 0, random);
  c.key[5 * 64 + 40] = std::numeric_limits<float>::quiet_NaN();
  c.value[7 * 64 + 3] = 1e6f;  // no f16
  for (const Kernels* table : all_kernels()) {
    if (!table->supported()) continue;
    c.store(*table);
    const std::byte* block = c.blocks[0].data();
    for (std::uint32_t t = 0; t < 32; ++t) {
      for (std::uint32_t d = 0; d < 64; ++d) {
        CHECK(std::isnan(stored_key(block, 2, t, d).value()) == (d == 40));
        CHECK(std::isnan(stored_value(block + c.layout.key_bytes(), 2, t, d).value()) ==
              (t == 7 && d < 32));
      }
    }
  }
}

TEST_CASE("attention over int4 blocks agrees with a softmax in double") {
  Random random(33);
  for (const std::uint32_t dim : {8u, 32u, 48u, 64u, 80u, 96u, 128u, 256u}) {
    const KvLayout layout{KvType::kInt4, dim};
    check_attention(AttentionCase::make(layout, 3, pick(random, 1, 8), 270, 0, 0, 0, random));
    check_attention(AttentionCase::make(layout, 2, 2, 70, 40, 50.0f, 2, random));
  }
  for (const std::uint32_t context : {1u, 31u, 32u, 33u, 63u, 64u, 65u, 255u, 256u, 257u, 289u}) {
    const KvLayout layout{KvType::kInt4, 24};
    const std::uint32_t rows = std::min(context, 4u);
    check_attention(AttentionCase::make(layout, rows, 1, context, 0, 0, 1, random));
    check_attention(AttentionCase::make(layout, rows, 2, context, 35, 0, 0, random));
  }
}

#include "src/backend/cpu/kernels.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <string>

#include "src/backend/cpu/kv_layout.h"
#include "src/backend/cpu/pack.h"
#include "src/backend/cpu/pack_layout.h"
#include "src/backend/cpu/packed_file.h"
#include "src/base/half.h"
#include "src/quant/codec.h"
#include "tests/kernels_testing.h"

using namespace sluice;
using namespace sluice::cpu;
using namespace sluice::cpu::testing;

namespace {

const Kernels& generic() { return *find_kernels("generic"); }

std::vector<float> decode(BlockType type, std::span<const std::byte> source, std::size_t n) {
  std::vector<float> w(n);
  decode_blocks(type, source, w);
  return w;
}

// Rows x x_rows products in double against the kernel's floats.
void check_against_double(BlockType type, std::uint32_t rows, std::uint32_t cols,
                          std::uint32_t x_rows, Random& random) {
  CAPTURE(block_type_info(type).name);
  CAPTURE(rows);
  CAPTURE(cols);
  CAPTURE(x_rows);
  const auto source = random_blocks(type, rows, cols, random);
  const auto w = decode(type, source, std::size_t{rows} * cols);
  Packed packed(type, source, rows, cols);
  std::vector<float> x(std::size_t{x_rows} * cols);
  for (float& v : x) v = uniform(random, -2.0f, 2.0f);
  const std::size_t stride = rows + 1;
  std::vector<float> out(x_rows * stride, 42.0f);
  if (is_float_type(type)) {
    generic().matmul_float(packed.matrix, 0, packed.matrix.groups(), x.data(), cols, x_rows,
                           out.data(), stride);
  } else {
    Activations q(generic(), x, x_rows, cols);
    generic().matmul(packed.matrix, 0, packed.matrix.groups(), q.rows, out.data(), stride);
    // The reference takes the quantized activations: what is tested is the product.
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<float>(q.rows.q[i]) * q.rows.scale[i / 32];
  }
  for (std::uint32_t r = 0; r < x_rows; ++r) {
    for (std::uint32_t row = 0; row < rows; ++row) {
      double sum = 0;
      double size = 0;
      for (std::uint32_t c = 0; c < cols; ++c) {
        const double product = double{w[std::size_t{row} * cols + c]} * x[r * cols + c];
        sum += product;
        size += std::abs(product);
      }
      const double got = out[r * stride + row];
      REQUIRE(std::abs(got - sum) <= 3e-7 * size * std::sqrt(cols / 32 + 4) + 1e-30);
    }
    CHECK(out[r * stride + rows] == 42.0f);  // nothing behind the last row is written
  }
}

// Attention in double over the floats that the cache holds.
std::vector<double> naive_attention(const AttentionCase& c, const std::vector<float>& key,
                                    const std::vector<float>& value,
                                    const std::vector<float>& query) {
  const std::size_t dim = c.layout.head_dim;
  std::vector<double> out(c.rows * c.heads * dim);
  for (std::uint32_t r = 0; r < c.rows; ++r) {
    for (std::uint32_t h = 0; h < c.heads; ++h) {
      const std::size_t rh = std::size_t{r} * c.heads + h;
      std::vector<double> p(c.context, 0.0);
      double max = -std::numeric_limits<double>::infinity();
      for (std::uint32_t t = c.first[r]; t <= c.last[r]; ++t) {
        double s = 0;
        for (std::size_t d = 0; d < dim; ++d) s += double{key[t * dim + d]} * query[rh * dim + d];
        for (std::uint32_t i = 0; i < c.outliers; ++i) {
          s += double{c.coeff[(rh * c.outliers + i) * 2]} * c.table[2 * i * c.context + t];
          s +=
              double{c.coeff[(rh * c.outliers + i) * 2 + 1]} * c.table[(2 * i + 1) * c.context + t];
        }
        s *= c.scale;
        if (c.softcap > 0) s = c.softcap * std::tanh(s / c.softcap);
        p[t] = s;
        max = std::max(max, s);
      }
      double sum = 0;
      for (std::uint32_t t = c.first[r]; t <= c.last[r]; ++t) {
        p[t] = std::exp(p[t] - max);
        sum += p[t];
      }
      for (std::uint32_t t = c.first[r]; t <= c.last[r]; ++t) {
        for (std::size_t d = 0; d < dim; ++d) out[rh * dim + d] += p[t] / sum * value[t * dim + d];
      }
    }
  }
  return out;
}

// What an int8 group of x comes back as.
void round_trip_groups(std::vector<float>& x, std::uint32_t dim, bool half_scale) {
  for (std::size_t at = 0; at < x.size(); at += dim) {
    for (std::uint32_t d0 = 0; d0 < dim; d0 += 32) {
      const std::uint32_t n = std::min(dim - d0, 32u);
      float max = 0;
      for (std::uint32_t i = 0; i < n; ++i) max = std::max(max, std::abs(x[at + d0 + i]));
      const float scale =
          half_scale ? half_to_float(kv_scale_bits(std::bit_cast<std::uint32_t>(max))) : max / 127;
      for (std::uint32_t i = 0; i < n; ++i)
        x[at + d0 + i] = scale == 0 ? 0 : std::nearbyint(x[at + d0 + i] / scale) * scale;
    }
  }
}

void check_attention_against_double(const AttentionCase& input) {
  AttentionCase c = input;
  CAPTURE(static_cast<int>(c.layout.type));
  CAPTURE(c.layout.head_dim);
  CAPTURE(c.rows);
  CAPTURE(c.heads);
  CAPTURE(c.context);
  CAPTURE(c.window);
  c.store(generic());
  const auto state = c.run(generic(), 0, c.rows);
  auto key = c.key;
  auto value = c.value;
  auto query = c.query;
  double tolerance = 1e-5;
  if (c.layout.type == KvType::kInt8) {
    round_trip_groups(key, c.layout.head_dim, true);
    round_trip_groups(value, c.layout.head_dim, true);
    round_trip_groups(query, c.layout.head_dim, false);
    tolerance = 2e-3;  // a tie may round the other way in the reference
  } else if (c.layout.type == KvType::kF16) {
    for (float& v : key) v = half_to_float(float_to_half(v));
    for (float& v : value) v = half_to_float(float_to_half(v));
  }
  const auto want = naive_attention(c, key, value, query);
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double got = state.output[i] / state.sum[i / c.layout.head_dim];
    REQUIRE(std::abs(got - want[i]) <= tolerance);
  }
  // Rows alone and rows in tiles give the same bits.
  for (std::uint32_t r = 0; r < c.rows; r += 2) {
    const auto alone = c.run(generic(), r, r + 1);
    const std::size_t n = std::size_t{c.heads} * c.layout.head_dim;
    CHECK(std::memcmp(alone.output.data() + r * n, state.output.data() + r * n, 4 * n) == 0);
  }
}

// A digest of bytes (FNV-1a), so that results can be held against those of other machines.
class Digest {
 public:
  void add(const void* data, std::size_t bytes) {
    const auto* p = static_cast<const unsigned char*>(data);
    for (std::size_t i = 0; i < bytes; ++i) hash_ = (hash_ ^ p[i]) * 0x100000001b3;
  }
  void add(const std::vector<float>& values) { add(values.data(), 4 * values.size()); }
  std::uint64_t value() const { return hash_; }

 private:
  std::uint64_t hash_ = 0xcbf29ce484222325;
};

}  // namespace

// Every table has the generic one's bits on its own machine; these numbers tie the machines
// together: an x86-64 and a 64-bit ARM processor draw the same tokens.
TEST_CASE("kernels give the same bits on every architecture") {
  Random random(2024);
  Digest products;
  for (const BlockTypeInfo& info : block_types()) {
    const std::uint32_t rows = 21, cols = 512, x_rows = 3;
    Packed packed(info.type, random_blocks(info.type, rows, cols, random), rows, cols);
    std::vector<float> x(std::size_t{x_rows} * cols);
    for (float& v : x) v = uniform(random, -2.0f, 2.0f);
    std::vector<float> out(std::size_t{x_rows} * rows);
    if (is_float_type(info.type)) {
      generic().matmul_float(packed.matrix, 0, packed.matrix.groups(), x.data(), cols, x_rows,
                             out.data(), rows);
    } else {
      Activations q(generic(), x, x_rows, cols);
      generic().matmul(packed.matrix, 0, packed.matrix.groups(), q.rows, out.data(), rows);
    }
    products.add(out);
  }
  CHECK(products.value() == 11903243646453613596u);

  Digest attention;
  for (const KvType type : {KvType::kInt8, KvType::kInt4, KvType::kF16, KvType::kF32}) {
    auto one = AttentionCase::make(KvLayout{type, 80}, 3, 4, 600, 0, 30.0f, 1, random);
    one.store(generic());
    const auto state = one.run(generic(), 0, 3);
    attention.add(state.output);
    attention.add(state.sum);
  }
  CHECK(attention.value() == 9265034810206591263u);

  Digest vectors;
  std::vector<float> x(333), y(333), out(333);
  for (float& v : x) v = uniform(random, -9.0f, 9.0f);
  for (float& v : y) v = uniform(random, -1.0f, 1.0f);
  generic().rms_norm(x.data(), y.data(), 333, 1e-6f, out.data());
  vectors.add(out);
  generic().silu_mul(x.data(), y.data(), 333, out.data());
  vectors.add(out);
  generic().gelu_mul(x.data(), y.data(), 333, out.data());
  vectors.add(out);
  generic().softmax(x.data(), 333);
  vectors.add(x);
  CHECK(vectors.value() == 5948231255115960202u);
}

// Files with packed weights outlive a build: another layout must have another number.
TEST_CASE("the packed layout is the one of its version") {
  Digest digest;
  for (const BlockTypeInfo& info : block_types()) {
    const std::uint32_t rows = 37;
    const std::uint32_t cols = 512;
    std::vector<std::byte> source(std::size_t{rows} * cols / info.block_size * info.block_bytes);
    for (std::size_t i = 0; i < source.size(); ++i) source[i] = std::byte(i * i % 251 & 0x7b);
    Packed packed(info.type, source, rows, cols);
    digest.add(packed.matrix.data, packed_bytes(info.type, rows, cols));
  }
  CHECK(kPackVersion == 1);
  CHECK(digest.value() == 5308175453228087412u);
}

TEST_CASE("packing keeps every weight exactly") {
  Random random(11);
  for (const BlockTypeInfo& info : block_types()) {
    if (is_float_type(info.type)) continue;
    CAPTURE(info.name);
    for (const std::uint32_t rows : {1u, 15u, 16u, 33u}) {
      const std::uint32_t cols = info.block_size * 3;
      const auto source = random_blocks(info.type, rows, cols, random);
      const auto w = decode(info.type, source, std::size_t{rows} * cols);
      Packed packed(info.type, source, rows, cols);
      const std::size_t group_bytes = packed_group_bytes(info.type, cols);
      CHECK(group_bytes % 64 == 0);
      CHECK(packed_bytes(info.type, rows, cols) == group_bytes * packed.matrix.groups());
      for (std::uint32_t row = 0; row < rows; ++row) {
        for (std::uint32_t c = 0; c < cols; ++c) {
          PackedBlock block;
          unpack_packed_block(info.type, packed.matrix.data + row / 16 * group_bytes, c / 32,
                              block);
          const std::uint32_t half = c % 32 / 16;
          const float product = block.scale[half][row % 16] * block.q[row % 16][c % 32];
          REQUIRE(product + block.min[half][row % 16] == w[std::size_t{row} * cols + c]);
        }
      }
    }
  }
}

TEST_CASE("the packed size stays within a few percent of the stored one") {
  for (const BlockTypeInfo& info : block_types()) {
    CAPTURE(info.name);
    const double stored = 4096.0 * 4096.0 / info.block_size * info.block_bytes;
    CHECK(static_cast<double>(packed_bytes(info.type, 4096, 4096)) <= stored * 1.06);
  }
}

TEST_CASE("generic matmul agrees with decoded weights in double") {
  Random random(12);
  for (const BlockTypeInfo& info : block_types()) {
    for (const std::uint32_t cols : {32u, 64u, 256u, 288u}) {
      if (cols % info.block_size != 0) continue;
      for (const std::uint32_t rows : {1u, 15u, 16u, 17u, 31u, 97u})
        check_against_double(info.type, rows, cols, pick(random, 1, 17), random);
    }
    check_against_double(info.type, 5, 256, 1, random);
    check_against_double(info.type, 18, 512, 17, random);
  }
  check_against_double(BlockType::kF32, 19, 1, 3, random);
  check_against_double(BlockType::kF16, 3, 37, 2, random);
  check_against_double(BlockType::kBF16, 16, 101, 1, random);
}

TEST_CASE("generic attention agrees with a softmax in double") {
  Random random(13);
  for (const KvType type : {KvType::kInt8, KvType::kF16, KvType::kF32}) {
    for (const std::uint32_t dim : {8u, 32u, 64u, 80u, 96u, 112u, 128u, 256u}) {
      check_attention_against_double(
          AttentionCase::make(KvLayout{type, dim}, 3, pick(random, 1, 8), 270, 0, 0, 0, random));
      check_attention_against_double(
          AttentionCase::make(KvLayout{type, dim}, 2, 2, 40, 17, 50.0f, 2, random));
    }
    for (const std::uint32_t context : {1u, 31u, 32u, 33u, 255u, 256u, 257u, 511u, 512u, 513u}) {
      const std::uint32_t rows = std::min(context, 4u);
      check_attention_against_double(
          AttentionCase::make(KvLayout{type, 24}, rows, 1, context, 0, 0, 1, random));
      check_attention_against_double(
          AttentionCase::make(KvLayout{type, 24}, rows, 2, context, 5, 0, 0, random));
    }
  }
}

TEST_CASE("a piece that a row does not see leaves its state alone") {
  Random random(14);
  for (const Kernels* table : all_kernels()) {
    if (!table->supported()) continue;
    auto c = AttentionCase::make(KvLayout{KvType::kInt8, 32}, 1, 2, 600, 10, 0, 0, random);
    c.store(*table);
    const auto windowed = c.run(*table, 0, 1);
    // Pieces 0 and 1 are out of the window, so their blocks may be absent.
    AttentionTask task;
    task.layout = c.layout;
    task.rows = 1;
    task.heads = 2;
    const std::byte* nothing[kKvPiece / kKvBlock] = {};
    task.blocks = nothing;
    task.query = c.query.data();
    task.first = c.first.data();
    task.last = c.last.data();
    float maximum[2] = {1, 2};
    float sum[2] = {3, 4};
    std::vector<float> output(64, 5.0f);
    task.maximum = maximum;
    task.sum = sum;
    task.output = output.data();
    table->attention(task);
    CHECK(maximum[0] == 1.0f);
    CHECK(sum[1] == 4.0f);
    CHECK(output == std::vector<float>(64, 5.0f));
    CHECK(std::isfinite(windowed.output[0]));
  }
}

TEST_CASE("activations that are not finite poison their group and nothing else") {
  for (const Kernels* table : all_kernels()) {
    if (!table->supported()) continue;
    CAPTURE(std::string(table->name));
    std::vector<float> x(96, 0.25f);
    x[40] = std::numeric_limits<float>::quiet_NaN();
    Activations a(*table, x, 1, 96);
    CHECK(a.scale[0] == 0.25f / 127.0f);
    CHECK(std::isnan(a.scale[1]));
    CHECK(a.q[40] == 0);
    CHECK(a.q[95] == 127);
    CHECK(a.sum[0] == 16 * 127);
    const std::vector<float> zero(32, 0.0f);
    Activations z(*table, zero, 1, 32);
    CHECK(z.scale[0] == 0.0f);
  }
}

TEST_CASE("functions of vectors agree with double") {
  Random random(15);
  for (const Kernels* table : all_kernels()) {
    if (!table->supported()) continue;
    CAPTURE(std::string(table->name));
    const std::uint32_t n = 1001;
    std::vector<float> x(n);
    std::vector<float> y(n);
    for (float& v : x) v = uniform(random, -12, 12);
    for (float& v : y) v = uniform(random, -1, 1);
    std::vector<float> out(n);
    double square = 0;
    for (const float v : x) square += double{v} * v;
    table->rms_norm(x.data(), y.data(), n, 1e-5f, out.data());
    for (std::uint32_t i = 0; i < n; ++i)
      REQUIRE(out[i] == doctest::Approx(x[i] / std::sqrt(square / n + 1e-5) * y[i]).epsilon(1e-6));
    table->silu_mul(x.data(), y.data(), n, out.data());
    for (std::uint32_t i = 0; i < n; ++i)
      REQUIRE(out[i] == doctest::Approx(x[i] / (1 + std::exp(-double{x[i]})) * y[i]).epsilon(1e-6));
    table->gelu_mul(x.data(), y.data(), n, out.data());
    for (std::uint32_t i = 0; i < n; ++i) {
      const double v = x[i];
      const double u = 0.7978845608028654 * (v + 0.044715 * v * v * v);
      const double want = 0.5 * v * (1 + std::tanh(u)) * y[i];
      REQUIRE(std::abs(out[i] - want) <= 1e-6 * std::abs(want) + 1e-7);
    }
    auto p = x;
    p[7] = -std::numeric_limits<float>::infinity();
    table->softmax(p.data(), n);
    double total = 0;
    for (const float v : p) total += v;
    CHECK(total == doctest::Approx(1.0).epsilon(1e-5));
    CHECK(p[7] == 0.0f);
    // Extremes of the gates: no NaN.
    const std::vector<float> far{-1e30f, -200.0f, -88.0f, 88.0f, 200.0f, 1e30f};
    const std::vector<float> ones(6, 1.0f);
    std::vector<float> gated(6);
    table->silu_mul(far.data(), ones.data(), 6, gated.data());
    CHECK(std::abs(gated[0]) < 1e-30f);
    CHECK(gated[4] == 200.0f);
    CHECK(gated[5] == 1e30f);
    table->gelu_mul(far.data(), ones.data(), 6, gated.data());
    CHECK(std::abs(gated[1]) < 1e-30f);
    CHECK(gated[4] == 200.0f);
  }
}

TEST_CASE("rope rotates pairs in both arrangements and leaves the rest") {
  for (const Kernels* table : all_kernels()) {
    if (!table->supported()) continue;
    CAPTURE(std::string(table->name));
    const std::uint32_t dims = 22;
    std::vector<float> x(24);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i) - 7.5f;
    std::vector<float> cos(11);
    std::vector<float> sin(11);
    for (std::size_t i = 0; i < 11; ++i) {
      cos[i] = std::cos(0.3f * static_cast<float>(i));
      sin[i] = std::sin(0.3f * static_cast<float>(i));
    }
    for (const bool interleaved : {false, true}) {
      auto y = x;
      table->rope(y.data(), dims, interleaved, cos.data(), sin.data());
      for (std::size_t i = 0; i < 11; ++i) {
        const std::size_t a = interleaved ? 2 * i : i;
        const std::size_t b = interleaved ? 2 * i + 1 : i + 11;
        CHECK(y[a] == doctest::Approx(x[a] * cos[i] - x[b] * sin[i]));
        CHECK(y[b] == doctest::Approx(x[a] * sin[i] + x[b] * cos[i]));
      }
      CHECK(y[22] == x[22]);
      CHECK(y[23] == x[23]);
    }
  }
}

TEST_CASE("every table gives the bits of the generic one") {
  for (const Kernels* table : all_kernels()) {
    if (!table->supported()) {
      std::fprintf(stderr, "SKIPPED: %s is not supported here; see simd_emulated\n",
                   std::string(table->name).c_str());
      continue;
    }
    check_same_bits(generic(), *table, 16);
  }
}

TEST_CASE("tables are found by name and the best is the last supported") {
  const Kernels* last = nullptr;
  for (const Kernels* table : all_kernels()) {
    CHECK(find_kernels(table->name) == table);
    if (table->supported()) last = table;
  }
  REQUIRE(last != nullptr);
  CHECK(&best_kernels() == last);
  CHECK(all_kernels().front()->name == "generic");
  CHECK(all_kernels().front()->supported());
  CHECK(find_kernels("nonsense") == nullptr);
  CHECK(find_kernels("") == nullptr);
}

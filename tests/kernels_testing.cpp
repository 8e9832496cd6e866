#include "tests/kernels_testing.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "src/base/half.h"
#include "src/quant/layout.h"

namespace sluice::cpu::testing {
namespace {

StoredHalf random_half(Random& random) {
  return StoredHalf::from_bits(float_to_half(uniform(random, -2.0f, 2.0f)));
}

template <class Block, class Fix>
void fix_blocks(std::vector<std::byte>& bytes, const Fix& fix) {
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(Block)) {
    Block block;
    std::memcpy(&block, bytes.data() + at, sizeof block);
    fix(block);
    std::memcpy(bytes.data() + at, &block, sizeof block);
  }
}

std::vector<float> random_floats(std::size_t n, float scale, Random& random) {
  std::vector<float> x(n);
  for (float& v : x) v = uniform(random, -scale, scale);
  return x;
}

template <class T>
bool same(const T* a, const T* b, std::size_t n) {
  return std::memcmp(a, b, n * sizeof(T)) == 0;
}

// A NaN has many bit patterns, and which one comes out is no promise.
bool same_or_nan(const std::vector<float>& a, const std::vector<float>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float x, float y) {
    return std::isnan(x) ? std::isnan(y) : same(&x, &y, 1);
  });
}

void check_matmul(const Kernels& reference, const Kernels& table, BlockType type,
                  std::uint32_t rows, std::uint32_t cols, std::uint32_t x_rows, Random& random) {
  CAPTURE(block_type_info(type).name);
  CAPTURE(rows);
  CAPTURE(cols);
  CAPTURE(x_rows);
  const auto source = random_blocks(type, rows, cols, random);
  Packed w(type, source, rows, cols);
  auto x = random_floats(std::size_t{x_rows} * cols, 3.0f, random);
  if (pick(random, 0, 3) == 0) std::fill_n(x.begin(), 32 < x.size() ? 32 : x.size(), 0.0f);
  const std::size_t stride = rows + 3;
  std::vector<float> a(x_rows * stride, -7.0f);
  std::vector<float> b(x_rows * stride, -7.0f);
  const std::uint32_t begin = pick(random, 0, w.matrix.groups() - 1);
  const bool is_float =
      type == BlockType::kF32 || type == BlockType::kF16 || type == BlockType::kBF16;
  if (is_float) {
    reference.matmul_float(w.matrix, begin, w.matrix.groups(), x.data(), cols, x_rows, a.data(),
                           stride);
    table.matmul_float(w.matrix, begin, w.matrix.groups(), x.data(), cols, x_rows, b.data(),
                       stride);
  } else {
    Activations qa(reference, x, x_rows, cols);
    Activations qb(table, x, x_rows, cols);
    REQUIRE(same(qa.rows.q, qb.rows.q, std::size_t{x_rows} * cols));
    REQUIRE(same(qa.rows.scale, qb.rows.scale, std::size_t{x_rows} * cols / 32));
    REQUIRE(same(qa.rows.sum, qb.rows.sum, std::size_t{x_rows} * cols / 16));
    reference.matmul(w.matrix, begin, w.matrix.groups(), qa.rows, a.data(), stride);
    table.matmul(w.matrix, begin, w.matrix.groups(), qb.rows, b.data(), stride);
  }
  CHECK(same(a.data(), b.data(), a.size()));
}

// The largest codes everywhere: where sums of 16 bits would overflow first.
void check_extreme_matmul(const Kernels& reference, const Kernels& table, BlockType type,
                          std::uint8_t byte, float x_value) {
  CAPTURE(block_type_info(type).name);
  const std::uint32_t rows = 16;
  const std::uint32_t cols = 512;
  const BlockTypeInfo& info = block_type_info(type);
  std::vector<std::byte> source(rows * (cols / info.block_size) * info.block_bytes,
                                std::byte{byte});
  Random random(1);
  const auto scales = random_blocks(type, rows, cols, random);
  // Keep codes extreme but scales finite: only bytes that are scales come from the random blocks.
  const auto fix = [&](auto block, auto&& copy) {
    for (std::size_t at = 0; at < source.size(); at += sizeof block) {
      auto donor = block;
      std::memcpy(&block, source.data() + at, sizeof block);
      std::memcpy(&donor, scales.data() + at, sizeof donor);
      copy(block, donor);
      std::memcpy(source.data() + at, &block, sizeof block);
    }
  };
  const auto copy_d = [](auto& block, const auto& donor) { block.d = donor.d; };
  const auto copy_dm = [](auto& block, const auto& donor) {
    block.d = donor.d;
    block.m = donor.m;
  };
  const auto copy_dmin = [](auto& block, const auto& donor) {
    block.d = donor.d;
    block.dmin = donor.dmin;
  };
  switch (type) {
    case BlockType::kQ4_0:
      fix(BlockQ4_0{}, copy_d);
      break;
    case BlockType::kQ4_1:
      fix(BlockQ4_1{}, copy_dm);
      break;
    case BlockType::kQ5_0:
      fix(BlockQ5_0{}, copy_d);
      break;
    case BlockType::kQ5_1:
      fix(BlockQ5_1{}, copy_dm);
      break;
    case BlockType::kQ8_0:
      fix(BlockQ8_0{}, copy_d);
      break;
    case BlockType::kQ2_K:
      fix(BlockQ2_K{}, copy_dmin);
      break;
    case BlockType::kQ3_K:
      fix(BlockQ3_K{}, copy_d);
      break;
    case BlockType::kQ4_K:
      fix(BlockQ4_K{}, copy_dmin);
      break;
    case BlockType::kQ5_K:
      fix(BlockQ5_K{}, copy_dmin);
      break;
    case BlockType::kQ6_K:
      fix(BlockQ6_K{}, copy_d);
      break;
    case BlockType::kIQ4_NL:
      fix(BlockIQ4_NL{}, copy_d);
      break;
    case BlockType::kIQ4_XS:
      fix(BlockIQ4_XS{}, copy_d);
      break;
    case BlockType::kMXFP4:
      fix(BlockMXFP4{}, [](auto& block, const auto& donor) { block.e = donor.e; });
      break;
    default:
      return;
  }
  Packed w(type, source, rows, cols);
  for (const std::uint32_t x_rows : {1u, 3u, 9u}) {
    CAPTURE(x_rows);
    const std::vector<float> x(std::size_t{x_rows} * cols, x_value);
    Activations q(reference, x, x_rows, cols);
    std::vector<float> a(std::size_t{x_rows} * rows);
    std::vector<float> b(std::size_t{x_rows} * rows);
    reference.matmul(w.matrix, 0, 1, q.rows, a.data(), rows);
    table.matmul(w.matrix, 0, 1, q.rows, b.data(), rows);
    CHECK(same(a.data(), b.data(), a.size()));
  }
}

void check_vectors(const Kernels& reference, const Kernels& table, Random& random) {
  for (const std::uint32_t n : {1u, 2u, 7u, 8u, 15u, 16u, 17u, 31u, 33u, 64u, 97u, 576u, 2051u}) {
    CAPTURE(n);
    const auto x = random_floats(n, 30.0f, random);
    const auto y = random_floats(n, 3.0f, random);
    std::vector<float> a(n);
    std::vector<float> b(n);
    reference.rms_norm(x.data(), y.data(), n, 1e-5f, a.data());
    table.rms_norm(x.data(), y.data(), n, 1e-5f, b.data());
    CHECK(same(a.data(), b.data(), n));
    reference.rms_norm(x.data(), nullptr, n, 1e-6f, a.data());
    table.rms_norm(x.data(), nullptr, n, 1e-6f, b.data());
    CHECK(same(a.data(), b.data(), n));
    reference.silu_mul(x.data(), y.data(), n, a.data());
    table.silu_mul(x.data(), y.data(), n, b.data());
    CHECK(same(a.data(), b.data(), n));
    reference.gelu_mul(x.data(), y.data(), n, a.data());
    table.gelu_mul(x.data(), y.data(), n, b.data());
    CHECK(same(a.data(), b.data(), n));
    a = x;
    b = x;
    reference.add(a.data(), y.data(), n);
    table.add(b.data(), y.data(), n);
    CHECK(same(a.data(), b.data(), n));
    CHECK(table.byte_products(2 * n) == 2 * table.byte_products(n));
    CHECK(table.byte_products(n) > n);
    a = x;
    b = x;
    if (n > 4) a[3] = b[3] = -std::numeric_limits<float>::infinity();
    reference.softmax(a.data(), n);
    table.softmax(b.data(), n);
    CHECK(same(a.data(), b.data(), n));
    for (const bool interleaved : {false, true}) {
      const std::uint32_t dims = n / 2 * 2;
      const auto cos = random_floats(n, 1.0f, random);
      const auto sin = random_floats(n, 1.0f, random);
      a = x;
      b = x;
      reference.rope(a.data(), dims, interleaved, cos.data(), sin.data());
      table.rope(b.data(), dims, interleaved, cos.data(), sin.data());
      CHECK(same(a.data(), b.data(), n));
    }
  }
}

void check_quantize(const Kernels& reference, const Kernels& table, Random& random) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::uint32_t cols = 32 * 12;
  auto x = random_floats(cols, 1.0f, random);
  for (std::uint32_t i = 0; i < 32; ++i) {
    x[i] = 0.0f;
    x[32 + i] *= 1e-38f;
    x[64 + i] *= 1e-33f;
    x[96 + i] *= 3e38f;
    x[128 + i] = i % 2 == 0 ? 127.0f : static_cast<float>(i) + 0.5f;  // ties
    x[256 + i] = -x[256 + i] * 1e-29f;
  }
  x[165] = inf;
  x[197] = nan;
  x[229] = -inf;
  Activations a(reference, x, 1, cols);
  Activations b(table, x, 1, cols);
  CHECK(same(a.rows.q, b.rows.q, cols));
  CHECK(same(a.rows.scale, b.rows.scale, cols / 32));
  CHECK(same(a.rows.sum, b.rows.sum, cols / 16));
}

void check_attention(const Kernels& reference, const Kernels& table, AttentionCase c) {
  CAPTURE(static_cast<int>(c.layout.type));
  CAPTURE(c.layout.head_dim);
  CAPTURE(c.rows);
  CAPTURE(c.heads);
  CAPTURE(c.context);
  CAPTURE(c.window);
  c.store(table);
  AttentionCase d = c;
  d.store(reference);
  for (std::size_t i = 0; i < c.blocks.size(); ++i)
    CHECK(same(c.blocks[i].data(), d.blocks[i].data(), c.layout.head_bytes()));
  for (std::size_t i = 0; i < c.f16_blocks.size(); ++i)
    CHECK(same(c.f16_blocks[i].data(), d.f16_blocks[i].data(), c.f16_blocks[i].size()));
  const auto a = c.run(reference, 0, c.rows);
  const auto b = c.run(table, 0, c.rows);
  CHECK(same_or_nan(a.maximum, b.maximum));
  CHECK(same_or_nan(a.sum, b.sum));
  CHECK(same_or_nan(a.output, b.output));
}

// Blocks in 4 bits of numbers that are the same, huge, tiny, zeros of both signs or not finite.
void check_extreme_int4(const Kernels& reference, const Kernels& table, Random& random) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<std::vector<float>> kinds = {
      {0.0f, -0.0f},        {3.25f},      {65504.0f, -65504.0f}, {6e-8f, -6e-8f, 0.0f},
      {1e-4f, 1.0f, -2.0f}, {1.0f, kNan}, {1.0f, kInfinity},     {-kInfinity, 2.0f},
      {60000.0f, 60032.0f}, {1e5f, 1.0f}, {-5.0f, -4.0f, -4.5f}, {1e-7f, 2e-7f}};
  for (const std::uint32_t dim : {1u, 31u, 32u, 33u, 48u, 80u, 128u}) {
    CAPTURE(dim);
    AttentionCase c = AttentionCase::make(KvLayout{KvType::kInt4, dim}, 3, 2, 97, 0, 0, 0, random);
    for (std::size_t i = 0; i < c.key.size(); ++i) {
      const auto& by_channel = kinds[i % dim % kinds.size()];
      if (random() % 4 == 0 || i % dim % 2 == 0)
        c.key[i] = by_channel[random() % by_channel.size()];
      const auto& by_token = kinds[i / dim % kinds.size()];
      if (i / dim % 3 != 0) c.value[i] = by_token[random() % by_token.size()];
    }
    check_attention(reference, table, c);
  }
}

}  // namespace

std::vector<std::byte> random_blocks(BlockType type, std::uint32_t rows, std::uint32_t cols,
                                     Random& random) {
  const BlockTypeInfo& info = block_type_info(type);
  std::vector<std::byte> bytes(std::size_t{rows} * (cols / info.block_size) * info.block_bytes);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random() & 0xff);
  const auto fix_d = [&](auto& block) { block.d = random_half(random); };
  const auto fix_dm = [&](auto& block) {
    block.d = random_half(random);
    block.m = random_half(random);
  };
  const auto fix_dmin = [&](auto& block) {
    block.d = random_half(random);
    block.dmin = random_half(random);
  };
  switch (type) {
    case BlockType::kF32:
      for (std::size_t i = 0; i < bytes.size(); i += 4) {
        const float value = uniform(random, -1.0f, 1.0f);
        std::memcpy(bytes.data() + i, &value, 4);
      }
      break;
    case BlockType::kF16:
    case BlockType::kBF16:
      for (std::size_t i = 0; i < bytes.size(); i += 2) {
        const float value = uniform(random, -1.0f, 1.0f);
        const std::uint16_t bits =
            type == BlockType::kF16 ? float_to_half(value) : float_to_bfloat(value);
        std::memcpy(bytes.data() + i, &bits, 2);
      }
      break;
    case BlockType::kQ4_0:
      fix_blocks<BlockQ4_0>(bytes, fix_d);
      break;
    case BlockType::kQ4_1:
      fix_blocks<BlockQ4_1>(bytes, fix_dm);
      break;
    case BlockType::kQ5_0:
      fix_blocks<BlockQ5_0>(bytes, fix_d);
      break;
    case BlockType::kQ5_1:
      fix_blocks<BlockQ5_1>(bytes, fix_dm);
      break;
    case BlockType::kQ8_0:
      fix_blocks<BlockQ8_0>(bytes, fix_d);
      break;
    case BlockType::kQ2_K:
      fix_blocks<BlockQ2_K>(bytes, fix_dmin);
      break;
    case BlockType::kQ3_K:
      fix_blocks<BlockQ3_K>(bytes, fix_d);
      break;
    case BlockType::kQ4_K:
      fix_blocks<BlockQ4_K>(bytes, fix_dmin);
      break;
    case BlockType::kQ5_K:
      fix_blocks<BlockQ5_K>(bytes, fix_dmin);
      break;
    case BlockType::kQ6_K:
      fix_blocks<BlockQ6_K>(bytes, fix_d);
      break;
    case BlockType::kIQ4_NL:
      fix_blocks<BlockIQ4_NL>(bytes, fix_d);
      break;
    case BlockType::kIQ4_XS:
      fix_blocks<BlockIQ4_XS>(bytes, fix_d);
      break;
    case BlockType::kMXFP4:
      fix_blocks<BlockMXFP4>(bytes, [&](BlockMXFP4& block) {
        block.e = static_cast<std::uint8_t>(pick(random, 120, 132));
      });
      break;
  }
  return bytes;
}

Packed::Packed(BlockType type, std::span<const std::byte> source, std::uint32_t rows,
               std::uint32_t cols)
    : bytes(packed_bytes(type, rows, cols)) {
  matrix.type = type;
  matrix.rows = rows;
  matrix.cols = cols;
  matrix.data = bytes.data();
  pack_groups(type, source.data(), rows, cols, 0, matrix.groups(), bytes.data());
}

Activations::Activations(const Kernels& kernels, const std::vector<float>& x, std::uint32_t n,
                         std::uint32_t cols)
    : q(std::size_t{n} * cols), scale(std::size_t{n} * cols / 32), sum(std::size_t{n} * cols / 16) {
  rows.rows = n;
  rows.cols = cols;
  rows.q = q.data();
  rows.scale = scale.data();
  rows.sum = sum.data();
  kernels.quantize_rows(x.data(), cols, rows);
}

AttentionCase AttentionCase::make(KvLayout layout, std::uint32_t rows, std::uint32_t heads,
                                  std::uint32_t context, std::uint32_t window, float softcap,
                                  std::uint32_t outliers, Random& random) {
  AttentionCase c;
  c.layout = layout;
  c.rows = rows;
  c.heads = heads;
  c.context = context;
  c.window = window;
  c.scale = 1.0f / std::sqrt(static_cast<float>(layout.head_dim));
  c.softcap = softcap;
  c.outliers = outliers;
  const std::size_t dim = layout.head_dim;
  c.query = random_floats(std::size_t{rows} * heads * dim, 3.0f, random);
  c.key = random_floats(context * dim, 2.0f, random);
  c.value = random_floats(context * dim, 1.0f, random);
  c.coeff = random_floats(std::size_t{rows} * heads * outliers * 2, 1.0f, random);
  c.table = random_floats(std::size_t{outliers} * 2 * context, 1.0f, random);
  for (std::uint32_t r = 0; r < rows; ++r) {
    const std::uint32_t position = context - rows + r;
    c.last.push_back(position);
    c.first.push_back(window != 0 && position + 1 > window ? position + 1 - window : 0);
  }
  return c;
}

void AttentionCase::store(const Kernels& kernels) {
  const std::uint32_t count = (context + kKvBlock - 1) / kKvBlock;
  const auto nans = [count](const KvLayout& of) {
    std::vector<Aligned<std::byte>> made;
    for (std::uint32_t b = 0; b < count; ++b) {
      made.emplace_back(of.head_bytes());
      std::memset(made.back().data(), 0xff, of.head_bytes());
    }
    return made;
  };
  const bool int4 = layout.type == KvType::kInt4;
  const KvLayout stored{int4 ? KvType::kF16 : layout.type, layout.head_dim};
  blocks = nans(layout);
  if (int4) f16_blocks = nans(stored);
  for (std::uint32_t t = 0; t < context; ++t) {
    std::byte* block = (int4 ? f16_blocks : blocks)[t / kKvBlock].data();
    kernels.store_kv(stored, key.data() + std::size_t{t} * layout.head_dim,
                     value.data() + std::size_t{t} * layout.head_dim, t % kKvBlock, block);
    if (int4 && t % kKvBlock == kKvBlock - 1)
      kernels.quantize_kv(layout.head_dim, block, blocks[t / kKvBlock].data());
  }
}

AttentionCase::State AttentionCase::run(const Kernels& kernels, std::uint32_t row_begin,
                                        std::uint32_t row_end) const {
  const std::size_t row_floats = std::size_t{heads} * layout.head_dim;
  State state;
  state.maximum.assign(std::size_t{rows} * heads, -std::numeric_limits<float>::infinity());
  state.sum.assign(std::size_t{rows} * heads, 0.0f);
  state.output.assign(rows * row_floats, 0.0f);
  for (std::uint32_t r = row_begin; r < row_end;) {
    std::uint32_t after = row_end;
    if (layout.type == KvType::kInt4) {  // rows of a task are in the same block
      after = r + 1;
      while (after < row_end && last[after] / kKvBlock == last[r] / kKvBlock) ++after;
    }
    run_rows(kernels, r, after, state);
    r = after;
  }
  return state;
}

void AttentionCase::run_rows(const Kernels& kernels, std::uint32_t row_begin, std::uint32_t row_end,
                             State& state) const {
  const std::size_t row_floats = std::size_t{heads} * layout.head_dim;
  const std::uint32_t own_block = last[row_begin] / kKvBlock;
  AttentionTask task;
  task.layout = layout;
  task.rows = row_end - row_begin;
  task.heads = heads;
  task.query = query.data() + row_begin * row_floats;
  task.query_stride = row_floats;
  task.first = first.data() + row_begin;
  task.last = last.data() + row_begin;
  task.scale = scale;
  task.softcap = softcap;
  task.outliers = outliers;
  task.coeff = coeff.data() + std::size_t{row_begin} * heads * outliers * 2;
  task.table = table.data();
  task.table_stride = context;
  task.maximum = state.maximum.data() + std::size_t{row_begin} * heads;
  task.sum = state.sum.data() + std::size_t{row_begin} * heads;
  task.output = state.output.data() + row_begin * row_floats;
  task.output_stride = row_floats;
  for (std::uint32_t start = 0; start < context; start += kKvPiece) {
    const std::byte* pointers[kKvPiece / kKvBlock] = {};
    for (std::uint32_t b = 0; b < kKvPiece / kKvBlock; ++b) {
      const std::size_t index = start / kKvBlock + b;
      if (index < blocks.size())
        pointers[b] = const_cast<Aligned<std::byte>&>(blocks[index]).data();
      if (layout.type != KvType::kInt4 || index != own_block) continue;
      task.f16_block = b;
      pointers[b] = const_cast<Aligned<std::byte>&>(f16_blocks[index]).data();
    }
    task.blocks = pointers;
    task.piece_start = start;
    kernels.attention(task);
    task.f16_block = kKvPiece / kKvBlock;
  }
}

void check_same_bits(const Kernels& reference, const Kernels& table, std::uint64_t seed) {
  Random random(seed);
  INFO("table: ", std::string(table.name));
  check_vectors(reference, table, random);
  check_quantize(reference, table, random);
  for (const BlockTypeInfo& info : block_types()) {
    for (int i = 0; i < 12; ++i) {
      const std::uint32_t unit = info.block_size == 1 ? 1 : info.block_size;
      const std::uint32_t cols = info.block_size == 1    ? pick(random, 1, 300)
                                 : info.block_size == 32 ? unit * pick(random, 1, 40)
                                                         : unit * pick(random, 1, 6);
      check_matmul(reference, table, info.type, pick(random, 1, 70), cols, pick(random, 1, 23),
                   random);
    }
    // Many rows of x, and more columns than any inner tile.
    check_matmul(reference, table, info.type, 17, info.block_size == 1 ? 777 : 256 * 13, 70,
                 random);
    check_matmul(reference, table, info.type, 16, info.block_size == 1 ? 4099 : 256 * 150, 5,
                 random);
    // One or two rows of x, and groups enough for several at a time in each of a few ranges.
    for (const std::uint32_t rows : {127u, 129u, 209u, 257u}) {
      for (const std::uint32_t x_rows : {1u, 2u}) {
        check_matmul(reference, table, info.type, rows, info.block_size == 1 ? 37 : 256, x_rows,
                     random);
      }
    }
    check_matmul(reference, table, info.type, 70, info.block_size == 1 ? 777 : 256 * 260, 2,
                 random);
    for (const int byte : {0x00, 0xff, 0x80, 0x7f, 0x88, 0x55}) {
      for (const float value : {1.0f, -1.0f})
        check_extreme_matmul(reference, table, info.type, static_cast<std::uint8_t>(byte), value);
    }
  }
  for (const KvType type : {KvType::kInt8, KvType::kF16, KvType::kF32, KvType::kInt4}) {
    for (const std::uint32_t dim : {8u, 32u, 48u, 64u, 80u, 96u, 100u, 112u, 128u, 256u}) {
      const KvLayout layout{type, dim};
      const std::uint32_t context = pick(random, 1, 600);
      const std::uint32_t rows = pick(random, 1, context < 12 ? context : 12);
      check_attention(reference, table,
                      AttentionCase::make(layout, rows, pick(random, 1, 8), context,
                                          pick(random, 0, 1) * pick(random, 1, 400),
                                          static_cast<float>(pick(random, 0, 1)) * 30.0f,
                                          pick(random, 0, 2), random));
    }
    for (const std::uint32_t context : {1u, 31u, 32u, 33u, 255u, 256u, 257u, 511u, 512u, 513u}) {
      const std::uint32_t rows = context < 5 ? context : 5;
      check_attention(
          reference, table,
          AttentionCase::make(KvLayout{type, 40}, rows, 3, context, 0, 0.0f, 0, random));
      check_attention(
          reference, table,
          AttentionCase::make(KvLayout{type, 40}, rows, 1, context, 3, 0.0f, 0, random));
    }
  }
  check_extreme_int4(reference, table, random);
}

}  // namespace sluice::cpu::testing

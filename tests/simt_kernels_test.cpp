// The GPU's kernels, run by the emulator: each against a plain loop, to the bit, at awkward shapes.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "cuda/kernels/matvec_dp4a.cuh"
#include "cuda/kernels/matvec_mma.cuh"
#include "cuda/kernels/quantize.cuh"
#include "src/backend/cpu/pack_layout.h"
#include "tests/sanitized.h"
#include "tests/simt/matvec_problem.h"
#include "tests/simt/qkv_problem.h"

namespace sluice::simt {
namespace {

using cuda::TilesQ4_0;

template <class Tiles, int kXRows>
std::string check_dp4a(MatvecProblem& problem, bool reversed) {
  return problem.check_matvec(cuda::matvec_dp4a<Tiles, kXRows>,
                              cuda::matvec_shared_bytes<Tiles, kXRows>(), reversed);
}
template <class Tiles, int kXRows>
std::string check_mma(MatvecProblem& problem, bool reversed) {
  return problem.check_matvec(cuda::matvec_mma<Tiles, kXRows>,
                              cuda::matvec_shared_bytes<Tiles, kXRows>(), reversed);
}

// Every kernel that can do the problem gives the very same bits: those of the plain loop. `x_rows`
// is the most rows that a block of threads has.
template <class Tiles>
void check_tiles(MatvecProblem& problem, std::uint32_t x_rows, bool reversed) {
  if (x_rows == 1) CHECK(check_dp4a<Tiles, 1>(problem, reversed) == "");
  if (x_rows <= 2) CHECK(check_dp4a<Tiles, 2>(problem, reversed) == "");
  if (x_rows == 3) CHECK(check_dp4a<Tiles, 3>(problem, reversed) == "");
  if (x_rows <= 4) CHECK(check_dp4a<Tiles, 4>(problem, reversed) == "");
  if (x_rows == 5) CHECK(check_dp4a<Tiles, 6>(problem, reversed) == "");
  if (x_rows > 4 && x_rows <= 8) CHECK(check_dp4a<Tiles, 8>(problem, reversed) == "");
  if (x_rows <= 8) CHECK(check_mma<Tiles, 8>(problem, reversed) == "");
  CHECK(check_mma<Tiles, 16>(problem, reversed) == "");
}

void check_items(MatvecProblem& problem, std::uint32_t x_rows, bool reversed = false) {
  CAPTURE(problem.shape().text());
  cuda::visit_tiles(*cuda::tile_kind(problem.shape().type),
                    [&](auto tiles) { check_tiles<decltype(tiles)>(problem, x_rows, reversed); });
}
void check_matvec(MatvecProblem& problem, bool reversed = false) {
  check_items(problem, problem.shape().x_rows, reversed);
}

TEST_CASE("matrix times rows: shapes around tiles, segments and stages") {
  // Blocks: 1, 2, 7, 8 (one a segment), 9 (segments of two, the last with one, three unused), 57
  // and 61 (segments of eight, more than the ring has stages; the last one has one, or five).
  const std::uint32_t blocks[] = {1, 2, 7, 8, 9, 57, 61};
  // For blocks of 256, eight times as many: segments of 1, 2, 3, 5, 9 and 11 begin where a bundle
  // does and within it, and end in the same bundle or in one that follows.
  const std::uint32_t bundles[] = {1, 2, 3, 5, 9, 3, 11};
  const std::uint32_t rows[] = {1, 31, 32, 33, 37, 64, 65};
  std::uint64_t seed = 1;
  std::size_t turn = 0;
  for (const BlockType type : quantized_types()) {
    ++turn;
    const bool is_k = block_type_info(type).block_size == 256;
    const bool unpacked = *cuda::tile_kind(type) >= cuda::TileKind::kWide;  // share two layouts
    for (std::size_t i = 0; i < std::size(blocks); ++i, ++seed) {
      if (test::kSanitized ? i % 5 != turn % 5 : unpacked && i % 2 != turn % 2) continue;
      const std::uint32_t row_count = rows[(i + seed) % std::size(rows)];
      const std::uint32_t x_rows = 1 + static_cast<std::uint32_t>(seed % 5);
      const std::uint32_t cols = is_k ? 256 * bundles[i] : 32 * blocks[i];
      MatvecProblem problem({type, row_count, cols, x_rows}, seed);
      check_matvec(problem, seed % 2 == 0);
    }
  }
}

TEST_CASE("matrix times rows: every number of activation rows") {
  for (std::uint32_t x_rows = 1; x_rows <= 16; ++x_rows) {
    if (test::kSanitized && x_rows % 5 != 0) continue;
    MatvecProblem bytes({BlockType::kQ8_0, 33, 32 * 19, x_rows}, 100 + x_rows);
    check_matvec(bytes, x_rows % 2 == 1);
    MatvecProblem with_minimum({BlockType::kQ4_K, 33, 256 * 3, x_rows}, 120 + x_rows);
    check_matvec(with_minimum, x_rows % 2 == 0);
  }
}

TEST_CASE("matrix times rows: a row's bits do not depend on its neighbours") {
  // The same first row alone and among sixteen.
  std::vector<float> first_row;
  const auto keep = [&](std::vector<std::byte>&, std::vector<float>& x) {
    if (first_row.empty()) first_row.assign(x.begin(), x.begin() + 320);
    std::copy(first_row.begin(), first_row.end(), x.begin());
  };
  MatvecProblem alone({BlockType::kQ4_0, 40, 320, 1}, 7, keep);
  MatvecProblem among({BlockType::kQ4_0, 40, 320, 16}, 7, keep);
  for (std::uint32_t row = 0; row < 40; ++row)
    CHECK(alone.expected(0, row) == among.expected(0, row));
  check_matvec(alone);
  check_matvec(among);
}

TEST_CASE("matrix times rows: large activations, extreme codes") {
  for (const BlockType type : quantized_types()) {
    const std::uint32_t cols = block_type_info(type).block_size == 256 ? 512 : 32 * 17;
    MatvecProblem large({type, 33, cols, 5, 1e5f}, 3);
    check_matvec(large);
    // All codes at an end of their range and all activations at -127: the largest sums that there
    // are.
    for (const std::uint8_t code : {0x80, 0x00, 0xff}) {
      if (test::kSanitized && code != 0x80) continue;
      MatvecProblem extreme({type, 5, 256, 3}, 4, [&](auto& blocks, auto& x) {
        fill_codes(type, code, blocks);
        std::fill(x.begin(), x.end(), -1e5f);
      });
      check_matvec(extreme);
    }
  }
}

TEST_CASE("matrix times rows: a value that is not finite poisons its row and no other") {
  MatvecProblem problem({BlockType::kQ4_0, 5, 96, 2}, 8,
                        [](auto&, auto& x) { x[40] = std::numeric_limits<float>::infinity(); });
  for (std::uint32_t row = 0; row < 5; ++row) {
    CHECK(std::isnan(problem.expected(0, row)));
    CHECK(std::isfinite(problem.expected(1, row)));
  }
  check_matvec(problem);
}

TEST_CASE("matrix times rows: the order of sums is as good as any") {
  MatvecProblem problem({BlockType::kQ8_0, 64, 4096, 2, 1e5f}, 9);
  for (std::uint32_t x_row = 0; x_row < 2; ++x_row) {
    for (std::uint32_t row = 0; row < 64; ++row) {
      const auto exact = problem.exact(x_row, row);
      CHECK(std::abs(problem.expected(x_row, row) - exact.sum) <= 1e-6 * exact.magnitude);
    }
  }
}

// -- Mixture of experts --------------------------------------------------------------------------

TEST_CASE("matrix times rows: each item's rows go through its expert") {
  // Items of one to four rows, of none (whose other numbers mean nothing), out of order; row 7 of
  // the results belongs to nobody.
  const std::vector<cuda::ExpertItem> items = {{2, 0, 3}, {-7, 1 << 30, 0}, {0, 8, 4},
                                               {2, 3, 1}, {1, 4, 3},        {0, 0, 0}};
  const std::vector<std::int32_t> x_row = {4, 0, 3, 3, 1, 2, 0, 9, 4, 4, 1, 0};
  for (const BlockType type : {BlockType::kQ4_0, BlockType::kQ6_K, BlockType::kQ4_1}) {
    const std::uint32_t cols = block_type_info(type).block_size == 256 ? 768 : 32 * 11;
    for (const bool mapped : {true, false}) {
      if (test::kSanitized && mapped != (type == BlockType::kQ6_K)) continue;
      MatvecProblem problem({type, 37, cols, 12}, 30,
                            Routing{3, items, mapped ? x_row : std::vector<std::int32_t>()});
      check_items(problem, 4, mapped);
    }
  }
}

TEST_CASE(
    "matrix times rows: an item of sixteen rows, and activation rows chosen without experts") {
  std::vector<std::int32_t> x_row(18);
  for (std::size_t i = 0; i < 18; ++i) x_row[i] = static_cast<std::int32_t>(i * 7 % 18);
  MatvecProblem items({BlockType::kMXFP4, 33, 32 * 9, 18}, 31,
                      Routing{2, {{1, 2, 16}, {0, 0, 2}}, x_row});
  check_items(items, 16);
  MatvecProblem chosen({BlockType::kQ5_K, 33, 256, 4}, 32, Routing{1, {}, {2, 2, 0, 5}});
  check_matvec(chosen);
}

// -- Two matrices and their activation -----------------------------------------------------------

template <class Tiles>
void check_gated_tiles(MatvecProblem& problem, std::uint32_t x_rows, bool gelu, bool reversed) {
  const auto check = [&]<int kXRows>(void (*kernel)(cuda::GatedArgs)) {
    CHECK(problem.check_gated(kernel, cuda::matvec_shared_bytes<Tiles, kXRows, 2>(), gelu,
                              reversed) == "");
  };
  if (x_rows == 1) check.template operator()<1>(cuda::gated_dp4a<Tiles, 1>);
  if (x_rows <= 2) check.template operator()<2>(cuda::gated_dp4a<Tiles, 2>);
  if (x_rows <= 4) check.template operator()<4>(cuda::gated_dp4a<Tiles, 4>);
  if (x_rows <= 8) check.template operator()<8>(cuda::gated_mma<Tiles, 8>);
  check.template operator()<16>(cuda::gated_mma<Tiles, 16>);
}

void check_gated(MatvecProblem& problem, std::uint32_t x_rows, bool gelu, bool reversed) {
  CAPTURE(problem.shape().text());
  cuda::visit_tiles(*cuda::tile_kind(problem.shape().type), [&](auto tiles) {
    check_gated_tiles<decltype(tiles)>(problem, x_rows, gelu, reversed);
  });
}

TEST_CASE("gate and up in one: the bits of both matrices, the activation and its codes") {
  const std::uint32_t blocks[] = {1, 7, 9, 57};
  const std::uint32_t bundles[] = {1, 2, 3, 11};
  std::uint64_t seed = 70;
  std::size_t turn = 0;
  for (const BlockType type : quantized_types()) {
    ++turn;
    const bool is_k = block_type_info(type).block_size == 256;
    for (std::size_t i = 0; i < std::size(blocks); ++i, ++seed) {
      if (i % 2 != turn % 2 || (test::kSanitized && i > 1)) continue;
      const std::uint32_t x_rows = 1 + static_cast<std::uint32_t>(seed * 5 % 16);
      const std::uint32_t cols = is_k ? 256 * bundles[i] : 32 * blocks[i];
      const std::uint32_t width = seed % 3 == 0 ? 32 : 96;
      MatvecProblem problem({type, 2 * width, cols, x_rows}, seed);
      check_gated(problem, x_rows, seed % 2 == 0, seed % 4 < 2);
    }
  }
}

TEST_CASE("gate and up in one: experts, large values, and one that is not finite") {
  const std::vector<cuda::ExpertItem> items = {{2, 0, 3}, {0, 4, 4}, {1, 3, 1}, {0, 0, 0}};
  MatvecProblem routed({BlockType::kQ4_K, 64, 256, 8}, 90,
                       Routing{3, items, {4, 0, 3, 3, 1, 2, 0, 9}});
  check_gated(routed, 4, false, false);
  MatvecProblem large({BlockType::kQ4_0, 64, 32 * 17, 5, 1e5f}, 91);
  check_gated(large, 5, true, true);
  MatvecProblem poisoned({BlockType::kQ8_0, 64, 96, 2}, 92,
                         [](auto&, auto& x) { x[40] = std::numeric_limits<float>::quiet_NaN(); });
  check_gated(poisoned, 2, false, false);
}

// -- Query, key and value, to the cache ----------------------------------------------------------

void check_qkv(QkvProblem& problem, std::uint32_t rows, BlockType type, bool reversed) {
  CAPTURE(problem.text());
  cuda::visit_tiles(*cuda::tile_kind(type), [&](auto tiles) {
    using Tiles = decltype(tiles);
    const auto check = [&]<int kXRows>(void (*kernel)(cuda::QkvArgs)) {
      CHECK(problem.check(kernel, cuda::qkv_shared_bytes<Tiles, kXRows>(), reversed) == "");
    };
    if (rows == 1) check.template operator()<1>(cuda::qkv_dp4a<Tiles, 1>);
    if (rows <= 2) check.template operator()<2>(cuda::qkv_dp4a<Tiles, 2>);
    if (rows <= 4) check.template operator()<4>(cuda::qkv_dp4a<Tiles, 4>);
    if (rows <= 8) check.template operator()<8>(cuda::qkv_mma<Tiles, 8>);
    check.template operator()<16>(cuda::qkv_mma<Tiles, 16>);
  });
}

TEST_CASE("query, key and value in one: the bits of the product, then of rotation and storing") {
  struct Case {
    BlockType type;
    std::uint32_t cols, rows, heads, kv_heads, head_dim, rope_dims;
  };
  const Case cases[] = {
      {BlockType::kQ4_0, 64, 1, 4, 2, 32, 32},  {BlockType::kQ4_K, 256, 2, 2, 1, 128, 128},
      {BlockType::kQ6_K, 512, 5, 3, 3, 64, 64}, {BlockType::kQ5_K, 256, 3, 2, 1, 64, 64},
      {BlockType::kQ8_0, 96, 13, 4, 1, 96, 48}, {BlockType::kMXFP4, 32 * 9, 16, 1, 1, 256, 256}};
  std::uint64_t seed = 400;
  for (const Case& c : cases) {
    for (const cuda::PageKind pages : {cuda::PageKind::kInt8, cuda::PageKind::kF16}) {
      ++seed;
      QkvProblem problem(c.type, c.cols,
                         {.pages = pages,
                          .rows = c.rows,
                          .heads = c.heads,
                          .kv_heads = c.kv_heads,
                          .head_dim = c.head_dim,
                          .rope_dims = c.rope_dims,
                          .interleaved = seed % 2 == 0,
                          .has_bias = seed % 3 != 0,
                          .has_norms = seed % 4 < 2,
                          .outliers = pages == cuda::PageKind::kInt8 && seed % 3 != 0 ? 2u : 0u},
                         seed);
      check_qkv(problem, c.rows, c.type, seed % 4 == 1);
    }
  }
}

// -- Large matrices ------------------------------------------------------------------------------

TEST_CASE("matrix times rows: 70,000 rows") {
  MatvecProblem problem({BlockType::kQ4_0, test::kSanitized ? 3300u : 70000u, 32, 1}, 10);
  CHECK(check_dp4a<TilesQ4_0, 1>(problem, false) == "");
}

// Weights and results of many gigabytes, of which only the last tile is there and run.
TEST_CASE("matrix times rows: offsets beyond 32 bits") {
  constexpr std::uint32_t kRows = 262144;
  constexpr std::uint32_t kCols = 32768;  // 4.8 GB
  constexpr std::uint32_t kTile = kRows / 32 - 1;
  // The last tile, as a small problem of its own.
  MatvecProblem last({BlockType::kQ4_0, 32, kCols, 1}, 11);
  const std::size_t tile_bytes = cuda::packed_bytes(BlockType::kQ4_0, 32, kCols);
  std::vector<std::byte> packed(tile_bytes);
  cuda::pack_tiles(BlockType::kQ4_0, last.blocks().data(), 32, kCols, 0, 1, packed.data());
  Buffer weights("weights", cuda::packed_bytes(BlockType::kQ4_0, kRows, kCols));
  REQUIRE(weights.size() > std::size_t{1} << 32);
  weights.write(kTile * tile_bytes, packed.data(), tile_bytes);
  Buffer codes("x", 2 * kCols);
  Buffer scales("x_scale", 2 * kCols / 8);
  for (std::size_t r = 0; r < 2; ++r) {  // twice the same row
    codes.write(r * kCols, last.codes().data(), kCols);
    scales.write(r * kCols / 8, last.scales().data(), kCols / 8);
  }
  constexpr std::int64_t kStride = std::int64_t{3} << 30;  // results of row 1 lie 12 GB on
  Buffer out("out", static_cast<std::size_t>(kStride + kRows) * 4);
  const cuda::MatvecArgs args = {
      .weights = weights.pointer<const std::uint8_t>(),
      .x = {.q = codes.pointer<const std::int8_t>(), .scale = scales.pointer<const float>()},
      .out = out.pointer<float>(),
      .out_stride = kStride,
      .rows = kRows,
      .cols = kCols,
      .x_rows = 2};
  const auto run_last = [&](void (*kernel)(cuda::MatvecArgs), std::int32_t shared_bytes) {
    return run({.blocks = kTile + 1,
                .threads = cuda::kMatvecThreads,
                .shared_bytes = static_cast<std::size_t>(shared_bytes),
                .first_block = kTile},
               [&] { kernel(args); });
  };
  CHECK(run_last(cuda::matvec_dp4a<TilesQ4_0, 2>, cuda::matvec_shared_bytes<TilesQ4_0, 2>()) == "");
  for (std::uint32_t i = 0; i < 32; ++i) {
    for (std::size_t r = 0; r < 2; ++r) {
      const std::size_t at = r * kStride + 32 * std::size_t{kTile} + i;
      CHECK(out.read<float>(at) == last.expected(0, i));
    }
  }
  CHECK(run_last(cuda::matvec_mma<TilesQ4_0, 8>, cuda::matvec_shared_bytes<TilesQ4_0, 8>()) == "");
}

// -- Packing -------------------------------------------------------------------------------------

TEST_CASE("packed weights: part by part the same bytes, rows past the end are zeros") {
  cpu::testing::Random random(12);
  for (const BlockType type : quantized_types()) {
    CAPTURE(block_type_info(type).name);
    const std::uint32_t rows = 70;
    const std::uint32_t cols = 512;
    auto blocks = cpu::testing::random_blocks(type, rows, cols, random);
    std::vector<std::byte> whole(cuda::packed_bytes(type, rows, cols));
    cuda::pack_tiles(type, blocks.data(), rows, cols, 0, 3, whole.data());
    const std::size_t tile_bytes = whole.size() / 3;
    std::vector<std::byte> part(tile_bytes, std::byte{0x55});
    for (std::uint32_t tile = 0; tile < 3; ++tile) {
      cuda::pack_tiles(type, blocks.data(), rows, cols, tile, tile + 1, part.data());
      CHECK(std::memcmp(part.data(), whole.data() + tile * tile_bytes, tile_bytes) == 0);
    }
    // Rows 6 to 31 of the last tile, since 70 = 2 * 32 + 6.
    const auto header = cuda::visit_tiles(*cuda::tile_kind(type), [](auto tiles) {
      return static_cast<std::size_t>(decltype(tiles)::kHeaderBytes);
    });
    for (std::size_t i = 6 * 16; i < 512; ++i) CHECK(part[header + i] == std::byte{0});
    // Where zeros in the file are zeros, the last tile is that of rows that are there and zero.
    if (*cuda::tile_kind(type) < cuda::TileKind::kWide) {
      blocks.resize(blocks.size() / rows * 96);
      std::vector<std::byte> padded(tile_bytes);
      cuda::pack_tiles(type, blocks.data(), 96, cols, 2, 3, padded.data());
      CHECK(part == padded);
    }
  }
  CHECK(cuda::tile_count(4294967295u) == 134217728u);
}

TEST_CASE("packed weights: which types, and how many bytes") {
  for (const BlockTypeInfo& info : block_types()) {
    CHECK(cuda::has_tiles(info.type) == !cpu::is_float_type(info.type));
  }
  const auto bytes = [](BlockType type) { return cuda::packed_bytes(type, 33, 512) / 2 / 16; };
  CHECK(bytes(BlockType::kQ4_0) == 512 + 64);  // for 32 x 32 weights
  CHECK(bytes(BlockType::kIQ4_NL) == 512 + 64);
  CHECK(bytes(BlockType::kMXFP4) == 512 + 32);
  CHECK(bytes(BlockType::kQ4_K) == 512 + 64 + 128 / 8);
  CHECK(bytes(BlockType::kQ5_K) == 512 + 128 + 64 + 128 / 8);
  CHECK(bytes(BlockType::kQ6_K) == 512 + 256 + 64 + 64 / 8);
  CHECK(bytes(BlockType::kQ8_0) == 1024 + 64);
  CHECK(bytes(BlockType::kQ5_1) == 1024 + 256);
  CHECK(bytes(BlockType::kQ2_K) == 1024 + 512);
}

TEST_CASE("the plain loop takes the weights that the CPU's kernels take") {
  cpu::testing::Random random(14);
  for (const BlockType type : quantized_types()) {
    CAPTURE(block_type_info(type).name);
    const BlockTypeInfo& info = block_type_info(type);
    const auto blocks = cpu::testing::random_blocks(type, 16, 512, random);
    const cpu::testing::Packed packed(type, blocks, 16, 512);
    cpu::PackedBlock theirs;
    for (std::uint32_t b = 0; b < 16; ++b) {
      cpu::unpack_packed_block(type, packed.matrix.data, b, theirs);
      for (std::size_t row = 0; row < 16; ++row) {
        const std::size_t block = (32 * b + 512 * row) / info.block_size;
        const StoredWeights ours = stored_weights(type, blocks.data() + block * info.block_bytes,
                                                  b % (info.block_size / 32));
        CHECK(std::memcmp(ours.q, theirs.q[row], 32) == 0);
        CHECK(ours.parts == cpu::pack_layout(type).block_scales);
        CHECK(ours.has_min == cpu::pack_layout(type).has_min);
        for (std::size_t p = 0; p < ours.parts; ++p) {
          CHECK(float_bits(ours.scale[p]) == float_bits(theirs.scale[p][row]));
          if (ours.has_min) CHECK(float_bits(ours.min[p]) == float_bits(theirs.min[p][row]));
        }
      }
    }
  }
}

// -- Quantization --------------------------------------------------------------------------------

void check_quantize(const std::vector<float>& x, std::uint32_t rows, std::uint32_t cols,
                    std::uint32_t stride) {
  CAPTURE(rows);
  CAPTURE(cols);
  Buffer in("x", x.size() * 4);
  in.write(std::span<const float>(x));
  Buffer q("q", std::size_t{rows} * cols);
  Buffer scale("scale", std::size_t{rows} * cols / 8);
  Buffer sum("sum", std::size_t{rows} * cols / 8);
  const cuda::QuantizeArgs args = {.x = in.pointer<const float>(),
                                   .out = {.q = q.pointer<std::int8_t>(),
                                           .scale = scale.pointer<float>(),
                                           .sum = sum.pointer<std::uint32_t>()},
                                   .x_stride = stride,
                                   .cols = static_cast<std::int32_t>(cols)};
  const auto grid = cuda::quantize_blocks(static_cast<std::int32_t>(rows), args.cols);
  REQUIRE(run({.blocks = static_cast<std::uint32_t>(grid), .threads = cuda::kQuantizeThreads},
              [&] { cuda::quantize_rows(args); }) == "");
  REQUIRE(!q.first_unwritten(0, q.size()));
  REQUIRE(!scale.first_unwritten(0, scale.size()));
  REQUIRE(!sum.first_unwritten(0, sum.size()));
  for (std::uint32_t r = 0; r < rows; ++r) {
    for (std::uint32_t group = 0; group < cols / 32; ++group) {
      std::int8_t codes[32];
      const float wanted =
          cpu::generic_quantize_group(&x[std::size_t{r} * stride + 32 * group], 32, codes);
      const std::size_t at = std::size_t{r} * (cols / 32) + group;
      const auto found = scale.read<float>(at);
      REQUIRE(float_bits(found) == float_bits(wanted));
      int halves[2] = {};
      for (std::size_t i = 0; i < 32; ++i) {
        REQUIRE(q.read<std::int8_t>(32 * at + i) == codes[i]);
        halves[i / 16] += codes[i];
      }
      REQUIRE(sum.read<std::int16_t>(2 * at) == halves[0]);
      REQUIRE(sum.read<std::int16_t>(2 * at + 1) == halves[1]);
    }
  }
}

TEST_CASE("quantized activations have the bits of the CPU's") {
  cpu::testing::Random random(13);
  for (const std::uint32_t cols : {32u, 64u, 96u, 992u, 1024u, 1056u, 2048u + 32u * 17u}) {
    for (const std::uint32_t rows : {1u, 3u}) {
      for (const float magnitude : {1e-35f, 1e-20f, 1.0f, 1e5f, 3e38f}) {
        const std::uint32_t stride = cols + 4;
        std::vector<float> x(std::size_t{rows} * stride);
        for (float& v : x) v = cpu::testing::uniform(random, -magnitude, magnitude);
        std::fill_n(x.begin(), 16, 0.0f);
        check_quantize(x, rows, cols, stride);
      }
    }
  }
}

TEST_CASE("quantized activations: ties, zeros, denormals, infinities and NaNs") {
  std::vector<float> x(32 * 7);
  for (std::size_t i = 0; i < 32; ++i) {
    x[i] = static_cast<float>(i) - 15.5f;  // with 127 as the largest: ties everywhere
    x[64 + i] = 1e-40f;
    x[96 + i] = static_cast<float>(i);
    x[128 + i] = static_cast<float>(i);
    x[160 + i] = -0.0f;
    x[192 + i] = 1.0f;
  }
  x[0] = 127.0f;
  x[96 + 31] = std::numeric_limits<float>::infinity();
  x[128 + 5] = std::numeric_limits<float>::quiet_NaN();
  check_quantize(x, 1, 32 * 7, 32 * 7);
}

}  // namespace
}  // namespace sluice::simt

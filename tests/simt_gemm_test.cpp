// The GPU's kernel for many rows of activations, run by the emulator: against a plain loop, to the
// bit, and so with the bits of the kernels for few rows.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "cuda/kernels/gemm.cuh"
#include "cuda/kernels/matvec_mma.cuh"
#include "tests/sanitized.h"
#include "tests/simt/matvec_problem.h"

namespace sluice::simt {
namespace {

void check_gemm(MatvecProblem& problem, bool reversed = false) {
  CAPTURE(problem.shape().text());
  cuda::visit_tiles(*cuda::tile_kind(problem.shape().type), [&](auto tiles) {
    using Tiles = decltype(tiles);
    CHECK(problem.check_gemm(cuda::gemm<Tiles>, cuda::gemm_shared_bytes<Tiles>(), reversed) == "");
  });
}

TEST_CASE("matrix times many rows: shapes around tiles, segments and stages") {
  struct Case {
    std::uint32_t rows;
    std::uint32_t x_rows;
    std::uint32_t blocks;   // of 32 columns
    std::uint32_t bundles;  // of 256
  };
  // Blocks of threads make 128 x 64; stages are four, segments end within and at the end of
  // bundles.
  const Case cases[] = {{1, 1, 1, 1},    {33, 17, 3, 2},  {127, 63, 4, 1},
                        {128, 64, 8, 1}, {129, 65, 9, 3}, {40, 130, 21, 2}};
  std::uint64_t seed = 1;
  std::size_t turn = 0;
  for (const BlockType type : quantized_types()) {
    ++turn;
    const bool is_k = block_type_info(type).block_size == 256;
    for (std::size_t i = 0; i < std::size(cases); ++i, ++seed) {
      if (test::kSanitized && i != turn % std::size(cases)) continue;
      const Case& c = cases[i];
      const std::uint32_t cols = is_k ? 256 * c.bundles : 32 * c.blocks;
      MatvecProblem problem({type, c.rows, cols, c.x_rows}, seed);
      check_gemm(problem, seed % 2 == 0);
    }
  }
}

TEST_CASE("matrix times many rows: numbers of rows around fragments") {
  for (const std::uint32_t x_rows : {2u, 7u, 8u, 9u, 15u, 16u, 31u, 32u, 33u, 47u, 48u, 49u}) {
    if (test::kSanitized && x_rows % 3 != 0) continue;
    MatvecProblem problem({BlockType::kQ4_0, 32 + x_rows, 64, x_rows}, x_rows);
    check_gemm(problem);
  }
}

TEST_CASE("matrix times many rows: the bits of few rows") {
  MatvecProblem problem({BlockType::kQ5_K, 100, 1280, 16}, 2);
  check_gemm(problem);
  CHECK(problem.check_matvec(cuda::matvec_mma<cuda::TilesQ5_K, 16>,
                             cuda::matvec_shared_bytes<cuda::TilesQ5_K, 16>()) == "");
}

TEST_CASE("matrix times many rows: large activations, extreme codes") {
  for (const BlockType type : quantized_types()) {
    const std::uint32_t cols = block_type_info(type).block_size == 256 ? 512 : 32 * 11;
    MatvecProblem large({type, 33, cols, 18, 1e5f}, 3);
    check_gemm(large);
    if (test::kSanitized) continue;
    for (const std::uint8_t code : {0x00, 0xff, 0x80}) {
      MatvecProblem extreme({type, 5, 256, 3}, 4, [&](auto& blocks, auto& x) {
        fill_codes(type, code, blocks);
        std::fill(x.begin(), x.end(), -1e5f);
      });
      check_gemm(extreme);
    }
  }
}

TEST_CASE("matrix times many rows: a value that is not finite poisons its row and no other") {
  MatvecProblem problem({BlockType::kQ4_K, 5, 256, 20}, 8, [](auto&, auto& x) {
    x[256 * 18 + 40] = std::numeric_limits<float>::quiet_NaN();
  });
  for (std::uint32_t x_row = 0; x_row < 20; ++x_row) {
    CHECK(std::isnan(problem.expected(x_row, 3)) == (x_row == 18));
  }
  check_gemm(problem);
}

TEST_CASE("matrix times many rows: experts") {
  // Items of one row, of some and of 64; an expert with two items, one with none.
  const std::vector<cuda::ExpertItem> items = {
      {2, 0, 1}, {0, 1, 64}, {0, 65, 7}, {0, 0, 0}, {1, 72, 18}};
  std::vector<std::int32_t> x_row(90);
  for (std::size_t i = 0; i < x_row.size(); ++i) x_row[i] = static_cast<std::int32_t>(i * 7 % 31);
  std::uint64_t seed = 50;
  for (const BlockType type : {BlockType::kQ4_K, BlockType::kQ6_K, BlockType::kMXFP4}) {
    for (const bool mapped : {true, false}) {
      if (test::kSanitized && mapped != (type == BlockType::kQ6_K)) continue;
      MatvecProblem problem({type, 130, 512, 90}, ++seed,
                            Routing{4, items, mapped ? x_row : std::vector<std::int32_t>()});
      check_gemm(problem, mapped);
    }
  }
}

// Weights, activations and results of gigabytes, of which only the end is there and run: one tile
// and two rows, which are a block of threads of their own.
TEST_CASE("matrix times many rows: offsets beyond 32 bits") {
  using Tiles = cuda::TilesQ4_0;
  constexpr std::uint32_t kCols = 32768;
  constexpr std::uint32_t kRows = 262144 + 32;  // 4.8 GB
  constexpr std::uint32_t kXRows = 131072 + 2;  // 4.3 GB
  constexpr std::size_t kStride = kRows;        // 137 GB
  MatvecProblem last({BlockType::kQ4_0, 32, kCols, 2}, 11);
  const std::size_t tile_bytes = cuda::packed_bytes(BlockType::kQ4_0, 32, kCols);
  std::vector<std::byte> packed(tile_bytes);
  cuda::pack_tiles(BlockType::kQ4_0, last.blocks().data(), 32, kCols, 0, 1, packed.data());
  Buffer weights("weights", kRows / 32 * tile_bytes);
  weights.write(weights.size() - tile_bytes, packed.data(), tile_bytes);
  Buffer codes("x", std::size_t{kXRows} * kCols);
  codes.write(codes.size() - last.codes().size(), last.codes().data(), last.codes().size());
  Buffer scales("x_scale", codes.size() / 8);
  scales.write(scales.size() - last.scales().size_bytes(), last.scales().data(),
               last.scales().size_bytes());
  Buffer out("out", kXRows * kStride * 4);
  const cuda::MatvecArgs args = {
      .weights = weights.pointer<const std::uint8_t>(),
      .x = {.q = codes.pointer<const std::int8_t>(), .scale = scales.pointer<const float>()},
      .out = out.pointer<float>(),
      .out_stride = kStride,
      .rows = kRows,
      .cols = kCols,
      .x_rows = kXRows};
  const auto blocks = static_cast<std::uint32_t>(cuda::gemm_blocks(kRows, kXRows, 0));
  CHECK(run({.blocks = blocks,
             .threads = cuda::kGemmThreads,
             .shared_bytes = static_cast<std::size_t>(cuda::gemm_shared_bytes<Tiles>()),
             .first_block = blocks - 1},
            [&] { cuda::gemm<Tiles>(args); }) == "");
  for (std::uint32_t x_row = 0; x_row < 2; ++x_row) {
    for (std::uint32_t row = 0; row < 32; ++row) {
      const std::size_t at = (kXRows - 2 + x_row) * kStride + kRows - 32 + row;
      CHECK(out.read<float>(at) == last.expected(x_row, row));
    }
  }
}

}  // namespace
}  // namespace sluice::simt

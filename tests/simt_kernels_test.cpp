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
#include "tests/sanitized.h"
#include "tests/simt/matvec_problem.h"

namespace sluice::simt {
namespace {

using cuda::TilesQ4_0;
using cuda::TilesQ8_0;

template <class Tiles, int kXRows>
std::string check_dp4a(MatvecProblem& problem, bool reversed) {
  return problem.check(cuda::matvec_dp4a<Tiles, kXRows>, cuda::matvec_shared_bytes<Tiles, kXRows>(),
                       reversed);
}
template <class Tiles, int kXRows>
std::string check_mma(MatvecProblem& problem, bool reversed) {
  return problem.check(cuda::matvec_mma<Tiles, kXRows>, cuda::matvec_shared_bytes<Tiles, kXRows>(),
                       reversed);
}

// Every kernel that can do the problem gives the very same bits: those of the plain loop.
template <class Tiles>
void check_tiles(MatvecProblem& problem, bool reversed) {
  const std::uint32_t x_rows = problem.shape().x_rows;
  if (x_rows == 1) CHECK(check_dp4a<Tiles, 1>(problem, reversed) == "");
  if (x_rows <= 2) CHECK(check_dp4a<Tiles, 2>(problem, reversed) == "");
  if (x_rows == 3) CHECK(check_dp4a<Tiles, 3>(problem, reversed) == "");
  if (x_rows <= 4) CHECK(check_dp4a<Tiles, 4>(problem, reversed) == "");
  if (x_rows <= 8) CHECK(check_mma<Tiles, 8>(problem, reversed) == "");
  CHECK(check_mma<Tiles, 16>(problem, reversed) == "");
}

void check_matvec(MatvecProblem& problem, bool reversed = false) {
  CAPTURE(problem.shape().text());
  if (problem.shape().type == BlockType::kQ4_0) {
    check_tiles<TilesQ4_0>(problem, reversed);
  } else {
    check_tiles<TilesQ8_0>(problem, reversed);
  }
}

constexpr BlockType kTypes[] = {BlockType::kQ4_0, BlockType::kQ8_0};

TEST_CASE("matrix times rows: shapes around tiles, segments and stages") {
  // Blocks: 1, 2, 7, 8 (one a segment), 9 (segments of two, the last with one, three unused), 57
  // and 61 (segments of eight, more than the ring has stages; the last one has one, or five).
  const std::uint32_t blocks[] = {1, 2, 7, 8, 9, 57, 61};
  const std::uint32_t rows[] = {1, 31, 32, 33, 37, 64, 65};
  std::uint64_t seed = 1;
  for (const BlockType type : kTypes) {
    for (std::size_t i = 0; i < std::size(blocks); ++i) {
      for (std::size_t j = 0; j < (test::kSanitized ? 2 : std::size(rows)); ++j, ++seed) {
        const std::uint32_t row_count = rows[(i + j) % std::size(rows)];
        const std::uint32_t x_rows = 1 + static_cast<std::uint32_t>(seed % 5);
        MatvecProblem problem({type, row_count, 32 * blocks[i], x_rows}, seed);
        check_matvec(problem, seed % 2 == 0);
      }
    }
  }
}

TEST_CASE("matrix times rows: every number of activation rows") {
  for (const BlockType type : kTypes) {
    for (std::uint32_t x_rows = 1; x_rows <= 16; ++x_rows) {
      MatvecProblem problem({type, 33, 32 * 19, x_rows}, 100 + x_rows);
      check_matvec(problem, x_rows % 2 == 1);
    }
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
  for (const BlockType type : kTypes) {
    MatvecProblem large({type, 33, 32 * 17, 5, 1e5f}, 3);
    check_matvec(large);
    // All codes at their lowest and all activations at -127: the largest sums that there are.
    MatvecProblem extreme({type, 33, 32 * 17, 3}, 4, [&](auto& blocks, auto& x) {
      const std::size_t bytes = block_type_info(type).block_bytes;
      for (std::size_t at = 0; at < blocks.size(); at += bytes) {
        std::memset(&blocks[at + 2], type == BlockType::kQ4_0 ? 0x00 : 0x80, bytes - 2);
      }
      std::fill(x.begin(), x.end(), -1e5f);
    });
    check_matvec(extreme);
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

TEST_CASE("matrix times rows: 70,000 rows") {
  MatvecProblem problem({BlockType::kQ4_0, test::kSanitized ? 7000u : 70000u, 32, 1}, 10);
  CHECK(check_dp4a<TilesQ4_0, 1>(problem, false) == "");
}

// Weights and results of many gigabytes, of which only the last tile is there and run.
TEST_CASE("matrix times rows: offsets beyond 32 bits") {
  constexpr std::uint32_t kRows = 262144;
  constexpr std::uint32_t kCols = 32768;  // 4.8 GB
  constexpr std::uint32_t kTile = kRows / 32 - 1;
  // The last tile, as a small problem of its own.
  MatvecProblem last({BlockType::kQ4_0, 32, kCols, 1}, 11);
  cpu::testing::Random random(11);
  const auto blocks = cpu::testing::random_blocks(BlockType::kQ4_0, 32, kCols, random);
  std::vector<float> x(kCols);
  for (float& value : x) value = cpu::testing::uniform(random, -3.0f, 3.0f);

  const std::size_t tile_bytes = cuda::packed_bytes(BlockType::kQ4_0, 32, kCols);
  std::vector<std::byte> packed(tile_bytes);
  cuda::pack_tiles(BlockType::kQ4_0, blocks.data(), 32, kCols, 0, 1, packed.data());
  Buffer weights("weights", cuda::packed_bytes(BlockType::kQ4_0, kRows, kCols));
  REQUIRE(weights.size() > std::size_t{1} << 32);
  weights.write(kTile * tile_bytes, packed.data(), tile_bytes);
  Buffer codes("x", 2 * kCols);
  Buffer scales("x_scale", 2 * kCols / 8);
  std::vector<std::int8_t> q(kCols);
  std::vector<float> s(kCols / 32);
  for (std::size_t i = 0; i < s.size(); ++i) {
    s[i] = cpu::generic_quantize_group(&x[32 * i], 32, &q[32 * i]);
  }
  for (std::size_t r = 0; r < 2; ++r) {  // twice the same row
    codes.write(r * kCols, q.data(), kCols);
    scales.write(r * kCols / 8, s.data(), kCols / 8);
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
  for (const BlockType type : kTypes) {
    const std::uint32_t rows = 70;
    const std::uint32_t cols = 96;
    const auto blocks = cpu::testing::random_blocks(type, rows, cols, random);
    std::vector<std::byte> whole(cuda::packed_bytes(type, rows, cols));
    cuda::pack_tiles(type, blocks.data(), rows, cols, 0, 3, whole.data());
    const std::size_t tile_bytes = whole.size() / 3;
    std::vector<std::byte> part(tile_bytes, std::byte{0x55});
    for (std::uint32_t tile = 0; tile < 3; ++tile) {
      cuda::pack_tiles(type, blocks.data(), rows, cols, tile, tile + 1, part.data());
      CHECK(std::memcmp(part.data(), whole.data() + tile * tile_bytes, tile_bytes) == 0);
    }
    for (std::size_t i = 6 * 16; i < 512; ++i) CHECK(part[i] == std::byte{0});  // 70 = 2 * 32 + 6
  }
  CHECK(cuda::tile_count(4294967295u) == 134217728u);
  CHECK(!cuda::has_tiles(BlockType::kQ6_K));
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
  const auto row_blocks = static_cast<std::uint32_t>(cuda::quantize_row_blocks(args.cols));
  REQUIRE(run({.blocks = rows * row_blocks, .threads = cuda::kQuantizeThreads},
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

// The GPU's kernels that go through rows of floats, run by the emulator: each against a plain loop,
// to the bit, at awkward shapes.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/sanitized.h"
#include "tests/simt/activate_problem.h"
#include "tests/simt/experts_problem.h"
#include "tests/simt/matvec_float_problem.h"
#include "tests/simt/norm_problem.h"
#include "tests/simt/top_logits_problem.h"

namespace sluice::simt {
namespace {

using cuda::FloatType;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// -- Norms ---------------------------------------------------------------------------------------

void check_norm(NormProblem& problem, bool reversed = false) {
  CAPTURE(problem.shape().text());
  CHECK(problem.check(cuda::add_and_normalise, reversed) == "");
}

TEST_CASE("norms: every number of columns, everything that may be added") {
  // One value; less than a warp; around a group, a warp, a block, a batch of loads; several.
  std::uint64_t seed = 1;
  for (const std::uint32_t cols : {1u, 2u, 3u, 7u, 32u, 33u, 96u, 127u, 129u, 1023u, 1024u, 1026u,
                                   1056u, 2880u, 4095u, 4096u, 4100u, 4128u, 8225u}) {
    for (std::uint32_t i = 0; i < (test::kSanitized ? 2 : 8); ++i, ++seed) {
      const std::uint64_t bits = test::kSanitized ? 5 * seed : seed;
      NormProblem problem({.rows = 1 + static_cast<std::uint32_t>(seed % 3),
                           .cols = cols,
                           .add = bits % 4 != 0,
                           .add_bias = bits % 2 != 0,
                           .add_norm = bits / 2 % 2 != 0,
                           .normed = cols % 32 != 0 || seed % 3 != 0,
                           .quantized = cols % 32 == 0 && seed % 5 != 0,
                           .magnitude = seed % 7 == 0 ? 1e4f : 3.0f},
                          seed);
      check_norm(problem, seed % 2 == 0);
    }
  }
}

TEST_CASE("norms: only the sum, only some rows") {
  for (const std::uint32_t cols : {5u, 64u, 1056u}) {
    NormProblem sum({.rows = 2, .cols = cols, .add = true, .norm = false}, cols);
    check_norm(sum);
    NormProblem gathered({.rows = 3, .cols = cols, .gather = true}, cols);
    check_norm(gathered);
    // What is to be added is left out where rows are gathered.
    NormProblem both({.rows = 2, .cols = cols, .add = true, .add_norm = true, .gather = true},
                     cols);
    check_norm(both, true);
  }
}

TEST_CASE("norms: zeros, values too large to square, and values that are not finite") {
  NormProblem zeros({.cols = 96, .quantized = true}, 1,
                    [](auto& x) { std::fill(x.begin(), x.end(), 0.0f); });
  check_norm(zeros);
  NormProblem large({.rows = 2, .cols = 96, .quantized = true, .magnitude = 1e38f}, 2);
  check_norm(large);
  CHECK(large.normed()[5] == 0.0f);  // divided by an infinite magnitude, as on the CPU
  for (const float bad : {kInfinity, kNan}) {
    NormProblem problem({.rows = 3, .cols = 64, .add = true, .add_norm = true, .quantized = true},
                        3, [&](auto& x) { x[70] = bad; });
    check_norm(problem);
    CHECK(std::isfinite(problem.normed()[63]));
    CHECK(std::isnan(problem.normed()[70]));
    CHECK(std::isfinite(problem.normed()[128]));
  }
}

TEST_CASE("norms are as good as the CPU's") {
  for (const std::uint32_t cols : {1u, 7u, 96u, 4096u, 5001u}) {
    const NormProblem problem({.cols = cols}, cols);
    std::vector<float> wanted(cols);
    cpu::find_kernels("generic")->rms_norm(problem.hidden().data(), problem.norm().data(), cols,
                                           NormProblem::kEpsilon, wanted.data());
    for (std::uint32_t c = 0; c < cols; ++c) {
      CHECK(std::abs(problem.normed()[c] - wanted[c]) <= 4e-7f * std::abs(wanted[c]));
    }
  }
}

TEST_CASE("norms: rows beyond 32 bits") {
  constexpr std::uint32_t kCols = 4096;
  constexpr std::uint32_t kRow = 1200000;  // at 4.9e9 floats
  const NormProblem last({.cols = kCols, .add = true}, 21);
  Buffer hidden("hidden", std::size_t{kRow + 1} * kCols * 4);
  Buffer add("add", hidden.size());
  Buffer normed("normed", hidden.size());
  hidden.write(std::size_t{kRow} * kCols * 4, last.hidden().data(), kCols * 4);
  const std::vector<float> zeros(kCols);
  add.write(std::size_t{kRow} * kCols * 4, zeros.data(), kCols * 4);
  Filled<float> norm("norm", last.norm());
  Filled<std::int32_t> row("row", std::vector<std::int32_t>{static_cast<std::int32_t>(kRow)});
  cuda::NormArgs args = {};
  args.hidden = hidden.pointer<float>();
  args.add = add.pointer<float>();
  args.norm = norm.begin();
  args.normed = normed.pointer<float>();
  args.epsilon = NormProblem::kEpsilon;
  args.cols = kCols;
  CHECK(run({.blocks = kRow + 1,
             .threads = cuda::kNormThreads,
             .shared_bytes = cuda::kNormSharedBytes,
             .first_block = kRow},
            [&] { cuda::add_and_normalise(args); }) == "");
  args.row = row.begin();
  CHECK(run({.threads = cuda::kNormThreads, .shared_bytes = cuda::kNormSharedBytes},
            [&] { cuda::add_and_normalise(args); }) == "");
  const NormProblem alone({.cols = kCols}, 21);
  const std::span<const float> wanted = alone.normed();
  CHECK(compare(normed, wanted, std::size_t{kRow} * kCols) == "");
  CHECK(compare(normed, wanted) == "");
}

// -- Activations ---------------------------------------------------------------------------------

TEST_CASE("activations of two matrices in turn have the bits of the CPU's") {
  std::uint64_t seed = 200;
  for (const std::uint32_t cols : {32u, 64u, 1024u, 1056u, 2080u}) {
    ++seed;
    const ActivateShape shape = {.rows = 3,
                                 .cols = cols,
                                 .stride = cols,
                                 .gelu = seed % 2 == 0,
                                 .floats = seed % 3 != 0,
                                 .quantized = seed % 3 != 1,
                                 .pairs = true};
    CAPTURE(shape.text());
    CHECK(check_activate(cuda::activate, shape, seed, seed % 2 == 0) == "");
  }
}

TEST_CASE("activations have the bits of the CPU's") {
  std::uint64_t seed = 1;
  for (const std::uint32_t cols :
       {1u, 3u, 31u, 32u, 33u, 96u, 1022u, 1023u, 1024u, 1025u, 1056u, 2080u}) {
    for (const std::uint32_t more : {0u, 1u, 4u, cols}) {
      for (const bool gelu : {false, true}) {
        if (test::kSanitized && seed % 4 != 1) {
          ++seed;
          continue;
        }
        const ActivateShape shape = {.rows = 1 + static_cast<std::uint32_t>(seed % 3),
                                     .cols = cols,
                                     .stride = cols + more,
                                     .gelu = gelu,
                                     .floats = cols % 32 != 0 || seed % 3 != 0,
                                     .quantized = cols % 32 == 0 && seed % 5 != 0,
                                     .in_place = more == 0};
        CAPTURE(shape.text());
        CHECK(check_activate(cuda::activate, shape, seed, seed % 2 == 0, seed % 4 < 2) == "");
        ++seed;
      }
    }
  }
}

TEST_CASE("activations: rows beyond 32 bits") {
  constexpr std::int64_t kStride = std::int64_t{5} << 30;
  const std::vector<float> values = {1.0f, -2.0f, 3.0f, 0.5f};
  Buffer gate("gate", static_cast<std::size_t>(kStride + 4) * 4);
  Buffer up("up", gate.size());
  for (const std::size_t row : {std::size_t{0}, static_cast<std::size_t>(kStride)}) {
    gate.write(row * 4, values.data(), 16);
    up.write(row * 4, values.data(), 16);
  }
  Buffer out("out", 32);
  cuda::ActivateArgs args = {};
  args.gate = gate.pointer<const float>();
  args.up = up.pointer<const float>();
  args.out = out.pointer<float>();
  args.stride = kStride;
  args.rows = 2;
  args.cols = 4;
  CHECK(run({.blocks = 2, .threads = cuda::kActivateThreads}, [&] { cuda::activate(args); }) == "");
  for (std::size_t i = 0; i < 4; ++i) CHECK(out.read<float>(i) == out.read<float>(4 + i));
}

// -- Soft cap ------------------------------------------------------------------------------------

TEST_CASE("soft cap: every remainder, and more values than 32 bits count") {
  for (const std::int64_t count : {1, 2, 3, 4, 5, 31, 127, 1021, 1023, 1024, 1025, 5003}) {
    CAPTURE(count);
    CHECK(check_softcap(cuda::softcap_logits, count, 30.0f, static_cast<std::uint64_t>(count)) ==
          "");
  }
  constexpr std::int64_t kFirst = 5'000'000 * std::int64_t{1024};
  CHECK(check_softcap(cuda::softcap_logits, kFirst + 1027, 15.0f, 7, kFirst) == "");
  CHECK(cuda::softcap_blocks((std::int64_t{1} << 41) - 1024) == 0x7fffffff);
}

TEST_CASE("the soft cap's tanh is close to the exact one") {
  double worst = 0;
  for (int i = -4000; i <= 4000; ++i) {
    const float x = static_cast<float>(i) * 0.0025f;
    const double exact = std::tanh(static_cast<double>(x));
    worst = std::max(worst, std::abs(cuda::tanh_of(x) - exact) / std::max(1e-3, std::abs(exact)));
  }
  CHECK(worst < 2.5e-7);
}

// -- Matrices of floats --------------------------------------------------------------------------

constexpr FloatType kFloatTypes[] = {FloatType::kF32, FloatType::kF16, FloatType::kBF16};

void check_matvec(MatvecFloatProblem& problem, bool reversed = false) {
  CAPTURE(problem.shape().text());
  CHECK(problem.check(cuda::matvec_float, reversed) == "");
}

TEST_CASE("matrix of floats times rows: every kind of tail") {
  // Columns around a step of a warp and around the steps that are under way together (256, 512).
  const std::uint32_t columns[] = {1,   2,   7,   31,  32,  33,  63,  64,  127, 128, 129,
                                   160, 255, 256, 257, 288, 319, 511, 512, 513, 545, 1000};
  std::uint64_t seed = 1;
  for (const FloatType type : kFloatTypes) {
    for (const std::uint32_t cols : columns) {
      for (const std::uint32_t rows : {1u, 7u, 9u}) {
        if (test::kSanitized && seed % 5 != 0) {
          ++seed;
          continue;
        }
        const auto x_rows = 1 + static_cast<std::uint32_t>(seed % 5);
        MatvecFloatProblem problem({.type = type, .rows = rows, .cols = cols, .x_rows = x_rows},
                                   seed);
        check_matvec(problem, seed % 2 == 0);
        ++seed;
      }
    }
  }
}

TEST_CASE("matrix of floats times rows: every number of activation rows") {
  for (const FloatType type : kFloatTypes) {
    for (std::uint32_t x_rows = 1; x_rows <= 17; ++x_rows) {
      MatvecFloatProblem problem(
          {.type = type, .rows = 5, .cols = 289, .x_rows = x_rows, .gather = x_rows % 3 == 0},
          x_rows);
      check_matvec(problem, x_rows % 2 == 0);
    }
  }
}

TEST_CASE("matrix of floats times rows: experts") {
  for (const FloatType type : kFloatTypes) {
    for (const std::uint32_t items : {1u, 4u, 9u}) {
      for (const bool gather : {false, true}) {
        MatvecFloatProblem problem(
            {.type = type, .rows = 11, .cols = 45, .items = items, .gather = gather}, items);
        check_matvec(problem, gather);
      }
    }
  }
}

TEST_CASE("matrix of floats times rows: weights and activations that are not finite, denormals") {
  for (const FloatType type : kFloatTypes) {
    MatvecFloatProblem problem(
        {.type = type, .rows = 4, .cols = 40, .x_rows = 2}, 5, [&](auto& weights, auto& x) {
          // Rows of weights: 0 has an infinity, 1 a denormal; row 1 of x has a NaN.
          const std::size_t row_bytes = type == FloatType::kF32 ? 160 : 80;
          const std::uint32_t infinity = type == FloatType::kF32   ? 0x7f800000u
                                         : type == FloatType::kF16 ? 0x7c00u
                                                                   : 0x7f80u;
          const std::uint32_t denormal = 3;
          std::memcpy(&weights[0], &infinity, row_bytes / 40);
          std::memcpy(&weights[row_bytes], &denormal, row_bytes / 40);
          x[41 + 7] = kNan;
        });
    CHECK(std::isinf(problem.expected(0, 0)));
    CHECK(std::isfinite(problem.expected(0, 1)));
    CHECK(std::isnan(problem.expected(1, 2)));
    check_matvec(problem);
  }
}

TEST_CASE("matrix of floats times rows: the order of sums is as good as any") {
  MatvecFloatProblem problem({.rows = 16, .cols = 4099, .x_rows = 2}, 6);
  for (std::size_t x_row = 0; x_row < 2; ++x_row) {
    for (std::size_t row = 0; row < 16; ++row) {
      double magnitude = 0;
      const double exact = problem.exact(x_row, row, magnitude);
      CHECK(std::abs(problem.expected(x_row, row) - exact) <= 1e-6 * magnitude);
    }
  }
}

// Matrices of gigabytes, of which one row is there.
TEST_CASE("matrix of floats times rows: offsets beyond 32 bits") {
  constexpr std::uint32_t kRows = 700001;
  constexpr std::uint32_t kCols = 4097;
  constexpr std::int64_t kStride = std::int64_t{3} << 30;
  constexpr std::int32_t kExpert = 2;
  const MatvecFloatProblem last({.type = FloatType::kF16, .rows = 1, .cols = kCols}, 8);
  const std::size_t expert_bytes = std::size_t{kRows} * kCols * 2;
  REQUIRE(expert_bytes > std::size_t{1} << 32);
  Buffer weights("weights", (kExpert + 1) * expert_bytes);
  Buffer x("x", static_cast<std::size_t>(2 * kStride + kCols) * 4);
  Buffer out("out", static_cast<std::size_t>(2 * kStride + kRows) * 4);
  for (const std::size_t expert : {std::size_t{0}, std::size_t{kExpert}}) {
    weights.write((expert + 1) * expert_bytes - kCols * 2, last.weights().data(), kCols * 2);
  }
  for (std::size_t row = 0; row < 3; ++row) {
    x.write(row * kStride * 4, last.x().data(), kCols * 4);
  }
  cuda::MatvecFloatArgs args = {};
  args.weights = weights.pointer<const std::uint8_t>();
  args.x = x.pointer<const float>();
  args.out = out.pointer<float>();
  args.x_stride = kStride;
  args.out_stride = kStride;
  args.rows = kRows;
  args.cols = kCols;
  args.x_rows = 2;
  args.type = FloatType::kF16;
  const auto blocks = static_cast<std::uint32_t>(cuda::matvec_float_item_blocks(kRows));
  CHECK(run({.blocks = blocks, .threads = cuda::kMatvecFloatThreads, .first_block = blocks - 1},
            [&] { cuda::matvec_float(args); }) == "");
  // Row 2 again by an item that follows an empty one, its activations by a table.
  Filled<cuda::ExpertItem> items("items", std::vector<cuda::ExpertItem>{{}, {kExpert, 2, 1}});
  Filled<std::int32_t> x_row("x_row", std::vector<std::int32_t>{0, 0, 2});
  args.items = items.begin();
  args.x_row = x_row.begin();
  args.expert_bytes = static_cast<std::int64_t>(expert_bytes);
  CHECK(run({.blocks = 2 * blocks,
             .threads = cuda::kMatvecFloatThreads,
             .first_block = 2 * blocks - 1},
            [&] { cuda::matvec_float(args); }) == "");
  CHECK(cuda::matvec_float_blocks(kRows, 2) == 2 * blocks);
  for (std::size_t row = 0; row < 3; ++row) {
    CHECK(out.read<float>(row * kStride + kRows - 1) == last.expected(0, 0));
  }
}

// -- Experts -------------------------------------------------------------------------------------

TEST_CASE("choice of experts: as the CPU's, to the bit") {
  std::uint64_t seed = 1;
  for (const std::uint32_t experts : {1u, 2u, 8u, 15u, 16u, 17u, 31u, 32u, 33u, 60u, 128u, 1024u}) {
    for (const std::uint32_t used : {1u, 2u, 8u, std::min(40u, experts)}) {
      if (used > experts || (test::kSanitized && seed % 3 != 0)) {
        ++seed;
        continue;
      }
      const ExpertShape shape = {
          .rows = 1 + static_cast<std::uint32_t>(seed % 6), .experts = experts, .used = used};
      CAPTURE(shape.text());
      cpu::testing::Random random(seed);
      std::vector<float> logits =
          random_floats(std::size_t{shape.rows} * experts, seed % 4 == 0 ? 100.0f : 4.0f, random);
      if (seed % 3 == 0) {  // many of the same
        for (float& x : logits) x = std::round(x);
      }
      CHECK(check_route(cuda::route_experts, shape, logits, seed % 2 == 0) == "");
      ++seed;
    }
  }
}

TEST_CASE("choice of experts: ties, infinities and NaNs") {
  const ExpertShape shape = {.rows = 7, .experts = 40, .used = 4};
  cpu::testing::Random random(1);
  std::vector<float> logits = random_floats(7 * 40, 3.0f, random);
  std::fill_n(logits.begin(), 40, 1.0f);
  logits[40 + 39] = kNan;
  logits[80 + 3] = kInfinity;
  logits[120 + 3] = -kInfinity;
  std::fill_n(logits.begin() + 160, 40, -kInfinity);
  std::fill_n(logits.begin() + 200, 40, kNan);
  for (std::size_t i = 0; i < 40; ++i) logits[240 + i] = i % 2 == 0 ? -0.0f : 0.0f;
  CHECK(check_route(cuda::route_experts, shape, logits) == "");
  CHECK(check_route(cuda::route_experts, shape, logits, true) == "");
}

std::vector<std::int32_t> random_experts(const ExpertShape& shape, std::uint64_t seed) {
  cpu::testing::Random random(seed);
  std::vector<std::int32_t> experts;
  for (std::uint32_t i = 0; i < shape.pairs(); ++i) {
    // The least of three: some have many pairs, some none.
    std::uint32_t least = shape.experts;
    for (int draw = 0; draw < 3; ++draw) {
      least = std::min(least, cpu::testing::pick(random, 0, shape.experts - 1));
    }
    experts.push_back(static_cast<std::int32_t>(least));
  }
  return experts;
}

TEST_CASE("order of experts: a stable sort") {
  std::uint64_t seed = 1;
  for (const std::uint32_t experts : {1u, 2u, 8u, 60u, 255u, 256u, 257u, 1024u}) {
    for (const std::uint32_t rows : {1u, 3u, 16u, 32u, 33u, 127u, 300u}) {
      if (test::kSanitized && seed % 5 != 0) {
        ++seed;
        continue;
      }
      const ExpertShape shape = {.rows = rows,
                                 .experts = experts,
                                 .used = 1 + static_cast<std::uint32_t>(seed % 4),
                                 .item_rows = 1u << seed % 5,
                                 .more_items = static_cast<std::uint32_t>(seed % 3) * 200};
      CAPTURE(shape.text());
      CHECK(check_order(cuda::order_experts, shape, random_experts(shape, seed), seed % 2 == 0) ==
            "");
      ++seed;
    }
  }
}

TEST_CASE("order of experts: all the same, and each its own") {
  for (const std::uint32_t rows : {1u, 31u, 256u, 261u}) {
    const ExpertShape shape = {.rows = rows, .experts = 300, .used = 1, .item_rows = 16};
    CAPTURE(shape.text());
    CHECK(check_order(cuda::order_experts, shape, std::vector<std::int32_t>(rows, 299)) == "");
    std::vector<std::int32_t> falling(rows);
    for (std::uint32_t i = 0; i < rows; ++i) falling[i] = static_cast<std::int32_t>(rows - 1 - i);
    CHECK(check_order(cuda::order_experts, shape, falling, true) == "");
  }
}

TEST_CASE("order of experts: the example of the kernel's comment") {
  const ExpertShape shape = {.rows = 3, .experts = 3, .used = 2, .item_rows = 2};
  CHECK(check_order(cuda::order_experts, shape, {2, 0, 1, 2, 2, 1}) == "");
}

TEST_CASE("order of experts: 131072 pairs") {
  const ExpertShape shape = {
      .rows = test::kSanitized ? 40u : 8192u, .experts = 1024, .used = 16, .item_rows = 8};
  CHECK(check_order(cuda::order_experts, shape, random_experts(shape, 3)) == "");
  CHECK(cuda::order_shared_bytes(cuda::kMaxExperts) <= 48 * 1024);
}

TEST_CASE("sum of experts: as the CPU's, to the bit") {
  std::uint64_t seed = 1;
  for (const std::uint32_t cols : {1u, 3u, 4u, 33u, 1023u, 1024u, 1028u, 2050u}) {
    for (const std::uint32_t used : {1u, 2u, 5u}) {
      CAPTURE(cols);
      CAPTURE(used);
      const ExpertSumShape shape = {
          .rows = 1 + static_cast<std::uint32_t>(seed % 4), .cols = cols, .used = used};
      CHECK(check_expert_sum(cuda::sum_experts, shape, seed, seed % 2 == 0) == "");
      ++seed;
    }
  }
}

TEST_CASE("sum of experts: offsets beyond 32 bits") {
  constexpr std::int32_t kPlace = 1200000;
  constexpr std::int32_t kCols = 4096;
  Buffer in("in", std::size_t{kPlace + 1} * kCols * 4);
  const std::vector<float> row(kCols, 2.0f);
  in.write(std::size_t{kPlace} * kCols * 4, row.data(), kCols * 4);
  Buffer result("result", in.size());
  Buffer weight("weight", (kPlace + 1) * 4);
  Buffer place("place", (kPlace + 1) * 4);
  const float three = 3.0f;
  weight.write(kPlace * 4, &three, 4);
  place.write(kPlace * 4, &kPlace, 4);
  cuda::ExpertSumArgs args = {};
  args.in = in.pointer<const float>();
  args.weight = weight.pointer<const float>();
  args.place = place.pointer<const std::int32_t>();
  args.result = result.pointer<float>();
  args.rows = kPlace + 1;
  args.cols = kCols;
  args.used = 1;
  const auto blocks =
      static_cast<std::uint32_t>(args.rows * cuda::expert_sum_row_blocks(args.cols));
  CHECK(run({.blocks = blocks, .threads = cuda::kExpertSumThreads, .first_block = blocks - 4},
            [&] { cuda::sum_experts(args); }) == "");
  CHECK(result.read<float>(std::size_t{kPlace} * kCols) == 6.0f);
  CHECK(result.read<float>(std::size_t{kPlace} * kCols + kCols - 1) == 6.0f);
}

// -- The largest logits --------------------------------------------------------------------------

TEST_CASE("the largest logits of rows, equals by their index") {
  const std::uint32_t cols[] = {1, 2, 15, 17, 255, 4095, 4096, 4097, 8192, 12289, 33000};
  std::uint64_t seed = 300;
  for (const std::uint32_t c : cols) {
    if (test::kSanitized && c > 5000) continue;
    const auto most = static_cast<std::uint32_t>(cuda::most_selected(static_cast<std::int32_t>(c)));
    for (const std::uint32_t count : {1u, 2u, 40u, most}) {
      if (count > most) continue;
      cpu::testing::Random random(++seed);
      const TopLogitsShape shape = {.rows = 1 + static_cast<std::uint32_t>(seed % 3),
                                    .cols = c,
                                    .stride = c + static_cast<std::uint32_t>(seed % 2),
                                    .count = count};
      CAPTURE(shape.text());
      std::vector<float> logits =
          random_floats(std::size_t{shape.rows} * shape.stride, 20.0f, random);
      if (seed % 2 == 0) {  // many equals, both zeros
        for (float& x : logits) x = std::nearbyint(x / 8) * (x < 0 ? -1.0f : 1.0f);
      }
      if (seed % 5 == 0) logits[0] = -std::numeric_limits<float>::infinity();
      CHECK(check_top_logits(cuda::select_in_chunks, cuda::select_of_chunks, shape, logits,
                             seed % 4 < 2) == "");
    }
  }
  CHECK(cuda::most_selected(262144) == 64);
  CHECK(cuda::most_selected(4096 * 4096 + 1) == 0);
}

TEST_CASE("the largest logits: NaN of either sign and infinity are among them") {
  const TopLogitsShape shape = {.rows = 2, .cols = 5000, .stride = 5000, .count = 3};
  std::vector<float> logits(10000, -1.0f);
  logits[7] = -std::numeric_limits<float>::quiet_NaN();
  logits[4999] = std::numeric_limits<float>::infinity();
  logits[5000 + 4200] = std::numeric_limits<float>::quiet_NaN();
  for (std::size_t i = 0; i < 4000; ++i) logits[5000 + i] = -std::numeric_limits<float>::infinity();
  CHECK(check_top_logits(cuda::select_in_chunks, cuda::select_of_chunks, shape, logits) == "");
  const std::vector<float> nothing(10000, -std::numeric_limits<float>::infinity());
  CHECK(check_top_logits(cuda::select_in_chunks, cuda::select_of_chunks, shape, nothing) == "");
}

}  // namespace
}  // namespace sluice::simt

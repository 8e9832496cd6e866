// Faults that were put into copies of the kernels that go through rows (tests/simt/row_mutants.py):
// the emulator or the comparison with the plain loop must catch each.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/simt/activate_problem.h"
#include "tests/simt/experts_problem.h"
#include "tests/simt/matvec_float_problem.h"
#include "tests/simt/norm_problem.h"
#include "tests/simt/row_kernels.h"
#include "tests/simt/top_logits_problem.h"

namespace sluice::simt {
namespace {

const RowKernels kRealKernels = ROW_KERNELS("", "", cuda);

std::string check_norms(const RowKernels& kernels) {
  NormProblem odd({.rows = 2, .cols = 37, .add = true, .add_bias = true, .add_norm = true}, 1);
  NormProblem many({.rows = 80, .cols = 7}, 4);  // one in ten shows a sum's last bit
  NormProblem codes({.cols = 1056, .add = true, .add_norm = true, .quantized = true}, 2);
  NormProblem gathered({.cols = 64, .add = true, .gather = true}, 3);
  return first_of({odd.check(kernels.norm), many.check(kernels.norm),
                   codes.check(kernels.norm, true), gathered.check(kernels.norm)});
}

// A matrix of 5 GB of which the last row is there: its result is of no interest, its place is.
std::string check_far_row(const RowKernels& kernels) {
  constexpr std::int32_t kRows = 640000;
  constexpr std::int32_t kCols = 2048;
  const std::vector<float> zeros(kCols);
  Buffer weights("weights", std::size_t{kRows} * kCols * 4);
  weights.write(std::size_t{kRows - 1} * kCols * 4, zeros.data(), kCols * 4);
  Filled<float> x("x", zeros);
  Buffer out("out", std::size_t{kRows} * 4);
  cuda::MatvecFloatArgs args = {};
  args.weights = weights.pointer<const std::uint8_t>();
  args.x = x.begin();
  args.out = out.pointer<float>();
  args.x_stride = kCols;
  args.out_stride = kRows;
  args.rows = kRows;
  args.cols = kCols;
  args.x_rows = 1;
  const auto blocks = static_cast<std::uint32_t>(cuda::matvec_float_item_blocks(kRows));
  // Only the last row's warp; the others of its block have no weights.
  return run({.blocks = blocks, .threads = cuda::kMatvecFloatThreads, .first_block = blocks - 1},
             [&] {
               if (warp() == 7) kernels.matvec_float(args);
             });
}

std::string check_floats(const RowKernels& kernels) {
  using cuda::FloatType;
  MatvecFloatProblem five({.type = FloatType::kF32, .rows = 9, .cols = 250, .x_rows = 5}, 1);
  MatvecFloatProblem one({.type = FloatType::kF16, .rows = 3, .cols = 255, .x_rows = 1}, 2);
  return first_of(
      {check_activate(kernels.activate, {.rows = 2, .cols = 96, .stride = 97}, 1),
       check_activate(kernels.activate,
                      {.cols = 1056, .stride = 1056, .gelu = true, .quantized = true}, 2),
       check_softcap(kernels.softcap, 1027, 30.0f, 1), five.check(kernels.matvec_float),
       one.check(kernels.matvec_float), check_far_row(kernels)});
}

std::string check_experts(const RowKernels& kernels) {
  cpu::testing::Random random(1);
  std::vector<float> logits = random_floats(std::size_t{3} * 60, 3.0f, random);
  logits[10] = logits[20] = 4.0f;
  logits[70] = NAN;
  // Few experts and many pairs: lanes of a warp share counts; seven pairs an expert and an item.
  const ExpertShape shape = {.rows = 150, .experts = 5, .used = 2, .item_rows = 16};
  std::vector<std::int32_t> experts(shape.pairs());
  for (std::size_t i = 0; i < experts.size(); ++i) experts[i] = static_cast<int>(i * i % 7 % 5);
  // One row more than an item has.
  const ExpertShape rest = {.rows = 5, .experts = 2, .used = 1, .item_rows = 4};
  return first_of({check_route(kernels.route, {.rows = 3, .experts = 60, .used = 4}, logits),
                   check_order(kernels.order, shape, experts),
                   check_order(kernels.order, shape, experts, true),
                   check_order(kernels.order, rest, {1, 1, 1, 1, 1}),
                   check_expert_sum(kernels.sum, {.rows = 2, .cols = 37, .used = 3}, 1)});
}

std::string check_top(const RowKernels& kernels) {
  cpu::testing::Random random(2);
  const TopLogitsShape shape = {.rows = 2, .cols = 4103, .stride = 4103, .count = 20};
  std::vector<float> logits = random_floats(std::size_t{2} * 4103, 9.0f, random);
  // Pairs that differ in the last bit only, the smaller one first: the twentieth is one of them.
  for (std::size_t i = 0; i < 21; ++i) {
    const float x = 10.0f + static_cast<float>(i / 2);
    logits[100 * i + 3] = i % 2 == 0 ? x : std::nextafter(x, 0.0f);
  }
  for (std::size_t i = 0; i < 4103; ++i) logits[4103 + i] = i % 3 == 0 ? -1.0f : -2.0f;
  return check_top_logits(kernels.in_chunks, kernels.of_chunks, shape, logits);
}

// What the checks say about some kernels: the first complaint, or nothing.
std::string complaint(const RowKernels& kernels) {
  if (std::string found = check_norms(kernels); !found.empty()) return found;
  if (std::string found = check_floats(kernels); !found.empty()) return found;
  if (std::string found = check_top(kernels); !found.empty()) return found;
  return check_experts(kernels);
}

TEST_CASE("kernels without a fault are not complained about") {
  CHECK(complaint(kRealKernels) == "");
}

TEST_CASE("each seeded fault is caught") {
  for (const RowKernels& kernels : kFaultyRowKernels) {
    const std::string caught = complaint(kernels);
    CHECK_MESSAGE(!caught.empty(), kernels.name << ": not caught: " << kernels.what);
    MESSAGE(kernels.name << " (" << kernels.what << "): " << caught);
  }
  CHECK(kFaultyRowKernels.size() >= 20);
}

}  // namespace
}  // namespace sluice::simt

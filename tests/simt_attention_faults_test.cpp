// Faults that were put into copies of the attention kernels on purpose
// (tests/simt/attention_mutants.py): the emulator or the comparison with plain loops must catch
// each.
#include <doctest/doctest.h>

#include <limits>
#include <string>

#include "cuda/kernels/attention.cuh"
#include "cuda/kernels/attention_merge.cuh"
#include "cuda/kernels/quantize_pages.cuh"
#include "cuda/kernels/rope.cuh"
#include "tests/simt/attention_problem.h"
#include "tests/simt/quantize_pages_problem.h"
#include "tests/simt/rope_problem.h"

// The kernels of a namespace, as a type.
#define KERNELS_OF(name)                                                \
  struct name##_kernels {                                               \
    template <class Pages>                                              \
    static void rope(const sluice::cuda::RopeArgs& args) {              \
      sluice::cuda::name::rope_and_store<Pages>(args);                  \
    }                                                                   \
    template <class Pages>                                              \
    static void attend(const sluice::cuda::AttentionArgs& args) {       \
      sluice::cuda::name::attend_chunk<Pages>(args);                    \
    }                                                                   \
    static void merge(const sluice::cuda::AttentionArgs& args) {        \
      sluice::cuda::name::merge_chunks(args);                           \
    }                                                                   \
    static void quantize(const sluice::cuda::QuantizePagesArgs& args) { \
      sluice::cuda::name::quantize_pages(args);                         \
    }                                                                   \
  };

#include "attention_mutants.h"

namespace sluice::simt {
namespace {

struct real_kernels {
  template <class Pages>
  static void rope(const cuda::RopeArgs& args) {
    cuda::rope_and_store<Pages>(args);
  }
  template <class Pages>
  static void attend(const cuda::AttentionArgs& args) {
    cuda::attend_chunk<Pages>(args);
  }
  static void merge(const cuda::AttentionArgs& args) { cuda::merge_chunks(args); }
  static void quantize(const cuda::QuantizePagesArgs& args) { cuda::quantize_pages(args); }
};

// Problems that many kernels are tried on.
struct Problems {
  RopeProblem halves = {{.rows = 7,
                         .heads = 3,
                         .kv_heads = 1,
                         .head_dim = 48,
                         .rope_dims = 32,
                         .has_bias = true,
                         .has_norms = true},
                        1};
  RopeProblem outliers = {{.rows = 1,
                           .heads = 2,
                           .kv_heads = 2,
                           .head_dim = 64,
                           .rope_dims = 64,
                           .interleaved = true,
                           .outliers = 2},
                          2};
  RopeProblem far = {{.heads = 1, .kv_heads = 1, .first_block = 2000000}, 3};
  // 21 columns: a tile that begins in the middle of a row; a window that cuts the first page.
  AttentionProblem runs = {{.head_dim = 64,
                            .group = 3,
                            .kv_heads = 2,
                            .runs = {{7, 290}, {1, 5}},
                            .window = 270,
                            .outliers = 1},
                           4};
  // Nine columns, some of which see nothing of a piece that others see.
  AttentionProblem short_window = {{.head_dim = 64, .group = 3, .runs = {{3, 514}}, .window = 2},
                                   5};
  AttentionProblem poisoned = {
      {.head_dim = 32, .runs = {{1, 40}}}, 6, [](const AttentionProblem::Token& token) {
        if (token.position == 35) token.value[3] = std::numeric_limits<float>::infinity();
      }};
  AttentionProblem far_cache = {{.head_dim = 32, .runs = {{1, 3}}, .first_block = 2000000}, 7};
  // The same with f16: padding, and values that are not finite where some rows of a tile see them
  // and others do not, at both ends.
  RopeProblem halves_f16 = {{.pages = cuda::PageKind::kF16,
                             .rows = 7,
                             .heads = 3,
                             .kv_heads = 1,
                             .head_dim = 48,
                             .rope_dims = 32},
                            8};
  AttentionProblem runs_f16 = {{.pages = cuda::PageKind::kF16,
                                .head_dim = 48,
                                .group = 3,
                                .kv_heads = 2,
                                .runs = {{7, 290}, {1, 5}},
                                .window = 270},
                               9};
  AttentionProblem begin_f16 = {
      {.pages = cuda::PageKind::kF16, .head_dim = 32, .runs = {{4, 66}}, .window = 64},
      10,
      [](const AttentionProblem::Token& token) {
        if (token.position == 0) token.value[3] = std::numeric_limits<float>::infinity();
      }};
  AttentionProblem end_f16 = {{.pages = cuda::PageKind::kF16, .head_dim = 32, .runs = {{4, 64}}},
                              11,
                              [](const AttentionProblem::Token& token) {
                                if (token.position == 63)
                                  token.value[3] = std::numeric_limits<float>::infinity();
                              }};
  // 4 bits: rows of two blocks and of two runs; a key, a value and a query that are not finite
  // where some see them.
  QuantizePagesProblem blocks = {{.blocks = 2, .kv_heads = 2, .head_dim = 48}, 12};
  QuantizePagesProblem infinite = {
      {.head_dim = 32}, 13, [](HalfBlock& keys, HalfBlock& values) {
        keys[7][5] = float_to_half(std::numeric_limits<float>::infinity());
        values[7][5] = float_to_half(-std::numeric_limits<float>::infinity());
      }};
  AttentionProblem runs_int4 = {{.pages = cuda::PageKind::kInt4,
                                 .head_dim = 48,
                                 .group = 3,
                                 .kv_heads = 2,
                                 .runs = {{7, 290}, {1, 35}},
                                 .window = 260},
                                14};
  AttentionProblem unseen_int4 = {
      {.pages = cuda::PageKind::kInt4, .head_dim = 32, .runs = {{2, 70}}, .window = 50},
      15,
      [](const AttentionProblem::Token& token) {
        if (token.position == 5) token.value[3] = std::numeric_limits<float>::infinity();
      }};
  AttentionProblem infinite_int4 = {
      {.pages = cuda::PageKind::kInt4, .head_dim = 32, .runs = {{1, 70}}},
      16,
      [](const AttentionProblem::Token& token) {
        if (token.position == 5) token.key[3] = 1e30f;
      }};
};

// What the checks say about some kernels: the first complaint, or nothing.
template <class Kernels>
std::string complaint(Problems& problems) {
  for (RopeProblem* problem :
       {&problems.halves, &problems.outliers, &problems.far, &problems.halves_f16}) {
    const std::string text = visit_written_pages(problem->shape().pages, [&](auto pages) {
      return problem->check(Kernels::template rope<decltype(pages)>);
    });
    if (!text.empty()) return text;
  }
  for (QuantizePagesProblem* problem : {&problems.blocks, &problems.infinite}) {
    const std::string text = problem->check(Kernels::quantize);
    if (!text.empty()) return text;
  }
  for (AttentionProblem* problem :
       {&problems.runs, &problems.short_window, &problems.poisoned, &problems.far_cache,
        &problems.runs_f16, &problems.begin_f16, &problems.end_f16, &problems.runs_int4,
        &problems.unseen_int4, &problems.infinite_int4}) {
    for (const bool one_piece_chunks : {true, false}) {
      const std::string text = visit_pages(problem->shape().pages, [&](auto pages) {
        return problem->check(Kernels::template attend<decltype(pages)>, Kernels::merge,
                              one_piece_chunks);
      });
      if (!text.empty()) return text;
    }
  }
  return {};
}

TEST_CASE("attention kernels without a fault are not complained about") {
  Problems problems;
  CHECK(complaint<real_kernels>(problems) == "");
}

TEST_CASE("each seeded fault of the attention kernels is caught") {
  Problems problems;
  int faults = 0;
  for_each_fault([&]<class Kernels>(const std::string& name, const std::string& what) {
    ++faults;
    const std::string caught = complaint<Kernels>(problems);
    CHECK_MESSAGE(!caught.empty(), name << ": not caught: " << what);
    MESSAGE(name << " (" << what << "): " << caught);
  });
  CHECK(faults >= 55);
}

}  // namespace
}  // namespace sluice::simt

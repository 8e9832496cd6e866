// The GPU's attention, run by the emulator: each kernel with each kind of pages against plain
// loops, to the bit, at awkward shapes, and the loops against attention in double precision.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "cuda/kernels/attention.cuh"
#include "cuda/kernels/attention_merge.cuh"
#include "cuda/kernels/quantize_pages.cuh"
#include "cuda/kernels/rope.cuh"
#include "tests/sanitized.h"
#include "tests/simt/attention_problem.h"
#include "tests/simt/quantize_pages_problem.h"
#include "tests/simt/rope_problem.h"

namespace sluice::simt {
namespace {

using cuda::PageKind;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr PageKind kKinds[] = {PageKind::kInt8, PageKind::kF16, PageKind::kInt4};
// Kinds of pages that single tokens are written to.
constexpr PageKind kWritten[] = {PageKind::kInt8, PageKind::kF16};

// -- Rotation and the cache ----------------------------------------------------------------------

void check_problem(RopeProblem& problem, bool reversed) {
  CAPTURE(problem.shape().text());
  visit_written_pages(problem.shape().pages, [&](auto pages) {
    CHECK(problem.check(cuda::rope_and_store<decltype(pages)>, reversed) == "");
  });
}

void check_rope(RopeShape shape, std::uint64_t seed) {
  for (const PageKind pages : kWritten) {
    shape.pages = pages;
    RopeProblem problem(shape, seed);
    check_problem(problem, seed % 2 == 0);
  }
}

TEST_CASE("queries, keys and values have the bits of the CPU's, whatever the head") {
  std::uint64_t seed = 1;
  for (const std::uint32_t head_dim : {1u, 2u, 32u, 33u, 64u, 80u, 96u, 112u, 128u, 255u, 256u}) {
    for (const bool interleaved : {false, true}) {
      for (const bool has_norms : {false, true}) {
        const std::uint32_t rope_dims = (seed % 3 == 0 ? head_dim / 2 : head_dim) / 2 * 2;
        check_rope({.rows = 1 + static_cast<std::uint32_t>(seed % 7),
                    .heads = 6,
                    .kv_heads = seed % 2 == 0 ? 1u : 3u,
                    .head_dim = head_dim,
                    .rope_dims = rope_dims,
                    .interleaved = interleaved,
                    .has_bias = seed % 5 < 3,
                    .has_norms = has_norms},
                   seed);
        ++seed;
      }
    }
  }
}

TEST_CASE("queries, keys and values: every slot of a block, outliers") {
  check_rope({.rows = 40, .heads = 3, .kv_heads = 1, .head_dim = 48, .rope_dims = 32}, 100);
  // More pairs than a warp has lanes.
  check_rope({.rows = 3, .heads = 8, .kv_heads = 4, .outliers = 3}, 101);
  check_rope({.rows = 2,
              .heads = 2,
              .kv_heads = 2,
              .head_dim = 96,
              .rope_dims = 96,
              .interleaved = true,
              .has_bias = true,
              .outliers = 37},
             102);
}

TEST_CASE("queries, keys and values: tiny, large, and beyond the largest f16 or its scale") {
  for (const float magnitude : {0.0f, 1e-35f, 1e-20f, 1e-7f, 1e-4f, 1e5f, 1e7f, 1e30f}) {
    check_rope({.rows = 2, .heads = 2, .head_dim = 80, .rope_dims = 80, .magnitude = magnitude},
               103);
  }
}

TEST_CASE("queries, keys and values: what is not finite poisons its group and no other") {
  for (const float bad : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
    // In a query, a key and a value, in dimensions that are not rotated.
    for (const PageKind pages : kWritten) {
      RopeProblem problem(
          {.pages = pages, .rows = 2, .heads = 2, .kv_heads = 1, .head_dim = 96, .rope_dims = 32},
          104, [&](std::vector<float>& qkv) {
            for (const std::size_t head : {0, 2, 3}) qkv[96 * head + 70] = bad;
          });
      check_problem(problem, false);
    }
  }
}

TEST_CASE("queries, keys and values: a cache of many gigabytes") {
  check_rope({.rows = 9,
              .heads = 2,
              .kv_heads = 2,
              .head_dim = 128,
              .rope_dims = 128,
              .first_block = 300000},
             105);
}

// -- Blocks of 4 bits ----------------------------------------------------------------------------

void check_quantize(QuantizePagesProblem problem, bool reversed = false) {
  CAPTURE(problem.shape().text());
  CHECK(problem.check(cuda::quantize_pages, reversed) == "");
}

TEST_CASE("blocks of 4 bits have the bits of the CPU's, whatever the head") {
  std::uint64_t seed = 300;
  for (const std::uint32_t head_dim : {1u, 7u, 32u, 33u, 64u, 80u, 128u, 255u, 256u}) {
    const std::uint32_t blocks = 1 + static_cast<std::uint32_t>(seed % 3);
    check_quantize({{.blocks = blocks, .kv_heads = 1 + blocks % 2, .head_dim = head_dim}, seed},
                   seed % 2 == 0);
    ++seed;
  }
}

TEST_CASE("blocks of 4 bits: zeros, tiny, large, one value, one that stands out") {
  for (const float magnitude : {0.0f, 6e-8f, 1e-6f, 1e-4f, 1e3f, 65504.0f}) {
    check_quantize({{.kv_heads = 2, .head_dim = 48, .magnitude = magnitude}, 310});
  }
  check_quantize({{.head_dim = 48}, 311, [](HalfBlock& keys, HalfBlock& values) {
                    for (HalfBlock* block : {&keys, &values}) {
                      for (auto& token : *block) token.fill(float_to_half(-1.7f));
                    }
                  }});
  check_quantize({{.head_dim = 48}, 312, [](HalfBlock& keys, HalfBlock& values) {
                    for (HalfBlock* block : {&keys, &values}) {
                      (*block)[5][40] = float_to_half(900.0f);
                      for (auto& token : *block) token[3] = float_to_half(-60000.0f);
                    }
                  }});
}

TEST_CASE("blocks of 4 bits: what is not finite poisons what it shares a scale with and no more") {
  for (const float bad : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
    check_quantize({{.head_dim = 80}, 313, [&](HalfBlock& keys, HalfBlock& values) {
                      for (HalfBlock* block : {&keys, &values})
                        (*block)[31][70] = float_to_half(bad);
                    }});
  }
}

TEST_CASE("blocks of 4 bits: a cache of many gigabytes") {
  check_quantize({{.blocks = 2, .kv_heads = 2, .head_dim = 128, .first_block = 300000}, 314});
}

// -- Attention -----------------------------------------------------------------------------------

void check_problem(AttentionProblem& problem, std::uint64_t seed) {
  CAPTURE(problem.shape().text());
  visit_pages(problem.shape().pages, [&](auto pages) {
    using Pages = decltype(pages);
    // The same bits in chunks of one piece and in one chunk.
    for (const bool one_piece_chunks : {true, false}) {
      CHECK(problem.check(cuda::attend_chunk<Pages>, cuda::merge_chunks, one_piece_chunks,
                          seed % 2 == 0) == "");
      if (problem.most_columns() <= cuda::kNarrowColumns) {
        CHECK(problem.check(cuda::attend_narrow_chunk<Pages>, cuda::merge_chunks,
                            one_piece_chunks) == "");
      }
    }
  });
}

void check_attention(AttentionShape shape, std::uint64_t seed) {
  for (const PageKind pages : kKinds) {
    shape.pages = pages;
    AttentionProblem problem(shape, seed);
    check_problem(problem, seed);
  }
}

TEST_CASE("attention: contexts around pages and pieces, head dims, groups, runs") {
  const std::uint32_t contexts[] = {1, 31, 32, 33, 255, 256, 257, 700};
  const std::uint32_t head_dims[] = {32, 64, 80, 96, 112, 128, 256};
  const std::uint32_t groups[] = {1, 3, 4, 8, 20};
  const std::uint32_t runs[] = {1, 5, 17};
  std::uint64_t seed = 1;
  for (std::size_t i = 0; i < std::size(contexts); ++i) {
    for (std::size_t j = 0; j < (test::kSanitized ? 1 : 2); ++j, ++seed) {
      const std::uint32_t context = contexts[i];
      const std::uint32_t group = groups[(i + j) % std::size(groups)];
      const std::uint32_t rows = runs[(i + j) % std::size(runs)];
      const AttentionShape shape = {
          .head_dim = head_dims[(i + 2 * j) % std::size(head_dims)],
          .group = group,
          .kv_heads = group < 8 ? 2u : 1u,
          .runs = {{.rows = std::min(context, group < 8 || context < 300 ? rows : 5u),
                    .context = context}}};
      check_attention(shape, seed);
    }
  }
}

TEST_CASE("attention: many rows and a long context") {
  check_attention({.head_dim = 80, .group = 5, .runs = {{64, 1013}}}, 25);
  check_attention({.head_dim = 64, .group = 8, .runs = {{2, 1025}, {1, 769}}, .window = 600}, 26);
}

TEST_CASE("attention: head dims that are no multiple of 4 or of 32") {
  std::uint64_t seed = 30;
  for (const std::uint32_t head_dim : {1u, 7u, 34u, 50u, 68u}) {
    check_attention({.head_dim = head_dim, .group = 3, .runs = {{.rows = 2, .context = 40}}},
                    ++seed);
  }
}

TEST_CASE("attention: windows") {
  std::uint64_t seed = 40;
  for (const std::uint32_t window : {1u, 2u, 31u, 33u, 256u, 257u, 300u}) {
    check_attention({.head_dim = 32,
                     .group = 5,
                     .runs = {{.rows = 7, .context = 515}, {.rows = 3, .context = 4}},
                     .window = window},
                    ++seed);
  }
  // Rows of one tile that see different pieces, and a first piece that some see nothing of.
  check_attention({.head_dim = 64, .group = 1, .runs = {{.rows = 16, .context = 520}}, .window = 8},
                  60);
}

TEST_CASE("attention: several sequences in a pass, softcap, outliers") {
  check_attention({.head_dim = 64,
                   .group = 4,
                   .kv_heads = 2,
                   .runs = {{1, 33}, {5, 300}, {1, 1}, {17, 50}, {2, 64}},
                   .softcap = 2.5f},
                  70);
  check_attention(
      {.head_dim = 96, .group = 7, .kv_heads = 3, .runs = {{3, 270}, {1, 5}}, .outliers = 3}, 71);
  check_attention({.head_dim = 32,
                   .group = 16,
                   .runs = {{1, 100}},
                   .window = 70,
                   .softcap = 10.0f,
                   .outliers = 1},
                  72);
}

TEST_CASE("attention: large queries and values") {
  // Scores of thousands: all but a few tokens have no weight.
  check_attention({.head_dim = 128,
                   .group = 2,
                   .runs = {{3, 290}},
                   .query_magnitude = 1e5f,
                   .value_magnitude = 1e5f},
                  80);
}

TEST_CASE("attention: tiny keys and values, subnormal as halves") {
  check_attention({.head_dim = 96,
                   .group = 4,
                   .runs = {{3, 70}},
                   .query_magnitude = 1e-3f,
                   .value_magnitude = 3e-6f},
                  81);
}

TEST_CASE("attention: a token that is not finite poisons those who see it and no one else") {
  for (const PageKind pages : kKinds) {
    for (const float bad : {kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
      for (const bool in_key : {true, false}) {
        AttentionProblem problem(
            {.pages = pages, .head_dim = 64, .group = 3, .runs = {{6, 261}}, .window = 200}, 90,
            [&](const AttentionProblem::Token& token) {
              if (token.position != 258) return;
              (in_key ? token.key : token.value)[40] = bad;
            });
        // Rows are positions 255 to 260. An infinite f16 is a number that can be summed, so what it
        // makes is not finite or, where it makes a weight of nothing, not there.
        const std::size_t width = 3 * 64;
        CHECK(std::isfinite(problem.expected()[2 * width + 40]));
        if (pages == PageKind::kInt8 || !in_key || std::isnan(bad)) {
          CHECK(!std::isfinite(problem.expected()[3 * width + 40]));
          CHECK(!std::isfinite(problem.expected()[5 * width + 40]));
        }
        check_problem(problem, 90);
      }
    }
  }
}

TEST_CASE("attention: a row's bits do not depend on its run") {
  for (const PageKind pages : kKinds) {
    const AttentionShape all = {
        .pages = pages, .head_dim = 64, .group = 3, .runs = {{17, 300}}, .window = 280};
    AttentionProblem among(all, 95);
    check_problem(among, 95);
    const std::size_t width = std::size_t{all.heads()} * all.head_dim;
    for (const std::uint32_t row : {0u, 5u, 16u}) {
      AttentionShape one = all;
      one.runs = {{1, 300 - 16 + row}};
      AttentionProblem alone(one, 95);
      check_problem(alone, 95);
      for (std::size_t i = 0; i < width; ++i) {
        REQUIRE(float_bits(alone.expected()[i]) == float_bits(among.expected()[row * width + i]));
      }
    }
  }
}

TEST_CASE("attention over 4 bits: every number of rows, each place of a block") {
  std::uint64_t seed = 110;
  for (const std::uint32_t context : {31u, 32u, 33u, 63u, 64u, 65u, 255u, 256u, 257u, 288u}) {
    for (const std::uint32_t rows : {1u, 2u, 31u, 33u, 64u}) {
      AttentionProblem problem({.pages = PageKind::kInt4,
                                .head_dim = seed % 3 == 0 ? 40u : 64u,
                                .group = 1 + static_cast<std::uint32_t>(seed % 4),
                                .runs = {{std::min(rows, context), context}, {1, 1 + context / 2}},
                                .window = seed % 5 == 0 ? 40u : 0u},
                               seed);
      check_problem(problem, seed);
      ++seed;
    }
  }
}

TEST_CASE("attention over 4 bits: what is not finite poisons those who see it, and no one else") {
  for (const float bad : {kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
    for (const bool in_key : {true, false}) {
      // Rows are positions 125 to 140; the last two of them do not see token 72 any more.
      AttentionProblem problem(
          {.pages = PageKind::kInt4, .head_dim = 64, .group = 3, .runs = {{16, 141}}, .window = 67},
          92, [&](const AttentionProblem::Token& token) {
            if (token.position == 72) (in_key ? token.key : token.value)[40] = bad;
          });
      const std::size_t width = 3 * 64;
      CHECK(!std::isfinite(problem.expected()[13 * width + 40]));
      // A key's scale is that of all tokens of its block, a value's of its own token.
      CHECK(std::isfinite(problem.expected()[14 * width + 40]) == !in_key);
      check_problem(problem, 92);
    }
  }
}

TEST_CASE("attention: a cache of many gigabytes") {
  check_attention(
      {.head_dim = 128, .group = 4, .kv_heads = 2, .runs = {{2, 70}}, .first_block = 300000}, 97);
}

TEST_CASE("attention is as exact as its weights") {
  for (const PageKind pages : kKinds) {
    std::uint64_t seed = 200;
    for (const std::uint32_t context : {1u, 31u, 33u, 256u, 700u, 3000u}) {
      for (const float softcap : {0.0f, 5.0f}) {
        for (const std::uint32_t outliers : {0u, 2u}) {
          const AttentionProblem problem({.pages = pages,
                                          .head_dim = 64,
                                          .group = 4,
                                          .runs = {{std::min(context, 3u), context}},
                                          .softcap = softcap,
                                          .outliers = outliers,
                                          .query_magnitude = 8.0f,
                                          .value_magnitude = 6e4f},
                                         ++seed);
          CAPTURE(problem.shape().text());
          // Weights are floats with f16 pages, of 15 bits with int8; with int4, queries are rounded
          // too.
          const double error = problem.largest_error();
          CHECK(error < (pages == PageKind::kF16 ? 1e-5 : pages == PageKind::kInt8 ? 1e-4 : 1e-2));
        }
      }
    }
  }
}

}  // namespace
}  // namespace sluice::simt

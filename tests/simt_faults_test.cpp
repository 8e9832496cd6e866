// Faults that were put into copies of the kernels on purpose (tests/simt/mutants.py): the emulator
// or the comparison with the plain loop must catch each.
#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <vector>

#include "cuda/kernels/gemm.cuh"
#include "cuda/kernels/matvec_dp4a.cuh"
#include "cuda/kernels/matvec_mma.cuh"
#include "cuda/kernels/quantize.cuh"
#include "tests/simt/matvec_problem.h"
#include "tests/simt/qkv_problem.h"

namespace sluice::simt {
enum class Check : std::uint8_t {
  kMatvec,
  kFarTile,
  kKTypes,
  kExperts,
  kGated,
  kQkv,
  kGemm,
  kGemmExperts,
  kQuantize
};
}

// The kernels of a namespace, as a type.
#define KERNELS_OF(name)                                                                 \
  struct name##_kernels {                                                                \
    using MatvecArgs = sluice::cuda::name::MatvecArgs;                                   \
    using QuantizeArgs = sluice::cuda::name::QuantizeArgs;                               \
    using GatedArgs = sluice::cuda::name::GatedArgs;                                     \
    using QkvArgs = sluice::cuda::name::QkvArgs;                                         \
    template <class Tiles, int kXRows>                                                   \
    static void qkv_mma(QkvArgs args) {                                                  \
      sluice::cuda::name::qkv_mma<Tiles, kXRows>(args);                                  \
    }                                                                                    \
    template <class Tiles, int kXRows>                                                   \
    static void gated_dp4a(GatedArgs args) {                                             \
      sluice::cuda::name::gated_dp4a<Tiles, kXRows>(args);                               \
    }                                                                                    \
    template <class Tiles, int kXRows>                                                   \
    static void gated_mma(GatedArgs args) {                                              \
      sluice::cuda::name::gated_mma<Tiles, kXRows>(args);                                \
    }                                                                                    \
    template <class Tiles, int kXRows>                                                   \
    static void dp4a(MatvecArgs args) {                                                  \
      sluice::cuda::name::matvec_dp4a<Tiles, kXRows>(args);                              \
    }                                                                                    \
    template <class Tiles, int kXRows>                                                   \
    static void mma(MatvecArgs args) {                                                   \
      sluice::cuda::name::matvec_mma<Tiles, kXRows>(args);                               \
    }                                                                                    \
    template <class Tiles>                                                               \
    static void gemm(MatvecArgs args) {                                                  \
      sluice::cuda::name::gemm<Tiles>(args);                                             \
    }                                                                                    \
    static void quantize(QuantizeArgs args) { sluice::cuda::name::quantize_rows(args); } \
  };

#include "mutants.h"

namespace sluice::simt {
namespace {

using cuda::TilesQ4_0;
using cuda::TilesQ8_0;

struct real_kernels {
  using MatvecArgs = cuda::MatvecArgs;
  using QuantizeArgs = cuda::QuantizeArgs;
  using GatedArgs = cuda::GatedArgs;
  using QkvArgs = cuda::QkvArgs;
  template <class Tiles, int kXRows>
  static void qkv_mma(QkvArgs args) {
    cuda::qkv_mma<Tiles, kXRows>(args);
  }
  template <class Tiles, int kXRows>
  static void gated_dp4a(GatedArgs args) {
    cuda::gated_dp4a<Tiles, kXRows>(args);
  }
  template <class Tiles, int kXRows>
  static void gated_mma(GatedArgs args) {
    cuda::gated_mma<Tiles, kXRows>(args);
  }
  template <class Tiles, int kXRows>
  static void dp4a(MatvecArgs args) {
    cuda::matvec_dp4a<Tiles, kXRows>(args);
  }
  template <class Tiles, int kXRows>
  static void mma(MatvecArgs args) {
    cuda::matvec_mma<Tiles, kXRows>(args);
  }
  template <class Tiles>
  static void gemm(MatvecArgs args) {
    cuda::gemm<Tiles>(args);
  }
  static void quantize(QuantizeArgs args) { cuda::quantize_rows(args); }
};

template <class Kernels, class Tiles, int kXRows>
std::string check_dp4a(MatvecProblem& problem) {
  return problem.check_matvec(Kernels::template dp4a<Tiles, kXRows>,
                              cuda::matvec_shared_bytes<Tiles, kXRows>());
}
template <class Kernels, class Tiles, int kXRows>
std::string check_mma(MatvecProblem& problem) {
  return problem.check_matvec(Kernels::template mma<Tiles, kXRows>,
                              cuda::matvec_shared_bytes<Tiles, kXRows>());
}
template <class Kernels, class Tiles>
std::string check_gemm(MatvecProblem& problem) {
  return problem.check_gemm(Kernels::template gemm<Tiles>, cuda::gemm_shared_bytes<Tiles>());
}

// A matrix of 5 GB of which one tile is there: its results are of no interest, its place is.
template <class Kernels>
std::string check_far_tile() {
  constexpr std::uint32_t kRows = 4194304;
  constexpr std::uint32_t kCols = 2048;
  constexpr std::uint32_t kTile = kRows / 32 - 1;
  const std::size_t tile_bytes = cuda::packed_bytes(BlockType::kQ4_0, 32, kCols);
  Buffer weights("weights", cuda::packed_bytes(BlockType::kQ4_0, kRows, kCols));
  const std::vector<std::byte> zeros(tile_bytes);
  weights.write(kTile * tile_bytes, zeros.data(), tile_bytes);
  Buffer codes("x", kCols);
  Buffer scales("x_scale", kCols / 8);
  codes.write(0, zeros.data(), kCols);
  scales.write(0, zeros.data(), kCols / 8);
  Buffer out("out", std::size_t{kRows} * 4);
  typename Kernels::MatvecArgs args = {};
  args.weights = weights.pointer<const std::uint8_t>();
  args.x.q = codes.pointer<const std::int8_t>();
  args.x.scale = scales.pointer<const float>();
  args.out = out.pointer<float>();
  args.out_stride = kRows;
  args.rows = kRows;
  args.cols = kCols;
  args.x_rows = 1;
  return run({.blocks = kTile + 1,
              .threads = cuda::kMatvecThreads,
              .shared_bytes = cuda::matvec_shared_bytes<TilesQ4_0, 3>(),
              .first_block = kTile},
             [&] { Kernels::template dp4a<TilesQ4_0, 3>(args); });
}

template <class Kernels>
std::string check_quantize() {
  constexpr std::uint32_t kCols = 96;
  cpu::testing::Random random(1);
  std::vector<float> x(kCols);
  for (float& value : x) value = cpu::testing::uniform(random, -3.0f, 3.0f);
  Buffer in("x", kCols * 4);
  in.write(std::span<const float>(x));
  Buffer q("q", kCols);
  Buffer scale("scale", kCols / 8);
  Buffer sum("sum", kCols / 8);
  typename Kernels::QuantizeArgs args = {};
  args.x = in.pointer<const float>();
  args.out.q = q.pointer<std::int8_t>();
  args.out.scale = scale.pointer<float>();
  args.out.sum = sum.pointer<std::uint32_t>();
  args.x_stride = kCols;
  args.cols = kCols;
  std::string fault = run({.threads = cuda::kQuantizeThreads}, [&] { Kernels::quantize(args); });
  if (!fault.empty()) return fault;
  for (std::size_t group = 0; group < kCols / 32; ++group) {
    std::int8_t codes[32];
    if (scale.read<float>(group) != cpu::generic_quantize_group(&x[32 * group], 32, codes)) {
      return fmt::format("scale of group {} is wrong", group);
    }
  }
  return {};
}

// What a check says about some kernels: the first complaint, or nothing.
template <class Kernels, Check kCheck>
std::string complaint() {
  std::vector<std::string> found;
  if constexpr (kCheck == Check::kMatvec) {
    // 35 rows: a tail. 57 blocks: segments of eight, more than a ring has stages, the last with
    // one.
    static MatvecProblem three({BlockType::kQ4_0, 35, 32 * 57, 3}, 1);
    static MatvecProblem eleven({BlockType::kQ4_0, 35, 32 * 57, 11}, 2);
    static MatvecProblem few_blocks({BlockType::kQ8_0, 35, 32 * 5, 7}, 3);
    found = {check_dp4a<Kernels, TilesQ4_0, 3>(three), check_mma<Kernels, TilesQ4_0, 16>(eleven),
             check_mma<Kernels, TilesQ8_0, 8>(few_blocks)};
  } else if constexpr (kCheck == Check::kKTypes) {
    // Segments of three blocks: they begin and end within bundles.
    static MatvecProblem q5_k({BlockType::kQ5_K, 35, 768, 2}, 4);
    static MatvecProblem q6_k({BlockType::kQ6_K, 35, 768, 7}, 5);
    static MatvecProblem q2_k({BlockType::kQ2_K, 35, 256, 2}, 6);
    static MatvecProblem codebook({BlockType::kIQ4_NL, 35, 96, 2}, 7);
    found = {check_dp4a<Kernels, cuda::TilesQ5_K, 2>(q5_k),
             check_mma<Kernels, cuda::TilesQ6_K, 8>(q6_k),
             check_dp4a<Kernels, cuda::TilesWideHalves, 2>(q2_k),
             check_dp4a<Kernels, cuda::TilesIQ4_NL, 2>(codebook)};
  } else if constexpr (kCheck == Check::kExperts) {
    static MatvecProblem routed({BlockType::kQ4_0, 35, 96, 5}, 8,
                                Routing{2, {{1, 0, 2}, {1, 4, 0}, {0, 2, 1}}, {2, 0, 3, 1, 0}});
    found = {check_dp4a<Kernels, TilesQ4_0, 3>(routed)};
  } else if constexpr (kCheck == Check::kGated) {
    // Two pairs of tiles; segments of three blocks, of one the last.
    static MatvecProblem two({BlockType::kQ4_0, 128, 32 * 19, 2}, 11);
    static MatvecProblem eleven({BlockType::kQ4_K, 128, 256, 11}, 12);
    found = {two.check_gated(Kernels::template gated_dp4a<TilesQ4_0, 2>,
                             cuda::matvec_shared_bytes<TilesQ4_0, 2, 2>(), false),
             eleven.check_gated(Kernels::template gated_mma<cuda::TilesQ4_K, 16>,
                                cuda::matvec_shared_bytes<cuda::TilesQ4_K, 16, 2>(), true)};
  } else if constexpr (kCheck == Check::kQkv) {
    static QkvProblem eleven(
        BlockType::kQ4_0, 96,
        {.rows = 11, .heads = 2, .kv_heads = 1, .head_dim = 96, .rope_dims = 96}, 13);
    found = {eleven.check(Kernels::template qkv_mma<TilesQ4_0, 16>,
                          cuda::qkv_shared_bytes<TilesQ4_0, 16>())};
  } else if constexpr (kCheck == Check::kGemm) {
    // Two blocks of threads either way, the second ones with a row and a tile; segments of two.
    static MatvecProblem large({BlockType::kQ4_0, 129, 32 * 13, 65}, 9);
    found = {check_gemm<Kernels, TilesQ4_0>(large)};
  } else if constexpr (kCheck == Check::kGemmExperts) {
    static MatvecProblem routed({BlockType::kQ4_0, 35, 96, 5}, 10,
                                Routing{2, {{1, 0, 2}, {1, 4, 0}, {0, 2, 1}}, {2, 0, 3, 1, 0}});
    found = {check_gemm<Kernels, TilesQ4_0>(routed)};
  } else if constexpr (kCheck == Check::kFarTile) {
    found = {check_far_tile<Kernels>()};
  } else {
    found = {check_quantize<Kernels>()};
  }
  for (const std::string& text : found) {
    if (!text.empty()) return text;
  }
  return {};
}

TEST_CASE("kernels without a fault are not complained about") {
  CHECK(complaint<real_kernels, Check::kMatvec>() == "");
  CHECK(complaint<real_kernels, Check::kKTypes>() == "");
  CHECK(complaint<real_kernels, Check::kExperts>() == "");
  CHECK(complaint<real_kernels, Check::kGated>() == "");
  CHECK(complaint<real_kernels, Check::kQkv>() == "");
  CHECK(complaint<real_kernels, Check::kGemm>() == "");
  CHECK(complaint<real_kernels, Check::kGemmExperts>() == "");
  CHECK(complaint<real_kernels, Check::kFarTile>() == "");
  CHECK(complaint<real_kernels, Check::kQuantize>() == "");
}

TEST_CASE("each seeded fault is caught") {
  int faults = 0;
  for_each_fault(
      [&]<class Kernels, Check kCheck>(const std::string& name, const std::string& what) {
        ++faults;
        const std::string caught = complaint<Kernels, kCheck>();
        CHECK_MESSAGE(!caught.empty(), name << ": not caught: " << what);
        MESSAGE(name << " (" << what << "): " << caught);
      });
  CHECK(faults >= 30);
}

}  // namespace
}  // namespace sluice::simt

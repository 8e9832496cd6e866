// Query, key and value matrices, and what rotation and the cache make of their exact results: both
// problems are those of the kernels that qkv.cuh stands for.
#pragma once

#include "cuda/kernels/qkv.cuh"
#include "tests/simt/matvec_problem.h"
#include "tests/simt/rope_problem.h"

namespace sluice::simt {

class QkvProblem {
 public:
  QkvProblem(BlockType type, std::uint32_t cols, const RopeShape& shape, std::uint64_t seed)
      : width_(shape.all_heads() * shape.head_dim),
        product_({type, width_, cols, shape.rows}, seed),
        rope_(shape, seed, [&](std::vector<float>& qkv) {
          for (std::uint32_t r = 0; r < shape.rows; ++r) {
            for (std::uint32_t i = 0; i < width_; ++i) {
              qkv[std::size_t{r} * width_ + i] = product_.expected(r, i);
            }
          }
        }) {}

  std::string text() const { return product_.shape().text() + "; " + rope_.shape().text(); }

  // Runs a kernel and says what was wrong first, or nothing. Args is its QkvArgs.
  template <class Args>
  std::string check(void (*kernel)(Args), std::int32_t shared_bytes, bool reversed = false) {
    const RopeShape& shape = rope_.shape();
    Buffer qkv("qkv", std::size_t{shape.rows} * width_ * 4);
    Buffer arrivals("arrivals", std::size_t{shape.all_heads()} * 4);
    const std::vector<std::uint32_t> zeros(shape.all_heads());
    arrivals.write(std::span<const std::uint32_t>(zeros));
    const auto blocks = cuda::matvec_blocks(static_cast<std::int32_t>(width_), 0);
    return rope_.check_on({.blocks = static_cast<std::uint32_t>(blocks),
                           .threads = cuda::kMatvecThreads,
                           .shared_bytes = static_cast<std::size_t>(shared_bytes),
                           .reversed = reversed,
                           .scattered = true},
                          [&](const cuda::RopeArgs& rope) {
                            Args args = {};
                            product_.fill(args.product);
                            args.product.out = qkv.pointer<float>();
                            args.product.out_stride = width_;
                            args.rope = std::bit_cast<decltype(args.rope)>(rope);
                            args.rope.qkv = qkv.pointer<const float>();
                            args.arrivals = arrivals.pointer<std::uint32_t>();
                            args.half_pages = shape.pages == cuda::PageKind::kF16;
                            kernel(args);
                          });
  }

 private:
  std::uint32_t width_;
  MatvecProblem product_;
  RopeProblem rope_;
};

}  // namespace sluice::simt

// A matrix times some rows of activations: buffers for the kernels, and the results that they must
// give to the bit, from a plain loop over the stored blocks in the order that
// cuda/kernels/matvec.cuh documents.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "cuda/kernels/matvec.cuh"
#include "cuda/pack.h"
#include "src/backend/cpu/generic.h"
#include "src/quant/layout.h"
#include "tests/kernels_testing.h"

namespace sluice::simt {

struct MatvecShape {
  BlockType type = BlockType::kQ4_0;
  std::uint32_t rows = 1;
  std::uint32_t cols = 32;
  std::uint32_t x_rows = 1;
  float magnitude = 3.0f;  // of the activations

  std::string text() const {
    return fmt::format("{} {} x {}, {} activation rows up to {}", block_type_info(type).name, rows,
                       cols, x_rows, magnitude);
  }
};

class MatvecProblem {
 public:
  MatvecProblem(const MatvecShape& shape, std::uint64_t seed)
      : MatvecProblem(shape, seed, [](std::vector<std::byte>&, std::vector<float>&) {}) {}

  // `change(blocks, x)` may change the random weights and activations.
  template <class Change>
  MatvecProblem(const MatvecShape& shape, std::uint64_t seed, const Change& change)
      : shape_(shape),
        weights_("weights", cuda::packed_bytes(shape.type, shape.rows, shape.cols)),
        x_("x", std::size_t{shape.x_rows} * shape.cols),
        x_scale_("x_scale", std::size_t{shape.x_rows} * shape.cols / 8) {
    cpu::testing::Random random(seed);
    blocks_ = cpu::testing::random_blocks(shape.type, shape.rows, shape.cols, random);
    std::vector<float> x(std::size_t{shape.x_rows} * shape.cols);
    for (float& value : x) {
      value = cpu::testing::uniform(random, -shape.magnitude, shape.magnitude);
    }
    change(blocks_, x);

    std::vector<std::byte> packed(weights_.size());
    cuda::pack_tiles(shape.type, blocks_.data(), shape.rows, shape.cols, 0,
                     cuda::tile_count(shape.rows), packed.data());
    weights_.write(std::span<const std::byte>(packed));

    codes_.resize(x.size());
    scales_.resize(x.size() / 32);
    for (std::size_t i = 0; i < scales_.size(); ++i) {
      scales_[i] = cpu::generic_quantize_group(&x[32 * i], 32, &codes_[32 * i]);
    }
    x_.write(std::span<const std::int8_t>(codes_));
    x_scale_.write(std::span<const float>(scales_));
    compute_expected();
  }

  const MatvecShape& shape() const { return shape_; }
  float expected(std::uint32_t x_row, std::uint32_t row) const {
    return expected_[std::size_t{x_row} * shape_.rows + row];
  }
  // The exact sum and the sum of magnitudes, for judging the order itself.
  struct Exact {
    double sum = 0;
    double magnitude = 0;
  };
  Exact exact(std::uint32_t x_row, std::uint32_t row) const {
    Exact result;
    for (std::uint32_t block = 0; block < shape_.cols / 32; ++block) {
      const Term term = term_of(x_row, row, block);
      const double value = static_cast<double>(term.w_scale) * term.x_scale * term.dot;
      result.sum += value;
      result.magnitude += std::abs(value);
    }
    return result;
  }

  // Runs a kernel on the problem and says what was wrong first, or nothing. Args is the kernel's
  // MatvecArgs (a seeded fault has its own).
  template <class Args>
  std::string check(void (*kernel)(Args), std::int32_t shared_bytes, bool reversed = false) {
    const std::size_t stride = shape_.rows + 3;
    Buffer out("out", (shape_.x_rows * stride) * sizeof(float));
    Args args = {};
    args.weights = weights_.pointer<const std::uint8_t>();
    args.x.q = x_.pointer<const std::int8_t>();
    args.x.scale = x_scale_.pointer<const float>();
    args.out = out.pointer<float>();
    args.out_stride = static_cast<std::int64_t>(stride);
    args.rows = static_cast<std::int32_t>(shape_.rows);
    args.cols = static_cast<std::int32_t>(shape_.cols);
    args.x_rows = static_cast<std::int32_t>(shape_.x_rows);
    const Shape grid = {.blocks = cuda::tile_count(shape_.rows),
                        .threads = cuda::kMatvecThreads,
                        .shared_bytes = static_cast<std::size_t>(shared_bytes),
                        .reversed = reversed};
    if (std::string fault = run(grid, [&] { kernel(args); }); !fault.empty()) return fault;
    return compare(out, stride);
  }

 private:
  struct Term {
    float w_scale;
    float x_scale;
    std::int32_t dot;
  };

  Term term_of(std::uint32_t x_row, std::uint32_t row, std::uint32_t block) const {
    const std::size_t blocks = shape_.cols / 32;
    const std::byte* at = blocks_.data() + (std::size_t{row} * blocks + block) *
                                               block_type_info(shape_.type).block_bytes;
    std::int8_t q[32];
    float scale = 0;
    if (shape_.type == BlockType::kQ4_0) {
      scale = unpack_block<BlockQ4_0>(at, q);
    } else {
      scale = unpack_block<BlockQ8_0>(at, q);
    }
    const std::size_t group = x_row * blocks + block;
    std::int32_t dot = 0;
    for (std::size_t i = 0; i < 32; ++i) dot += q[i] * codes_[32 * group + i];
    return {scale, scales_[group], dot};
  }

  template <class Block>
  static float unpack_block(const std::byte* at, std::int8_t (&q)[32]) {
    Block block;
    std::memcpy(&block, at, sizeof block);
    unpack(block, q);
    return block.d.value();
  }

  void compute_expected() {
    const std::uint32_t blocks = shape_.cols / 32;
    const std::uint32_t some = (blocks + 7) / 8;  // blocks of a segment
    for (std::uint32_t x_row = 0; x_row < shape_.x_rows; ++x_row) {
      for (std::uint32_t row = 0; row < shape_.rows; ++row) {
        float sum = 0;
        for (std::uint32_t first = 0; first < blocks; first += some) {
          float acc = 0;
          for (std::uint32_t block = first; block < std::min(blocks, first + some); ++block) {
            const Term term = term_of(x_row, row, block);
            acc = __builtin_fmaf(term.w_scale * term.x_scale, static_cast<float>(term.dot), acc);
          }
          sum = first == 0 ? acc : sum + acc;
        }
        expected_.push_back(sum);
      }
    }
  }

  std::string compare(const Buffer& out, std::size_t stride) const {
    for (std::uint32_t x_row = 0; x_row < shape_.x_rows; ++x_row) {
      const std::size_t begin = x_row * stride;
      if (const auto at = out.first_unwritten(4 * begin, 4 * (begin + shape_.rows))) {
        return fmt::format("byte {} of the results is left unwritten", *at);
      }
      for (std::uint32_t row = 0; row < shape_.rows; ++row) {
        const auto value = out.read<float>(begin + row);
        const float wanted = expected(x_row, row);
        const bool both_nan = std::isnan(value) && std::isnan(wanted);  // its bits may differ
        if (float_bits(value) != float_bits(wanted) && !both_nan) {
          return fmt::format("result of weight row {} and activation row {} is {}, not {}", row,
                             x_row, value, wanted);
        }
      }
    }
    if (out.written_bytes() != expected_.size() * 4) return "writes between the rows of results";
    return {};
  }

  MatvecShape shape_;
  Buffer weights_, x_, x_scale_;
  std::vector<std::byte> blocks_;   // as in a file
  std::vector<std::int8_t> codes_;  // [x_rows][cols]
  std::vector<float> scales_;       // [x_rows][cols / 32]
  std::vector<float> expected_;     // [x_rows][rows]
};

}  // namespace sluice::simt

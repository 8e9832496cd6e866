// A matrix times some rows of activations, with experts too: buffers for the kernels, and the
// results that they must give to the bit, from a plain loop over the stored blocks in the order
// that cuda/kernels/matvec.cuh documents.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cuda/kernels/gated.cuh"
#include "cuda/kernels/gemm.cuh"
#include "cuda/pack.h"
#include "src/backend/cpu/generic.h"
#include "src/backend/cpu/kernels.h"
#include "tests/kernels_testing.h"
#include "tests/simt/stored_block.h"

namespace sluice::simt {

struct MatvecShape {
  BlockType type = BlockType::kQ4_0;
  std::uint32_t rows = 1;
  std::uint32_t cols = 32;
  std::uint32_t x_rows = 1;  // rows of results
  float magnitude = 3.0f;    // of the activations

  std::string text() const {
    return fmt::format("{} {} x {}, {} activation rows up to {}", block_type_info(type).name, rows,
                       cols, x_rows, magnitude);
  }
};

// Which rows go through which of several matrices; see ExpertItem and MatvecArgs.
struct Routing {
  std::uint32_t experts = 1;
  std::vector<cuda::ExpertItem> items;  // none: all rows go through the first matrix
  std::vector<std::int32_t> x_row;      // none: a null pointer
};

class MatvecProblem {
 public:
  MatvecProblem(const MatvecShape& shape, std::uint64_t seed, const Routing& routing = {})
      : MatvecProblem(
            shape, seed, [](std::vector<std::byte>&, std::vector<float>&) {}, routing) {}

  // `change(blocks, x)` may change the random weights and activations.
  template <class Change>
  MatvecProblem(const MatvecShape& shape, std::uint64_t seed, const Change& change,
                Routing routing = {})
      : shape_(shape),
        routing_(std::move(routing)),
        matrix_bytes_(cuda::packed_bytes(shape.type, shape.rows, shape.cols)),
        sources_(count_sources()),
        weights_("weights", routing_.experts * matrix_bytes_),
        x_("x", std::size_t{sources_} * shape.cols),
        x_scale_("x_scale", std::size_t{sources_} * shape.cols / 8),
        x_sum_("x_sum", std::size_t{sources_} * shape.cols / 8) {
    cpu::testing::Random random(seed);
    blocks_ =
        cpu::testing::random_blocks(shape.type, routing_.experts * shape.rows, shape.cols, random);
    std::vector<float> x(x_.size());
    for (float& value : x) {
      value = cpu::testing::uniform(random, -shape.magnitude, shape.magnitude);
    }
    change(blocks_, x);
    write_weights();
    write_activations(x);
    route();
    compute_expected();
  }

  const MatvecShape& shape() const { return shape_; }
  std::span<const std::byte> blocks() const { return blocks_; }  // as in a file
  std::span<const std::int8_t> codes() const { return codes_; }  // of the activations
  std::span<const float> scales() const { return scales_; }      // [x_rows][cols / 32]
  std::span<const std::int16_t> sums() const { return sums_; }   // [x_rows][cols / 16]
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
    for (std::uint32_t block = 0; block < row_blocks(); ++block) {
      const StoredWeights w = weights_of(0, row, block);
      for (std::size_t i = 0; i < 32; ++i) {
        const std::size_t part = w.parts == 1 ? 0 : i / 16;
        const std::size_t at = std::size_t{x_row} * shape_.cols + 32 * block + i;
        const double value = (double{w.scale[part]} * w.q[i] + double{w.min[part]}) * codes_[at] *
                             double{scales_[at / 32]};
        result.sum += value;
        result.magnitude += std::abs(value);
      }
    }
    return result;
  }

  // Arguments of a kernel, but for the place of the results.
  template <class Args>
  void fill(Args& args) {
    point(args.weights, weights_);
    point(args.x.q, x_);
    point(args.x.scale, x_scale_);
    point(args.x.sum, x_sum_);
    args.rows = rows();
    args.cols = static_cast<std::int32_t>(shape_.cols);
    args.x_rows = items_ == nullptr ? static_cast<std::int32_t>(shape_.x_rows) : most_rows_;
    if (items_ != nullptr) point(args.items, *items_);
    if (x_row_ != nullptr) point(args.x_row, *x_row_);
    args.expert_bytes = static_cast<std::int64_t>(matrix_bytes_);
  }

  // Each runs a kernel on the problem and says what was wrong first, or nothing. Args is the
  // kernel's MatvecArgs (a seeded fault has its own).
  template <class Args>
  std::string check_matvec(void (*kernel)(Args), std::int32_t shared_bytes, bool reversed = false) {
    const auto items = static_cast<std::int32_t>(routing_.items.size());
    return check(kernel, {.blocks = static_cast<std::uint32_t>(cuda::matvec_blocks(rows(), items)),
                          .threads = cuda::kMatvecThreads,
                          .shared_bytes = static_cast<std::size_t>(shared_bytes),
                          .reversed = reversed});
  }
  template <class Args>
  std::string check_gemm(void (*kernel)(Args), std::int32_t shared_bytes, bool reversed = false) {
    const auto x_rows = static_cast<std::int32_t>(shape_.x_rows);
    const auto items = static_cast<std::int32_t>(routing_.items.size());
    const std::int32_t blocks = cuda::gemm_blocks(rows(), x_rows, items);
    return check(kernel, {.blocks = static_cast<std::uint32_t>(blocks),
                          .threads = cuda::kGemmThreads,
                          .shared_bytes = static_cast<std::size_t>(shared_bytes),
                          .reversed = reversed});
  }

  // The rows are 32 of one matrix and 32 of another in turn: gated.cuh.
  template <class Args>
  std::string check_gated(void (*kernel)(Args), std::int32_t shared_bytes, bool gelu,
                          bool reversed = false) {
    const std::size_t width = shape_.rows / 2;
    Buffer q("q", shape_.x_rows * width);
    Buffer scale("scale", shape_.x_rows * width / 8);
    Buffer sum("sum", shape_.x_rows * width / 8);
    Args args = {};
    fill(args.product);
    args.product.rows = rows() / 2;
    point(args.out.q, q);
    point(args.out.scale, scale);
    point(args.out.sum, sum);
    args.gelu = gelu;
    const auto items = static_cast<std::int32_t>(routing_.items.size());
    const Shape grid = {
        .blocks = static_cast<std::uint32_t>(cuda::matvec_blocks(args.product.rows, items)),
        .threads = cuda::kMatvecThreads,
        .shared_bytes = static_cast<std::size_t>(shared_bytes),
        .reversed = reversed};
    if (std::string fault = run(grid, [&] { kernel(args); }); !fault.empty()) return fault;
    return compare_gated(q, scale, sum, gelu);
  }

 private:
  // Of a row of results.
  struct Way {
    std::uint32_t expert = 0;
    std::uint32_t source = 0;  // row of the activations
    bool taken = false;
  };

  std::uint32_t row_blocks() const { return shape_.cols / 32; }
  std::int32_t rows() const { return static_cast<std::int32_t>(shape_.rows); }

  std::uint32_t count_sources() const {
    std::uint32_t count = routing_.x_row.empty() ? shape_.x_rows : 1;
    for (const std::int32_t row : routing_.x_row) {
      count = std::max(count, static_cast<std::uint32_t>(row) + 1);
    }
    return count;
  }

  std::size_t stored_row_bytes() const {
    const BlockTypeInfo& info = block_type_info(shape_.type);
    return std::size_t{shape_.cols / info.block_size} * info.block_bytes;
  }

  void write_weights() {
    std::vector<std::byte> packed(matrix_bytes_);
    for (std::size_t e = 0; e < routing_.experts; ++e) {
      cuda::pack_tiles(shape_.type, blocks_.data() + e * shape_.rows * stored_row_bytes(),
                       shape_.rows, shape_.cols, 0, cuda::tile_count(shape_.rows), packed.data());
      weights_.write(e * matrix_bytes_, packed.data(), packed.size());
    }
  }

  void write_activations(const std::vector<float>& x) {
    codes_.resize(x.size());
    scales_.resize(x.size() / 32);
    sums_.resize(x.size() / 16);
    for (std::size_t i = 0; i < scales_.size(); ++i) {
      scales_[i] = cpu::generic_quantize_group(&x[32 * i], 32, &codes_[32 * i]);
    }
    for (std::size_t i = 0; i < codes_.size(); ++i) {
      sums_[i / 16] = static_cast<std::int16_t>(sums_[i / 16] + codes_[i]);
    }
    x_.write(std::span<const std::int8_t>(codes_));
    x_scale_.write(std::span<const float>(scales_));
    x_sum_.write(std::span<const std::int16_t>(sums_));
  }

  template <class T>
  static std::unique_ptr<Buffer> buffer_of(const char* name, const std::vector<T>& values) {
    if (values.empty()) return nullptr;
    auto buffer = std::make_unique<Buffer>(name, values.size() * sizeof(T));
    buffer->write(std::span<const T>(values));
    return buffer;
  }

  void route() {
    items_ = buffer_of("items", routing_.items);
    x_row_ = buffer_of("x_row", routing_.x_row);
    ways_.resize(shape_.x_rows);
    for (std::uint32_t r = 0; r < shape_.x_rows; ++r) {
      ways_[r].source = routing_.x_row.empty() ? r : static_cast<std::uint32_t>(routing_.x_row[r]);
      ways_[r].taken = routing_.items.empty();
    }
    for (const cuda::ExpertItem& item : routing_.items) {
      for (std::int32_t i = 0; i < item.count; ++i) {
        Way& way = ways_[static_cast<std::size_t>(item.first + i)];
        way.expert = static_cast<std::uint32_t>(item.expert);
        way.taken = true;
      }
      most_rows_ = std::max(most_rows_, item.count);
    }
  }

  StoredWeights weights_of(std::uint32_t expert, std::uint32_t row, std::uint32_t block) const {
    const BlockTypeInfo& info = block_type_info(shape_.type);
    const std::uint32_t in_block = info.block_size / 32;
    const std::byte* at = blocks_.data() +
                          (std::size_t{expert} * shape_.rows + row) * stored_row_bytes() +
                          std::size_t{block / in_block} * info.block_bytes;
    return stored_weights(shape_.type, at, block % in_block);
  }

  float accumulate(const StoredWeights& w, std::size_t group, float acc) const {
    const std::size_t part_weights = 32 / w.parts;
    for (std::size_t part = 0; part < w.parts; ++part) {
      std::int32_t dot = 0;
      std::int32_t x_sum = 0;
      for (std::size_t i = part * part_weights; i < (part + 1) * part_weights; ++i) {
        dot += w.q[i] * codes_[32 * group + i];
        x_sum += codes_[32 * group + i];
      }
      const float x_scale = scales_[group];
      acc = __builtin_fmaf(w.scale[part] * x_scale, static_cast<float>(dot), acc);
      if (w.has_min) {
        acc = __builtin_fmaf(w.min[part] * x_scale, static_cast<float>(x_sum), acc);
      }
    }
    return acc;
  }

  void compute_expected() {
    expected_.resize(std::size_t{shape_.x_rows} * shape_.rows);
    const std::uint32_t some = (row_blocks() + 7) / 8;  // blocks of a segment
    std::vector<StoredWeights> weights(row_blocks());
    for (std::uint32_t expert = 0; expert < routing_.experts; ++expert) {
      for (std::uint32_t row = 0; row < shape_.rows; ++row) {
        for (std::uint32_t b = 0; b < row_blocks(); ++b) weights[b] = weights_of(expert, row, b);
        for (std::uint32_t x_row = 0; x_row < shape_.x_rows; ++x_row) {
          const Way& way = ways_[x_row];
          if (way.expert != expert) continue;
          float sum = 0;
          for (std::uint32_t first = 0; first < row_blocks(); first += some) {
            float acc = 0;
            for (std::uint32_t b = first; b < std::min(row_blocks(), first + some); ++b) {
              acc = accumulate(weights[b], std::size_t{way.source} * row_blocks() + b, acc);
            }
            sum = first == 0 ? acc : sum + acc;
          }
          expected_[std::size_t{x_row} * shape_.rows + row] = sum;
        }
      }
    }
  }

  template <class T>
  static void point(Global<T>& pointer, Buffer& buffer) {
    pointer = buffer.pointer<T>();
  }

  template <class Args>
  std::string check(void (*kernel)(Args), const Shape& grid) {
    const std::size_t stride = shape_.rows + 3;
    Buffer out("out", (shape_.x_rows * stride) * sizeof(float));
    Args args = {};
    fill(args);
    point(args.out, out);
    args.out_stride = static_cast<std::int64_t>(stride);
    if (std::string fault = run(grid, [&] { kernel(args); }); !fault.empty()) return fault;
    return compare(out, stride);
  }

  // What is expected of a row, and whether its activation is that of the CPU, codes and all.
  std::string compare_gated(const Buffer& q, const Buffer& scale, const Buffer& sum,
                            bool gelu) const {
    const cpu::Kernels& generic = *cpu::find_kernels("generic");
    const std::size_t width = shape_.rows / 2;
    std::size_t taken = 0;
    for (std::uint32_t x_row = 0; x_row < shape_.x_rows; ++x_row) {
      if (!ways_[x_row].taken) continue;
      ++taken;
      for (std::uint32_t first = 0; first < width; first += 32) {
        const float* gate = &expected_[std::size_t{x_row} * shape_.rows + std::size_t{2} * first];
        float value[32];
        (gelu ? generic.gelu_mul : generic.silu_mul)(gate, gate + 32, 32, value);
        std::int8_t codes[32];
        const float wanted = cpu::generic_quantize_group(value, 32, codes);
        const std::size_t group = (x_row * width + first) / 32;
        if (q.first_unwritten(32 * group, 32 * group + 32) ||
            scale.first_unwritten(4 * group, 4 * group + 4) ||
            sum.first_unwritten(4 * group, 4 * group + 4)) {
          return fmt::format("group {} is left unwritten", group);
        }
        const auto found = scale.read<float>(group);
        const bool both_nan = std::isnan(found) && std::isnan(wanted);
        if (float_bits(found) != float_bits(wanted) && !both_nan) {
          return fmt::format("scale of group {} is {}, not {}", group, found, wanted);
        }
        std::int16_t sums[2] = {};
        for (std::size_t i = 0; i < 32; ++i) {
          sums[i / 16] = static_cast<std::int16_t>(sums[i / 16] + codes[i]);
          if (q.read<std::int8_t>(32 * group + i) != codes[i]) {
            return fmt::format("code {} of group {} is {}, not {}", i, group,
                               q.read<std::int8_t>(32 * group + i), codes[i]);
          }
        }
        if (sum.read<std::int16_t>(2 * group) != sums[0] ||
            sum.read<std::int16_t>(2 * group + 1) != sums[1]) {
          return fmt::format("sums of group {} are wrong", group);
        }
      }
    }
    if (q.written_bytes() != taken * width) return "writes more than the results";
    return {};
  }

  std::string compare(const Buffer& out, std::size_t stride) const {
    std::size_t taken = 0;
    for (std::uint32_t x_row = 0; x_row < shape_.x_rows; ++x_row) {
      if (!ways_[x_row].taken) continue;
      ++taken;
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
    if (out.written_bytes() != taken * shape_.rows * 4) return "writes more than the results";
    return {};
  }

  MatvecShape shape_;
  Routing routing_;
  std::size_t matrix_bytes_;
  std::uint32_t sources_;  // rows of activations
  Buffer weights_, x_, x_scale_, x_sum_;
  std::unique_ptr<Buffer> items_, x_row_;
  std::vector<std::byte> blocks_;   // as in a file, [experts][rows][cols]
  std::vector<std::int8_t> codes_;  // [sources][cols]
  std::vector<float> scales_;       // [sources][cols / 32]
  std::vector<std::int16_t> sums_;  // [sources][cols / 16]
  std::vector<Way> ways_;           // [x_rows]
  std::int32_t most_rows_ = 0;
  std::vector<float> expected_;  // [x_rows][rows]
};

}  // namespace sluice::simt

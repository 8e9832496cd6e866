// A matrix of floats times rows, and what must come out of it to the bit: a plain loop in the order
// that cuda/kernels/matvec_float.cuh documents.
#pragma once

#include <cstring>

#include "cuda/kernels/matvec_float.cuh"
#include "src/base/half.h"
#include "tests/simt/norm_problem.h"

namespace sluice::simt {

struct MatvecFloatShape {
  cuda::FloatType type = cuda::FloatType::kF32;
  std::uint32_t rows = 1;
  std::uint32_t cols = 32;
  std::uint32_t x_rows = 1;
  // Mixture of experts: so many items of up to three rows, also of none; 0: no experts.
  std::uint32_t items = 0;
  bool gather = false;  // rows of x by x_row

  std::string text() const {
    return fmt::format("type {} {} x {}, {} activation rows, {} items{}", static_cast<int>(type),
                       rows, cols, x_rows, items, gather ? ", gathered" : "");
  }
};

class MatvecFloatProblem {
 public:
  static constexpr std::uint32_t kExperts = 3;

  MatvecFloatProblem(const MatvecFloatShape& shape, std::uint64_t seed)
      : MatvecFloatProblem(shape, seed, [](std::vector<std::byte>&, std::vector<float>&) {}) {}

  // `change(weights, x)` may change the random weights and activations.
  template <class Change>
  MatvecFloatProblem(const MatvecFloatShape& shape, std::uint64_t seed, const Change& change)
      : shape_(shape), random_(seed) {
    bytes_ = static_cast<std::size_t>(cuda::float_type_bytes(shape.type));
    // A gap behind each expert's matrix, as alignment in a file would leave.
    expert_bytes_ = std::size_t{shape.rows} * shape.cols * bytes_ + 6 * bytes_;
    weights_.resize((shape.items > 0 ? kExperts : 1) * expert_bytes_);
    for (std::size_t at = 0; at < weights_.size(); at += bytes_) write_weight(at);
    if (shape.items > 0) {
      make_items();
    } else {
      out_rows_ = shape.x_rows;
    }
    // More rows of x than results where they are gathered.
    x_.resize(std::size_t{shape.gather ? out_rows_ + 3 : out_rows_} * x_stride());
    for (float& value : x_) value = cpu::testing::uniform(random_, -3.0f, 3.0f);
    for (std::uint32_t r = 0; r < out_rows_; ++r) {
      x_row_.push_back(static_cast<std::int32_t>(cpu::testing::pick(random_, 0, out_rows_ + 2)));
    }
    change(weights_, x_);
  }

  const MatvecFloatShape& shape() const { return shape_; }
  std::uint32_t x_stride() const { return shape_.cols + 1; }
  std::span<const std::byte> weights() const { return weights_; }
  std::span<const float> x() const { return x_; }

  // The result of a row of x with a weight row of an expert.
  float expected(std::size_t x_row, std::size_t weight_row, std::size_t expert = 0) const {
    std::array<float, 32> lane = {};
    for (std::size_t k = 0; k < shape_.cols; ++k) {
      const float w = weight(expert * expert_bytes_ + (weight_row * shape_.cols + k) * bytes_);
      lane[k % 32] = std::fmaf(w, x_[x_row * x_stride() + k], lane[k % 32]);
    }
    return sum_of_pairs(lane);
  }
  double exact(std::size_t x_row, std::size_t weight_row, double& magnitude) const {
    double sum = 0;
    magnitude = 0;
    for (std::size_t k = 0; k < shape_.cols; ++k) {
      const double w = weight((weight_row * shape_.cols + k) * bytes_);
      sum += w * x_[x_row * x_stride() + k];
      magnitude += std::abs(w * x_[x_row * x_stride() + k]);
    }
    return sum;
  }

  // Runs a kernel and says what was wrong first, or nothing.
  std::string check(void (*kernel)(cuda::MatvecFloatArgs), bool reversed = false) {
    Filled<std::byte> weights("weights", weights_);
    Filled<float> x("x", x_);
    Filled<std::int32_t> x_row("x_row", x_row_);
    Filled<cuda::ExpertItem> items("items", items_);
    const std::size_t stride = shape_.rows + 3;
    Buffer out("out", out_rows_ * stride * 4);
    cuda::MatvecFloatArgs args = {};
    args.weights = weights.pointer<const std::uint8_t>();
    args.x = x.begin();
    args.out = out.pointer<float>();
    args.x_stride = x_stride();
    args.out_stride = static_cast<std::int64_t>(stride);
    args.rows = static_cast<std::int32_t>(shape_.rows);
    args.cols = static_cast<std::int32_t>(shape_.cols);
    args.x_rows = static_cast<std::int32_t>(shape_.items > 0 ? 3 : shape_.x_rows);
    args.type = shape_.type;
    if (shape_.gather) args.x_row = x_row.begin();
    if (shape_.items > 0) {
      args.items = items.begin();
      args.expert_bytes = static_cast<std::int64_t>(expert_bytes_);
    }
    const Shape grid = {.blocks = static_cast<std::uint32_t>(cuda::matvec_float_blocks(
                            args.rows, shape_.items > 0 ? static_cast<int>(shape_.items) : 1)),
                        .threads = cuda::kMatvecFloatThreads,
                        .reversed = reversed};
    if (std::string fault = run(grid, [&] { kernel(args); }); !fault.empty()) return fault;
    return compare_results(out, stride);
  }

 private:
  void write_weight(std::size_t at) {
    const float value = cpu::testing::uniform(random_, -1.0f, 1.0f);
    if (shape_.type == cuda::FloatType::kF32) {
      std::memcpy(&weights_[at], &value, 4);
      return;
    }
    const std::uint16_t bits = shape_.type == cuda::FloatType::kF16
                                   ? float_to_half(value)
                                   : static_cast<std::uint16_t>(float_bits(value) >> 16);
    std::memcpy(&weights_[at], &bits, 2);
  }
  float weight(std::size_t at) const {
    float value;
    if (shape_.type == cuda::FloatType::kF32) {
      std::memcpy(&value, &weights_[at], 4);
      return value;
    }
    std::uint16_t bits;
    std::memcpy(&bits, &weights_[at], 2);
    return shape_.type == cuda::FloatType::kF16 ? sluice::half_to_float(bits)
                                                : float_of_bits(std::uint32_t{bits} << 16);
  }
  void make_items() {
    for (std::uint32_t i = 0; i < shape_.items; ++i) {
      cuda::ExpertItem item = {static_cast<std::int32_t>(i % kExperts),
                               static_cast<std::int32_t>(out_rows_),
                               static_cast<std::int32_t>((i + 1) % 4)};
      if (item.count == 0) item = {};
      out_rows_ += static_cast<std::uint32_t>(item.count);
      items_.push_back(item);
    }
  }
  std::string compare_results(const Buffer& out, std::size_t stride) const {
    std::vector<std::size_t> expert(out_rows_);
    for (const cuda::ExpertItem& item : items_) {
      for (std::int32_t i = 0; i < item.count; ++i) {
        expert[static_cast<std::size_t>(item.first + i)] = static_cast<std::size_t>(item.expert);
      }
    }
    for (std::size_t r = 0; r < out_rows_; ++r) {
      std::vector<float> wanted(shape_.rows);
      for (std::size_t n = 0; n < shape_.rows; ++n) {
        const std::size_t x_row = shape_.gather ? static_cast<std::size_t>(x_row_[r]) : r;
        wanted[n] = expected(x_row, n, expert[r]);
      }
      std::string wrong = compare(out, std::span<const float>(wanted), r * stride);
      if (!wrong.empty()) return wrong;
    }
    if (out.written_bytes() != std::size_t{out_rows_} * shape_.rows * 4) {
      return "writes between the rows of results";
    }
    return {};
  }

  MatvecFloatShape shape_;
  cpu::testing::Random random_;
  std::size_t bytes_ = 4;  // of an element
  std::size_t expert_bytes_ = 0;
  std::uint32_t out_rows_ = 0;
  std::vector<std::byte> weights_;
  std::vector<float> x_;
  std::vector<std::int32_t> x_row_;  // [out_rows_]
  std::vector<cuda::ExpertItem> items_;
};

}  // namespace sluice::simt

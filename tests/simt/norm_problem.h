// Rows to add and to normalise, and what must come out of it to the bit: plain loops in the order
// that cuda/kernels/norm.cuh documents.
#pragma once

#include <array>
#include <numeric>

#include "cuda/kernels/norm.cuh"
#include "tests/simt/row_checks.h"

namespace sluice::simt {

struct NormShape {
  std::uint32_t rows = 1;
  std::uint32_t cols = 32;
  bool add = false;
  bool add_bias = false;
  bool add_norm = false;
  bool norm = true;
  bool normed = true;
  bool quantized = false;
  bool gather = false;  // every second row of `hidden`, from the last to the first
  float magnitude = 3.0f;

  std::string text() const {
    return fmt::format("{} x {} up to {}:{}{}{}{}{}{}{}", rows, cols, magnitude, add ? " add" : "",
                       add_bias ? " bias" : "", add_norm ? " add_norm" : "", norm ? " norm" : "",
                       normed ? " floats" : "", quantized ? " codes" : "",
                       gather ? " gathered" : "");
  }
};

// Values at a distance of half of them, a quarter, ..., 1 are added.
template <std::size_t kCount>
float sum_of_pairs(std::array<float, kCount> x) {
  for (std::size_t distance = kCount / 2; distance > 0; distance /= 2) {
    for (std::size_t i = 0; i < distance; ++i) x[i] += x[i + distance];
  }
  return x[0];
}

inline float sum_of_squares(std::span<const float> x) {
  std::array<std::array<float, 32>, 8> thread = {};
  for (std::size_t c = 0; c < x.size(); ++c) {
    float& acc = thread[c / 128 % 8][c / 4 % 32];
    acc = std::fmaf(x[c], x[c], acc);
  }
  std::array<float, 8> warp = {};
  for (std::size_t w = 0; w < 8; ++w) warp[w] = sum_of_pairs(thread[w]);
  return sum_of_pairs(warp);
}

inline void normalise(std::span<float> x, std::span<const float> weight, float epsilon) {
  const float mean = sum_of_squares(x) / static_cast<float>(x.size());
  const float inverse = 1.0f / std::sqrt(mean + epsilon);
  for (std::size_t c = 0; c < x.size(); ++c) x[c] = (x[c] * inverse) * weight[c];
}

class NormProblem {
 public:
  static constexpr float kEpsilon = 1e-5f;

  NormProblem(const NormShape& shape, std::uint64_t seed)
      : NormProblem(shape, seed, [](std::vector<float>&) {}) {}

  // `change(hidden)` may change the random rows.
  template <class Change>
  NormProblem(const NormShape& shape, std::uint64_t seed, const Change& change) : shape_(shape) {
    cpu::testing::Random random(seed);
    const std::size_t in_rows = shape.gather ? 2 * shape.rows : shape.rows;
    hidden_ = random_floats(in_rows * shape.cols, shape.magnitude, random);
    change(hidden_);
    add_ = random_floats(hidden_.size(), shape.magnitude, random);
    add_bias_ = random_floats(shape.cols, 1.0f, random);
    add_norm_ = random_floats(shape.cols, 1.0f, random);
    norm_ = random_floats(shape.cols, 1.0f, random);
    for (std::uint32_t r = 0; r < shape.rows; ++r) {
      row_.push_back(static_cast<std::int32_t>(2 * (shape.rows - r) - 1));
    }
    compute();
  }

  const NormShape& shape() const { return shape_; }
  const std::vector<float>& hidden() const { return hidden_; }
  const std::vector<float>& normed() const { return normed_; }
  const std::vector<float>& norm() const { return norm_; }

  // Runs a kernel and says what was wrong first, or nothing.
  std::string check(void (*kernel)(cuda::NormArgs), bool reversed = false) {
    Filled<float> hidden("hidden", hidden_);
    Filled<float> add("add", add_);
    Filled<float> add_bias("add_bias", add_bias_);
    Filled<float> add_norm("add_norm", add_norm_);
    Filled<float> norm("norm", norm_);
    Filled<std::int32_t> row("row", row_);
    const std::size_t count = std::size_t{shape_.rows} * shape_.cols;
    Buffer normed("normed", count * 4);
    QuantizedResult quantized(shape_.rows, shape_.cols);
    cuda::NormArgs args = {};
    args.hidden = hidden.begin();
    if (shape_.add) args.add = add.begin();
    if (shape_.add_bias) args.add_bias = add_bias.begin();
    if (shape_.add_norm) args.add_norm = add_norm.begin();
    if (shape_.norm) args.norm = norm.begin();
    if (shape_.normed) args.normed = normed.pointer<float>();
    if (shape_.quantized) args.quantized = quantized.out();
    if (shape_.gather) args.row = row.begin();
    args.epsilon = kEpsilon;
    args.cols = static_cast<std::int32_t>(shape_.cols);
    const Shape grid = {.blocks = static_cast<std::uint32_t>(
                            cuda::norm_blocks(static_cast<std::int32_t>(shape_.rows))),
                        .threads = cuda::kNormThreads,
                        .shared_bytes = cuda::kNormSharedBytes,
                        .reversed = reversed};
    if (std::string fault = run(grid, [&] { kernel(args); }); !fault.empty()) return fault;
    if (std::string wrong = compare(hidden, sum_); !wrong.empty()) return wrong;
    if (!shape_.norm) return normed.written_bytes() == 0 ? "" : "writes norms that nobody wants";
    if (shape_.normed) {
      if (std::string wrong = compare(normed, normed_); !wrong.empty()) return wrong;
    }
    return shape_.quantized ? quantized.compare_with(normed_) : "";
  }

 private:
  void compute() {
    const std::size_t cols = shape_.cols;
    sum_ = hidden_;
    for (std::size_t r = 0; r < shape_.rows && shape_.add && !shape_.gather; ++r) {
      std::vector<float> added(&add_[r * cols], &add_[r * cols] + cols);
      for (std::size_t c = 0; c < cols && shape_.add_bias; ++c) added[c] += add_bias_[c];
      if (shape_.add_norm) normalise(added, add_norm_, kEpsilon);
      for (std::size_t c = 0; c < cols; ++c) sum_[r * cols + c] += added[c];
    }
    for (std::size_t r = 0; r < shape_.rows; ++r) {
      const std::size_t from = shape_.gather ? static_cast<std::size_t>(row_[r]) : r;
      std::vector<float> x(&sum_[from * cols], &sum_[from * cols] + cols);
      normalise(x, norm_, kEpsilon);
      normed_.insert(normed_.end(), x.begin(), x.end());
    }
  }

  NormShape shape_;
  std::vector<float> hidden_, add_, add_bias_, add_norm_, norm_;
  std::vector<std::int32_t> row_;
  std::vector<float> sum_;     // hidden, afterwards
  std::vector<float> normed_;  // [rows][cols]
};

}  // namespace sluice::simt

// Results of the query, key and value matrices on their way to attention: buffers for
// rope_and_store, and what it must leave to the bit, from the CPU's functions and plain loops.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "cuda/kernels/rope.cuh"
#include "src/backend/cpu/generic.h"
#include "tests/simt/attention_problem.h"

namespace sluice::simt {

struct RopeShape {
  cuda::PageKind pages = cuda::PageKind::kInt8;
  std::uint32_t rows = 1;
  std::uint32_t heads = 1;
  std::uint32_t kv_heads = 1;
  std::uint32_t head_dim = 64;
  std::uint32_t rope_dims = 64;
  bool interleaved = false;
  bool has_bias = false;
  bool has_norms = false;
  std::uint32_t outliers = 0;
  float magnitude = 3.0f;
  std::uint32_t first_block = 0;  // of the cache that is used

  std::uint32_t all_heads() const { return heads + 2 * kv_heads; }
  std::string text() const {
    return fmt::format(
        "{} pages, {} rows, {} and {} heads of {}, {} rotated {}, bias {}, norms {}, outliers {}, "
        "up to {}",
        pages_name(pages), rows, heads, kv_heads, head_dim, rope_dims,
        interleaved ? "in pairs" : "in halves", has_bias, has_norms, outliers, magnitude);
  }
};

class RopeProblem {
 public:
  RopeProblem(const RopeShape& shape, std::uint64_t seed)
      : RopeProblem(shape, seed, [](std::vector<float>&) {}) {}
  // `change(qkv)` may change the matrices' results.
  template <class Change>
  RopeProblem(const RopeShape& shape, std::uint64_t seed, const Change& change)
      : shape_(shape), groups_((shape.head_dim + 31) / 32) {
    cpu::testing::Random random(seed);
    const std::size_t width = std::size_t{shape.all_heads()} * shape.head_dim;
    const auto fill = [&](std::vector<float>& x, std::size_t count, float magnitude) {
      x.resize(count);
      for (float& value : x) value = cpu::testing::uniform(random, -magnitude, magnitude);
    };
    fill(qkv_, shape.rows * width, shape.magnitude);
    if (shape.has_bias) fill(bias_, width, 1.0f);
    if (shape.has_norms) {
      fill(query_norm_, shape.head_dim, 2.0f);
      fill(key_norm_, shape.head_dim, 2.0f);
    }
    fill(cosine_, shape.rows * shape.rope_dims / 2, 1.2f);
    fill(sine_, shape.rows * shape.rope_dims / 2, 1.2f);
    for (std::uint32_t i = 0; i < shape.kv_heads * shape.outliers; ++i) {
      const bool there = i % shape.outliers + i / shape.outliers < shape.outliers;
      pairs_.push_back({.first = there ? static_cast<std::int32_t>(i % shape.outliers) : -1,
                        .second = static_cast<std::int32_t>(shape.head_dim - 1 - i % 3),
                        .bias_first = cpu::testing::uniform(random, -90.0f, 90.0f),
                        .bias_second = cpu::testing::uniform(random, -90.0f, 90.0f)});
    }
    // Rows at the end of a block, then in another block, which comes before it in memory.
    for (std::uint32_t r = 0; r < shape.rows; ++r) {
      const std::uint32_t position = 27 + r;
      position_.push_back(static_cast<std::int32_t>(position));
      row_block_.push_back(shape.first_block +
                           (3 + position_blocks() - position / 32) % position_blocks());
    }
    change(qkv_);
  }

  const RopeShape& shape() const { return shape_; }

  // Runs the kernel and says what was wrong first, or nothing.
  template <class Kernel>
  std::string check(const Kernel& kernel, bool reversed = false) {
    const auto blocks = cuda::rope_blocks(static_cast<std::int32_t>(shape_.rows),
                                          static_cast<std::int32_t>(shape_.heads),
                                          static_cast<std::int32_t>(shape_.kv_heads));
    return check_on({.blocks = static_cast<std::uint32_t>(blocks),
                     .threads = cuda::kRopeThreads,
                     .shared_bytes = cuda::kRopeSharedBytes,
                     .reversed = reversed},
                    kernel);
  }
  // The same for a kernel with another grid.
  template <class Kernel>
  std::string check_on(const Shape& grid, const Kernel& kernel) {
    const auto kv_heads = static_cast<std::int32_t>(shape_.kv_heads);
    const auto head_dim = static_cast<std::int32_t>(shape_.head_dim);
    const auto page_bytes = static_cast<std::size_t>(visit_pages(shape_.pages, [&](auto pages) {
      return cuda::page_bytes<decltype(pages)>(kv_heads, head_dim);
    }));
    const std::size_t queries = std::size_t{shape_.rows} * shape_.heads;
    cuda::RopeArgs args = {};
    args.qkv = input(qkv_);
    args.bias = input(bias_);
    args.query_norm = input(query_norm_);
    args.key_norm = input(key_norm_);
    args.cosine = input(cosine_);
    args.sine = input(sine_);
    args.position = input(position_);
    args.row_block = input(row_block_);
    Buffer q("q", queries * groups_ * 32 * (is_half() ? 4 : 1));
    Buffer q_scale("q_scale", queries * groups_ * 4);
    Buffer cache("cache", (shape_.first_block + position_blocks()) * page_bytes);
    Buffer coefficients("coefficients", queries * shape_.outliers * 8 + 8);
    if (is_half()) {
      args.q_floats = q.pointer<float>();
    } else {
      args.q = q.pointer<std::int8_t>();
      args.q_scale = q_scale.pointer<float>();
    }
    args.cache = cache.pointer<std::uint8_t>();
    if (shape_.outliers > 0) {
      args.outliers.pairs = input(pairs_);
      args.outliers.coefficients = coefficients.pointer<float>();
      args.outliers.most = static_cast<std::int32_t>(shape_.outliers);
    }
    args.rows = static_cast<std::int32_t>(shape_.rows);
    args.heads = static_cast<std::int32_t>(shape_.heads);
    args.kv_heads = kv_heads;
    args.head_dim = head_dim;
    args.rope_dims = static_cast<std::int32_t>(shape_.rope_dims);
    args.interleaved = shape_.interleaved;
    args.epsilon = 1e-5f;
    if (std::string fault = run(grid, [&] { kernel(args); }); !fault.empty()) return fault;
    try {
      return compare(q, q_scale, cache, coefficients);
    } catch (const std::out_of_range& unwritten) {
      return unwritten.what();
    }
  }

 private:
  bool is_half() const { return shape_.pages == cuda::PageKind::kF16; }

  std::string compare(const Buffer& q, const Buffer& q_scale, const Buffer& cache,
                      const Buffer& coefficients) const {
    std::size_t coefficient_bytes = 0;
    for (std::uint32_t r = 0; r < shape_.rows; ++r) {
      for (std::uint32_t h = 0; h < shape_.heads; ++h) {
        const std::vector<float> head = rotated(r, h);
        const std::size_t query = std::size_t{r} * shape_.heads + h;
        if (std::string wrong = compare_query(head, query, q, q_scale); !wrong.empty()) {
          return wrong;
        }
        for (std::uint32_t i = 0; i < shape_.outliers; ++i) {
          const cuda::OutlierPair& pair =
              pairs_[std::size_t{h / (shape_.heads / shape_.kv_heads)} * shape_.outliers + i];
          if (pair.first < 0) continue;
          coefficient_bytes += 8;
          const std::size_t at = (query * shape_.outliers + i) * 2;
          const float a = head[static_cast<std::size_t>(pair.first)];
          const float b = head[static_cast<std::size_t>(pair.second)];
          const float wanted[2] = {a * pair.bias_first + b * pair.bias_second,
                                   b * pair.bias_first - a * pair.bias_second};
          for (std::size_t k = 0; k < 2; ++k) {
            if (!same(coefficients.read<float>(at + k), wanted[k])) {
              return fmt::format("coefficient {} of pair {} of row {}, head {} is {}, not {}", k, i,
                                 r, h, coefficients.read<float>(at + k), wanted[k]);
            }
          }
        }
      }
      for (std::uint32_t h = 0; h < shape_.kv_heads; ++h) {
        CachedVector key;
        CachedVector value;
        store_token(shape_.pages, shape_.head_dim, rotated(r, shape_.heads + h).data(),
                    rotated(r, shape_.heads + shape_.kv_heads + h).data(), key, value);
        for (const bool is_value : {false, true}) {
          const CachedVector& wanted = is_value ? value : key;
          std::string wrong = is_half() ? compare_halves(wanted, is_value, r, h, cache)
                                        : compare_cached(wanted, is_value, r, h, cache);
          if (!wrong.empty()) return wrong;
        }
      }
    }
    // Nothing else is written: what the shape asks for is there by the comparisons.
    const std::size_t cache_bytes =
        std::size_t{shape_.rows} * shape_.kv_heads * 2 * groups_ * (is_half() ? 64 : 34);
    if (shape_.first_block == 0 && cache.written_bytes() != cache_bytes) {
      return fmt::format("{} bytes of the cache are written, not {}", cache.written_bytes(),
                         cache_bytes);
    }
    if (coefficients.written_bytes() != coefficient_bytes) return "too many coefficients";
    return {};
  }

  std::uint32_t position_blocks() const { return (27 + shape_.rows) / 32 + 1; }

  template <class T>
  Global<const T> input(const std::vector<T>& values) {
    if (values.empty()) return {};
    inputs_.push_back(std::make_unique<Buffer>("input", values.size() * sizeof(T)));
    inputs_.back()->write(std::span<const T>(values));
    return inputs_.back()->pointer<const T>();
  }

  // A head of a row (counted through queries, keys, values) after bias, norm and rotation.
  std::vector<float> rotated(std::uint32_t row, std::uint32_t head) const {
    const std::uint32_t dim = shape_.head_dim;
    const float* from = &qkv_[(std::size_t{row} * shape_.all_heads() + head) * dim];
    std::vector<float> x(from, from + dim);
    if (shape_.has_bias) {
      for (std::uint32_t d = 0; d < dim; ++d) x[d] += bias_[std::size_t{head} * dim + d];
    }
    if (head >= shape_.heads + shape_.kv_heads) return x;
    if (shape_.has_norms) {
      float sums[32] = {};
      for (std::uint32_t d = 0; d < dim; ++d) sums[d % 32] = std::fmaf(x[d], x[d], sums[d % 32]);
      for (std::uint32_t distance = 16; distance > 0; distance /= 2) {
        for (std::uint32_t i = 0; i < distance; ++i) sums[i] += sums[i + distance];
      }
      const float inverse = 1.0f / std::sqrt(sums[0] / static_cast<float>(dim) + 1e-5f);
      const std::vector<float>& norm = head < shape_.heads ? query_norm_ : key_norm_;
      for (std::uint32_t d = 0; d < dim; ++d) x[d] = x[d] * inverse * norm[d];
    }
    const std::size_t at = std::size_t{row} * shape_.rope_dims / 2;
    cpu::kGenericKernels.rope(x.data(), shape_.rope_dims, shape_.interleaved, cosine_.data() + at,
                              sine_.data() + at);
    return x;
  }

  static bool same(float a, float b) {
    return float_bits(a) == float_bits(b) || (std::isnan(a) && std::isnan(b));
  }

  std::string compare_query(const std::vector<float>& head, std::size_t query, const Buffer& q,
                            const Buffer& q_scale) const {
    for (std::size_t d = 0; is_half() && d < 32 * groups_; ++d) {
      const float wanted = d < head.size() ? head[d] : 0.0f;
      const auto found = q.read<float>(query * groups_ * 32 + d);
      if (!same(found, wanted)) {
        return fmt::format("dimension {} of query {} is {}, not {}", d, query, found, wanted);
      }
    }
    for (std::size_t g = 0; !is_half() && g < groups_; ++g) {
      std::int8_t codes[32];
      const std::size_t count = std::min<std::size_t>(32, shape_.head_dim - 32 * g);
      const float wanted =
          cpu::generic_quantize_group(&head[32 * g], static_cast<std::uint32_t>(count), codes);
      const auto found = q_scale.read<float>(query * groups_ + g);
      if (!same(found, wanted)) {
        return fmt::format("scale of group {} of query {} is {}, not {}", g, query, found, wanted);
      }
      for (std::size_t i = 0; i < 32; ++i) {
        const auto code = q.read<std::int8_t>((query * groups_ + g) * 32 + i);
        if (code != codes[i]) {
          return fmt::format("code {} of group {} of query {} is {}, not {}", i, g, query, code,
                             codes[i]);
        }
      }
    }
    return {};
  }

  // The places are those that cuda/kv_pages.h draws, written out once more.
  std::string compare_cached(const CachedVector& wanted, bool is_value, std::uint32_t row,
                             std::uint32_t kv_head, const Buffer& cache) const {
    const std::size_t head_bytes = 2 * groups_ * 1088;
    const std::size_t token = static_cast<std::size_t>(position_[row]) % 32;
    for (std::size_t g = 0; g < groups_; ++g) {
      const std::size_t record =
          (row_block_[row] * std::size_t{shape_.kv_heads} + kv_head) * head_bytes +
          ((is_value ? groups_ : 0) + g) * 1088;
      // Lane t of four has tokens 8 j + 2 t and + 1.
      const std::size_t place = token % 8 / 2 * 8 + token / 8 * 2 + token % 2;
      const auto scale = cache.read<std::uint16_t>((record + 1024 + 2 * place) / 2);
      if (scale != wanted.scale[g]) {
        return fmt::format("scale of group {} of {} {} of row {} is {:#x}, not {:#x}", g,
                           is_value ? "value" : "key", kv_head, row, scale, wanted.scale[g]);
      }
      for (std::size_t d = 0; d < 32; ++d) {
        // Of a fragment: plane, lane 4 g + t, word and byte.
        const std::size_t along = is_value ? token : d;  // what the contraction runs over
        const std::size_t across = is_value ? d : token;
        const std::size_t t = is_value ? along % 8 / 2 : along % 16 / 4;
        const std::size_t byte = is_value ? along % 16 / 8 * 2 + along % 2 : along % 4;
        const std::size_t lane = 4 * (across % 8) + t;
        const std::size_t at = record + along / 16 * 512 + lane * 16 + across / 8 * 4 + byte;
        if (cache.read<std::int8_t>(at) != wanted.code[32 * g + d]) {
          return fmt::format("code {} of group {} of {} {} of row {} is {}, not {}", d, g,
                             is_value ? "value" : "key", kv_head, row, cache.read<std::int8_t>(at),
                             wanted.code[32 * g + d]);
        }
      }
    }
    return {};
  }

  // Rows of tokens for keys, of dimensions for values.
  std::string compare_halves(const CachedVector& wanted, bool is_value, std::uint32_t row,
                             std::uint32_t kv_head, const Buffer& cache) const {
    const std::size_t token = static_cast<std::size_t>(position_[row]) % 32;
    for (std::size_t d = 0; d < 32 * groups_; ++d) {
      const std::size_t record =
          ((row_block_[row] * std::size_t{shape_.kv_heads} + kv_head) * 2 + (is_value ? 1 : 0)) *
              groups_ +
          d / 32;
      const std::size_t at = is_value ? d % 32 * 32 + token : token * 32 + d % 32;
      const auto found = cache.read<std::uint16_t>(record * 1024 + at);
      if (found != wanted.half[d]) {
        return fmt::format("dimension {} of {} {} of row {} is {:#x}, not {:#x}", d,
                           is_value ? "value" : "key", kv_head, row, found, wanted.half[d]);
      }
    }
    return {};
  }

  RopeShape shape_;
  std::size_t groups_;
  std::vector<float> qkv_, bias_, query_norm_, key_norm_, cosine_, sine_;
  std::vector<std::int32_t> position_;
  std::vector<std::uint32_t> row_block_;
  std::vector<cuda::OutlierPair> pairs_;  // [kv_heads][outliers]
  std::vector<std::unique_ptr<Buffer>> inputs_;
};

}  // namespace sluice::simt

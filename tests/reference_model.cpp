#include "tests/reference_model.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <thread>
#include <utility>

#include "src/base/half.h"
#include "src/quant/codec.h"

namespace sluice::test {
namespace {

using Row = std::vector<double>;

constexpr std::uint32_t kRowsAtOnce = 8;

// In sixteen sums, which compilers make vectors of.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__)
__attribute__((target_clones("default", "avx2")))
#endif
double
dot(const double* a, const double* b, std::size_t n) {
  double sums[16] = {};
  std::size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    for (std::size_t k = 0; k < 16; ++k) sums[k] += a[i + k] * b[i + k];
  }
  for (; i < n; ++i) sums[0] += a[i] * b[i];
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

double to_half(double x) { return half_to_float(float_to_half(static_cast<float>(x))); }

class Reference {
 public:
  Reference(const Model& model, const ReferenceOptions& options)
      : spec_(model.spec), weights_(model.weights), options_(options) {}

  void run(const std::vector<std::int32_t>& tokens, std::size_t first,
           const std::function<void(std::size_t, const Row&)>& visit) {
    std::vector<Row> hidden;  // [tokens][embedding]
    for (const std::int32_t token : tokens) {
      Row row = decode(weights_.embedding.row_range(static_cast<std::uint32_t>(token), 1));
      for (double& x : row) x *= static_cast<double>(spec_.embedding_scale);
      hidden.push_back(row);
    }
    for (std::uint32_t layer = 0; layer < spec_.layers; ++layer) {
      attention(layer, hidden);
      feed_forward(layer, hidden);
    }
    constexpr std::size_t kRows = 32;  // of logits at a time
    for (std::size_t begin = first; begin < hidden.size(); begin += kRows) {
      const std::size_t end = std::min(begin + kRows, hidden.size());
      std::vector<Row> x;
      for (std::size_t t = begin; t < end; ++t) x.push_back(norm(hidden[t], weights_.output_norm));
      std::vector<Row> logits = product(weights_.output, std::move(x));
      for (Row& row : logits) {
        if (spec_.logit_softcap > 0) {
          for (double& l : row) l = spec_.logit_softcap * std::tanh(l / spec_.logit_softcap);
        }
      }
      for (std::size_t t = begin; t < end; ++t) visit(t, logits[t - begin]);
    }
  }

 private:
  static Row decode(const MatrixRef& matrix) {
    std::vector<float> values(std::size_t{matrix.rows} * matrix.cols);
    decode_blocks(matrix.type, {matrix.data, matrix.bytes()}, values);
    return {values.begin(), values.end()};
  }

  // Of every row of x.
  std::vector<Row> product(const MatrixRef& matrix, std::vector<Row> x) const {
    if (options_.half_activations && matrix.type == BlockType::kF16) {
      for (Row& row : x) {
        for (double& v : row) v = to_half(v);
      }
    }
    std::vector<Row> out(x.size(), Row(matrix.rows));
    const auto rows = [&](std::uint32_t begin, std::uint32_t end) {
      // A few rows at a time, for which a row of x stays in the cache.
      for (std::uint32_t r = begin; r < end; r += kRowsAtOnce) {
        const std::uint32_t count = std::min(kRowsAtOnce, end - r);
        const Row w = decode(matrix.row_range(r, count));
        for (std::size_t t = 0; t < x.size(); ++t) {
          for (std::uint32_t i = 0; i < count; ++i)
            out[t][r + i] = dot(w.data() + std::size_t{i} * matrix.cols, x[t].data(), matrix.cols);
        }
      }
    };
    std::vector<std::jthread> helpers;
    const std::uint32_t share = (matrix.rows + options_.threads - 1) / options_.threads;
    for (std::uint32_t begin = share; begin < matrix.rows; begin += share)
      helpers.emplace_back(rows, begin, std::min(begin + share, matrix.rows));
    rows(0, std::min(share, matrix.rows));
    helpers.clear();
    return out;
  }
  Row product(const MatrixRef& matrix, const Row& x) const {
    return product(matrix, std::vector<Row>{x})[0];
  }

  Row norm(const Row& x, const Vector& weight) const {
    double squares = 0;
    for (const double v : x) squares += v * v;
    const double scale =
        1 / std::sqrt(squares / static_cast<double>(x.size()) + spec_.norm_epsilon);
    Row out(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) out[i] = x[i] * scale * weight[i];
    return out;
  }

  static void add(Row& x, const Vector& y) {
    for (std::size_t i = 0; i < y.size(); ++i) x[i] += y[i];
  }

  // Norm (if any) and rotation of one head that starts at x[at].
  void finish_head(Row& x, std::size_t at, const Vector& weight, const Rope& rope,
                   std::size_t position) const {
    Row head(x.begin() + static_cast<std::ptrdiff_t>(at),
             x.begin() + static_cast<std::ptrdiff_t>(at + spec_.head_dim));
    if (!weight.empty()) head = norm(head, weight);
    const std::uint32_t pairs = spec_.rope_dims / 2;
    for (std::uint32_t i = 0; i < pairs; ++i) {
      const std::size_t a = spec_.rope_interleaved ? 2 * i : i;
      const std::size_t b = spec_.rope_interleaved ? 2 * i + 1 : i + pairs;
      const double angle = static_cast<double>(position) * rope.inverse_frequency[i];
      const double c = std::cos(angle) * rope.magnitude, s = std::sin(angle) * rope.magnitude;
      const double x0 = head[a], x1 = head[b];
      head[a] = x0 * c - x1 * s;
      head[b] = x0 * s + x1 * c;
    }
    std::copy(head.begin(), head.end(), x.begin() + static_cast<std::ptrdiff_t>(at));
  }

  void attention(std::uint32_t layer, std::vector<Row>& hidden) const {
    const LayerWeights& w = weights_.layer[layer];
    const LayerSpec& own = spec_.layer[layer];
    const std::size_t dim = spec_.head_dim;
    std::vector<Row> x;
    for (const Row& row : hidden) x.push_back(norm(row, w.attention_norm));
    std::vector<Row> queries = product(w.query, x);
    std::vector<Row> keys = product(w.key, x);
    std::vector<Row> values = product(w.value, x);
    for (std::size_t t = 0; t < hidden.size(); ++t) {
      Row &q = queries[t], &k = keys[t], &v = values[t];
      add(q, w.query_bias);
      add(k, w.key_bias);
      add(v, w.value_bias);
      const Rope& rope = spec_.ropes[own.rope];
      for (std::size_t h = 0; h < spec_.heads; ++h) finish_head(q, h * dim, w.query_norm, rope, t);
      for (std::size_t h = 0; h < spec_.kv_heads; ++h) finish_head(k, h * dim, w.key_norm, rope, t);
    }
    std::vector<Row> all_mixed;
    for (std::size_t t = 0; t < hidden.size(); ++t) {
      Row mixed(spec_.heads * dim);
      for (std::size_t h = 0; h < spec_.heads; ++h) {
        const std::size_t from = h / (spec_.heads / spec_.kv_heads) * dim;
        const std::size_t first = own.window != 0 && t + 1 > own.window ? t + 1 - own.window : 0;
        Row scores;
        for (std::size_t p = first; p <= t; ++p) {
          double score = 0;
          for (std::size_t i = 0; i < dim; ++i)
            score += queries[t][h * dim + i] * keys[p][from + i];
          score *= spec_.attention_scale;
          const double cap = spec_.attention_softcap;
          scores.push_back(cap > 0 ? cap * std::tanh(score / cap) : score);
        }
        const double highest = *std::max_element(scores.begin(), scores.end());
        double sum = 0;
        for (double& s : scores) sum += s = std::exp(s - highest);
        for (std::size_t p = first; p <= t; ++p) {
          for (std::size_t i = 0; i < dim; ++i) {
            mixed[h * dim + i] += scores[p - first] / sum * values[p][from + i];
          }
        }
      }
      all_mixed.push_back(std::move(mixed));
    }
    std::vector<Row> out = product(w.attention_output, std::move(all_mixed));
    for (std::size_t t = 0; t < hidden.size(); ++t) {
      add(out[t], w.attention_output_bias);
      join(hidden[t], out[t], w.attention_post_norm);
    }
  }

  void join(Row& hidden, Row result, const Vector& post_norm) const {
    if (!post_norm.empty()) result = norm(result, post_norm);
    for (std::size_t i = 0; i < hidden.size(); ++i) hidden[i] += result[i];
  }

  double activation(double x) const {
    if (spec_.activation == Activation::kSilu) return x / (1 + std::exp(-x));
    const double g = options_.half_gelu ? to_half(x) : x;
    const double y = 0.5 * g * (1 + std::tanh(0.79788456080286535588 * g * (1 + 0.044715 * g * g)));
    if (!options_.half_gelu) return y;
    return x <= -10 ? 0 : x >= 10 ? x : to_half(y);
  }

  std::vector<Row> gated(const MatrixRef& gate, const MatrixRef& up, const MatrixRef& down,
                         const std::vector<Row>& x) const {
    std::vector<Row> g = product(gate, x);
    const std::vector<Row> u = product(up, x);
    for (std::size_t t = 0; t < x.size(); ++t) {
      for (std::size_t i = 0; i < g[t].size(); ++i) g[t][i] = activation(g[t][i]) * u[t][i];
    }
    return product(down, std::move(g));
  }

  void feed_forward(std::uint32_t layer, std::vector<Row>& hidden) const {
    const LayerWeights& w = weights_.layer[layer];
    if (!spec_.layer[layer].experts) {
      std::vector<Row> x;
      for (const Row& row : hidden) x.push_back(norm(row, w.feed_forward_norm));
      std::vector<Row> out = gated(w.gate, w.up, w.down, x);
      for (std::size_t t = 0; t < hidden.size(); ++t)
        join(hidden[t], std::move(out[t]), w.feed_forward_post_norm);
      return;
    }
    for (Row& row : hidden) {
      const Row x = norm(row, w.feed_forward_norm);
      Row p = product(w.router, x);
      const double highest = *std::max_element(p.begin(), p.end());
      for (double& v : p) v = std::exp(v - highest);  // the normalisation cancels below
      std::vector<std::size_t> order(p.size());
      std::iota(order.begin(), order.end(), std::size_t{0});
      std::stable_sort(order.begin(), order.end(),
                       [&](std::size_t a, std::size_t b) { return p[a] > p[b]; });
      double sum = 0;
      for (std::size_t k = 0; k < spec_.experts_used; ++k) sum += p[order[k]];
      Row mixed(row.size());
      for (std::size_t k = 0; k < spec_.experts_used; ++k) {
        const std::size_t e = order[k];
        const Row out = gated(w.expert_gate[e], w.expert_up[e], w.expert_down[e], {x})[0];
        for (std::size_t i = 0; i < out.size(); ++i) mixed[i] += p[e] / sum * out[i];
      }
      join(row, mixed, w.feed_forward_post_norm);
    }
  }

  const ModelSpec& spec_;
  const Weights& weights_;
  const ReferenceOptions& options_;
};

}  // namespace

std::vector<std::vector<double>> reference_logits(const Model& model,
                                                  const std::vector<std::int32_t>& tokens,
                                                  const ReferenceOptions& options) {
  std::vector<std::vector<double>> all;
  visit_reference_logits(
      model, tokens, 0, [&](std::size_t, const std::vector<double>& row) { all.push_back(row); },
      options);
  return all;
}

void visit_reference_logits(
    const Model& model, const std::vector<std::int32_t>& tokens, std::size_t first,
    const std::function<void(std::size_t, const std::vector<double>&)>& visit,
    const ReferenceOptions& options) {
  Reference(model, options).run(tokens, first, visit);
}

}  // namespace sluice::test

#include "tests/reference_model.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "src/base/half.h"
#include "src/quant/codec.h"

namespace sluice::test {
namespace {

using Row = std::vector<double>;

double to_half(double x) { return half_to_float(float_to_half(static_cast<float>(x))); }

class Reference {
 public:
  Reference(const Model& model, const ReferenceOptions& options)
      : spec_(model.spec), weights_(model.weights), options_(options) {}

  std::vector<Row> run(const std::vector<std::int32_t>& tokens) {
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
    std::vector<Row> logits;
    for (const Row& row : hidden) {
      Row out = product(weights_.output, norm(row, weights_.output_norm));
      if (spec_.logit_softcap > 0) {
        for (double& x : out) x = spec_.logit_softcap * std::tanh(x / spec_.logit_softcap);
      }
      logits.push_back(out);
    }
    return logits;
  }

 private:
  static Row decode(const MatrixRef& matrix) {
    std::vector<float> values(std::size_t{matrix.rows} * matrix.cols);
    decode_blocks(matrix.type, {matrix.data, matrix.bytes()}, values);
    return {values.begin(), values.end()};
  }

  Row product(const MatrixRef& matrix, Row x) const {
    if (options_.half_activations && matrix.type == BlockType::kF16) {
      for (double& v : x) v = to_half(v);
    }
    Row out(matrix.rows);
    for (std::uint32_t r = 0; r < matrix.rows; ++r) {
      const Row w = decode(matrix.row_range(r, 1));
      out[r] = std::inner_product(w.begin(), w.end(), x.begin(), 0.0);
    }
    return out;
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
    std::vector<Row> queries, keys, values;
    for (std::size_t t = 0; t < hidden.size(); ++t) {
      const Row x = norm(hidden[t], w.attention_norm);
      Row q = product(w.query, x), k = product(w.key, x), v = product(w.value, x);
      add(q, w.query_bias);
      add(k, w.key_bias);
      add(v, w.value_bias);
      const Rope& rope = spec_.ropes[own.rope];
      for (std::size_t h = 0; h < spec_.heads; ++h) finish_head(q, h * dim, w.query_norm, rope, t);
      for (std::size_t h = 0; h < spec_.kv_heads; ++h) finish_head(k, h * dim, w.key_norm, rope, t);
      queries.push_back(q);
      keys.push_back(k);
      values.push_back(v);
    }
    for (std::size_t t = 0; t < hidden.size(); ++t) {
      Row mixed(spec_.heads * dim);
      for (std::size_t h = 0; h < spec_.heads; ++h) {
        const std::size_t from = h / (spec_.heads / spec_.kv_heads) * dim;
        const std::size_t first = own.window != 0 && t + 1 > own.window ? t + 1 - own.window : 0;
        Row scores;
        for (std::size_t p = first; p <= t; ++p) {
          double dot = 0;
          for (std::size_t i = 0; i < dim; ++i) dot += queries[t][h * dim + i] * keys[p][from + i];
          dot *= spec_.attention_scale;
          const double cap = spec_.attention_softcap;
          scores.push_back(cap > 0 ? cap * std::tanh(dot / cap) : dot);
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
      Row out = product(w.attention_output, mixed);
      add(out, w.attention_output_bias);
      join(hidden[t], out, w.attention_post_norm);
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

  Row gated(const MatrixRef& gate, const MatrixRef& up, const MatrixRef& down, const Row& x) const {
    Row g = product(gate, x);
    const Row u = product(up, x);
    for (std::size_t i = 0; i < g.size(); ++i) g[i] = activation(g[i]) * u[i];
    return product(down, g);
  }

  void feed_forward(std::uint32_t layer, std::vector<Row>& hidden) const {
    const LayerWeights& w = weights_.layer[layer];
    for (Row& row : hidden) {
      const Row x = norm(row, w.feed_forward_norm);
      if (!spec_.layer[layer].experts) {
        join(row, gated(w.gate, w.up, w.down, x), w.feed_forward_post_norm);
        continue;
      }
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
        const Row out = gated(w.expert_gate[e], w.expert_up[e], w.expert_down[e], x);
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
  return Reference(model, options).run(tokens);
}

}  // namespace sluice::test

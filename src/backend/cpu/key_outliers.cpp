#include "src/backend/cpu/key_outliers.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace sluice::cpu {
namespace {

// A pair is outlying when its bias is more than this many times the root mean square of the biases
// that stay, and larger than what keys themselves come to: below that it raises no group's scale
// by much. Both by measurement (docs/PERFORMANCE.md, "Quality"): a larger ratio leaves Qwen2.5 0.5B
// biases of 150 in its first layer, where nearly all are large; a lower size takes pairs out, and
// time for them, that change nothing.
constexpr double kOutlierRatio = 2.0;
constexpr double kOutlierSize = 8.0;

}  // namespace

std::vector<KeyOutliers> find_key_outliers(const ModelSpec& spec, const LayerWeights& weights,
                                           const LayerSpec& layer, std::uint32_t positions) {
  std::vector<KeyOutliers> heads(spec.kv_heads);
  if (weights.key_bias.empty() || !weights.key_norm.empty()) return heads;
  const Rope& rope = spec.ropes[layer.rope];
  const std::uint32_t pairs = spec.rope_dims / 2;

  for (std::uint32_t h = 0; h < spec.kv_heads; ++h) {
    const float* bias = weights.key_bias.data() + std::size_t{h} * spec.head_dim;
    const auto member = [&](std::uint32_t pair, bool second) {
      if (spec.rope_interleaved) return 2 * pair + (second ? 1u : 0u);
      return pair + (second ? pairs : 0u);
    };
    const auto size = [&](std::uint32_t pair) {
      return static_cast<double>(std::hypot(bias[member(pair, false)], bias[member(pair, true)]));
    };
    std::vector<std::uint32_t> order(pairs);
    std::iota(order.begin(), order.end(), 0u);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return size(a) > size(b); });
    double rest = 0;  // sum of squares of the pairs not yet taken out
    for (const std::uint32_t pair : order) rest += size(pair) * size(pair);

    std::vector<std::uint32_t> taken;
    for (std::uint32_t i = 0; i + 1 < pairs; ++i) {
      const double own = size(order[i]);
      const double others = std::max(rest - own * own, 0.0);
      const double rms = std::sqrt(others / (pairs - i - 1));
      if (own <= kOutlierRatio * rms || own < kOutlierSize) break;
      taken.push_back(order[i]);
      rest = others;
    }
    std::sort(taken.begin(), taken.end());

    KeyOutliers& out = heads[h];
    out.positions = positions;
    out.table.resize(taken.size() * 2 * positions);
    for (std::size_t i = 0; i < taken.size(); ++i) {
      const std::uint32_t first = member(taken[i], false), second = member(taken[i], true);
      out.pairs.push_back({first, second, bias[first], bias[second]});
      float* cosine = out.table.data() + i * 2 * positions;
      float* sine = cosine + positions;
      for (std::uint32_t p = 0; p < positions; ++p) {
        const double angle = p * rope.inverse_frequency[taken[i]];
        cosine[p] = static_cast<float>(std::cos(angle)) * rope.magnitude;
        sine[p] = static_cast<float>(std::sin(angle)) * rope.magnitude;
      }
    }
  }
  return heads;
}

void outlier_coefficients(const KeyOutliers& outliers, const float* query, float* coeff) {
  for (std::size_t i = 0; i < outliers.pairs.size(); ++i) {
    const KeyOutliers::Pair& pair = outliers.pairs[i];
    const float q0 = query[pair.first], q1 = query[pair.second];
    coeff[2 * i] = q0 * pair.bias_first + q1 * pair.bias_second;
    coeff[2 * i + 1] = q1 * pair.bias_first - q0 * pair.bias_second;
  }
}

}  // namespace sluice::cpu

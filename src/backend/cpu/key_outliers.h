// Large key biases kept out of the int8 and int4 KV caches.
//
// Models of the Qwen2 kind add a bias to keys that is a hundred times larger in a few channels than
// the keys themselves; with one scale for a group of 32 the other channels would round to nothing.
// A bias is the same for every token, so its share of a score needs no cache: for a rotated pair
// (b0, b1) of the bias and a rotated query (q0, q1),
//   q . rotate(b, pos) = cos(pos w) (q0 b0 + q1 b1) + sin(pos w) (q1 b0 - q0 b1).
// The pairs with outlying bias are left out of the stored keys and added to the scores this way.
#pragma once

#include <cstdint>
#include <vector>

#include "src/model/model_spec.h"

namespace sluice::cpu {

struct KeyOutliers {
  // Index of the first value and of the second of each pair within a head, ascending.
  struct Pair {
    std::uint32_t first = 0, second = 0;
    float bias_first = 0, bias_second = 0;
  };
  std::vector<Pair> pairs;
  // [pairs][2][positions]: cos and sin of the pair's angle at each position, times the magnitude.
  std::vector<float> table;
  std::size_t positions = 0;
};

// The outlying pairs of each KV head of a layer; empty lists where the model has no key bias, or
// normalises keys after it.
std::vector<KeyOutliers> find_key_outliers(const ModelSpec& spec, const LayerWeights& weights,
                                           const LayerSpec& layer, std::uint32_t positions);

// coeff[pairs][2] for one rotated query head, as AttentionTask asks for it.
void outlier_coefficients(const KeyOutliers& outliers, const float* query, float* coeff);

}  // namespace sluice::cpu

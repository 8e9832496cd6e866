// The outcome of the sampler chain: which tokens can come next, and how likely each is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace sluice {

// Sparse and normalised. Ids ascend, so that two distributions are compared or subtracted in one
// merge and no large candidate set is ever sorted by probability; every probability is above 0.
struct Distribution {
  std::vector<std::int32_t> ids;
  std::vector<double> probabilities;  // (ids)

  std::size_t size() const { return ids.size(); }
  // 0 for a token outside the set.
  double probability_of(std::int32_t id) const;
  // Index of the most probable token, of equal ones the lowest id. Requires size() > 0.
  std::size_t best() const;
};

// Index drawn by a uniform number u of [0, 1): the first whose running sum, in id order, exceeds u.
// Requires size() > 0.
std::size_t draw_index(const Distribution& distribution, double u);

// Sum in one documented order: eight running sums over i mod 8, then ((0+4)+(2+6)) + ((1+5)+(3+7)).
double ordered_sum(const double* values, std::size_t n);

}  // namespace sluice

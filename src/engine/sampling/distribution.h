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

// Index drawn by an exponential race: token i finishes at E_i / p_i, where E_i is an exponential
// number that is a function of (key, id) alone, and the first one wins, of equal ones the lower id.
// The winner has distribution p, and two distributions that are alike mostly choose the same token
// for the same key, with probability at least (1 - d) / (1 + d) at total variation distance d: so a
// draft model that draws with the target's key guesses its draws, and the tokens do not depend on
// who drafted. Source: Daliri, Musco, Suresh, "Coupling without Communication and Drafter-Invariant
// Speculative Decoding", 2024. Requires size() > 0.
std::size_t draw_race(const Distribution& distribution, std::uint64_t key);

// Sum in one documented order: eight running sums over i mod 8, then ((0+4)+(2+6)) + ((1+5)+(3+7)).
double ordered_sum(const double* values, std::size_t n);

}  // namespace sluice

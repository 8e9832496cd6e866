#include "src/engine/sampling/distribution.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace sluice {

double Distribution::probability_of(std::int32_t id) const {
  const auto it = std::lower_bound(ids.begin(), ids.end(), id);
  if (it == ids.end() || *it != id) return 0;
  return probabilities[static_cast<std::size_t>(it - ids.begin())];
}

std::size_t Distribution::best() const {
  return static_cast<std::size_t>(std::max_element(probabilities.begin(), probabilities.end()) -
                                  probabilities.begin());
}

namespace {

// Uniform in (0, 1), from the mixer of splitmix64 (Steele, Lea, Flood, "Fast Splittable
// Pseudorandom Number Generators", 2014).
double uniform_of(std::uint64_t key, std::int32_t id) {
  std::uint64_t x = key + (static_cast<std::uint64_t>(id) + 1) * 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  x ^= x >> 31;
  return (static_cast<double>(x >> 12) + 0.5) * 0x1.0p-52;
}

}  // namespace

std::size_t draw_race(const Distribution& distribution, std::uint64_t key) {
  std::size_t winner = 0;
  double first = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < distribution.size(); ++i) {
    const double u = uniform_of(key, distribution.ids[i]);
    // -log(u) >= 1 - u: most tokens are out of the race without a logarithm.
    const double p = distribution.probabilities[i];
    if (1 - u >= first * p) continue;
    const double time = -std::log(u) / p;
    if (time < first) {
      first = time;
      winner = i;
    }
  }
  return winner;
}

double ordered_sum(const double* values, std::size_t n) {
  double lanes[8] = {};
  std::size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    for (std::size_t j = 0; j < 8; ++j) lanes[j] += values[i + j];
  }
  for (std::size_t j = 0; i + j < n; ++j) lanes[j] += values[i + j];
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
         ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

}  // namespace sluice

#include "src/engine/sampling/distribution.h"

#include <algorithm>

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

std::size_t draw_index(const Distribution& distribution, double u) {
  double sum = 0;
  for (std::size_t i = 0; i < distribution.size(); ++i) {
    sum += distribution.probabilities[i];
    if (sum > u) return i;
  }
  return distribution.size() - 1;  // the sum rounds to a little less than 1
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

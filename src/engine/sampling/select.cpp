#include "src/engine/sampling/select.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "src/engine/sampling/distribution.h"
#include "src/engine/sampling/params.h"

namespace sluice {
namespace {

constexpr float kLowestFinite = std::numeric_limits<float>::lowest();
constexpr float kLargestFinite = std::numeric_limits<float>::max();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool before(const RankedCandidate& a, const RankedCandidate& b) {
  if (a.rank != b.rank) return a.rank < b.rank;
  if (a.logit != b.logit) return a.logit > b.logit;
  return a.id < b.id;
}

double rank_of(float logit, const double* typical_logit) {
  return typical_logit ? std::fabs(double{logit} - *typical_logit) : -double{logit};
}

// Smallest float >= x, within the finite floats.
float float_at_least(double x) {
  if (x <= kLowestFinite) return kLowestFinite;
  if (x > kLargestFinite) return std::numeric_limits<float>::infinity();
  const auto f = static_cast<float>(x);
  return double{f} >= x ? f : std::nextafter(f, std::numeric_limits<float>::infinity());
}

// Largest float <= x, within the finite floats.
float float_at_most(double x) { return -float_at_least(-x); }

// Drops entries that `keep(index)` refuses, in place; without a branch, which would be
// mispredicted.
template <class Keep>
void filter(CandidateList& list, Keep keep) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < list.count; ++i) {
    const bool stays = keep(i);
    list.ids[kept] = list.ids[i];
    list.logits[kept] = list.logits[i];
    kept += static_cast<std::size_t>(stays);
  }
  list.count = kept;
}

// Widths to try when collecting around a logit until enough weight is found: 1, 2, 4, 6, 8, ...
double wider(double width) { return width < 2 ? 2 * width : width + 2; }

}  // namespace

void Selector::collect(const Pool& pool, double lowest, double highest, CandidateList& out) const {
  const float low = float_at_least(lowest);
  const float high = float_at_most(highest);
  const std::size_t n = pool.logits.size();
  out.clear();
  for (std::size_t block = 0; block < pool.block_max.size(); ++block) {
    if (pool.block_max[block] < low) continue;
    out.reserve(kScanBlock);
    std::int32_t* ids = out.ids.data() + out.count;
    float* logits = out.logits.data() + out.count;
    std::size_t kept = 0;
    const std::size_t end = std::min(n, (block + 1) * kScanBlock);
    for (std::size_t i = block * kScanBlock; i < end; ++i) {
      const float x = pool.logits[i];
      ids[kept] = pool.id(i);
      logits[kept] = x;
      kept += static_cast<std::size_t>((x >= low) & (x <= high));
    }
    out.count += kept;
  }
}

std::size_t Selector::best(const Pool& pool) {
  const auto block = static_cast<std::size_t>(
      std::find(pool.block_max.begin(), pool.block_max.end(), pool.max) - pool.block_max.begin());
  const auto first = pool.logits.begin() + static_cast<std::ptrdiff_t>(block * kScanBlock);
  return static_cast<std::size_t>(std::find(first, pool.logits.end(), pool.max) -
                                  pool.logits.begin());
}

void Selector::top_k(const Pool& pool, std::size_t k, CandidateList& out) {
  // At least k logits are >= the k-th largest of maxima over disjoint groups, so only logits that
  // reach it can be among the k first. Larger groups are quicker while there are enough of them.
  constexpr std::size_t kGroup = 16;
  const std::size_t blocks = pool.block_max.size();
  std::vector<float>& maxima = scratch_.maxima;
  maxima.clear();
  if (k <= blocks / kGroup) {
    for (std::size_t i = 0; i + kGroup <= blocks; i += kGroup) {
      maxima.push_back(
          *std::max_element(pool.block_max.begin() + static_cast<std::ptrdiff_t>(i),
                            pool.block_max.begin() + static_cast<std::ptrdiff_t>(i + kGroup)));
    }
  } else if (k <= blocks) {
    maxima.assign(pool.block_max.begin(), pool.block_max.end());
  }
  double lowest = -kInfinity;
  if (!maxima.empty()) {
    const auto kth = maxima.begin() + static_cast<std::ptrdiff_t>(k - 1);
    std::nth_element(maxima.begin(), kth, maxima.end(), std::greater<>());
    lowest = double{*kth};
  }
  collect(pool, lowest, kInfinity, out);
  if (out.count <= k) return;

  std::vector<RankedCandidate>& ranked = scratch_.ranked;
  ranked.resize(out.count);
  for (std::size_t i = 0; i < out.count; ++i) {
    ranked[i] = {-double{out.logits[i]}, 0, out.logits[i], out.ids[i]};
  }
  const auto kth = ranked.begin() + static_cast<std::ptrdiff_t>(k - 1);
  std::nth_element(ranked.begin(), kth, ranked.end(), before);
  const RankedCandidate last = *kth;
  filter(out, [&](std::size_t i) {
    return out.logits[i] > last.logit || (out.logits[i] == last.logit && out.ids[i] <= last.id);
  });
}

double Selector::weigh(const CandidateList& list, double max) {
  std::vector<double>& weights = scratch_.weights;
  if (weights.size() < list.count) weights.resize(2 * list.count);
  passes_->weights(list.logits.data(), list.count, max, 1.0, weights.data());
  return ordered_sum(weights.data(), list.count);
}

void Selector::keep_mass(CandidateList& list, double target, const double* typical_logit) {
  constexpr std::size_t kBands = 512;
  constexpr std::size_t kSmall = 32;
  const std::vector<double>& weights = scratch_.weights;
  // Sum up by bands of rank first: the target is passed in one of them, and only that one needs a
  // closer look. `kept` is the weight of the bands before it.
  double first = kInfinity, final = -kInfinity;
  for (std::size_t i = 0; i < list.count; ++i) {
    const double rank = rank_of(list.logits[i], typical_logit);
    first = std::min(first, rank);
    final = std::max(final, rank);
  }
  double scale = (kBands - 1) / (final - first);
  if (!std::isfinite(scale)) scale = 0;  // all of one rank, or as good as
  const auto band_of = [&](std::size_t i) {
    return static_cast<std::size_t>((rank_of(list.logits[i], typical_logit) - first) * scale);
  };
  scratch_.bands.assign(kBands, 0);
  for (std::size_t i = 0; i < list.count; ++i) scratch_.bands[band_of(i)] += weights[i];
  double kept = 0;
  std::size_t band = 0;
  while (band + 1 < kBands && kept + scratch_.bands[band] < target) kept += scratch_.bands[band++];

  std::vector<RankedCandidate>& ranked = scratch_.ranked;
  ranked.clear();
  for (std::size_t i = 0; i < list.count; ++i) {
    if (band_of(i) != band) continue;
    ranked.push_back(
        {rank_of(list.logits[i], typical_logit), weights[i], list.logits[i], list.ids[i]});
  }

  if (ranked.empty()) return;  // by rounding: nothing can be spared

  // Halve the range in which the sum passes the target; `kept` is the weight of all before it.
  auto low = ranked.begin();
  auto high = ranked.end();
  while (static_cast<std::size_t>(high - low) > kSmall) {
    const auto middle = low + (high - low) / 2;
    std::nth_element(low, middle, high, before);
    double half = 0;
    for (auto it = low; it != middle; ++it) half += it->weight;
    if (kept + half >= target) {
      high = middle;
    } else {
      kept += half;
      low = middle;
    }
  }
  std::sort(low, high, before);
  auto last = low;
  for (kept += last->weight; kept < target && last + 1 != high; kept += last->weight) ++last;

  const RankedCandidate cut = *last;
  filter(list, [&](std::size_t i) {
    const double rank = rank_of(list.logits[i], typical_logit);
    return rank < cut.rank ||
           (rank == cut.rank && !before(cut, {rank, 0, list.logits[i], list.ids[i]}));
  });
}

void Selector::nucleus(const Pool& pool, double top_p, double min_p, CandidateList& out) {
  // Both filters keep a beginning of the order, so the shorter one decides.
  const double max = pool.max;
  const double lowest = min_p > 0 ? max + std::log(min_p) : -kInfinity;
  if (top_p >= 1) {
    collect(pool, lowest, kInfinity, out);
    return;
  }
  const std::size_t n = pool.logits.size();
  const double total = passes_->sum(pool.logits.data(), n, max, 1.0);
  const double target = top_p * total * (1 - kMassTolerance);
  // All logits more than `far` below the maximum weigh less than what the target leaves out.
  const double far = std::log(static_cast<double>(n) / (total - target)) + 1;
  for (double depth = 1;; depth = wider(depth)) {
    const double reach = std::max(max - std::min(depth, far), lowest);
    collect(pool, reach, kInfinity, out);
    if (weigh(out, max) >= target) {
      keep_mass(out, target, nullptr);
      return;
    }
    // Either min-p keeps less than top-p would, or (by rounding of the sums) nothing can be spared.
    if (reach == lowest || depth >= far) return;
  }
}

void Selector::typical(const Pool& pool, double p, CandidateList& out) {
  const double max = pool.max;
  const WeightSums sums = passes_->sums(pool.logits.data(), pool.logits.size(), max, 1.0);
  // Information -log p_i is (max + log Z) - logit, and the entropy is the mean of that, so their
  // distance is the distance of the logit from the mean logit.
  const double mean = max + sums.moment / sums.weight;
  const double target = p * sums.weight * (1 - kMassTolerance);
  constexpr double kWidest = 32;
  for (double radius = 0.5;; radius = radius < kWidest ? wider(radius) : kInfinity) {
    collect(pool, mean - radius, mean + radius, out);
    const bool enough = out.count > 0 && weigh(out, max) >= target;
    if (enough || radius == kInfinity) break;
  }
  keep_mass(out, target, &mean);
}

void Selector::surprise_at_most(const Pool& pool, double temperature, double mu,
                                CandidateList& out) {
  const double max = pool.max;
  const double total = passes_->sum(pool.logits.data(), pool.logits.size(), max, temperature);
  const double lowest = max + temperature * (std::log(total) - mu * std::log(2.0));
  collect(pool, lowest, kInfinity, out);
  if (out.count > 0) return;
  out.reserve(1);
  const std::size_t first = best(pool);
  out.ids[0] = pool.id(first);
  out.logits[0] = pool.logits[first];
  out.count = 1;
}

void Selector::exclude_top(CandidateList& list, double max, double threshold) {
  if (list.count < 2) return;
  const double lowest = threshold * weigh(list, max);
  const std::vector<double>& weights = scratch_.weights;
  std::size_t above = 0;
  std::size_t last = 0;  // the last in order of those above: lowest logit, of equal ones highest id
  for (std::size_t i = 0; i < list.count; ++i) {
    if (weights[i] < lowest) continue;
    if (above == 0 || list.logits[i] <= list.logits[last]) last = i;
    ++above;
  }
  if (above < 2) return;
  const std::int32_t stays = list.ids[last];
  filter(list, [&](std::size_t i) { return weights[i] < lowest || list.ids[i] == stays; });
}

}  // namespace sluice

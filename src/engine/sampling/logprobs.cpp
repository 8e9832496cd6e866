#include "src/engine/sampling/logprobs.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/engine/sampling/passes.h"
#include "src/engine/sampling/select.h"

namespace sluice {

Error unusable_logits(std::span<const float> logits, std::size_t position) {
  std::size_t bad = 0;
  std::size_t first = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (!std::isnan(logits[i]) && logits[i] != std::numeric_limits<float>::infinity()) continue;
    if (bad++ == 0) first = i;
  }
  if (bad > 0) {
    return failed(
        "the logits for position {} are not usable: {} of {} are NaN or infinite (first: token {} "
        "is {}); the model file may be damaged, or its values overflow",
        position, bad, logits.size(), first, logits[first]);
  }
  return failed(
      "the logits for position {} are not usable: all {} are -inf, so every token is banned; "
      "remove logit biases, or check the model file",
      position, logits.size());
}

Result<Logprobs> top_logprobs(std::span<const float> logits, std::size_t count, std::int32_t chosen,
                              std::size_t position) {
  const std::size_t n = logits.size();
  if (chosen < 0 || static_cast<std::size_t>(chosen) >= n) {
    return failed("token {} has no logit; expected an id from 0 to {}", chosen,
                  static_cast<std::int64_t>(n) - 1);
  }
  const VocabPasses& passes = best_passes();
  std::vector<float> block_max(scan_blocks(n));
  const ScanResult scan = passes.scan(logits.data(), n, block_max.data());
  if (scan.has_nan || !std::isfinite(scan.max)) return unusable_logits(logits, position);

  const double max = scan.max;
  const double log_total = std::log(passes.sums(logits.data(), n, max, 1.0).weight);
  Logprobs result;
  result.chosen = (double{logits[static_cast<std::size_t>(chosen)]} - max) - log_total;
  if (count == 0) return result;

  Selector selector(passes);
  CandidateList list;
  selector.top_k({logits, nullptr, block_max, scan.max}, std::min(count, n), list);
  result.top.reserve(list.count);
  for (std::size_t i = 0; i < list.count; ++i) {
    result.top.push_back({list.ids[i], (double{list.logits[i]} - max) - log_total});
  }
  std::sort(result.top.begin(), result.top.end(),
            [&](const TokenLogprob& a, const TokenLogprob& b) {
              const float x = logits[static_cast<std::size_t>(a.id)];
              const float y = logits[static_cast<std::size_t>(b.id)];
              return x != y ? x > y : a.id < b.id;
            });
  return result;
}

}  // namespace sluice

// Log-probabilities of the model itself: log-softmax of the raw logits, before any sampler.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "src/base/status.h"

namespace sluice {

struct TokenLogprob {
  std::int32_t id = 0;
  double logprob = 0;  // natural logarithm, finite
};

struct Logprobs {
  std::vector<TokenLogprob> top;  // most probable first, of equal ones the lower id
  double chosen = 0;              // of the chosen token; -inf if its logit is
};

// The `count` most probable tokens (fewer if fewer have a finite logit) and the chosen one, found
// without sorting the vocabulary. Errors: unusable logits as in Sampler (position is for the
// message), a chosen id out of range.
Result<Logprobs> top_logprobs(std::span<const float> logits, std::size_t count, std::int32_t chosen,
                              std::size_t position);

// The error for logits with NaN, +inf or nothing above -inf: what was found, and where.
Error unusable_logits(std::span<const float> logits, std::size_t position);

}  // namespace sluice

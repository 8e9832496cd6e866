// The logits of one position.
#pragma once

#include <cstdint>
#include <span>
#include <type_traits>

namespace sluice {

// Of all tokens, or of those only that a device has found to be the largest: enough of them, see
// Sampler::top_needed(). A view.
struct LogitRow {
  template <class Floats>  // NOLINTNEXTLINE: all tokens are the plain case
  requires std::is_convertible_v<Floats, std::span<const float>> LogitRow(Floats&& all)
      : logits(all) {}
  LogitRow(std::span<const float> values, const std::int32_t* tokens)
      : logits(values), ids(tokens) {}

  std::span<const float> logits;
  const std::int32_t* ids = nullptr;  // ascending; null: entry i is token i
};

}  // namespace sluice

// DRY ("don't repeat yourself"): penalises the token that would continue a repetition of what was
// already said. Proposed by p-e-w, https://github.com/oobabooga/text-generation-webui/pull/5677.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "src/engine/sampling/params.h"

namespace sluice {

// The bytes of a token as they appear in text (specials included).
using PieceOf = std::function<std::string(std::int32_t token)>;

class DryPenalty {
 public:
  struct Repeat {
    std::int32_t token = 0;  // would continue a repetition
    std::size_t length = 0;  // of that many tokens
  };

  // `params` are valid. piece_of is needed if there are sequence breakers.
  DryPenalty(const SamplingParams& params, PieceOf piece_of);

  bool enabled() const { return multiplier_ > 0 && window_ != 0; }

  // Call after each token is added to `history`; it notes whether a breaker ends in the last one.
  void push(std::span<const std::int32_t> history);
  void truncate(std::size_t length) { breaks_.resize(length); }

  // The tokens to penalise next and the longest repetition that each would continue; lengths are at
  // least dry_allowed_length. Linear in the window; nothing to do if the text just passed a
  // breaker. The span is valid until the next call.
  std::span<const Repeat> repeats(std::span<const std::int32_t> history);

  // What is subtracted from the token's logit; may be +inf.
  double penalty(std::size_t repeat_length) const;

 private:
  bool contains_breaker(std::int32_t token) const;

  double multiplier_;
  double base_;
  std::size_t allowed_length_;
  std::int32_t window_;
  std::vector<std::string> breakers_;
  std::size_t longest_breaker_ = 0;
  PieceOf piece_of_;
  std::vector<bool> breaks_;  // (history) does a breaker end in this token?

  // Scratch of repeats().
  std::vector<std::size_t> match_;
  std::unordered_map<std::int32_t, std::size_t> longest_;
  std::vector<Repeat> repeats_;
};

}  // namespace sluice

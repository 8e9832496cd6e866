#include "src/engine/sampling/dry.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace sluice {

DryPenalty::DryPenalty(const SamplingParams& params, PieceOf piece_of)
    : multiplier_(params.dry_multiplier),
      base_(params.dry_base),
      allowed_length_(static_cast<std::size_t>(params.dry_allowed_length)),
      window_(params.dry_penalty_last_n),
      breakers_(params.dry_sequence_breakers),
      piece_of_(std::move(piece_of)) {
  for (const std::string& breaker : breakers_) {
    longest_breaker_ = std::max(longest_breaker_, breaker.size());
  }
}

void DryPenalty::push(std::span<const std::int32_t> history) {
  if (!enabled()) return;
  bool broken = false;
  if (!breakers_.empty()) {
    // A breaker may have begun in earlier tokens: look back as many bytes as it could have there.
    std::string before;
    for (std::size_t i = history.size() - 1; i > 0 && before.size() + 1 < longest_breaker_; --i) {
      before.insert(0, piece_of_(history[i - 1]));
    }
    const std::string text = before + piece_of_(history.back());
    for (const std::string& breaker : breakers_) {
      // Only matches that end in the last token's bytes.
      const std::size_t from =
          before.size() + 1 > breaker.size() ? before.size() + 1 - breaker.size() : 0;
      broken = broken || text.find(breaker, from) != std::string::npos;
    }
  }
  breaks_.push_back(broken);
}

std::span<const DryPenalty::Repeat> DryPenalty::repeats(std::span<const std::int32_t> history) {
  repeats_.clear();
  if (!enabled()) return repeats_;
  const std::size_t n =
      window_ < 0 ? history.size() : std::min(history.size(), static_cast<std::size_t>(window_));
  // How far back a repetition may reach: to the last breaker.
  std::size_t limit = 0;
  while (limit < n && !breaks_[history.size() - 1 - limit]) ++limit;
  if (limit < allowed_length_ || n < 2) return repeats_;

  // Read backwards, s(0) being the last token, a repetition of length L before s(k-1) is a common
  // prefix of length L of s and s(k...): the Z function of s, in linear time.
  const auto s = [&](std::size_t i) { return history[history.size() - 1 - i]; };
  match_.assign(n, 0);
  longest_.clear();
  std::size_t left = 0, right = 0;  // s(left...right-1) equals a prefix, right as large as known
  for (std::size_t k = 1; k < n; ++k) {
    std::size_t length = k < right ? std::min(right - k, match_[k - left]) : 0;
    while (k + length < n && s(length) == s(k + length)) ++length;
    match_[k] = length;
    if (k + length > right) left = k, right = k + length;
    length = std::min(length, limit);
    if (length < allowed_length_) continue;
    std::size_t& longest = longest_[s(k - 1)];
    longest = std::max(longest, length);
  }
  for (const auto& [token, length] : longest_) {
    if (!contains_breaker(token)) repeats_.push_back({token, length});
  }
  return repeats_;
}

double DryPenalty::penalty(std::size_t repeat_length) const {
  return multiplier_ * std::pow(base_, static_cast<double>(repeat_length - allowed_length_));
}

bool DryPenalty::contains_breaker(std::int32_t token) const {
  if (breakers_.empty()) return false;
  const std::string piece = piece_of_(token);
  return std::any_of(breakers_.begin(), breakers_.end(), [&](const std::string& breaker) {
    return piece.find(breaker) != std::string::npos;
  });
}

}  // namespace sluice

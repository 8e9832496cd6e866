#include "src/engine/batch/prefix_advice.h"

#include <algorithm>
#include <unordered_set>

#include "src/engine/token_hash.h"

namespace sluice {
namespace {

constexpr std::size_t kFewestPairs = 4;
constexpr double kWorthSaying = 0.2;
constexpr std::size_t kShown = 12;  // tokens of the difference

}  // namespace

void PrefixAdvice::add(std::span<const std::int32_t> prompt) {
  if (items_ == kMostItems) return;
  ++items_;
  if (items_ > 1) {
    const auto ends = std::mismatch(prompt.begin(), prompt.end(), last_.begin(), last_.end());
    const auto from = static_cast<std::size_t>(ends.first - prompt.begin());
    std::unordered_set<std::uint64_t> runs;
    for (std::size_t i = from; i + kRun <= last_.size(); ++i) {
      runs.insert(token_hash(std::span(last_).subspan(i, kRun)));
    }
    std::size_t common = 0;
    for (std::size_t i = from; i + kRun <= prompt.size();) {
      const bool known = !runs.empty() && runs.contains(token_hash(prompt.subspan(i, kRun)));
      common += known ? kRun : 0;
      i += known ? kRun : 1;
    }
    tokens_ += prompt.size();
    common_ += common;
    if (common > 0) {
      if (pairs_ == 0 || from < first_.differ_from) {
        const auto shown = prompt.subspan(from, std::min(kShown, prompt.size() - from));
        first_ = {from, {shown.begin(), shown.end()}, 0};
      }
      ++pairs_;
    }
  }
  last_.assign(prompt.begin(), prompt.end());
}

std::optional<PrefixAdvice::Advice> PrefixAdvice::advice() const {
  if (pairs_ < kFewestPairs) return std::nullopt;
  Advice advice = first_;
  advice.could_save = static_cast<double>(common_) / static_cast<double>(tokens_);
  if (advice.could_save < kWorthSaying) return std::nullopt;
  return advice;
}

}  // namespace sluice

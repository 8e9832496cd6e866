#include "src/text/stop_matcher.h"

#include <algorithm>

namespace sluice {

Result<StopMatcher> StopMatcher::create(std::vector<std::string> stops) {
  StopMatcher matcher;
  for (std::string& stop : stops) {
    if (stop.empty()) {
      return make_error(ErrorCode::kUsage, "a stop string is empty; expected at least one byte");
    }
    Pattern pattern{std::move(stop), {}, 0};
    pattern.border.assign(pattern.text.size() + 1, 0);
    for (std::size_t i = 2, length = 0; i <= pattern.text.size(); ++i) {
      while (length > 0 && pattern.text[i - 1] != pattern.text[length]) {
        length = pattern.border[length];
      }
      if (pattern.text[i - 1] == pattern.text[length]) ++length;
      pattern.border[i] = length;
    }
    matcher.patterns_.push_back(std::move(pattern));
  }
  return matcher;
}

std::string StopMatcher::push(std::string_view text) {
  if (stopped_) return {};
  if (patterns_.empty()) return std::string(text);
  held_ += text;
  std::size_t longest = 0;  // of all prefixes of stop strings that end at the current byte
  const std::size_t begin = held_.size() - text.size();
  for (std::size_t at = begin; at < held_.size(); ++at) {
    longest = 0;
    std::size_t stop_length = 0;
    for (std::size_t p = 0; p < patterns_.size(); ++p) {
      Pattern& pattern = patterns_[p];
      while (pattern.matched > 0 && pattern.text[pattern.matched] != held_[at]) {
        pattern.matched = pattern.border[pattern.matched];
      }
      if (pattern.text[pattern.matched] == held_[at]) ++pattern.matched;
      longest = std::max(longest, pattern.matched);
      if (pattern.matched == pattern.text.size() && pattern.matched > stop_length) {
        stop_length = pattern.matched;
        which_ = p;
      }
    }
    if (stop_length > 0) {
      stopped_ = true;
      std::string out = held_.substr(0, at + 1 - stop_length);
      held_.clear();
      return out;
    }
  }
  if (text.empty()) return {};
  // A prefix that ends here began at most `longest` bytes ago; nothing before it can stop any more.
  std::string out = held_.substr(0, held_.size() - longest);
  held_.erase(0, out.size());
  return out;
}

std::string StopMatcher::finish() {
  std::string out;
  out.swap(held_);
  for (Pattern& pattern : patterns_) pattern.matched = 0;
  return out;
}

}  // namespace sluice

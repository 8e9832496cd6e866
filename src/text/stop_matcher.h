// Finding stop strings in text that arrives piece by piece.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"

namespace sluice {

// Ends the text in front of the stop string that is complete first; of those complete at the same
// byte, the longest counts. Holds back only what may still become a stop string. The concatenated
// output does not depend on how the input was cut. Feed it from a TextStream, and its output is
// whole characters too (as long as the stop strings are UTF-8).
class StopMatcher {
 public:
  // An empty list never stops. An empty stop string is an error.
  static Result<StopMatcher> create(std::vector<std::string> stops);

  // Adds text and returns what is now certain to lie before any stop string. Once stopped(),
  // everything pushed is swallowed.
  std::string push(std::string_view text);

  // Ends the text: what was held back turns out to be no stop string. Empty after a stop.
  std::string finish();

  bool stopped() const { return stopped_; }
  // Index in the list of the stop string found. Requires stopped().
  std::size_t which() const { return which_; }
  // Length of what is held back.
  std::size_t pending_bytes() const { return held_.size(); }

 private:
  // Knuth, Morris, Pratt: border[i] is the length of the longest proper border of the first i
  // bytes.
  struct Pattern {
    std::string text;
    std::vector<std::size_t> border;
    std::size_t matched = 0;  // bytes of `text` that end the input so far
  };

  StopMatcher() = default;

  std::vector<Pattern> patterns_;
  std::string held_;
  bool stopped_ = false;
  std::size_t which_ = 0;
};

}  // namespace sluice

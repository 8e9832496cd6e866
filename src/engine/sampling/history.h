// The tokens of one sequence, with counts over the last `window` of them kept up to date.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace sluice {

struct TokenCount {
  std::int32_t token = 0;
  std::uint32_t count = 0;
};

// Each accepted or removed token costs constant time; nothing rescans the history.
class TokenHistory {
 public:
  // window: 0 counts nothing (and takes no memory for it), -1 counts the whole sequence.
  TokenHistory(std::size_t vocab_size, std::int32_t window);

  // Requires 0 <= token < vocab_size.
  void push(std::int32_t token);
  // Requires length <= size(). Tokens that come back into the window are counted again.
  void truncate(std::size_t length);

  std::size_t size() const { return tokens_.size(); }
  std::span<const std::int32_t> tokens() const { return tokens_; }
  // Each different token of the window once, in no special order.
  std::span<const TokenCount> counts() const { return counts_; }

 private:
  static constexpr std::uint32_t kNowhere = UINT32_MAX;

  void add(std::int32_t token);
  void remove(std::int32_t token);
  // Does the window reach its limit with `size` tokens, so that it starts after the first?
  bool limited(std::size_t size) const {
    return window_ > 0 && size > static_cast<std::size_t>(window_);
  }

  std::int32_t window_;
  std::vector<std::int32_t> tokens_;
  std::vector<TokenCount> counts_;
  std::vector<std::uint32_t> place_;  // (vocab_size) index into counts_, or kNowhere
};

}  // namespace sluice

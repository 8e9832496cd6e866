#include "src/engine/sampling/history.h"

namespace sluice {

TokenHistory::TokenHistory(std::size_t vocab_size, std::int32_t window) : window_(window) {
  if (window != 0) place_.assign(vocab_size, kNowhere);
}

void TokenHistory::push(std::int32_t token) {
  tokens_.push_back(token);
  if (window_ == 0) return;
  add(token);
  if (limited(tokens_.size())) {
    remove(tokens_[tokens_.size() - 1 - static_cast<std::size_t>(window_)]);
  }
}

void TokenHistory::truncate(std::size_t length) {
  if (window_ == 0) {
    tokens_.resize(length);
    return;
  }
  while (tokens_.size() > length) {
    const std::int32_t token = tokens_.back();
    if (limited(tokens_.size())) {
      add(tokens_[tokens_.size() - 1 - static_cast<std::size_t>(window_)]);
    }
    tokens_.pop_back();
    remove(token);
  }
}

void TokenHistory::add(std::int32_t token) {
  std::uint32_t& place = place_[static_cast<std::size_t>(token)];
  if (place == kNowhere) {
    place = static_cast<std::uint32_t>(counts_.size());
    counts_.push_back({token, 0});
  }
  ++counts_[place].count;
}

void TokenHistory::remove(std::int32_t token) {
  std::uint32_t& place = place_[static_cast<std::size_t>(token)];
  if (--counts_[place].count > 0) return;
  // The last entry takes the place of the one that is gone.
  counts_[place] = counts_.back();
  place_[static_cast<std::size_t>(counts_[place].token)] = place;
  counts_.pop_back();
  place = kNowhere;
}

}  // namespace sluice

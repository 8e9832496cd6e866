#include "src/engine/chat/reasoning.h"

#include <algorithm>

namespace sluice {
namespace {

constexpr std::string_view kOpen = "<think>";
constexpr std::string_view kClose = "</think>";
constexpr std::string_view kSpace = " \t\r\n";

// Length of the longest end of `text` that is a proper beginning of `mark`.
std::size_t partial_mark(std::string_view text, std::string_view mark) {
  for (std::size_t n = std::min(text.size(), mark.size() - 1); n > 0; --n) {
    if (text.ends_with(mark.substr(0, n))) return n;
  }
  return 0;
}

}  // namespace

ReasoningSplitter::ReasoningSplitter(std::string_view prompt_end) {
  const std::size_t last = prompt_end.find_last_not_of(kSpace);
  if (last != std::string_view::npos && prompt_end.substr(0, last + 1).ends_with(kOpen)) {
    state_ = State::kReasoning;
  }
}

ReasoningSplitter::Piece ReasoningSplitter::push(std::string_view text) {
  held_ += text;
  return advance(false);
}

ReasoningSplitter::Piece ReasoningSplitter::finish() { return advance(true); }

ReasoningSplitter::Piece ReasoningSplitter::advance(bool end) {
  Piece piece;
  if (state_ == State::kStart) {
    const std::size_t begin = std::min(held_.find_first_not_of(kSpace), held_.size());
    const std::string_view rest = std::string_view(held_).substr(begin);
    if (rest.starts_with(kOpen)) {
      held_.erase(0, begin + kOpen.size());
      state_ = State::kReasoning;
    } else if (end || !kOpen.starts_with(rest)) {
      state_ = State::kAnswer;
    }
  }
  if (state_ == State::kReasoning) {
    const std::size_t mark = held_.find(kClose);
    if (mark != std::string::npos) {
      piece.reasoning = held_.substr(0, mark);
      held_.erase(0, mark + kClose.size());
      state_ = State::kGap;
    } else {
      const std::size_t keep = end ? 0 : partial_mark(held_, kClose);
      piece.reasoning = held_.substr(0, held_.size() - keep);
      held_.erase(0, held_.size() - keep);
    }
  }
  if (state_ == State::kGap) {
    held_.erase(0, std::min(held_.find_first_not_of(kSpace), held_.size()));
    if (!held_.empty()) state_ = State::kAnswer;
  }
  if (state_ == State::kAnswer) {
    piece.answer = std::move(held_);
    held_.clear();
  }
  return piece;
}

}  // namespace sluice

#include "src/engine/logit_rows.h"

namespace sluice {

LogitRows::LogitRows(std::size_t most, std::size_t vocabulary, std::size_t candidates)
    : vocabulary_(vocabulary), candidates_(candidates), whole_(most * vocabulary) {}

LogitsOut LogitRows::out(std::size_t rows, std::size_t top) {
  top_ = top;
  LogitsOut out;
  if (top == 0) {
    out.whole = std::span(whole_).first(rows * vocabulary_);
    return out;
  }
  ids_.resize(rows * top);
  logits_.resize(rows * top);
  out.top = static_cast<std::uint32_t>(top);
  out.candidates = static_cast<std::uint32_t>(candidates_);
  out.top_ids = ids_;
  out.top_logits = logits_;
  return out;
}

LogitRow LogitRows::row(std::size_t i) const {
  if (top_ == 0) return LogitRow(std::span(whole_).subspan(i * vocabulary_, candidates_));
  return {std::span(logits_).subspan(i * top_, top_), ids_.data() + i * top_};
}

}  // namespace sluice

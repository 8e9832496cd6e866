#include "src/text/jinja/tagged_text.h"

#include <algorithm>

namespace sluice::jinja {

bool TaggedText::content_at(std::size_t pos) const {
  const auto after = std::upper_bound(flips_.begin(), flips_.end(), pos);
  return first_ != ((after - flips_.begin()) % 2 != 0);
}

void TaggedText::append(std::string_view text, bool content) {
  if (text.empty()) return;
  if (text_.empty()) {
    first_ = content;
    flips_.clear();
  } else if (content != (first_ != (flips_.size() % 2 != 0))) {
    flips_.push_back(text_.size());
  }
  text_.append(text);
}

void TaggedText::append_range(const TaggedText& other, std::size_t begin, std::size_t end) {
  std::size_t pos = begin;
  auto flip = std::upper_bound(other.flips_.begin(), other.flips_.end(), begin);
  bool content = other.first_ != ((flip - other.flips_.begin()) % 2 != 0);
  while (pos < end) {
    const std::size_t stop = flip == other.flips_.end() ? end : std::min(end, *flip++);
    append(other.view().substr(pos, stop - pos), content);
    pos = stop;
    content = !content;
  }
}

TaggedText TaggedText::slice(std::size_t begin, std::size_t end) const {
  TaggedText out;
  out.append_range(*this, begin, end);
  return out;
}

void TaggedText::merge_content() {
  if (any_content()) first_ = true;
  flips_.clear();
}

std::vector<TextPart> TaggedText::parts() const {
  std::vector<TextPart> out;
  for_each_run([&](std::size_t begin, std::size_t end, bool content) {
    out.push_back(TextPart{text_.substr(begin, end - begin), content});
  });
  return out;
}

}  // namespace sluice::jinja

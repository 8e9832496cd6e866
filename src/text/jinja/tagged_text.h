// Text in which every byte knows whether the template wrote it or a message contributed it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "src/text/text_part.h"

namespace sluice::jinja {

class TaggedText {
 public:
  TaggedText() = default;
  TaggedText(std::string text, bool content) : text_(std::move(text)), first_(content) {}

  const std::string& str() const { return text_; }
  std::string_view view() const { return text_; }
  std::size_t size() const { return text_.size(); }
  bool empty() const { return text_.empty(); }
  // True if some byte is content. (An empty text is never content.)
  bool any_content() const { return !text_.empty() && (first_ || !flips_.empty()); }
  bool content_at(std::size_t pos) const;

  void append(std::string_view text, bool content);
  void append(const TaggedText& other) { append_range(other, 0, other.size()); }
  // Appends bytes [begin, end) of other. Requires begin <= end <= other.size().
  void append_range(const TaggedText& other, std::size_t begin, std::size_t end);
  TaggedText slice(std::size_t begin, std::size_t end) const;
  // Makes the whole text content if any of it is.
  void merge_content();

  // Calls f(begin, end, content) for each stretch of bytes of one origin, in order.
  template <class F>
  void for_each_run(F&& f) const {
    std::size_t begin = 0;
    bool content = first_;
    for (const std::size_t flip : flips_) {
      f(begin, flip, content);
      begin = flip;
      content = !content;
    }
    if (begin < text_.size()) f(begin, text_.size(), content);
  }

  // The text cut at the changes of origin; no part is empty, neighbours differ in origin.
  std::vector<TextPart> parts() const;
  // Memory held, in bytes.
  std::size_t footprint() const { return text_.capacity() + flips_.capacity() * sizeof(flips_[0]); }

 private:
  std::string text_;
  bool first_ = false;              // origin of byte 0
  std::vector<std::size_t> flips_;  // ascending byte offsets where the origin changes
};

}  // namespace sluice::jinja

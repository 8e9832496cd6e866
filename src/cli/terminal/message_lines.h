// How several lines become one message.
//
// A line that ends in an odd number of backslashes goes on: the last backslash stands for the end
// of the line. (Two of them, as at the end of a row in LaTeX, are text.) A message that begins with
// """ goes on up to a line that ends in """, blanks after it aside; between the marks everything is
// text, and a mark alone on its line is no line of the message.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace sluice {

// For input that comes line by line.
class MessageLines {
 public:
  // A line without its newline. Returns whether the message is complete; then take it.
  bool add(std::string_view line);
  // No lines yet.
  bool empty() const { return !begun_; }
  std::size_t size() const { return text_.size(); }
  // The message, complete or not; the next one may begin.
  std::string take();

 private:
  bool begun_ = false;
  bool block_ = false;
  bool first_ = false;  // of the lines of a block's text
  std::string text_;
};

// For a text that is edited as a whole, where only """ is left to understand.
// Whether it begins a block and does not end it.
bool is_open_block(std::string_view text);
// The message without the marks of a block.
std::string without_block_marks(std::string_view text);

// Whether a line goes on by the rule of backslashes.
bool ends_in_continuation(std::string_view line);

// Text in which every NUL, and every sequence that is not UTF-8, is replaced by U+FFFD. Adds their
// number to `replaced`.
std::string clean_text(std::string_view bytes, std::size_t& replaced);

}  // namespace sluice

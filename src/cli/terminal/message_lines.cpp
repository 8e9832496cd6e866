#include "src/cli/terminal/message_lines.h"

#include <utility>

#include "src/text/utf8.h"

namespace sluice {
namespace {

constexpr std::string_view kMark = "\"\"\"";

// Whether `line` ends a block; if so `line` is cut before the mark.
bool cut_end_mark(std::string_view& line) {
  const std::size_t last = line.find_last_not_of(" \t\r");
  if (last == std::string_view::npos) return false;
  const std::string_view trimmed = line.substr(0, last + 1);
  if (!trimmed.ends_with(kMark)) return false;
  line = trimmed.substr(0, trimmed.size() - kMark.size());
  return true;
}

}  // namespace

bool ends_in_continuation(std::string_view line) {
  std::size_t count = 0;
  while (count < line.size() && line[line.size() - 1 - count] == '\\') ++count;
  return count % 2 == 1;
}

bool MessageLines::add(std::string_view line) {
  bool opens = false;
  if (!begun_) {
    begun_ = true;
    opens = block_ = line.starts_with(kMark);
    first_ = true;
    if (opens) line.remove_prefix(kMark.size());
  }
  if (!block_) {
    const bool goes_on = ends_in_continuation(line);
    text_ += goes_on ? line.substr(0, line.size() - 1) : line;
    if (goes_on) text_ += '\n';
    return !goes_on;
  }
  const bool ends = cut_end_mark(line);
  // A mark alone on its line.
  if (line.empty() && (opens || ends)) return ends;
  if (!first_) text_ += '\n';
  first_ = false;
  text_ += line;
  return ends;
}

std::string MessageLines::take() {
  std::string text = std::move(text_);
  *this = {};
  return text;
}

bool is_open_block(std::string_view text) {
  if (!text.starts_with(kMark)) return false;
  text.remove_prefix(kMark.size());
  while (true) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    if (cut_end_mark(line)) return false;
    if (end == std::string_view::npos) return true;
    text.remove_prefix(end + 1);
  }
}

std::string without_block_marks(std::string_view text) {
  if (!text.starts_with(kMark)) return std::string(text);
  MessageLines lines;
  while (true) {
    const std::size_t end = text.find('\n');
    const bool complete = lines.add(text.substr(0, end));
    if (end == std::string_view::npos) return lines.take();
    text.remove_prefix(end + 1);
    if (complete) {
      // Lines after the end of the block belong to the message too.
      std::string message = lines.take();
      message += '\n';
      return message += text;
    }
  }
}

std::string clean_text(std::string_view bytes, std::size_t& replaced) {
  if (bytes.find('\0') == std::string_view::npos && is_valid_utf8(bytes)) return std::string(bytes);
  std::string out;
  out.reserve(bytes.size());
  while (!bytes.empty()) {
    const Utf8Char next = decode_utf8(bytes);
    if (next.status == Utf8Status::kValid && next.code != 0) {
      out += bytes.substr(0, next.length);
    } else {
      out += kReplacementChar;
      ++replaced;
    }
    bytes.remove_prefix(next.length);
  }
  return out;
}

}  // namespace sluice

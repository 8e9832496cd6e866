#include "src/cli/chat/chat_view.h"

namespace sluice::cli {

namespace {

bool is_first_byte(char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }

// Cuts first: a text may be large.
std::string in_one_line(std::string_view text) {
  std::string line;
  for (const char c : text) {
    const bool blank = c == ' ' || c == '\n' || c == '\t' || c == '\r';
    if (!blank) line += c;
    if (blank && !line.empty() && line.back() != ' ') line += ' ';
  }
  return line;
}

}  // namespace

std::string beginning(std::string_view text, std::size_t bytes) {
  if (text.size() <= bytes) return in_one_line(text);
  while (bytes > 0 && !is_first_byte(text[bytes])) --bytes;
  return in_one_line(text.substr(0, bytes)) + " ...";
}

std::string ending(std::string_view text, std::size_t bytes) {
  if (text.size() <= bytes) return in_one_line(text);
  std::size_t begin = text.size() - bytes;
  while (begin < text.size() && !is_first_byte(text[begin])) ++begin;
  return "... " + in_one_line(text.substr(begin));
}

ReplyPrinter::ReplyPrinter(Console& console, Progress& progress, MarkdownOptions options)
    : console_(console), progress_(progress), markdown_(options) {}

void ReplyPrinter::put(std::string_view text) {
  if (text.empty() || !status_.ok()) return;
  last_ = text.back();
  const Status printed = console_.print(text);
  // A write that Ctrl-C cut short: the reply ends by it in a moment, and what of it was made is
  // kept.
  const bool cut = !printed.ok() && printed.error().code == ErrorCode::kInterrupted;
  if (!cut) status_ = printed;
}

void ReplyPrinter::put_dim(std::string_view text) {
  std::string codes = markdown_.begin_dim();
  codes += markdown_.push(text);
  codes += markdown_.end_dim();
  put(codes);
}

void ReplyPrinter::begin() {
  place_ = Place::kNothing;
  hidden_bytes_ = 0;
  last_ = '\n';
}

bool ReplyPrinter::reasoning(std::string_view text) {
  progress_.clear();
  if (place_ == Place::kNothing) {
    text.remove_prefix(std::min(text.find_first_not_of(" \r\n"), text.size()));
    if (text.empty()) return true;
  }
  const bool shown = show_ == ShowReasoning::kFull && console_.stdout_is_terminal();
  if (place_ != Place::kReasoning) {
    place_ = Place::kReasoning;
    if (shown) put(markdown_.begin_dim());
    if (!shown && console_.stdout_is_terminal()) {
      put_dim("thinking ...");
    }
  }
  if (shown) {
    put(markdown_.push(text));
  } else {
    hidden_bytes_ += text.size();
  }
  return status_.ok();
}

void ReplyPrinter::end_reasoning() {
  if (place_ != Place::kReasoning) return;
  if (show_ == ShowReasoning::kFull && console_.stdout_is_terminal()) {
    put(markdown_.end_dim());
    put(last_ == '\n' ? "\n" : "\n\n");
  } else if (console_.stdout_is_terminal()) {
    put_dim(fmt::format(" {} bytes; /think shows them", hidden_bytes_));
    put("\n");
  }
}

bool ReplyPrinter::answer(std::string_view text) {
  progress_.clear();
  if (place_ != Place::kAnswer) {
    text.remove_prefix(std::min(text.find_first_not_of(" \r\n"), text.size()));
    if (text.empty()) return true;
    end_reasoning();
    place_ = Place::kAnswer;
  }
  put(console_.stdout_is_terminal() ? markdown_.push(text) : std::string(text));
  return status_.ok();
}

void ReplyPrinter::end() {
  end_reasoning();
  if (console_.stdout_is_terminal()) put(markdown_.finish());
  // An answer that ends within a line; an empty answer is an empty line on a pipe, so that the
  // number of answers can be counted.
  const bool empty = console_.stdout_is_terminal() ? place_ == Place::kNothing  //
                                                   : place_ != Place::kAnswer;
  if (last_ != '\n' || empty) put("\n");
  place_ = Place::kNothing;
}

}  // namespace sluice::cli

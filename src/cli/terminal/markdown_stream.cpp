#include "src/cli/terminal/markdown_stream.h"

#include <algorithm>
#include <utility>

#include "src/cli/terminal/safe_text.h"
#include "src/text/utf8.h"

namespace sluice {
namespace {

bool is_blank(std::string_view character) { return character == " " || character == "\t"; }
bool ends_line(std::string_view next) { return next.empty() || next == "\n"; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_one_of(std::string_view character, std::string_view set) {
  return character.size() == 1 && set.find(character[0]) != std::string_view::npos;
}

std::string drawn_rule() {
  constexpr int kColumns = 24;
  std::string line;
  for (int i = 0; i < kColumns; ++i) line += "─";
  return line;
}

}  // namespace

std::string MarkdownStream::push(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = decode_utf8(text).length;
    take(text.substr(0, length));
    text.remove_prefix(length);
  }
  return std::exchange(out_, {});
}

std::string MarkdownStream::finish() {
  if (run_.character != 0) resolve_run({});
  for (const std::string& marker : unclosed_) put(marker, marker_style());
  set_style({});
  MarkdownStream fresh(options_);
  fresh.dim_ = dim_;
  fresh.out_.swap(out_);
  std::swap(*this, fresh);
  return std::exchange(out_, {});
}

std::string MarkdownStream::begin_dim() {
  std::string before = finish();
  dim_ = true;
  return before;
}

std::string MarkdownStream::end_dim() {
  std::string before = finish();
  dim_ = false;
  return before;
}

MarkdownStream::Kind MarkdownStream::kind_of(std::string_view character) {
  if (ends_line(character) || is_blank(character)) return Kind::kBlank;
  const char c = character[0];
  if (static_cast<unsigned char>(c) >= 0x80) return Kind::kOther;
  const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  return letter || is_digit(c) || c == '_' ? Kind::kWord : Kind::kPunctuation;
}

void MarkdownStream::take(std::string_view character) {
  if (dim_ || !options_.markdown) return take_literal(character);
  if (run_.character != 0) {
    if (run_.blanks.empty() && character[0] == run_.character) {
      ++run_.length;
      return;
    }
    if (take_blank_after_run(character)) return;
    if (resolve_run(character)) return;
  }
  if (character == "\n") return end_line();
  switch (place_) {
    case Place::kLineStart:
      return at_line_start(character);
    case Place::kNumber:
      if (is_digit(character[0])) return put(character, {});
      place_ = is_one_of(character, ".)") ? Place::kNumberMark : Place::kInline;
      return in_line(character);
    case Place::kNumberMark:
      if (!is_blank(character)) {
        place_ = Place::kInline;
        return in_line(character);
      }
      place_ = Place::kLineStart;
      before_ = Kind::kBlank;
      return put(character, {});
    case Place::kInline:
      return in_line(character);
    case Place::kCodeSpan:
      if (character[0] == '`') {
        run_ = {'`', 1, {}};
        return;
      }
      return put(character, code_style());
    case Place::kLink:
      return in_address(character);
    case Place::kFenceInfo:
      if (character[0] == '`' && fence_ == '`') {
        // ```like this``` on one line: a code span after all. Its markers stay visible.
        span_ = fence_length_;
        fence_ = 0;
        place_ = Place::kCodeSpan;
        run_ = {'`', 1, {}};
        return;
      }
      return put(character, marker_style());
    case Place::kFenceLineStart:
      if (character[0] == fence_) {
        run_ = {fence_, 1, {}};
        return;
      }
      if (is_blank(character)) {
        ++indent_;
      } else {
        place_ = Place::kFenceLine;
      }
      return put(character, code_style());
    case Place::kFenceLine:
      return put(character, code_style());
  }
}

void MarkdownStream::take_literal(std::string_view character) {
  if (character == "\n") return end_line();
  Style style;
  style.dim = dim_ && options_.markdown;
  put(character, style);
}

// Blanks after what may be a rule or the end of fenced code decide nothing yet.
bool MarkdownStream::take_blank_after_run(std::string_view character) {
  if (!is_blank(character)) return false;
  const bool maybe_rule = place_ == Place::kLineStart && run_.length >= 3 &&
                          (run_.character == '-' || run_.character == '*');
  const bool maybe_fence_end = place_ == Place::kFenceLineStart && run_.length >= fence_length_;
  if (!maybe_rule && !maybe_fence_end) return false;
  run_.blanks += character;
  return true;
}

// `next` is the character that ended the run; empty at the end of the text. Returns whether it was
// used up.
bool MarkdownStream::resolve_run(std::string_view next) {
  const Run run = std::exchange(run_, {});
  switch (place_) {
    case Place::kLineStart:
      return resolve_at_line_start(run, next);
    case Place::kFenceLineStart:
      resolve_fence_end(run, next);
      return false;
    case Place::kCodeSpan: {
      const std::string marker(run.length, '`');
      if (run.length == span_) {
        close_marker(marker);
        place_ = Place::kInline;
        before_ = Kind::kPunctuation;
      } else {
        put(marker, code_style());
      }
      return false;
    }
    default:
      return resolve_inline(run, next);
  }
}

bool MarkdownStream::resolve_at_line_start(const Run& run, std::string_view next) {
  const std::string text(run.length, run.character);
  const char c = run.character;
  if (c == '#' && run.length <= 6 && is_blank(next)) {
    heading_ = run.length;
    place_ = Place::kInline;
    if (!options_.hide_markers) put(text + std::string(next), marker_style());
    return true;
  }
  if ((c == '-' || c == '+' || c == '*') && run.length == 1 && is_blank(next)) {
    put(options_.hide_markers ? "•" : text, list_style());
    put(next, {});
    indent_ += 2;  // and still at the start of a line: a fence may follow
    return true;
  }
  if ((c == '-' || c == '*') && run.length >= 3 && ends_line(next)) {
    put(options_.hide_markers ? drawn_rule() : text + run.blanks, marker_style());
    return false;
  }
  if ((c == '`' || c == '~') && run.length >= 3) {
    fence_ = c;
    fence_length_ = run.length;
    fence_indent_ = indent_;
    place_ = Place::kFenceInfo;
    put(text, marker_style());
    return false;
  }
  place_ = Place::kInline;
  if (run.blanks.empty() && (c == '*' || c == '`')) return resolve_inline(run, next);
  put_inline(text + run.blanks);
  before_ = run.blanks.empty() ? Kind::kPunctuation : Kind::kBlank;
  return false;
}

void MarkdownStream::resolve_fence_end(const Run& run, std::string_view next) {
  const std::string text = std::string(run.length, run.character) + run.blanks;
  if (run.length >= fence_length_ && ends_line(next) && indent_ <= fence_indent_ + 3) {
    put(text, marker_style());
    fence_ = 0;
    place_ = Place::kInline;
  } else {
    put(text, code_style());
    place_ = Place::kFenceLine;
  }
}

bool MarkdownStream::resolve_inline(const Run& run, std::string_view next) {
  const std::string text(run.length, run.character);
  const Kind before = std::exchange(before_, Kind::kPunctuation);
  switch (run.character) {
    case '*':
      resolve_stars(run.length, before, next);
      return false;
    case '`':
      // A lone ` before a blank is not the beginning of code.
      if (run.length == 1 && kind_of(next) == Kind::kBlank) {
        put_inline(text);
        return false;
      }
      span_ = run.length;
      place_ = Place::kCodeSpan;
      // Without colours nothing else would tell code from text.
      open_marker(text, options_.hide_markers && options_.colour);
      return false;
    case '\\':
      if (run.length != 1 || !is_one_of(next, "*_`#")) {
        put_inline(text);
        return false;
      }
      put_inline(options_.hide_markers ? std::string(next) : text + std::string(next));
      return true;
    default:  // ']'
      bracket_ = false;
      put_inline(text);
      if (next != "(") return false;
      put_inline(next);
      place_ = Place::kLink;
      return true;
  }
}

// A marker opens before a word and not inside one (2*3, 2**3), and closes after something that is
// not blank. So "2 * 3", "**" alone, "*.txt" and "*," are plain text.
void MarkdownStream::resolve_stars(std::size_t length, Kind before, std::string_view next) {
  const Kind after = kind_of(next);
  const bool can_open = before != Kind::kWord && after != Kind::kBlank &&
                        (after != Kind::kPunctuation || is_one_of(next, "\"'([{`$<\\&#@/-+"));
  const bool can_close = before != Kind::kBlank;
  const bool hide = options_.hide_markers;
  std::string_view rest = std::string_view("***").substr(0, std::min<std::size_t>(length, 3));
  if (length <= 3 && can_close) {
    const bool ends_both = length == 3 && bold_ && italic_;
    if (bold_ && length >= 2) {
      bold_ = false;
      close_marker("**");
      rest.remove_prefix(2);
    }
    if (italic_ && (length == 1 || ends_both || (length == 3 && rest.size() == 3))) {
      italic_ = false;
      close_marker("*");
      rest.remove_prefix(1);
    }
    if (rest.size() < length) return put_inline(rest);
  }
  if (length <= 3 && can_open && !(bold_ && length >= 2) && !(italic_ && length != 2)) {
    if (length >= 2) open_marker("**", hide);
    if (length != 2) open_marker("*", hide);
    bold_ = bold_ || length >= 2;
    italic_ = italic_ || length != 2;
    return;
  }
  put_inline(std::string(length, '*'));
}

void MarkdownStream::at_line_start(std::string_view character) {
  if (is_blank(character)) {
    ++indent_;
    return put(character, {});
  }
  if (character[0] == '>') return put(options_.hide_markers ? "│" : ">", marker_style());
  if (is_one_of(character, "#*-+`~")) {
    run_ = {character[0], 1, {}};
    return;
  }
  if (is_digit(character[0])) {
    place_ = Place::kNumber;
    before_ = Kind::kWord;
    return put(character, {});
  }
  place_ = Place::kInline;
  in_line(character);
}

void MarkdownStream::in_line(std::string_view character) {
  if (is_one_of(character, "*`\\") || (bracket_ && character == "]")) {
    run_ = {character[0], 1, {}};
    return;
  }
  if (character == "[") bracket_ = true;
  put_inline(character);
  before_ = kind_of(character);
}

void MarkdownStream::in_address(std::string_view character) {
  const bool closes = character == ")" && parentheses_ == 0;
  if (closes || is_blank(character)) {
    parentheses_ = 0;
    place_ = Place::kInline;
    return in_line(character);
  }
  if (character == "(") ++parentheses_;
  if (character == ")") --parentheses_;
  Style style = inline_style();
  style.underline = true;
  put(character, style);
}

void MarkdownStream::end_line() {
  for (const std::string& marker : unclosed_) put(marker, marker_style());
  unclosed_.clear();
  bold_ = italic_ = bracket_ = false;
  heading_ = span_ = parentheses_ = indent_ = 0;
  before_ = Kind::kBlank;
  place_ = fence_ != 0 ? Place::kFenceLineStart : Place::kLineStart;
  set_style({});
  out_ += '\n';
}

void MarkdownStream::open_marker(std::string_view marker, bool hide) {
  if (hide) {
    unclosed_.emplace_back(marker);
  } else {
    put(marker, marker_style());
  }
}

void MarkdownStream::close_marker(std::string_view marker) {
  const auto opened = std::find(unclosed_.begin(), unclosed_.end(), marker);
  if (opened == unclosed_.end()) return put(marker, marker_style());
  unclosed_.erase(opened);
}

void MarkdownStream::put(std::string_view text, const Style& style) {
  if (text.empty()) return;
  set_style(style);
  out_ += safe_text(text);
}

void MarkdownStream::set_style(const Style& style) {
  if (style == shown_) return;
  shown_ = style;
  out_ += "\x1b[0";
  if (style.bold) out_ += ";1";
  if (style.dim) out_ += ";2";
  if (style.italic) out_ += ";3";
  if (style.underline) out_ += ";4";
  if (style.cyan) out_ += ";36";
  out_ += 'm';
}

MarkdownStream::Style MarkdownStream::inline_style() const {
  return {.bold = bold_ || heading_ != 0, .italic = italic_, .underline = heading_ == 1};
}

MarkdownStream::Style MarkdownStream::marker_style() const { return {.dim = true}; }

MarkdownStream::Style MarkdownStream::list_style() const { return {.cyan = options_.colour}; }

MarkdownStream::Style MarkdownStream::code_style() const {
  Style style = inline_style();
  style.cyan = options_.colour;
  return style;
}

}  // namespace sluice

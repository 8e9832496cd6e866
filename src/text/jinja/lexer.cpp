#include "src/text/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "src/text/jinja/unicode.h"

namespace sluice::jinja {
namespace {

constexpr std::size_t npos = std::string_view::npos;

// Longest first.
constexpr std::array<std::string_view, 26> kOperators = {
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
    "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};

std::string normalize_source(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out.push_back(source[i]);
      continue;
    }
    out.push_back('\n');
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();  // one line end at the end is dropped
  return out;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)), s_(source_) {}

  Result<std::vector<Token>> run() {
    SLUICE_RETURN_IF_ERROR(check_utf8());
    while (pos_ < s_.size()) {
      SLUICE_RETURN_IF_ERROR(lex_data());
    }
    add(TokenKind::kEnd, pos_, "");
    return std::move(tokens_);
  }

 private:
  Status check_utf8() {
    char32_t cp = 0;
    for (std::size_t pos = 0; pos < s_.size();) {
      const std::size_t length = decode_utf8(s_, pos, &cp);
      if (cp >= 0xdc80 && cp <= 0xdcff) {
        return error_at(position_of(pos), "the template is not valid UTF-8");
      }
      pos += length;
    }
    return {};
  }

  // Positions are asked for in ascending order, so counting goes on from the last one.
  Position position_of(std::size_t pos) {
    if (pos < counted_) {
      counted_ = 0;
      counted_position_ = {1, 1};
    }
    while (counted_ < pos) {
      char32_t cp = 0;
      counted_ += decode_utf8(s_, counted_, &cp);
      if (cp == '\n') {
        ++counted_position_.line;
        counted_position_.column = 1;
      } else {
        ++counted_position_.column;
      }
    }
    return counted_position_;
  }

  Token& add(TokenKind kind, std::size_t at, std::string text) {
    Token token;
    token.kind = kind;
    token.position = position_of(at);
    token.text = std::move(text);
    tokens_.push_back(std::move(token));
    return tokens_.back();
  }

  Error fail(std::size_t at, std::string_view message) {
    return error_at(position_of(at), message);
  }

  std::size_t skip_space(std::size_t pos) const {
    char32_t cp = 0;
    while (pos < s_.size()) {
      const std::size_t length = decode_utf8(s_, pos, &cp);
      if (!is_space(cp)) break;
      pos += length;
    }
    return pos;
  }

  bool at(std::size_t pos, std::string_view text) const {
    return s_.substr(std::min(pos, s_.size()), text.size()) == text;
  }

  // The end of a block, comment or endraw tag at pos: "+%}", "-%}" and white space, or "%}" and one
  // line end. npos if there is none.
  std::size_t tag_end(std::size_t pos, std::string_view mark) const {
    if (at(pos, "-") && at(pos + 1, mark)) return skip_space(pos + 1 + mark.size());
    if (at(pos, "+") && at(pos + 1, mark)) return pos + 1 + mark.size();
    if (!at(pos, mark)) return npos;
    pos += mark.size();
    return at(pos, "\n") ? pos + 1 : pos;
  }

  // "{%", an optional sign, "raw", "%}" or "-%}": the position behind it, or npos.
  std::size_t raw_begin(std::size_t pos) const {
    pos += 2;
    if (at(pos, "-") || at(pos, "+")) ++pos;
    pos = skip_space(pos);
    if (!at(pos, "raw")) return npos;
    pos = skip_space(pos + 3);
    if (at(pos, "-%}")) return skip_space(pos + 3);
    return at(pos, "%}") ? pos + 2 : npos;
  }

  // The data between begin and the tag at end, less what the tag's sign or lstrip_blocks takes.
  std::string data_before(std::size_t begin, std::size_t end, bool is_variable) const {
    std::string_view data = s_.substr(begin, end - begin);
    const char sign = end + 2 < s_.size() ? s_[end + 2] : '\0';
    if (sign == '-') {
      std::size_t keep = data.size();
      while (keep > 0) {
        std::size_t previous = keep - 1;
        while (previous > 0 && (static_cast<unsigned char>(data[previous]) & 0xc0) == 0x80) {
          --previous;
        }
        char32_t cp = 0;
        decode_utf8(data, previous, &cp);
        if (!is_space(cp)) break;
        keep = previous;
      }
      data = data.substr(0, keep);
    } else if (sign != '+' && !is_variable) {
      const std::size_t newline = data.rfind('\n');
      const std::size_t line = newline == npos ? 0 : newline + 1;
      const bool line_is_whole = newline != npos || line_starting_;
      if (line_is_whole && skip_space(begin + line) >= end) data = data.substr(0, line);
    }
    return std::string(data);
  }

  // Template text up to the next tag, and the tag.
  Status lex_data() {
    const std::size_t begin = pos_;
    std::size_t tag = pos_;
    while (true) {
      tag = s_.find('{', tag);
      if (tag == npos) {
        add(TokenKind::kData, begin, std::string(s_.substr(begin)));
        pos_ = s_.size();
        return {};
      }
      if (at(tag, "{%") || at(tag, "{{") || at(tag, "{#")) break;
      ++tag;
    }
    const char mark = s_[tag + 1];
    std::string data = data_before(begin, tag, mark == '{');
    if (!data.empty()) add(TokenKind::kData, begin, std::move(data));
    pos_ = tag + 2;
    const std::size_t raw = mark == '%' ? raw_begin(tag) : npos;
    if (raw != npos) {
      line_starting_ = s_[raw - 1] == '\n';
      pos_ = raw;
      return lex_raw(tag);
    }
    if (at(pos_, "-") || at(pos_, "+")) ++pos_;
    if (mark == '#') return lex_comment(tag);
    add(mark == '%' ? TokenKind::kBlockBegin : TokenKind::kVariableBegin, tag, "");
    return lex_tag(mark == '%', tag);
  }

  void end_tag(std::size_t end) {
    pos_ = end;
    line_starting_ = s_[end - 1] == '\n';
  }

  Status lex_comment(std::size_t begin) {
    // The first "#}" ends it; a sign right before belongs to the mark.
    const std::size_t mark = s_.find("#}", pos_);
    if (pos_ == s_.size()) return {};  // a comment that only begins, as jinja2 has it
    if (mark == npos) return fail(begin, "Missing end of comment tag");
    const bool sign = mark > pos_ && (s_[mark - 1] == '-' || s_[mark - 1] == '+');
    end_tag(tag_end(sign ? mark - 1 : mark, "#}"));
    return {};
  }

  Status lex_raw(std::size_t tag_begin) {
    const std::size_t begin = pos_;
    for (std::size_t tag = s_.find("{%", pos_); tag != npos; tag = s_.find("{%", tag + 1)) {
      std::size_t pos = tag + 2;
      if (at(pos, "-") || at(pos, "+")) ++pos;
      pos = skip_space(pos);
      if (!at(pos, "endraw")) continue;
      const std::size_t end = tag_end(skip_space(pos + 6), "%}");
      if (end == npos) continue;
      std::string data = data_before(begin, tag, false);
      if (!data.empty()) add(TokenKind::kData, begin, std::move(data));
      end_tag(end);
      return {};
    }
    if (begin == s_.size()) return {};  // as with comments
    return fail(tag_begin, "Missing end of raw directive");
  }

  // The tokens inside {% %} or {{ }}, and the end.
  Status lex_tag(bool block, std::size_t begin) {
    std::string open;  // brackets that wait for their partner
    while (true) {
      pos_ = skip_space(pos_);
      if (pos_ >= s_.size()) {
        return fail(begin, block ? "the tag '{%' has no '%}'" : "the tag '{{' has no '}}'");
      }
      if (open.empty()) {
        std::size_t end = npos;
        if (block) {
          end = tag_end(pos_, "%}");
        } else if (at(pos_, "-}}")) {
          end = skip_space(pos_ + 3);
        } else if (at(pos_, "}}")) {
          end = pos_ + 2;
        }
        if (end != npos) {
          add(block ? TokenKind::kBlockEnd : TokenKind::kVariableEnd, pos_, "");
          end_tag(end);
          return {};
        }
      }
      char32_t cp = 0;
      decode_utf8(s_, pos_, &cp);
      if (cp < 0x80 && is_digit(static_cast<char>(cp))) {
        SLUICE_RETURN_IF_ERROR(lex_number());
      } else if (is_word(cp)) {
        SLUICE_RETURN_IF_ERROR(lex_name());
      } else if (cp == '\'' || cp == '"') {
        SLUICE_RETURN_IF_ERROR(lex_string());
      } else {
        SLUICE_RETURN_IF_ERROR(lex_operator(&open));
      }
    }
  }

  Status lex_name() {
    const std::size_t begin = pos_;
    char32_t cp = 0;
    decode_utf8(s_, pos_, &cp);
    if (cp != '_' && (char_class(cp) & kAlpha) == 0) {
      return fail(begin, "Invalid character in identifier");
    }
    while (pos_ < s_.size()) {
      const std::size_t length = decode_utf8(s_, pos_, &cp);
      if (!is_word(cp)) break;
      pos_ += length;
    }
    add(TokenKind::kName, begin, std::string(s_.substr(begin, pos_ - begin)));
    return {};
  }

  Status lex_operator(std::string* open) {
    const auto op = std::find_if(kOperators.begin(), kOperators.end(),
                                 [&](std::string_view text) { return at(pos_, text); });
    if (op == kOperators.end()) {
      char32_t cp = 0;
      const std::size_t length = decode_utf8(s_, pos_, &cp);
      return fail(pos_, fmt::format("unexpected char '{}'", s_.substr(pos_, length)));
    }
    const char c = op->front();
    if (c == '(' || c == '[' || c == '{') {
      open->push_back(c == '(' ? ')' : (c == '[' ? ']' : '}'));
    } else if (c == ')' || c == ']' || c == '}') {
      if (open->empty()) return fail(pos_, fmt::format("unexpected '{}'", c));
      if (open->back() != c) {
        return fail(pos_, fmt::format("unexpected '{}', expected '{}'", c, open->back()));
      }
      open->pop_back();
    }
    add(TokenKind::kOperator, pos_, std::string(*op));
    pos_ += op->size();
    return {};
  }

  // End of the digits at pos that satisfy `good`, single underscores between them.
  template <class F>
  std::size_t digits_end(std::size_t pos, F&& good) const {
    std::size_t end = pos;
    while (pos < s_.size()) {
      if (s_[pos] == '_' && end > 0 && pos > 0 && good(s_[pos - 1])) ++pos;
      if (pos >= s_.size() || !good(s_[pos])) break;
      end = ++pos;
    }
    return end;
  }

  Status lex_number() {
    const std::size_t begin = pos_;
    const bool after_dot = begin > 0 && s_[begin - 1] == '.';
    const std::size_t whole = digits_end(begin, is_digit);
    std::size_t end = whole;
    bool is_float = false;
    if (at(end, ".") && end + 1 < s_.size() && is_digit(s_[end + 1])) {
      end = digits_end(end + 1, is_digit);
      is_float = true;
    }
    if (at(end, "e") || at(end, "E")) {
      std::size_t exponent = end + 1;
      if (at(exponent, "+") || at(exponent, "-")) ++exponent;
      if (exponent < s_.size() && is_digit(s_[exponent])) {
        end = digits_end(exponent, is_digit);
        is_float = true;
      }
    }
    if (is_float && !after_dot) return add_float(begin, end);
    return lex_integer(begin);
  }

  std::string without_underscores(std::size_t begin, std::size_t end) const {
    std::string text(s_.substr(begin, end - begin));
    std::erase(text, '_');
    return text;
  }

  Status add_float(std::size_t begin, std::size_t end) {
    const std::string text = without_underscores(begin, end);
    double value = 0;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
    if (parsed.ec != std::errc() || !std::isfinite(value)) {
      // Too small is zero as in Python; too large would be infinite.
      if (parsed.ec == std::errc::result_out_of_range && text.find("e-") != npos) {
        value = 0;
      } else {
        return fail(begin, "a float literal is out of range");
      }
    }
    add(TokenKind::kFloat, begin, text).number = value;
    pos_ = end;
    return {};
  }

  Status lex_integer(std::size_t begin) {
    int base = 10;
    std::size_t digits = begin;
    std::size_t end = begin;
    const auto prefixed = [&](char low, char high, int radix, auto&& good) {
      if (s_[begin] != '0' || begin + 2 >= s_.size()) return false;
      if (s_[begin + 1] != low && s_[begin + 1] != high) return false;
      const std::size_t first = begin + 2 + (s_[begin + 2] == '_' ? 1 : 0);
      if (first >= s_.size() || !good(s_[first])) return false;
      base = radix;
      digits = first;
      end = digits_end(first, good);
      return true;
    };
    const auto is_hex = [](char c) {
      return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
    };
    if (!prefixed('b', 'B', 2, [](char c) { return c == '0' || c == '1'; }) &&
        !prefixed('o', 'O', 8, [](char c) { return c >= '0' && c <= '7'; }) &&
        !prefixed('x', 'X', 16, is_hex)) {
      // A number with a leading zero is only zeros; "007" is the two numbers 00 and 7.
      end = s_[begin] == '0' ? digits_end(begin, [](char c) { return c == '0'; })
                             : digits_end(begin, is_digit);
    }
    const std::string text = without_underscores(digits, end);
    std::int64_t value = 0;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value, base);
    if (parsed.ec != std::errc()) return fail(begin, "an integer is beyond 64 bits (limit)");
    add(TokenKind::kInteger, begin, text).integer = value;
    pos_ = end;
    return {};
  }

  Status lex_string() {
    const std::size_t begin = pos_;
    const char quote = s_[pos_];
    std::size_t end = pos_ + 1;
    while (end < s_.size() && s_[end] != quote) end += s_[end] == '\\' ? 2 : 1;
    if (end >= s_.size()) return fail(begin, "a string has no closing quote");
    std::string text;
    for (std::size_t pos = begin + 1; pos < end;) {
      if (s_[pos] != '\\') {
        text.push_back(s_[pos++]);
        continue;
      }
      SLUICE_ASSIGN_OR_RETURN(pos, unescape(pos, end, &text));
    }
    add(TokenKind::kString, begin, std::move(text));
    pos_ = end + 1;
    return {};
  }

  // Appends the character of the escape sequence at pos and returns the position behind it.
  Result<std::size_t> unescape(std::size_t pos, std::size_t end, std::string* text) {
    const char c = s_[pos + 1];
    switch (c) {
      case '\n':
        return pos + 2;
      case '\\':
      case '\'':
      case '"':
        text->push_back(c);
        return pos + 2;
      case 'a':
        text->push_back('\a');
        return pos + 2;
      case 'b':
        text->push_back('\b');
        return pos + 2;
      case 'f':
        text->push_back('\f');
        return pos + 2;
      case 'n':
        text->push_back('\n');
        return pos + 2;
      case 'r':
        text->push_back('\r');
        return pos + 2;
      case 't':
        text->push_back('\t');
        return pos + 2;
      case 'v':
        text->push_back('\v');
        return pos + 2;
      case 'x':
        return unescape_hex(pos, end, 2, text);
      case 'u':
        return unescape_hex(pos, end, 4, text);
      case 'U':
        return unescape_hex(pos, end, 8, text);
      case 'N':
        return fail(pos, "the escape \\N{name} in a string is not supported");
      default:
        break;
    }
    if (c >= '0' && c <= '7') {
      char32_t value = 0;
      std::size_t i = pos + 1;
      for (; i < end && i < pos + 4 && s_[i] >= '0' && s_[i] <= '7'; ++i) {
        value = value * 8 + static_cast<char32_t>(s_[i] - '0');
      }
      append_utf8(value, text);
      return i;
    }
    text->push_back('\\');
    char32_t cp = 0;
    const std::size_t length = decode_utf8(s_, pos + 1, &cp);
    if (cp >= 0x80) {
      // Python's unescaping goes over ASCII, where such a character is itself an escape: the
      // backslash before it escapes that one's backslash, and its digits stay.
      const auto value = static_cast<unsigned>(cp);
      *text += cp < 0x100     ? fmt::format("x{:02x}", value)
               : cp < 0x10000 ? fmt::format("u{:04x}", value)
                              : fmt::format("U{:08x}", value);
      return pos + 1 + length;
    }
    text->push_back(c);
    return pos + 2;
  }

  Result<std::size_t> unescape_hex(std::size_t pos, std::size_t end, std::size_t digits,
                                   std::string* text) {
    const std::size_t first = pos + 2;
    std::uint32_t value = 0;
    if (first + digits > end) return fail(pos, "truncated escape in a string");
    const char* stop = s_.data() + first + digits;
    const auto parsed = std::from_chars(s_.data() + first, stop, value, 16);
    if (parsed.ec != std::errc() || parsed.ptr != stop) {
      return fail(pos, "truncated escape in a string");
    }
    if (value > 0x10ffff) return fail(pos, "illegal Unicode character in a string");
    if (value >= 0xd800 && value <= 0xdfff) {
      return fail(pos, "half of a surrogate pair in a string is not supported");
    }
    append_utf8(value, text);
    return first + digits;
  }

  std::string source_;
  std::string_view s_;
  std::size_t pos_ = 0;
  bool line_starting_ = true;  // what was read last ended a line
  std::vector<Token> tokens_;
  std::size_t counted_ = 0;
  Position counted_position_{1, 1};
};

}  // namespace

Error error_at(Position position, std::string_view message) {
  return bad_input("line {}, column {}: {}", position.line, position.column, message);
}

Result<std::vector<Token>> tokenize(std::string_view source) {
  return Lexer(normalize_source(source)).run();
}

}  // namespace sluice::jinja

#include "src/text/jinja/number_parse.h"

#include <charconv>
#include <limits>
#include <string>

#include "src/text/jinja/tagged_text.h"
#include "src/text/jinja/text_ops.h"

namespace sluice::jinja {
namespace {

std::string stripped(std::string_view text) {
  return strip(TaggedText(std::string(text), false), std::nullopt, Side::kBoth).str();
}

int digit_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'z') return c - 'a' + 10;
  if (c >= 'A' && c <= 'Z') return c - 'A' + 10;
  return 99;
}

// Takes a sign off; true if it was a minus.
bool take_sign(std::string* s) {
  if (s->empty() || ((*s)[0] != '-' && (*s)[0] != '+')) return false;
  const bool minus = (*s)[0] == '-';
  s->erase(0, 1);
  return minus;
}

// Removes single underscores between digits; false if there are others.
bool remove_underscores(std::string* s) {
  std::string out;
  for (std::size_t i = 0; i < s->size(); ++i) {
    if ((*s)[i] != '_') {
      out.push_back((*s)[i]);
      continue;
    }
    const auto is_digit_at = [&](std::size_t at) {
      return at < s->size() && (*s)[at] >= '0' && (*s)[at] <= '9';
    };
    if (i == 0 || !is_digit_at(i - 1) || !is_digit_at(i + 1)) return false;
  }
  *s = out;
  return true;
}

}  // namespace

Result<std::optional<std::int64_t>> parse_python_int(std::string_view text, std::int64_t base) {
  using Out = std::optional<std::int64_t>;
  if (base != 0 && (base < 2 || base > 36)) return Out();
  std::string s = stripped(text);
  const bool negative = take_sign(&s);
  // A prefix such as 0x, if it fits the base.
  const std::pair<char, std::int64_t> prefixes[] = {{'x', 16}, {'o', 8}, {'b', 2}};
  bool after_prefix = false;
  if (s.size() > 2 && s[0] == '0') {
    for (const auto& [letter, radix] : prefixes) {
      if ((s[1] | 0x20) != letter || (base != radix && base != 0)) continue;
      base = radix;
      s.erase(0, 2);
      after_prefix = true;
      break;
    }
  }
  if (base == 0) {
    if (s.size() > 1 && s[0] == '0' && s.find_first_not_of("0_") != std::string::npos) return Out();
    base = 10;
  }
  std::uint64_t value = 0;
  bool digit_before = after_prefix;  // an underscore may follow a prefix
  bool too_large = false;
  for (const char c : s) {
    if (c == '_') {
      if (!digit_before) return Out();
      digit_before = false;
      continue;
    }
    const int digit = digit_value(c);
    if (digit >= base) return Out();
    digit_before = true;
    too_large = too_large ||
                __builtin_mul_overflow(value, static_cast<std::uint64_t>(base), &value) ||
                __builtin_add_overflow(value, static_cast<std::uint64_t>(digit), &value);
  }
  if (s.empty() || !digit_before) return Out();
  const std::uint64_t most =
      static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) + (negative ? 1 : 0);
  if (too_large || value > most) return bad_input("an integer is beyond 64 bits (limit)");
  return Out(static_cast<std::int64_t>(negative ? 0 - value : value));
}

std::optional<double> parse_python_float(std::string_view text) {
  std::string s = stripped(text);
  const bool negative = take_sign(&s);
  if (s.empty() || !remove_underscores(&s)) return std::nullopt;
  std::string lower;
  for (const char c : s) lower.push_back(c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c);
  double value = 0;
  if (lower == "inf" || lower == "infinity") {
    value = std::numeric_limits<double>::infinity();
  } else if (lower == "nan") {
    value = std::numeric_limits<double>::quiet_NaN();
  } else {
    // from_chars takes neither a sign here nor "inf" nor hexadecimal digits, but also no ".".
    if (lower.find_first_not_of("0123456789.e+-") != std::string::npos || lower[0] == '+' ||
        lower[0] == '-') {
      return std::nullopt;
    }
    const auto parsed = std::from_chars(lower.data(), lower.data() + lower.size(), value);
    if (parsed.ptr != lower.data() + lower.size()) return std::nullopt;
    if (parsed.ec == std::errc::result_out_of_range) {
      // Too small is zero, too large is infinite; from_chars leaves the value alone.
      value = lower.find("e-") != std::string::npos ? 0.0 : std::numeric_limits<double>::infinity();
    } else if (parsed.ec != std::errc()) {
      return std::nullopt;
    }
  }
  return negative ? -value : value;
}

}  // namespace sluice::jinja

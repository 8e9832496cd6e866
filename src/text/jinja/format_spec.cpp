// The format specification language of Python:
// [[fill]align][sign][#][0][width][,][.precision][type]
#include "src/text/jinja/format_spec.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "src/text/jinja/ops.h"
#include "src/text/jinja/unicode.h"

namespace sluice::jinja {
namespace {

// Like printf's %.*e, %.*f and %.*g, but never with the decimal comma of the user's locale.
std::string print_double(double value, std::chars_format format, int precision) {
  char buffer[kMaxPrecision + 400];  // 309 digits before the point at most
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value, format, precision).ptr;
  return std::string(buffer, end);
}

std::string sign_of(bool negative, char plus) {
  if (negative) return "-";
  return plus == '-' ? "" : std::string(1, plus);
}

struct Spec {
  std::string fill = " ";
  char align = 0;  // < > ^ = or 0: not given
  char sign = 0;   // + - space or 0: not given
  bool alternate = false;
  bool zero = false;
  char grouping = 0;
  int width = 0;
  int precision = -1;
  char type = 0;
};

Result<int> parse_number(std::string_view spec, std::size_t* pos, int limit) {
  int value = 0;
  while (*pos < spec.size() && spec[*pos] >= '0' && spec[*pos] <= '9') {
    value = value * 10 + (spec[(*pos)++] - '0');
    if (value > limit) return bad_input("format width or precision above {} (limit)", limit);
  }
  return value;
}

Result<Spec> parse_spec(std::string_view text) {
  Spec spec;
  std::size_t pos = 0;
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
  char32_t cp = 0;
  bool explicit_fill = false;
  const std::size_t first = text.empty() ? 0 : decode_utf8(text, 0, &cp);
  if (first > 0 && first < text.size() && is_align(text[first])) {
    spec.fill = text.substr(0, first);
    explicit_fill = true;
    spec.align = text[first];
    pos = first + 1;
  } else if (!text.empty() && is_align(text[0])) {
    spec.align = text[pos++];
  }
  const auto at = [&](char c) {
    if (pos >= text.size() || text[pos] != c) return false;
    ++pos;
    return true;
  };
  if (pos < text.size() && (text[pos] == '+' || text[pos] == '-' || text[pos] == ' ')) {
    spec.sign = text[pos++];
  }
  spec.alternate = at('#');
  if (at('0')) {
    spec.zero = true;
    if (!explicit_fill) spec.fill = "0";
  }
  SLUICE_ASSIGN_OR_RETURN(spec.width, parse_number(text, &pos, kMaxWidth));
  if (pos < text.size() && (text[pos] == ',' || text[pos] == '_')) spec.grouping = text[pos++];
  if (at('.')) {
    if (pos >= text.size() || text[pos] < '0' || text[pos] > '9') {
      return bad_input("Format specifier missing precision");
    }
    SLUICE_ASSIGN_OR_RETURN(spec.precision, parse_number(text, &pos, kMaxWidth));
  }
  if (pos < text.size()) spec.type = text[pos++];
  if (pos != text.size()) return bad_input("Invalid format specifier '{}'", text);
  return spec;
}

// Inserts the grouping mark between every `size` digits of the integer part.
std::string group_digits(const std::string& digits, char mark, std::size_t size) {
  const std::size_t whole =
      std::min(digits.find_first_not_of("0123456789abcdefABCDEF"), digits.size());
  std::string out;
  for (std::size_t i = 0; i < whole; ++i) {
    if (i > 0 && (whole - i) % size == 0) out.push_back(mark);
    out.push_back(digits[i]);
  }
  return out + digits.substr(whole);
}

void append_padded(const TaggedText& body, std::size_t length, const Spec& spec, char default_align,
                   TaggedText* out) {
  const char align = spec.align == 0 ? default_align : spec.align;
  const auto width = static_cast<std::size_t>(spec.width);
  const std::size_t missing = width > length ? width - length : 0;
  std::size_t left = 0;
  if (align == '>') left = missing;
  if (align == '^') left = missing / 2;
  for (std::size_t i = 0; i < left; ++i) out->append(spec.fill, false);
  out->append(body);
  for (std::size_t i = left; i < missing; ++i) out->append(spec.fill, false);
}

Status append_number(const Digits& number, const Spec& spec, bool content, TaggedText* out) {
  Digits parts = number;
  std::size_t group = 3;
  if (spec.type == 'x' || spec.type == 'X' || spec.type == 'o' || spec.type == 'b') group = 4;
  if (spec.grouping != 0) parts.digits = group_digits(parts.digits, spec.grouping, group);
  const bool inside = spec.align == '=' || (spec.align == 0 && spec.zero);
  TaggedText body;
  body.append(parts.sign + parts.prefix, content);
  if (inside) {
    const std::size_t length = parts.sign.size() + parts.prefix.size() + parts.digits.size();
    const auto width = static_cast<std::size_t>(spec.width);
    if (width > length && spec.grouping != 0 && spec.fill == "0") {
      return bad_input("a format with both zero padding and grouping is not supported");
    }
    for (std::size_t i = length; i < width; ++i) body.append(spec.fill, false);
    body.append(parts.digits, content);
    out->append(body);
    return {};
  }
  body.append(parts.digits, content);
  append_padded(body, count_code_points(body.view()), spec, '>', out);
  return {};
}

Status append_formatted_string(const Value& v, const Spec& spec, TaggedText* out) {
  if (spec.type != 0 && spec.type != 's') {
    return bad_input("Unknown format code '{}' for object of type 'str'", spec.type);
  }
  if (spec.sign != 0 || spec.alternate || spec.grouping != 0 || spec.align == '=') {
    return bad_input("sign, '#', ',' and '=' are not allowed in a string format specifier");
  }
  TaggedText text = v.text();
  std::size_t length = count_code_points(text.view());
  if (spec.precision >= 0 && static_cast<std::size_t>(spec.precision) < length) {
    length = static_cast<std::size_t>(spec.precision);
    text = text.slice(0, byte_offset(text.view(), length));
  }
  append_padded(text, length, spec, '<', out);
  return {};
}

Status append_formatted_integer(const Value& v, const Spec& spec, TaggedText* out) {
  if (spec.type == 'c') return bad_input("format type 'c' is not supported");
  if (spec.type != 0 && std::string_view("dxXobn").find(spec.type) == std::string_view::npos) {
    return bad_input("Unknown format code '{}' for object of type 'int'", spec.type);
  }
  const bool groups =
      spec.type == 0 || spec.type == 'd' || (spec.grouping == '_' && spec.type != 'n');
  if (spec.grouping != 0 && !groups) {
    return bad_input("Cannot specify '{}' with '{}'.", spec.grouping, spec.type);
  }
  if (spec.precision >= 0) return bad_input("Precision not allowed in integer format specifier");
  NumberStyle style;
  style.type = spec.type == 0 || spec.type == 'n' ? 'd' : spec.type;
  style.alternate = spec.alternate;
  style.plus = spec.sign == 0 ? '-' : spec.sign;
  return append_number(integer_digits(v.as_int(), style), spec, v.content(), out);
}

Status append_formatted_float(const Value& v, const Spec& spec, TaggedText* out) {
  NumberStyle style;
  if (spec.alternate) return bad_input("'#' in the format of a float is not supported");
  style.plus = spec.sign == 0 ? '-' : spec.sign;
  if (spec.precision > kMaxPrecision) {
    return bad_input("format precision above {} (limit)", kMaxPrecision);
  }
  style.precision = spec.precision;
  const double value = v.to_double();
  Digits digits;
  if (spec.type == '%') {
    style.type = 'f';
    digits = float_digits(value * 100.0, style);
    digits.digits += "%";
  } else if (spec.type == 0) {
    // Like repr() but at least one digit after the point; with a precision like 'g'.
    if (spec.precision >= 0) {
      return bad_input("a format with a precision but no type is not supported; use 'g' or 'f'");
    }
    digits.sign = sign_of(std::signbit(value), style.plus);
    digits.digits = float_repr(std::fabs(value));
  } else if (std::string_view("eEfFgGn").find(spec.type) != std::string_view::npos) {
    if (spec.type == 'n' && spec.grouping != 0) {
      return bad_input("Cannot specify '{}' with 'n'.", spec.grouping);
    }
    style.type = spec.type == 'n' ? 'g' : spec.type;
    digits = float_digits(value, style);
  } else {
    return bad_input("Unknown format code '{}' for object of type 'float'", spec.type);
  }
  return append_number(digits, spec, v.content(), out);
}

}  // namespace

Digits integer_digits(std::int64_t value, const NumberStyle& style) {
  Digits out;
  out.sign = sign_of(value < 0, style.plus);
  const std::uint64_t size =
      value < 0 ? 0 - static_cast<std::uint64_t>(value) : static_cast<std::uint64_t>(value);
  switch (style.type) {
    case 'x':
      out.digits = fmt::format("{:x}", size);
      break;
    case 'X':
      out.digits = fmt::format("{:X}", size);
      break;
    case 'o':
      out.digits = fmt::format("{:o}", size);
      break;
    case 'b':
      out.digits = fmt::format("{:b}", size);
      break;
    default:
      out.digits = fmt::format("{}", size);
      return out;
  }
  if (style.alternate) out.prefix = std::string("0") + style.type;
  return out;
}

Digits float_digits(double value, const NumberStyle& style) {
  Digits out;
  out.sign = sign_of(std::signbit(value) && !std::isnan(value), style.plus);
  const double size = std::fabs(value);
  const int precision = style.precision < 0 ? 6 : style.precision;
  switch (style.type) {
    case 'e':
    case 'E':
      out.digits = print_double(size, std::chars_format::scientific, precision);
      break;
    case 'f':
    case 'F':
      out.digits = print_double(size, std::chars_format::fixed, precision);
      break;
    default:
      out.digits = print_double(size, std::chars_format::general, precision);
      break;
  }
  if (style.type >= 'A' && style.type <= 'Z') {
    for (char& c : out.digits) {
      if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
    }
  }
  return out;
}

Status append_formatted(Runtime& rt, const Value& v, std::string_view spec_text, TaggedText* out) {
  if (spec_text.empty() || (!v.is_string() && !v.is_number())) {
    if (!spec_text.empty()) {
      return bad_input("unsupported format string passed to {}.__format__", type_name(v));
    }
    return append_str(rt, v, out);
  }
  SLUICE_ASSIGN_OR_RETURN(const Spec spec, parse_spec(spec_text));
  const std::size_t fill = spec.fill.size() * static_cast<std::size_t>(spec.width);
  const std::size_t body = v.is_string() ? v.text().size() : 0;
  SLUICE_RETURN_IF_ERROR(rt.check_text_size(out->size() + fill + body));
  SLUICE_RETURN_IF_ERROR(rt.charge_scan(fill + body));
  if (v.is_string()) return append_formatted_string(v, spec, out);
  const bool as_float =
      spec.type != 0 && std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos;
  // A bool prints as a word only without any specification.
  if (v.is_integer() && !as_float) return append_formatted_integer(v, spec, out);
  return append_formatted_float(v, spec, out);
}

}  // namespace sluice::jinja

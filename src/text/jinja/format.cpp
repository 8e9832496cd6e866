// "..." % values and "...".format(values). Literal text keeps the origin of the format string, what
// is put in keeps the origin of the value.
#include "src/text/jinja/format_spec.h"
#include "src/text/jinja/ops.h"
#include "src/text/jinja/text_ops.h"
#include "src/text/jinja/unicode.h"

namespace sluice::jinja {
namespace {

constexpr std::size_t npos = std::string_view::npos;

// --- % formatting

struct Directive {
  bool left = false;
  bool zero = false;
  bool alternate = false;
  char plus = '-';
  int width = 0;
  int precision = -1;
  char type = 0;
};

// Hands out the arguments of %: those of a tuple in turn, or entries of a mapping.
class PercentArguments {
 public:
  explicit PercentArguments(const Value& v) : value_(v), tuple_(v.is(Kind::kTuple)) {}
  bool is_mapping() const { return value_.is(Kind::kDict); }

  Result<Value> next() {
    if (tuple_) {
      if (used_ >= value_.items().size())
        return bad_input("not enough arguments for format string");
      return value_.items()[used_++];
    }
    if (used_++ > 0) return bad_input("not enough arguments for format string");
    return value_;
  }
  Result<Value> named(std::string_view key) {
    if (!is_mapping()) return bad_input("format requires a mapping");
    named_ = true;
    const Value* found = value_.as<DictNode>().find(key);
    if (found == nullptr) return bad_input("the format's mapping has no key '{}'", key);
    return *found;
  }
  // Left-over arguments are an error, but for what could be a mapping (a dict, or a list).
  Status finish() const {
    const bool all = tuple_ ? used_ >= value_.items().size()
                            : used_ > 0 || named_ || is_mapping() || value_.is(Kind::kList) ||
                                  value_.is(Kind::kRange) || value_.is(Kind::kUndefined);
    if (!all) return bad_input("not all arguments converted during string formatting");
    return {};
  }

 private:
  const Value& value_;
  bool tuple_;
  bool named_ = false;
  std::size_t used_ = 0;
};

Result<int> width_argument(PercentArguments* arguments) {
  SLUICE_ASSIGN_OR_RETURN(const Value v, arguments->next());
  if (!v.is_integer()) return bad_input("* wants int");
  if (v.as_int() > kMaxWidth || v.as_int() < -kMaxWidth) {
    return bad_input("format width or precision above {} (limit)", kMaxWidth);
  }
  return static_cast<int>(v.as_int());
}

// Pads body to the width; zeros go between sign and digits.
Status append_directive(Runtime& rt, const Directive& d, const TaggedText& body,
                        std::size_t sign_length, bool number, TaggedText* out) {
  const std::size_t length = count_code_points(body.view());
  const auto width = static_cast<std::size_t>(d.width);
  const std::size_t missing = width > length ? width - length : 0;
  SLUICE_RETURN_IF_ERROR(rt.check_text_size(out->size() + missing + body.size()));
  SLUICE_RETURN_IF_ERROR(rt.charge_scan(missing + body.size()));
  const std::string spaces(missing, ' ');
  if (d.left) {
    out->append(body);
    out->append(spaces, false);
  } else if (d.zero && number) {
    out->append_range(body, 0, sign_length);
    out->append(std::string(missing, '0'), false);
    out->append_range(body, sign_length, body.size());
  } else {
    out->append(spaces, false);
    out->append(body);
  }
  return {};
}

Status append_text_directive(Runtime& rt, const Directive& d, const Value& v, bool markup,
                             TaggedText* out) {
  TaggedText text;
  if (d.type == 's') {
    SLUICE_ASSIGN_OR_RETURN(text, to_str(rt, v));
    if (markup && !v.markup()) text = escape_html(text);
  } else {
    SLUICE_ASSIGN_OR_RETURN(text, to_repr(rt, v));
    if (markup) text = escape_html(text);
  }
  if (d.precision >= 0) {
    text = text.slice(0, byte_offset(text.view(), static_cast<std::size_t>(d.precision)));
  }
  return append_directive(rt, d, text, 0, false, out);
}

Status append_number_directive(Runtime& rt, const Directive& d, const Value& v, TaggedText* out) {
  if (v.is(Kind::kUndefined)) return undefined_error(v);
  if (!v.is_number()) {
    return bad_input("%{} format: a number is required, not {}", d.type, type_name(v));
  }
  if (d.precision > kMaxPrecision) {
    return bad_input("format precision above {} (limit)", kMaxPrecision);
  }
  NumberStyle style;
  style.type = d.type;
  style.alternate = d.alternate;
  style.plus = d.plus;
  Digits digits;
  bool finite = true;
  if (std::string_view("diuxXo").find(d.type) != npos) {
    std::int64_t whole = v.as_int();
    if (v.is(Kind::kFloat)) {
      if (d.type == 'x' || d.type == 'X' || d.type == 'o') {
        return bad_input("%{} format: an integer is required, not float", d.type);
      }
      constexpr double kTop = 9223372036854775808.0;  // 2^63
      if (!(v.as_float() > -kTop && v.as_float() < kTop)) {
        return bad_input("an integer is beyond 64 bits (limit)");
      }
      whole = static_cast<std::int64_t>(v.as_float());
    }
    digits = integer_digits(whole, style);
    if (d.precision > static_cast<int>(digits.digits.size())) {
      digits.digits.insert(0, static_cast<std::size_t>(d.precision) - digits.digits.size(), '0');
    }
  } else {
    if (d.alternate) return bad_input("'#' in the format of a float is not supported");
    style.precision = d.precision;
    digits = float_digits(v.to_double(), style);
    finite = digits.digits.find_first_of("nN") == std::string::npos;
  }
  TaggedText body;
  body.append(digits.sign + digits.prefix + digits.digits, v.content());
  return append_directive(rt, d, body, digits.sign.size() + digits.prefix.size(), finite, out);
}

Status append_percent(Runtime& rt, const Directive& d, const Value& v, bool markup,
                      TaggedText* out) {
  switch (d.type) {
    case 's':
    case 'r':
      return append_text_directive(rt, d, v, markup, out);
    case 'c': {
      TaggedText text;
      if (v.is_string() && count_code_points(v.str()) == 1) {
        text = v.text();
      } else if (v.is_integer() && v.as_int() >= 0 && v.as_int() <= 0x10ffff &&
                 (v.as_int() < 0xd800 || v.as_int() > 0xdfff)) {
        std::string utf8;
        append_utf8(static_cast<char32_t>(v.as_int()), &utf8);
        text = TaggedText(utf8, v.content());
      } else {
        return bad_input("%c requires int or char");
      }
      return append_directive(rt, d, text, 0, false, out);
    }
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o':
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
      return append_number_directive(rt, d, v, out);
    default:
      return bad_input("unsupported format character '{}'", d.type);
  }
}

// --- braces

// The value of a replacement field: "0.name[key]", "name", "" (the next positional argument).
class BraceArguments {
 public:
  BraceArguments(Runtime& rt, const Args& args) : rt_(rt), args_(args) {}

  Result<Value> field(std::string_view name) {
    const std::size_t end = name.find_first_of(".[");
    SLUICE_ASSIGN_OR_RETURN(Value v, first(name.substr(0, end)));
    std::string_view rest = end == npos ? std::string_view() : name.substr(end);
    while (!rest.empty()) {
      const bool attribute = rest[0] == '.';
      const std::size_t stop =
          attribute ? rest.find_first_of(".[", 1) : std::min(rest.find(']'), rest.size());
      if (!attribute && stop == rest.size()) return bad_input("Missing ']' in format string");
      const std::string_view part = rest.substr(1, stop == npos ? npos : stop - 1);
      if (part.empty()) return bad_input("Empty attribute in format string");
      if (attribute) {
        SLUICE_ASSIGN_OR_RETURN(v, get_attribute(rt_, v, part));
      } else {
        SLUICE_ASSIGN_OR_RETURN(v, get_item(rt_, v, key_of(part)));
      }
      rest = stop == npos ? std::string_view() : rest.substr(attribute ? stop : stop + 1);
      if (!rest.empty() && rest[0] != '.' && rest[0] != '[') {
        return bad_input("Only '.' or '[' may follow ']' in format field specifier");
      }
    }
    return v;
  }

 private:
  static bool is_index(std::string_view s) {
    return !s.empty() && s.size() < 10 && s.find_first_not_of("0123456789") == npos;
  }
  Value key_of(std::string_view part) {
    if (is_index(part)) return Value::integer(std::stoll(std::string(part)));
    return rt_.make_string(part);
  }
  Result<Value> first(std::string_view name) {
    std::size_t index = 0;
    if (name.empty()) {
      if (manual_) return bad_input("cannot mix '{{}}' and '{{0}}' in a format string");
      automatic_ = true;
      index = next_++;
    } else if (is_index(name)) {
      if (automatic_) return bad_input("cannot mix '{{}}' and '{{0}}' in a format string");
      manual_ = true;
      index = static_cast<std::size_t>(std::stoll(std::string(name)));
    } else {
      for (const auto& [key, value] : args_.keyword) {
        if (key == name) return value;
      }
      return bad_input("the format string wants an argument '{}' that is not given", name);
    }
    if (index >= args_.positional.size()) {
      return bad_input("Replacement index {} out of range for positional args", index);
    }
    return args_.positional[index];
  }

  Runtime& rt_;
  const Args& args_;
  std::size_t next_ = 0;
  bool automatic_ = false;
  bool manual_ = false;
};

Status format_text(Runtime& rt, const TaggedText& format, BraceArguments* arguments, bool markup,
                   int depth, TaggedText* out);

// One replacement field, the text between { and }.
Status append_field(Runtime& rt, const TaggedText& field, BraceArguments* arguments, bool markup,
                    int depth, TaggedText* out) {
  const std::string_view s = field.view();
  // The name ends at the first ! or : outside of brackets.
  std::size_t end = 0;
  for (bool bracket = false; end < s.size(); ++end) {
    if (s[end] == '[') bracket = true;
    if (s[end] == ']') bracket = false;
    if (!bracket && (s[end] == '!' || s[end] == ':')) break;
  }
  if (s.substr(0, end).find('{') != npos) return bad_input("unexpected '{{' in field name");
  SLUICE_ASSIGN_OR_RETURN(Value v, arguments->field(s.substr(0, end)));
  if (end < s.size() && s[end] == '!') {
    const char conversion = end + 1 < s.size() ? s[end + 1] : '\0';
    if (end + 2 < s.size() && s[end + 2] != ':') {
      return bad_input("expected ':' after conversion specifier");
    }
    if (conversion == 'r') {
      SLUICE_ASSIGN_OR_RETURN(TaggedText repr, to_repr(rt, v));
      v = rt.make_string(std::move(repr));
    } else if (conversion == 's') {
      SLUICE_ASSIGN_OR_RETURN(TaggedText text, to_str(rt, v));
      v = rt.make_string(std::move(text));
    } else {
      return bad_input("conversion '!{}' in a format string is not supported", conversion);
    }
    end += 2;
  }
  TaggedText spec;
  if (end < s.size()) {
    SLUICE_RETURN_IF_ERROR(
        format_text(rt, field.slice(end + 1, s.size()), arguments, false, depth + 1, &spec));
  }
  TaggedText formatted;
  SLUICE_RETURN_IF_ERROR(append_formatted(rt, v, spec.view(), &formatted));
  if (markup && !v.markup()) formatted = escape_html(formatted);
  SLUICE_RETURN_IF_ERROR(rt.check_text_size(out->size() + formatted.size()));
  out->append(formatted);
  return {};
}

Status format_text(Runtime& rt, const TaggedText& format, BraceArguments* arguments, bool markup,
                   int depth, TaggedText* out) {
  constexpr int kMaxDepth = 2;  // a field in the specification of a field, as in Python
  const std::string_view s = format.view();
  if (depth >= kMaxDepth && s.find_first_of("{}") != npos) {
    return bad_input("Max string recursion exceeded");
  }
  SLUICE_RETURN_IF_ERROR(rt.charge_scan(s.size()));
  for (std::size_t pos = 0; pos < s.size();) {
    const std::size_t brace = std::min(s.find_first_of("{}", pos), s.size());
    out->append_range(format, pos, brace);
    if (brace == s.size()) return {};
    if (brace + 1 < s.size() && s[brace + 1] == s[brace]) {  // {{ or }}
      out->append_range(format, brace, brace + 1);
      pos = brace + 2;
      continue;
    }
    if (s[brace] == '}') return bad_input("Single '}}' encountered in format string");
    std::size_t end = brace + 1;
    for (int open = 1; end < s.size(); ++end) {
      if (s[end] == '{') ++open;
      if (s[end] == '}' && --open == 0) break;
    }
    if (end >= s.size()) return bad_input("expected '}}' before end of string");
    SLUICE_RETURN_IF_ERROR(rt.charge(1));
    SLUICE_RETURN_IF_ERROR(
        append_field(rt, format.slice(brace + 1, end), arguments, markup, depth, out));
    pos = end + 1;
  }
  return {};
}

}  // namespace

Result<Value> format_percent(Runtime& rt, const Value& format, const Value& arguments_value) {
  const TaggedText& text = format.text();
  const std::string_view s = text.view();
  PercentArguments arguments(arguments_value);
  SLUICE_RETURN_IF_ERROR(rt.charge_scan(s.size()));
  TaggedText out;
  for (std::size_t pos = 0; pos < s.size();) {
    const std::size_t percent = std::min(s.find('%', pos), s.size());
    out.append_range(text, pos, percent);
    if (percent == s.size()) break;
    SLUICE_RETURN_IF_ERROR(rt.charge(1));
    pos = percent + 1;
    Directive d;
    Value v;
    if (pos < s.size() && s[pos] == '(') {
      std::size_t end = pos + 1;
      for (int open = 1; end < s.size(); ++end) {
        if (s[end] == '(') ++open;
        if (s[end] == ')' && --open == 0) break;
      }
      if (end >= s.size()) return bad_input("incomplete format key");
      SLUICE_ASSIGN_OR_RETURN(v, arguments.named(s.substr(pos + 1, end - pos - 1)));
      pos = end + 1;
    }
    for (; pos < s.size() && std::string_view("-+ 0#").find(s[pos]) != npos; ++pos) {
      if (s[pos] == '-') d.left = true;
      if (s[pos] == '0') d.zero = true;
      if (s[pos] == '#') d.alternate = true;
      if (s[pos] == '+' || (s[pos] == ' ' && d.plus != '+')) d.plus = s[pos];
    }
    const auto number = [&](int* target) -> Status {
      if (pos < s.size() && s[pos] == '*') {
        ++pos;
        SLUICE_ASSIGN_OR_RETURN(*target, width_argument(&arguments));
        return {};
      }
      *target = 0;
      for (; pos < s.size() && s[pos] >= '0' && s[pos] <= '9'; ++pos) {
        *target = *target * 10 + (s[pos] - '0');
        if (*target > kMaxWidth) {
          return bad_input("format width or precision above {} (limit)", kMaxWidth);
        }
      }
      return {};
    };
    SLUICE_RETURN_IF_ERROR(number(&d.width));
    if (d.width < 0) {
      d.left = true;
      d.width = -d.width;
    }
    if (pos < s.size() && s[pos] == '.') {
      ++pos;
      SLUICE_RETURN_IF_ERROR(number(&d.precision));
      if (d.precision < 0) d.precision = 0;
    }
    if (pos < s.size() && (s[pos] == 'l' || s[pos] == 'h' || s[pos] == 'L')) ++pos;
    if (pos >= s.size()) return bad_input("incomplete format");
    d.type = s[pos++];
    if (d.type == '%') {
      out.append_range(text, pos - 1, pos);
      continue;
    }
    if (v.missing()) {
      SLUICE_ASSIGN_OR_RETURN(v, arguments.next());
    }
    SLUICE_RETURN_IF_ERROR(append_percent(rt, d, v, format.markup(), &out));
  }
  SLUICE_RETURN_IF_ERROR(arguments.finish());
  return rt.make_string(std::move(out), format.markup());
}

Result<Value> format_braces(Runtime& rt, const Value& format, const Args& args) {
  BraceArguments arguments(rt, args);
  TaggedText out;
  SLUICE_RETURN_IF_ERROR(format_text(rt, format.text(), &arguments, format.markup(), 0, &out));
  return rt.make_string(std::move(out), format.markup());
}

}  // namespace sluice::jinja

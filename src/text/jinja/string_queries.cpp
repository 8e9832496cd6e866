// Methods of str that answer questions: find, count, startswith, isdigit ...
#include "src/text/jinja/args.h"
#include "src/text/jinja/builtins.h"
#include "src/text/jinja/ops.h"
#include "src/text/jinja/text_ops.h"
#include "src/text/jinja/unicode.h"

namespace sluice::jinja {
namespace {

struct Window {  // bytes [begin, end) of the text that start and end select, and begin in
                 // characters
  std::size_t begin = 0;
  std::size_t end = 0;
  std::int64_t begin_index = 0;
  bool valid = true;  // false: start is behind the end, so not even "" is found
};

Result<Window> window_of(Runtime& rt, const Value& self, const Value& start, const Value& end) {
  SLUICE_ASSIGN_OR_RETURN(const std::int64_t length, length_of(rt, self));
  const auto open = [](const Value& v) { return v.missing() || v.is(Kind::kNone); };
  std::int64_t from = 0;
  std::int64_t to = length;
  if (!open(start)) {
    SLUICE_ASSIGN_OR_RETURN(from, int_arg("find", start));
  }
  if (!open(end)) {
    SLUICE_ASSIGN_OR_RETURN(to, int_arg("find", end));
  }
  if (to > length) to = length;
  if (to < 0) to = to < -length ? 0 : to + length;
  if (from < 0) from = from < -length ? 0 : from + length;
  Window window;
  window.valid = from <= to;
  if (!window.valid) return window;
  window.begin_index = from;
  window.begin = byte_offset(self.str(), static_cast<std::size_t>(from));
  window.end = window.begin +
               byte_offset(self.str().substr(window.begin), static_cast<std::size_t>(to - from));
  return window;
}

template <bool from_right, bool must_be_there>
Result<Value> find(Runtime& rt, const Value& self, Args& args) {
  SLUICE_ASSIGN_OR_RETURN(const auto bound, bind_args("find", args, {"sub", "start", "end"}, 1, 3));
  SLUICE_RETURN_IF_ERROR(check_string_arg("find", bound[0]));
  SLUICE_ASSIGN_OR_RETURN(const Window window, window_of(rt, self, bound[1], bound[2]));
  SLUICE_RETURN_IF_ERROR(rt.charge_scan(self.text().size() + bound[0].text().size()));
  std::size_t at = std::string_view::npos;
  const std::string_view text = self.str().substr(window.begin, window.end - window.begin);
  if (window.valid) {
    at = from_right ? find_last(text, bound[0].str()) : Searcher(bound[0].str()).find(text, 0);
  }
  if (at != std::string_view::npos) {
    return Value::integer(window.begin_index +
                          static_cast<std::int64_t>(count_code_points(text.substr(0, at))));
  }
  if (must_be_there) return bad_input("substring not found");
  return Value::integer(-1);
}

Result<Value> count(Runtime& rt, const Value& self, Args& args) {
  SLUICE_ASSIGN_OR_RETURN(const auto bound,
                          bind_args("count", args, {"sub", "start", "end"}, 1, 3));
  SLUICE_RETURN_IF_ERROR(check_string_arg("count", bound[0]));
  SLUICE_ASSIGN_OR_RETURN(const Window window, window_of(rt, self, bound[1], bound[2]));
  SLUICE_RETURN_IF_ERROR(rt.charge_scan(self.text().size() + bound[0].text().size()));
  if (!window.valid) return Value::integer(0);
  return Value::integer(count_occurrences(
      self.str().substr(window.begin, window.end - window.begin), bound[0].str()));
}

// startswith and endswith take one text or a tuple of them.
template <bool at_start>
Result<Value> has_affix(Runtime& rt, const Value& self, Args& args) {
  const std::string_view name = at_start ? "startswith" : "endswith";
  SLUICE_ASSIGN_OR_RETURN(const auto bound, bind_args(name, args, {"affix", "start", "end"}, 1, 3));
  SLUICE_ASSIGN_OR_RETURN(const Window window, window_of(rt, self, bound[1], bound[2]));
  const std::string_view text = self.str().substr(window.begin, window.end - window.begin);
  const auto matches = [&](const Value& affix) {
    return window.valid && (at_start ? text.starts_with(affix.str()) : text.ends_with(affix.str()));
  };
  if (!bound[0].is(Kind::kTuple)) {
    if (!bound[0].is_string()) {
      return bad_input("{} first arg must be str or a tuple of str, not {}", name,
                       type_name(bound[0]));
    }
    return Value::boolean(matches(bound[0]));
  }
  for (const Value& affix : bound[0].items()) {
    SLUICE_RETURN_IF_ERROR(rt.charge(1));
    if (!affix.is_string()) {
      return bad_input("tuple for {} must only contain str, not {}", name, type_name(affix));
    }
    if (matches(affix)) return Value::boolean(true);
  }
  return Value::boolean(false);
}

// True if there are characters and each has one of the classes.
template <unsigned bits>
Result<Value> all_of_class(Runtime& rt, const Value& self, Args& args) {
  SLUICE_RETURN_IF_ERROR(check_no_args("str method", args));
  SLUICE_RETURN_IF_ERROR(rt.charge_scan(self.text().size()));
  const std::string_view s = self.str();
  char32_t cp = 0;
  for (std::size_t pos = 0; pos < s.size();) {
    pos += decode_utf8(s, pos, &cp);
    if ((char_class(cp) & bits) == 0) return Value::boolean(false);
  }
  return Value::boolean(!s.empty() || bits == kPrintable);
}

// islower and isupper: some cased character, and none of the other case.
template <bool upper>
Result<Value> is_case(Runtime& rt, const Value& self, Args& args) {
  SLUICE_RETURN_IF_ERROR(check_no_args("str method", args));
  SLUICE_RETURN_IF_ERROR(rt.charge_scan(self.text().size()));
  return Value::boolean(upper ? is_upper_text(self.str()) : is_lower_text(self.str()));
}

Result<Value> istitle(Runtime& rt, const Value& self, Args& args) {
  SLUICE_RETURN_IF_ERROR(check_no_args("istitle", args));
  SLUICE_RETURN_IF_ERROR(rt.charge_scan(self.text().size()));
  const std::string_view s = self.str();
  char32_t cp = 0;
  bool in_word = false;
  bool any = false;
  for (std::size_t pos = 0; pos < s.size();) {
    pos += decode_utf8(s, pos, &cp);
    const unsigned bits = char_class(cp);
    if ((bits & (kUpper | kTitle)) != 0) {
      if (in_word) return Value::boolean(false);
      in_word = any = true;
    } else if ((bits & kLower) != 0) {
      if (!in_word) return Value::boolean(false);
    } else {
      in_word = false;
    }
  }
  return Value::boolean(any);
}

Result<Value> isascii(Runtime& rt, const Value& self, Args& args) {
  SLUICE_RETURN_IF_ERROR(check_no_args("isascii", args));
  SLUICE_RETURN_IF_ERROR(rt.charge_scan(self.text().size()));
  return Value::boolean(is_ascii(self.str()));
}

Result<Value> isidentifier(Runtime& rt, const Value& self, Args& args) {
  SLUICE_RETURN_IF_ERROR(check_no_args("isidentifier", args));
  SLUICE_RETURN_IF_ERROR(rt.charge_scan(self.text().size()));
  const std::string_view s = self.str();
  if (!is_ascii(s)) return bad_input("isidentifier() of text beyond ASCII is not supported");
  bool good = !s.empty() && !(s[0] >= '0' && s[0] <= '9');
  for (const char c : s) good = good && is_word(static_cast<unsigned char>(c));
  return Value::boolean(good);
}

constexpr MethodInfo kStringQueries[] = {
    {Kind::kString, "count", MethodAccess::kSafe, count},
    {Kind::kString, "endswith", MethodAccess::kSafe, has_affix<false>},
    {Kind::kString, "find", MethodAccess::kSafe, find<false, false>},
    {Kind::kString, "index", MethodAccess::kSafe, find<false, true>},
    {Kind::kString, "isalnum", MethodAccess::kSafe, all_of_class<kAlnum>},
    {Kind::kString, "isalpha", MethodAccess::kSafe, all_of_class<kAlpha>},
    {Kind::kString, "isascii", MethodAccess::kSafe, isascii},
    {Kind::kString, "isdecimal", MethodAccess::kSafe, all_of_class<kDecimal>},
    {Kind::kString, "isdigit", MethodAccess::kSafe, all_of_class<kDigit>},
    {Kind::kString, "isidentifier", MethodAccess::kSafe, isidentifier},
    {Kind::kString, "islower", MethodAccess::kSafe, is_case<false>},
    {Kind::kString, "isnumeric", MethodAccess::kSafe, all_of_class<kNumeric>},
    {Kind::kString, "isprintable", MethodAccess::kSafe, all_of_class<kPrintable>},
    {Kind::kString, "isspace", MethodAccess::kSafe, all_of_class<kSpace>},
    {Kind::kString, "istitle", MethodAccess::kSafe, istitle},
    {Kind::kString, "isupper", MethodAccess::kSafe, is_case<true>},
    {Kind::kString, "rfind", MethodAccess::kSafe, find<true, false>},
    {Kind::kString, "rindex", MethodAccess::kSafe, find<true, true>},
    {Kind::kString, "startswith", MethodAccess::kSafe, has_affix<true>},
};

}  // namespace

MethodTable string_query_methods() { return {kStringQueries, std::size(kStringQueries)}; }

}  // namespace sluice::jinja

// Methods of str that make new strings or lists of them.
#include <optional>

#include "src/text/jinja/args.h"
#include "src/text/jinja/builtins.h"
#include "src/text/jinja/format_spec.h"
#include "src/text/jinja/ops.h"
#include "src/text/jinja/text_ops.h"
#include "src/text/jinja/unicode.h"

namespace sluice::jinja {
namespace {

// Methods of Markup give Markup again.
Value like(Runtime& rt, const Value& self, TaggedText text) {
  return rt.make_string(std::move(text), self.markup());
}

Result<Value> list_of(Runtime& rt, const Value& self, std::vector<TaggedText> parts) {
  SLUICE_RETURN_IF_ERROR(rt.charge(parts.size() * 4));
  std::vector<Value> items;
  items.reserve(parts.size());
  for (TaggedText& part : parts) items.push_back(like(rt, self, std::move(part)));
  return rt.make_list(std::move(items));
}

template <CaseChange change>
Result<Value> cased(Runtime& rt, const Value& self, Args& args) {
  SLUICE_RETURN_IF_ERROR(check_no_args("str method", args));
  SLUICE_RETURN_IF_ERROR(rt.check_text_size(self.text().size() * 3));
  SLUICE_RETURN_IF_ERROR(rt.charge_each(self.text().size()));
  return like(rt, self, change_case(self.text(), change));
}

template <Side side>
Result<Value> stripped(Runtime& rt, const Value& self, Args& args) {
  SLUICE_ASSIGN_OR_RETURN(const auto bound, bind_args("strip", args, {"chars"}, 0, 1));
  SLUICE_RETURN_IF_ERROR(rt.charge_copy(self.text().size()));
  if (bound[0].missing() || bound[0].is(Kind::kNone)) {
    return like(rt, self, strip(self.text(), std::nullopt, side));
  }
  SLUICE_RETURN_IF_ERROR(check_string_arg("strip", bound[0]));
  SLUICE_RETURN_IF_ERROR(rt.charge_scan(bound[0].text().size()));
  return like(rt, self, strip(self.text(), bound[0].str(), side));
}

template <bool from_right>
Result<Value> split_by(Runtime& rt, const Value& self, Args& args) {
  SLUICE_ASSIGN_OR_RETURN(const auto bound, bind_args("split", args, {"sep", "maxsplit"}, 0));
  SLUICE_ASSIGN_OR_RETURN(const std::int64_t limit, int_arg("split", bound[1], -1));
  SLUICE_RETURN_IF_ERROR(rt.charge_scan(self.text().size()));
  if (bound[0].missing() || bound[0].is(Kind::kNone)) {
    SLUICE_RETURN_IF_ERROR(rt.check_string_list_size(count_spaces(self.str())));
    return list_of(rt, self, split_space(self.text(), limit, from_right));
  }
  SLUICE_RETURN_IF_ERROR(check_string_arg("split", bound[0]));
  if (bound[0].text().empty()) return bad_input("empty separator");
  const std::int64_t cuts = count_replacements(self.str(), bound[0].str(), limit);
  SLUICE_RETURN_IF_ERROR(rt.check_string_list_size(static_cast<std::uint64_t>(cuts) + 1));
  return list_of(rt, self, split(self.text(), bound[0].str(), limit, from_right));
}

Result<Value> splitlines(Runtime& rt, const Value& self, Args& args) {
  SLUICE_ASSIGN_OR_RETURN(const auto bound, bind_args("splitlines", args, {"keepends"}, 0));
  SLUICE_RETURN_IF_ERROR(rt.charge_scan(self.text().size()));
  SLUICE_RETURN_IF_ERROR(rt.check_string_list_size(count_spaces(self.str())));
  bool keep = false;
  if (!bound[0].missing()) {
    SLUICE_ASSIGN_OR_RETURN(const std::int64_t number, int_arg("splitlines", bound[0]));
    keep = number != 0;
  }
  return list_of(rt, self, split_lines(self.text(), keep));
}

template <bool from_right>
Result<Value> partition(Runtime& rt, const Value& self, Args& args) {
  SLUICE_ASSIGN_OR_RETURN(const auto bound, bind_args("partition", args, {"sep"}, 1, 1));
  SLUICE_RETURN_IF_ERROR(check_string_arg("partition", bound[0]));
  if (bound[0].text().empty()) return bad_input("empty separator");
  const TaggedText& text = self.text();
  SLUICE_RETURN_IF_ERROR(rt.charge_scan(text.size()));
  const std::string_view separator = bound[0].str();
  const std::size_t at =
      from_right ? find_last(text.view(), separator) : Searcher(separator).find(text.view(), 0);
  TaggedText parts[3];
  if (at == std::string_view::npos) {
    parts[from_right ? 2 : 0] = text;
  } else {
    parts[0] = text.slice(0, at);
    parts[1] = text.slice(at, at + separator.size());
    parts[2] = text.slice(at + separator.size(), text.size());
  }
  std::vector<Value> items;
  for (TaggedText& part : parts) items.push_back(like(rt, self, std::move(part)));
  return rt.make_tuple(std::move(items));
}

Result<Value> replaced(Runtime& rt, const Value& self, Args& args) {
  SLUICE_ASSIGN_OR_RETURN(const auto bound,
                          bind_args("replace", args, {"old", "new", "count"}, 2, 3));
  SLUICE_RETURN_IF_ERROR(check_string_arg("replace", bound[0]));
  SLUICE_RETURN_IF_ERROR(check_string_arg("replace", bound[1]));
  SLUICE_ASSIGN_OR_RETURN(const std::int64_t limit, int_arg("replace", bound[2], -1));
  const bool escape = self.markup() && !bound[1].markup();
  const TaggedText with = escape ? escape_html(bound[1].text()) : bound[1].text();
  const std::int64_t count = count_replacements(self.str(), bound[0].str(), limit);
  SLUICE_RETURN_IF_ERROR(
      rt.check_text_size(self.text().size() + static_cast<std::uint64_t>(count) * with.size()));
  SLUICE_RETURN_IF_ERROR(
      rt.charge_scan(self.text().size() + static_cast<std::size_t>(count) * with.size()));
  return like(rt, self, replace(self.text(), bound[0].str(), with, limit));
}

template <bool prefix>
Result<Value> without_affix(Runtime& rt, const Value& self, Args& args) {
  SLUICE_ASSIGN_OR_RETURN(const auto bound, bind_args("removeprefix", args, {"affix"}, 1, 1));
  SLUICE_RETURN_IF_ERROR(check_string_arg("removeprefix", bound[0]));
  SLUICE_RETURN_IF_ERROR(rt.charge_copy(self.text().size()));
  const std::string_view s = self.str();
  const std::string_view affix = bound[0].str();
  if (prefix && s.starts_with(affix)) {
    return like(rt, self, self.text().slice(affix.size(), s.size()));
  }
  if (!prefix && s.ends_with(affix)) {
    return like(rt, self, self.text().slice(0, s.size() - affix.size()));
  }
  return self;
}

Result<Value> joined(Runtime& rt, const Value& self, Args& args) {
  SLUICE_ASSIGN_OR_RETURN(const auto bound, bind_args("join", args, {"iterable"}, 1, 1));
  if (!is_iterable(bound[0])) return bad_input("can only join an iterable");
  SLUICE_ASSIGN_OR_RETURN(const auto iterator, iterate(rt, bound[0]));
  TaggedText out;
  Value item;
  for (std::size_t i = 0;; ++i) {
    SLUICE_ASSIGN_OR_RETURN(const bool more, iterator->next(rt, &item));
    if (!more) break;
    TaggedText piece;
    if (self.markup()) {
      SLUICE_ASSIGN_OR_RETURN(piece, to_str(rt, item));
      if (!item.markup()) piece = escape_html(piece);
    } else if (item.is_string()) {
      piece = item.text();
    } else {
      return bad_input("sequence item {}: expected str instance, {} found", i, type_name(item));
    }
    SLUICE_RETURN_IF_ERROR(rt.check_text_size(out.size() + self.text().size() + piece.size()));
    SLUICE_RETURN_IF_ERROR(rt.charge_copy(self.text().size() + piece.size()));
    if (i > 0) out.append(self.text());
    out.append(piece);
  }
  return like(rt, self, std::move(out));
}

enum class Pad { kLeftJustify, kRightJustify, kCenter };
template <Pad pad>
Result<Value> padded(Runtime& rt, const Value& self, Args& args) {
  SLUICE_ASSIGN_OR_RETURN(const auto bound,
                          bind_args("justify", args, {"width", "fillchar"}, 1, 2));
  SLUICE_ASSIGN_OR_RETURN(const std::int64_t width, int_arg("justify", bound[0]));
  TaggedText fill(" ", false);
  if (!bound[1].missing()) {
    SLUICE_RETURN_IF_ERROR(check_string_arg("justify", bound[1]));
    fill = self.markup() && !bound[1].markup() ? escape_html(bound[1].text()) : bound[1].text();
    if (text_length(fill) != 1)
      return bad_input("The fill character must be exactly one character long");
  }
  SLUICE_ASSIGN_OR_RETURN(const std::int64_t length, length_of(rt, self));
  if (width <= length) return self;
  const std::int64_t missing = width - length;
  if (missing > kMaxWidth * 64) return rt.check_text_size(UINT64_MAX).error();
  SLUICE_RETURN_IF_ERROR(
      rt.check_text_size(self.text().size() + static_cast<std::uint64_t>(missing) * fill.size()));
  SLUICE_RETURN_IF_ERROR(rt.charge_scan(static_cast<std::size_t>(missing) * fill.size()));
  std::int64_t left = 0;
  if (pad == Pad::kRightJustify) left = missing;
  // Python puts the odd one left or right depending on the width.
  if (pad == Pad::kCenter) left = missing / 2 + (missing & width & 1);
  TaggedText out;
  for (std::int64_t i = 0; i < left; ++i) out.append(fill);
  out.append(self.text());
  for (std::int64_t i = left; i < missing; ++i) out.append(fill);
  return like(rt, self, std::move(out));
}

Result<Value> zfill(Runtime& rt, const Value& self, Args& args) {
  SLUICE_ASSIGN_OR_RETURN(const auto bound, bind_args("zfill", args, {"width"}, 1, 1));
  SLUICE_ASSIGN_OR_RETURN(const std::int64_t width, int_arg("zfill", bound[0]));
  SLUICE_ASSIGN_OR_RETURN(const std::int64_t length, length_of(rt, self));
  if (width <= length) return self;
  const auto missing = static_cast<std::uint64_t>(width - length);
  SLUICE_RETURN_IF_ERROR(rt.check_text_size(missing));
  SLUICE_RETURN_IF_ERROR(rt.charge_copy(missing));
  const std::string_view s = self.str();
  const std::size_t sign = !s.empty() && (s[0] == '+' || s[0] == '-') ? 1 : 0;
  TaggedText out = self.text().slice(0, sign);
  out.append(std::string(missing, '0'), false);
  out.append_range(self.text(), sign, s.size());
  return like(rt, self, std::move(out));
}

Result<Value> expandtabs(Runtime& rt, const Value& self, Args& args) {
  SLUICE_ASSIGN_OR_RETURN(const auto bound, bind_args("expandtabs", args, {"tabsize"}, 0));
  SLUICE_ASSIGN_OR_RETURN(const std::int64_t size, int_arg("expandtabs", bound[0], 8));
  if (size > 1000) return bad_input("expandtabs() with more than 1000 columns (limit)");
  const TaggedText& text = self.text();
  SLUICE_RETURN_IF_ERROR(rt.charge_each(text.size()));
  TaggedText out;
  std::int64_t column = 0;
  char32_t cp = 0;
  for (std::size_t pos = 0; pos < text.size();) {
    const std::size_t length = decode_utf8(text.view(), pos, &cp);
    if (cp == '\t') {
      const std::int64_t spaces = size > 0 ? size - column % size : 0;
      column += spaces;
      SLUICE_RETURN_IF_ERROR(rt.check_text_size(out.size() + static_cast<std::uint64_t>(spaces)));
      SLUICE_RETURN_IF_ERROR(rt.charge_copy(static_cast<std::size_t>(spaces)));
      out.append(std::string(static_cast<std::size_t>(spaces), ' '), text.content_at(pos));
    } else {
      column = cp == '\n' || cp == '\r' ? 0 : column + 1;
      out.append_range(text, pos, pos + length);
    }
    pos += length;
  }
  return like(rt, self, std::move(out));
}

Result<Value> format(Runtime& rt, const Value& self, Args& args) {
  return format_braces(rt, self, args);
}

Result<Value> format_map(Runtime& rt, const Value& self, Args& args) {
  SLUICE_ASSIGN_OR_RETURN(const auto bound, bind_args("format_map", args, {"mapping"}, 1, 1));
  if (!bound[0].is(Kind::kDict)) return bad_input("format_map() argument must be a dict");
  Args named;
  for (const auto& [key, value] : bound[0].as<DictNode>().items) {
    if (key.is_string()) named.keyword.emplace_back(std::string(key.str()), value);
  }
  return format_braces(rt, self, named);
}

constexpr MethodInfo kStringMethods[] = {
    {Kind::kString, "capitalize", MethodAccess::kSafe, cased<CaseChange::kCapitalize>},
    {Kind::kString, "casefold", MethodAccess::kUnsupported, nullptr},
    {Kind::kString, "center", MethodAccess::kSafe, padded<Pad::kCenter>},
    {Kind::kString, "encode", MethodAccess::kUnsupported, nullptr},
    {Kind::kString, "expandtabs", MethodAccess::kSafe, expandtabs},
    {Kind::kString, "format", MethodAccess::kSafe, format},
    {Kind::kString, "format_map", MethodAccess::kSafe, format_map},
    {Kind::kString, "join", MethodAccess::kSafe, joined},
    {Kind::kString, "ljust", MethodAccess::kSafe, padded<Pad::kLeftJustify>},
    {Kind::kString, "lower", MethodAccess::kSafe, cased<CaseChange::kLower>},
    {Kind::kString, "lstrip", MethodAccess::kSafe, stripped<Side::kLeft>},
    {Kind::kString, "maketrans", MethodAccess::kUnsupported, nullptr},
    {Kind::kString, "partition", MethodAccess::kSafe, partition<false>},
    {Kind::kString, "removeprefix", MethodAccess::kSafe, without_affix<true>},
    {Kind::kString, "removesuffix", MethodAccess::kSafe, without_affix<false>},
    {Kind::kString, "replace", MethodAccess::kSafe, replaced},
    {Kind::kString, "rjust", MethodAccess::kSafe, padded<Pad::kRightJustify>},
    {Kind::kString, "rpartition", MethodAccess::kSafe, partition<true>},
    {Kind::kString, "rsplit", MethodAccess::kSafe, split_by<true>},
    {Kind::kString, "rstrip", MethodAccess::kSafe, stripped<Side::kRight>},
    {Kind::kString, "split", MethodAccess::kSafe, split_by<false>},
    {Kind::kString, "splitlines", MethodAccess::kSafe, splitlines},
    {Kind::kString, "strip", MethodAccess::kSafe, stripped<Side::kBoth>},
    {Kind::kString, "swapcase", MethodAccess::kSafe, cased<CaseChange::kSwap>},
    {Kind::kString, "title", MethodAccess::kSafe, cased<CaseChange::kTitle>},
    {Kind::kString, "translate", MethodAccess::kUnsupported, nullptr},
    {Kind::kString, "upper", MethodAccess::kSafe, cased<CaseChange::kUpper>},
    {Kind::kString, "zfill", MethodAccess::kSafe, zfill},
};

}  // namespace

MethodTable string_methods() { return {kStringMethods, std::size(kStringMethods)}; }

}  // namespace sluice::jinja

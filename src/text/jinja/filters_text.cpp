// Filters on text.
#include <algorithm>
#include <optional>

#include "src/text/jinja/args.h"
#include "src/text/jinja/builtins.h"
#include "src/text/jinja/format_spec.h"
#include "src/text/jinja/ops.h"
#include "src/text/jinja/text_ops.h"
#include "src/text/jinja/unicode.h"

namespace sluice::jinja {
namespace {

// The value itself if it is a string, else its str().
Result<Value> soft_string(Runtime& rt, const Value& v) {
  if (v.is_string()) return v;
  SLUICE_ASSIGN_OR_RETURN(TaggedText text, to_str(rt, v));
  return rt.make_string(std::move(text));
}

template <CaseChange change>
Result<Value> cased(Runtime& rt, const Value& value, Args& args) {
  SLUICE_RETURN_IF_ERROR(check_no_args("this filter", args));
  SLUICE_ASSIGN_OR_RETURN(const Value v, soft_string(rt, value));
  SLUICE_RETURN_IF_ERROR(rt.check_text_size(v.text().size() * 3));
  SLUICE_RETURN_IF_ERROR(rt.charge_each(v.text().size()));
  return rt.make_string(change_case(v.text(), change), v.markup());
}

Result<Value> title(Runtime& rt, const Value& value, Args& args) {
  SLUICE_RETURN_IF_ERROR(check_no_args("title", args));
  SLUICE_ASSIGN_OR_RETURN(const Value v, soft_string(rt, value));
  SLUICE_RETURN_IF_ERROR(rt.check_text_size(v.text().size() * 3));
  SLUICE_RETURN_IF_ERROR(rt.charge_each(v.text().size()));
  return rt.make_string(title_words(v.text()));
}

Result<Value> trim(Runtime& rt, const Value& value, Args& args) {
  SLUICE_ASSIGN_OR_RETURN(const auto bound, bind_args("trim", args, {"chars"}, 0));
  SLUICE_ASSIGN_OR_RETURN(const Value v, soft_string(rt, value));
  SLUICE_RETURN_IF_ERROR(rt.charge_copy(v.text().size()));
  if (bound[0].missing() || bound[0].is(Kind::kNone)) {
    return rt.make_string(strip(v.text(), std::nullopt, Side::kBoth), v.markup());
  }
  SLUICE_RETURN_IF_ERROR(check_string_arg("trim", bound[0]));
  SLUICE_RETURN_IF_ERROR(rt.charge_scan(bound[0].text().size()));
  return rt.make_string(strip(v.text(), bound[0].str(), Side::kBoth), v.markup());
}

Result<Value> replace_filter(Runtime& rt, const Value& value, Args& args) {
  SLUICE_ASSIGN_OR_RETURN(const auto bound, bind_args("replace", args, {"old", "new", "count"}, 2));
  SLUICE_ASSIGN_OR_RETURN(const TaggedText text, to_str(rt, value));
  SLUICE_ASSIGN_OR_RETURN(const TaggedText old, to_str(rt, bound[0]));
  SLUICE_ASSIGN_OR_RETURN(const TaggedText with, to_str(rt, bound[1]));
  std::int64_t limit = -1;
  if (!bound[2].missing() && !bound[2].is(Kind::kNone)) {
    SLUICE_ASSIGN_OR_RETURN(limit, int_arg("replace", bound[2]));
  }
  const std::int64_t count = count_replacements(text.view(), old.view(), limit);
  const std::uint64_t added = static_cast<std::uint64_t>(count) * with.size();
  SLUICE_RETURN_IF_ERROR(rt.check_text_size(text.size() + added));
  SLUICE_RETURN_IF_ERROR(rt.charge_scan(text.size() + added));
  return rt.make_string(replace(text, old.view(), with, limit));
}

Result<Value> string(Runtime& rt, const Value& value, Args& args) {
  SLUICE_RETURN_IF_ERROR(check_no_args("string", args));
  return soft_string(rt, value);
}

Result<Value> safe(Runtime& rt, const Value& value, Args& args) {
  SLUICE_RETURN_IF_ERROR(check_no_args("safe", args));
  SLUICE_ASSIGN_OR_RETURN(TaggedText text, to_str(rt, value));
  return rt.make_string(std::move(text), true);
}

Result<Value> escape_text(Runtime& rt, const Value& value, bool force) {
  if (value.markup() && !force) return value;
  SLUICE_ASSIGN_OR_RETURN(const TaggedText text, to_str(rt, value));
  SLUICE_RETURN_IF_ERROR(rt.check_text_size(text.size() * 5));
  SLUICE_RETURN_IF_ERROR(rt.charge_scan(text.size()));
  return rt.make_string(escape_html(text), true);
}

Result<Value> escape(Runtime& rt, const Value& value, Args& args) {
  SLUICE_RETURN_IF_ERROR(check_no_args("escape", args));
  return escape_text(rt, value, false);
}

Result<Value> forceescape(Runtime& rt, const Value& value, Args& args) {
  SLUICE_RETURN_IF_ERROR(check_no_args("forceescape", args));
  return escape_text(rt, value, true);
}

Result<Value> center(Runtime& rt, const Value& value, Args& args) {
  SLUICE_ASSIGN_OR_RETURN(const auto bound, bind_args("center", args, {"width"}, 0));
  SLUICE_ASSIGN_OR_RETURN(const Value v, soft_string(rt, value));
  Args width;
  width.positional.push_back(bound[0].missing() ? Value::integer(80) : bound[0]);
  return find_method(Kind::kString, "center")->call(rt, v, width);
}

Result<Value> indent(Runtime& rt, const Value& value, Args& args) {
  SLUICE_ASSIGN_OR_RETURN(const auto bound,
                          bind_args("indent", args, {"width", "first", "blank"}, 0));
  if (value.is(Kind::kUndefined)) return undefined_error(value);
  if (!value.is_string()) return bad_input("indent needs a text, not {}", type_name(value));
  TaggedText indention;
  if (!bound[0].missing() && bound[0].is_string()) {
    indention = bound[0].text();
  } else {
    SLUICE_ASSIGN_OR_RETURN(const std::int64_t width, int_arg("indent", bound[0], 4));
    if (width > kMaxWidth) return bad_input("an indent above {} (limit)", kMaxWidth);
    indention = TaggedText(
        std::string(static_cast<std::size_t>(std::max<std::int64_t>(width, 0)), ' '), false);
  }
  const bool first = !bound[1].missing() && truth(bound[1]);
  const bool blank = !bound[2].missing() && truth(bound[2]);
  // One more line end keeps a last empty line, as the original does.
  TaggedText text = value.text();
  text.append("\n", false);
  SLUICE_RETURN_IF_ERROR(rt.charge_scan(text.size()));
  SLUICE_RETURN_IF_ERROR(rt.check_string_list_size(count_spaces(text.view())));
  const std::vector<TaggedText> lines = split_lines(text, false);
  SLUICE_RETURN_IF_ERROR(rt.charge(lines.size() * 4));
  SLUICE_RETURN_IF_ERROR(rt.check_text_size(text.size() + lines.size() * indention.size()));
  SLUICE_RETURN_IF_ERROR(rt.charge_copy(text.size() + lines.size() * indention.size()));
  TaggedText out;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out.append("\n", false);
    if (i == 0 ? first : (blank || !lines[i].empty())) out.append(indention);
    out.append(lines[i]);
  }
  return rt.make_string(std::move(out), value.markup());
}

Result<Value> truncate(Runtime& rt, const Value& value, Args& args) {
  SLUICE_ASSIGN_OR_RETURN(const auto bound,
                          bind_args("truncate", args, {"length", "killwords", "end", "leeway"}, 0));
  SLUICE_ASSIGN_OR_RETURN(const std::int64_t length, int_arg("truncate", bound[0], 255));
  const bool kill_words = !bound[1].missing() && truth(bound[1]);
  TaggedText end("...", false);
  if (!bound[2].missing()) {
    SLUICE_RETURN_IF_ERROR(check_string_arg("truncate", bound[2]));
    end = bound[2].text();
  }
  std::int64_t leeway = 5;
  if (!bound[3].missing() && !bound[3].is(Kind::kNone)) {
    SLUICE_ASSIGN_OR_RETURN(leeway, int_arg("truncate", bound[3]));
  }
  const auto end_length = static_cast<std::int64_t>(text_length(end));
  if (length < end_length) return bad_input("expected length >= {}, got {}", end_length, length);
  if (leeway < 0) return bad_input("expected leeway >= 0, got {}", leeway);
  SLUICE_ASSIGN_OR_RETURN(const std::int64_t size, length_of(rt, value));
  if (size <= length || size - length <= leeway) return value;
  if (!value.is_string()) return bad_input("truncate needs a text, not {}", type_name(value));
  const std::string_view s = value.str();
  std::size_t cut = byte_offset(s, static_cast<std::size_t>(length - end_length));
  if (!kill_words) {
    const std::size_t space = s.substr(0, cut).rfind(' ');
    if (space != std::string_view::npos) cut = space;
  }
  TaggedText out = value.text().slice(0, cut);
  out.append(value.markup() && !(bound[2].missing() ? false : bound[2].markup()) ? escape_html(end)
                                                                                 : end);
  return rt.make_string(std::move(out), value.markup());
}

Result<Value> wordcount(Runtime& rt, const Value& value, Args& args) {
  SLUICE_RETURN_IF_ERROR(check_no_args("wordcount", args));
  SLUICE_ASSIGN_OR_RETURN(const TaggedText text, to_str(rt, value));
  SLUICE_RETURN_IF_ERROR(rt.charge_scan(text.size()));
  std::int64_t words = 0;
  bool in_word = false;
  char32_t cp = 0;
  for (std::size_t pos = 0; pos < text.size();) {
    pos += decode_utf8(text.view(), pos, &cp);
    if (is_word(cp) && !in_word) ++words;
    in_word = is_word(cp);
  }
  return Value::integer(words);
}

Result<Value> format(Runtime& rt, const Value& value, Args& args) {
  if (!args.positional.empty() && !args.keyword.empty()) {
    return bad_input("can't handle positional and keyword arguments at the same time");
  }
  SLUICE_ASSIGN_OR_RETURN(const Value v, soft_string(rt, value));
  if (args.keyword.empty()) return format_percent(rt, v, rt.make_tuple(args.positional));
  std::vector<DictNode::Item> items;
  for (const auto& [key, item] : args.keyword) items.emplace_back(rt.make_string(key), item);
  return format_percent(rt, v, Value(Kind::kDict, rt.make<DictNode>(std::move(items))));
}

// Percent-encodes all but letters, digits and _.-~ (and / where it is kept).
TaggedText quote_url(const TaggedText& text, bool keep_slash, bool plus_for_space) {
  TaggedText out;
  text.for_each_run([&](std::size_t begin, std::size_t end, bool content) {
    std::string piece;
    for (std::size_t i = begin; i < end; ++i) {
      const char c = text.view()[i];
      const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                         (c >= 'A' && c <= 'Z') || c == '_' || c == '.' || c == '-' || c == '~' ||
                         (c == '/' && keep_slash);
      if (plain) {
        piece.push_back(c);
      } else if (c == ' ' && plus_for_space) {
        piece.push_back('+');
      } else {
        piece += fmt::format("%{:02X}", static_cast<unsigned char>(c));
      }
    }
    out.append(piece, content);
  });
  return out;
}

Result<Value> urlencode(Runtime& rt, const Value& value, Args& args) {
  SLUICE_RETURN_IF_ERROR(check_no_args("urlencode", args));
  if (value.is_string() || !is_iterable(value)) {
    SLUICE_ASSIGN_OR_RETURN(const TaggedText text, to_str(rt, value));
    SLUICE_RETURN_IF_ERROR(rt.check_text_size(text.size() * 3));
    SLUICE_RETURN_IF_ERROR(rt.charge_each(text.size()));
    return rt.make_string(quote_url(text, true, false));
  }
  Value pairs = value;
  if (value.is(Kind::kDict)) {
    pairs = Value(Kind::kDictView, rt.make<DictViewNode>(DictView::kItems, value.ref<DictNode>()));
  }
  SLUICE_ASSIGN_OR_RETURN(const std::vector<Value> items, to_vector(rt, pairs));
  TaggedText out;
  for (const Value& item : items) {
    SLUICE_ASSIGN_OR_RETURN(const std::vector<Value> two, to_vector(rt, item));
    if (two.size() != 2) return bad_input("urlencode needs pairs of key and value");
    if (!out.empty()) out.append("&", false);
    for (int i = 0; i < 2; ++i) {
      SLUICE_ASSIGN_OR_RETURN(const TaggedText text, to_str(rt, two[static_cast<std::size_t>(i)]));
      SLUICE_RETURN_IF_ERROR(rt.check_text_size(out.size() + text.size() * 3));
      SLUICE_RETURN_IF_ERROR(rt.charge_each(text.size()));
      if (i == 1) out.append("=", false);
      out.append(quote_url(text, false, true));
    }
  }
  return rt.make_string(std::move(out));
}

Result<Value> xmlattr(Runtime& rt, const Value& value, Args& args) {
  SLUICE_ASSIGN_OR_RETURN(const auto bound, bind_args("xmlattr", args, {"autospace"}, 0));
  if (value.is(Kind::kUndefined)) return undefined_error(value);
  if (!value.is(Kind::kDict)) return bad_input("xmlattr needs a dict, not {}", type_name(value));
  TaggedText out;
  for (const auto& [key, item] : value.as<DictNode>().items) {
    if (item.is(Kind::kNone) || item.is(Kind::kUndefined)) continue;
    if (!key.is_string()) return bad_input("xmlattr needs text as keys");
    if (key.str().find_first_of(" \t\n\r\f\v/>=") != std::string_view::npos) {
      return bad_input("Invalid character in attribute name: '{}'", key.str());
    }
    SLUICE_ASSIGN_OR_RETURN(const Value name, escape_text(rt, key, false));
    SLUICE_ASSIGN_OR_RETURN(const Value text, escape_text(rt, item, false));
    SLUICE_RETURN_IF_ERROR(
        rt.check_text_size(out.size() + name.text().size() + text.text().size() + 8));
    if (!out.empty()) out.append(" ", false);
    out.append(name.text());
    out.append("=\"", false);
    out.append(text.text());
    out.append("\"", false);
  }
  const bool space = (bound[0].missing() || truth(bound[0])) && !out.empty();
  TaggedText spaced(space ? " " : "", false);
  spaced.append(out);
  return rt.make_string(std::move(spaced));
}

// json.dumps with the defaults that transformers gives its filter.
Result<Value> tojson(Runtime& rt, const Value& value, Args& args) {
  SLUICE_ASSIGN_OR_RETURN(
      const auto bound,
      bind_args("tojson", args, {"ensure_ascii", "indent", "separators", "sort_keys"}, 0));
  JsonStyle style;
  style.ensure_ascii = !bound[0].missing() && truth(bound[0]);
  if (!bound[1].missing() && !bound[1].is(Kind::kNone)) {
    style.indented = true;
    if (bound[1].is_string()) {
      style.indent = bound[1].str();
      style.content = bound[1].text().any_content();
    } else {
      SLUICE_ASSIGN_OR_RETURN(const std::int64_t width, int_arg("tojson", bound[1]));
      if (width > 1000) return bad_input("tojson() with an indent above 1000 (limit)");
      style.indent = std::string(static_cast<std::size_t>(std::max<std::int64_t>(width, 0)), ' ');
    }
  }
  style.item_separator = style.indented ? "," : ", ";
  style.key_separator = ": ";
  if (!bound[2].missing() && !bound[2].is(Kind::kNone)) {
    SLUICE_ASSIGN_OR_RETURN(const std::vector<Value> two, to_vector(rt, bound[2]));
    if (two.size() != 2 || !two[0].is_string() || !two[1].is_string()) {
      return bad_input("tojson(): separators must be two texts");
    }
    style.item_separator = two[0].str();
    style.key_separator = two[1].str();
    style.content = style.content || two[0].text().any_content() || two[1].text().any_content();
  }
  style.sort_keys = !bound[3].missing() && truth(bound[3]);
  SLUICE_ASSIGN_OR_RETURN(TaggedText text, to_json(rt, value, style));
  return rt.make_string(std::move(text));
}

template <int which>
Result<Value> unsupported(Runtime&, const Value&, Args&) {
  constexpr std::string_view kNames[] = {"pprint", "striptags", "urlize", "wordwrap"};
  return bad_input("the filter '{}' is not supported in chat templates", kNames[which]);
}

constexpr FilterInfo kTextFilters[] = {
    {"capitalize", cased<CaseChange::kCapitalize>},
    {"center", center},
    {"e", escape},
    {"escape", escape},
    {"forceescape", forceescape},
    {"format", format},
    {"indent", indent},
    {"lower", cased<CaseChange::kLower>},
    {"pprint", unsupported<0>},
    {"replace", replace_filter},
    {"safe", safe},
    {"string", string},
    {"striptags", unsupported<1>},
    {"title", title},
    {"tojson", tojson},
    {"trim", trim},
    {"truncate", truncate},
    {"upper", cased<CaseChange::kUpper>},
    {"urlencode", urlencode},
    {"urlize", unsupported<2>},
    {"wordcount", wordcount},
    {"wordwrap", unsupported<3>},
    {"xmlattr", xmlattr},
};

}  // namespace

FilterTable text_filters() { return {kTextFilters, std::size(kTextFilters)}; }

}  // namespace sluice::jinja

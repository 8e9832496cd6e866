// str() and repr() of values.
#include <charconv>
#include <cmath>

#include "src/text/jinja/interpreter_nodes.h"
#include "src/text/jinja/ops.h"
#include "src/text/jinja/unicode.h"

namespace sluice::jinja {
namespace {

void append_string_repr(const Value& v, TaggedText* out) {
  const std::string_view s = v.str();
  const bool content = v.text().any_content();
  const char quote =
      s.find('\'') != std::string_view::npos && s.find('"') == std::string_view::npos ? '"' : '\'';
  std::string text(v.markup() ? "Markup(" : "");
  text.push_back(quote);
  char32_t cp = 0;
  for (std::size_t pos = 0; pos < s.size();) {
    const std::size_t length = decode_utf8(s, pos, &cp);
    if (cp == '\\' || cp == static_cast<unsigned char>(quote)) {
      text.push_back('\\');
      text.push_back(s[pos]);
    } else if (cp == '\n') {
      text += "\\n";
    } else if (cp == '\r') {
      text += "\\r";
    } else if (cp == '\t') {
      text += "\\t";
    } else if ((char_class(cp) & kPrintable) != 0 || (cp >= 0xdc80 && cp <= 0xdcff)) {
      text.append(s.substr(pos, length));
    } else if (cp < 0x100) {
      text += fmt::format("\\x{:02x}", static_cast<unsigned>(cp));
    } else if (cp < 0x10000) {
      text += fmt::format("\\u{:04x}", static_cast<unsigned>(cp));
    } else {
      text += fmt::format("\\U{:08x}", static_cast<unsigned>(cp));
    }
    pos += length;
  }
  text.push_back(quote);
  if (v.markup()) text.push_back(')');
  out->append(text, content);
}

Status append_repr(Runtime& rt, const Value& v, TaggedText* out, int depth);

Status append_items_repr(Runtime& rt, const std::vector<Value>& items, TaggedText* out, int depth) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out->append(", ", false);
    SLUICE_RETURN_IF_ERROR(append_repr(rt, items[i], out, depth));
  }
  return {};
}

Status append_dict_items_repr(Runtime& rt, const DictNode& dict, std::string_view between,
                              TaggedText* out, int depth) {
  const bool tuples = between == ", ";
  for (std::size_t i = 0; i < dict.items.size(); ++i) {
    if (i > 0) out->append(", ", false);
    if (tuples) out->append("(", false);
    SLUICE_RETURN_IF_ERROR(append_repr(rt, dict.items[i].first, out, depth));
    out->append(between, false);
    SLUICE_RETURN_IF_ERROR(append_repr(rt, dict.items[i].second, out, depth));
    if (tuples) out->append(")", false);
  }
  return {};
}

Status append_view_repr(Runtime& rt, const DictViewNode& view, TaggedText* out, int depth) {
  if (view.which == DictView::kItems) {
    out->append("dict_items([", false);
    SLUICE_RETURN_IF_ERROR(append_dict_items_repr(rt, *view.dict, ", ", out, depth));
  } else {
    const bool keys = view.which == DictView::kKeys;
    out->append(keys ? "dict_keys([" : "dict_values([", false);
    bool first = true;
    for (const auto& item : view.dict->items) {
      if (!first) out->append(", ", false);
      first = false;
      SLUICE_RETURN_IF_ERROR(append_repr(rt, keys ? item.first : item.second, out, depth));
    }
  }
  out->append("])", false);
  return {};
}

Status append_namespace_repr(Runtime& rt, const NamespaceNode& space, TaggedText* out, int depth) {
  out->append("<Namespace {", false);
  bool first = true;
  for (const auto& [name, value] : space.attributes) {
    if (!first) out->append(", ", false);
    first = false;
    out->append("'" + name + "': ", false);
    SLUICE_RETURN_IF_ERROR(append_repr(rt, value, out, depth));
  }
  out->append("}>", false);
  return {};
}

Status append_repr(Runtime& rt, const Value& v, TaggedText* out, int depth) {
  SLUICE_RETURN_IF_ERROR(rt.charge(1));
  if (out->size() > rt.limits().text_bytes) return rt.check_text_size(out->size());
  if (depth > rt.limits().data_depth) {
    return bad_input("data with more than {} levels cannot be printed (limit)",
                     rt.limits().data_depth);
  }
  switch (v.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
      out->append("Undefined", false);
      return {};
    case Kind::kNone:
      out->append("None", v.content());
      return {};
    case Kind::kBool:
      out->append(v.as_bool() ? "True" : "False", v.content());
      return {};
    case Kind::kInt:
      out->append(fmt::format("{}", v.as_int()), v.content());
      return {};
    case Kind::kFloat:
      out->append(float_repr(v.as_float()), v.content());
      return {};
    case Kind::kString:
      SLUICE_RETURN_IF_ERROR(rt.check_text_size(out->size() + v.text().size() * 4));
      SLUICE_RETURN_IF_ERROR(rt.charge_scan(v.text().size()));
      append_string_repr(v, out);
      return {};
    case Kind::kList:
      out->append("[", false);
      SLUICE_RETURN_IF_ERROR(append_items_repr(rt, v.items(), out, depth + 1));
      out->append("]", false);
      return {};
    case Kind::kTuple:
      out->append("(", false);
      SLUICE_RETURN_IF_ERROR(append_items_repr(rt, v.items(), out, depth + 1));
      out->append(v.items().size() == 1 ? ",)" : ")", false);
      return {};
    case Kind::kDict:
      out->append("{", false);
      SLUICE_RETURN_IF_ERROR(append_dict_items_repr(rt, v.as<DictNode>(), ": ", out, depth + 1));
      out->append("}", false);
      return {};
    case Kind::kRange: {
      const RangeNode& range = v.as<RangeNode>();
      out->append(range.step == 1
                      ? fmt::format("range({}, {})", range.start, range.stop)
                      : fmt::format("range({}, {}, {})", range.start, range.stop, range.step),
                  false);
      return {};
    }
    case Kind::kDictView:
      return append_view_repr(rt, v.as<DictViewNode>(), out, depth + 1);
    case Kind::kNamespace:
      return append_namespace_repr(rt, v.as<NamespaceNode>(), out, depth + 1);
    case Kind::kMacro:
      out->append(macro_repr(v), false);
      return {};
    case Kind::kLoop: {
      SLUICE_ASSIGN_OR_RETURN(const std::int64_t length, length_of(rt, v));
      out->append(fmt::format("<LoopContext {}/{}>", v.as<LoopNode>().index0 + 1, length), false);
      return {};
    }
    case Kind::kIterator:
      return bad_input(
          "a generator is printed, which gives a memory address in Python; use |list or |join");
    case Kind::kMethod:
    case Kind::kFunction:
    case Kind::kCycler:
    case Kind::kJoiner:
      return bad_input(
          "a {} is printed, which gives a memory address in Python; are the () of a call missing?",
          type_name(v));
  }
  return bad_input("a value of unknown kind is printed");
}

}  // namespace

Error undefined_error(const Value& v) {
  return Error{ErrorCode::kBadInput, v.as<UndefinedNode>().message};
}

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  // Shortest digits in the form d.ddde+XX, then laid out as Python does.
  char buffer[64];
  const auto end =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific).ptr;
  const std::string_view scientific(buffer, static_cast<std::size_t>(end - buffer));
  const std::size_t e = scientific.find('e');
  std::string digits;
  for (const char c : scientific.substr(0, e)) {
    if (c >= '0' && c <= '9') digits.push_back(c);
  }
  int exponent = 0;
  const std::size_t sign_at = e + 1;
  std::from_chars(scientific.data() + sign_at + (scientific[sign_at] == '+' ? 1 : 0), end,
                  exponent);
  std::string out(std::signbit(value) ? "-" : "");
  if (exponent < -4 || exponent >= 16) {
    out += digits.substr(0, 1);
    if (digits.size() > 1) out += "." + digits.substr(1);
    out += fmt::format("e{}{:02}", exponent < 0 ? '-' : '+', std::abs(exponent));
  } else if (exponent < 0) {
    out += "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  } else {
    const auto whole = static_cast<std::size_t>(exponent) + 1;
    if (digits.size() < whole) digits.append(whole - digits.size(), '0');
    out += digits.substr(0, whole) + ".";
    out += digits.size() > whole ? digits.substr(whole) : "0";
  }
  return out;
}

Status append_str(Runtime& rt, const Value& v, TaggedText* out) {
  switch (v.kind()) {
    case Kind::kUndefined:
      return {};
    case Kind::kString:
      SLUICE_RETURN_IF_ERROR(rt.check_text_size(out->size() + v.text().size()));
      SLUICE_RETURN_IF_ERROR(rt.charge_copy(v.text().size()));
      out->append(v.text());
      return {};
    case Kind::kNone:
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
      return append_repr(rt, v, out, 0);
    default: {
      SLUICE_ASSIGN_OR_RETURN(const TaggedText repr, to_repr(rt, v));
      SLUICE_RETURN_IF_ERROR(rt.check_text_size(out->size() + repr.size()));
      out->append(repr);
      return {};
    }
  }
}

Result<TaggedText> to_str(Runtime& rt, const Value& v) {
  TaggedText out;
  SLUICE_RETURN_IF_ERROR(append_str(rt, v, &out));
  return out;
}

Result<TaggedText> to_repr(Runtime& rt, const Value& v) {
  TaggedText out;
  SLUICE_RETURN_IF_ERROR(append_repr(rt, v, &out, 0));
  out.merge_content();
  return out;
}

}  // namespace sluice::jinja

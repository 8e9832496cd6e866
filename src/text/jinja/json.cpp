// json.dumps() as Python writes it, byte for byte.
#include <algorithm>
#include <cmath>

#include "src/text/jinja/ops.h"
#include "src/text/jinja/unicode.h"

namespace sluice::jinja {
namespace {

class JsonWriter {
 public:
  JsonWriter(Runtime& rt, const JsonStyle& style)
      : rt_(rt), style_(style), content_(style.content) {}

  Status write(const Value& v, int depth) {
    SLUICE_RETURN_IF_ERROR(rt_.charge(1));
    if (out_.size() > rt_.limits().text_bytes) return rt_.check_text_size(out_.size());
    if (depth > rt_.limits().data_depth) {
      return bad_input("data with more than {} levels cannot be written as JSON (limit)",
                       rt_.limits().data_depth);
    }
    content_ = content_ || v.content();
    switch (v.kind()) {
      case Kind::kNone:
        out_ += "null";
        return {};
      case Kind::kBool:
        out_ += v.as_bool() ? "true" : "false";
        return {};
      case Kind::kInt:
        out_ += fmt::format("{}", v.as_int());
        return {};
      case Kind::kFloat:
        out_ += number(v.as_float());
        return {};
      case Kind::kString:
        content_ = content_ || v.text().any_content();
        return write_string(v.str());
      case Kind::kList:
      case Kind::kTuple:
        return write_list(v.items(), depth);
      case Kind::kDict:
        return write_dict(v.as<DictNode>(), depth);
      default:
        return bad_input("Object of type {} is not JSON serializable", type_name(v));
    }
  }

  TaggedText take() { return TaggedText(std::move(out_), content_); }

 private:
  static std::string number(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return float_repr(value);
  }

  Status write_string(std::string_view s) {
    SLUICE_RETURN_IF_ERROR(rt_.check_text_size(out_.size() + 2 * s.size() + 2));
    SLUICE_RETURN_IF_ERROR(rt_.charge_scan(s.size()));
    out_.push_back('"');
    char32_t cp = 0;
    for (std::size_t pos = 0; pos < s.size();) {
      const std::size_t length = decode_utf8(s, pos, &cp);
      if (cp == '"' || cp == '\\') {
        out_.push_back('\\');
        out_.push_back(s[pos]);
      } else if (cp < 0x20) {
        write_control(cp);
      } else if (style_.ensure_ascii && cp >= 0x7f) {
        write_escape(cp);
      } else {
        out_.append(s.substr(pos, length));
      }
      pos += length;
    }
    out_.push_back('"');
    return {};
  }

  void write_control(char32_t cp) {
    switch (cp) {
      case '\n':
        out_ += "\\n";
        break;
      case '\r':
        out_ += "\\r";
        break;
      case '\t':
        out_ += "\\t";
        break;
      case '\b':
        out_ += "\\b";
        break;
      case '\f':
        out_ += "\\f";
        break;
      default:
        out_ += fmt::format("\\u{:04x}", static_cast<unsigned>(cp));
    }
  }

  void write_escape(char32_t cp) {
    const auto value = static_cast<unsigned>(cp);
    if (value < 0x10000) {
      out_ += fmt::format("\\u{:04x}", value);
    } else {  // a surrogate pair
      const unsigned rest = value - 0x10000;
      out_ += fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + (rest >> 10), 0xdc00 + (rest & 0x3ff));
    }
  }

  Status line_break(int depth) {
    if (!style_.indented) return {};
    SLUICE_RETURN_IF_ERROR(rt_.check_text_size(
        out_.size() + style_.indent.size() * static_cast<std::size_t>(depth) + 1));
    out_.push_back('\n');
    for (int i = 0; i < depth; ++i) out_ += style_.indent;
    return rt_.charge_copy(style_.indent.size() * static_cast<std::size_t>(depth));
  }

  Status write_list(const std::vector<Value>& items, int depth) {
    if (items.empty()) {
      out_ += "[]";
      return {};
    }
    out_.push_back('[');
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      SLUICE_RETURN_IF_ERROR(line_break(depth + 1));
      SLUICE_RETURN_IF_ERROR(write(items[i], depth + 1));
    }
    SLUICE_RETURN_IF_ERROR(line_break(depth));
    out_.push_back(']');
    return {};
  }

  // Keys that are not strings are written as JSON writes them, in quotes.
  Status write_key(const Value& key) {
    content_ = content_ || key.content();
    switch (key.kind()) {
      case Kind::kString:
        content_ = content_ || key.text().any_content();
        return write_string(key.str());
      case Kind::kNone:
        return write_string("null");
      case Kind::kBool:
        return write_string(key.as_bool() ? "true" : "false");
      case Kind::kInt:
        return write_string(fmt::format("{}", key.as_int()));
      case Kind::kFloat:
        return write_string(number(key.as_float()));
      default:
        return bad_input("keys must be str, int, float, bool or None, not {}", type_name(key));
    }
  }

  Status write_dict(const DictNode& dict, int depth) {
    if (dict.items.empty()) {
      out_ += "{}";
      return {};
    }
    std::vector<Value> order;  // indices of the items, as values to be sorted
    std::vector<Value> keys;
    for (std::size_t i = 0; i < dict.items.size(); ++i) {
      order.push_back(Value::integer(static_cast<std::int64_t>(i)));
      if (style_.sort_keys) keys.push_back(dict.items[i].first);
    }
    if (style_.sort_keys) {
      SLUICE_ASSIGN_OR_RETURN(order, sort_by_keys(rt_, std::move(order), keys, false));
    }
    out_.push_back('{');
    bool first = true;
    for (const Value& index : order) {
      const auto& [key, value] = dict.items[static_cast<std::size_t>(index.as_int())];
      if (!first) out_ += style_.item_separator;
      first = false;
      SLUICE_RETURN_IF_ERROR(line_break(depth + 1));
      SLUICE_RETURN_IF_ERROR(write_key(key));
      out_ += style_.key_separator;
      SLUICE_RETURN_IF_ERROR(write(value, depth + 1));
    }
    SLUICE_RETURN_IF_ERROR(line_break(depth));
    out_.push_back('}');
    return {};
  }

  Runtime& rt_;
  const JsonStyle& style_;
  std::string out_;
  bool content_;
};

}  // namespace

Result<TaggedText> to_json(Runtime& rt, const Value& v, const JsonStyle& style) {
  JsonWriter writer(rt, style);
  SLUICE_RETURN_IF_ERROR(writer.write(v, 0));
  return writer.take();
}

}  // namespace sluice::jinja

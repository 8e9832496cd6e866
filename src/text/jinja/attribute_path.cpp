#include "src/text/jinja/attribute_path.h"

#include <charconv>

#include "src/text/jinja/ops.h"
#include "src/text/jinja/text_ops.h"

namespace sluice::jinja {

AttributePath::AttributePath(Runtime& rt, const Value& attribute) {
  if (attribute.missing() || attribute.is(Kind::kNone)) return;
  if (!attribute.is_string()) {
    parts_.push_back(attribute);
    return;
  }
  std::string_view rest = attribute.str();
  while (true) {
    const std::size_t dot = rest.find('.');
    const std::string_view part = rest.substr(0, dot);
    std::int64_t index = 0;
    const auto parsed = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool digits = part.find_first_not_of("0123456789") == std::string_view::npos;
    if (!part.empty() && digits && parsed.ec == std::errc()) {
      parts_.push_back(Value::integer(index));
    } else {
      parts_.push_back(rt.make_string(part));
    }
    if (dot == std::string_view::npos) return;
    rest = rest.substr(dot + 1);
  }
}

Result<Value> AttributePath::get(Runtime& rt, Value item, const Value& fallback) const {
  const bool has_fallback = !fallback.missing() && !fallback.is(Kind::kNone);
  for (const Value& part : parts_) {
    SLUICE_ASSIGN_OR_RETURN(item, get_item(rt, item, part));
    if (has_fallback && item.is(Kind::kUndefined)) item = fallback;
  }
  return item;
}

Value ignore_case(Runtime& rt, const Value& v) {
  if (!v.is_string()) return v;
  return rt.make_string(change_case(v.text(), CaseChange::kLower));
}

}  // namespace sluice::jinja

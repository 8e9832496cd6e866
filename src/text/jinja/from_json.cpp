#include "src/text/jinja/from_json.h"

namespace sluice::jinja {
namespace {

using Json = nlohmann::ordered_json;

Result<Value> convert(Runtime& rt, const Json& json, bool content, int depth) {
  if (depth > rt.limits().data_depth) {
    return bad_input("the conversation's JSON has more than {} levels (limit)",
                     rt.limits().data_depth);
  }
  SLUICE_RETURN_IF_ERROR(rt.charge(0));
  switch (json.type()) {
    case Json::value_t::null:
      return Value::none().with_content(content);
    case Json::value_t::boolean:
      return Value::boolean(*json.get_ptr<const bool*>(), content);
    case Json::value_t::number_integer:
      return Value::integer(*json.get_ptr<const std::int64_t*>(), content);
    case Json::value_t::number_unsigned: {
      const std::uint64_t value = *json.get_ptr<const std::uint64_t*>();
      if (value > INT64_MAX) return bad_input("the number {} in JSON is beyond 64 bits", value);
      return Value::integer(static_cast<std::int64_t>(value), content);
    }
    case Json::value_t::number_float:
      return Value::number(*json.get_ptr<const double*>(), content);
    case Json::value_t::string: {
      const std::string& text = *json.get_ptr<const std::string*>();
      SLUICE_RETURN_IF_ERROR(rt.check_text_size(text.size()));
      return rt.make_string(TaggedText(text, content));
    }
    case Json::value_t::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const Json& item : json) {
        SLUICE_ASSIGN_OR_RETURN(Value v, convert(rt, item, content, depth + 1));
        items.push_back(std::move(v));
      }
      return rt.make_list(std::move(items));
    }
    case Json::value_t::object: {
      std::vector<DictNode::Item> items;
      items.reserve(json.size());
      for (const auto& [key, item] : json.items()) {
        SLUICE_ASSIGN_OR_RETURN(Value v, convert(rt, item, content, depth + 1));
        items.emplace_back(rt.make_string(TaggedText(key, content)), std::move(v));
      }
      return Value(Kind::kDict, rt.make<DictNode>(std::move(items)));
    }
    default:
      return bad_input("binary data in JSON cannot be used in a template");
  }
}

}  // namespace

Result<Value> value_from_json(Runtime& rt, const nlohmann::ordered_json& json, bool content) {
  return convert(rt, json, content, 0);
}

}  // namespace sluice::jinja

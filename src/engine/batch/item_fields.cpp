#include "src/engine/batch/item_fields.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "src/engine/sampling/fields.h"
#include "src/text/bounded_json.h"

namespace sluice {
namespace {

constexpr std::size_t kMostStops = 64;
constexpr std::size_t kMostBiases = 10000;

struct Alias {
  std::string_view key;
  std::string_view field;
};
constexpr auto kAliases = std::to_array<Alias>({
    {"temperature", "temp"},
    {"repetition_penalty", "repeat-penalty"},
    {"typical_p", "typical"},
    {"mirostat_tau", "mirostat-ent"},
    {"mirostat_eta", "mirostat-lr"},
});

const SamplingField* find_field(const std::string& key) {
  std::string name = key;
  std::replace(name.begin(), name.end(), '_', '-');
  for (const Alias& alias : kAliases) {
    if (alias.key == key) name = alias.field;
  }
  for (const SamplingField& field : sampling_fields()) {
    if (field.name == name) return &field;
  }
  return nullptr;
}

Status read_seed(const std::string& key, const BatchJson& value, BatchItem& item) {
  if (value.is_number_unsigned()) {
    item.sampling.seed = value.get<std::uint64_t>();
  } else if (value.is_number_integer()) {  // OpenAI allows negative ones
    item.sampling.seed = static_cast<std::uint64_t>(value.get<std::int64_t>());
  } else {
    return wrong_value(key, value, "a whole number");
  }
  return {};
}

Status read_stop(const std::string& key, const BatchJson& value, BatchItem& item) {
  std::vector<std::string> stops;
  const BatchJson list = value.is_array() ? value : BatchJson::array({value});
  for (const BatchJson& each : list) {
    if (!each.is_string() || each.get_ref<const std::string&>().empty() ||
        list.size() > kMostStops) {
      return wrong_value(key, value,
                         fmt::format("a text, or a list of at most {}, none empty", kMostStops));
    }
    stops.push_back(each.get<std::string>());
  }
  item.stop = std::move(stops);
  return {};
}

// {"15043": -100}: -100 is what OpenAI bans tokens with, so it is a bias like any other here.
Status read_logit_bias(const std::string& key, const BatchJson& value, BatchItem& item) {
  constexpr std::string_view kExpected =
      "an object of token ids with numbers (null bans the token)";
  if (!value.is_object() || value.size() > kMostBiases) return wrong_value(key, value, kExpected);
  for (const auto& [text, amount] : value.items()) {
    LogitBias bias;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bias.token);
    const bool id = error == std::errc() && end == text.data() + text.size() && bias.token >= 0;
    if (!id || !(amount.is_number() || amount.is_null())) {
      return wrong_value(key, value, kExpected);
    }
    bias.bias = amount.is_null() ? -std::numeric_limits<double>::infinity() : amount.get<double>();
    item.sampling.logit_bias.push_back(bias);
  }
  return {};
}

// {"type": "text", "text": "..."} one after another.
Result<std::string> join_parts(const BatchJson& parts, std::size_t message) {
  std::string text;
  for (const BatchJson& part : parts) {
    const bool is_text = part.is_object() && part.contains("type") && part["type"] == "text" &&
                         part.contains("text") && part["text"].is_string();
    if (!is_text) {
      return bad_input("message {} has a part that is no text; only texts can be run", message);
    }
    text += part["text"].get_ref<const std::string&>();
  }
  return text;
}

}  // namespace

Error wrong_value(std::string_view key, const BatchJson& value, std::string_view expected) {
  constexpr std::size_t kLongest = 60;
  // Texts may hold broken UTF-8, which dump() would throw for.
  std::string found = value.dump(-1, ' ', true, BatchJson::error_handler_t::replace);
  if (found.size() > kLongest) found = found.substr(0, kLongest) + "...";
  return bad_input("'{}' is {}; expected {}", key, found, expected);
}

Result<std::string> read_text(const std::string& key, const BatchJson& value) {
  if (value.is_string()) return value.get<std::string>();
  return wrong_value(key, value, "a text");
}

Result<bool> read_bool(const std::string& key, const BatchJson& value) {
  if (value.is_boolean()) return value.get<bool>();
  return wrong_value(key, value, "true or false");
}

Result<std::int64_t> read_integer(const std::string& key, const BatchJson& value,
                                  std::int64_t lowest, std::int64_t highest) {
  if (value.is_number()) {
    const double real = value.get<double>();
    const bool inside = real >= static_cast<double>(lowest) && real <= static_cast<double>(highest);
    if (inside && std::trunc(real) == real) return static_cast<std::int64_t>(real);
  }
  return wrong_value(key, value, fmt::format("a whole number from {} to {}", lowest, highest));
}

Result<bool> read_setting(const std::string& key, const BatchJson& value, BatchItem& item) {
  if (const SamplingField* field = find_field(key)) {
    if (value.is_null()) return true;
    if (!value.is_number() || !field->accepts(value.get<double>())) {
      return wrong_value(key, value, field->expected());
    }
    field->set(item.sampling, value.get<double>());
    return true;
  }
  const bool known = key == "seed" || key == "max_tokens" || key == "stop" || key == "logit_bias" ||
                     key == "ignore_eos";
  if (!known || value.is_null()) return known;
  if (key == "seed") SLUICE_RETURN_IF_ERROR(read_seed(key, value, item));
  if (key == "stop") SLUICE_RETURN_IF_ERROR(read_stop(key, value, item));
  if (key == "logit_bias") SLUICE_RETURN_IF_ERROR(read_logit_bias(key, value, item));
  if (key == "ignore_eos") {
    SLUICE_ASSIGN_OR_RETURN(item.ignore_eos, read_bool(key, value));
  }
  if (key == "max_tokens") {
    const std::int64_t lowest = item.form == ItemForm::kNative ? -2 : 0;
    SLUICE_ASSIGN_OR_RETURN(item.max_tokens, read_integer(key, value, lowest, kMostTokens));
  }
  return true;
}

Status read_messages(const BatchJson& value, BatchItem& item) {
  if (!value.is_array() || value.empty()) {
    return wrong_value("messages", value, R"(a list as [{"role": "user", "content": "Hi"}])");
  }
  BatchJson messages = value;
  std::size_t number = 0;
  for (BatchJson& message : messages) {
    ++number;
    if (!message.is_object()) {
      return bad_input("message {} is {}; expected an object", number, json_type_name(message));
    }
    if (!message.contains("role") || !message["role"].is_string()) {
      return bad_input("message {} has no role that is a text", number);
    }
    const auto content = message.find("content");
    // A call of a tool is all that a message may be instead.
    const bool empty = content == message.end() || content->is_null();
    if (empty && (!message.contains("tool_calls") || message["tool_calls"].empty())) {
      return bad_input("message {} has no content; expected a text, or tool_calls", number);
    }
    if (!empty && !content->is_string() && !content->is_array()) {
      return bad_input("message {}: its content is {}; expected a text or a list of parts", number,
                       json_type_name(*content));
    }
    if (content != message.end() && content->is_array()) {
      SLUICE_ASSIGN_OR_RETURN(std::string text, join_parts(*content, number));
      *content = std::move(text);
    }
  }
  item.messages = std::move(messages);
  return {};
}

Status read_tools(const BatchJson& value, BatchItem& item) {
  if (value.is_null()) return {};
  const auto is_object = [](const BatchJson& each) { return each.is_object(); };
  if (!value.is_array() || !std::all_of(value.begin(), value.end(), is_object)) {
    return wrong_value("tools", value, "a list of tools");
  }
  if (!value.empty()) item.tools = value;
  return {};
}

Status read_ids(const std::string& key, const BatchJson& value, BatchItem& item) {
  std::vector<std::int32_t> ids;
  if (!value.is_array() || value.empty()) return wrong_value(key, value, "a list of token ids");
  for (const BatchJson& each : value) {
    SLUICE_ASSIGN_OR_RETURN(const std::int64_t id, read_integer(key, each, 0, kMostTokens));
    ids.push_back(static_cast<std::int32_t>(id));
  }
  item.prompt_ids = std::move(ids);
  return {};
}

}  // namespace sluice

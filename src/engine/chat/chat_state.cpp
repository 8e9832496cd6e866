#include "src/engine/chat/chat_state.h"

#include <cmath>
#include <limits>

#include "src/engine/sampling/fields.h"

namespace sluice {
namespace {

using nlohmann::ordered_json;

Error bad_field(std::string_view field, std::string_view expected) {
  return bad_input("the saved conversation's '{}' is not {}", field, expected);
}

ordered_json sampling_to_json(const SamplingParams& params) {
  ordered_json json;
  json["seed"] = params.seed;
  for (const SamplingField& field : sampling_fields()) {
    json[std::string(field.name)] = field.get(params);
  }
  json["dry-sequence-breakers"] = params.dry_sequence_breakers;
  ordered_json biases = ordered_json::array();
  for (const LogitBias& bias : params.logit_bias) {
    // JSON has no infinity: null bans the token.
    ordered_json value;
    if (std::isfinite(bias.bias)) value = bias.bias;
    biases.push_back({bias.token, value});
  }
  json["logit-bias"] = std::move(biases);
  return json;
}

Result<SamplingParams> sampling_from_json(const ordered_json& json) {
  SamplingParams params;
  if (!json.is_object()) return bad_field("sampling", "an object");
  if (!json.contains("seed") || !json["seed"].is_number_unsigned()) {
    return bad_field("seed", "a whole number from 0");
  }
  params.seed = json["seed"].get<std::uint64_t>();
  for (const SamplingField& field : sampling_fields()) {
    const std::string name(field.name);
    if (!json.contains(name)) continue;  // written before the setting existed
    if (!json[name].is_number() || !field.accepts(json[name].get<double>())) {
      return bad_field(name, field.expected());
    }
    field.set(params, json[name].get<double>());
  }
  if (json.contains("dry-sequence-breakers")) {
    const ordered_json& breakers = json["dry-sequence-breakers"];
    if (!breakers.is_array()) return bad_field("dry-sequence-breakers", "a list of texts");
    params.dry_sequence_breakers.clear();
    for (const ordered_json& each : breakers) {
      if (!each.is_string()) return bad_field("dry-sequence-breakers", "a list of texts");
      params.dry_sequence_breakers.push_back(each.get<std::string>());
    }
  }
  if (json.contains("logit-bias")) {
    const ordered_json& biases = json["logit-bias"];
    if (!biases.is_array()) return bad_field("logit-bias", "a list");
    for (const ordered_json& each : biases) {
      const bool pair = each.is_array() && each.size() == 2 && each[0].is_number_integer() &&
                        (each[1].is_null() || each[1].is_number());
      if (!pair) return bad_field("logit-bias", "a list of pairs of token id and number");
      const auto id = each[0].get<std::int64_t>();  // an unsigned one beyond it turns negative
      if (id < 0 || id > std::numeric_limits<std::int32_t>::max()) {
        return bad_field("logit-bias", "a list of pairs of token id and number");
      }
      params.logit_bias.push_back(
          {static_cast<std::int32_t>(id),
           each[1].is_null() ? -std::numeric_limits<double>::infinity() : each[1].get<double>()});
    }
  }
  SLUICE_RETURN_IF_ERROR(validate(params));
  return params;
}

Result<ChatMessage> message_from_json(const ordered_json& json) {
  ChatMessage message;
  if (!json.is_object()) return bad_field("messages", "a list of objects");
  const auto text = [&](const char* key, std::string& out, bool needed) {
    if (!json.contains(key)) return !needed;
    if (!json[key].is_string()) return false;
    out = json[key].get<std::string>();
    return true;
  };
  if (!text("role", message.role, true) ||
      (message.role != "user" && message.role != "assistant")) {
    return bad_field("role", "user or assistant");
  }
  if (!text("content", message.content, true)) return bad_field("content", "a text");
  if (!text("reasoning", message.reasoning, false)) return bad_field("reasoning", "a text");
  if (json.contains("interrupted")) {
    if (!json["interrupted"].is_boolean()) return bad_field("interrupted", "true or false");
    message.interrupted = json["interrupted"].get<bool>();
  }
  return message;
}

constexpr const char* kTimeFormat = "%Y-%m-%dT%H:%M:%S";

}  // namespace

ordered_json ChatState::sent_messages() const {
  ordered_json list = ordered_json::array();
  if (system) list.push_back({{"role", "system"}, {"content", *system}});
  for (std::size_t i = first_sent; i < messages.size(); ++i) {
    ordered_json message = {{"role", messages[i].role}, {"content", messages[i].content}};
    if (!messages[i].reasoning.empty()) message["reasoning_content"] = messages[i].reasoning;
    list.push_back(std::move(message));
  }
  return list;
}

std::vector<std::size_t> ChatState::turns() const {
  std::vector<std::size_t> indices;
  for (std::size_t i = first_sent; i < messages.size(); ++i) {
    if (messages[i].role == "user") indices.push_back(i);
  }
  return indices;
}

ordered_json to_json(const ChatMessage& message) {
  ordered_json json = {{"role", message.role}, {"content", message.content}};
  if (!message.reasoning.empty()) json["reasoning"] = message.reasoning;
  if (message.interrupted) json["interrupted"] = true;
  return json;
}

ordered_json to_json(const ChatState& state) {
  ordered_json json;
  if (state.system) json["system"] = *state.system;
  ordered_json messages = ordered_json::array();
  for (const ChatMessage& message : state.messages) messages.push_back(to_json(message));
  json["messages"] = std::move(messages);
  json["first_sent"] = state.first_sent;
  json["sampling"] = sampling_to_json(state.sampling);
  json["stream"] = state.stream;
  if (state.thinking) json["thinking"] = *state.thinking;
  char time[32] = "";
  std::strftime(time, sizeof time, kTimeFormat, &state.now);
  json["began"] = time;
  return json;
}

Result<ChatState> chat_state_from_json(const ordered_json& json) {
  ChatState state;
  if (!json.is_object()) return bad_field("conversation", "an object");
  if (json.contains("system")) {
    if (!json["system"].is_string()) return bad_field("system", "a text");
    state.system = json["system"].get<std::string>();
  }
  if (!json.contains("messages") || !json["messages"].is_array()) {
    return bad_field("messages", "a list");
  }
  for (const ordered_json& each : json["messages"]) {
    SLUICE_ASSIGN_OR_RETURN(ChatMessage message, message_from_json(each));
    const bool user_expected = state.messages.empty() || state.messages.back().role != "user";
    if ((message.role == "user") != user_expected) {
      return bad_field("messages", "user and assistant by turns");
    }
    state.messages.push_back(std::move(message));
  }
  const auto unsigned_at = [&](const char* key,
                               std::uint64_t most) -> std::optional<std::uint64_t> {
    if (!json.contains(key)) return 0;
    if (!json[key].is_number_unsigned()) return std::nullopt;
    const auto value = json[key].get<std::uint64_t>();
    return value <= most ? std::optional(value) : std::nullopt;
  };
  const auto first = unsigned_at("first_sent", state.messages.size());
  if (!first || *first % 2 != 0) return bad_field("first_sent", "the number of a user's message");
  state.first_sent = static_cast<std::size_t>(*first);
  const auto stream = unsigned_at("stream", std::numeric_limits<std::uint32_t>::max());
  if (!stream) return bad_field("stream", "a whole number below 2^32");
  state.stream = static_cast<std::uint32_t>(*stream);
  if (json.contains("thinking")) {
    if (!json["thinking"].is_boolean()) return bad_field("thinking", "true or false");
    state.thinking = json["thinking"].get<bool>();
  }
  SLUICE_ASSIGN_OR_RETURN(state.sampling,
                          sampling_from_json(json.value("sampling", ordered_json())));
  const bool has_time = json.contains("began") && json["began"].is_string();
  const std::string began = has_time ? json["began"].get<std::string>() : "";
  const char* end = ::strptime(began.c_str(), kTimeFormat, &state.now);
  if (end == nullptr || *end != '\0') return bad_field("began", "a time like 2026-01-02T03:04:05");
  state.now.tm_isdst = -1;
  return state;
}

std::tm local_time_now() {
  const std::time_t now = std::time(nullptr);
  std::tm local = {};
  ::localtime_r(&now, &local);
  return local;
}

}  // namespace sluice

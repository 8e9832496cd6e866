#include "src/engine/batch/openai_format.h"

#include <array>
#include <string_view>

#include "src/engine/batch/item_fields.h"

namespace sluice {
namespace {

constexpr std::int64_t kMostChatLogprobs = 20;

// What does not change the text of an answer in a file.
constexpr auto kWithoutEffect = std::to_array<std::string_view>(
    {"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key",
     "prompt_cache_retention", "prediction", "stream", "stream_options", "parallel_tool_calls"});

// What changes the answer and is not there, unless it has the one value that asks for nothing.
struct Unsupported {
  std::string_view key;
  const char* harmless;  // as JSON; nullptr: none but null
};
constexpr auto kUnsupported = std::to_array<Unsupported>({
    {"n", "1"},
    {"best_of", "1"},
    {"echo", "false"},
    {"suffix", "\"\""},
    {"response_format", R"({"type":"text"})"},
    {"modalities", R"(["text"])"},
    {"audio", nullptr},
    {"functions", "[]"},
    {"function_call", "\"none\""},
    {"reasoning_effort", nullptr},
    {"verbosity", nullptr},
    {"web_search_options", nullptr},
});

template <class List>
bool contains(const List& list, std::string_view key) {
  for (const std::string_view each : list) {
    if (each == key) return true;
  }
  return false;
}

Result<bool> read_unsupported(const std::string& key, const BatchJson& value) {
  for (const Unsupported& each : kUnsupported) {
    if (each.key != key) continue;
    const bool harmless =
        value.is_null() || (each.harmless != nullptr && value == BatchJson::parse(each.harmless));
    if (harmless) return true;
    if (each.harmless == nullptr) {
      return bad_input("'{}' is not supported: it would change the answer; leave it out", key);
    }
    return bad_input("'{}' is not supported but as {}; leave it out", key, each.harmless);
  }
  return false;
}

Status read_completion_prompt(const BatchJson& value, BatchItem& item) {
  item.as_is = true;
  // A list of several prompts would have several answers in one.
  const bool list_of_one = value.is_array() && value.size() == 1 && !value[0].is_number();
  const BatchJson& only = list_of_one ? value[0] : value;
  if (only.is_string()) {
    item.prompt = only.get<std::string>();
    return {};
  }
  if (only.is_array() && !only.empty() && only[0].is_number())
    return read_ids("prompt", only, item);
  return wrong_value("prompt", value, "one text or one list of token ids");
}

Status read_chat_logprobs(const std::string& key, const BatchJson& value, BatchItem& item) {
  if (key == "logprobs") {
    SLUICE_ASSIGN_OR_RETURN(item.want_logprobs, read_bool(key, value));
    return {};
  }
  SLUICE_ASSIGN_OR_RETURN(const std::int64_t n, read_integer(key, value, 0, kMostChatLogprobs));
  item.logprobs = static_cast<std::uint32_t>(n);
  return {};
}

Result<bool> read_chat_key(const std::string& key, const BatchJson& value, BatchItem& item) {
  if (key == "messages") {
    SLUICE_RETURN_IF_ERROR(read_messages(value, item));
  } else if (key == "tools") {
    SLUICE_RETURN_IF_ERROR(read_tools(value, item));
  } else if (key == "tool_choice") {
    if (value != "auto") {
      return bad_input("'tool_choice' is not supported but as \"auto\"; leave it out");
    }
  } else if (key == "max_completion_tokens") {
    SLUICE_ASSIGN_OR_RETURN(item.max_tokens, read_integer(key, value, 0, kMostTokens));
  } else if (key == "logprobs" || key == "top_logprobs") {
    SLUICE_RETURN_IF_ERROR(read_chat_logprobs(key, value, item));
  } else {
    return false;
  }
  return true;
}

Result<bool> read_completion_key(const std::string& key, const BatchJson& value, BatchItem& item) {
  if (key == "prompt") {
    SLUICE_RETURN_IF_ERROR(read_completion_prompt(value, item));
  } else if (key == "logprobs") {
    SLUICE_ASSIGN_OR_RETURN(const std::int64_t n, read_integer(key, value, 0, kMostChatLogprobs));
    item.logprobs = static_cast<std::uint32_t>(n);
    item.want_logprobs = true;
  } else {
    return false;
  }
  return true;
}

Status read_body_key(const std::string& key, const BatchJson& value, BatchItem& item) {
  if (contains(kWithoutEffect, key)) return {};
  SLUICE_ASSIGN_OR_RETURN(const bool harmless, read_unsupported(key, value));
  if (harmless || value.is_null()) return {};
  if (key == "model") {
    SLUICE_ASSIGN_OR_RETURN(item.model, read_text(key, value));
    return {};
  }
  SLUICE_ASSIGN_OR_RETURN(const bool own, item.form == ItemForm::kChat
                                              ? read_chat_key(key, value, item)
                                              : read_completion_key(key, value, item));
  if (own) return {};
  SLUICE_ASSIGN_OR_RETURN(const bool setting, read_setting(key, value, item));
  if (!setting) item.unknown_keys.push_back("body." + key);
  return {};
}

}  // namespace

bool looks_like_openai(const BatchJson& object) {
  return object.contains("custom_id") || (object.contains("url") && object.contains("body"));
}

Status read_openai(const BatchJson& object, BatchItem& item) {
  item.form = ItemForm::kChat;
  const auto text = [&](const char* key) -> std::string {
    const auto found = object.find(key);
    return found != object.end() && found->is_string() ? found->get<std::string>() : "";
  };
  const std::string url = text("url");
  if (url == "/v1/completions" || url == "/completions") item.form = ItemForm::kCompletions;
  if (!object.contains("custom_id")) return bad_input("there is no 'custom_id'");
  if (object["custom_id"].is_null()) {
    return wrong_value("custom_id", object["custom_id"], "a text that no other line has");
  }
  if (object.contains("method") && text("method") != "POST") {
    return wrong_value("method", object["method"], "\"POST\"");
  }
  if (item.form == ItemForm::kChat && url != "/v1/chat/completions" && url != "/chat/completions") {
    return bad_input("'url' is not /v1/chat/completions or /v1/completions, which can be run");
  }
  if (!object.contains("body") || !object["body"].is_object()) {
    return bad_input("there is no 'body' that is an object");
  }
  for (const auto& [key, value] : object.items()) {
    if (key != "custom_id" && key != "method" && key != "url" && key != "body") {
      item.unknown_keys.push_back(key);
    }
  }
  const BatchJson& body = object["body"];
  const auto given = [&body](const char* key) {
    return body.contains(key) && !body[key].is_null();
  };
  if (given("max_tokens") && given("max_completion_tokens") &&
      body["max_tokens"] != body["max_completion_tokens"]) {
    return bad_input("'max_tokens' is {} and 'max_completion_tokens' is {}; give one of them",
                     body["max_tokens"].dump(), body["max_completion_tokens"].dump());
  }
  for (const auto& [key, value] : body.items()) {
    SLUICE_RETURN_IF_ERROR(read_body_key(key, value, item));
  }
  if (item.form == ItemForm::kChat && !item.messages) return bad_input("there are no 'messages'");
  if (item.form == ItemForm::kCompletions && !item.prompt && !item.prompt_ids) {
    return bad_input("there is no 'prompt'");
  }
  if (item.logprobs && !item.want_logprobs) {
    return bad_input("'top_logprobs' needs 'logprobs': true");
  }
  return {};
}

}  // namespace sluice

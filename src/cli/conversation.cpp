#include "src/cli/conversation.h"

#include "src/text/bounded_json.h"
#include "src/text/utf8.h"

namespace sluice::cli {
namespace {

constexpr std::string_view kExpected = R"({"messages": [{"role": "user", "content": "Hi"}]})";

bool is_digit(char c) { return c >= '0' && c <= '9'; }

Status read_messages(const Json& messages, std::string_view name, Conversation& out) {
  if (!messages.is_array()) {
    return bad_input("'messages' in {} is {}, not a list of messages; expected {}", name,
                     json_type_name(messages), kExpected);
  }
  std::size_t index = 0;
  for (const Json& message : messages) {
    ++index;
    if (!message.is_object()) {
      return bad_input("message {} in {} is {}, not an object; expected {}", index, name,
                       json_type_name(message), kExpected);
    }
    const auto role = message.find("role");
    if (role == message.end()) {
      out.warnings.push_back(
          fmt::format("message {} has no role: the template finds it undefined", index));
    } else if (!role->is_string()) {
      return bad_input("the role of message {} in {} is {}, not a text", index, name,
                       json_type_name(*role));
    }
  }
  out.input.messages = messages;
  return {};
}

Result<std::string> read_token(const Json& value, std::string_view key, std::string_view name) {
  if (value.is_null()) return std::string();
  if (!value.is_string()) {
    return bad_input("'{}' in {} is {}, not a text", key, name, json_type_name(value));
  }
  return value.get<std::string>();
}

Status read_key(const std::string& key, const Json& value, std::string_view name,
                Conversation& out) {
  if (key == "messages") return read_messages(value, name, out);
  if (key == "tools") {
    if (!value.is_null() && !value.is_array()) {
      return bad_input("'tools' in {} is {}, not a list of tools (or null)", name,
                       json_type_name(value));
    }
    out.input.tools = value;
  } else if (key == "add_generation_prompt") {
    if (!value.is_boolean()) {
      return bad_input("'add_generation_prompt' in {} is {}, not true or false", name,
                       json_type_name(value));
    }
    out.input.add_generation_prompt = value.get<bool>();
  } else if (key == "bos_token") {
    SLUICE_ASSIGN_OR_RETURN(out.input.bos_token, read_token(value, key, name));
    out.has_bos_token = true;
  } else if (key == "eos_token") {
    SLUICE_ASSIGN_OR_RETURN(out.input.eos_token, read_token(value, key, name));
    out.has_eos_token = true;
  } else {
    out.input.extra[key] = value;
  }
  return {};
}

// `count` digits at text[at] as a number, or -1.
int number_at(std::string_view text, std::size_t at, std::size_t count) {
  int value = 0;
  for (const char c : text.substr(at, count)) {
    if (!is_digit(c)) return -1;
    value = 10 * value + (c - '0');
  }
  return value;
}

}  // namespace

Result<Conversation> parse_conversation(std::string_view json, std::string_view name) {
  Conversation out;
  std::string repaired;
  if (!is_valid_utf8(json)) {
    out.warnings.push_back(fmt::format("{} holds bytes that are not UTF-8: read as U+FFFD", name));
    repaired = replace_invalid_utf8(json);
    json = repaired;
  }
  SLUICE_ASSIGN_OR_RETURN(const Json parsed, parse_bounded_json(json, name, kExpected));
  if (parsed.is_array()) {
    SLUICE_RETURN_IF_ERROR(read_messages(parsed, name, out));
    return out;
  }
  if (!parsed.is_object())
    return bad_input("{} is {}; expected {}", name, json_type_name(parsed), kExpected);
  if (!parsed.contains("messages")) {
    return bad_input("{} has no 'messages'; expected {}", name, kExpected);
  }
  for (const auto& [key, value] : parsed.items()) {
    SLUICE_RETURN_IF_ERROR(read_key(key, value, name, out));
  }
  return out;
}

Result<std::tm> parse_clock(std::string_view text) {
  const auto refused = [&] {
    return make_error(ErrorCode::kUsage, "'{}' is not a time; expected one as 2026-01-02T03:04:05",
                      text);
  };
  constexpr std::string_view kForm = "dddd-dd-ddTdd:dd:dd";
  if (text.size() != kForm.size()) return refused();
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool right = kForm[i] == 'd'   ? is_digit(text[i])
                       : kForm[i] == 'T' ? text[i] == 'T' || text[i] == ' '
                                         : text[i] == kForm[i];
    if (!right) return refused();
  }
  std::tm time{};
  time.tm_year = number_at(text, 0, 4) - 1900;
  time.tm_mon = number_at(text, 5, 2) - 1;
  time.tm_mday = number_at(text, 8, 2);
  time.tm_hour = number_at(text, 11, 2);
  time.tm_min = number_at(text, 14, 2);
  time.tm_sec = number_at(text, 17, 2);
  if (time.tm_year < 1 - 1900) return refused();
  std::tm same = time;  // timegm moves the 31st of April to May and sets the day of the week
  timegm(&same);
  if (same.tm_mon != time.tm_mon || same.tm_mday != time.tm_mday || same.tm_hour != time.tm_hour ||
      same.tm_min != time.tm_min || same.tm_sec != time.tm_sec) {
    return refused();
  }
  return same;
}

}  // namespace sluice::cli

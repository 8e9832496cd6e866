#include "src/engine/batch/native_format.h"

#include "src/engine/batch/item_fields.h"

namespace sluice {
namespace {

constexpr std::int64_t kMostLogprobs = 1000;

Result<bool> read_own_key(const std::string& key, const BatchJson& value, BatchItem& item) {
  if (key == "id") return true;  // read already
  const bool known = key == "prompt" || key == "prompt_tokens" || key == "messages" ||
                     key == "tools" || key == "system" || key == "logprobs" || key == "tokens";
  if (!known || value.is_null()) return known;
  if (key == "prompt") {
    SLUICE_ASSIGN_OR_RETURN(item.prompt, read_text(key, value));
  } else if (key == "prompt_tokens") {
    SLUICE_RETURN_IF_ERROR(read_ids(key, value, item));
  } else if (key == "messages") {
    SLUICE_RETURN_IF_ERROR(read_messages(value, item));
  } else if (key == "tools") {
    SLUICE_RETURN_IF_ERROR(read_tools(value, item));
  } else if (key == "system") {
    SLUICE_ASSIGN_OR_RETURN(item.system, read_text(key, value));
  } else if (key == "tokens") {
    SLUICE_ASSIGN_OR_RETURN(item.want_tokens, read_bool(key, value));
  } else {
    SLUICE_ASSIGN_OR_RETURN(const std::int64_t count, read_integer(key, value, 0, kMostLogprobs));
    item.logprobs = static_cast<std::uint32_t>(count);
  }
  return true;
}

}  // namespace

Status read_native(const BatchJson& object, BatchItem& item) {
  for (const auto& [key, value] : object.items()) {
    SLUICE_ASSIGN_OR_RETURN(const bool own, read_own_key(key, value, item));
    if (own) continue;
    SLUICE_ASSIGN_OR_RETURN(const bool setting, read_setting(key, value, item));
    if (!setting) item.unknown_keys.push_back(key);
  }
  const int sources = (item.prompt ? 1 : 0) + (item.messages ? 1 : 0) + (item.prompt_ids ? 1 : 0);
  if (sources != 1) {
    return bad_input("{} of prompt, messages and prompt_tokens; expected exactly one",
                     sources == 0 ? "none" : "more than one");
  }
  if (item.system && !item.prompt) {
    return bad_input("'system' goes with a prompt; among messages it is one of the role system");
  }
  if (!item.tools.is_null() && !item.messages) return bad_input("'tools' go with messages");
  return {};
}

}  // namespace sluice

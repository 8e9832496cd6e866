// The input of a chat template as people write it down: a conversation in JSON, and a clock.
#pragma once

#include <ctime>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/cli/json.h"
#include "src/text/chat_template.h"

namespace sluice::cli {

struct Conversation {
  ChatInput input;  // without a clock
  // Whether the object has these keys, null included: then a model's own are not used.
  bool has_bos_token = false;
  bool has_eos_token = false;
  // One line each: what is probably not meant so.
  std::vector<std::string> warnings;
};

// `json` is an object {"messages": [{"role": ..., "content": ...}, ...], "tools": [...],
// "add_generation_prompt": true, "bos_token": "...", "eos_token": "...", ...}; all but messages may
// be absent, other keys are further variables of the template. A list stands for the messages
// alone. Bytes that are not UTF-8 are read as U+FFFD. Errors: kBadInput; `name` says in them where
// the text is from.
Result<Conversation> parse_conversation(std::string_view json, std::string_view name);

// "2026-01-02T03:04:05" (or with a space for the T); kUsage for anything else.
Result<std::tm> parse_clock(std::string_view text);

}  // namespace sluice::cli

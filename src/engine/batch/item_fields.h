// Reading the keys of an item that both formats have.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "src/base/status.h"
#include "src/engine/batch/item.h"

namespace sluice {

constexpr std::int64_t kMostTokens = 2147483647;  // of an answer; also the largest token id

// Sets what `key` says: sampling settings (under the names of the flags with "_" for "-", and their
// usual other names), seed, max_tokens, stop, logit_bias, ignore_eos. null leaves a setting as it
// is. false: not such a key. Errors: kBadInput with key, what was found and what was expected.
Result<bool> read_setting(const std::string& key, const BatchJson& value, BatchItem& item);

// A list of messages, each an object with a role. Contents that are lists of texts (OpenAI's
// {"type": "text", "text": ...}) become one text; other parts are refused.
Status read_messages(const BatchJson& value, BatchItem& item);
// A list of objects, or null.
Status read_tools(const BatchJson& value, BatchItem& item);
// Token ids.
Status read_ids(const std::string& key, const BatchJson& value, BatchItem& item);

Result<std::string> read_text(const std::string& key, const BatchJson& value);
Result<bool> read_bool(const std::string& key, const BatchJson& value);
Result<std::int64_t> read_integer(const std::string& key, const BatchJson& value,
                                  std::int64_t lowest, std::int64_t highest);

// "'n' is 3, expected 1"; long values are cut.
Error wrong_value(std::string_view key, const BatchJson& value, std::string_view expected);

}  // namespace sluice

// One prompt of a batch, as its line asks for it.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "src/engine/sampling/resolve.h"

namespace sluice {

using BatchJson = nlohmann::ordered_json;

// What a line looks like, and so its answer.
enum class ItemForm : std::uint8_t {
  kNative,       // ours; plain text too
  kChat,         // OpenAI's batch format, url /v1/chat/completions
  kCompletions,  // the same, url /v1/completions
};

struct BatchItem {
  // Not empty, valid UTF-8, unique in a batch: the id that the line has, else "line-N".
  std::string id;
  bool id_is_number = false;  // written as a JSON number, and so answered
  std::uint64_t line = 0;     // from 1
  ItemForm form = ItemForm::kNative;

  // Why the line can't be run; empty: it can. What follows may be incomplete otherwise.
  std::string error;
  bool unreadable = false;  // not even an object: there is no request to answer

  // Exactly one of these.
  std::optional<std::string> prompt;
  std::optional<BatchJson> messages;                    // a list of objects
  std::optional<std::vector<std::int32_t>> prompt_ids;  // used as they are

  BatchJson tools;                    // null: none
  std::optional<std::string> system;  // of a `prompt`
  bool as_is = false;                 // a `prompt` is continued, whatever chat template there is

  // What is absent is as the command says.
  SamplingOverrides sampling;              // the seed too
  std::optional<std::int64_t> max_tokens;  // -1: until it ends, -2: until the context is full
  std::optional<std::vector<std::string>> stop;
  std::optional<std::uint32_t> logprobs;  // alternatives for each token
  bool want_logprobs = false;             // (those of chosen tokens, whatever `logprobs` is)
  std::optional<bool> want_tokens;
  std::optional<bool> ignore_eos;

  // For one warning each: keys that mean nothing here, and the model that was asked for.
  std::vector<std::string> unknown_keys;
  std::string model;
};

}  // namespace sluice

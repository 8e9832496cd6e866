// A conversation as data: all that its continuation depends on beside the model.
#pragma once

#include <cstdint>
#include <ctime>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/engine/sampling/params.h"

namespace sluice {

struct ChatMessage {
  std::string role;  // "user" or "assistant"
  std::string content;
  std::string reasoning;     // of a thinking model, without its marks
  bool interrupted = false;  // the user stopped it, or the program was killed

  bool operator==(const ChatMessage&) const = default;
};

struct ChatState {
  std::optional<std::string> system;
  // In order, each user's message followed by its reply; texts are valid UTF-8.
  std::vector<ChatMessage> messages;
  // Messages before this one no longer go to the model (the context was full); none of them is
  // lost.
  std::size_t first_sent = 0;
  SamplingParams sampling;
  std::uint32_t stream = 0;      // of the random numbers; each retry takes another
  std::optional<bool> thinking;  // nothing: as the template wants
  // Local time at which the conversation began: what strftime_now sees, so that a prompt with
  // today's date does not change under a conversation.
  std::tm now = {};

  // What goes to the model, for a chat template.
  nlohmann::ordered_json sent_messages() const;
  // Indices of the user's messages that go to the model.
  std::vector<std::size_t> turns() const;
};

// For files; docs/FORMATS.md has the fields.
nlohmann::ordered_json to_json(const ChatState& state);
// Checks types, roles, order and ranges; kBadInput names the field.
Result<ChatState> chat_state_from_json(const nlohmann::ordered_json& json);

nlohmann::ordered_json to_json(const ChatMessage& message);

std::tm local_time_now();

}  // namespace sluice

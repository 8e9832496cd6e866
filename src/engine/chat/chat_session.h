// A conversation with a model: renders it, runs only what the cache does not hold, generates
// replies, and makes room when the context is full.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/engine/cached_sequence.h"
#include "src/engine/chat/chat_format.h"
#include "src/engine/chat/chat_state.h"
#include "src/engine/generate.h"

namespace sluice {

// What happens when the next reply has no room.
enum class OverflowPolicy : std::uint8_t {
  kDropOldest,  // whole oldest turns no longer go to the model; the system message stays
  kStop,        // the message is refused
};

struct ChatOptions {
  std::int64_t max_tokens = -1;  // of a reply; -1: until it ends
  OverflowPolicy overflow = OverflowPolicy::kDropOldest;
  std::vector<std::string> stop;     // beside those of the format
  Speculator* speculator = nullptr;  // must outlive the session; null: one token a pass
};

// Turns that no longer go to the model.
struct DroppedTurns {
  std::size_t turns = 0;
  std::size_t tokens_before = 0;  // of the prompt
  std::size_t tokens_after = 0;
  std::size_t tokens_to_run = 0;  // what it costs: tokens that must be run anew
};

struct ReplyEvents {
  // Text as it becomes certain. false: the reader is gone.
  std::function<bool(std::string_view)> on_reasoning;
  std::function<bool(std::string_view)> on_answer;
  std::function<void(std::size_t held, std::size_t total)> on_prefill;
  std::function<void(const DroppedTurns&)> on_dropped;
  const std::atomic<bool>* cancel = nullptr;
};

struct TurnCost {
  std::size_t message = 0;  // index of the user's message
  std::size_t tokens = 0;   // of the turn, reply included; of the first also the system message
};

class ChatSession {
 public:
  // `engine` and `format` must outlive the session.
  ChatSession(Engine& engine, const ChatFormat& format, ChatState state, ChatOptions options);

  const ChatState& state() const { return state_; }
  // With the unanswered message at its end, as files keep it and set_state() takes it.
  ChatState whole_state() const;
  // Replaces the conversation; the cache is kept, for what of it still fits.
  void set_state(ChatState state);
  void set_thinking(bool thinking) { state_.thinking = thinking; }
  void set_system(std::optional<std::string> system) { state_.system = std::move(system); }
  void set_sampling(const SamplingParams& sampling) { state_.sampling = sampling; }
  CachedSequence& sequence() { return sequence_; }
  const Engine& engine() const { return engine_; }
  const ChatFormat& format() const { return format_; }

  // Adds the user's message and its reply to the conversation. When interrupted in the middle of a
  // reply, what there is of it stays. On an error, and when interrupted before any text, the
  // conversation is as it was, and the message is in unanswered().
  Result<GenerateResult> say(std::string message, const ReplyEvents& events);
  // Another reply to the last message (or to the unanswered one). kUsage if there is none.
  Result<GenerateResult> retry(const ReplyEvents& events);
  // Takes back the last message and its reply, and returns the message; nothing: there was none.
  std::optional<std::string> undo();
  const std::optional<std::string>& unanswered() const { return unanswered_; }

  // Tokens of the context that each turn takes that still goes to the model.
  Result<std::vector<TurnCost>> costs() const;
  // Tokens of the conversation as the model sees it, with the beginning of a reply.
  Result<std::size_t> prompt_tokens() const;

 private:
  Result<GenerateResult> reply(const ReplyEvents& events);
  Result<std::vector<std::int32_t>> prompt(bool add_generation_prompt,
                                           std::string* end = nullptr) const;
  // Drops turns until the prompt leaves room for a reply. `end` as in ChatFormat::encode().
  Result<std::vector<std::int32_t>> prompt_with_room(const ReplyEvents& events, std::string& end);

  Engine& engine_;
  const ChatFormat& format_;
  ChatState state_;
  ChatOptions options_;
  CachedSequence sequence_;
  std::optional<std::string> unanswered_;
};

}  // namespace sluice

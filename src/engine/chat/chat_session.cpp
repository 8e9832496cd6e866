#include "src/engine/chat/chat_session.h"

#include <algorithm>
#include <utility>

#include "src/engine/chat/reasoning.h"
#include "src/text/utf8.h"

namespace sluice {
namespace {

// Tokens that a reply should find free.
std::size_t room_for_reply(std::size_t context, std::int64_t max_tokens) {
  const std::size_t usual = std::min<std::size_t>(512, context / 8);
  if (max_tokens < 0) return usual;
  return std::min(static_cast<std::size_t>(max_tokens), context / 2);
}

std::size_t common_prefix(std::span<const std::int32_t> a, std::span<const std::int32_t> b) {
  return static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first -
                                  a.begin());
}

}  // namespace

ChatSession::ChatSession(Engine& engine, const ChatFormat& format, ChatState state,
                         ChatOptions options)
    : engine_(engine),
      format_(format),
      state_(std::move(state)),
      options_(std::move(options)),
      sequence_(engine) {
  set_state(std::move(state_));
}

// A message without a reply can only be the last one: where the program was killed before the first
// sentence.
void ChatSession::set_state(ChatState state) {
  state_ = std::move(state);
  unanswered_.reset();
  if (!state_.messages.empty() && state_.messages.back().role == "user") {
    unanswered_ = std::move(state_.messages.back().content);
    state_.messages.pop_back();
    state_.first_sent = std::min(state_.first_sent, state_.messages.size());
  }
}

ChatState ChatSession::whole_state() const {
  ChatState whole = state_;
  if (unanswered_) whole.messages.push_back({"user", *unanswered_, "", false});
  return whole;
}

Result<GenerateResult> ChatSession::say(std::string message, const ReplyEvents& events) {
  message = replace_invalid_utf8(message);
  const std::size_t first_sent = state_.first_sent;
  state_.messages.push_back({"user", message, "", false});
  unanswered_.reset();
  Result<GenerateResult> result = reply(events);
  if (state_.messages.back().role == "user") {  // no reply
    state_.messages.pop_back();
    unanswered_ = std::move(message);
    if (!result.ok()) state_.first_sent = first_sent;
  }
  return result;
}

Result<GenerateResult> ChatSession::retry(const ReplyEvents& events) {
  ++state_.stream;
  if (unanswered_) return say(*std::exchange(unanswered_, std::nullopt), events);
  if (state_.messages.empty()) {
    return make_error(ErrorCode::kUsage, "there is no message yet whose reply could be retried");
  }
  const ChatMessage old_reply = state_.messages.back();
  state_.messages.pop_back();
  std::string message = std::move(state_.messages.back().content);
  state_.messages.pop_back();
  state_.first_sent = std::min(state_.first_sent, state_.messages.size());
  Result<GenerateResult> result = say(message, events);
  if (unanswered_) {  // nothing better came: the old reply stays
    state_.messages.push_back({"user", *std::exchange(unanswered_, std::nullopt), "", false});
    state_.messages.push_back(old_reply);
  }
  return result;
}

std::optional<std::string> ChatSession::undo() {
  if (unanswered_) return std::exchange(unanswered_, std::nullopt);
  if (state_.messages.size() < 2) return std::nullopt;
  state_.messages.pop_back();
  std::string message = std::move(state_.messages.back().content);
  state_.messages.pop_back();
  state_.first_sent = std::min(state_.first_sent, state_.messages.size());
  return message;
}

Result<std::vector<std::int32_t>> ChatSession::prompt(bool add_generation_prompt,
                                                      std::string* end) const {
  return format_.encode(state_.sent_messages(),
                        {add_generation_prompt, state_.thinking, state_.now}, end);
}

Result<std::size_t> ChatSession::prompt_tokens() const {
  if (state_.messages.size() == state_.first_sent && !state_.system) return std::size_t{0};
  SLUICE_ASSIGN_OR_RETURN(const std::vector<std::int32_t> ids, prompt(false));
  return ids.size();
}

Result<std::vector<std::int32_t>> ChatSession::prompt_with_room(const ReplyEvents& events,
                                                                std::string& end) {
  const std::size_t context = engine_.context();
  const std::size_t room = room_for_reply(context, options_.max_tokens);
  SLUICE_ASSIGN_OR_RETURN(std::vector<std::int32_t> ids, prompt(true, &end));
  if (ids.size() + room <= context) return ids;
  const std::vector<std::size_t> turns = state_.turns();
  if (options_.overflow == OverflowPolicy::kStop && turns.size() > 1) {
    return make_error(
        ErrorCode::kFailed,
        "the context is full: this conversation has {} tokens, and {} of {} should be "
        "free for the reply; undo turns, use a larger -c, or --overflow drop-oldest",
        ids.size(), room, context);
  }
  DroppedTurns dropped;
  dropped.tokens_before = ids.size();
  // Further than the next reply needs, or every turn from here on would have to read everything
  // anew.
  const std::size_t target = context - std::max(room, context / 4);
  while (ids.size() > target && dropped.turns + 1 < turns.size()) {
    ++dropped.turns;
    state_.first_sent = turns[dropped.turns];
    SLUICE_ASSIGN_OR_RETURN(ids, prompt(true, &end));
  }
  if (ids.size() + 1 > context) {
    return make_error(ErrorCode::kFailed,
                      "the message is too long: with what must stay it has {} tokens, the context "
                      "holds {}; {}",
                      ids.size(), context, engine_.advice_for_context(ids.size() + room));
  }
  if (dropped.turns > 0 && events.on_dropped) {
    dropped.tokens_after = ids.size();
    dropped.tokens_to_run = ids.size() - common_prefix(ids, sequence_.tokens());
    events.on_dropped(dropped);
  }
  return ids;
}

Result<GenerateResult> ChatSession::reply(const ReplyEvents& events) {
  GenerateRequest request;
  std::string prompt_end;
  SLUICE_ASSIGN_OR_RETURN(request.prompt, prompt_with_room(events, prompt_end));
  request.max_tokens = options_.max_tokens;
  request.sampling = state_.sampling;
  request.stream = state_.stream;
  request.stop.assign(format_.stops().begin(), format_.stops().end());
  request.stop.insert(request.stop.end(), options_.stop.begin(), options_.stop.end());
  request.speculator = options_.speculator;
  request.cancel = events.cancel;
  request.on_prefill = events.on_prefill;

  ChatMessage message = {"assistant", "", "", false};
  ReasoningSplitter splitter(prompt_end);
  bool delivered = true;
  const auto deliver = [&](const ReasoningSplitter::Piece& piece) {
    message.reasoning += piece.reasoning;
    message.content += piece.answer;
    bool wanted = true;
    if (!piece.reasoning.empty() && events.on_reasoning) {
      wanted = events.on_reasoning(piece.reasoning);
    }
    if (!piece.answer.empty() && events.on_answer) {
      wanted = events.on_answer(piece.answer) && wanted;
    }
    delivered = delivered && wanted;
    return wanted;
  };
  request.on_text = [&](std::string_view text) { return deliver(splitter.push(text)); };
  Result<GenerateResult> result = generate(sequence_, request);
  deliver(splitter.finish());
  const bool interrupted =
      !delivered || (result.ok() ? result->finish == FinishReason::kInterrupted
                                 : result.error().code == ErrorCode::kInterrupted);
  if (!result.ok() && !interrupted) return result;
  const bool nothing = message.content.empty() && message.reasoning.empty();
  if (interrupted && nothing) {
    if (result.ok()) return result;
    GenerateResult none;
    none.finish = FinishReason::kInterrupted;
    none.prompt_tokens = static_cast<std::uint32_t>(request.prompt.size());
    return none;
  }
  message.content = replace_invalid_utf8(message.content);
  message.reasoning = replace_invalid_utf8(message.reasoning);
  message.interrupted = interrupted;
  state_.messages.push_back(std::move(message));
  if (!delivered) return failed("the output can no longer be written");
  return result;
}

Result<std::vector<TurnCost>> ChatSession::costs() const {
  std::vector<TurnCost> costs;
  const std::vector<std::size_t> turns = state_.turns();
  if (turns.empty()) return costs;
  // What the conversation loses without its oldest turn, again and again. (What one more turn adds
  // at the end would be another number: templates take the reasoning out of earlier turns.)
  ChatState part = state_;
  const auto tokens = [&]() -> Result<std::size_t> {
    SLUICE_ASSIGN_OR_RETURN(
        const std::vector<std::int32_t> ids,
        format_.encode(part.sent_messages(), {false, state_.thinking, state_.now}));
    return ids.size();
  };
  SLUICE_ASSIGN_OR_RETURN(std::size_t rest, tokens());
  for (std::size_t i = 0; i < turns.size(); ++i) {
    std::size_t after = 0;
    if (i + 1 < turns.size()) {
      part.first_sent = turns[i + 1];
      SLUICE_ASSIGN_OR_RETURN(after, tokens());
    }
    costs.push_back({turns[i], rest - std::min(after, rest)});
    rest = after;
  }
  // The system message stands in front of the first turn; so far it counts with the last.
  part.system.reset();
  const Result<std::size_t> without_system = tokens();
  if (without_system.ok()) {
    const std::size_t system = costs.back().tokens - std::min(*without_system, costs.back().tokens);
    costs.back().tokens -= system;
    costs.front().tokens += system;
  }
  return costs;
}

}  // namespace sluice

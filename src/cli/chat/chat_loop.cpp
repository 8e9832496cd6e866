#include "src/cli/chat/chat_loop.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>

#include "src/cli/chat/chat_commands.h"
#include "src/cli/interrupt.h"
#include "src/cli/machine_ceilings.h"
#include "src/cli/speculation_flags.h"
#include "src/cli/terminal/history_file.h"
#include "src/cli/terminal/terminal_guard.h"

namespace sluice::cli {
namespace {

LineEditorOptions editor_options(Console& console, bool colour) {
  LineEditorOptions options;
  options.prompt_codes = colour ? "1;32" : "1";
  options.history_path = default_history_path();
  options.completer = [words = chat_command_words()](std::string_view line) {
    return complete_line(line, words);
  };
  options.input = STDIN_FILENO;
  options.output = stderr;
  options.cancel = &console.cancel();
  return options;
}

}  // namespace

ChatLoop::ChatLoop(Console& console, Progress& progress, Engine& engine, ChatSession& session,
                   MarkdownOptions markdown, ChatLoopOptions options)
    : console_(console),
      progress_(progress),
      engine_(engine),
      session_(session),
      printer_(console, progress, markdown),
      options_(std::move(options)),
      editor_(LineEditor::create(editor_options(console, markdown.colour))) {
  printer_.set_reasoning(options_.reasoning);
}

Status ChatLoop::run() {
  const bool terminal = isatty(STDIN_FILENO) != 0;
  while (!leaving_ && ending_.ok()) {
    if (prefill_.empty()) replacing_ = false;
    const ReadResult read = editor_->read(prefill_);
    prefill_.clear();
    if (const std::string problem = editor_->take_history_problem(); !problem.empty()) {
      console_.warning("messages are not kept for the arrow keys of later chats: " + problem);
    }
    if (read.kind == ReadResult::Kind::kEnd) {
      const bool closed = terminal && isatty(STDIN_FILENO) == 0;  // or the signal is still to come
      if (closed || termination_requested()) {
        return make_error(ErrorCode::kInterrupted, "interrupted");
      }
      break;
    }
    if (read.kind == ReadResult::Kind::kError) return failed("reading your message: {}", read.text);
    if (read.kind == ReadResult::Kind::kInterrupted) {
      // A signal: on a terminal without line editing, or between a reply and the next prompt.
      const bool person = isatty(STDIN_FILENO) != 0 && !termination_requested();
      const bool twice = interrupted_before_ && read.text.empty();
      if (twice || (console_.cancel() && !person)) {
        return make_error(ErrorCode::kInterrupted, "interrupted");
      }
      clear_interrupt();
      if (replacing_) console_.info("your message stays as it was");
      interrupted_before_ = read.text.empty();
      if (interrupted_before_) console_.info("Ctrl-C once more, or Ctrl-D, leaves");
      continue;
    }
    interrupted_before_ = false;
    handle(read);
  }
  // A person has seen the messages; a script sees the exit code.
  if (ending_.ok() && failures_ > 0 && isatty(STDIN_FILENO) == 0) {
    return failed("{} of the lines failed", failures_);
  }
  return ending_;
}

void ChatLoop::handle(const ReadResult& read) {
  if (read.replaced > 0) {
    console_.warning(
        fmt::format("{} bytes of your message were not UTF-8 and became U+FFFD", read.replaced));
  }
  const bool blank = read.text.find_first_not_of(" \t\r\n") == std::string::npos;
  if (blank && attached_.empty()) return;
  const bool slash = !read.literal && read.text.starts_with('/');
  if (slash && !read.text.starts_with("//")) {
    const Status status = run_chat_command(*this, read.text);
    if (!status.ok()) {
      console_.error(status.error().message);
      ++failures_;
    }
    return;
  }
  send(slash ? read.text.substr(1) : read.text);
}

void ChatLoop::send(std::string message) {
  // Kept until the message is really part of the conversation.
  const std::string attached = std::exchange(attached_, "");
  message = attached + message;
  const bool again = std::exchange(replacing_, false) && !session_.unanswered();
  if (ChatJournal* journal = this->journal()) journal_result(journal->message(message, again));
  if (again) (void)session_.undo();
  answer([&](const ReplyEvents& events) { return session_.say(message, events); });
}

void ChatLoop::retry() {
  if (ChatJournal* journal = this->journal()) {
    const auto& unanswered = session_.unanswered();
    const auto& messages = session_.state().messages;
    if (unanswered) {
      journal_result(journal->message(*unanswered));
    } else {
      journal_result(journal->message(messages[messages.size() - 2].content, true));
    }
  }
  answer([&](const ReplyEvents& events) { return session_.retry(events); });
}

void ChatLoop::answer(const std::function<Result<GenerateResult>(const ReplyEvents&)>& generate) {
  ReplyEvents events;
  events.cancel = &console_.cancel();
  events.on_reasoning = [this](std::string_view text) {
    if (journal_) journal_result(journal_->reasoning(text));
    return printer_.reasoning(text);
  };
  events.on_answer = [this](std::string_view text) {
    if (journal_) journal_result(journal_->answer(text));
    return printer_.answer(text);
  };
  const auto began = std::chrono::steady_clock::now();
  events.on_prefill = [&](std::size_t held, std::size_t total) {
    if (held >= total) progress_.clear();
    if (held >= total || !progress_.due()) return;
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - began;
    progress_.update(static_cast<double>(held) / static_cast<double>(total),
                     fmt::format("{} of {} tokens, {:.0f} s", held, total, seconds.count()));
  };
  events.on_dropped = [this](const DroppedTurns& dropped) {
    const bool one = dropped.turns == 1;
    console_.info(
        fmt::format("the context is full: the {} no longer {} to the model ({} tokens){}",
                    one ? "oldest turn" : fmt::format("{} oldest turns", dropped.turns),
                    one ? "goes" : "go", dropped.tokens_before - dropped.tokens_after,
                    dropped.tokens_to_run == 0
                        ? ""
                        : fmt::format("; {} tokens must be read anew", dropped.tokens_to_run)));
  };
  // What is typed meanwhile belongs to the next prompt, not into the reply.
  std::optional<TerminalGuard> quiet;
  if (editor_->can_edit()) {
    quiet.emplace(STDIN_FILENO, STDERR_FILENO, TerminalGuard::Echo::kOff);
  }
  printer_.begin();
  progress_.begin("reading");
  const Result<GenerateResult> result = generate(events);
  progress_.clear();
  printer_.end();
  after_reply(result);
}

void ChatLoop::after_reply(const Result<GenerateResult>& result) {
  // Also a reply that nobody reads any more is kept.
  if (journal_ && !session_.unanswered() && !session_.state().messages.empty()) {
    journal_result(journal_->reply(session_.state()));
  }
  if (!printer_.status().ok()) {
    ending_ = printer_.status();
    return;
  }
  if (!result.ok()) {
    console_.error(result.error().message);
    ++failures_;
    if (isatty(STDIN_FILENO) != 0 && session_.unanswered()) {
      console_.info("your message is kept: /edit or /retry");
    }
    return;
  }
  last_result_ = *result;
  const std::vector<ChatMessage>& messages = session_.state().messages;
  const bool only_thought = !session_.unanswered() && !messages.empty() &&
                            messages.back().content.empty() && !messages.back().reasoning.empty();
  const char* const early = only_thought ? ", before any answer: it was still thinking" : "";
  switch (result->finish) {
    case FinishReason::kInterrupted:
      if (isatty(STDIN_FILENO) == 0 || termination_requested()) {
        ending_ = make_error(ErrorCode::kInterrupted, "interrupted");
        return;
      }
      clear_interrupt();
      interrupted_before_ = true;  // "twice" counts this one
      console_.info(session_.unanswered()
                        ? "stopped before any text; /retry sends your message again"
                        : "stopped; what there is of the reply stays");
      break;
    case FinishReason::kLength:
      console_.info(fmt::format("cut after {} tokens (-n){}", result->tokens.size(), early));
      break;
    case FinishReason::kContext:
      console_.info(
          fmt::format("cut: the context of {} tokens is full (-c){}. The next message makes room",
                      engine_.context(), early));
      break;
    case FinishReason::kStop:
      if (only_thought) console_.info("the model ended its reply without an answer");
      break;
  }
  if (options_.show_stats) console_.note(status_line());
}

void ChatLoop::adopt(SavedChat saved) {
  const std::size_t messages = saved.state.messages.size();
  session_.set_state(std::move(saved.state));
  std::string cache = "an autosave holds text only; it will be read anew with your next message";
  if (saved.session) {
    const std::string reason = restore_cache(*saved.session, session_.sequence());
    cache = reason.empty()
                ? fmt::format("{} tokens are in the cache", session_.sequence().tokens().size())
                : fmt::format("the cache can't be used ({}); it will be read anew", reason);
  }
  console_.info(fmt::format("resumed: {} messages; {}", messages, cache));
  const ChatState& state = session_.state();
  if (state.messages.size() >= 2) {
    const ChatMessage& last = state.messages.back();
    console_.info("you: " + beginning(state.messages[state.messages.size() - 2].content, 200));
    const bool answered = !last.content.empty() || last.reasoning.empty();
    console_.info(answered ? "reply: " + ending(last.content, 400)
                           : "no answer yet, only thoughts: " + ending(last.reasoning, 400));
    if (last.interrupted) console_.info("that reply was cut short; /retry makes another");
  }
  if (session_.unanswered()) {
    console_.info("not answered yet: " + beginning(*session_.unanswered(), 200) +
                  " (/retry sends it)");
  }
}

void ChatLoop::changed() {
  if (journal_) journal_result(journal_->state(session_.whole_state()));
}

ChatJournal* ChatLoop::journal() {
  if (journal_) return &*journal_;
  if (options_.autosave.empty()) return nullptr;
  Result<ChatJournal> created =
      ChatJournal::create(options_.autosave, engine_.file().name(), session_.whole_state());
  if (!created.ok()) {
    journal_result(created.error());
    return nullptr;
  }
  journal_.emplace(std::move(*created));
  return &*journal_;
}

void ChatLoop::journal_result(const Status& status) {
  if (status.ok()) return;
  console_.warning("no autosave from here on: " + status.error().message);
  journal_.reset();
  options_.autosave.clear();
}

std::string ChatLoop::status_line() {
  const Result<std::size_t> used = session_.prompt_tokens();
  std::string text = "  ";
  if (last_result_) {
    const Timings& timings = last_result_->timings;
    if (bandwidth_ == 0 && !engine_.info().on_gpu) {
      bandwidth_ = measure_read_bandwidth(options_.threads, console_.cancel());
    }
    text += fmt::format("{:.1f} tokens/s", timings.tokens_per_s);
    if (bandwidth_ > 0) {
      text += fmt::format(", {:.0f}% of {:.1f} GB/s", 100 * timings.decode_bandwidth / bandwidth_,
                          bandwidth_ / 1e9);
    }
    text += fmt::format(", first token after {:.0f} ms ({} of {} prompt tokens were cached), ",
                        timings.ttft_ms, last_result_->reused_tokens, last_result_->prompt_tokens);
  }
  if (last_result_) text += describe_speculation(options_.speculator) + "; ";
  if (used.ok()) {
    text += fmt::format("context {} of {} ({:.0f}%)\n", *used, engine_.context(),
                        100.0 * static_cast<double>(*used) / engine_.context());
  } else {
    text += fmt::format("context of {}\n", engine_.context());
  }
  return text;
}

}  // namespace sluice::cli

// The conversation loop of `sluice chat`: reads messages and commands, prints replies, keeps the
// autosave.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/cli/chat/chat_files.h"
#include "src/cli/chat/chat_view.h"
#include "src/cli/console.h"
#include "src/cli/terminal/line_editor.h"
#include "src/engine/chat/chat_session.h"
#include "src/engine/chat/journal.h"

namespace sluice::cli {

struct ChatLoopOptions {
  std::string autosave;  // path of a file that is created with the first message; empty: none
  bool show_stats = false;
  ShowReasoning reasoning = ShowReasoning::kFull;
  unsigned threads = 0;  // of the bandwidth measurement
  const Speculator* speculator = nullptr;
};

class ChatLoop {
 public:
  ChatLoop(Console& console, Progress& progress, Engine& engine, ChatSession& session,
           MarkdownOptions markdown, ChatLoopOptions options);

  // Until the user leaves. kInterrupted: by Ctrl-C. The conversation goes on after errors in it.
  Status run();

  // What the commands use (chat_commands.cpp).
  Console& console() { return console_; }
  ChatSession& session() { return session_; }
  Engine& engine() { return engine_; }
  ReplyPrinter& printer() { return printer_; }
  ChatLoopOptions& options() { return options_; }
  // Text of files that goes in front of the next message.
  std::string& attached() { return attached_; }
  std::string& session_path() { return session_path_; }
  const std::optional<GenerateResult>& last_result() const { return last_result_; }
  void leave() { leaving_ = true; }
  // The next message begins with this text in the editor.
  void edit_next(std::string text) { prefill_ = std::move(text); }
  // The next message takes the place of the last one, if it is sent at once.
  void replace_last() { replacing_ = true; }
  bool can_edit() const { return editor_->can_edit(); }

  void send(std::string message);
  void retry();
  // Says what a resumed conversation holds, and puts the saved keys and values into the cache.
  void adopt(SavedChat saved);
  // The conversation changed otherwise than by a message.
  void changed();
  std::string status_line();
  bool autosaved() const { return journal_.has_value(); }

 private:
  void answer(const std::function<Result<GenerateResult>(const ReplyEvents&)>& generate);
  void handle(const ReadResult& read);
  void after_reply(const Result<GenerateResult>& result);
  // The autosave, begun when first needed. A failure is said once and ends it.
  ChatJournal* journal();
  void journal_result(const Status& status);

  Console& console_;
  Progress& progress_;
  Engine& engine_;
  ChatSession& session_;
  ReplyPrinter printer_;
  ChatLoopOptions options_;
  std::unique_ptr<LineEditor> editor_;
  std::optional<ChatJournal> journal_;
  std::string attached_;
  std::string prefill_;
  std::string session_path_;
  std::optional<GenerateResult> last_result_;
  double bandwidth_ = 0;  // measured when first shown
  bool leaving_ = false;
  bool replacing_ = false;
  bool interrupted_before_ = false;  // by the last key or signal
  int failures_ = 0;
  Status ending_;
};

}  // namespace sluice::cli

// How a chat looks: replies with light Markdown, reasoning dimmed, notes on stderr.
#pragma once

#include <string>
#include <string_view>

#include "src/base/status.h"
#include "src/cli/console.h"
#include "src/cli/terminal/markdown_stream.h"

namespace sluice::cli {

// The beginning or the end of a text for a note of one line, in whole characters and with one blank
// for each run of white space; info() escapes what must not reach a terminal.
std::string beginning(std::string_view text, std::size_t bytes);
std::string ending(std::string_view text, std::size_t bytes);

// Said where somebody asks a model not to think whose template has no way to tell it so.
inline constexpr const char* kNoThinkingSwitch =
    "this model's chat template has no switch for thinking: it thinks or not as it always does "
    "(hide folds what it thinks)";

// What of a model's reasoning is shown.
enum class ShowReasoning { kFull, kCollapsed };

// Prints one reply after another. On a terminal: Markdown, and reasoning dimmed or as one line. On
// a pipe or in a file: the answers alone, byte for byte, each ended by a line end.
class ReplyPrinter {
 public:
  ReplyPrinter(Console& console, Progress& progress, MarkdownOptions options);

  void set_reasoning(ShowReasoning show) { show_ = show; }
  void begin();
  // false: the output can no longer be written; see status().
  bool reasoning(std::string_view text);
  bool answer(std::string_view text);
  // Ends the line; attributes are normal afterwards, also in the middle of a reply.
  void end();
  const Status& status() const { return status_; }

 private:
  void put(std::string_view text);
  void put_dim(std::string_view text);
  void end_reasoning();

  Console& console_;
  Progress& progress_;
  MarkdownStream markdown_;
  ShowReasoning show_ = ShowReasoning::kFull;
  enum class Place { kNothing, kReasoning, kAnswer } place_ = Place::kNothing;
  std::size_t hidden_bytes_ = 0;  // of reasoning that is not shown
  char last_ = '\n';
  Status status_;
};

}  // namespace sluice::cli

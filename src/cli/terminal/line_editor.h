// Reading one message from the user.
//
// Three situations, chosen by what the input and the output are:
//  - a terminal: edited with libedit (emacs keys), in UTF-8 whatever the locale. History by the
//    arrow keys and Ctrl-R, completion by Tab, pastes as one piece. Enter sends; Alt-Enter, a
//    trailing backslash or an open """ makes a new line (message_lines.h).
//  - a terminal that cannot be drawn on (TERM unset, "dumb" or unknown, or output elsewhere): line
//    by line, the prompt printed as it is where the output is a terminal, no escape code.
//  - anything else, such as a pipe: line by line, nothing printed. A carriage return before a
//    newline is dropped; a last line without a newline counts; an unfinished message at the end of
//    the input is complete.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include "src/cli/terminal/complete.h"

namespace sluice {

struct LineEditorOptions {
  std::string prompt = "> ";
  std::string continuation = ". ";  // before further lines where lines are not edited
  std::string prompt_codes;         // SGR numbers such as "1;32" for the prompt, where it is edited
  std::string history_path;         // history_file.h; empty: nothing is kept
  Completer completer;              // may be empty
  int input = 0;                    // a file descriptor
  std::FILE* output = nullptr;      // where prompt and text are shown; required
  // Set by the caller's signal handler; ends a read that waits. May be null. Where lines are
  // edited, Ctrl-C is a key and raises no signal.
  const std::atomic<bool>* cancel = nullptr;
  // Longer messages are an error.
  std::size_t max_bytes = std::size_t{256} << 20;
};

struct ReadResult {
  enum class Kind {
    kMessage,      // text; it may be empty
    kInterrupted,  // Ctrl-C, or `cancel`; text is what had been typed
    kEnd,          // Ctrl-D on an empty line, end of input, terminal gone
    kError,        // text says what; reading again makes no sense
  };
  Kind kind = Kind::kEnd;
  std::string text;  // UTF-8
  // How many NULs and ill-formed sequences were replaced by U+FFFD: tell the user if not 0.
  std::size_t replaced = 0;
  // Whether the text was entered as it is, by a paste or in a """ block, so that a slash at its
  // beginning makes no command.
  bool literal = false;
};

class LineEditor {
 public:
  // Never null. The options' descriptors and `cancel` must outlive it. One at a time for a
  // terminal: while read() runs, restore_terminal() (terminal_guard.h) resets that one.
  static std::unique_ptr<LineEditor> create(LineEditorOptions options);

  virtual ~LineEditor() = default;
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  // Shows the prompt and waits for a message. `prefill` is put into the line to be edited; it is
  // ignored where can_edit() is false. The terminal's attributes are the same before and after.
  virtual ReadResult read(std::string_view prefill = {}) = 0;

  // Whether lines are edited with libedit.
  virtual bool can_edit() const = 0;

  // What is wrong with the history's file, once; else empty. From then on nothing is kept.
  virtual std::string take_history_problem() { return {}; }

 protected:
  LineEditor() = default;
};

}  // namespace sluice

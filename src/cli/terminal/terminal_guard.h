// Putting a terminal back into the state in which it was found.
#pragma once

#include <termios.h>

namespace sluice {

// While one lives, the terminal's attributes are remembered and bracketed paste (DECSET 2004) is
// on; its end restores them. Signals belong to the process, so there is one remembered terminal.
class TerminalGuard {
 public:
  enum class Echo : unsigned char {
    kAsItIs,
    // What is typed is not shown, but kept for the next read: while something else is printed.
    kOff,
  };
  // `input` is the terminal whose attributes change, `output` takes the codes.
  TerminalGuard(int input, int output, Echo echo = Echo::kAsItIs);
  ~TerminalGuard();
  TerminalGuard(const TerminalGuard&) = delete;
  TerminalGuard& operator=(const TerminalGuard&) = delete;

  // To the state found, and back to the bracketed paste: for stopping by Ctrl-Z.
  void suspend();
  void resume();
};

// Restores the remembered terminal, if a guard lives. Only calls that are safe in a signal handler;
// for those that end the process.
void restore_terminal() noexcept;

// The same for a process that is about to be stopped by a signal, and the way back when it goes on
// in the foreground.
void suspend_terminal() noexcept;
void resume_terminal() noexcept;

}  // namespace sluice

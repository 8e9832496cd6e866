#include "src/cli/terminal/terminal_guard.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <string_view>

namespace sluice {
namespace {

// Written only while `remembered` is false, or in a handler; read in handlers only while it is
// true.
struct Remembered {
  int input = -1, output = -1;
  bool has_attributes = false;
  termios attributes = {};
  // What a stop found, for the way back.
  bool suspended = false;
  termios used = {};
};
Remembered terminal;
std::atomic<bool> remembered = false;
static_assert(std::atomic<bool>::is_always_lock_free);  // usable in a signal handler

constexpr std::string_view kPasteOn = "\x1b[?2004h";
constexpr std::string_view kPasteOff = "\x1b[?2004l";

void send(std::string_view code) {
  [[maybe_unused]] const ssize_t n = write(terminal.output, code.data(), code.size());
}

}  // namespace

TerminalGuard::TerminalGuard(int input, int output, Echo echo) {
  remembered = false;
  terminal.input = input;
  terminal.output = output;
  terminal.has_attributes = tcgetattr(input, &terminal.attributes) == 0;
  terminal.suspended = false;
  remembered = true;
  if (echo == Echo::kOff && terminal.has_attributes) {
    termios quiet = terminal.attributes;
    quiet.c_lflag &= ~static_cast<tcflag_t>(ECHO | ECHONL);
    tcsetattr(input, TCSANOW, &quiet);
  }
  resume();
}

TerminalGuard::~TerminalGuard() {
  suspend();
  remembered = false;
}

void TerminalGuard::suspend() { restore_terminal(); }

void TerminalGuard::resume() { send(kPasteOn); }

void restore_terminal() noexcept {
  if (!remembered) return;
  const int saved_errno = errno;
  send(kPasteOff);
  if (terminal.has_attributes) tcsetattr(terminal.input, TCSANOW, &terminal.attributes);
  errno = saved_errno;
}

void suspend_terminal() noexcept {
  if (!remembered) return;
  terminal.suspended = tcgetattr(terminal.input, &terminal.used) == 0;
  restore_terminal();
}

void resume_terminal() noexcept {
  if (!remembered || !terminal.suspended) return;
  terminal.suspended = false;
  // The terminal of another job is not ours to change; asking to would stop the process again.
  if (tcgetpgrp(terminal.input) != getpgrp()) return;
  tcsetattr(terminal.input, TCSANOW, &terminal.used);
  send(kPasteOn);
}

}  // namespace sluice

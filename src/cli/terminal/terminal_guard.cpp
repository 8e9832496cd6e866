#include "src/cli/terminal/terminal_guard.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <string_view>

namespace sluice {
namespace {

// Written only while `remembered` is false, read by restore_terminal() only while it is true.
struct Remembered {
  int input = -1, output = -1;
  bool has_attributes = false;
  termios attributes = {};
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

TerminalGuard::TerminalGuard(int input, int output) {
  remembered = false;
  terminal.input = input;
  terminal.output = output;
  terminal.has_attributes = tcgetattr(input, &terminal.attributes) == 0;
  remembered = true;
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

}  // namespace sluice

// Ctrl-C and the other signals. Signals belong to the process, so this is the one place with
// process-wide state.
#pragma once

#include <atomic>

namespace sluice::cli {

// From now on SIGINT, SIGTERM and SIGHUP set the flag returned, and a second SIGINT or SIGTERM more
// than a tenth of a second later ends the process at once with exit code 130. (Closer ones are the
// same event: timeout(1) signals the process and its group.) System calls that wait return with
// EINTR. A SIGHUP that was ignored when the program began stays so (nohup).
//
// SIGTSTP and SIGQUIT put the terminal back into the state in which it was found before they do
// what they always do, and SIGCONT brings back what was set (terminal/terminal_guard.h). SIGPIPE
// and SIGXFSZ are ignored, so that writing to a closed pipe or beyond a limit on the size of files
// is an error that can be reported. SIGBUS (a mapped file was cut short) ends the process with a
// message and exit code 3.
const std::atomic<bool>& install_interrupt_handler();

// Forgets an interrupt that was dealt with: the next signal is a first one again.
void clear_interrupt();
// Whether SIGTERM or SIGHUP came: they ask the program to end, not only what it is doing.
bool termination_requested();
// As if SIGHUP had come: for the one who finds that the terminal is gone.
void request_termination();

// While one lives, the first signal ends the process at once too: for work that can't be cut short
// and whose loss costs nothing (nothing printed yet, no file begun).
class ExitOnInterrupt {
 public:
  ExitOnInterrupt();
  ~ExitOnInterrupt();
  ExitOnInterrupt(const ExitOnInterrupt&) = delete;
  ExitOnInterrupt& operator=(const ExitOnInterrupt&) = delete;
};

// Says whether a progress line is on the terminal, which is wiped out when a signal ends the
// process.
void set_progress_shown(bool shown);

}  // namespace sluice::cli

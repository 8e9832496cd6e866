#include "src/cli/interrupt.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string_view>

#include "src/cli/terminal/terminal_guard.h"

namespace sluice::cli {
namespace {

std::atomic<bool> interrupted = false;
std::atomic<bool> terminated = false;
std::atomic<bool> progress_shown = false;
std::atomic<int> exit_at_once = 0;
std::atomic<std::int64_t> first_ms = 0;
static_assert(std::atomic<bool>::is_always_lock_free &&
              std::atomic<std::int64_t>::is_always_lock_free);  // usable in a signal handler

std::int64_t now_ms() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1000000;
}

[[noreturn]] void end_process() {
  constexpr std::string_view kWipe = "\r\x1b[K";
  if (progress_shown) {
    [[maybe_unused]] const auto n = write(STDERR_FILENO, kWipe.data(), kWipe.size());
  }
  restore_terminal();
  _exit(130);
}

void on_signal(int signal_number) {
  const int saved_errno = errno;
  if (signal_number != SIGINT) terminated = true;
  if (exit_at_once > 0) end_process();
  if (signal_number == SIGHUP) {
    // Shells and the kernel may both send one; what is being saved must not suffer from the second.
    interrupted = true;
    return;
  }
  const std::int64_t now = now_ms();
  std::int64_t first = 0;
  if (first_ms.compare_exchange_strong(first, now)) {
    interrupted = true;
  } else if (now - first > 100) {
    end_process();
  }
  errno = saved_errno;
}

void handle(int signal_number, void (*handler)(int), int flags) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigemptyset(&action.sa_mask);
  sigaction(signal_number, &action, nullptr);
}

bool is_ignored(int signal_number) {
  struct sigaction now {};
  return sigaction(signal_number, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

// Lets a signal that is being handled do what it does where nobody handles it.
void act_by_default(int signal_number) {
  handle(signal_number, SIG_DFL, 0);
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, signal_number);
  raise(signal_number);
  pthread_sigmask(SIG_UNBLOCK, &only, nullptr);
}

void on_quit(int signal_number) {
  restore_terminal();
  act_by_default(signal_number);
}

void on_stop(int signal_number) {
  const int saved_errno = errno;
  suspend_terminal();
  act_by_default(signal_number);  // returns when the process is continued
  handle(signal_number, on_stop, SA_RESTART);
  resume_terminal();
  errno = saved_errno;
}

// A mapped file that became shorter, or a disk that fails: nothing can go on. (Other causes of
// SIGBUS do not occur in a program that reads unaligned data by memcpy.)
void on_bus_error(int) {
  constexpr std::string_view kMessage =
      "\nsluice: error: a file in use can no longer be read: it was cut short, or its disk fails; "
      "start again with the whole file\n";
  [[maybe_unused]] const auto n = write(STDERR_FILENO, kMessage.data(), kMessage.size());
  restore_terminal();
  _exit(3);
}

}  // namespace

const std::atomic<bool>& install_interrupt_handler() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  sigaddset(&action.sa_mask, SIGINT);
  sigaddset(&action.sa_mask, SIGTERM);
  sigaddset(&action.sa_mask, SIGHUP);
  action.sa_flags = 0;  // no SA_RESTART: reads and writes that wait must come back
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  if (!is_ignored(SIGHUP)) sigaction(SIGHUP, &action, nullptr);
  // Shells without job control ignore it, and nobody would continue the process.
  if (!is_ignored(SIGTSTP)) handle(SIGTSTP, on_stop, SA_RESTART);
  handle(SIGQUIT, on_quit, 0);
  handle(SIGBUS, on_bus_error, 0);
  handle(SIGPIPE, SIG_IGN, 0);
  handle(SIGXFSZ, SIG_IGN, 0);
  return interrupted;
}

void clear_interrupt() {
  if (terminated) return;
  first_ms = 0;
  interrupted = false;
}

bool termination_requested() { return terminated; }

void request_termination() {
  terminated = true;
  interrupted = true;
}

ExitOnInterrupt::ExitOnInterrupt() {
  ++exit_at_once;
  if (interrupted) end_process();  // the signal came a moment ago
}
ExitOnInterrupt::~ExitOnInterrupt() { --exit_at_once; }

void set_progress_shown(bool shown) { progress_shown = shown; }

}  // namespace sluice::cli

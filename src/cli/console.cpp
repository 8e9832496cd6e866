#include "src/cli/console.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "src/cli/interrupt.h"
#include "src/cli/numbers.h"
#include "src/gguf/describe.h"
#include "src/text/escape.h"

namespace sluice::cli {
namespace {

// A file opened later must not become stdin, stdout or stderr. What stands in for a closed stdout
// refuses writes, so that a missing stdout is still an error.
void occupy_standard_descriptors() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (fcntl(fd, F_GETFD) != -1 || errno != EBADF) continue;
    // open() takes the lowest free number, which is fd.
    [[maybe_unused]] const int taken = open("/dev/null", O_RDONLY);
  }
}

// Returns 0 or an errno; EINTR when `cancel` became true.
int write_all(int fd, std::string_view text, const std::atomic<bool>& cancel) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
      // A write that waited for a slow reader ends in the middle when a signal comes.
      if (!text.empty() && cancel) return EINTR;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (cancel) return EINTR;
      pollfd ready = {fd, POLLOUT, 0};
      poll(&ready, 1, 100);
    } else if (errno != EINTR) {
      return errno;
    } else if (cancel) {
      return EINTR;
    }
  }
  return 0;
}

std::size_t terminal_columns() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

// Messages quote model files, templates and arguments.
std::string as_line(std::string_view text) {
  constexpr std::size_t kLongest = 4000;
  return printable_message(text, kLongest) + "\n";
}

}  // namespace

Console::Console(const std::atomic<bool>& cancel)
    : cancel_(cancel),
      stdout_is_terminal_(isatty(STDOUT_FILENO) == 1),
      stderr_is_terminal_(isatty(STDERR_FILENO) == 1) {
  occupy_standard_descriptors();
}

Status Console::print(std::string_view text) {
  const int error = write_all(STDOUT_FILENO, text, cancel_);
  if (error == 0) return {};
  // A terminal that is closed; the signal that says so comes a moment later, or is ignored.
  if (error == EIO && stdout_is_terminal_) request_termination();
  if (error == EINTR || termination_requested()) {
    return make_error(ErrorCode::kInterrupted, "interrupted");
  }
  if (error == EPIPE) return failed("the reader of the output is gone (closed pipe)");
  return failed("can't write the output: {}", std::strerror(error));
}

Status Console::print_untrusted(std::string_view text) {
  return stdout_is_terminal_ ? print(escape_controls(text)) : print(text);
}

Status Console::close_stdout() {
  if (close(STDOUT_FILENO) == 0 || errno == EINTR || errno == EBADF) return {};
  return failed("can't write the output: {}", std::strerror(errno));
}

void Console::info(std::string_view line) {
  if (!quiet_) note("sluice: " + as_line(line));
}

void Console::warning(std::string_view line) { note("sluice: warning: " + as_line(line)); }

void Console::error(std::string_view line) { note("sluice: error: " + as_line(line)); }

void Console::note(std::string_view text) {
  // Nobody can be told that stderr is gone.
  write_all(STDERR_FILENO, text, cancel_);
}

Progress::Progress(Console& console)
    : console_(console), enabled_(console.stderr_is_terminal() && !console.quiet()) {}

void Progress::begin(std::string task) {
  clear();
  task_ = std::move(task);
  began_ = Clock::now();
  printed_ = {};
}

bool Progress::due() const {
  using std::chrono::milliseconds;
  const Clock::time_point now = Clock::now();
  return enabled_ && now - began_ > milliseconds(2000) && now - printed_ > milliseconds(200);
}

void Progress::update(double share, std::string_view detail) {
  if (!due()) return;
  const double seconds = std::chrono::duration<double>(Clock::now() - began_).count();
  std::string line = fmt::format("{} {:.0f}%", task_, 100 * share);
  if (!detail.empty()) line += fmt::format(", {}", detail);
  if (share > 0.01) line += fmt::format(", {} left", format_seconds(seconds * (1 - share) / share));
  line.resize(std::min(line.size(), terminal_columns() - 1));
  set_progress_shown(true);
  console_.note("\r\x1b[K" + line);
  shown_ = true;
  printed_ = Clock::now();
}

void Progress::clear() {
  if (!shown_) return;
  console_.note("\r\x1b[K");
  set_progress_shown(false);
  shown_ = false;
}

}  // namespace sluice::cli

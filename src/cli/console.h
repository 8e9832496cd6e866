// The two streams of a command: the answer on stdout, everything else on stderr.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

#include "src/base/status.h"

namespace sluice::cli {

class Console {
 public:
  // `cancel` ends writes and reads that wait. Must outlive the console.
  explicit Console(const std::atomic<bool>& cancel);

  const std::atomic<bool>& cancel() const { return cancel_; }
  bool stdout_is_terminal() const { return stdout_is_terminal_; }
  bool stderr_is_terminal() const { return stderr_is_terminal_; }

  // Writes to stdout, at once and completely. A closed pipe or a full disk is an error.
  Status print(std::string_view text);
  // The same for text that a model, a file or a user supplies: control characters are escaped when
  // stdout is a terminal, and raw bytes otherwise.
  Status print_untrusted(std::string_view text);
  // Closes stdout; file systems may report a failed write only now. Nothing can be printed after.
  Status close_stdout();

  // Lines on stderr: "sluice: ...", "sluice: warning: ...", "sluice: error: ...". Control
  // characters are escaped. Infos are left out after set_quiet(true).
  void info(std::string_view line);
  void warning(std::string_view line);
  void error(std::string_view line);
  // Text on stderr as it is, for blocks that are made here.
  void note(std::string_view text);
  void set_quiet(bool quiet) { quiet_ = quiet; }
  bool quiet() const { return quiet_; }

 private:
  const std::atomic<bool>& cancel_;
  bool stdout_is_terminal_;
  bool stderr_is_terminal_;
  bool quiet_ = false;
};

// A line on a terminal's stderr that says how far a long task is. Appears after two seconds,
// changes a few times a second, and is wiped out at the end.
class Progress {
 public:
  explicit Progress(Console& console);
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Starts a new task; the two seconds begin anew.
  void begin(std::string task);
  // `share` done, 0 to 1. `detail` is put in front of the time left: "512 of 4096 tokens, 88 t/s".
  // Whether update() would print now: lets callers skip making the detail.
  bool due() const;
  void update(double share, std::string_view detail);
  void clear();

 private:
  using Clock = std::chrono::steady_clock;
  Console& console_;
  const bool enabled_;
  std::string task_;
  Clock::time_point began_;
  Clock::time_point printed_;
  bool shown_ = false;
};

}  // namespace sluice::cli

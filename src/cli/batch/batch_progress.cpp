#include "src/cli/batch/batch_progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "src/cli/interrupt.h"
#include "src/cli/numbers.h"

namespace sluice::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::size_t terminal_columns() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

}  // namespace

BatchProgress::BatchProgress(Console& console, std::optional<std::uint64_t> total)
    : console_(console), total_(total), began_(Clock::now()), printed_(began_) {
  marks_.push_back({began_, 0, 0});
}

void BatchProgress::update(const BatchCounts& counts, const SchedulerStats& stats) {
  if (console_.quiet()) return;
  const Clock::time_point now = Clock::now();
  const bool terminal = console_.stderr_is_terminal();
  if (now - marks_.back().at >= milliseconds(500)) {
    marks_.push_back({now, stats.prefill_tokens, stats.decode_tokens});
    const auto window = terminal ? seconds(10) : seconds(60);
    while (marks_.size() > 2 && now - marks_[1].at >= window) marks_.pop_front();
  }
  if (now - printed_ < (terminal ? milliseconds(200) : milliseconds(60000))) return;
  printed_ = now;
  std::string text = line(counts, stats, now);
  if (!terminal) {
    console_.info(text);
    return;
  }
  text.resize(std::min(text.size(), terminal_columns() - 1));
  set_progress_shown(true);
  console_.note("\r\x1b[K" + text);
  shown_ = true;
}

void BatchProgress::clear() {
  if (!shown_) return;
  console_.note("\r\x1b[K");
  set_progress_shown(false);
  shown_ = false;
}

std::string BatchProgress::line(const BatchCounts& counts, const SchedulerStats& stats,
                                Clock::time_point now) {
  const Mark& mark = marks_.front();
  const auto rate = [&](std::uint64_t count, std::uint64_t before) {
    const double elapsed = std::chrono::duration<double>(now - mark.at).count();
    return elapsed > 0 ? static_cast<double>(count - before) / elapsed : 0;
  };
  // The most wanted first: a narrow terminal cuts the rest.
  std::string text = total_ ? fmt::format("{} of {} items", counts.settled(), *total_)
                            : fmt::format("{} items", counts.settled());
  if (counts.failed > 0) text += fmt::format(" ({} failed)", counts.failed);
  const std::uint64_t here = counts.done + counts.failed;
  if (total_ && here > 0 && *total_ > counts.settled()) {
    const double elapsed = std::chrono::duration<double>(now - began_).count();
    text += fmt::format(", {} left",
                        format_seconds(elapsed * static_cast<double>(*total_ - counts.settled()) /
                                       static_cast<double>(here)));
  }
  text +=
      fmt::format("; t/s: {:.0f} prompts, {:.0f} generated",
                  rate(stats.prefill_tokens, mark.prefill), rate(stats.decode_tokens, mark.decode));
  const auto percent = [](std::uint64_t part, std::uint64_t whole) {
    return 100.0 * static_cast<double>(part) / static_cast<double>(whole);
  };
  if (stats.shared_tokens > 0 && stats.prompt_tokens > 0) {
    text += fmt::format("; {:.0f}% shared", percent(stats.shared_tokens, stats.prompt_tokens));
  }
  if (stats.drafted_tokens > 0) {
    text += fmt::format("; {:.0f}% accepted", percent(stats.accepted_tokens, stats.drafted_tokens));
  }
  if (stats.running > 0) text += fmt::format("; {} running", stats.running);
  return text;
}

}  // namespace sluice::cli

// How far a batch is: a line that changes on a terminal, else a line a minute.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "src/cli/console.h"
#include "src/engine/batch/batch_runner.h"

namespace sluice::cli {

class BatchProgress {
 public:
  // `total`: items of the whole input; nothing: not known.
  BatchProgress(Console& console, std::optional<std::uint64_t> total);
  ~BatchProgress() { clear(); }
  BatchProgress(const BatchProgress&) = delete;
  BatchProgress& operator=(const BatchProgress&) = delete;

  // After each pass; prints when it is time.
  void update(const BatchCounts& counts, const SchedulerStats& stats);
  void clear();

 private:
  using Clock = std::chrono::steady_clock;
  struct Mark {
    Clock::time_point at;
    std::uint64_t prefill = 0, decode = 0;
  };
  std::string line(const BatchCounts& counts, const SchedulerStats& stats, Clock::time_point now);

  Console& console_;
  std::optional<std::uint64_t> total_;
  Clock::time_point began_;
  Clock::time_point printed_;
  std::deque<Mark> marks_;  // of the last ten seconds, or the last minute
  bool shown_ = false;
};

}  // namespace sluice::cli

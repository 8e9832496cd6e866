// What a batch did, for people and for programs.
#pragma once

#include <cstdint>
#include <string>

#include "src/base/status.h"
#include "src/cli/batch/timeline.h"
#include "src/engine/batch/batch_runner.h"
#include "src/engine/batch/latency_stats.h"

namespace sluice::cli {

struct BatchReport {
  std::string model;
  std::string device;
  std::string input;
  std::string output;
  std::uint32_t slots = 0;
  std::uint32_t block_tokens = 0;  // of a block of the KV cache
  bool complete = false;           // to the end of the input
  double seconds = 0;              // loading the model excluded
  const BatchCounts& counts;
  const SchedulerStats& stats;
  const LatencyStats& latency;
  const Timeline& timeline;

  double per_second(std::uint64_t count) const {
    return seconds > 0 ? static_cast<double>(count) / seconds : 0;
  }
};

// The table at the end, for stderr.
std::string batch_summary(const BatchReport& report);
// One JSON object with a line end.
std::string batch_report_json(const BatchReport& report);
// One page without anything outside it.
std::string batch_report_html(const BatchReport& report);

// "out.json" or "out.html"; kUsage for another ending, and for a folder that can't be written to.
Status check_report_path(const std::string& path);
// By the ending of the path; appears only when it is whole.
Status write_batch_report(const std::string& path, const BatchReport& report);

}  // namespace sluice::cli

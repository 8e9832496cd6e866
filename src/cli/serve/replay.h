// Replays arrivals through a scheduler in real time and measures what the requests saw.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "src/cli/console.h"
#include "src/cli/serve/trace.h"
#include "src/engine/batch/latency_stats.h"
#include "src/engine/scheduler/scheduler.h"

namespace sluice::cli {

// A way to schedule, by name.
struct ServePolicy {
  std::string_view name;
  std::string_view meaning;
  bool continuous = true;
  bool chunked_prefill = true;
  bool share_prefixes = true;
  SchedulePolicy chunks = SchedulePolicy::kThroughput;
};
// static, continuous, chunked, prefix, latency: each adds one thing to the one before.
std::span<const ServePolicy> serve_policies();

struct ReplayResult {
  std::string policy;
  double rate = 0;            // of arrivals; 0: all at once
  double seconds = 0;         // from the first arrival to the last answer
  LatencyStats latency;       // TTFT counts from the arrival
  double longest_gap_ms = 0;  // between two tokens of a request
  SchedulerStats stats;
  std::string note;  // the scheduler's
  double requests_per_s() const { return static_cast<double>(latency.items()) / seconds; }
  double tokens_per_s() const { return static_cast<double>(latency.tokens()) / seconds; }
};

// Prompts are random tokens behind `prefix` tokens that all have; answers have the length asked
// for. `on_done` hears how many requests are through. kInterrupted: by the console.
Result<ReplayResult> replay(Engine& engine, const SchedulerOptions& options,
                            std::span<const Arrival> trace, std::uint32_t prefix,
                            const std::atomic<bool>& cancel,
                            const std::function<void(std::size_t done)>& on_done);

}  // namespace sluice::cli

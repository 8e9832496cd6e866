// What a batch did over time, in a bounded number of points however long it runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "src/engine/batch/latency_stats.h"
#include "src/engine/scheduler/scheduler.h"

namespace sluice::cli {

// Averages over one interval.
struct TimelinePoint {
  double seconds = 0;        // its end, from the start of the batch
  double prefill_per_s = 0;  // prompt tokens run
  double decode_per_s = 0;   // tokens generated
  double rows = 0;           // of a pass
  double running = 0;        // sequences, at the end of its passes
  double waiting = 0;
  double blocks = 0;  // of the KV cache
};

// One item's end.
struct LatencyPoint {
  double seconds = 0;
  float ttft_ms = 0;
  float tpot_ms = 0;
  float end_ms = 0;
};

class Timeline {
 public:
  static constexpr std::size_t kMostPoints = 512;
  static constexpr std::size_t kMostItems = 4096;

  // After each pass; `seconds` since the start, never falling.
  void step(double seconds, const SchedulerStats& stats);
  void item(double seconds, const ItemLatency& latency);

  std::vector<TimelinePoint> points() const;  // the interval that is not over included
  // Every item, or every 2nd, 4th, ... of many.
  const std::vector<LatencyPoint>& items() const { return items_; }

 private:
  // Sums over an interval.
  struct Interval {
    double begin = 0, end = 0;
    std::uint64_t prefill = 0, decode = 0, rows = 0, passes = 0;
    double steps = 0, running = 0, waiting = 0, blocks = 0;

    void add(const Interval& other);
    TimelinePoint point() const;
  };
  std::vector<Interval> intervals_;
  Interval open_;
  SchedulerStats last_;
  double width_ = 0.25;  // seconds of an interval

  std::vector<LatencyPoint> items_;
  std::uint64_t items_seen_ = 0;
  std::uint64_t stride_ = 1;
};

}  // namespace sluice::cli

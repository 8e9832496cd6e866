#include "src/cli/batch/timeline.h"

namespace sluice::cli {

void Timeline::Interval::add(const Interval& other) {
  end = other.end;
  prefill += other.prefill;
  decode += other.decode;
  rows += other.rows;
  passes += other.passes;
  steps += other.steps;
  running += other.running;
  waiting += other.waiting;
  blocks += other.blocks;
}

TimelinePoint Timeline::Interval::point() const {
  const auto share = [](double sum, double count) { return count > 0 ? sum / count : 0; };
  const double seconds = end - begin;
  return {end,
          share(static_cast<double>(prefill), seconds),
          share(static_cast<double>(decode), seconds),
          share(static_cast<double>(rows), static_cast<double>(passes)),
          share(running, steps),
          share(waiting, steps),
          share(blocks, steps)};
}

void Timeline::step(double seconds, const SchedulerStats& stats) {
  open_.end = seconds;
  open_.prefill += stats.prefill_tokens - last_.prefill_tokens;
  open_.decode += stats.decode_tokens - last_.decode_tokens;
  open_.rows += stats.rows - last_.rows;
  open_.passes += stats.passes - last_.passes;
  open_.steps += 1;
  open_.running += stats.running;
  open_.waiting += stats.waiting;
  open_.blocks += stats.blocks_used;
  last_ = stats;
  if (open_.end - open_.begin < width_) return;
  intervals_.push_back(open_);
  open_ = {};
  open_.begin = open_.end = seconds;
  if (intervals_.size() < kMostPoints) return;
  for (std::size_t i = 0; i < intervals_.size() / 2; ++i) {
    Interval pair = intervals_[2 * i];
    pair.add(intervals_[2 * i + 1]);
    intervals_[i] = pair;
  }
  intervals_.resize(intervals_.size() / 2);
  width_ *= 2;
}

void Timeline::item(double seconds, const ItemLatency& latency) {
  if (items_seen_++ % stride_ != 0) return;
  items_.push_back({seconds, static_cast<float>(latency.ttft_ms),
                    static_cast<float>(latency.tpot_ms), static_cast<float>(latency.end_ms)});
  if (items_.size() < kMostItems) return;
  for (std::size_t i = 0; i < items_.size() / 2; ++i) items_[i] = items_[2 * i];
  items_.resize(items_.size() / 2);
  stride_ *= 2;
}

std::vector<TimelinePoint> Timeline::points() const {
  std::vector<TimelinePoint> points;
  for (const Interval& interval : intervals_) points.push_back(interval.point());
  if (open_.steps > 0 && open_.end > open_.begin) points.push_back(open_.point());
  return points;
}

}  // namespace sluice::cli

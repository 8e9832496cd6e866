// How long the items of a batch took.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "src/base/status.h"

namespace sluice {

struct ItemLatency {
  double queue_ms = 0;  // from its submission until the first of its tokens was run
  double ttft_ms = 0;   // from there to its first token
  double tpot_ms = 0;   // per further token; 0: there was none
  double end_ms = 0;    // from its submission to its last token
  std::uint64_t prompt_tokens = 0;
  std::uint64_t tokens = 0;  // generated
};

// What users are promised: both must hold. An item of one token has no time per further token.
struct LatencyGoal {
  std::optional<double> ttft_ms;
  std::optional<double> tpot_ms;

  bool any() const { return ttft_ms || tpot_ms; }
  bool met_by(const ItemLatency& item) const;
};

// "ttft=500,tpot=50": milliseconds, one of them or both. kUsage for anything else.
Result<LatencyGoal> parse_latency_goal(std::string_view text);

struct Percentiles {
  double p50 = 0, p90 = 0, p99 = 0;
  std::size_t count = 0;  // 0: the others mean nothing
};
// By nearest rank: each is one of the values.
Percentiles percentiles(std::vector<float> values);

class LatencyStats {
 public:
  explicit LatencyStats(LatencyGoal goal = {}) : goal_(goal) {}

  void add(const ItemLatency& item);

  const LatencyGoal& goal() const { return goal_; }
  std::uint64_t items() const { return items_; }
  std::uint64_t prompt_tokens() const { return prompt_tokens_; }
  std::uint64_t tokens() const { return tokens_; }
  // Of the items that met the goal.
  std::uint64_t good_items() const { return good_items_; }
  std::uint64_t good_tokens() const { return good_tokens_; }

  Percentiles queue() const { return percentiles(queue_); }
  Percentiles ttft() const { return percentiles(ttft_); }
  Percentiles tpot() const { return percentiles(tpot_); }
  Percentiles end_to_end() const { return percentiles(end_); }

 private:
  LatencyGoal goal_;
  // All values; 16 bytes an item.
  std::vector<float> queue_, ttft_, tpot_, end_;
  std::uint64_t items_ = 0, prompt_tokens_ = 0, tokens_ = 0;
  std::uint64_t good_items_ = 0, good_tokens_ = 0;
};

}  // namespace sluice

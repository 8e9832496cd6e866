#include "src/engine/batch/latency_stats.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace sluice {

bool LatencyGoal::met_by(const ItemLatency& item) const {
  if (ttft_ms && item.ttft_ms > *ttft_ms) return false;
  return !tpot_ms || item.tpot_ms <= *tpot_ms;
}

Result<LatencyGoal> parse_latency_goal(std::string_view text) {
  const auto refused = [text] {
    return make_error(ErrorCode::kUsage,
                      "'{}' is not of the form ttft=500,tpot=50 (milliseconds, one or both)", text);
  };
  LatencyGoal goal;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view part = text.substr(begin, end - begin);
    begin = end + 1;
    const std::size_t sign = part.find('=');
    if (sign == std::string_view::npos) return refused();
    std::optional<double>* target = part.substr(0, sign) == "ttft"   ? &goal.ttft_ms
                                    : part.substr(0, sign) == "tpot" ? &goal.tpot_ms
                                                                     : nullptr;
    double value = 0;
    const char* last = part.data() + part.size();
    const auto [stop, error] = std::from_chars(part.data() + sign + 1, last, value);
    const bool number = error == std::errc() && stop == last && std::isfinite(value) && value > 0;
    if (target == nullptr || *target || !number) return refused();
    *target = value;
  }
  return goal;
}

Percentiles percentiles(std::vector<float> values) {
  Percentiles result;
  result.count = values.size();
  if (values.empty()) return result;
  std::sort(values.begin(), values.end());
  const auto at = [&](std::size_t percent) {
    const std::size_t rank = (values.size() * percent + 99) / 100;  // from 1
    return static_cast<double>(values[std::max<std::size_t>(rank, 1) - 1]);
  };
  result.p50 = at(50);
  result.p90 = at(90);
  result.p99 = at(99);
  return result;
}

void LatencyStats::add(const ItemLatency& item) {
  ++items_;
  prompt_tokens_ += item.prompt_tokens;
  tokens_ += item.tokens;
  if (goal_.met_by(item)) {
    ++good_items_;
    good_tokens_ += item.tokens;
  }
  queue_.push_back(static_cast<float>(item.queue_ms));
  if (item.tokens > 0) ttft_.push_back(static_cast<float>(item.ttft_ms));
  if (item.tpot_ms > 0) tpot_.push_back(static_cast<float>(item.tpot_ms));
  end_.push_back(static_cast<float>(item.end_ms));
}

}  // namespace sluice

#include <algorithm>

#include "src/cli/batch/batch_report.h"
#include "src/cli/numbers.h"

namespace sluice::cli {
namespace {

std::string row(std::string_view name, const Percentiles& values) {
  if (values.count == 0) return fmt::format("  {:<12}{:>10}{:>10}{:>10}\n", name, "-", "-", "-");
  const auto number = [](double ms) {
    return fmt::format("{:.{}f}", ms, ms < 10 ? 2 : ms < 1000 ? 1 : 0);
  };
  return fmt::format("  {:<12}{:>10}{:>10}{:>10}\n", name, number(values.p50), number(values.p90),
                     number(values.p99));
}

std::string goal_text(const LatencyGoal& goal) {
  std::string text;
  if (goal.ttft_ms) text += fmt::format("ttft {} ms", *goal.ttft_ms);
  if (goal.tpot_ms) text += fmt::format("{}tpot {} ms", text.empty() ? "" : ", ", *goal.tpot_ms);
  return text;
}

}  // namespace

std::string batch_summary(const BatchReport& report) {
  const BatchCounts& counts = report.counts;
  const SchedulerStats& stats = report.stats;
  const LatencyStats& latency = report.latency;
  std::string text = fmt::format(
      "sluice: batch{}: {} answered, {} failed, {} already there, in {}\n",
      report.complete ? "" : " (not complete)", counts.done, counts.failed, counts.skipped,
      report.seconds < 60 ? fmt::format("{:.1f}s", report.seconds)
                          : format_seconds(report.seconds));
  if (latency.items() == 0) return text;
  text += fmt::format("  {:<12}{:>10}{:>10}{:>10}\n", "ms", "p50", "p90", "p99");
  text += row("TTFT", latency.ttft());
  text += row("TPOT", latency.tpot());
  text += row("end to end", latency.end_to_end());
  text += row("queue", latency.queue());
  text +=
      fmt::format("  {:<12}{:.2f} items/s, {:.1f} prompt t/s, {:.1f} generated t/s\n", "throughput",
                  report.per_second(latency.items()), report.per_second(latency.prompt_tokens()),
                  report.per_second(latency.tokens()));
  if (latency.goal().any()) {
    text += fmt::format("  {:<12}{:.2f} items/s, {:.1f} generated t/s; {} of {} items within {}\n",
                        "goodput", report.per_second(latency.good_items()),
                        report.per_second(latency.good_tokens()), latency.good_items(),
                        latency.items(), goal_text(latency.goal()));
  }
  if (stats.passes > 0) {
    text += fmt::format("  {:<12}{} slots, {:.1f} rows a pass, {:.2f} ms a pass\n", "batch",
                        report.slots,
                        static_cast<double>(stats.rows) / static_cast<double>(stats.passes),
                        stats.pass_ms / static_cast<double>(stats.passes));
  }
  if (stats.drafted_tokens > 0) {
    text += fmt::format("  {:<12}{} of {} accepted ({:.0f}%)\n", "guesses", stats.accepted_tokens,
                        stats.drafted_tokens,
                        100.0 * static_cast<double>(stats.accepted_tokens) /
                            static_cast<double>(stats.drafted_tokens));
  }
  text += fmt::format("  {:<12}{} of {} blocks of {} tokens at most", "KV cache", stats.blocks_most,
                      stats.blocks_total, report.block_tokens);
  if (stats.prompt_tokens > 0) {
    text += fmt::format(", {:.0f}% of prompt tokens found there",
                        100.0 * static_cast<double>(stats.shared_tokens) /
                            static_cast<double>(stats.prompt_tokens));
  }
  if (stats.preemptions > 0) {
    text += fmt::format(", {} put back, {} tokens run again", stats.preemptions,
                        stats.recomputed_tokens);
  }
  return text + "\n";
}

}  // namespace sluice::cli

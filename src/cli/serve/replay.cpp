#include "src/cli/serve/replay.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>

#include "src/base/rng.h"

namespace sluice::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kPolicies = std::to_array<ServePolicy>({
    {"static", "a group at a time", false, false, false},
    {"continuous", "a free slot is filled at once", true, false, false},
    {"chunked", "and prompts run in chunks beside the others", true, true, false},
    {"prefix", "and equal beginnings of prompts run once", true, true, true},
    {"latency", "and chunks are small", true, true, true, SchedulePolicy::kLatency},
});

// Random tokens, none of which ends a text.
std::int32_t random_token(const Tokenizer& tokenizer, std::uint32_t stream, std::uint64_t index) {
  const auto count = static_cast<double>(tokenizer.vocab_size());
  for (std::uint32_t use = 0;; ++use) {
    const auto id = static_cast<std::int32_t>(uniform(1, stream, index, use) * count);
    if (!tokenizer.is_eog(id)) return id;
  }
}

GenerateRequest make_request(const Engine& engine, const Arrival& arrival, std::uint32_t prefix,
                             std::uint32_t number) {
  GenerateRequest request;
  for (std::uint32_t i = 0; i < prefix; ++i) {
    request.prompt.push_back(random_token(engine.tokenizer(), 0, i));
  }
  for (std::uint32_t i = 0; i < arrival.prompt_tokens; ++i) {
    request.prompt.push_back(random_token(engine.tokenizer(), number + 1, i));
  }
  request.max_tokens = arrival.tokens;
  request.sampling.temperature = 0;
  request.ignore_eos = true;
  return request;
}

}  // namespace

std::span<const ServePolicy> serve_policies() { return kPolicies; }

Result<ReplayResult> replay(Engine& engine, const SchedulerOptions& options,
                            std::span<const Arrival> trace, std::uint32_t prefix,
                            const std::atomic<bool>& cancel,
                            const std::function<void(std::size_t)>& on_done) {
  Scheduler scheduler(engine, options);
  ReplayResult result;
  result.note = scheduler.note();
  const auto start = Clock::now();
  const auto now = [start] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  std::size_t next = 0;
  std::size_t done = 0;
  while (done < trace.size()) {
    while (next < trace.size() && trace[next].at_s <= now()) {
      (void)scheduler.submit(
          make_request(engine, trace[next], prefix, static_cast<std::uint32_t>(next)));
      ++next;
    }
    if (cancel) return make_error(ErrorCode::kInterrupted, "interrupted");
    if (scheduler.idle()) {  // nothing to do until the next one arrives
      const double wait = std::min(trace[next].at_s - now(), 0.05);
      if (wait > 0) std::this_thread::sleep_for(std::chrono::duration<double>(wait));
      continue;
    }
    SLUICE_ASSIGN_OR_RETURN(const std::vector<Finished> finished, scheduler.step(&cancel));
    for (const Finished& each : finished) {
      if (!each.result.ok()) return each.result.error();
      const Timings& timings = each.result->timings;
      ItemLatency latency;
      latency.queue_ms = each.queue_ms;
      latency.ttft_ms = each.queue_ms + timings.ttft_ms;
      latency.tpot_ms = timings.tpot_ms;
      latency.end_ms = latency.ttft_ms + timings.decode_ms;
      latency.prompt_tokens = each.result->prompt_tokens;
      latency.tokens = each.result->tokens.size();
      result.latency.add(latency);
      result.longest_gap_ms = std::max(result.longest_gap_ms, timings.longest_gap_ms);
      ++done;
    }
    if (!finished.empty()) on_done(done);
  }
  result.seconds = now() - trace.front().at_s;
  result.stats = scheduler.stats();
  return result;
}

}  // namespace sluice::cli

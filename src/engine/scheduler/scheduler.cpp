// One request after another, each alone in the cache.
#include "src/engine/scheduler/scheduler.h"

#include <chrono>
#include <deque>

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

double ms_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

}  // namespace

struct Scheduler::Impl {
  struct Waiting {
    Ticket ticket = 0;
    GenerateRequest request;
    Clock::time_point submitted;
  };
  Engine& engine;
  std::deque<Waiting> waiting;
  Ticket last_ticket = 0;
  SchedulerStats stats;
};

Scheduler::Scheduler(Engine& engine, const SchedulerOptions&)
    : impl_(std::make_unique<Impl>(Impl{engine, {}, 0, {}})) {
  impl_->stats.blocks_total = engine.kv().total_blocks();
}

Scheduler::~Scheduler() = default;

Ticket Scheduler::submit(GenerateRequest request) {
  const Ticket ticket = ++impl_->last_ticket;
  impl_->waiting.push_back({ticket, std::move(request), Clock::now()});
  impl_->stats.waiting = static_cast<std::uint32_t>(impl_->waiting.size());
  return ticket;
}

bool Scheduler::idle() const { return impl_->waiting.empty(); }

const SchedulerStats& Scheduler::stats() const { return impl_->stats; }

Result<std::vector<Finished>> Scheduler::step(const std::atomic<bool>* cancel) {
  std::vector<Finished> finished;
  if (impl_->waiting.empty()) return finished;
  Impl::Waiting& next = impl_->waiting.front();
  next.request.cancel = cancel;
  const Clock::time_point began = Clock::now();
  Result<GenerateResult> result = generate(impl_->engine, next.request);
  const bool interrupted = result.ok() ? result->finish == FinishReason::kInterrupted
                                       : result.error().code == ErrorCode::kInterrupted;
  if (interrupted) return make_error(ErrorCode::kInterrupted, "interrupted");

  SchedulerStats& stats = impl_->stats;
  if (result.ok()) {
    const std::uint64_t generated = result->tokens.size();
    stats.passes += 1 + generated;
    stats.rows += result->prompt_tokens + generated;
    stats.prompt_tokens += result->prompt_tokens;
    stats.prefill_tokens += result->prompt_tokens - result->reused_tokens;
    stats.shared_tokens += result->reused_tokens;
    stats.decode_tokens += generated;
    const std::uint32_t block = impl_->engine.kv().block_tokens();
    const auto held = static_cast<std::uint32_t>(result->prompt_tokens + generated);
    stats.blocks_most = std::max(stats.blocks_most, (held + block - 1) / block);
  }
  stats.pass_ms += ms_between(began, Clock::now());
  finished.push_back({next.ticket, std::move(result), ms_between(next.submitted, began)});
  impl_->waiting.pop_front();
  stats.waiting = static_cast<std::uint32_t>(impl_->waiting.size());
  return finished;
}

}  // namespace sluice

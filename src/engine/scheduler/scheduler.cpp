#include "src/engine/scheduler/scheduler.h"

#include <algorithm>
#include <utility>

#include "src/engine/scheduler/scheduler_impl.h"

namespace sluice {
namespace {

constexpr std::uint32_t kLatencyRows = 64;  // of a pass under SchedulePolicy::kLatency

// Sequences at a time whose blocks a pass of so many rows can keep open: each may begin in the
// middle of one block and end in the middle of another.
std::uint32_t most_slots(const Backend& backend, std::uint32_t rows) {
  const std::uint32_t open = backend.max_open_blocks();
  const std::uint32_t filled = rows / backend.block_tokens();
  return std::max(1u, (open - std::min(open, filled)) / 2);
}

}  // namespace

Scheduler::Impl::Impl(Engine& engine, const SchedulerOptions& options)
    : engine_(engine),
      kv_(engine.kv()),
      options_(options),
      tree_(engine.kv()),
      logits_(engine.backend().max_logits(), engine.spec().vocabulary,
              static_cast<std::size_t>(engine.tokenizer().vocab_size())) {
  const Backend& backend = engine.backend();
  options_.slots = std::clamp(options.slots, 1u, backend.max_logits());
  if (options_.step_tokens == 0) {
    options_.step_tokens =
        options_.policy == SchedulePolicy::kLatency ? kLatencyRows : backend.max_rows();
  }
  options_.step_tokens = std::clamp(options_.step_tokens, options_.slots,
                                    std::max(options_.slots, backend.max_rows()));
  if (options_.slots < options.slots) {
    note_ = fmt::format("{} sequences run at a time, not {}: passes have logits for no more",
                        options_.slots, options.slots);
  }
  const std::uint32_t open = most_slots(backend, options_.step_tokens);
  if (open < options_.slots) {
    options_.slots = open;
    note_ = fmt::format(
        "{} sequences run at a time, not {}: the KV cache was made for no more, it can write to {} "
        "blocks in a pass",
        open, options.slots, backend.max_open_blocks());
  }
  stats_.blocks_total = kv_.total_blocks();
}

Scheduler::Impl::~Impl() {
  for (const auto& slot : running_) kv_.release(slot->sequence);
}

Result<std::vector<Finished>> Scheduler::Impl::step(const std::atomic<bool>* cancel) {
  admit();
  SLUICE_RETURN_IF_ERROR(plan());
  if (!rows_.empty()) SLUICE_RETURN_IF_ERROR(run(cancel));
  update_stats();
  return std::exchange(finished_, {});
}

Status Scheduler::Impl::run(const std::atomic<bool>* cancel) {
  const auto start = std::chrono::steady_clock::now();
  SLUICE_ASSIGN_OR_RETURN(const PassTraffic traffic,
                          engine_.run(rows_, logits_.out(wanted_, top_needed()), cancel));
  const double ms = ms_since(start);
  ++stats_.passes;
  stats_.rows += rows_.size();
  stats_.pass_ms += ms;
  if (controller_ != nullptr && wanted_ == rows_.size()) {  // nothing but decoding
    controller_->observe_pass(rows_.size(), ms);
  }
  std::vector<std::unique_ptr<Slot>> still;
  for (auto& slot : running_) {
    const Status status = slot->rows == 0    ? Status()
                          : slot->prefilling ? prompt_ran(*slot)
                                             : decoded(*slot, ms, traffic);
    if (status.ok() && !slot->generation->ended()) {
      still.push_back(std::move(slot));
    } else {
      retire(*slot, status);
    }
  }
  running_ = std::move(still);
  return {};
}

std::size_t Scheduler::Impl::top_needed() const {
  std::size_t most = 0;
  for (const auto& slot : running_) {
    if (slot->logits == Slot::kNoLogits) continue;
    const std::size_t top = slot->generation->top_needed();
    if (top == 0) return 0;
    most = std::max(most, top);
  }
  return most <= engine_.backend().most_top_logits() ? most : 0;
}

Status Scheduler::Impl::prompt_ran(Slot& slot) {
  const std::size_t length = kv_.length(slot.sequence);
  const std::size_t total = slot.needed().size();
  const std::size_t fresh =
      slot.drew || length < slot.reach ? 0 : std::min(length - slot.reach, slot.rows);
  stats_.prefill_tokens += fresh;
  stats_.recomputed_tokens += slot.rows - fresh;
  slot.reach = std::max(slot.reach, length);
  if (options_.share_prefixes) tree_.insert(slot.needed().first(length), slot.sequence);
  const GenerateRequest& request = slot.generation->request();
  if (request.on_prefill && !slot.drew) request.on_prefill(length, total);
  if (length < total) return {};
  slot.prefilling = false;
  if (slot.drew) return {};
  slot.drew = true;
  stats_.prompt_tokens += total;
  stats_.shared_tokens += slot.shared;
  SLUICE_RETURN_IF_ERROR(slot.generation->prompt_done(slot.shared));
  if (slot.generation->ended()) return {};
  ++stats_.decode_tokens;
  return slot.generation->advance(logits_, slot.logits, {});
}

Status Scheduler::Impl::decoded(Slot& slot, double ms, const PassTraffic& traffic) {
  // Each row's share of what was read for all of them.
  const auto share = [&](std::uint64_t bytes) { return bytes * slot.rows / rows_.size(); };
  slot.generation->pass_done(ms, {share(traffic.weight_bytes), share(traffic.kv_bytes)});
  const auto length = static_cast<std::uint32_t>(slot.generation->held());
  SLUICE_RETURN_IF_ERROR(slot.generation->advance(logits_, slot.logits, {}));
  const std::span<const std::uint32_t> path = slot.generation->path();
  kv_.truncate(slot.sequence, length + static_cast<std::uint32_t>(path.size()));
  stats_.decode_tokens += path.size();
  return {};
}

void Scheduler::Impl::retire(Slot& slot, const Status& status) {
  kv_.release(slot.sequence);
  if (slot.speculator != nullptr) {
    stats_.drafted_tokens += slot.speculator->stats().drafted();
    stats_.accepted_tokens += slot.speculator->stats().accepted();
  }
  Result<GenerateResult> result =
      status.ok() ? slot.generation->finish() : Result<GenerateResult>(status.error());
  finished_.push_back({slot.ticket, std::move(result), slot.queue_ms});
}

void Scheduler::Impl::update_stats() {
  stats_.running = static_cast<std::uint32_t>(running_.size());
  stats_.waiting = static_cast<std::uint32_t>(waiting_.size());
  stats_.blocks_kept = tree_.reclaimable();
  stats_.blocks_used = kv_.total_blocks() - kv_.free_blocks();
  stats_.blocks_most = std::max(stats_.blocks_most, stats_.blocks_used);
}

Scheduler::Scheduler(Engine& engine, const SchedulerOptions& options)
    : impl_(std::make_unique<Impl>(engine, options)) {}
Scheduler::~Scheduler() = default;
Ticket Scheduler::submit(GenerateRequest request) { return impl_->submit(std::move(request)); }
bool Scheduler::idle() const { return impl_->idle(); }
Result<std::vector<Finished>> Scheduler::step(const std::atomic<bool>* cancel) {
  return impl_->step(cancel);
}
const SchedulerStats& Scheduler::stats() const { return impl_->stats(); }
const std::string& Scheduler::note() const { return impl_->note(); }

}  // namespace sluice

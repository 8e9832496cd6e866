#include "src/engine/scheduler/scheduler.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <utility>

#include "src/engine/generation.h"
#include "src/kv/prefix_tree.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kLatencyRows = 64;  // of a pass under SchedulePolicy::kLatency
constexpr std::size_t kNoLogits = static_cast<std::size_t>(-1);

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

std::size_t common_prefix(std::span<const std::int32_t> a, std::span<const std::int32_t> b) {
  const auto ends = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<std::size_t>(ends.first - a.begin());
}

// A request that has a sequence, or had one and was put back.
struct Slot {
  Ticket ticket = 0;
  double queue_ms = 0;
  std::unique_ptr<Speculator> speculator;
  std::unique_ptr<Generation> generation;
  SequenceId sequence = 0;
  bool prefilling = true;  // the cache lacks tokens that the next draw depends on
  bool drew = false;       // its prompt was run before: what is missing is run again
  std::size_t shared = 0;  // tokens of the prompt found in the cache
  std::size_t reach = 0;   // tokens that it ever had there: what is run below is run again
  // Another slot runs the beginning of this one's prompt now; it waits until that one has so many
  // tokens. donor == 0: none.
  Ticket donor = 0;
  std::size_t donor_tokens = 0;

  // Of the pass that is made.
  TokenTree tree;  // decoding
  std::size_t rows = 0;
  std::size_t logits = kNoLogits;  // index of its first row of logits

  // Tokens that must be in the cache, and those of them that must be run for their logits.
  std::span<const std::int32_t> needed() const {
    return generation->text().first(generation->held());
  }
  std::size_t shareable() const { return needed().size() - (drew ? 0 : 1); }
};

struct Waiting {
  Ticket ticket = 0;
  Clock::time_point since;
  GenerateRequest request;
  std::unique_ptr<Slot> slot;  // of one that was put back

  std::size_t tokens() const { return slot ? slot->needed().size() : request.prompt.size(); }
};

}  // namespace

class Scheduler::Impl {
 public:
  Impl(Engine& engine, const SchedulerOptions& options)
      : engine_(engine), kv_(engine.kv()), options_(options), tree_(engine.kv()) {
    const Backend& backend = engine.backend();
    options_.slots = std::clamp(options.slots, 1u, backend.max_logits());
    if (options_.step_tokens == 0) {
      options_.step_tokens =
          options_.policy == SchedulePolicy::kLatency ? kLatencyRows : backend.max_rows();
    }
    options_.step_tokens = std::clamp(options_.step_tokens, options_.slots,
                                      std::max(options_.slots, backend.max_rows()));
    logits_.resize(std::size_t{backend.max_logits()} * engine.spec().vocabulary);
    stats_.blocks_total = kv_.total_blocks();
  }
  ~Impl() {
    for (const auto& slot : running_) kv_.release(slot->sequence);
  }

  Ticket submit(GenerateRequest request) {
    waiting_.push_back({++last_ticket_, Clock::now(), std::move(request), nullptr});
    update_stats();
    return last_ticket_;
  }
  bool idle() const { return running_.empty() && waiting_.empty() && finished_.empty(); }
  const SchedulerStats& stats() const { return stats_; }

  Result<std::vector<Finished>> step(const std::atomic<bool>* cancel) {
    admit();
    SLUICE_RETURN_IF_ERROR(plan());
    if (!rows_.empty()) SLUICE_RETURN_IF_ERROR(run(cancel));
    update_stats();
    return std::exchange(finished_, {});
  }

 private:
  std::uint32_t blocks_for(std::size_t tokens) const {
    const std::uint32_t size = kv_.block_tokens();
    return static_cast<std::uint32_t>((tokens + size - 1) / size);
  }

  void update_stats() {
    stats_.running = static_cast<std::uint32_t>(running_.size());
    stats_.waiting = static_cast<std::uint32_t>(waiting_.size());
    stats_.blocks_kept = tree_.reclaimable();
    stats_.blocks_used = kv_.total_blocks() - kv_.free_blocks();
    stats_.blocks_most = std::max(stats_.blocks_most, stats_.blocks_used);
  }

  // --- admission

  void admit() {
    if (!options_.continuous && !running_.empty()) return;
    while (!waiting_.empty() && running_.size() < options_.slots && fits(waiting_.front())) {
      Waiting next = std::move(waiting_.front());
      waiting_.pop_front();
      std::unique_ptr<Slot> slot = std::move(next.slot);
      if (slot == nullptr) {
        Result<std::unique_ptr<Slot>> made = make_slot(next);
        if (!made.ok()) {
          finished_.push_back({next.ticket, made.error(), ms_since(next.since)});
          continue;
        }
        slot = std::move(made).value();
      }
      slot->sequence = kv_.create();
      slot->prefilling = true;
      find_donor(*slot);
      running_.push_back(std::move(slot));
    }
  }

  // Whether the cache has blocks for all its tokens and one more for each sequence to grow into. A
  // sequence alone always fits.
  bool fits(const Waiting& next) {
    if (running_.empty()) return true;
    std::uint32_t needed =
        blocks_for(next.tokens() + 1) + static_cast<std::uint32_t>(running_.size());
    std::uint32_t available = kv_.free_blocks() + tree_.reclaimable();
    if (options_.share_prefixes) {
      const auto tokens = next.slot ? next.slot->needed() : std::span(next.request.prompt);
      for (const std::uint32_t block : tree_.find(tokens)) {
        --needed;
        if (kv_.owners(block) == 1) --available;
      }
    }
    return needed <= available;
  }

  Result<std::unique_ptr<Slot>> make_slot(Waiting& next) {
    auto slot = std::make_unique<Slot>();
    slot->ticket = next.ticket;
    slot->queue_ms = ms_since(next.since);
    if (options_.drafters) {
      std::vector<std::unique_ptr<Drafter>> drafters = options_.drafters();
      if (controller_ == nullptr) controller_ = std::make_shared<DraftController>(drafters.size());
      slot->speculator =
          std::make_unique<Speculator>(std::move(drafters), options_.speculation, controller_);
    }
    next.request.speculator = slot->speculator.get();
    SLUICE_ASSIGN_OR_RETURN(slot->generation, Generation::create(engine_, std::move(next.request)));
    return slot;
  }

  // A slot whose prompt begins like that of one that is being run waits for it: the blocks in
  // common are run once.
  void find_donor(Slot& slot) {
    if (!options_.share_prefixes) return;
    const std::size_t size = kv_.block_tokens();
    std::size_t best = tree_.find(slot.needed().first(slot.shareable())).size() * size;
    for (const auto& other : running_) {
      if (!other->prefilling) continue;
      const std::size_t common =
          common_prefix(other->needed(), slot.needed().first(slot.shareable())) / size * size;
      if (common <= best) continue;
      best = common;
      slot.donor = other->ticket;
      slot.donor_tokens = common;
    }
  }

  bool waits_for_donor(Slot& slot) {
    if (slot.donor == 0) return false;
    const auto donor = std::find_if(running_.begin(), running_.end(),
                                    [&](const auto& other) { return other->ticket == slot.donor; });
    const bool waits = donor != running_.end() && (*donor)->prefilling &&
                       kv_.length((*donor)->sequence) < slot.donor_tokens;
    if (!waits) slot.donor = 0;
    return waits;
  }

  // --- a pass

  // Frees blocks until the sequence can grow to `tokens`: kept prefixes first, then, if `preempt`,
  // the youngest sequences. false: there are not enough, or the slot itself was put back.
  bool make_room(const Slot& slot, std::size_t tokens, bool preempt) {
    const auto wanted = static_cast<std::uint32_t>(tokens);
    for (;;) {
      const std::uint32_t missing = kv_.blocks_missing(slot.sequence, wanted);
      if (missing <= kv_.free_blocks()) return true;
      if (tree_.evict(missing - kv_.free_blocks()) > 0) continue;
      if (!preempt || running_.size() == 1) return false;
      const bool itself = running_.back().get() == &slot;
      put_back_youngest();
      if (itself) return false;
    }
  }

  void put_back_youngest() {
    std::unique_ptr<Slot> slot = std::move(running_.back());
    running_.pop_back();
    kv_.release(slot->sequence);
    for (const auto& other : running_) {
      if (other->donor == slot->ticket) other->donor = 0;
    }
    slot->donor = 0;
    ++stats_.preemptions;
    const Ticket ticket = slot->ticket;
    waiting_.push_front({ticket, Clock::now(), {}, std::move(slot)});
  }

  Status plan() {
    for (;;) {
      rows_.clear();
      wanted_ = 0;
      for (const auto& slot : running_) {
        slot->rows = 0;
        slot->logits = kNoLogits;
      }
      const bool prompts = std::any_of(running_.begin(), running_.end(),
                                       [](const auto& slot) { return slot->prefilling; });
      const bool alone =
          prompts && !options_.chunked_prefill;  // prompts have the pass to themselves
      bool complete = false;                     // a prompt was found in the cache whole
      if (!alone) SLUICE_RETURN_IF_ERROR(plan_decoding(prompts));
      if (prompts) SLUICE_RETURN_IF_ERROR(plan_prompts(complete));
      if (alone && rows_.empty()) SLUICE_RETURN_IF_ERROR(plan_decoding(prompts));
      if (!rows_.empty() || running_.empty()) return {};
      if (complete) continue;
      if (running_.size() == 1) return no_room();
      put_back_youngest();
    }
  }

  Error no_room() const {
    return failed("the KV cache of {} blocks has no room for one sequence", kv_.total_blocks());
  }

  Status plan_decoding(bool beside_prompts) {
    std::size_t left = static_cast<std::size_t>(std::count_if(
        running_.begin(), running_.end(), [](const auto& slot) { return !slot->prefilling; }));
    PassLoad planned;
    for (std::size_t i = 0; i < running_.size(); ++i) {
      Slot& slot = *running_[i];
      if (slot.prefilling) continue;
      const std::size_t length = slot.generation->held();
      const bool alone = running_.size() == 1;
      if (!make_room(slot, length + 1, true)) {
        if (alone) return no_room();
        break;  // it was the youngest and is put back
      }
      --left;
      // Guesses take what room there is, and none beside prompts, where rows are not nearly free.
      std::size_t most = 1;
      if (!beside_prompts && slot.speculator != nullptr) {
        const std::size_t size = kv_.block_tokens();
        const std::size_t room =
            std::max<std::size_t>(kv_.blocks(slot.sequence).size() * size, length) - length +
            std::size_t{kv_.free_blocks()} * size;
        const std::size_t logits = engine_.backend().max_logits() - wanted_ - left;
        const std::size_t rows = options_.step_tokens - rows_.size() - left;
        most = std::min({room, logits, rows, DraftController::kMostDrafted + 1});
      }
      const PassLoad beside = {planned.rows + left, planned.tokens + static_cast<double>(left)};
      SLUICE_ASSIGN_OR_RETURN(slot.tree,
                              slot.generation->plan(std::max<std::size_t>(most, 1), beside));
      if (slot.tree.paths().size() > 1) slot.tree = slot.generation->plan_first_path();
      planned.rows += slot.tree.size();
      planned.tokens += slot.speculator == nullptr ? 1 : slot.speculator->expected_tokens();
      SLUICE_RETURN_IF_ERROR(add_rows(slot, slot.tree.tokens, length, slot.tree.size()));
    }
    return {};
  }

  Status plan_prompts(bool& complete) {
    for (std::size_t i = 0; i < running_.size() && rows_.size() < options_.step_tokens; ++i) {
      Slot& slot = *running_[i];
      if (!slot.prefilling || waits_for_donor(slot)) continue;
      if (kv_.length(slot.sequence) == 0) adopt_prefix(slot);
      const std::size_t length = kv_.length(slot.sequence);
      const std::span<const std::int32_t> missing = slot.needed().subspan(length);
      if (missing.empty()) {
        slot.prefilling = false;
        complete = true;
        continue;
      }
      std::size_t count = std::min(missing.size(), options_.step_tokens - rows_.size());
      while (count > 0 && !make_room(slot, length + count, false)) count /= 2;
      const bool wants = !slot.drew && count == missing.size();
      if (wants && wanted_ == engine_.backend().max_logits()) --count;
      if (count == 0) continue;
      const bool last = !slot.drew && count == missing.size();
      SLUICE_RETURN_IF_ERROR(add_rows(slot, missing.first(count), length, last ? 1 : 0));
    }
    return {};
  }

  void adopt_prefix(Slot& slot) {
    if (!options_.share_prefixes) return;
    const std::vector<std::uint32_t> blocks = tree_.find(slot.needed().first(slot.shareable()));
    kv_.adopt(slot.sequence, blocks,
              static_cast<std::uint32_t>(blocks.size()) * kv_.block_tokens());
    const std::size_t found = blocks.size() * kv_.block_tokens();
    if (!slot.drew && found > slot.reach) slot.shared += found - slot.reach;
    slot.reach = std::max(slot.reach, found);
  }

  // Rows behind `length` tokens; the last `logits` of them want logits.
  Status add_rows(Slot& slot, std::span<const std::int32_t> tokens, std::size_t length,
                  std::size_t logits) {
    SLUICE_RETURN_IF_ERROR(
        engine_.reserve(slot.sequence, static_cast<std::uint32_t>(length + tokens.size())));
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      rows_.push_back({tokens[i], static_cast<std::uint32_t>(length + i), slot.sequence,
                       i + logits >= tokens.size()});
    }
    slot.rows = tokens.size();
    if (logits == 0) return {};
    slot.logits = wanted_;
    wanted_ += logits;
    return {};
  }

  Status run(const std::atomic<bool>* cancel) {
    const auto start = Clock::now();
    SLUICE_ASSIGN_OR_RETURN(const PassTraffic traffic, engine_.run(rows_, logits_, cancel));
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

  std::span<const float> logits_of(const Slot& slot) const {
    return std::span(logits_).subspan(slot.logits * engine_.spec().vocabulary);
  }

  Status prompt_ran(Slot& slot) {
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
    return slot.generation->advance(logits_of(slot), {});
  }

  Status decoded(Slot& slot, double ms, const PassTraffic& traffic) {
    // Each row's share of what was read for all of them.
    const auto share = [&](std::uint64_t bytes) { return bytes * slot.rows / rows_.size(); };
    slot.generation->pass_done(ms, {share(traffic.weight_bytes), share(traffic.kv_bytes)});
    const auto length = static_cast<std::uint32_t>(slot.generation->held());
    SLUICE_RETURN_IF_ERROR(slot.generation->advance(logits_of(slot), {}));
    const std::span<const std::uint32_t> path = slot.generation->path();
    kv_.truncate(slot.sequence, length + static_cast<std::uint32_t>(path.size()));
    stats_.decode_tokens += path.size();
    return {};
  }

  void retire(Slot& slot, const Status& status) {
    kv_.release(slot.sequence);
    if (slot.speculator != nullptr) {
      stats_.drafted_tokens += slot.speculator->stats().drafted();
      stats_.accepted_tokens += slot.speculator->stats().accepted();
    }
    Result<GenerateResult> result =
        status.ok() ? slot.generation->finish() : Result<GenerateResult>(status.error());
    finished_.push_back({slot.ticket, std::move(result), slot.queue_ms});
  }

  Engine& engine_;
  KvCache& kv_;
  SchedulerOptions options_;
  PrefixTree tree_;
  std::shared_ptr<DraftController> controller_;
  std::deque<Waiting> waiting_;
  std::vector<std::unique_ptr<Slot>> running_;  // in the order of admission
  std::vector<Finished> finished_;              // not yet told
  Ticket last_ticket_ = 0;
  SchedulerStats stats_;

  // The pass that is made.
  std::vector<BatchRow> rows_;
  std::size_t wanted_ = 0;     // rows with logits
  std::vector<float> logits_;  // [max_logits, vocabulary]
};

Scheduler::Scheduler(Engine& engine, const SchedulerOptions& options)
    : impl_(std::make_unique<Impl>(engine, options)) {}
Scheduler::~Scheduler() = default;
Ticket Scheduler::submit(GenerateRequest request) { return impl_->submit(std::move(request)); }
bool Scheduler::idle() const { return impl_->idle(); }
Result<std::vector<Finished>> Scheduler::step(const std::atomic<bool>* cancel) {
  return impl_->step(cancel);
}
const SchedulerStats& Scheduler::stats() const { return impl_->stats(); }

}  // namespace sluice

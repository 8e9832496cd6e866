#include <algorithm>
#include <utility>

#include "src/engine/scheduler/scheduler_impl.h"

namespace sluice {
namespace {

std::size_t common_prefix(std::span<const std::int32_t> a, std::span<const std::int32_t> b) {
  const auto ends = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<std::size_t>(ends.first - a.begin());
}

}  // namespace

Ticket Scheduler::Impl::submit(GenerateRequest request) {
  waiting_.push_back(
      {++last_ticket_, std::chrono::steady_clock::now(), std::move(request), nullptr});
  update_stats();
  return last_ticket_;
}

void Scheduler::Impl::admit() {
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

bool Scheduler::Impl::fits(const Waiting& next) {
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

Result<std::unique_ptr<Slot>> Scheduler::Impl::make_slot(Waiting& next) {
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

void Scheduler::Impl::find_donor(Slot& slot) {
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

bool Scheduler::Impl::waits_for_donor(Slot& slot) {
  if (slot.donor == 0) return false;
  const auto donor = std::find_if(running_.begin(), running_.end(),
                                  [&](const auto& other) { return other->ticket == slot.donor; });
  const bool waits = donor != running_.end() && (*donor)->prefilling &&
                     kv_.length((*donor)->sequence) < slot.donor_tokens;
  if (!waits) slot.donor = 0;
  return waits;
}

void Scheduler::Impl::put_back_youngest() {
  std::unique_ptr<Slot> slot = std::move(running_.back());
  running_.pop_back();
  kv_.release(slot->sequence);
  for (const auto& other : running_) {
    if (other->donor == slot->ticket) other->donor = 0;
  }
  slot->donor = 0;
  ++stats_.preemptions;
  const Ticket ticket = slot->ticket;
  waiting_.push_front({ticket, std::chrono::steady_clock::now(), {}, std::move(slot)});
}

}  // namespace sluice

#include <algorithm>

#include "src/engine/scheduler/scheduler_impl.h"

namespace sluice {

Status Scheduler::Impl::plan() {
  for (;;) {
    rows_.clear();
    wanted_ = 0;
    for (const auto& slot : running_) {
      slot->rows = 0;
      slot->logits = Slot::kNoLogits;
    }
    const bool prompts = std::any_of(running_.begin(), running_.end(),
                                     [](const auto& slot) { return slot->prefilling; });
    const bool alone = prompts && !options_.chunked_prefill;  // prompts have the pass to themselves
    bool complete = false;  // a prompt was found in the cache whole
    if (!alone) SLUICE_RETURN_IF_ERROR(plan_decoding(prompts));
    if (prompts) SLUICE_RETURN_IF_ERROR(plan_prompts(complete));
    if (alone && rows_.empty()) SLUICE_RETURN_IF_ERROR(plan_decoding(prompts));
    if (!rows_.empty() || running_.empty()) return {};
    if (complete) continue;
    if (running_.size() == 1) return no_room();
    put_back_youngest();
  }
}

Status Scheduler::Impl::plan_decoding(bool beside_prompts) {
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

Status Scheduler::Impl::plan_prompts(bool& complete) {
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

bool Scheduler::Impl::make_room(const Slot& slot, std::size_t tokens, bool preempt) {
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

void Scheduler::Impl::adopt_prefix(Slot& slot) {
  if (!options_.share_prefixes) return;
  const std::vector<std::uint32_t> blocks = tree_.find(slot.needed().first(slot.shareable()));
  kv_.adopt(slot.sequence, blocks, static_cast<std::uint32_t>(blocks.size()) * kv_.block_tokens());
  const std::size_t found = blocks.size() * kv_.block_tokens();
  if (!slot.drew && found > slot.reach) slot.shared += found - slot.reach;
  slot.reach = std::max(slot.reach, found);
}

Status Scheduler::Impl::add_rows(Slot& slot, std::span<const std::int32_t> tokens,
                                 std::size_t length, std::size_t logits) {
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

Error Scheduler::Impl::no_room() const {
  return failed("the KV cache of {} blocks has no room for one sequence", kv_.total_blocks());
}

}  // namespace sluice

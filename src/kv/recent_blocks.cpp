#include "src/kv/recent_blocks.h"

#include <algorithm>
#include <utility>

namespace sluice {

RecentBlocks::RecentBlocks(std::uint32_t blocks, std::uint32_t block_tokens, std::uint32_t slots)
    : block_tokens_(block_tokens), slot_of_(blocks, kNone), slots_(slots) {}

std::uint32_t RecentBlocks::slots_for(std::uint32_t blocks, std::uint32_t block_tokens,
                                      std::uint32_t sequences, std::uint32_t rows) {
  // Each sequence has the block that it ends in, and one more where its rows of a pass begin in the
  // middle of one block and end in the middle of another; the rest of the rows fill blocks.
  const std::uint64_t most =
      std::uint64_t{rows} / block_tokens + std::uint64_t{2} * std::max(sequences, 1u);
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(most, blocks));
}

std::uint32_t RecentBlocks::tokens(std::uint32_t block) const {
  const std::uint32_t slot = slot_of_[block];
  return slot == kNone ? 0 : slots_[slot].tokens;
}

Status RecentBlocks::open(std::span<const BlockWrite> writes, const KvCache& kv) {
  for (const BlockWrite& write : writes) {
    if (tokens(write.block) >= write.begin) continue;
    return failed(
        "internal error: a pass goes on at token {} of block {} of the KV cache, of which only "
        "{} tokens are still held unquantized",
        write.begin, write.block, tokens(write.block));
  }
  ++clock_;
  std::vector<std::uint32_t> missing;
  for (const BlockWrite& write : writes) {
    const std::uint32_t slot = slot_of_[write.block];
    if (slot == kNone) {
      missing.push_back(write.block);
    } else {
      slots_[slot].used = clock_;
    }
  }
  SLUICE_RETURN_IF_ERROR(take(missing, kv));
  for (const BlockWrite& write : writes) slots_[slot_of_[write.block]].tokens = write.begin;
  return {};
}

void RecentBlocks::written(std::span<const BlockWrite> writes) {
  for (const BlockWrite& write : writes) slots_[slot_of_[write.block]].tokens = write.end;
}

Result<std::optional<RecentBlocks::SlotCopy>> RecentBlocks::copy(BlockCopy blocks,
                                                                 const KvCache& kv) {
  const std::uint32_t from = slot_of_[blocks.from];
  if (from == kNone) {
    forget(blocks.to);
    return std::optional<SlotCopy>{};
  }
  slots_[from].used = ++clock_;
  if (slot_of_[blocks.to] == kNone) SLUICE_RETURN_IF_ERROR(take({&blocks.to, 1}, kv));
  Slot& to = slots_[slot_of_[blocks.to]];
  to.tokens = slots_[from].tokens;
  to.used = clock_;
  return std::optional<SlotCopy>({from, slot_of_[blocks.to]});
}

void RecentBlocks::forget(std::uint32_t block) {
  const std::uint32_t slot = std::exchange(slot_of_[block], kNone);
  if (slot != kNone) slots_[slot] = Slot{};
}

Status RecentBlocks::take(std::span<const std::uint32_t> blocks, const KvCache& kv) {
  if (blocks.empty()) return {};
  std::vector<bool> kept(slots_.size());
  for (std::size_t i = 0; i < slots_.size(); ++i) kept[i] = slots_[i].used == clock_;
  for (SequenceId id = 0; id < kv.sequences(); ++id) {
    const std::uint32_t length = kv.length(id);
    if (length % block_tokens_ == 0) continue;
    const std::uint32_t slot = slot_of_[kv.blocks(id)[length / block_tokens_]];
    if (slot != kNone) kept[slot] = true;
  }
  std::vector<std::uint32_t> candidates;
  for (std::uint32_t i = 0; i < slots_.size(); ++i) {
    if (!kept[i]) candidates.push_back(i);
  }
  if (candidates.size() < blocks.size()) {
    return failed(
        "the KV cache holds {} blocks unquantized, which is too few for {} more beside those in "
        "use: run fewer sequences at a time, or shorter passes",
        slots_.size(), blocks.size());
  }
  std::sort(candidates.begin(), candidates.end(), [this](std::uint32_t a, std::uint32_t b) {
    return std::pair(slots_[a].used, a) < std::pair(slots_[b].used, b);  // free ones have 0
  });
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    Slot& slot = slots_[candidates[i]];
    if (slot.block != kNone) slot_of_[slot.block] = kNone;
    slot = {blocks[i], 0, clock_};
    slot_of_[blocks[i]] = candidates[i];
  }
  return {};
}

}  // namespace sluice

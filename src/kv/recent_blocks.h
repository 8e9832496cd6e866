// Which blocks of a KV cache are also held in a finer form: caches of few bits quantize a block
// when it is full, from the keys and values of its tokens, which until then, and for a while after,
// lie in a slot of a small pool. Logic only; the bytes of the slots live in the backend.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "src/kv/kv_cache.h"

namespace sluice {

// Tokens [begin, end) of a block, which a pass writes.
struct BlockWrite {
  std::uint32_t block = 0;
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
};

// A slot holds the first tokens of one block. Slots are taken anew when none is free: never from a
// block of the same pass, nor from the block that some sequence ends in the middle of, else from
// the one not used for longest. Not thread-safe.
class RecentBlocks {
 public:
  static constexpr std::uint32_t kNone = 0xffffffff;

  // For a cache of `blocks` blocks.
  RecentBlocks(std::uint32_t blocks, std::uint32_t block_tokens, std::uint32_t slots);
  // Slots that never run out with so many sequences at a time and passes of so many rows; no more
  // than there are blocks.
  static std::uint32_t slots_for(std::uint32_t blocks, std::uint32_t block_tokens,
                                 std::uint32_t sequences, std::uint32_t rows);

  std::uint32_t slots() const { return static_cast<std::uint32_t>(slots_.size()); }
  // Where a block is held; kNone: nowhere.
  std::uint32_t slot(std::uint32_t block) const { return slot_of_[block]; }
  // The first tokens of a block that its slot holds; 0 without one.
  std::uint32_t tokens(std::uint32_t block) const;

  // A pass is to write these blocks: each gets a slot, which holds the tokens before `begin`, and
  // until written() no more. kFailed where those are not held, or more slots are needed than there
  // are; nothing has been forgotten then.
  Status open(std::span<const BlockWrite> writes, const KvCache& kv);
  // The pass is done.
  void written(std::span<const BlockWrite> writes);

  struct SlotCopy {
    std::uint32_t from = 0;
    std::uint32_t to = 0;
  };
  // A block gets the content of another one: which slots to copy, if the other one has any.
  // kFailed where no slot is left.
  Result<std::optional<SlotCopy>> copy(BlockCopy blocks, const KvCache& kv);
  // The block's content is replaced by something else.
  void forget(std::uint32_t block);

 private:
  struct Slot {
    std::uint32_t block = kNone;
    std::uint32_t tokens = 0;
    std::uint64_t used = 0;
  };
  // Gives each of the blocks a slot; those used at this very time stay where they are.
  Status take(std::span<const std::uint32_t> blocks, const KvCache& kv);

  std::uint32_t block_tokens_;
  std::vector<std::uint32_t> slot_of_;  // of each block
  std::vector<Slot> slots_;
  std::uint64_t clock_ = 0;
};

}  // namespace sluice

// The logical side of the paged KV cache: which blocks hold which tokens of which sequence. The
// bytes live in the backend. Method: PagedAttention (Kwon et al., 2023).
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "src/base/status.h"

namespace sluice {

using SequenceId = std::uint32_t;

// Keys and values of a block that must be copied before the next pass.
struct BlockCopy {
  std::uint32_t from = 0;
  std::uint32_t to = 0;
};

// A pool of equal blocks and the sequences that use them. A block may belong to several owners
// (sequences that begin alike, a PrefixTree) and is free when none is left; a sequence that is to
// write into such a block gets a copy first. Not thread-safe.
class KvCache {
 public:
  // `blocks` blocks of `block_tokens` tokens each.
  KvCache(std::uint32_t blocks, std::uint32_t block_tokens);

  std::uint32_t block_tokens() const { return block_tokens_; }
  std::uint32_t total_blocks() const { return total_blocks_; }
  std::uint32_t free_blocks() const { return static_cast<std::uint32_t>(free_.size()); }

  // A new, empty sequence. Ids of released sequences are used again.
  SequenceId create();
  void release(SequenceId sequence);

  // Ids are below this; those of released sequences hold nothing.
  std::uint32_t sequences() const { return static_cast<std::uint32_t>(sequences_.size()); }
  // Tokens whose keys and values are valid.
  std::uint32_t length(SequenceId sequence) const { return sequences_[sequence].length; }
  // The sequence's blocks in order; token p lies in blocks()[p / block_tokens].
  std::span<const std::uint32_t> blocks(SequenceId sequence) const {
    return sequences_[sequence].blocks;
  }

  // Blocks that reserve(sequence, tokens) would take.
  std::uint32_t blocks_missing(SequenceId sequence, std::uint32_t tokens) const;
  // Makes room for tokens [0, tokens), of which those from length() on will be written. Fails
  // without a change when the pool has too few blocks.
  Status reserve(SequenceId sequence, std::uint32_t tokens);
  // Copies that reserve() asked for since the last call; the caller does them before the next pass.
  std::vector<BlockCopy> take_copies() { return std::exchange(copies_, {}); }

  // Makes an empty sequence hold these blocks too, valid to `length`; requires room for it in them.
  void adopt(SequenceId sequence, std::span<const std::uint32_t> blocks, std::uint32_t length);
  // Gives up a sequence's block at `index` for one with the same bytes.
  void replace_block(SequenceId sequence, std::uint32_t index, std::uint32_t block);
  // Another owner of a block, and one less.
  void retain(std::uint32_t block) { ++owners_[block]; }
  void release_block(std::uint32_t block);
  std::uint32_t owners(std::uint32_t block) const { return owners_[block]; }
  // Says that tokens [0, length) are valid now; requires room for them.
  void set_length(SequenceId sequence, std::uint32_t length);
  // Forgets tokens from `length` on (a rejected draft, a changed prompt) and frees whole blocks.
  void truncate(SequenceId sequence, std::uint32_t length);

 private:
  struct Sequence {
    std::vector<std::uint32_t> blocks;
    std::uint32_t length = 0;
  };
  std::uint32_t blocks_for(std::uint32_t tokens) const;
  // Whether the block that the next token goes to has other owners.
  bool writes_into_shared(const Sequence& s, std::uint32_t tokens) const;
  std::uint32_t take_block();

  std::uint32_t block_tokens_;
  std::uint32_t total_blocks_;
  std::vector<std::uint32_t> free_;    // used as a stack
  std::vector<std::uint32_t> owners_;  // of each block
  std::vector<BlockCopy> copies_;
  std::vector<Sequence> sequences_;
  std::vector<SequenceId> unused_;
};

}  // namespace sluice

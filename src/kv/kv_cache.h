// The logical side of the paged KV cache: which blocks hold which tokens of which sequence. The
// bytes live in the backend. Method: PagedAttention (Kwon et al., 2023).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/base/status.h"

namespace sluice {

using SequenceId = std::uint32_t;

// A pool of equal blocks and the sequences that use them. Not thread-safe.
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

  // Tokens whose keys and values are valid.
  std::uint32_t length(SequenceId sequence) const { return sequences_[sequence].length; }
  // The sequence's blocks in order; token p lies in blocks()[p / block_tokens].
  std::span<const std::uint32_t> blocks(SequenceId sequence) const {
    return sequences_[sequence].blocks;
  }

  // Makes room for tokens [0, tokens). Fails without a change when the pool has too few blocks.
  Status reserve(SequenceId sequence, std::uint32_t tokens);
  // Says that tokens [0, length) are valid now; requires room for them.
  void set_length(SequenceId sequence, std::uint32_t length);
  // Forgets tokens from `length` on (a rejected draft, a changed prompt) and frees whole blocks.
  void truncate(SequenceId sequence, std::uint32_t length);

 private:
  struct Sequence {
    std::vector<std::uint32_t> blocks;
    std::uint32_t length = 0;
  };
  std::uint32_t block_tokens_;
  std::uint32_t total_blocks_;
  std::vector<std::uint32_t> free_;  // used as a stack
  std::vector<Sequence> sequences_;
  std::vector<SequenceId> unused_;
};

}  // namespace sluice

#include "src/kv/kv_cache.h"

#include <algorithm>

namespace sluice {

KvCache::KvCache(std::uint32_t blocks, std::uint32_t block_tokens)
    : block_tokens_(block_tokens), total_blocks_(blocks), owners_(blocks, 0) {
  free_.reserve(blocks);
  for (std::uint32_t i = blocks; i > 0; --i) free_.push_back(i - 1);  // block 0 is handed out first
}

SequenceId KvCache::create() {
  if (!unused_.empty()) {
    const SequenceId id = unused_.back();
    unused_.pop_back();
    return id;
  }
  sequences_.emplace_back();
  return static_cast<SequenceId>(sequences_.size() - 1);
}

void KvCache::release(SequenceId sequence) {
  truncate(sequence, 0);
  unused_.push_back(sequence);
}

std::uint32_t KvCache::blocks_for(std::uint32_t tokens) const {
  return tokens / block_tokens_ + (tokens % block_tokens_ != 0 ? 1 : 0);
}

bool KvCache::writes_into_shared(const Sequence& s, std::uint32_t tokens) const {
  const std::size_t at = s.length / block_tokens_;
  return tokens > s.length && at < s.blocks.size() && owners_[s.blocks[at]] > 1;
}

std::uint32_t KvCache::blocks_missing(SequenceId sequence, std::uint32_t tokens) const {
  const Sequence& s = sequences_[sequence];
  const auto held = static_cast<std::uint32_t>(s.blocks.size());
  const std::uint32_t needed = std::max(blocks_for(tokens), held) - held;
  return needed + (writes_into_shared(s, tokens) ? 1 : 0);
}

std::uint32_t KvCache::take_block() {
  const std::uint32_t block = free_.back();
  free_.pop_back();
  owners_[block] = 1;
  return block;
}

void KvCache::release_block(std::uint32_t block) {
  if (--owners_[block] == 0) free_.push_back(block);
}

Status KvCache::reserve(SequenceId sequence, std::uint32_t tokens) {
  Sequence& s = sequences_[sequence];
  const std::uint32_t missing = blocks_missing(sequence, tokens);
  if (missing > free_.size()) {
    return failed("the KV cache is full: {} tokens need {} more blocks of {} tokens, {} are free",
                  tokens, missing, block_tokens_, free_.size());
  }
  if (writes_into_shared(s, tokens)) {
    // Only the block that length() lies in can hold valid tokens and be written to; truncate()
    // gave up those behind it.
    std::uint32_t& block = s.blocks[s.length / block_tokens_];
    const std::uint32_t shared = block;
    block = take_block();
    if (s.length % block_tokens_ != 0) copies_.push_back({shared, block});
    release_block(shared);
  }
  while (s.blocks.size() < blocks_for(tokens)) s.blocks.push_back(take_block());
  return {};
}

void KvCache::adopt(SequenceId sequence, std::span<const std::uint32_t> blocks,
                    std::uint32_t length) {
  Sequence& s = sequences_[sequence];
  for (const std::uint32_t block : blocks) retain(block);
  s.blocks.assign(blocks.begin(), blocks.end());
  s.length = length;
}

void KvCache::replace_block(SequenceId sequence, std::uint32_t index, std::uint32_t block) {
  std::uint32_t& held = sequences_[sequence].blocks[index];
  if (held == block) return;
  retain(block);
  release_block(held);
  held = block;
}

void KvCache::set_length(SequenceId sequence, std::uint32_t length) {
  sequences_[sequence].length = length;
}

void KvCache::truncate(SequenceId sequence, std::uint32_t length) {
  Sequence& s = sequences_[sequence];
  while (s.blocks.size() > blocks_for(length)) {
    release_block(s.blocks.back());
    s.blocks.pop_back();
  }
  s.length = std::min(s.length, length);
}

}  // namespace sluice

#include "src/kv/kv_cache.h"

#include <algorithm>

namespace sluice {

KvCache::KvCache(std::uint32_t blocks, std::uint32_t block_tokens)
    : block_tokens_(block_tokens), total_blocks_(blocks) {
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

Status KvCache::reserve(SequenceId sequence, std::uint32_t tokens) {
  Sequence& s = sequences_[sequence];
  const std::size_t needed = tokens / block_tokens_ + (tokens % block_tokens_ != 0 ? 1 : 0);
  if (needed <= s.blocks.size()) return {};
  if (needed - s.blocks.size() > free_.size()) {
    return failed("the KV cache is full: {} tokens need {} more blocks of {} tokens, {} are free",
                  tokens, needed - s.blocks.size(), block_tokens_, free_.size());
  }
  while (s.blocks.size() < needed) {
    s.blocks.push_back(free_.back());
    free_.pop_back();
  }
  return {};
}

void KvCache::set_length(SequenceId sequence, std::uint32_t length) {
  sequences_[sequence].length = length;
}

void KvCache::truncate(SequenceId sequence, std::uint32_t length) {
  Sequence& s = sequences_[sequence];
  const std::size_t keep = length / block_tokens_ + (length % block_tokens_ != 0 ? 1 : 0);
  while (s.blocks.size() > keep) {
    free_.push_back(s.blocks.back());
    s.blocks.pop_back();
  }
  s.length = std::min(s.length, length);
}

}  // namespace sluice

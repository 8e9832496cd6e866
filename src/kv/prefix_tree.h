// Which beginnings of texts the cache holds: a tree over whole blocks of tokens. What two prompts
// begin with alike is run once. Source: RadixAttention (Zheng et al., "SGLang", 2024), by blocks.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "src/kv/kv_cache.h"

namespace sluice {

// Owns a share of each block in it. Not thread-safe.
class PrefixTree {
 public:
  // `kv` must outlive the tree.
  explicit PrefixTree(KvCache& kv);
  ~PrefixTree();
  PrefixTree(const PrefixTree&) = delete;
  PrefixTree& operator=(const PrefixTree&) = delete;

  // The blocks of the longest known beginning of `tokens`; they count as used now.
  std::vector<std::uint32_t> find(std::span<const std::int32_t> tokens);
  // Remembers the whole blocks of the tokens that a sequence holds. Where the same tokens are known
  // already, the sequence takes over their blocks and gives up its own, which hold the same bits.
  void insert(std::span<const std::int32_t> tokens, SequenceId sequence);

  // Frees up to `wanted` blocks that no sequence uses, those not used for longest first; how many.
  std::uint32_t evict(std::uint32_t wanted);
  // Blocks that evict() could free.
  std::uint32_t reclaimable() const;
  std::uint32_t blocks() const {
    return static_cast<std::uint32_t>(nodes_.size() - unused_.size());
  }

 private:
  static constexpr std::uint32_t kNone = 0xffffffff;
  using Children = std::map<std::vector<std::int32_t>, std::uint32_t>;
  struct Node {
    std::uint32_t parent = kNone;  // kNone: a first block
    std::uint32_t block = kNone;   // kNone: not in use
    std::uint64_t used = 0;
    Children children;
    Children::const_iterator self;  // in the parent's children
  };
  Children& children_of(std::uint32_t node) {
    return node == kNone ? first_ : nodes_[node].children;
  }
  void touch(std::uint32_t node);
  void remove(std::uint32_t leaf);

  KvCache& kv_;
  Children first_;
  std::vector<Node> nodes_;
  std::vector<std::uint32_t> unused_;
  std::set<std::pair<std::uint64_t, std::uint32_t>> leaves_;  // (used, node)
  std::uint64_t clock_ = 0;
};

}  // namespace sluice

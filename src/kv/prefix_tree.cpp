#include "src/kv/prefix_tree.h"

#include <algorithm>

namespace sluice {

PrefixTree::PrefixTree(KvCache& kv) : kv_(kv) {}

PrefixTree::~PrefixTree() {
  for (const Node& node : nodes_) {
    if (node.block != kNone) kv_.release_block(node.block);
  }
}

void PrefixTree::touch(std::uint32_t node) {
  const bool leaf = leaves_.erase({nodes_[node].used, node}) > 0;
  nodes_[node].used = ++clock_;
  if (leaf) leaves_.insert({clock_, node});
}

std::vector<std::uint32_t> PrefixTree::find(std::span<const std::int32_t> tokens) {
  const std::size_t size = kv_.block_tokens();
  std::vector<std::uint32_t> found;
  std::uint32_t at = kNone;
  for (std::size_t begin = 0; begin + size <= tokens.size(); begin += size) {
    const Children& children = children_of(at);
    const auto part = tokens.subspan(begin, size);
    const auto next = children.find(std::vector<std::int32_t>(part.begin(), part.end()));
    if (next == children.end()) break;
    at = next->second;
    touch(at);
    found.push_back(nodes_[at].block);
  }
  return found;
}

void PrefixTree::insert(std::span<const std::int32_t> tokens, SequenceId sequence) {
  const std::size_t size = kv_.block_tokens();
  const std::size_t count = std::min<std::size_t>(tokens.size(), kv_.length(sequence)) / size;
  std::uint32_t at = kNone;
  for (std::size_t i = 0; i < count; ++i) {
    const auto part = tokens.subspan(i * size, size);
    std::vector<std::int32_t> key(part.begin(), part.end());
    const Children& children = children_of(at);
    if (const auto known = children.find(key); known != children.end()) {
      at = known->second;
      touch(at);
      kv_.replace_block(sequence, static_cast<std::uint32_t>(i), nodes_[at].block);
      continue;
    }
    std::uint32_t node = static_cast<std::uint32_t>(nodes_.size());
    if (unused_.empty()) {
      nodes_.emplace_back();
    } else {
      node = unused_.back();
      unused_.pop_back();
    }
    if (at != kNone) leaves_.erase({nodes_[at].used, at});
    Node& made = nodes_[node];
    made.parent = at;
    made.block = kv_.blocks(sequence)[i];
    made.used = ++clock_;
    made.self = children_of(at).emplace(std::move(key), node).first;
    kv_.retain(made.block);
    leaves_.insert({made.used, node});
    at = node;
  }
}

void PrefixTree::remove(std::uint32_t leaf) {
  Node& node = nodes_[leaf];
  leaves_.erase({node.used, leaf});
  kv_.release_block(node.block);
  const std::uint32_t parent = node.parent;
  children_of(parent).erase(node.self);
  node = Node{};
  unused_.push_back(leaf);
  if (parent != kNone && nodes_[parent].children.empty()) {
    leaves_.insert({nodes_[parent].used, parent});
  }
}

std::uint32_t PrefixTree::evict(std::uint32_t wanted) {
  std::uint32_t freed = 0;
  while (freed < wanted) {
    const auto oldest = std::find_if(leaves_.begin(), leaves_.end(), [this](const auto& leaf) {
      return kv_.owners(nodes_[leaf.second].block) == 1;
    });
    if (oldest == leaves_.end()) break;
    remove(oldest->second);
    ++freed;
  }
  return freed;
}

std::uint32_t PrefixTree::reclaimable() const {
  // A sequence that uses a block uses those before it, too, so what is used by none can go leaf by
  // leaf.
  return static_cast<std::uint32_t>(std::count_if(nodes_.begin(), nodes_.end(), [this](auto& node) {
    return node.block != kNone && kv_.owners(node.block) == 1;
  }));
}

}  // namespace sluice

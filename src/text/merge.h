// The loop that both kinds of vocabulary share: joining neighbours, best pair first.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "src/text/hash_index.h"

namespace sluice {

// A stretch of the text in a doubly linked list. Length 0: joined into the one before it.
struct MergeSymbol {
  std::uint32_t begin = 0;
  std::uint32_t length = 0;
  std::int32_t prev = -1;
  std::int32_t next = -1;
  std::uint64_t hash = 0;  // hash_bytes() of the stretch
};

// Two neighbours that may be joined. A candidate is stale once either has changed; then their
// lengths do not add up to `length` any more.
template <class Key>
struct MergeCandidate {
  Key key;  // the smallest goes first, among equals the leftmost
  std::int32_t left;
  std::int32_t right;
  std::uint32_t length;
};

// Appends one symbol to a list.
inline void append_symbol(std::vector<MergeSymbol>& symbols, std::string_view text,
                          std::size_t begin, std::size_t length) {
  const auto index = static_cast<std::int32_t>(symbols.size());
  if (index > 0) symbols.back().next = index;
  symbols.push_back({static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(length),
                     index - 1, -1, hash_bytes(text.substr(begin, length))});
}

// Joins until no candidate is left: O(n log n). `key_of(left, right)` gives the key of two
// neighbouring symbols, or nothing when they must not be joined. `heap` is working memory.
template <class Key, class KeyOf>
void merge_symbols(std::string_view text, std::vector<MergeSymbol>& symbols,
                   std::vector<MergeCandidate<Key>>& heap, KeyOf key_of) {
  const auto later = [](const MergeCandidate<Key>& a, const MergeCandidate<Key>& b) {
    return a.key > b.key || (a.key == b.key && a.left > b.left);
  };
  const auto symbol = [&](std::int32_t i) -> MergeSymbol& {
    return symbols[static_cast<std::size_t>(i)];
  };
  const auto candidate = [&](std::int32_t left, std::int32_t right) {
    if (left < 0 || right < 0) return false;
    const std::optional<Key> key = key_of(symbol(left), symbol(right));
    if (!key) return false;
    heap.push_back({*key, left, right, symbol(left).length + symbol(right).length});
    return true;
  };
  heap.clear();
  for (std::int32_t i = 1; i < static_cast<std::int32_t>(symbols.size()); ++i) candidate(i - 1, i);
  std::make_heap(heap.begin(), heap.end(), later);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const MergeCandidate<Key> best = heap.back();
    heap.pop_back();
    MergeSymbol& left = symbol(best.left);
    MergeSymbol& right = symbol(best.right);
    if (left.length == 0 || right.length == 0 || left.length + right.length != best.length)
      continue;
    left.length = best.length;
    left.hash = hash_bytes(text.substr(left.begin, left.length));
    left.next = right.next;
    right.length = 0;
    if (right.next >= 0) symbol(right.next).prev = best.left;
    if (candidate(left.prev, best.left)) std::push_heap(heap.begin(), heap.end(), later);
    if (candidate(best.left, left.next)) std::push_heap(heap.begin(), heap.end(), later);
  }
}

}  // namespace sluice

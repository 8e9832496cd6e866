#include "src/engine/token_tree.h"

#include <algorithm>

namespace sluice {

std::optional<std::uint32_t> TokenTree::child(std::uint32_t at, std::int32_t token) const {
  for (std::uint32_t i = at + 1; i < tokens.size(); ++i) {
    if (parents[i] == at && tokens[i] == token) return i;
  }
  return std::nullopt;
}

std::vector<std::vector<std::uint32_t>> TokenTree::paths() const {
  std::vector<bool> leaf(tokens.size(), true);
  for (std::size_t i = 1; i < tokens.size(); ++i) leaf[parents[i]] = false;
  std::vector<std::vector<std::uint32_t>> all;
  for (std::uint32_t i = 0; i < tokens.size(); ++i) {
    if (!leaf[i]) continue;
    std::vector<std::uint32_t> path;
    for (std::uint32_t at = i; at != 0; at = parents[at]) path.push_back(at);
    path.push_back(0);
    std::reverse(path.begin(), path.end());
    all.push_back(std::move(path));
  }
  // Leaves are in the order of their indices; in that of first children, paths are compared as
  // lists.
  std::sort(all.begin(), all.end());
  return all;
}

TokenTree chain(std::vector<std::int32_t> tokens) {
  TokenTree tree;
  tree.parents.resize(tokens.size());
  for (std::size_t i = 1; i < tokens.size(); ++i) {
    tree.parents[i] = static_cast<std::uint32_t>(i - 1);
  }
  tree.tokens = std::move(tokens);
  return tree;
}

}  // namespace sluice

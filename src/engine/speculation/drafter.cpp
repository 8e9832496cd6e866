#include "src/engine/speculation/drafter.h"

#include <optional>

namespace sluice {

TokenTree usable_tree(std::int32_t root, const Draft& draft, std::size_t most,
                      std::size_t vocabulary) {
  TokenTree tree = chain({root});
  std::vector<std::optional<std::uint32_t>> place(draft.tokens.size());  // in the tree
  for (std::size_t i = 0; i < draft.tokens.size() && tree.size() <= most; ++i) {
    const std::int64_t before = draft.parents.empty()      ? static_cast<std::int64_t>(i) - 1
                                : i < draft.parents.size() ? draft.parents[i]
                                                           : -2;
    if (before < -1 || before >= static_cast<std::int64_t>(i)) continue;
    const std::optional<std::uint32_t> parent =
        before < 0 ? 0 : place[static_cast<std::size_t>(before)];
    const std::int32_t token = draft.tokens[i];
    if (!parent || token < 0 || static_cast<std::size_t>(token) >= vocabulary) continue;
    place[i] = tree.child(*parent, token);
    if (place[i]) continue;
    place[i] = static_cast<std::uint32_t>(tree.size());
    tree.tokens.push_back(token);
    tree.parents.push_back(*parent);
  }
  return tree;
}

}  // namespace sluice

#include "src/engine/speculation/drafter.h"

namespace sluice {

std::vector<std::int32_t> first_path(const Draft& draft) {
  if (draft.parents.empty()) return draft.tokens;
  std::vector<std::int32_t> path;
  std::int32_t last = -1;  // index of the path's end
  for (std::size_t i = 0; i < draft.tokens.size() && i < draft.parents.size(); ++i) {
    if (draft.parents[i] != last) continue;
    path.push_back(draft.tokens[i]);
    last = static_cast<std::int32_t>(i);
  }
  return path;
}

}  // namespace sluice

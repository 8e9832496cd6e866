// Tokens of one pass that continue a text: the one that is certain, and guesses behind it, of which
// several may compete for a place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace sluice {

struct TokenTree {
  std::vector<std::int32_t> tokens;  // the first one is the root
  // Index of each token's predecessor; parents come before their children. The root's is unused.
  std::vector<std::uint32_t> parents;

  std::size_t size() const { return tokens.size(); }
  // The token behind `at` that equals `token`, if any.
  std::optional<std::uint32_t> child(std::uint32_t at, std::int32_t token) const;
  // From the root to each leaf: indices. The first path is that of first children. A chain has one.
  std::vector<std::vector<std::uint32_t>> paths() const;
};

// A tree with one path.
TokenTree chain(std::vector<std::int32_t> tokens);

}  // namespace sluice

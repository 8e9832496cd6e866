// "Did you mean ...?"
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace sluice::cli {

// Insertions, deletions, replacements and swaps of neighbours that turn one into the other.
std::size_t edit_distance(std::string_view a, std::string_view b);

// The known word nearest to `word`, or "" when none is near enough to be what was meant.
std::string nearest(std::string_view word, std::span<const std::string> known);

}  // namespace sluice::cli

// How byte-level BPE vocabularies cut text before merging: one row of data for each way.
#pragma once

#include <array>
#include <span>
#include <string_view>

namespace sluice {

// The regexes are applied one after the other, each to the pieces that those before it left. What a
// regex matches becomes a piece, and so does what lies between matches.
struct PreTokenizer {
  static constexpr std::size_t kMaxNames = 16;
  static constexpr std::size_t kMaxRegexes = 6;

  std::array<std::string_view, kMaxNames> names;      // values of tokenizer.ggml.pre; rest empty
  std::array<std::string_view, kMaxRegexes> regexes;  // PCRE2 syntax; rest empty
  bool ignore_merges = false;  // a piece that is a token as a whole becomes it, whatever the merges
  bool add_bos = false;        // when the file does not say

  std::string_view name() const { return names[0]; }
};

// The row with this name, or nullptr.
const PreTokenizer* find_pretokenizer(std::string_view name);

// The row used for a file that names none or an unknown one.
const PreTokenizer& default_pretokenizer();

std::span<const PreTokenizer> all_pretokenizers();

}  // namespace sluice

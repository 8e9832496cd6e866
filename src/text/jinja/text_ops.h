// Python's string operations on tagged text. Positions are byte offsets; every result keeps the
// origin (template or content) of each character it takes over.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/text/jinja/tagged_text.h"

namespace sluice::jinja {

// Finds a text again and again; linear time also for hostile texts (Knuth, Morris and Pratt).
class Searcher {
 public:
  explicit Searcher(std::string_view needle);
  // First occurrence at or after `from`, or npos.
  std::size_t find(std::string_view text, std::size_t from) const;
  std::size_t needle_size() const { return needle_.size(); }

 private:
  std::string needle_;
  std::vector<std::uint32_t> border_;  // only for long needles
};
std::size_t find_last(std::string_view text, std::string_view needle);
// Occurrences that do not overlap. An empty needle is found between all characters and at the ends.
std::int64_t count_occurrences(std::string_view text, std::string_view needle);

enum class CaseChange : std::uint8_t { kUpper, kLower, kCapitalize, kTitle, kSwap };
TaggedText change_case(const TaggedText& text, CaseChange change);
// The title filter of jinja2: words begin after - ( { [ < and white space; the rest is lower case.
TaggedText title_words(const TaggedText& text);

enum class Side : std::uint8_t { kLeft, kRight, kBoth };
// Removes white space, or the characters of *chars, at the ends.
TaggedText strip(const TaggedText& text, const std::optional<std::string_view>& chars, Side side);

// limit < 0: no limit. An empty old text inserts `with` around every character.
TaggedText replace(const TaggedText& text, std::string_view old, const TaggedText& with,
                   std::int64_t limit);
// Number of replacements that replace() will do, to know the size of its result beforehand.
std::int64_t count_replacements(std::string_view text, std::string_view old, std::int64_t limit);

std::vector<TaggedText> split_space(const TaggedText& text, std::int64_t limit, bool from_right);
// separator must not be empty.
std::vector<TaggedText> split(const TaggedText& text, std::string_view separator,
                              std::int64_t limit, bool from_right);
std::vector<TaggedText> split_lines(const TaggedText& text, bool keep_ends);
// At least the number of fields or lines that split_space or split_lines will make.
std::size_t count_spaces(std::string_view text);

// Replaces & < > ' " by their HTML entities.
TaggedText escape_html(const TaggedText& text);
// Some cased character, and none of the other case.
bool is_lower_text(std::string_view s);
bool is_upper_text(std::string_view s);
// Number of code points.
std::size_t text_length(const TaggedText& text);

}  // namespace sluice::jinja

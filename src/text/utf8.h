// UTF-8: decoding, validation, and the one way in which ill-formed bytes are replaced.
// Well-formed sequences: The Unicode Standard, table 3-7. Replacement: one U+FFFD for each maximal
// ill-formed subpart (ibid., section 3.9), as Python's errors="replace" does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace sluice {

enum class Utf8Status {
  kValid,
  kInvalid,     // these bytes can never begin a character
  kIncomplete,  // the text ends inside a character that is well-formed so far
};

struct Utf8Char {
  Utf8Status status;
  std::uint32_t code;  // code point when valid, else U+FFFD
  std::size_t length;  // bytes taken: 1 to 4; for bad ones the maximal ill-formed subpart
};

inline constexpr std::string_view kReplacementChar = "\xEF\xBF\xBD";  // U+FFFD

// The first character of `text`, which must not be empty.
Utf8Char decode_utf8(std::string_view text);

bool is_valid_utf8(std::string_view text);

// Length of a character by its first byte, in text known to be valid.
constexpr std::size_t utf8_length(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}

// Appends a code point (below 0x110000, no surrogate).
void append_utf8(std::string& out, std::uint32_t code);

// Valid text is returned as it is.
std::string replace_invalid_utf8(std::string_view text);

}  // namespace sluice

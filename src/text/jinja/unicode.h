// UTF-8 and character properties as Python's str sees them (tables from Unicode 14, Python 3.11).
// Bytes that are not valid UTF-8 are never lost: each decodes to one code point 0xdc80..0xdcff and
// encodes back to the same byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace sluice::jinja {

// Length in bytes (1..4) of the character at s[pos]; *cp is its code point. Requires pos <
// s.size().
std::size_t decode_utf8(std::string_view s, std::size_t pos, char32_t* cp);
void append_utf8(char32_t cp, std::string* out);
std::size_t count_code_points(std::string_view s);
// Byte offset of code point number `index`; s.size() if there are fewer.
std::size_t byte_offset(std::string_view s, std::size_t index);
bool is_ascii(std::string_view s);

// Bits of char_class.
enum CharClass : std::uint16_t {
  kAlpha = 1,
  kDecimal = 2,
  kDigit = 4,
  kNumeric = 8,
  kLower = 16,
  kUpper = 32,
  kTitle = 64,
  kSpace = 128,
  kPrintable = 256,
  kCaseIgnorable = 512,
  kCased = kLower | kUpper | kTitle,
  kAlnum = kAlpha | kDecimal | kDigit | kNumeric,
};
std::uint16_t char_class(char32_t cp);
inline bool is_space(char32_t cp) { return (char_class(cp) & kSpace) != 0; }
// Regular expression \w: letters, numbers and the underscore.
inline bool is_word(char32_t cp) { return cp == '_' || (char_class(cp) & kAlnum) != 0; }

// Full case mappings, one to three characters, appended to *out.
void append_upper(char32_t cp, std::string* out);
void append_lower(char32_t cp, std::string* out);
void append_title(char32_t cp, std::string* out);
// Lower case of the character at s[pos]: a capital sigma that ends a word becomes a final sigma.
void append_lower_in(std::string_view s, std::size_t pos, char32_t cp, std::string* out);
std::string to_lower(std::string_view s);

}  // namespace sluice::jinja

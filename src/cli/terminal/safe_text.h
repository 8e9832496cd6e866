// Text of models, files and users made harmless for a terminal.
#pragma once

#include <string>
#include <string_view>

namespace sluice {

// escape_controls() (src/text/escape.h), and also the characters that reorder a line so that it
// reads differently from what it is (U+202A..U+202E, U+2066..U+2069), shown as \u202e.
// https://www.unicode.org/reports/tr9/ names them in section 2.
std::string safe_text(std::string_view text);

}  // namespace sluice

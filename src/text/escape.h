// Making text harmless for a terminal.
#pragma once

#include <string>
#include <string_view>

namespace sluice {

// Control characters, except newline and tab, are shown as \x1b and the like: C0, DEL, and C1
// whether written as UTF-8 (U+009B: \x9b) or as a lone byte. Bytes that are not UTF-8 are shown in
// the same way. For text that models, files or users supply, when it goes to a terminal; expects
// whole characters (text_stream.h).
std::string escape_controls(std::string_view text);

}  // namespace sluice

// UTF-8 and the wide characters of libedit, each of which is a code point.
#pragma once

#include <string>
#include <string_view>

namespace sluice {

// From valid UTF-8.
std::wstring wide_text(std::string_view text);
// Values that are no code points become U+FFFD.
std::string utf8_text(std::wstring_view text);

}  // namespace sluice

#include "src/cli/terminal/wide_text.h"

#include <cstdint>

#include "src/text/utf8.h"

namespace sluice {

static_assert(sizeof(wchar_t) == 4);

std::wstring wide_text(std::string_view text) {
  std::wstring out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Char next = decode_utf8(text);
    out += static_cast<wchar_t>(next.code);
    text.remove_prefix(next.length);
  }
  return out;
}

std::string utf8_text(std::wstring_view text) {
  std::string out;
  out.reserve(text.size());
  for (const wchar_t c : text) {
    const auto code = static_cast<std::uint32_t>(c);
    const bool valid = code < 0xd800 || (code >= 0xe000 && code < 0x110000);
    append_utf8(out, valid ? code : 0xfffd);
  }
  return out;
}

}  // namespace sluice

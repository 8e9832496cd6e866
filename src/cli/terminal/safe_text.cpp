#include "src/cli/terminal/safe_text.h"

#include <fmt/format.h>

#include <cstdint>
#include <iterator>

#include "src/text/escape.h"
#include "src/text/utf8.h"

namespace sluice {
namespace {

bool steers_direction(std::uint32_t code) {
  return (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
}

}  // namespace

std::string safe_text(std::string_view text) {
  const std::string escaped = escape_controls(text);  // valid UTF-8 from here on
  std::string out;
  out.reserve(escaped.size());
  std::string_view rest = escaped;
  while (!rest.empty()) {
    const Utf8Char next = decode_utf8(rest);
    if (steers_direction(next.code)) {
      out += fmt::format("\\u{:04x}", next.code);
    } else {
      out += rest.substr(0, next.length);
    }
    rest.remove_prefix(next.length);
  }
  return out;
}

}  // namespace sluice

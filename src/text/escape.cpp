#include "src/text/escape.h"

#include <fmt/format.h>

#include <iterator>

#include "src/text/utf8.h"

namespace sluice {
namespace {

void append_hex(std::string& out, unsigned byte) { out += fmt::format("\\x{:02x}", byte); }

}  // namespace

std::string escape_controls(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Char next = decode_utf8(text);
    const std::string_view bytes = text.substr(0, next.length);
    text.remove_prefix(next.length);
    if (next.status != Utf8Status::kValid) {
      for (const char c : bytes) append_hex(out, static_cast<unsigned char>(c));
      continue;
    }
    const bool c0 = next.code < 0x20 && next.code != '\n' && next.code != '\t';
    const bool del_or_c1 = next.code >= 0x7f && next.code < 0xa0;
    if (c0 || del_or_c1) {
      append_hex(out, next.code);
    } else {
      out += bytes;
    }
  }
  return out;
}

}  // namespace sluice

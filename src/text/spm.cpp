#include "src/text/spm.h"

#include <fmt/format.h>

#include <algorithm>

#include "src/text/utf8.h"

namespace sluice {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581, which stands for a space

}  // namespace

SpmEncoder::SpmEncoder(Vocab& vocab) {
  std::array<bool, 256> missing{};
  for (unsigned byte = 0; byte < 256; ++byte) {
    const char alone = static_cast<char>(byte);
    std::int32_t id = vocab.find(fmt::format("<0x{:02X}>", byte));
    if (id == kNoToken) id = vocab.find(std::string_view(&alone, 1));
    missing[byte] = id == kNoToken;
    byte_ids_[byte] = missing[byte] ? vocab.unknown_id() : id;
  }
  vocab.warn_missing_bytes(missing);
}

void SpmEncoder::encode(const Vocab& vocab, std::string_view text, bool space_in_front,
                        Scratch& scratch, std::vector<std::int32_t>& ids) const {
  std::string& escaped = scratch.text;
  escaped.clear();
  if (space_in_front) escaped += kSpaceMark;
  for (const char c : text) {
    if (c == ' ') {
      escaped += kSpaceMark;
    } else {
      escaped += c;
    }
  }
  scratch.symbols.clear();
  for (std::size_t at = 0; at < escaped.size();) {
    const std::size_t length = utf8_length(escaped[at]);
    append_symbol(scratch.symbols, escaped, at, length);
    at += length;
  }
  const std::string_view all = escaped;
  merge_symbols(all, scratch.symbols, scratch.heap,
                [&](const MergeSymbol& left, const MergeSymbol& right) -> std::optional<float> {
                  const std::size_t length = std::size_t{left.length} + right.length;
                  if (length > vocab.longest_text()) return std::nullopt;
                  const std::string_view joined = all.substr(left.begin, length);
                  const std::int32_t id = vocab.find_plain(joined, hash_bytes(joined));
                  if (id == kNoToken) return std::nullopt;
                  return -vocab.score(id);  // the highest score first
                });
  const std::vector<MergeSymbol>& symbols = scratch.symbols;
  for (std::int32_t i = symbols.empty() ? -1 : 0; i >= 0;
       i = symbols[static_cast<std::size_t>(i)].next) {
    const MergeSymbol& symbol = symbols[static_cast<std::size_t>(i)];
    const std::string_view bytes = all.substr(symbol.begin, symbol.length);
    const std::int32_t id = vocab.find_plain(bytes, symbol.hash);
    if (id != kNoToken) {
      ids.push_back(id);
      continue;
    }
    for (const char c : bytes) {
      const std::int32_t byte_id = byte_ids_[static_cast<unsigned char>(c)];
      if (byte_id != kNoToken) ids.push_back(byte_id);
    }
  }
}

}  // namespace sluice

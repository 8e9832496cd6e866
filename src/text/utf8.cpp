#include "src/text/utf8.h"

#include <cstring>

namespace sluice {
namespace {

constexpr std::uint32_t kReplacement = 0xfffd;
constexpr std::uint64_t kHighBits = 0x8080808080808080u;

// What may follow a lead byte: how many bytes, and the range of the first of them (the others are
// 80..BF). Zero bytes: not a lead byte.
struct LeadRule {
  std::size_t following;
  unsigned char low, high;
};

constexpr LeadRule lead_rule(unsigned char lead) {
  if (lead >= 0xc2 && lead <= 0xdf) return {1, 0x80, 0xbf};
  if (lead == 0xe0) return {2, 0xa0, 0xbf};  // no overlong forms
  if (lead == 0xed) return {2, 0x80, 0x9f};  // no surrogates
  if (lead >= 0xe1 && lead <= 0xef) return {2, 0x80, 0xbf};
  if (lead == 0xf0) return {3, 0x90, 0xbf};  // no overlong forms
  if (lead >= 0xf1 && lead <= 0xf3) return {3, 0x80, 0xbf};
  if (lead == 0xf4) return {3, 0x80, 0x8f};  // nothing above U+10FFFF
  return {0, 0, 0};
}

// Number of ASCII bytes at the start of `text`, in steps of eight; may stop early.
std::size_t ascii_prefix(std::string_view text) {
  std::size_t n = 0;
  while (n + 8 <= text.size()) {
    std::uint64_t word;
    std::memcpy(&word, text.data() + n, 8);
    if ((word & kHighBits) != 0) break;
    n += 8;
  }
  return n;
}

}  // namespace

Utf8Char decode_utf8(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {Utf8Status::kValid, lead, 1};
  const LeadRule rule = lead_rule(lead);
  if (rule.following == 0) return {Utf8Status::kInvalid, kReplacement, 1};
  std::uint32_t code = lead & (0x3fu >> rule.following);
  for (std::size_t i = 1; i <= rule.following; ++i) {
    if (i == text.size()) return {Utf8Status::kIncomplete, kReplacement, i};
    const unsigned char low = i == 1 ? rule.low : 0x80;
    const unsigned char high = i == 1 ? rule.high : 0xbf;
    if (byte(i) < low || byte(i) > high) return {Utf8Status::kInvalid, kReplacement, i};
    code = code << 6 | (byte(i) & 0x3fu);
  }
  return {Utf8Status::kValid, code, rule.following + 1};
}

bool is_valid_utf8(std::string_view text) {
  while (!text.empty()) {
    text.remove_prefix(ascii_prefix(text));
    if (text.empty()) break;
    const Utf8Char next = decode_utf8(text);
    if (next.status != Utf8Status::kValid) return false;
    text.remove_prefix(next.length);
  }
  return true;
}

void append_utf8(std::string& out, std::uint32_t code) {
  const auto put = [&](std::uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xc0 | code >> 6);
    put(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    put(0xe0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3f));
    put(0x80 | (code & 0x3f));
  } else {
    put(0xf0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3f));
    put(0x80 | (code >> 6 & 0x3f));
    put(0x80 | (code & 0x3f));
  }
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t ascii = ascii_prefix(text);
    out.append(text.substr(0, ascii));
    text.remove_prefix(ascii);
    if (text.empty()) break;
    const Utf8Char next = decode_utf8(text);
    out.append(next.status == Utf8Status::kValid ? text.substr(0, next.length) : kReplacementChar);
    text.remove_prefix(next.length);
  }
  return out;
}

}  // namespace sluice

#include "src/text/jinja/unicode.h"

#include <algorithm>
#include <array>
#include <iterator>

namespace sluice::jinja {
namespace {

// Characters from `first` up to the next entry have the class bits `bits`.
struct ClassRange {
  std::uint32_t first;
  std::uint16_t bits;
};
// Every `step`-th character of first..last maps to itself + delta.
struct CaseRange {
  std::uint32_t first, last;
  std::int32_t step, delta;
};
// A character that maps to several (unused places are 0).
struct CaseSpecial {
  std::uint32_t from;
  char32_t to[3];
};

#include "src/text/jinja/unicode_cases.inc"
#include "src/text/jinja/unicode_classes.inc"

constexpr std::array<std::uint16_t, 128> ascii_classes() {
  std::array<std::uint16_t, 128> classes{};
  std::size_t range = 0;
  for (std::uint32_t cp = 0; cp < classes.size(); ++cp) {
    while (kClassRanges[range + 1].first <= cp) ++range;
    classes[cp] = kClassRanges[range].bits;
  }
  return classes;
}
constexpr std::array<std::uint16_t, 128> kAsciiClasses = ascii_classes();

// Appends the mapping of cp and returns true, or returns false if the tables do not change it.
template <std::size_t N, std::size_t M>
bool append_mapped(const CaseRange (&ranges)[N], const CaseSpecial (&special)[M], char32_t cp,
                   std::string* out) {
  const auto range =
      std::upper_bound(std::begin(ranges), std::end(ranges), cp,
                       [](char32_t value, const CaseRange& r) { return value < r.first; });
  if (range != std::begin(ranges)) {
    const CaseRange& r = *std::prev(range);
    if (cp <= r.last && (cp - r.first) % static_cast<std::uint32_t>(r.step) == 0) {
      append_utf8(static_cast<char32_t>(static_cast<std::int32_t>(cp) + r.delta), out);
      return true;
    }
  }
  const auto entry =
      std::lower_bound(std::begin(special), std::end(special), cp,
                       [](const CaseSpecial& s, char32_t value) { return s.from < value; });
  if (entry == std::end(special) || entry->from != cp) return false;
  for (const char32_t to : entry->to) {
    if (to != 0) append_utf8(to, out);
  }
  return true;
}

bool is_continuation(std::string_view s, std::size_t pos) {
  return pos < s.size() && (static_cast<unsigned char>(s[pos]) & 0xc0) == 0x80;
}

// A sigma is final if a cased letter comes before it and none after it; ignorable characters
// (marks, apostrophes) in between do not count.
bool is_final_sigma(std::string_view s, std::size_t pos) {
  char32_t cp = 0;
  bool cased_before = false;
  for (std::size_t begin = pos; begin > 0;) {
    --begin;
    while (begin > 0 && is_continuation(s, begin)) --begin;
    decode_utf8(s, begin, &cp);
    const std::uint16_t bits = char_class(cp);
    if (bits & kCaseIgnorable) continue;
    cased_before = (bits & kCased) != 0;
    break;
  }
  if (!cased_before) return false;
  for (std::size_t next = pos + decode_utf8(s, pos, &cp); next < s.size();) {
    next += decode_utf8(s, next, &cp);
    const std::uint16_t bits = char_class(cp);
    if (bits & kCaseIgnorable) continue;
    return (bits & kCased) == 0;
  }
  return true;
}

}  // namespace

std::size_t decode_utf8(std::string_view s, std::size_t pos, char32_t* cp) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(s[pos + i]); };
  const char32_t lead = byte(0);
  if (lead < 0x80) {
    *cp = lead;
    return 1;
  }
  std::size_t length = 0;
  char32_t value = 0;
  char32_t least = 0;
  if ((lead & 0xe0) == 0xc0) {
    length = 2, value = lead & 0x1f, least = 0x80;
  } else if ((lead & 0xf0) == 0xe0) {
    length = 3, value = lead & 0x0f, least = 0x800;
  } else if ((lead & 0xf8) == 0xf0) {
    length = 4, value = lead & 0x07, least = 0x10000;
  }
  for (std::size_t i = 1; i < length; ++i) {
    if (!is_continuation(s, pos + i)) {
      length = 0;
      break;
    }
    value = (value << 6) | (byte(i) & 0x3fu);
  }
  const bool surrogate = value >= 0xd800 && value <= 0xdfff;
  if (length == 0 || value < least || value > 0x10ffff || surrogate) {
    *cp = 0xdc00 + lead;
    return 1;
  }
  *cp = value;
  return length;
}

void append_utf8(char32_t cp, std::string* out) {
  const auto put = [&](char32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (cp < 0x80) {
    put(cp);
  } else if (cp < 0x800) {
    put(0xc0 | (cp >> 6)), put(0x80 | (cp & 0x3f));
  } else if (cp >= 0xdc80 && cp <= 0xdcff) {
    put(cp - 0xdc00);  // a byte that was not valid UTF-8
  } else if (cp < 0x10000) {
    put(0xe0 | (cp >> 12)), put(0x80 | ((cp >> 6) & 0x3f)), put(0x80 | (cp & 0x3f));
  } else {
    put(0xf0 | (cp >> 18)), put(0x80 | ((cp >> 12) & 0x3f));
    put(0x80 | ((cp >> 6) & 0x3f)), put(0x80 | (cp & 0x3f));
  }
}

bool is_ascii(std::string_view s) {
  return std::none_of(s.begin(), s.end(), [](char c) { return static_cast<signed char>(c) < 0; });
}

std::size_t count_code_points(std::string_view s) {
  std::size_t count = 0;
  char32_t cp = 0;
  for (std::size_t pos = 0; pos < s.size(); ++count) pos += decode_utf8(s, pos, &cp);
  return count;
}

std::size_t byte_offset(std::string_view s, std::size_t index) {
  std::size_t pos = 0;
  char32_t cp = 0;
  for (; index > 0 && pos < s.size(); --index) pos += decode_utf8(s, pos, &cp);
  return pos;
}

std::uint16_t char_class(char32_t cp) {
  if (cp < kAsciiClasses.size()) return kAsciiClasses[cp];
  const auto next =
      std::upper_bound(std::begin(kClassRanges), std::end(kClassRanges), cp,
                       [](char32_t value, const ClassRange& r) { return value < r.first; });
  return std::prev(next)->bits;  // the first range starts at 0
}

void append_upper(char32_t cp, std::string* out) {
  if (cp < 0x80) {
    out->push_back(static_cast<char>(cp >= 'a' && cp <= 'z' ? cp - 32 : cp));
    return;
  }
  if (!append_mapped(kUpperRanges, kUpperSpecial, cp, out)) append_utf8(cp, out);
}

void append_lower(char32_t cp, std::string* out) {
  if (cp < 0x80) {
    out->push_back(static_cast<char>(cp >= 'A' && cp <= 'Z' ? cp + 32 : cp));
    return;
  }
  if (!append_mapped(kLowerRanges, kLowerSpecial, cp, out)) append_utf8(cp, out);
}

void append_title(char32_t cp, std::string* out) {
  // Title-case digraphs and modern Georgian letters are their own title case.
  const bool own = (char_class(cp) & kTitle) != 0 || (cp >= 0x10d0 && cp <= 0x10ff);
  if (own) {
    append_utf8(cp, out);
  } else if (!append_mapped(kTitleRanges, kTitleSpecial, cp, out)) {
    append_upper(cp, out);
  }
}

void append_lower_in(std::string_view s, std::size_t pos, char32_t cp, std::string* out) {
  constexpr char32_t kCapitalSigma = 0x3a3;
  if (cp == kCapitalSigma) {
    append_utf8(is_final_sigma(s, pos) ? 0x3c2 : 0x3c3, out);
  } else {
    append_lower(cp, out);
  }
}

std::string to_lower(std::string_view s) {
  std::string out;
  out.reserve(s.size());
  char32_t cp = 0;
  for (std::size_t pos = 0; pos < s.size();) {
    const std::size_t length = decode_utf8(s, pos, &cp);
    append_lower_in(s, pos, cp, &out);
    pos += length;
  }
  return out;
}

}  // namespace sluice::jinja

#include "src/text/jinja/text_ops.h"

#include <algorithm>

#include "src/text/jinja/unicode.h"

namespace sluice::jinja {
namespace {

constexpr std::size_t npos = std::string_view::npos;

// Calls f(pos, length, cp, content) for each character.
template <class F>
void for_each_char(const TaggedText& text, F&& f) {
  text.for_each_run([&](std::size_t begin, std::size_t end, bool content) {
    char32_t cp = 0;
    for (std::size_t pos = begin; pos < end;) {
      const std::size_t length = decode_utf8(text.view(), pos, &cp);
      f(pos, length, cp, content);
      pos += length;
    }
  });
}

// Start of the character that ends at `end`. Requires end > 0.
std::size_t previous_char(std::string_view s, std::size_t end, char32_t* cp) {
  for (std::size_t back = 1; back <= std::min<std::size_t>(4, end); ++back) {
    const bool whole = decode_utf8(s.substr(0, end), end - back, cp) == back;
    const bool bad_byte = *cp >= 0xdc80 && *cp <= 0xdcff;
    if (whole && !bad_byte) return end - back;
  }
  decode_utf8(s.substr(0, end), end - 1, cp);
  return end - 1;
}

bool is_line_end(char32_t cp) {
  return (cp >= 0x0a && cp <= 0x0d) || (cp >= 0x1c && cp <= 0x1e) || cp == 0x85 || cp == 0x2028 ||
         cp == 0x2029;
}

}  // namespace

Searcher::Searcher(std::string_view needle) : needle_(needle) {
  constexpr std::size_t kShort = 16;  // the standard search does at most this much work a byte
  if (needle_.size() <= kShort) return;
  border_.assign(needle_.size(), 0);
  for (std::size_t i = 1, k = 0; i < needle_.size(); ++i) {
    while (k > 0 && needle_[i] != needle_[k]) k = border_[k - 1];
    if (needle_[i] == needle_[k]) ++k;
    border_[i] = static_cast<std::uint32_t>(k);
  }
}

std::size_t Searcher::find(std::string_view text, std::size_t from) const {
  if (border_.empty()) return text.find(needle_, from);
  for (std::size_t i = from, k = 0; i < text.size(); ++i) {
    while (k > 0 && text[i] != needle_[k]) k = border_[k - 1];
    if (text[i] == needle_[k]) ++k;
    if (k == needle_.size()) return i + 1 - k;
  }
  return npos;
}

std::size_t find_last(std::string_view text, std::string_view needle) {
  const std::string text_reversed(text.rbegin(), text.rend());
  const std::string needle_reversed(needle.rbegin(), needle.rend());
  const std::size_t pos = Searcher(needle_reversed).find(text_reversed, 0);
  return pos == npos ? npos : text.size() - pos - needle.size();
}

std::int64_t count_replacements(std::string_view text, std::string_view old, std::int64_t limit) {
  std::int64_t count = 0;
  if (old.empty()) {
    count = static_cast<std::int64_t>(count_code_points(text)) + 1;
  } else {
    const Searcher searcher(old);
    for (std::size_t pos = searcher.find(text, 0); pos != npos && (limit < 0 || count < limit);
         pos = searcher.find(text, pos + old.size())) {
      ++count;
    }
  }
  return limit < 0 ? count : std::min(count, limit);
}

std::int64_t count_occurrences(std::string_view text, std::string_view needle) {
  return count_replacements(text, needle, -1);
}

TaggedText change_case(const TaggedText& text, CaseChange change) {
  TaggedText out;
  std::string mapped;
  bool at_start = true;  // of the text (capitalize) or of a word (title)
  for_each_char(text, [&](std::size_t pos, std::size_t, char32_t cp, bool content) {
    mapped.clear();
    const std::uint16_t bits = char_class(cp);
    switch (change) {
      case CaseChange::kUpper:
        append_upper(cp, &mapped);
        break;
      case CaseChange::kLower:
        append_lower_in(text.view(), pos, cp, &mapped);
        break;
      case CaseChange::kCapitalize:
      case CaseChange::kTitle:
        if (at_start) {
          append_title(cp, &mapped);
        } else {
          append_lower_in(text.view(), pos, cp, &mapped);
        }
        at_start = change == CaseChange::kTitle && (bits & kCased) == 0;
        break;
      case CaseChange::kSwap:
        if (bits & kUpper) {
          append_lower_in(text.view(), pos, cp, &mapped);
        } else if (bits & kLower) {
          append_upper(cp, &mapped);
        } else {
          append_utf8(cp, &mapped);
        }
        break;
    }
    out.append(mapped, content);
  });
  return out;
}

TaggedText title_words(const TaggedText& text) {
  // Lower case is decided inside each word alone, as the original works word by word.
  TaggedText out;
  std::string mapped;
  const auto separates = [](char32_t cp) {
    return cp == '-' || cp == '(' || cp == '{' || cp == '[' || cp == '<' || is_space(cp);
  };
  std::size_t word_begin = 0;
  for (std::size_t pos = 0; pos < text.size();) {
    char32_t cp = 0;
    std::size_t end = pos;
    std::size_t first = 0;
    // One word, or one run of separators.
    bool separator = false;
    while (end < text.size()) {
      const std::size_t length = decode_utf8(text.view(), end, &cp);
      if (end == pos) {
        separator = separates(cp);
        first = length;
      } else if (separates(cp) != separator) {
        break;
      }
      end += length;
    }
    word_begin = pos + first;
    const std::string_view rest = text.view().substr(word_begin, end - word_begin);
    decode_utf8(text.view(), pos, &cp);
    mapped.clear();
    append_upper(cp, &mapped);
    out.append(mapped, text.content_at(pos));
    for (std::size_t i = 0; i < rest.size();) {
      const std::size_t length = decode_utf8(rest, i, &cp);
      mapped.clear();
      append_lower_in(rest, i, cp, &mapped);
      out.append(mapped, text.content_at(word_begin + i));
      i += length;
    }
    pos = end;
  }
  return out;
}

TaggedText strip(const TaggedText& text, const std::optional<std::string_view>& chars, Side side) {
  std::vector<char32_t> set;
  if (chars) {
    char32_t cp = 0;
    for (std::size_t pos = 0; pos < chars->size();) {
      pos += decode_utf8(*chars, pos, &cp);
      set.push_back(cp);
    }
    std::sort(set.begin(), set.end());
  }
  const auto goes = [&](char32_t cp) {
    return chars ? std::binary_search(set.begin(), set.end(), cp) : is_space(cp);
  };
  std::size_t begin = 0;
  std::size_t end = text.size();
  char32_t cp = 0;
  while (side != Side::kRight && begin < end) {
    const std::size_t length = decode_utf8(text.view(), begin, &cp);
    if (!goes(cp)) break;
    begin += length;
  }
  while (side != Side::kLeft && begin < end) {
    const std::size_t previous = previous_char(text.view(), end, &cp);
    if (!goes(cp)) break;
    end = previous;
  }
  return text.slice(begin, end);
}

TaggedText replace(const TaggedText& text, std::string_view old, const TaggedText& with,
                   std::int64_t limit) {
  TaggedText out;
  if (old.empty()) {
    std::size_t pos = 0;
    char32_t cp = 0;
    for (std::int64_t done = 0; limit < 0 || done < limit; ++done) {
      out.append(with);
      if (pos == text.size()) return out;
      const std::size_t length = decode_utf8(text.view(), pos, &cp);
      out.append_range(text, pos, pos + length);
      pos += length;
    }
    out.append_range(text, pos, text.size());
    return out;
  }
  const Searcher searcher(old);
  std::size_t from = 0;
  for (std::int64_t done = 0; limit < 0 || done < limit; ++done) {
    const std::size_t pos = searcher.find(text.view(), from);
    if (pos == npos) break;
    out.append_range(text, from, pos);
    out.append(with);
    from = pos + old.size();
  }
  out.append_range(text, from, text.size());
  return out;
}

std::vector<TaggedText> split_space(const TaggedText& text, std::int64_t limit, bool from_right) {
  const std::string_view s = text.view();
  std::vector<TaggedText> out;
  char32_t cp = 0;
  if (!from_right) {
    std::size_t pos = 0;
    const auto skip_space = [&] {
      while (pos < s.size()) {
        const std::size_t length = decode_utf8(s, pos, &cp);
        if (!is_space(cp)) return;
        pos += length;
      }
    };
    for (skip_space(); pos < s.size(); skip_space()) {
      if (limit >= 0 && static_cast<std::int64_t>(out.size()) >= limit) {
        out.push_back(text.slice(pos, s.size()));
        break;
      }
      std::size_t end = pos;
      while (end < s.size()) {
        const std::size_t length = decode_utf8(s, end, &cp);
        if (is_space(cp)) break;
        end += length;
      }
      out.push_back(text.slice(pos, end));
      pos = end;
    }
    return out;
  }
  std::size_t end = s.size();
  const auto skip_space_back = [&] {
    while (end > 0) {
      const std::size_t previous = previous_char(s, end, &cp);
      if (!is_space(cp)) return;
      end = previous;
    }
  };
  for (skip_space_back(); end > 0; skip_space_back()) {
    if (limit >= 0 && static_cast<std::int64_t>(out.size()) >= limit) {
      out.push_back(text.slice(0, end));
      break;
    }
    std::size_t begin = end;
    while (begin > 0) {
      const std::size_t previous = previous_char(s, begin, &cp);
      if (is_space(cp)) break;
      begin = previous;
    }
    out.push_back(text.slice(begin, end));
    end = begin;
  }
  std::reverse(out.begin(), out.end());
  return out;
}

std::vector<TaggedText> split(const TaggedText& text, std::string_view separator,
                              std::int64_t limit, bool from_right) {
  std::vector<TaggedText> out;
  const auto more = [&] { return limit < 0 || static_cast<std::int64_t>(out.size()) < limit; };
  if (!from_right) {
    const Searcher searcher(separator);
    std::size_t from = 0;
    while (more()) {
      const std::size_t pos = searcher.find(text.view(), from);
      if (pos == npos) break;
      out.push_back(text.slice(from, pos));
      from = pos + separator.size();
    }
    out.push_back(text.slice(from, text.size()));
    return out;
  }
  // From the right: search the reversed text.
  const std::string reversed(text.view().rbegin(), text.view().rend());
  const Searcher searcher(std::string(separator.rbegin(), separator.rend()));
  std::size_t from = 0;  // in the reversed text
  while (more()) {
    const std::size_t pos = searcher.find(reversed, from);
    if (pos == npos) break;
    out.push_back(text.slice(text.size() - pos, text.size() - from));
    from = pos + separator.size();
  }
  out.push_back(text.slice(0, text.size() - from));
  std::reverse(out.begin(), out.end());
  return out;
}

std::vector<TaggedText> split_lines(const TaggedText& text, bool keep_ends) {
  const std::string_view s = text.view();
  std::vector<TaggedText> out;
  std::size_t begin = 0;
  char32_t cp = 0;
  for (std::size_t pos = 0; pos < s.size();) {
    const std::size_t length = decode_utf8(s, pos, &cp);
    if (!is_line_end(cp)) {
      pos += length;
      continue;
    }
    std::size_t next = pos + length;
    if (cp == '\r' && next < s.size() && s[next] == '\n') ++next;
    out.push_back(text.slice(begin, keep_ends ? next : pos));
    begin = pos = next;
  }
  if (begin < s.size()) out.push_back(text.slice(begin, s.size()));
  return out;
}

std::size_t count_spaces(std::string_view text) {
  // Every separator counts, so the number is too large for runs of them. All line ends are spaces.
  std::size_t count = 1;
  char32_t cp = 0;
  for (std::size_t pos = 0; pos < text.size();) {
    pos += decode_utf8(text, pos, &cp);
    if (is_space(cp)) ++count;
  }
  return count;
}

TaggedText escape_html(const TaggedText& text) {
  TaggedText out;
  text.for_each_run([&](std::size_t begin, std::size_t end, bool content) {
    for (std::size_t pos = begin; pos < end;) {
      const std::size_t special = std::min(text.view().find_first_of("&<>'\"", pos), end);
      out.append(text.view().substr(pos, special - pos), content);
      pos = special;
      if (pos == end) break;
      switch (text.view()[pos++]) {
        case '&':
          out.append("&amp;", content);
          break;
        case '<':
          out.append("&lt;", content);
          break;
        case '>':
          out.append("&gt;", content);
          break;
        case '\'':
          out.append("&#39;", content);
          break;
        default:
          out.append("&#34;", content);
          break;
      }
    }
  });
  return out;
}

namespace {

bool is_cased_text(std::string_view s, std::uint16_t wanted) {
  bool any = false;
  char32_t cp = 0;
  for (std::size_t pos = 0; pos < s.size();) {
    pos += decode_utf8(s, pos, &cp);
    const std::uint16_t bits = char_class(cp) & kCased;
    if (bits == 0) continue;
    if (bits != wanted) return false;
    any = true;
  }
  return any;
}

}  // namespace

bool is_lower_text(std::string_view s) { return is_cased_text(s, kLower); }
bool is_upper_text(std::string_view s) { return is_cased_text(s, kUpper); }

std::size_t text_length(const TaggedText& text) { return count_code_points(text.view()); }

}  // namespace sluice::jinja

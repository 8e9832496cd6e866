#include "src/text/regex_split.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cstdint>
#include <limits>
#include <new>
#include <string>

#include "src/text/utf8.h"

namespace sluice {
namespace {

template <auto Function>
struct Free {
  template <class T>
  void operator()(T* pointer) const {
    Function(pointer);
  }
};
using MatchData = std::unique_ptr<pcre2_match_data, Free<pcre2_match_data_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Free<pcre2_match_context_free>>;

std::string pcre2_text(int error) {
  char buffer[256] = {};
  pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(buffer), sizeof buffer);
  return buffer;
}

// \s and \S as White_Space. Both are valid inside and outside of classes.
std::string with_unicode_space(std::string_view pattern) {
  std::string out;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '\\' || i + 1 == pattern.size()) {
      out += pattern[i];
      continue;
    }
    ++i;
    if (pattern[i] == 's') {
      out += "\\p{White_Space}";
    } else if (pattern[i] == 'S') {
      out += "\\P{White_Space}";
    } else {
      out += '\\';
      out += pattern[i];
    }
  }
  return out;
}

}  // namespace

struct RegexSplitter::Code {
  std::unique_ptr<pcre2_code, Free<pcre2_code_free>> code;
};

RegexSplitter::RegexSplitter(std::vector<Code> codes) : codes_(std::move(codes)) {}
RegexSplitter::RegexSplitter(RegexSplitter&&) noexcept = default;
RegexSplitter& RegexSplitter::operator=(RegexSplitter&&) noexcept = default;
RegexSplitter::~RegexSplitter() = default;

Result<RegexSplitter> RegexSplitter::compile(std::span<const std::string_view> patterns) {
  std::vector<Code> codes;
  for (const std::string_view pattern : patterns) {
    if (pattern.empty()) break;
    const std::string source = with_unicode_space(pattern);
    int error = 0;
    PCRE2_SIZE at = 0;
    Code compiled;
    compiled.code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(source.data()), source.size(),
                                      PCRE2_UTF | PCRE2_UCP | PCRE2_DOLLAR_ENDONLY, &error, &at,
                                      nullptr));
    if (compiled.code == nullptr) {
      return failed("regex '{}' does not compile at byte {}: {}", source, at, pcre2_text(error));
    }
    // Where there is no JIT compiler, PCRE2 interprets the code: slower, with the same results.
    pcre2_jit_compile(compiled.code.get(), PCRE2_JIT_COMPLETE);
    codes.push_back(std::move(compiled));
  }
  return RegexSplitter(std::move(codes));
}

Result<std::vector<std::size_t>> RegexSplitter::split(std::string_view text) const {
  std::vector<std::size_t> ends;
  if (text.empty()) return ends;
  ends.push_back(text.size());
  const MatchData match(pcre2_match_data_create(1, nullptr));
  const MatchContext context(pcre2_match_context_create(nullptr));
  if (match == nullptr || context == nullptr) return make_error(ErrorCode::kNoMemory, "no memory");
  pcre2_set_match_limit(context.get(), std::numeric_limits<std::uint32_t>::max());

  std::vector<std::size_t> before;
  for (const Code& code : codes_) {
    before.swap(ends);
    ends.clear();
    std::size_t begin = 0;
    for (const std::size_t end : before) {
      // Each piece is a subject of its own: nothing is seen of what surrounds it.
      const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data() + begin);
      const std::size_t size = end - begin;
      std::size_t done = 0;    // bytes of the piece that are cut already
      std::size_t search = 0;  // where to look for the next match
      while (search < size) {
        int rc = pcre2_match(code.code.get(), subject, size, search, PCRE2_NO_UTF_CHECK,
                             match.get(), context.get());
        if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
          // Compiled code keeps its state on a small stack; the interpreter keeps it on the heap.
          rc = pcre2_match(code.code.get(), subject, size, search,
                           PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, match.get(), context.get());
        }
        if (rc == PCRE2_ERROR_NOMATCH) break;
        if (rc < 0) return failed("cutting text by regex failed: {}", pcre2_text(rc));
        const PCRE2_SIZE* found = pcre2_get_ovector_pointer(match.get());
        if (found[1] <= search) {  // an empty match: step over one character
          search += utf8_length(text[begin + search]);
          continue;
        }
        if (found[0] > done) ends.push_back(begin + found[0]);
        ends.push_back(begin + found[1]);
        done = search = found[1];
      }
      if (done < size) ends.push_back(end);
      begin = end;
    }
  }
  return ends;
}

}  // namespace sluice

// Cutting text into pieces by regexes, run by PCRE2 (https://www.pcre.org).
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "src/base/status.h"

namespace sluice {

// Regexes are compiled with UTF and Unicode properties; `$` is the very end. `\s` and `\S` are
// Unicode's White_Space, as in the regex engines the published patterns were written for (PCRE2's
// own \s has U+180E in addition). Compiled code is shared between threads.
class RegexSplitter {
 public:
  // The list ends at the first empty pattern.
  static Result<RegexSplitter> compile(std::span<const std::string_view> patterns);

  RegexSplitter(RegexSplitter&&) noexcept;
  RegexSplitter& operator=(RegexSplitter&&) noexcept;
  ~RegexSplitter();

  // Where the pieces of `text` (valid UTF-8) end, ascending; the last is text.size(). Empty for an
  // empty text. Matching uses the machine stack for no more than a fixed amount, and no limit on
  // the number of steps.
  Result<std::vector<std::size_t>> split(std::string_view text) const;

 private:
  struct Code;
  explicit RegexSplitter(std::vector<Code> codes);
  std::vector<Code> codes_;
};

}  // namespace sluice

// Reading whole files and standard input.
#pragma once

#include <atomic>
#include <string>

#include "src/base/status.h"
#include "src/cli/console.h"

namespace sluice::cli {

// More than a prompt or a text to be scored can hold; ends a read from an endless source.
inline constexpr std::size_t kMaxInputBytes = std::size_t{1} << 28;

// All bytes of a file (kBadInput when it can't be read, is a folder, or is larger than
// kMaxInputBytes).
Result<std::string> read_file(const std::string& path, const std::atomic<bool>& cancel);

// Standard input to its end; kInterrupted as soon as `cancel` is true.
Result<std::string> read_stdin(const std::atomic<bool>& cancel);

// A file, or standard input where the path is "-".
Result<std::string> read_file_or_stdin(const std::string& path, const std::atomic<bool>& cancel);

// Says on stderr that bytes of a text are not UTF-8, where there are any: tokenizers read each as
// U+FFFD. `what` begins the sentence: "the prompt".
void warn_of_invalid_utf8(std::string_view text, std::string_view what, Console& console);

// Takes away one line end at the end of a text, which editors and echo put there.
void drop_final_newline(std::string& text);

}  // namespace sluice::cli

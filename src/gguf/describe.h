// Text about a model file that is safe to print on a terminal: whatever the file holds, one entry
// stays one line and no control sequence gets through.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "src/gguf/gguf.h"

namespace sluice {

// `text` with everything unprintable escaped: \n \r \t \\, control bytes and bytes that are not
// UTF-8 as \x1b, invisible characters that steer the terminal or the reading direction (C1
// controls, line separators, bidi marks) as \u{202e}. Text of more than `max_bytes` bytes is cut at
// a character and ends with "... (N bytes)".
std::string printable(std::string_view text, std::size_t max_bytes = 200);
// The same with backslashes as they are: for messages, whose parts have been made printable.
std::string printable_message(std::string_view text, std::size_t max_bytes);

// A metadata value on one line: numbers plain, strings quoted and escaped, arrays as
// "[a, b, c, ... (32000 strings)]". Long strings and arrays are shortened with their length.
std::string gguf_value_to_string(const GgufValue& value, std::size_t max_bytes = 200);

// "4096 x 32000" for dims {4096, 32000}.
std::string gguf_dims_to_string(const GgufTensor& tensor);

}  // namespace sluice

// A piece of a prompt and who wrote it. The chat template renderer produces a list of these, the
// tokenizer consumes it: control tokens are recognised only in parts that are not content, so text
// of a user, a file or a tool result can never become a control token. Part borders are not token
// borders: the plain text between two control tokens is split and merged as one string, so that the
// ids are those of the unmarked prompt wherever no control token is typed by the user.
#pragma once

#include <string>

namespace sluice {

// `text` is UTF-8 (any bytes are possible); a list of parts means the concatenation of the texts.
struct TextPart {
  std::string text;
  bool content = false;  // true: contributed by a message or a tool; false: written by the template
};

}  // namespace sluice

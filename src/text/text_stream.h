// Bytes of tokens in, whole UTF-8 characters out.
#pragma once

#include <string>
#include <string_view>

namespace sluice {

// What becomes of bytes that are not UTF-8.
enum class BadBytes {
  kKeep,     // passed on as they are, so that no byte is lost
  kReplace,  // one U+FFFD for each maximal ill-formed sequence, so that output is always valid
             // UTF-8
};

// Holds back only the beginning of a character whose rest may still come (at most 3 bytes); all
// text before it is passed on at once. The concatenated output does not depend on how the input was
// cut: it is the input itself (kKeep) or replace_invalid_utf8() of it (kReplace).
class TextStream {
 public:
  explicit TextStream(BadBytes bad_bytes = BadBytes::kReplace) : bad_bytes_(bad_bytes) {}

  // Adds bytes and returns the text that is now complete.
  std::string push(std::string_view bytes);

  // Ends the stream: the incomplete tail as raw bytes (kKeep) or as one U+FFFD (kReplace); empty
  // when there is none. The stream can be used again afterwards.
  std::string finish();

  // The bytes held back.
  std::string_view pending() const { return pending_; }

 private:
  BadBytes bad_bytes_;
  std::string pending_;
};

}  // namespace sluice

#include "src/text/text_stream.h"

#include "src/text/utf8.h"

namespace sluice {

std::string TextStream::push(std::string_view bytes) {
  std::string joined;
  std::string_view rest = bytes;
  if (!pending_.empty()) {
    joined = pending_;
    joined += bytes;
    rest = joined;
    pending_.clear();
  }
  std::string out;
  out.reserve(rest.size());
  while (!rest.empty()) {
    const Utf8Char next = decode_utf8(rest);
    if (next.status == Utf8Status::kIncomplete) {
      pending_ = rest;
      break;
    }
    const bool replace = next.status == Utf8Status::kInvalid && bad_bytes_ == BadBytes::kReplace;
    out += replace ? kReplacementChar : rest.substr(0, next.length);
    rest.remove_prefix(next.length);
  }
  return out;
}

std::string TextStream::finish() {
  std::string tail;
  tail.swap(pending_);
  if (!tail.empty() && bad_bytes_ == BadBytes::kReplace) tail = kReplacementChar;
  return tail;
}

}  // namespace sluice

// The lines of a file or a pipe, one after another, in bounded memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "src/base/status.h"

namespace sluice {

class LineReader {
 public:
  struct Line {
    std::uint64_t number = 0;  // from 1
    std::uint64_t begin = 0;   // offset of its first byte
    // Without its end (LF or CRLF) and, in the first line, without a byte order mark; valid until
    // the next call. Empty if too_long.
    std::string_view text;
    std::uint64_t bytes = 0;  // of the line, also if it is too long to be kept
    bool too_long = false;
    bool ended = true;  // false: the file stops without a line end
  };
  enum class State : std::uint8_t { kLine, kEnd, kNotYet };

  // "-": standard input, which is not closed at the end. Lines of more than `most_bytes` are passed
  // over. kBadInput for what can't be opened or is a folder.
  static Result<LineReader> open(const std::string& path, std::size_t most_bytes);
  LineReader(LineReader&& other) noexcept;
  LineReader& operator=(LineReader&& other) noexcept;
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;
  ~LineReader();

  // For messages: "'in.jsonl'" or "standard input".
  const std::string& name() const { return name_; }

  // The next line. kNotYet, only if not `wait`: a pipe has nothing at the moment. Errors: kBadInput
  // if the file can't be read or is UTF-16; kInterrupted when `cancel` becomes true.
  Result<State> next(Line& line, bool wait, const std::atomic<bool>* cancel);

 private:
  LineReader() = default;
  Result<State> fill(bool wait, const std::atomic<bool>* cancel);
  void give(Line& line, std::size_t end, bool ended);

  std::string name_;
  int fd_ = -1;
  std::size_t most_bytes_ = 0;
  std::string buffer_;
  std::size_t begin_ = 0;      // of the line, in the buffer
  std::size_t searched_ = 0;   // no line end in front of here
  std::uint64_t dropped_ = 0;  // bytes of a line that is too long
  std::uint64_t offset_ = 0;   // of the line, in the file
  std::uint64_t number_ = 0;
  bool end_ = false;
};

// What a pass over a regular file finds.
struct InputSummary {
  std::uint64_t lines = 0;  // that are not blank
  std::uint64_t bytes = 0;
  std::uint64_t hash = 0;  // of the first `hashed` bytes
  std::uint64_t hashed = 0;
};
// `hash_bytes`: how many bytes to hash, all if the file has fewer. Nothing for what is no regular
// file. Errors as those of next().
Result<std::optional<InputSummary>> summarize_input(const std::string& path,
                                                    std::uint64_t bytes_to_hash,
                                                    const std::atomic<bool>* cancel);

// Nothing but spaces and tabs.
bool is_blank(std::string_view line);

}  // namespace sluice

// Bytes of a file descriptor, with a way out while waiting.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace sluice {

class ByteSource {
 public:
  enum class Event {
    kBytes,
    kEnd,        // end of input, or the terminal is gone
    kCancelled,  // `cancel` is true
    kFailed,     // error() says why
  };

  // `cancel` may be null; otherwise it must outlive this and is looked at a few times a second
  // while nothing comes. Reads ahead: what was typed or piped and not asked for yet stays here.
  ByteSource(int fd, const std::atomic<bool>* cancel) : fd_(fd), cancel_(cancel) {}

  // Called before each wait for input.
  void set_idle(std::function<void()> idle) { idle_ = std::move(idle); }

  // Waits for the next byte.
  Event next(char& byte);
  // Gives back the byte that next() gave last; once for each.
  void put_back() { --begin_; }

  // Takes what is there already, without waiting. For a terminal that has just left canonical mode,
  // in which Linux keeps a Ctrl-D typed ahead as a NUL: it becomes a Ctrl-D again.
  void take_typed_ahead();

  // Appends bytes up to the next newline, which is taken and not appended. At the end of the input
  // and on errors the bytes before it are appended too. Stops with kBytes and `complete` false when
  // `out` has grown beyond `limit`.
  Event read_line(std::string& out, std::size_t limit, bool& complete);

  const std::string& error() const { return error_; }

 private:
  // Makes at least one byte available.
  Event fill();

  int fd_;
  const std::atomic<bool>* cancel_;
  std::function<void()> idle_;
  std::vector<char> buffer_ = std::vector<char>(std::size_t{1} << 16);
  std::size_t begin_ = 0, end_ = 0;  // of the bytes in buffer_ that were not taken
  std::string error_;
};

}  // namespace sluice

#include "src/cli/terminal/byte_source.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace sluice {

ByteSource::Event ByteSource::fill() {
  constexpr int kWaitMilliseconds = 200;
  while (begin_ == end_) {
    if (cancel_ != nullptr && *cancel_) return Event::kCancelled;
    if (idle_) idle_();
    pollfd ready = {fd_, POLLIN, 0};
    const int count = poll(&ready, 1, kWaitMilliseconds);
    if (count == 0 || (count < 0 && errno == EINTR)) continue;
    const ssize_t got = read(fd_, buffer_.data(), buffer_.size());
    if (got > 0) {
      begin_ = 0;
      end_ = static_cast<std::size_t>(got);
    } else if (got == 0 || errno == EIO) {  // EIO: a terminal that was closed
      return Event::kEnd;
    } else if (errno != EINTR && errno != EAGAIN && errno != EWOULDBLOCK) {
      error_ = std::string("can't read the input: ") + std::strerror(errno);
      return Event::kFailed;
    }
  }
  return Event::kBytes;
}

ByteSource::Event ByteSource::next(char& byte) {
  const Event event = fill();
  if (event == Event::kBytes) byte = buffer_[begin_++];
  return event;
}

void ByteSource::take_typed_ahead() {
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  pollfd ready = {fd_, POLLIN, 0};
  if (end_ == buffer_.size() || poll(&ready, 1, 0) != 1 || (ready.revents & POLLIN) == 0) return;
  char* const to = buffer_.data() + end_;
  const ssize_t got = read(fd_, to, buffer_.size() - end_);
  if (got <= 0) return;  // what is wrong shows when it is waited for
  std::replace(to, to + got, '\0', '\x04');
  end_ += static_cast<std::size_t>(got);
}

ByteSource::Event ByteSource::read_line(std::string& out, std::size_t limit, bool& complete) {
  complete = false;
  while (out.size() <= limit) {
    const Event event = fill();
    if (event != Event::kBytes) return event;
    const char* from = buffer_.data() + begin_;
    const std::size_t available = end_ - begin_;
    const void* newline = std::memchr(from, '\n', available);
    if (newline == nullptr) {
      out.append(from, available);
      begin_ = end_;
      continue;
    }
    const auto length = static_cast<std::size_t>(static_cast<const char*>(newline) - from);
    out.append(from, length);
    begin_ += length + 1;
    complete = true;
    return Event::kBytes;
  }
  return Event::kBytes;
}

}  // namespace sluice

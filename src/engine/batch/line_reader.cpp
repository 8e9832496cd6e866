#include "src/engine/batch/line_reader.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "src/engine/model_fingerprint.h"

namespace sluice {
namespace {

constexpr std::size_t kRead = std::size_t{1} << 16;   // at a time
constexpr std::size_t kChunk = std::size_t{1} << 20;  // of a hash
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

bool is_true(const std::atomic<bool>* cancel) { return cancel != nullptr && *cancel; }

Error interrupted() { return make_error(ErrorCode::kInterrupted, "interrupted"); }

}  // namespace

Result<LineReader> LineReader::open(const std::string& path, std::size_t most_bytes) {
  LineReader reader;
  reader.most_bytes_ = most_bytes;
  if (path == "-") {
    reader.name_ = "standard input";
    reader.fd_ = STDIN_FILENO;
    return reader;
  }
  reader.name_ = "'" + path + "'";
  // O_NONBLOCK: opening a named pipe without a writer would wait for ever.
  reader.fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (reader.fd_ < 0) return bad_input("can't open '{}': {}", path, std::strerror(errno));
  struct stat info {};
  if (::fstat(reader.fd_, &info) == 0 && S_ISDIR(info.st_mode)) {
    return bad_input("can't read '{}': it is a folder", path);
  }
  return reader;
}

LineReader::LineReader(LineReader&& other) noexcept { *this = std::move(other); }

LineReader& LineReader::operator=(LineReader&& other) noexcept {
  std::swap(name_, other.name_);
  std::swap(fd_, other.fd_);
  std::swap(most_bytes_, other.most_bytes_);
  std::swap(buffer_, other.buffer_);
  std::swap(begin_, other.begin_);
  std::swap(searched_, other.searched_);
  std::swap(dropped_, other.dropped_);
  std::swap(offset_, other.offset_);
  std::swap(number_, other.number_);
  std::swap(end_, other.end_);
  return *this;
}

LineReader::~LineReader() {
  if (fd_ > STDIN_FILENO) ::close(fd_);
}

Result<LineReader::State> LineReader::fill(bool wait, const std::atomic<bool>* cancel) {
  // What was given is gone, and a line that can't be kept need not be held.
  if (dropped_ > 0 ||
      buffer_.size() - begin_ > most_bytes_ + 8) {  // 8: its end and a byte order mark
    dropped_ += buffer_.size() - begin_;
    begin_ = buffer_.size();
  }
  buffer_.erase(0, begin_);
  begin_ = 0;
  searched_ = buffer_.size();
  const std::size_t held = buffer_.size();
  for (;;) {
    // A signal may come between a look at `cancel` and read(), so waiting has an end.
    pollfd ready = {fd_, POLLIN, 0};
    const int count = ::poll(&ready, 1, wait ? 100 : 0);
    if (is_true(cancel)) return interrupted();
    if (count == 0 && !wait) return State::kNotYet;
    if (count == 0 || (count < 0 && errno == EINTR)) continue;
    buffer_.resize(held + kRead);
    const ssize_t got = ::read(fd_, buffer_.data() + held, kRead);
    const int error = errno;
    buffer_.resize(held + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (got > 0) return State::kLine;
    if (got == 0) return State::kEnd;
    if (error == EINTR) continue;
    if (error == EAGAIN || error == EWOULDBLOCK) {
      if (!wait) return State::kNotYet;
      continue;
    }
    return bad_input("can't read {}: {}", name_, std::strerror(error));
  }
}

void LineReader::give(Line& line, std::size_t end, bool ended) {
  line.number = ++number_;
  line.begin = offset_;
  line.ended = ended;
  std::string_view text(buffer_.data() + begin_, end - begin_);
  const std::uint64_t taken = dropped_ + text.size() + (ended ? 1 : 0);
  if (ended && text.ends_with('\r')) text.remove_suffix(1);
  if (number_ == 1 && dropped_ == 0 && text.starts_with(kByteOrderMark)) {
    text.remove_prefix(kByteOrderMark.size());
  }
  line.bytes = dropped_ + text.size();
  line.too_long = line.bytes > most_bytes_;
  line.text = line.too_long ? std::string_view() : text;
  offset_ += taken;
  dropped_ = 0;
  begin_ = end + (ended ? 1 : 0);
  searched_ = begin_;
}

Result<LineReader::State> LineReader::next(Line& line, bool wait, const std::atomic<bool>* cancel) {
  for (;;) {
    const std::size_t end = buffer_.find('\n', searched_);
    if (offset_ == 0 && dropped_ == 0 && buffer_.size() >= 2 &&
        (buffer_.starts_with("\xFF\xFE") || buffer_.starts_with("\xFE\xFF"))) {
      return bad_input("{} is UTF-16; expected UTF-8 (iconv -f UTF-16 -t UTF-8 converts it)",
                       name_);
    }
    if (end != std::string::npos) {
      give(line, end, true);
      return State::kLine;
    }
    if (end_) {
      if (begin_ == buffer_.size() && dropped_ == 0) return State::kEnd;
      give(line, buffer_.size(), false);
      return State::kLine;
    }
    SLUICE_ASSIGN_OR_RETURN(const State state, fill(wait, cancel));
    if (state == State::kNotYet) return state;
    end_ = state == State::kEnd;
  }
}

Result<std::optional<InputSummary>> summarize_input(const std::string& path,
                                                    std::uint64_t bytes_to_hash,
                                                    const std::atomic<bool>* cancel) {
  struct stat info {};
  if (path == "-" || ::stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return std::optional<InputSummary>();
  }
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return bad_input("can't open '{}': {}", path, std::strerror(errno));
  InputSummary summary;
  std::string chunk(kChunk, '\0');
  bool blank = true;  // what there is of the line
  Status status;
  for (;;) {
    if (is_true(cancel)) {
      status = interrupted();
      break;
    }
    // Whole chunks, so that the hash does not depend on how much a read() gives.
    std::size_t size = 0;
    ssize_t got = 0;
    while (size < kChunk && (got = ::read(fd, chunk.data() + size, kChunk - size)) != 0) {
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) break;
      size += static_cast<std::size_t>(got);
    }
    if (got < 0) {
      status = bad_input("can't read '{}': {}", path, std::strerror(errno));
      break;
    }
    if (size == 0) break;
    const std::uint64_t hashed = std::min<std::uint64_t>(size, bytes_to_hash - summary.hashed);
    if (hashed > 0) {
      summary.hash = hash_bytes(std::as_bytes(std::span(chunk.data(), hashed)), summary.hash);
      summary.hashed += hashed;
    }
    for (std::size_t i = 0; i < size; ++i) {
      const char c = chunk[i];
      if (c == '\n') {
        if (!blank) ++summary.lines;
        blank = true;
      } else if (c != ' ' && c != '\t' && c != '\r') {
        blank = false;
      }
    }
    summary.bytes += size;
  }
  ::close(fd);
  SLUICE_RETURN_IF_ERROR(status);
  if (!blank) ++summary.lines;
  return std::optional(summary);
}

bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\r") == line.npos; }

}  // namespace sluice

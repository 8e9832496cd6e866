#include "src/cli/input.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "src/text/utf8.h"

namespace sluice::cli {
namespace {

Result<std::string> read_all(int fd, const std::string& name, const std::atomic<bool>& cancel) {
  std::string text;
  std::string buffer(std::size_t{1} << 16, '\0');
  for (;;) {
    // A signal may come between a look at `cancel` and read(), so waiting has an end.
    pollfd ready = {fd, POLLIN, 0};
    const int count = poll(&ready, 1, 100);
    if (cancel) return make_error(ErrorCode::kInterrupted, "interrupted");
    if (count == 0 || (count < 0 && errno == EINTR)) continue;
    const ssize_t got = read(fd, buffer.data(), buffer.size());
    if (got == 0) return text;
    if (got < 0) {
      if (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK) continue;
      return bad_input("can't read {}: {}", name, std::strerror(errno));
    }
    text.append(buffer, 0, static_cast<std::size_t>(got));
    if (text.size() > kMaxInputBytes) {
      return bad_input("{} holds more than {} MiB, the most that is read", name,
                       kMaxInputBytes >> 20);
    }
  }
}

}  // namespace

Result<std::string> read_file(const std::string& path, const std::atomic<bool>& cancel) {
  // O_NONBLOCK: opening a named pipe without a writer would wait for ever.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return bad_input("can't open '{}': {}", path, std::strerror(errno));
  Result<std::string> text = read_all(fd, "'" + path + "'", cancel);
  close(fd);
  return text;
}

Result<std::string> read_stdin(const std::atomic<bool>& cancel) {
  return read_all(STDIN_FILENO, "standard input", cancel);
}

Result<std::string> read_file_or_stdin(const std::string& path, const std::atomic<bool>& cancel) {
  return path == "-" ? read_stdin(cancel) : read_file(path, cancel);
}

void warn_of_invalid_utf8(std::string_view text, std::string_view what, Console& console) {
  std::size_t bad = 0;
  for (std::string_view rest = text; !rest.empty();) {
    const Utf8Char next = decode_utf8(rest);
    if (next.status != Utf8Status::kValid) bad += next.length;
    rest.remove_prefix(next.length);
  }
  if (bad > 0) {
    console.warning(fmt::format("{} is not UTF-8 throughout: {} byte{} read as U+FFFD", what, bad,
                                bad == 1 ? " is" : "s are"));
  }
}

void drop_final_newline(std::string& text) {
  if (!text.ends_with('\n')) return;
  text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
}

}  // namespace sluice::cli

#include "src/cli/terminal/history_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "src/cli/terminal/message_lines.h"

namespace sluice {
namespace {

constexpr std::size_t kMaxFileBytes = std::size_t{8} << 20;

std::string encode(std::string_view message) {
  std::string line;
  for (const char c : message) {
    if (c == '\\') {
      line += "\\\\";
    } else if (c == '\n') {
      line += "\\n";
    } else {
      line += c;
    }
  }
  return line += '\n';
}

std::string decode(std::string_view line) {
  std::string message;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const bool escape = line[i] == '\\' && i + 1 < line.size();
    if (escape) ++i;
    message += escape && line[i] == 'n' ? '\n' : line[i];
  }
  return message;
}

class File {
 public:
  // Opening a pipe must not wait.
  File(const std::string& path, int flags)
      : fd_(open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK, 0600)) {}
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

Error trouble(std::string_view what, const std::string& path) {
  return failed("can't {} the history {}: {}", what, path, std::strerror(errno));
}

Status require_regular(const File& file, const std::string& path) {
  struct stat info {};
  if (fstat(file.fd(), &info) != 0) return trouble("look at", path);
  if (!S_ISREG(info.st_mode)) {
    return failed("the history {} is not a regular file; it is left alone", path);
  }
  return {};
}

Status write_all(const File& file, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n = write(file.fd(), bytes.data(), bytes.size());
    if (n < 0 && errno != EINTR) return trouble("write", path);
    if (n > 0) bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return {};
}

void make_folders(const std::string& path) {
  for (std::size_t at = path.find('/', 1); at != std::string::npos; at = path.find('/', at + 1)) {
    // Those that exist are no error; others show when the file is opened.
    mkdir(path.substr(0, at).c_str(), 0700);
  }
}

}  // namespace

std::string default_history_path() {
  const char* state = std::getenv("XDG_STATE_HOME");
  if (state != nullptr && state[0] == '/') return std::string(state) + "/sluice/history";
  const char* home = std::getenv("HOME");
  if (home != nullptr && home[0] == '/') {
    return std::string(home) + "/.local/state/sluice/history";
  }
  return {};
}

Result<std::vector<std::string>> HistoryFile::load() {
  std::vector<std::string> entries;
  if (path_.empty()) return entries;
  const File file(path_, O_RDONLY);
  if (file.fd() < 0) {
    if (errno == ENOENT || errno == ENOTDIR) return entries;
    return trouble("open", path_);
  }
  SLUICE_RETURN_IF_ERROR(require_regular(file, path_));
  const off_t length = lseek(file.fd(), 0, SEEK_END);
  if (length < 0) return trouble("read", path_);
  const bool too_long = static_cast<std::size_t>(length) > kMaxFileBytes;
  const off_t start = too_long ? length - static_cast<off_t>(kMaxFileBytes) : 0;
  if (lseek(file.fd(), start, SEEK_SET) < 0) return trouble("read", path_);
  std::string bytes;
  char piece[1 << 14];
  while (bytes.size() < kMaxFileBytes) {
    const ssize_t n = read(file.fd(), piece, sizeof piece);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return trouble("read", path_);
    if (n == 0) break;
    bytes.append(piece, static_cast<std::size_t>(n));
  }
  std::string_view rest = bytes;
  if (too_long) rest.remove_prefix(std::min(rest.size(), rest.find('\n')));
  while (!rest.empty()) {
    const std::size_t end = rest.find('\n');
    std::size_t ignored = 0;
    std::string message = clean_text(decode(rest.substr(0, end)), ignored);
    if (!message.empty() && message.size() <= kMaxEntryBytes) entries.push_back(std::move(message));
    if (end == std::string_view::npos) break;
    rest.remove_prefix(end + 1);
  }
  const bool shorten_now = too_long || entries.size() > 2 * kMaxEntries;
  if (entries.size() > kMaxEntries) {
    entries.erase(entries.begin(), entries.end() - static_cast<std::ptrdiff_t>(kMaxEntries));
  }
  if (shorten_now) SLUICE_RETURN_IF_ERROR(shorten(entries));
  return entries;
}

Status HistoryFile::append(std::string_view message) {
  if (path_.empty() || message.size() > kMaxEntryBytes) return {};
  make_folders(path_);
  const File file(path_, O_WRONLY | O_APPEND | O_CREAT);
  if (file.fd() < 0) return trouble("open", path_);
  SLUICE_RETURN_IF_ERROR(require_regular(file, path_));
  if (fchmod(file.fd(), 0600) != 0) return trouble("protect", path_);
  return write_all(file, encode(message), path_);
}

Status HistoryFile::shorten(const std::vector<std::string>& entries) {
  const std::string temporary = path_ + ".new" + std::to_string(getpid());
  {
    const File file(temporary, O_WRONLY | O_CREAT | O_EXCL);
    if (file.fd() < 0) return trouble("shorten", path_);
    for (const std::string& entry : entries) {
      Status written = write_all(file, encode(entry), temporary);
      if (written.ok()) continue;
      unlink(temporary.c_str());
      return written;
    }
  }
  if (rename(temporary.c_str(), path_.c_str()) != 0) {
    unlink(temporary.c_str());
    return trouble("shorten", path_);
  }
  return {};
}

}  // namespace sluice

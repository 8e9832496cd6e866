#include "src/gguf/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace sluice {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 16;
constexpr int kMaxTemporaryNames = 100;

// EFBIG says "File too large" of every limit.
std::string reason(int code) {
  const std::string words = std::strerror(code);
  return code == EFBIG ? words + " (a limit on the size of files; see ulimit -f)" : words;
}

}  // namespace

Result<OutputFile> OutputFile::create(const std::string& path, std::uint64_t expected_bytes) {
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    return failed("cannot write '{}': it exists and is not a regular file", path);
  }
  OutputFile file;
  file.path_ = path;
  for (int n = 0; n < kMaxTemporaryNames; ++n) {
    file.temporary_path_ = fmt::format("{}.partial-{}", path, n);
    file.fd_ = ::open(file.temporary_path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file.fd_ >= 0 || errno != EEXIST) break;
  }
  if (file.fd_ < 0) {
    return failed("cannot create '{}': {}", file.temporary_path_, std::strerror(errno));
  }
  // Not every file system can reserve; only a lack of space is an answer.
  if (expected_bytes != 0 && ::fallocate(file.fd_, 0, 0, static_cast<off_t>(expected_bytes)) != 0) {
    const int code = errno;
    if (code == ENOSPC || code == EFBIG || code == EDQUOT) {
      return failed("cannot write '{}': {} bytes are needed: {}", path, expected_bytes,
                    reason(code));
    }
  }
  return file;
}

OutputFile::OutputFile(OutputFile&& other) noexcept { *this = std::move(other); }

OutputFile& OutputFile::operator=(OutputFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(temporary_path_, other.temporary_path_);
  std::swap(buffer_, other.buffer_);
  std::swap(fd_, other.fd_);
  return *this;
}

OutputFile::~OutputFile() { discard(); }

void OutputFile::discard() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_path_.c_str());
  fd_ = -1;
}

Status OutputFile::write(std::span<const std::byte> bytes) {
  if (buffer_.size() + bytes.size() < kBufferBytes) {
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
    return {};
  }
  SLUICE_RETURN_IF_ERROR(write_through(buffer_));
  buffer_.clear();
  return write_through(bytes);
}

Status OutputFile::write_through(std::span<const std::byte> bytes) {
  if (fd_ < 0) return failed("cannot write '{}': it is closed after an earlier error", path_);
  while (!bytes.empty()) {
    const ssize_t count = ::write(fd_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      const int code = errno;
      discard();
      return failed("cannot write '{}': {}", path_, reason(code));
    }
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
  return {};
}

Status OutputFile::commit() {
  SLUICE_RETURN_IF_ERROR(write_through(buffer_));
  buffer_.clear();
  if (fd_ < 0) return failed("cannot write '{}': it is closed after an earlier error", path_);
  // On the disk before it has its name, so that a crash never leaves a cut file under it. Some file
  // systems report a failed write only at the end.
  const int fd = std::exchange(fd_, -1);
  const bool synced = ::fsync(fd) == 0 || errno == EINVAL || errno == EROFS;  // a pipe or the like
  const int sync_error = errno;
  if (::close(fd) != 0 || !synced || ::rename(temporary_path_.c_str(), path_.c_str()) != 0) {
    const int code = synced ? errno : sync_error;
    ::unlink(temporary_path_.c_str());
    return failed("cannot write '{}': {}", path_, reason(code));
  }
  return {};
}

}  // namespace sluice

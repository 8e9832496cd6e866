#include "src/base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

namespace sluice {

Result<MappedFile> MappedFile::open(const std::string& path) {
  // O_NONBLOCK: opening a pipe must not wait for its writer.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return bad_input("cannot open '{}': {}", path, std::strerror(errno));
  struct stat info {};
  if (::fstat(fd, &info) != 0) {
    const int code = errno;
    ::close(fd);
    return bad_input("cannot read the size of '{}': {}", path, std::strerror(code));
  }
  if (!S_ISREG(info.st_mode)) {
    ::close(fd);
    return bad_input("'{}' is not a regular file; a file that can be mapped is needed", path);
  }
  if (info.st_size == 0) {
    ::close(fd);
    return bad_input("'{}' is empty", path);
  }
  const auto size = static_cast<std::size_t>(info.st_size);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  const int code = errno;
  ::close(fd);
  if (data == MAP_FAILED) {
    return make_error(ErrorCode::kNoMemory, "cannot map '{}' ({} bytes): {}", path, size,
                      std::strerror(code));
  }
  MappedFile file;
  file.path_ = path;
  file.data_ = static_cast<const std::byte*>(data);
  file.size_ = size;
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

void release_mapped_pages(const std::byte* data, std::size_t bytes) {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t over = reinterpret_cast<std::uintptr_t>(data) % page;
  const std::size_t skip = over != 0 ? page - over : 0;  // to the first whole page
  if (bytes < skip + page) return;
  ::madvise(const_cast<std::byte*>(data) + skip, (bytes - skip) / page * page, MADV_DONTNEED);
}

}  // namespace sluice

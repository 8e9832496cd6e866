// A file mapped read-only into memory.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "src/base/status.h"

namespace sluice {

// Owns the mapping; the bytes stay valid until destruction. A file that shrinks while it is mapped
// makes later reads fault; that is outside what a reader can check.
class MappedFile {
 public:
  // Fails for what is missing, unreadable, not a regular file, or empty; errors name the path.
  static Result<MappedFile> open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

 private:
  MappedFile() = default;
  std::string path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// Says that mapped pages wholly inside the range will not be read soon, so that they stop counting
// as this process's memory. They stay valid, and usually in the system's cache.
void release_mapped_pages(const std::byte* data, std::size_t bytes);

}  // namespace sluice

// A file that appears under its name only when it is complete.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "src/base/status.h"

namespace sluice {

// Writes to "PATH.partial-N" and renames on `commit`. Destruction without commit, and every error,
// removes the temporary file.
class OutputFile {
 public:
  // Reserves `expected_bytes` on disk where the file system can, so that a full disk shows at once.
  // Refuses a path that exists and is not a regular file.
  static Result<OutputFile> create(const std::string& path, std::uint64_t expected_bytes);

  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&& other) noexcept;
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  Status write(std::span<const std::byte> bytes);
  Status commit();

 private:
  OutputFile() = default;
  Status write_through(std::span<const std::byte> bytes);
  void discard();

  std::string path_;
  std::string temporary_path_;
  std::vector<std::byte> buffer_;  // small writes are gathered
  int fd_ = -1;
};

}  // namespace sluice

#include "src/engine/packed_cache.h"

#include <sys/stat.h>

#include <filesystem>
#include <system_error>

#include "src/engine/model_fingerprint.h"

namespace sluice {

cpu::PackedFile packed_file_of(const GgufFile& file, const std::string& directory,
                               std::uint64_t least_bytes) {
  cpu::PackedFile packed;
  packed.least_bytes = least_bytes;
  if (directory.empty() || !file.is_mapped()) return packed;
  std::string places;  // hashed for the name
  for (const std::string& path : file.paths()) {
    std::error_code error;
    const std::string place = std::filesystem::canonical(path, error).string();
    struct stat info {};
    if (error || ::stat(place.c_str(), &info) != 0) return packed;
    places += place + "\n";
    packed.label +=
        fmt::format("{}: {} bytes, time {}.{:09}, number {} on {}\n", place, info.st_size,
                    info.st_mtim.tv_sec, info.st_mtim.tv_nsec, info.st_ino, info.st_dev);
  }
  packed.label += fmt::format("fingerprint {:016x}\n", model_fingerprint(file));
  const std::uint64_t hash = hash_bytes(std::as_bytes(std::span(places)));
  packed.name =
      fmt::format("{}-{:016x}", std::filesystem::path(file.paths().front()).stem().string(), hash);
  packed.directory = directory;
  return packed;
}

}  // namespace sluice

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
  std::string stem;
  for (const std::string& path : file.paths()) {
    std::error_code error;
    const std::filesystem::path place = std::filesystem::canonical(path, error);
    struct stat info {};
    if (error || ::stat(place.c_str(), &info) != 0) return packed;
    if (stem.empty()) stem = place.stem().string().substr(0, 100);
    places += place.string() + "\n";
    // The time of the last change can't be set back by a program, as that of the last write can.
    packed.label +=
        fmt::format("{}: {} bytes, written {}.{:09}, changed {}.{:09}, number {} on {}\n",
                    place.string(), info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec,
                    info.st_ctim.tv_sec, info.st_ctim.tv_nsec, info.st_ino, info.st_dev);
  }
  packed.label += fmt::format("fingerprint {:016x}\n", model_fingerprint(file));
  packed.name = fmt::format("{}-{:016x}", stem, hash_bytes(std::as_bytes(std::span(places))));
  packed.directory = directory;
  return packed;
}

}  // namespace sluice

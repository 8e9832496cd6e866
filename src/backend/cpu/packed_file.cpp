#include "src/backend/cpu/packed_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

namespace sluice::cpu {
namespace {

constexpr std::size_t kChunk = std::size_t{16} << 20;  // written at a time
constexpr std::size_t kSamples = 256;
constexpr std::size_t kSampleBytes = 4096;
constexpr std::chrono::milliseconds kPatience{5000};

// A hash of some pages, spread evenly, the last bytes among them: nothing waits for the disk when
// the file is written, so a crash of the machine may leave pages of zeros in it.
std::uint64_t sample(std::span<const std::byte> bytes) {
  std::uint64_t hash = 0xcbf29ce484222325;
  const std::size_t some = std::min(kSampleBytes, bytes.size());
  for (std::size_t i = 0; i < kSamples; ++i) {
    const std::size_t at = (bytes.size() - some) / (kSamples - 1) * i;
    const std::size_t from = i + 1 < kSamples ? at : bytes.size() - some;
    for (std::size_t word = from; word + 8 <= from + some; word += 8) {
      std::uint64_t value;
      std::memcpy(&value, bytes.data() + word, sizeof value);
      hash = (hash ^ value) * 0x100000001b3;
      hash ^= hash >> 32;
    }
  }
  return hash;
}

std::string whole_label(const PackedFile& file, std::span<const std::byte> bytes) {
  return fmt::format("sluice packed weights {}\n{} bytes, sample {:016x}\n{}", kPackVersion,
                     bytes.size(), sample(bytes), file.label);
}

// Whether only this user can have written it.
bool is_own(const struct stat& info) {
  return info.st_uid == ::geteuid() && (info.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

bool write_all(int fd, const void* data, std::size_t bytes, std::size_t at) {
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t some = ::pwrite(fd, from, bytes, static_cast<off_t>(at));
    if (some < 0 && errno == EINTR) continue;
    if (some <= 0) return false;
    from += some;
    bytes -= static_cast<std::size_t>(some);
    at += static_cast<std::size_t>(some);
  }
  return true;
}

// NAME.PID.partial of processes that are no more.
void remove_abandoned(const PackedFile& file) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(file.directory, error)) {
    const std::string name = entry.path().filename().string();
    int process = 0;
    char end = 0;
    if (!name.starts_with(file.name + ".") || !name.ends_with(".partial")) continue;
    const char* number = name.c_str() + file.name.size() + 1;
    if (std::sscanf(number, "%d.partia%c", &process, &end) != 2 || process <= 0) continue;
    if (::kill(process, 0) != 0 && errno == ESRCH) std::filesystem::remove(entry.path(), error);
  }
}

}  // namespace

std::optional<KeptBytes> KeptBytes::open(const PackedFile& file, std::uint64_t bytes) {
  if (file.directory.empty() || bytes < file.least_bytes) return std::nullopt;
  struct stat info {};
  if (::lstat(file.path().c_str(), &info) != 0 || !S_ISREG(info.st_mode) || !is_own(info) ||
      static_cast<std::uint64_t>(info.st_size) != kPackedLabelBytes + bytes) {
    return std::nullopt;
  }
  Result<MappedFile> mapped = MappedFile::open(file.path());
  if (!mapped.ok() || mapped->bytes().size() != kPackedLabelBytes + bytes) return std::nullopt;
  const std::string label = whole_label(file, mapped->bytes().subspan(kPackedLabelBytes));
  const auto* found = reinterpret_cast<const char*>(mapped->bytes().data());
  const bool same = label.size() < kPackedLabelBytes &&
                    std::equal(label.begin(), label.end(), found) &&
                    std::all_of(found + label.size(), found + kPackedLabelBytes,
                                [](char c) { return c == '\0'; });
  if (!same) return std::nullopt;
  return KeptBytes(std::move(mapped).value());
}

Status PackedFileWriter::check(const PackedFile& file, std::uint64_t bytes) {
  std::error_code error;
  std::filesystem::create_directories(file.directory, error);
  struct stat info {};
  if (error || ::stat(file.directory.c_str(), &info) != 0) {
    return failed("'{}' cannot be made: {}", file.directory,
                  error ? error.message() : std::strerror(errno));
  }
  if (!is_own(info)) return failed("others may write to '{}'", file.directory);
  if (::access(file.directory.c_str(), W_OK) != 0) {
    return failed("'{}' cannot be written to: {}", file.directory, std::strerror(errno));
  }
  struct statvfs disk {};
  if (::statvfs(file.directory.c_str(), &disk) == 0) {
    const std::uint64_t free = std::uint64_t{disk.f_bavail} * disk.f_frsize;
    if (bytes > free / 4) {
      return failed("they take {} MB, more than a quarter of the {} MB that are free in '{}'",
                    bytes / 1000000, free / 1000000, file.directory);
    }
  }
  if (file.label.size() + 128 >= kPackedLabelBytes) return failed("their label is too long");
  return {};
}

PackedFileWriter::PackedFileWriter(const PackedFile& file, std::span<const std::byte> bytes,
                                   const std::atomic<bool>* cancel)
    : cancel_(cancel), thread_([this, file, bytes] { write(file, bytes); }) {}

PackedFileWriter::~PackedFileWriter() {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  const auto cancelled = [this] { return cancel_ != nullptr && *cancel_; };
  while (!done_ && !cancelled() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  stop_ = true;
  thread_.join();
}

void PackedFileWriter::write(const PackedFile& file, std::span<const std::byte> bytes) {
  remove_abandoned(file);
  const std::string partial = fmt::format("{}.{}.partial", file.path(), ::getpid());
  const int fd = ::open(partial.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  bool good = fd >= 0;
  for (std::size_t at = 0; good && at < bytes.size(); at += kChunk) {
    const std::size_t some = std::min(kChunk, bytes.size() - at);
    good = !stop_ && write_all(fd, bytes.data() + at, some, kPackedLabelBytes + at);
  }
  std::vector<char> label(kPackedLabelBytes);  // last: without it the file is not one
  const std::string text = whole_label(file, bytes);
  std::copy(text.begin(), text.end(), label.begin());
  good = good && write_all(fd, label.data(), label.size(), 0) &&
         ::rename(partial.c_str(), file.path().c_str()) == 0;
  if (fd >= 0) {
    ::close(fd);
    if (!good) ::unlink(partial.c_str());
  }
  done_ = true;
}

}  // namespace sluice::cpu

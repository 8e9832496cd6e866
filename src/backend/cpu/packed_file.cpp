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

#include "src/backend/cpu/thread_pool.h"

namespace sluice::cpu {
namespace {

constexpr std::size_t kChunk = std::size_t{1} << 20;  // hashed at a time
constexpr std::chrono::milliseconds kPatience{5000};
constexpr std::chrono::milliseconds kSilent{1000};  // of the patience

// Of one chunk: four sums side by side, each a product and an exclusive or a word.
std::uint64_t hash_chunk(std::span<const std::byte> bytes) {
  constexpr std::uint64_t kPrime = 0x9e3779b97f4a7c15;
  std::uint64_t hash[4] = {1, 2, 3, 4};
  std::size_t at = 0;
  for (; at + 32 <= bytes.size(); at += 32) {
    std::uint64_t words[4];
    std::memcpy(words, bytes.data() + at, sizeof words);
    for (int i = 0; i < 4; ++i) hash[i] = (hash[i] ^ words[i] ^ hash[i] >> 31) * kPrime;
  }
  for (; at < bytes.size(); ++at) {
    hash[0] = (hash[0] ^ std::to_integer<std::uint64_t>(bytes[at]) ^ hash[0] >> 31) * kPrime;
  }
  std::uint64_t all = bytes.size();
  for (const std::uint64_t part : hash) all = (all ^ part ^ part >> 31) * kPrime;
  return all ^ all >> 31;
}
std::uint64_t join(std::uint64_t hash, std::uint64_t chunk) {
  return (hash ^ chunk ^ hash >> 31) * 0x9e3779b97f4a7c15;
}

// Of all bytes, on the pool's threads; to find damage, not forgers.
std::uint64_t hash_all(std::span<const std::byte> bytes, ThreadPool& pool) {
  std::vector<std::uint64_t> chunks((bytes.size() + kChunk - 1) / kChunk);
  pool.parallel_for(chunks.size(), 4, [&](std::uint64_t begin, std::uint64_t end) {
    for (std::uint64_t i = begin; i < end; ++i) {
      chunks[i] =
          hash_chunk(bytes.subspan(i * kChunk, std::min(kChunk, bytes.size() - i * kChunk)));
    }
  });
  std::uint64_t hash = 0;
  for (const std::uint64_t chunk : chunks) hash = join(hash, chunk);
  return hash;
}

std::string whole_label(const PackedFile& file, std::uint64_t bytes, std::uint64_t hash) {
  return fmt::format("sluice packed weights {}\n{} bytes, hash {:016x}\n{}", kPackVersion, bytes,
                     hash, file.label);
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

std::string partial_path(const PackedFile& file) {
  return fmt::format("{}.{}.partial", file.path(), ::getpid());
}

// NAME.PID.partial of processes that are no more.
void remove_abandoned(const PackedFile& file) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::directory_iterator entry(file.directory, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    int process = 0;
    char end = 0;
    if (!name.starts_with(file.name + ".") || !name.ends_with(".partial")) continue;
    const char* number = name.c_str() + file.name.size() + 1;
    if (std::sscanf(number, "%d.partia%c", &process, &end) != 2 || process <= 0) continue;
    std::error_code ignored;
    if (::kill(process, 0) != 0 && errno == ESRCH) fs::remove(entry->path(), ignored);
  }
}

// A file without a name where the file system has such, which nothing has to remove.
int open_nameless(const PackedFile& file) {
#ifdef O_TMPFILE
  return ::open(file.directory.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
#else
  (void)file;
  return -1;
#endif
}

}  // namespace

std::optional<KeptBytes> KeptBytes::open(const PackedFile& file, std::uint64_t bytes,
                                         ThreadPool& pool) {
  if (file.directory.empty() || bytes < file.least_bytes) return std::nullopt;
  struct stat info {};
  if (::lstat(file.path().c_str(), &info) != 0 || !S_ISREG(info.st_mode) || !is_own(info) ||
      static_cast<std::uint64_t>(info.st_size) != kPackedLabelBytes + bytes) {
    return std::nullopt;
  }
  Result<MappedFile> mapped = MappedFile::open(file.path());
  if (!mapped.ok() || mapped->bytes().size() != kPackedLabelBytes + bytes) return std::nullopt;
  const auto* found = reinterpret_cast<const char*>(mapped->bytes().data());
  const auto is = [&](const std::string& label) {
    return label.size() < kPackedLabelBytes && std::equal(label.begin(), label.end(), found) &&
           std::all_of(found + label.size(), found + kPackedLabelBytes,
                       [](char c) { return c == '\0'; });
  };
  if (!is(whole_label(file, bytes, hash_all(mapped->bytes().subspan(kPackedLabelBytes), pool)))) {
    return std::nullopt;
  }
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
  if (info.st_uid != ::geteuid()) return failed("'{}' is another user's", file.directory);
  if (!is_own(info)) return failed("others may write to '{}'", file.directory);
  if (::access(file.directory.c_str(), W_OK) != 0) {
    return failed("'{}' cannot be written to: {}", file.directory, std::strerror(errno));
  }
  if (::lstat(file.path().c_str(), &info) == 0 && S_ISDIR(info.st_mode)) {
    return failed("'{}' is a folder", file.path());
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
                                   const std::atomic<bool>* cancel,
                                   std::function<void(const std::string&)> on_note)
    : cancel_(cancel), on_note_(std::move(on_note)), thread_([this, file, bytes] {
        outcome_ = write(file, bytes);
        done_ = true;
      }) {}

PackedFileWriter::~PackedFileWriter() {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  const auto cancelled = [this] { return cancel_ != nullptr && *cancel_; };
  bool told = false;
  while (!done_ && !cancelled() && Clock::now() - start < kPatience) {
    if (!told && on_note_ && Clock::now() - start > kSilent) {
      on_note_("packed weights for later starts are still being written; Ctrl-C leaves it");
      told = true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  stop_ = true;
  thread_.join();
  if (!outcome_.ok() && on_note_) {
    on_note_(
        fmt::format("packed weights were not kept for later starts: {}", outcome_.error().message));
  }
}

Status PackedFileWriter::write(const PackedFile& file, std::span<const std::byte> bytes) const {
  remove_abandoned(file);
  const std::string partial = partial_path(file);
  const auto error = [](const char* what) { return failed("{}: {}", what, std::strerror(errno)); };
  int fd = open_nameless(file);
  const bool nameless = fd >= 0;
  if (!nameless) fd = ::open(partial.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return error("the file cannot be made");
  const auto fill = [&]() -> Status {
    std::uint64_t hash = 0;
    for (std::size_t at = 0; at < bytes.size(); at += kChunk) {
      if (stop_) return failed("the program ended first");
      const std::span<const std::byte> some =
          bytes.subspan(at, std::min(kChunk, bytes.size() - at));
      hash = join(hash, hash_chunk(some));
      if (!write_all(fd, some.data(), some.size(), kPackedLabelBytes + at)) {
        return error("the file cannot be written");
      }
    }
    std::string label =
        whole_label(file, bytes.size(), hash);  // last: without it, it is no such file
    label.resize(kPackedLabelBytes);
    if (!write_all(fd, label.data(), label.size(), 0)) return error("the file cannot be written");
    if (nameless && ::linkat(AT_FDCWD, fmt::format("/proc/self/fd/{}", fd).c_str(), AT_FDCWD,
                             partial.c_str(), AT_SYMLINK_FOLLOW) != 0) {
      return error("the file cannot be given a name");
    }
    if (::rename(partial.c_str(), file.path().c_str()) != 0) {
      return error("the file cannot be given its name");
    }
    return {};
  };
  const Status status = fill();
  ::close(fd);
  if (!status.ok()) ::unlink(partial.c_str());
  return status;
}

}  // namespace sluice::cpu

// Packed weights kept in a file between starts. Packing a model makes the same bytes every time, so
// a later start can map them: it is faster, and the weights are the system's cache of a file, which
// processes share and which can be dropped, instead of this process's memory.
//
//   file = | label, a text, zeros up to 4096 bytes | the bytes of PackedWeights |
//
// The label says everything that the bytes depend on, and has a hash of them. A file with another
// label or size, with other bytes, or of another user, is not used, and is replaced by the next one
// that is kept.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <thread>

#include "src/base/mapped_file.h"
#include "src/base/status.h"

namespace sluice::cpu {

class ThreadPool;

// Where packed weights are kept, and what they are made from.
struct PackedFile {
  std::string directory;          // "": nothing is kept
  std::string name;               // of the file
  std::string label;              // of the model file; packing adds its own part
  std::uint64_t least_bytes = 0;  // fewer are packed faster than they are found

  std::string path() const { return directory + "/" + name; }
};

inline constexpr std::size_t kPackedLabelBytes = 4096;
// Raised with every change of what packing makes (src/backend/cpu/pack_layout.h), or of the order
// of matrices in PackedWeights; tests/kernels_test.cpp has a hash of packed bytes.
inline constexpr int kPackVersion = 1;

// The bytes that are kept, where there are `bytes` of them under this label, undamaged: all are
// read once, on the pool's threads.
class KeptBytes {
 public:
  static std::optional<KeptBytes> open(const PackedFile& file, std::uint64_t bytes,
                                       ThreadPool& pool);
  const std::byte* data() const { return file_.bytes().data() + kPackedLabelBytes; }

 private:
  explicit KeptBytes(MappedFile file) : file_(std::move(file)) {}
  MappedFile file_;
};

// Writes packed weights to their file, beside whatever else the program does. The file appears
// under its name only when all of it is written.
class PackedFileWriter {
 public:
  // Whether it makes sense to begin: makes the directory, and looks at whose it is and how much is
  // free (a quarter of which the file may take). The message says why not.
  static Status check(const PackedFile& file, std::uint64_t bytes);

  // `bytes`, and `cancel` where given, must outlive this object. `on_note`, which may be empty,
  // hears at the end where it takes long or went wrong.
  PackedFileWriter(const PackedFile& file, std::span<const std::byte> bytes,
                   const std::atomic<bool>* cancel,
                   std::function<void(const std::string& line)> on_note);
  // Waits up to five seconds for the end, unless the user wants to stop (`cancel`). If that is not
  // enough, it gives up and nothing is kept.
  ~PackedFileWriter();
  PackedFileWriter(const PackedFileWriter&) = delete;
  PackedFileWriter& operator=(const PackedFileWriter&) = delete;

 private:
  Status write(const PackedFile& file, std::span<const std::byte> bytes) const;

  const std::atomic<bool>* cancel_;
  std::function<void(const std::string&)> on_note_;
  Status outcome_;  // once done_
  std::atomic<bool> stop_ = false;
  std::atomic<bool> done_ = false;
  std::thread thread_;
};

}  // namespace sluice::cpu

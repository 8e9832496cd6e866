// Global memory of the emulator: buffers that know their bounds, which of their bytes have ever
// been written, and by which block of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <type_traits>

namespace sluice::simt {

// A place in the source; current() as a default argument is the caller's. (std::source_location in
// small: clang 14, whose clang-tidy reads this, has none.)
struct Site {
  const char* file = "";
  std::uint32_t line = 0;
  static constexpr Site current(const char* file = __builtin_FILE(),
                                std::uint32_t line = __builtin_LINE()) {
    return {file, line};
  }
};

template <class T>
class Global;

// A buffer in global memory. Pages are taken when they are first touched, so that a test can have a
// matrix of many gigabytes and write only the part that it uses.
class Buffer {
 public:
  Buffer(std::string name, std::size_t bytes);
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();

  const std::string& name() const { return name_; }
  std::size_t size() const { return size_; }

  // Host side: copies in, and marks the bytes as written.
  void write(std::size_t offset, const void* from, std::size_t bytes);
  template <class T>
  void write(std::span<const T> from) {
    write(0, from.data(), from.size_bytes());
  }
  // Host side: element i, which must have been written.
  template <class T>
  T read(std::size_t i) const {
    T value;
    read_bytes(i * sizeof(T), &value, sizeof(T));
    return value;
  }
  // Bytes that must have been written.
  void read_bytes(std::size_t offset, void* to, std::size_t bytes) const;
  // The first byte of [begin, end) that nobody has written.
  std::optional<std::size_t> first_unwritten(std::size_t begin, std::size_t end) const;
  // Whether a kernel has ever written here.
  bool kernels_write() const { return kernels_write_; }
  // How many bytes have been written.
  std::size_t written_bytes() const;

  // Start of the buffer as a kernel sees it.
  template <class T>
  Global<T> pointer() {
    return Global<T>(this, 0);
  }

  // Kernel side; a fault of the running thread when the access is not allowed.
  void device_read(std::int64_t offset, void* to, std::size_t bytes, const Site& site) const;
  void device_write(std::int64_t offset, const void* from, std::size_t bytes, const Site& site);
  // Adds 1 to a word, as one operation for all blocks of a grid; what it was before. And sets it 0.
  std::uint32_t add(std::int64_t offset, const Site& site);
  void reset(std::int64_t offset);

 private:
  void check_order(std::size_t begin, std::size_t bytes, const char* what, const Site& site) const;
  void check(std::int64_t offset, std::size_t bytes, const char* what, const Site& site) const;

  std::string name_;
  std::size_t size_;
  std::byte* data_;
  std::uint32_t* written_;  // of each byte, the number of its last write (Block::write_number)
  bool kernels_write_ = false;
};

// A pointer into a buffer. Like a pointer it may point anywhere; what counts is where it is used.
template <class T>
class Global {
 public:
  Global() = default;
  Global(Buffer* buffer, std::int64_t offset) : buffer_(buffer), offset_(offset) {}
  operator Global<const T>() const  // NOLINT(google-explicit-constructor): as T* to const T*
      requires(!std::is_const_v<T>) {
    return {buffer_, offset_};
  }
  Global operator+(std::int64_t n) const {
    return {buffer_, offset_ + n * static_cast<std::int64_t>(sizeof(T))};
  }
  Buffer* buffer() const { return buffer_; }
  std::int64_t offset() const { return offset_; }  // in bytes

 private:
  Buffer* buffer_ = nullptr;
  std::int64_t offset_ = 0;
};

}  // namespace sluice::simt

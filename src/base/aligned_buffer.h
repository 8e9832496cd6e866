// Large zeroed memory that reports failure instead of throwing.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <utility>

#include "src/base/status.h"

namespace sluice {

// Owns page-aligned anonymous memory, zero until written; pages are taken when first touched.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  // `what` is named in the error ("KV cache").
  static Result<AlignedBuffer> allocate(std::size_t bytes, std::string_view what);

  AlignedBuffer(AlignedBuffer&& other) noexcept { *this = std::move(other); }
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;
  ~AlignedBuffer();

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace sluice

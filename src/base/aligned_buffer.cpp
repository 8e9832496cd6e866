#include "src/base/aligned_buffer.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace sluice {

Result<AlignedBuffer> AlignedBuffer::allocate(std::size_t bytes, std::string_view what) {
  AlignedBuffer buffer;
  const std::size_t size = std::max<std::size_t>(bytes, 1);
  void* data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    return make_error(ErrorCode::kNoMemory, "cannot allocate {:.1f} MiB for {}: {}",
                      static_cast<double>(bytes) / (1 << 20), what, std::strerror(errno));
  }
  // Few large pages need fewer address translations; a kernel that refuses is no error.
  if (size >= (std::size_t{4} << 20)) ::madvise(data, size, MADV_HUGEPAGE);
  buffer.data_ = static_cast<std::byte*>(data);
  buffer.size_ = size;
  return buffer;
}

AlignedBuffer::~AlignedBuffer() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

}  // namespace sluice

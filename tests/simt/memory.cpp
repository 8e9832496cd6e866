#include "tests/simt/memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "tests/simt/block.h"

namespace sluice::simt {
namespace {

void* reserve(std::size_t bytes) {
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) throw std::runtime_error(fmt::format("cannot reserve {} bytes", bytes));
  return at;
}

}  // namespace

Buffer::Buffer(std::string name, std::size_t bytes)
    : name_(std::move(name)),
      size_(bytes),
      data_(static_cast<std::byte*>(reserve(bytes))),
      written_(static_cast<std::uint32_t*>(reserve(bytes * sizeof(std::uint32_t)))) {}

Buffer::~Buffer() {
  munmap(data_, size_);
  munmap(written_, size_ * sizeof(std::uint32_t));
}

void Buffer::write(std::size_t offset, const void* from, std::size_t bytes) {
  if (bytes > size_ || offset > size_ - bytes) {
    throw std::out_of_range(fmt::format("host writes past the end of buffer '{}'", name_));
  }
  if (bytes == 0) return;  // then `from` may be null
  std::memcpy(data_ + offset, from, bytes);
  std::fill_n(written_ + offset, bytes, 1u);
}

void Buffer::read_bytes(std::size_t offset, void* to, std::size_t bytes) const {
  if (bytes > size_ || offset > size_ - bytes || first_unwritten(offset, offset + bytes)) {
    throw std::out_of_range(
        fmt::format("host reads byte {} of buffer '{}', which nobody has written", offset, name_));
  }
  std::memcpy(to, data_ + offset, bytes);
}

std::optional<std::size_t> Buffer::first_unwritten(std::size_t begin, std::size_t end) const {
  const std::uint32_t* found = std::find(written_ + begin, written_ + end, 0u);
  if (found == written_ + end) return std::nullopt;
  return static_cast<std::size_t>(found - written_);
}

std::size_t Buffer::written_bytes() const {
  return size_ - static_cast<std::size_t>(std::count(written_, written_ + size_, 0u));
}

void Buffer::check(std::int64_t offset, std::size_t bytes, const char* what,
                   const Site& site) const {
  const auto signed_bytes = static_cast<std::int64_t>(bytes);
  if (offset < 0 || offset + signed_bytes > static_cast<std::int64_t>(size_)) {
    fault(site, fmt::format("{} of {} bytes at offset {} of buffer '{}', which has {} bytes", what,
                            bytes, offset, name_, size_));
  }
  if (offset % signed_bytes != 0) {
    fault(site, fmt::format("misaligned {} of {} bytes at offset {} of buffer '{}'", what, bytes,
                            offset, name_));
  }
}

void Buffer::device_read(std::int64_t offset, void* to, std::size_t bytes, const Site& site) const {
  check(offset, bytes, "read", site);
  const auto begin = static_cast<std::size_t>(offset);
  if (const auto unwritten = first_unwritten(begin, begin + bytes)) {
    fault(site, fmt::format("read of byte {} of buffer '{}', which nobody has written", *unwritten,
                            name_));
  }
  check_order(begin, bytes, "read", site);
  std::memcpy(to, data_ + begin, bytes);
}

void Buffer::check_order(std::size_t begin, std::size_t bytes, const char* what,
                         const Site& site) const {
  const Block& block = Block::running();
  for (std::size_t i = begin; i < begin + bytes; ++i) {
    if (block.is_unordered(written_[i])) {
      fault(site, fmt::format("{} of byte {} of buffer '{}', which another block of the grid has "
                              "written, with no order between the two",
                              what, i, name_));
    }
  }
}

std::uint32_t Buffer::add(std::int64_t offset, const Site& site) {
  check(offset, 4, "addition", site);
  std::uint32_t value;
  std::memcpy(&value, data_ + offset, sizeof value);
  const std::uint32_t sum = value + 1;
  std::memcpy(data_ + offset, &sum, sizeof sum);
  kernels_write_ = true;
  return value;
}
void Buffer::reset(std::int64_t offset) { std::memset(data_ + offset, 0, 4); }

void Buffer::device_write(std::int64_t offset, const void* from, std::size_t bytes,
                          const Site& site) {
  check(offset, bytes, "write", site);
  check_order(static_cast<std::size_t>(offset), bytes, "write", site);
  kernels_write_ = true;
  std::memcpy(data_ + offset, from, bytes);
  std::fill_n(written_ + offset, bytes, Block::running().write_number());
}

}  // namespace sluice::simt

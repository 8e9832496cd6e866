// The primitives of cuda/simt.h for the emulator. Include that header, not this one. What each does
// is described there; what is checked is described in tests/simt/shared_memory.h and
// tests/simt/block.h. Places in the source come by default arguments: kernels do not see them.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "src/base/half.h"
#include "tests/simt/block.h"
#include "tests/simt/memory.h"
#include "tests/simt/shared_memory.h"

namespace sluice::simt {

template <class U, class T>
Global<U> cast(Global<T> p) {
  return {p.buffer(), p.offset()};
}
template <class U, class T>
Shared<U> cast(Shared<T> p) {
  return Shared<U>(p.offset());
}

template <class T>
bool is_null(const Global<T>& p) {
  return p.buffer() == nullptr;
}

inline Shared<std::uint8_t> dynamic_shared() { return Shared<std::uint8_t>(0); }

inline void read_bytes(const Buffer* buffer, std::int64_t offset, void* to, std::size_t bytes,
                       const Site& site) {
  if (buffer == nullptr) fault(site, "read through a null pointer");
  if (buffer->kernels_write()) Block::running().check_waited(*buffer, "reads from", site);
  buffer->device_read(offset, to, bytes, site);
}
inline void write_bytes(Buffer* buffer, std::int64_t offset, const void* from, std::size_t bytes,
                        const Site& site) {
  if (buffer == nullptr) fault(site, "write through a null pointer");
  Block::running().check_waited(*buffer, "writes to", site);
  buffer->device_write(offset, from, bytes, site);
}

template <class T>
std::remove_const_t<T> load(Global<T> p, const Site& site = Site::current()) {
  std::remove_const_t<T> value;
  read_bytes(p.buffer(), p.offset(), &value, sizeof value, site);
  return value;
}
template <class T>
std::remove_const_t<T> load(Shared<T> p, const Site& site = Site::current()) {
  std::remove_const_t<T> value;
  Block& block = Block::running();
  block.shared().read(block.accessor(), p.offset(), &value, sizeof value, site);
  return value;
}
template <class T>
void store(Global<T> p, std::type_identity_t<T> value, const Site& site = Site::current()) {
  write_bytes(p.buffer(), p.offset(), &value, sizeof value, site);
}
template <class T>
void store(Shared<T> p, std::type_identity_t<T> value, const Site& site = Site::current()) {
  Block& block = Block::running();
  block.shared().write(block.accessor(), p.offset(), &value, sizeof value, site);
}
template <class T>
Words load_words(Global<T> p, const Site& site = Site::current()) {
  return load(cast<const Words>(p), site);
}
template <class T>
Words load_words(Shared<T> p, const Site& site = Site::current()) {
  return load(cast<const Words>(p), site);
}
template <class T>
void store_words(Global<T> p, const Words& words, const Site& site = Site::current()) {
  store(cast<Words>(p), words, site);
}
template <class T>
void store_words(Shared<T> p, const Words& words, const Site& site = Site::current()) {
  store(cast<Words>(p), words, site);
}

inline std::uint32_t block_index() { return Block::running().block_index(); }
inline std::uint32_t thread_index() { return Block::running().thread_index(); }
inline std::uint32_t lane() { return thread_index() % 32; }
inline std::uint32_t warp() { return thread_index() / 32; }

inline void wait_for_previous() { Block::running().wait_for_previous(); }
inline void sync_threads(const Site& site = Site::current()) {
  Block::running().sync_threads(site);
}
inline bool arrive_last(Global<std::uint32_t> counter, std::uint32_t count,
                        const Site& site = Site::current()) {
  if (counter.buffer() == nullptr) fault(site, "arrives at a null pointer");
  return Block::running().arrive_last(*counter.buffer(), counter.offset(), count, site);
}
inline void sync_warp(std::uint32_t mask = kAllLanes, const Site& site = Site::current()) {
  Block::running().meet({.operation = WarpOperation::kSyncWarp, .mask = mask, .site = site});
}
inline std::uint32_t shuffle(std::uint32_t mask, std::uint32_t value, std::uint32_t from,
                             const Site& site = Site::current()) {
  return Block::running().meet({.operation = WarpOperation::kShuffle,
                                .mask = mask,
                                .site = site,
                                .in = {value, from % 32}})[0];
}
inline std::uint32_t shuffle_xor(std::uint32_t mask, std::uint32_t value, std::uint32_t lanes,
                                 const Site& site = Site::current()) {
  return shuffle(mask, value, lane() ^ lanes, site);
}
inline std::uint32_t ballot(std::uint32_t mask, bool condition,
                            const Site& site = Site::current()) {
  return Block::running().meet({.operation = WarpOperation::kBallot,
                                .mask = mask,
                                .site = site,
                                .in = {condition ? 1u : 0u}})[0];
}

inline std::int32_t dp4a(std::uint32_t a, std::uint32_t b, std::int32_t c) {
  auto sum = static_cast<std::uint32_t>(c);
  for (int i = 0; i < 32; i += 8) {
    const std::int32_t x = static_cast<std::int8_t>(a >> i & 0xff);
    const std::int32_t y = static_cast<std::int8_t>(b >> i & 0xff);
    sum += static_cast<std::uint32_t>(x * y);
  }
  return static_cast<std::int32_t>(sum);
}

inline std::uint32_t byte_permute(std::uint32_t a, std::uint32_t b, std::uint32_t selector) {
  const std::uint64_t bytes = std::uint64_t{b} << 32 | a;
  std::uint32_t result = 0;
  for (std::uint32_t i = 0; i < 32; i += 8) {
    const std::uint32_t nibble = selector >> (i / 2) & 0xf;
    auto byte = static_cast<std::uint32_t>(bytes >> (8 * (nibble & 7))) & 0xff;
    if ((nibble & 8) != 0) byte = (byte & 0x80) != 0 ? 0xff : 0;
    result |= byte << i;
  }
  return result;
}

template <class T>
Words load_matrices_x4(Shared<T> row, const Site& site = Site::current()) {
  const auto out = Block::running().meet({.operation = WarpOperation::kLoadMatricesX4,
                                          .mask = kAllLanes,
                                          .site = site,
                                          .offset = row.offset()});
  return {{out[0], out[1], out[2], out[3]}};
}
template <class T>
Words load_matrices_x2(Shared<T> row, const Site& site = Site::current()) {
  const auto out = Block::running().meet({.operation = WarpOperation::kLoadMatricesX2,
                                          .mask = kAllLanes,
                                          .site = site,
                                          .offset = row.offset()});
  return {{out[0], out[1], 0, 0}};
}
inline void mma_s8(std::int32_t (&c)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                   const Site& site = Site::current()) {
  const auto word = [](std::int32_t value) { return static_cast<std::uint32_t>(value); };
  const auto out = Block::running().meet(
      {.operation = WarpOperation::kMma,
       .mask = kAllLanes,
       .site = site,
       .in = {a[0], a[1], a[2], a[3], b[0], b[1], word(c[0]), word(c[1]), word(c[2]), word(c[3])}});
  for (std::size_t i = 0; i < 4; ++i) c[i] = static_cast<std::int32_t>(out[i]);
}

inline void mma_s8_k16(std::int32_t (&c)[4], const std::uint32_t (&a)[2], std::uint32_t b,
                       const Site& site = Site::current()) {
  mma_s8(c, {a[0], a[1], 0, 0}, {b, 0}, site);
}

template <class T, class U>
void copy_async_16(Shared<T> to, Global<U> from, std::uint32_t bytes,
                   const Site& site = Site::current()) {
  if (from.buffer() == nullptr) fault(site, "copy through a null pointer");
  Block::running().copy_async(to.offset(), *from.buffer(), from.offset(), 16, bytes, site);
}
template <class T, class U>
void copy_async_4(Shared<T> to, Global<U> from, std::uint32_t bytes,
                  const Site& site = Site::current()) {
  if (from.buffer() == nullptr) fault(site, "copy through a null pointer");
  Block::running().copy_async(to.offset(), *from.buffer(), from.offset(), 4, bytes, site);
}
inline void commit_async() { Block::running().commit_async(); }
template <int kLatest>
void wait_async(const Site& site = Site::current()) {
  Block::running().wait_async(kLatest, site);
}

inline float fma(float a, float b, float c) { return std::fmaf(a, b, c); }
inline float square_root(float x) { return std::sqrt(x); }
inline std::uint32_t float_bits(float f) { return std::bit_cast<std::uint32_t>(f); }
inline float float_of_bits(std::uint32_t bits) { return std::bit_cast<float>(bits); }
inline float half_to_float(std::uint16_t bits) { return sluice::half_to_float(bits); }
inline std::uint16_t float_to_half(float f) { return sluice::float_to_half(f); }

}  // namespace sluice::simt

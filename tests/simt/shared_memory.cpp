#include "tests/simt/shared_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tests/simt/block.h"

namespace sluice::simt {

void SharedMemory::begin_block() { std::fill(state_.begin(), state_.end(), State::kUnwritten); }

bool SharedMemory::is_before(const Record& record, const Accessor& who) {
  if (record.epoch < who.epoch || record.thread == who.thread) return true;
  return record.thread / 32 == who.thread / 32 && record.clock <= who.seen[record.thread % 32];
}

SharedMemory::Record SharedMemory::record_of(const Accessor& who, const Site& site) {
  return {site, who.thread, who.epoch, who.clock};
}

void SharedMemory::check(std::int64_t offset, std::size_t bytes, const char* what,
                         const Site& site) const {
  const auto signed_bytes = static_cast<std::int64_t>(bytes);
  if (offset < 0 || offset + signed_bytes > static_cast<std::int64_t>(data_.size())) {
    fault(site, fmt::format("{} of {} bytes at offset {} of shared memory, which has {} bytes",
                            what, bytes, offset, data_.size()));
  }
  if (offset % signed_bytes != 0) {
    fault(site, fmt::format("misaligned {} of {} bytes at offset {} of shared memory", what, bytes,
                            offset));
  }
}

void SharedMemory::check_state(std::size_t at, bool is_read, const char* what,
                               const Site& site) const {
  const Record& write = accesses_[at].write;
  if (state_[at] == State::kUnderWay) {
    fault(site, fmt::format("{} of shared byte {} while a copy that thread {} started at {} is "
                            "still under way: wait_async and a barrier come first",
                            what, at, write.thread, describe(write.site)));
  }
  if (is_read && state_[at] == State::kUnwritten) {
    fault(site, fmt::format("read of shared byte {}, which nobody has written", at));
  }
}

void SharedMemory::check_order(const Record& earlier, const char* did, const Accessor& who,
                               const char* does, std::size_t at, const Site& site) const {
  if (is_before(earlier, who)) return;
  fault(site, fmt::format("race on shared byte {}: thread {} {} it at {} and thread {} {} it, with "
                          "no barrier between them",
                          at, earlier.thread, did, describe(earlier.site), who.thread, does));
}

void SharedMemory::note_read(Accesses& byte, const Accessor& who, const Site& site) {
  // A read that comes before this one needs no record: whatever is ordered after this is after it.
  for (Record& read : byte.reads) {
    if (is_before(read, who)) {
      read = record_of(who, site);
      for (Record& other : byte.reads) {
        if (&other != &read && is_before(other, who)) other.epoch = 0;
      }
      return;
    }
  }
  // All three are unordered. Keep two of one warp and one of another.
  const std::uint32_t warp = who.thread / 32;
  const auto warp_of = [&](std::size_t i) { return byte.reads[i].thread / 32; };
  if (warp_of(0) == warp_of(1) && warp_of(1) == warp_of(2) && warp != warp_of(2)) {
    byte.reads[2] = record_of(who, site);
  }
}

void SharedMemory::note_write(std::size_t at, const Accessor& who, const Site& site) {
  Accesses& byte = accesses_[at];
  check_order(byte.write, "wrote", who, "writes", at, site);
  for (const Record& read : byte.reads) check_order(read, "read", who, "writes", at, site);
  byte.write = record_of(who, site);
  for (Record& read : byte.reads) read.epoch = 0;  // all before this write
}

void SharedMemory::read(const Accessor& who, std::int64_t offset, void* to, std::size_t bytes,
                        const Site& site) {
  check(offset, bytes, "read", site);
  const auto begin = static_cast<std::size_t>(offset);
  for (std::size_t at = begin; at < begin + bytes; ++at) {
    check_state(at, true, "read", site);
    check_order(accesses_[at].write, "wrote", who, "reads", at, site);
    note_read(accesses_[at], who, site);
  }
  std::memcpy(to, data_.data() + begin, bytes);
}

void SharedMemory::write(const Accessor& who, std::int64_t offset, const void* from,
                         std::size_t bytes, const Site& site) {
  check(offset, bytes, "write", site);
  const auto begin = static_cast<std::size_t>(offset);
  for (std::size_t at = begin; at < begin + bytes; ++at) {
    check_state(at, false, "write", site);
    note_write(at, who, site);
    state_[at] = State::kWritten;
  }
  std::memcpy(data_.data() + begin, from, bytes);
}

void SharedMemory::start_copy(const Accessor& who, std::int64_t offset, std::size_t bytes,
                              const Site& site) {
  check(offset, bytes, "copy", site);
  const auto begin = static_cast<std::size_t>(offset);
  for (std::size_t at = begin; at < begin + bytes; ++at) {
    check_state(at, false, "copy", site);
    note_write(at, who, site);
    state_[at] = State::kUnderWay;
  }
}

void SharedMemory::land_copy(const Accessor& who, std::int64_t offset, const void* from,
                             std::size_t bytes, const Site& site) {
  const auto begin = static_cast<std::size_t>(offset);
  for (std::size_t at = begin; at < begin + bytes; ++at) {
    state_[at] = State::kWritten;
    accesses_[at].write = record_of(who, site);  // visible to others from here, by a barrier
  }
  std::memcpy(data_.data() + begin, from, bytes);
}

}  // namespace sluice::simt

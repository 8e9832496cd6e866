// A block's shared memory with a record of every byte: whether it was written, whether a copy is
// still on its way to it, and who touched it last. From that come two kinds of faults: reads of
// bytes that hold nothing, and races.
//
// A race is two accesses to a byte by different threads, at least one of them a write, with nothing
// that orders them: no barrier of the block, and between lanes of a warp no chain of sync_warp.
// Each lane keeps a clock, which its synchronizations advance, and the clocks of its neighbours as
// of the last time that they synchronized with it (vector clocks, as in FastTrack: Flanagan and
// Freund, PLDI 2009).
//
// A byte remembers its last write and three unordered reads: two of one warp and one of another.
// Where all synchronizations are of whole warps or blocks, nothing more is needed to see each race;
// with partial masks, a fourth reader may go unseen.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/simt/memory.h"

namespace sluice::simt {

// Who is accessing, and what that thread is ordered after.
struct Accessor {
  std::uint32_t thread = 0;
  std::uint32_t epoch = 0;                  // barriers of the block so far (over the whole launch)
  std::uint32_t clock = 1;                  // of this thread
  std::array<std::uint32_t, 32> seen = {};  // clock of each lane of the warp at the last meeting
};

class SharedMemory {
 public:
  explicit SharedMemory(std::size_t bytes) : data_(bytes), state_(bytes), accesses_(bytes) {}

  std::size_t size() const { return data_.size(); }
  // A new block: nothing is written. Old accesses are ordered by the epoch, which goes on counting.
  void begin_block();

  // Each is a fault of the running thread when the access is not allowed.
  void read(const Accessor& who, std::int64_t offset, void* to, std::size_t bytes,
            const Site& site);
  void write(const Accessor& who, std::int64_t offset, const void* from, std::size_t bytes,
             const Site& site);
  // A copy that has been started; nobody may touch the bytes until it has landed.
  void start_copy(const Accessor& who, std::int64_t offset, std::size_t bytes, const Site& site);
  void land_copy(const Accessor& who, std::int64_t offset, const void* from, std::size_t bytes,
                 const Site& site);

 private:
  enum class State : std::uint8_t { kUnwritten, kWritten, kUnderWay };
  struct Record {
    Site site;
    std::uint32_t thread = 0;
    std::uint32_t epoch = 0;  // 0: empty
    std::uint32_t clock = 0;
  };
  struct Accesses {  // of one byte
    Record write;
    std::array<Record, 3> reads;
  };

  static bool is_before(const Record& record, const Accessor& who);
  static Record record_of(const Accessor& who, const Site& site);
  void check(std::int64_t offset, std::size_t bytes, const char* what, const Site& site) const;
  void check_state(std::size_t at, bool is_read, const char* what, const Site& site) const;
  void check_order(const Record& earlier, const char* did, const Accessor& who, const char* does,
                   std::size_t at, const Site& site) const;
  void note_read(Accesses& byte, const Accessor& who, const Site& site);
  void note_write(std::size_t at, const Accessor& who, const Site& site);

  std::vector<std::byte> data_;
  std::vector<State> state_;
  std::vector<Accesses> accesses_;
};

// A pointer into the running block's shared memory.
template <class T>
class Shared {
 public:
  Shared() = default;
  explicit Shared(std::int64_t offset) : offset_(offset) {}
  Shared operator+(std::int64_t n) const {
    return Shared(offset_ + n * static_cast<std::int64_t>(sizeof(T)));
  }
  std::int64_t offset() const { return offset_; }  // in bytes

 private:
  std::int64_t offset_ = 0;
};

}  // namespace sluice::simt

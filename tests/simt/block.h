// Runs a grid block after block, each block's threads as fibers that take turns: a thread runs
// until it has to wait for others (a barrier, a shuffle, a matrix operation) or is through. What a
// kernel does wrong becomes a fault: a message with block, thread and place in the source.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/simt/fiber.h"
#include "tests/simt/memory.h"
#include "tests/simt/shared_memory.h"

namespace sluice::simt {

struct Shape {
  std::uint32_t blocks = 1;        // of the grid
  std::uint32_t threads = 32;      // of a block
  std::size_t shared_bytes = 0;    // of a block
  std::uint32_t first_block = 0;   // run only blocks [first_block, last_block)
  std::uint32_t last_block = ~0u;  //
  bool reversed = false;           // threads take turns from the last to the first
  bool scattered = false;          // blocks run in another order than that of their indices
  bool overlaps = false;           // the kernel before may still run until wait_for_previous()
};

// Runs the kernel for all threads of all blocks. Returns the first fault, or nothing when all is
// well.
std::string run(const Shape& shape, const std::function<void()>& kernel);

// Ends the run with a fault of the running thread.
[[noreturn]] void fault(const Site& site, const std::string& what);
// "matvec.cuh:88"
std::string describe(const Site& site);

enum class WarpOperation : std::uint8_t {
  kSyncWarp,
  kShuffle,
  kBallot,
  kLoadMatricesX2,
  kLoadMatricesX4,
  kMma,
};

// What one lane brings to an operation of its warp, and takes from it.
struct Meeting {
  WarpOperation operation = WarpOperation::kSyncWarp;
  std::uint32_t mask = 0;
  Site site;
  std::int64_t offset = 0;                // matrix loads: the row that this lane names
  std::array<std::uint32_t, 10> in = {};  // shuffle: value, lane; ballot: condition; mma: a, b, c
  std::array<std::uint32_t, 4> out = {};
};

// The block that is running.
class Block {
 public:
  // `fibers`: at least shape.threads.
  Block(const Shape& shape, const std::function<void()>& kernel, std::deque<Fiber>& fibers);
  static Block& running();

  std::string run_grid();

  // For the running thread.
  std::uint32_t block_index() const { return block_index_; }
  std::uint32_t thread_index() const { return current_->who.thread; }
  const Accessor& accessor() const { return current_->who; }
  SharedMemory& shared() { return shared_; }
  void sync_threads(const Site& site);
  bool arrive_last(Buffer& counter, std::int64_t offset, std::uint32_t count, const Site& site);
  // Numbers of writes to global memory: one for all that a block writes up to an arrival.
  std::uint32_t write_number() const { return write_number_; }
  // Whether what bears this number is from another block of this grid, with no order between.
  bool is_unordered(std::uint32_t number) const {
    return number >= first_of_grid_ && number < first_of_block_ && seen_.count(number) == 0;
  }
  std::array<std::uint32_t, 4> meet(const Meeting& meeting);
  void copy_async(std::int64_t to, const Buffer& from, std::int64_t offset, std::size_t size,
                  std::uint32_t bytes, const Site& site);
  void commit_async();
  void wait_async(std::size_t latest, const Site& site);
  void wait_for_previous() { current_->waited = true; }
  // A fault where the running thread may not touch what kernels write, for it has not waited.
  void check_waited(const Buffer& buffer, const char* what, const Site& site);
  [[noreturn]] void fault(const Site& site, const std::string& what);

 private:
  enum class Status : std::uint8_t { kReady, kAtBarrier, kInWarp, kDone };
  struct Copy {
    std::int64_t to = 0;
    std::size_t bytes = 0;
    std::array<std::byte, 16> data = {};
    Site site;
  };
  struct Thread {
    Fiber* fiber = nullptr;
    Status status = Status::kReady;
    Accessor who;
    Site barrier;
    Meeting meeting;
    bool waited = false;  // for the kernel before
    std::vector<Copy> open_group;
    std::deque<std::vector<Copy>> groups;
  };

  // The lanes of a warp that wait in an operation; `mixed`: perhaps not all in the same one.
  struct Gathering {
    std::uint32_t waiting = 0;
    bool mixed = false;
    Meeting first;  // of the first one that came
  };

  static void thread_entry(void* block);
  std::string run_block();
  void finish_thread();
  void wait(Status status);
  void release_barrier();
  bool check_meeting(std::uint32_t warp, const Meeting& meeting);
  void complete(std::uint32_t warp, const Meeting& meeting);
  void synchronize(std::uint32_t warp, std::uint32_t mask);
  void shuffle(std::uint32_t warp, std::uint32_t mask);
  void ballot(std::uint32_t warp, std::uint32_t mask);
  void load_matrices(std::uint32_t warp, std::uint32_t count);
  void multiply(std::uint32_t warp);
  std::string deadlock() const;
  std::string waiting_at(const Thread& thread) const;
  Thread& lane(std::uint32_t warp, std::uint32_t i) { return threads_[32 * warp + i]; }
  bool exists(std::uint32_t warp, std::uint32_t i) const { return 32 * warp + i < threads_.size(); }

  Shape shape_;
  const std::function<void()>& kernel_;
  SharedMemory shared_;
  std::deque<Thread> threads_;
  std::vector<Gathering> gatherings_;  // a warp each
  Thread* current_ = nullptr;
  std::uint32_t block_index_ = 0;
  std::uint32_t epoch_ = 0;
  std::uint32_t at_barrier_ = 0;
  const Thread* first_at_barrier_ = nullptr;
  std::uint32_t done_ = 0;
  std::string fault_;
  std::uint32_t write_number_ = 0;
  std::uint32_t first_of_grid_ = 0;    // numbers below are from kernels before, or the host
  std::uint32_t first_of_block_ = 0;   // from here on they are the running block's
  std::set<std::uint32_t> seen_;       // of other blocks: those that came before an arrival
  bool last_ = false;                  // the running block's latest arrival was the last one
  std::uint32_t arrived_threads_ = 0;  // of the running block, at its latest arrival
  // The numbers with which blocks came, by counter.
  std::map<std::pair<const Buffer*, std::int64_t>, std::vector<std::uint32_t>> arrivals_;
};

std::string_view name_of(WarpOperation operation);

}  // namespace sluice::simt

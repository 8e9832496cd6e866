// A pool of threads for short parallel regions: workers spin for a moment before they sleep,
// because a decode step has a few hundred regions of some microseconds.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

namespace sluice::cpu {

class ThreadPool {
 public:
  // `threads` >= 1 includes the calling thread. Threads that the system refuses are left out.
  explicit ThreadPool(unsigned threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  unsigned threads() const;

  // Calls body(begin, end) on disjoint ranges that cover [0, count), in parallel, each of at most
  // `grain` items, and returns when all are done. Not reentrant. When `cancel` becomes true the
  // ranges not yet begun are skipped.
  void parallel_for(std::uint64_t count, std::uint64_t grain,
                    const std::function<void(std::uint64_t, std::uint64_t)>& body,
                    const std::atomic<bool>* cancel = nullptr);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Threads worth using here: physical cores the process may run on, within a container's CPU quota.
unsigned default_threads();

}  // namespace sluice::cpu

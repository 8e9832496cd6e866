#include "src/backend/cpu/thread_pool.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace sluice::cpu {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kSpinTime = std::chrono::microseconds(100);
constexpr int kPausesBeforeYield = 200;  // some 4 us

void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

// Returns true once ready() holds; gives up after kSpinTime when `forever` is false. Yields after a
// moment, so that with more threads than cores the one that is waited for gets to run.
template <class Ready>
bool spin_until(const Ready& ready, bool forever) {
  for (int i = 0; i < kPausesBeforeYield; ++i) {
    if (ready()) return true;
    pause();
  }
  const Clock::time_point deadline = Clock::now() + kSpinTime;
  while (forever || Clock::now() < deadline) {
    if (ready()) return true;
    std::this_thread::yield();
  }
  return ready();
}

}  // namespace

// A region is open while its ranges are handed out. Workers join an open region if they come in
// time; the caller closes it when no range is left and waits only for those who joined, so a worker
// that the system isn't running delays nobody.
struct ThreadPool::State {
  // One word: bit 63 = open, bits 32..62 = number of the region, bits 0..31 = workers inside.
  static constexpr std::uint64_t kOpen = std::uint64_t{1} << 63;
  static constexpr std::uint64_t kRegion = std::uint64_t{1} << 32;
  static constexpr std::uint64_t kInside = kRegion - 1;
  static constexpr std::uint64_t kRegionMask = (kOpen - 1) & ~kInside;

  std::vector<std::thread> workers;
  alignas(64) std::atomic<std::uint64_t> word{0};
  alignas(64) std::atomic<std::uint64_t> next{0};  // first range not handed out
  alignas(64) std::atomic<unsigned> sleepers{0};
  std::atomic<bool> stop{false};
  std::mutex mutex;
  std::condition_variable wake;

  // The region; written while closed and nobody is inside.
  std::uint64_t count = 0;
  std::uint64_t grain = 1;
  std::uint64_t ranges = 0;
  const std::function<void(std::uint64_t, std::uint64_t)>* body = nullptr;
  const std::atomic<bool>* cancel = nullptr;

  void take_ranges() {
    for (;;) {
      const std::uint64_t range = next.fetch_add(1, std::memory_order_relaxed);
      if (range >= ranges) return;
      const std::uint64_t begin = range * grain;
      if (cancel != nullptr && cancel->load(std::memory_order_relaxed)) return;
      (*body)(begin, count - begin < grain ? count : begin + grain);
    }
  }

  // True when there is a region open that is not number `seen`.
  bool has_news(std::uint64_t seen) const {
    const std::uint64_t now = word.load(std::memory_order_seq_cst);
    return ((now & kOpen) != 0 && (now & kRegionMask) != seen) ||
           stop.load(std::memory_order_relaxed);
  }

  void work() {
    std::uint64_t seen = 0;
    for (;;) {
      if (!spin_until([&] { return has_news(seen); }, false)) {
        std::unique_lock lock(mutex);
        sleepers.fetch_add(1, std::memory_order_seq_cst);
        wake.wait(lock, [&] { return has_news(seen); });
        sleepers.fetch_sub(1, std::memory_order_relaxed);
      }
      if (stop.load(std::memory_order_relaxed)) return;
      std::uint64_t now = word.load(std::memory_order_relaxed);
      while ((now & kOpen) != 0 &&
             !word.compare_exchange_weak(now, now + 1, std::memory_order_acquire,
                                         std::memory_order_relaxed)) {
      }
      if ((now & kOpen) == 0) continue;  // came too late
      seen = now & kRegionMask;
      take_ranges();
      word.fetch_sub(1, std::memory_order_release);
    }
  }
};

ThreadPool::ThreadPool(unsigned threads) : state_(std::make_unique<State>()) {
  for (unsigned i = 1; i < threads; ++i) {
    try {
      state_->workers.emplace_back([state = state_.get()] { state->work(); });
    } catch (const std::system_error&) {
      break;  // the system has no more threads for us
    }
  }
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stop.store(true, std::memory_order_relaxed);
  }
  state_->wake.notify_all();
  for (std::thread& worker : state_->workers) worker.join();
}

unsigned ThreadPool::threads() const { return static_cast<unsigned>(state_->workers.size()) + 1; }

void ThreadPool::parallel_for(std::uint64_t count, std::uint64_t grain,
                              const std::function<void(std::uint64_t, std::uint64_t)>& body,
                              const std::atomic<bool>* cancel) {
  if (grain == 0) grain = 1;
  State& s = *state_;
  s.count = count;
  s.grain = grain;
  s.ranges = count / grain + (count % grain != 0 ? 1 : 0);
  s.body = &body;
  s.cancel = cancel;
  s.next.store(0, std::memory_order_relaxed);
  if (s.workers.empty() || s.ranges <= 1) {
    s.take_ranges();
    return;
  }
  const std::uint64_t region =
      ((s.word.load(std::memory_order_relaxed) & State::kRegionMask) + State::kRegion) &
      State::kRegionMask;
  // Region number 0 is what workers have seen at the start.
  s.word.store(State::kOpen | (region == 0 ? State::kRegion : region), std::memory_order_seq_cst);
  if (s.sleepers.load(std::memory_order_seq_cst) > 0) {
    { const std::lock_guard lock(s.mutex); }
    s.wake.notify_all();
  }
  s.take_ranges();
  s.word.fetch_and(~State::kOpen, std::memory_order_relaxed);
  spin_until([&] { return (s.word.load(std::memory_order_acquire) & State::kInside) == 0; }, true);
}

}  // namespace sluice::cpu

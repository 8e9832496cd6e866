#include "src/cli/memory_bandwidth.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

namespace sluice::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kBytes = std::size_t{64} << 20;
constexpr std::size_t kLine = 64;  // of a cache
constexpr int kPasses = 12;
constexpr double kSeconds = 0.08;  // passes after the second begin only within this time

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Puts the bytes out of every cache, so that reading them again goes to memory.
void flush(const std::byte* begin, const std::byte* end) {
#if defined(__x86_64__)
  for (; begin < end; begin += kLine) __builtin_ia32_clflush(begin);
#else
  // Elsewhere the buffer is only larger than most caches.
  (void)begin;
  (void)end;
#endif
}

// Sum of the words; independent sums keep several loads under way.
std::uint64_t sum_words(const std::byte* begin, const std::byte* end) {
  const auto* words = reinterpret_cast<const std::uint64_t*>(begin);
  const std::size_t count = static_cast<std::size_t>(end - begin) / sizeof(std::uint64_t);
  std::uint64_t sum[16] = {};
  for (std::size_t i = 0; i + 16 <= count; i += 16) {
    for (std::size_t lane = 0; lane < 16; ++lane) sum[lane] += words[i + lane];
  }
  std::uint64_t total = 0;
  for (const std::uint64_t lane : sum) total += lane;
  return total;
}

// Threads that read a part each at the same time.
class Readers {
 public:
  Readers(std::byte* memory, const std::atomic<bool>& cancel) : memory_(memory), cancel_(cancel) {}

  // Bytes per second of the best pass.
  double run(unsigned threads) {
    std::vector<std::jthread> helpers;
    try {
      for (unsigned i = 1; i < threads; ++i) {
        helpers.emplace_back([this, i] { work(i); });
      }
    } catch (const std::system_error&) {  // the system refuses more: fewer will do
    }
    parts_ = static_cast<unsigned>(helpers.size()) + 1;
    barrier_.emplace(static_cast<std::ptrdiff_t>(parts_));
    ready_ = true;
    ready_.notify_all();
    work(0);
    return cancel_ ? 0 : best_;
  }

 private:
  void work(unsigned part) {
    ready_.wait(false);
    std::byte* begin = memory_ + kBytes / kLine * part / parts_ * kLine;
    std::byte* end = memory_ + kBytes / kLine * (part + 1) / parts_ * kLine;
    // Pages that were never written would all be one page of zeros.
    for (std::byte* page = begin; page < end && !cancel_; page += 4096) *page = std::byte{1};
    const Clock::time_point began = Clock::now();
    for (int pass = 0; pass < kPasses; ++pass) {
      flush(begin, end);
      barrier_->arrive_and_wait();
      const Clock::time_point start = Clock::now();
      sum_ += sum_words(begin, end);  // used, so that the reading can't be left out
      barrier_->arrive_and_wait();
      if (part == 0) {
        best_ = std::max(best_, static_cast<double>(kBytes) / seconds_since(start));
        enough_ = cancel_ || (pass >= 1 && seconds_since(began) > kSeconds);
      }
      barrier_->arrive_and_wait();
      if (enough_) break;
    }
  }

  std::byte* memory_;
  const std::atomic<bool>& cancel_;
  unsigned parts_ = 1;
  std::optional<std::barrier<>> barrier_;
  std::atomic<bool> ready_ = false;
  std::atomic<bool> enough_ = false;
  std::atomic<std::uint64_t> sum_ = 0;
  double best_ = 0;  // written by part 0 only
};

}  // namespace

double measure_read_bandwidth(unsigned threads, const std::atomic<bool>& cancel) {
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 0;
  madvise(memory, kBytes, MADV_HUGEPAGE);  // a wish; fewer faults and address translations
  const double best =
      Readers(static_cast<std::byte*>(memory), cancel).run(std::clamp(threads, 1u, 256u));
  munmap(memory, kBytes);
  return best;
}

}  // namespace sluice::cli

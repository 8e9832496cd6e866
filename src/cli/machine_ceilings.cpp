#include "src/cli/machine_ceilings.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "src/backend/cpu/kernels.h"
#include "src/backend/cpu/thread_pool.h"

namespace sluice::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kBytes = std::size_t{256} << 20;  // shorter passes do not get to full speed
constexpr std::size_t kPiece = std::size_t{1} << 20;    // what a thread takes at a time
constexpr std::size_t kStreams = 4;                     // of a piece, read side by side
constexpr std::size_t kLine = 64;                       // of a cache
constexpr int kPasses = 12;
constexpr double kSeconds = 0.25;  // passes after the second begin only within this time

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

// Sum of a piece's words; several streams and independent sums keep many loads under way.
std::uint64_t sum_words(const std::byte* piece) {
  const auto* words = reinterpret_cast<const std::uint64_t*>(piece);
  constexpr std::size_t count = kPiece / kStreams / sizeof(std::uint64_t);  // of a stream
  std::uint64_t sum[16] = {};
  for (std::size_t i = 0; i < count; i += 16) {
    for (std::size_t stream = 0; stream < kStreams; ++stream) {
      for (std::size_t lane = 0; lane < 16; ++lane) sum[lane] += words[stream * count + i + lane];
    }
  }
  std::uint64_t total = 0;
  for (const std::uint64_t lane : sum) total += lane;
  return total;
}

}  // namespace

double measure_read_bandwidth(unsigned threads, const std::atomic<bool>& cancel) {
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 0;
  madvise(memory, kBytes, MADV_HUGEPAGE);  // a wish; fewer faults and address translations
  auto* bytes = static_cast<std::byte*>(memory);

  // The pool of the model's own kind: its threads keep to a core each, where threads that sleep
  // between passes are woken on one and the same.
  cpu::ThreadPool pool(std::clamp(threads, 1u, 256u));
  const auto for_pieces = [&](auto&& body) {
    pool.parallel_for(
        kBytes / kPiece, 1,
        [&](std::uint64_t begin, std::uint64_t end) {
          for (std::uint64_t piece = begin; piece < end; ++piece) body(bytes + piece * kPiece);
        },
        &cancel);
  };
  // Pages that were never written would all be one page of zeros.
  for_pieces([](std::byte* piece) {
    for (std::size_t at = 0; at < kPiece; at += 4096) piece[at] = std::byte{1};
  });
  std::atomic<std::uint64_t> sum = 0;  // kept, so that the reading can't be left out
  double best = 0;
  const Clock::time_point began = Clock::now();
  for (int pass = 0; pass < kPasses && !cancel; ++pass) {
    for_pieces([](std::byte* piece) { flush(piece, piece + kPiece); });
    const Clock::time_point start = Clock::now();
    for_pieces([&](std::byte* piece) { sum += sum_words(piece); });
    best = std::max(best, static_cast<double>(kBytes) / seconds_since(start));
    if (pass >= 1 && seconds_since(began) > kSeconds) break;
  }
  munmap(memory, kBytes);
  return cancel ? 0 : best;
}

double measure_byte_products(unsigned threads, std::string_view isa,
                             const std::atomic<bool>& cancel) {
  const cpu::Kernels* kernels = isa.empty() ? &cpu::best_kernels() : cpu::find_kernels(isa);
  if (kernels == nullptr || !kernels->supported()) return 0;
  constexpr std::uint64_t kRounds = std::uint64_t{1} << 16;  // about a tenth of a millisecond
  constexpr std::uint64_t kTimes = 16;                       // of a thread in a pass
  cpu::ThreadPool pool(std::clamp(threads, 1u, 256u));
  double best = 0;
  const Clock::time_point began = Clock::now();
  while (!cancel && seconds_since(began) < kSeconds) {
    std::atomic<std::uint64_t> operations = 0;
    const Clock::time_point start = Clock::now();
    pool.parallel_for(
        pool.threads() * kTimes, 1,
        [&](std::uint64_t begin, std::uint64_t end) {
          for (; begin < end; ++begin) operations += kernels->byte_products(kRounds);
        },
        &cancel);
    best = std::max(best, static_cast<double>(operations) / seconds_since(start));
  }
  return cancel ? 0 : best;
}

}  // namespace sluice::cli

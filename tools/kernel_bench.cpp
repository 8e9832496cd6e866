// Times the CPU kernels with a working set far beyond the caches, after checking them against the
// generic table. Every line says how far from the wall it is: compare its GB/s with
// read_bandwidth and its GOP/s with int8_peak.
//
//   kernel_bench [--benchmark_filter=REGEX]      names: matmul/TYPE/ISA/rows:R/threads:T
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "src/backend/cpu/kernels.h"
#include "src/backend/cpu/pack.h"
#include "src/backend/cpu/pack_layout.h"
#include "src/backend/cpu/thread_pool.h"
#include "src/quant/codec.h"

namespace {

using namespace sluice;
using namespace sluice::cpu;

constexpr std::uint32_t kRows = 8192;
constexpr std::uint32_t kCols = 2048;
constexpr std::uint32_t kMatrices = 24;
constexpr std::uint32_t kGroupGrain = 8;

template <class T>
struct Free {
  void operator()(T* p) const { std::free(p); }
};
template <class T>
using Buffer = std::unique_ptr<T[], Free<T>>;

template <class T>
Buffer<T> allocate(std::size_t n) {
  constexpr std::size_t kHugePage = std::size_t{2} << 20;
  const std::size_t bytes = (n * sizeof(T) + kHugePage - 1) / kHugePage * kHugePage;
  void* p = std::aligned_alloc(kHugePage, bytes);
  if (p == nullptr) {
    std::fprintf(stderr, "kernel_bench: no memory for %zu bytes\n", bytes);
    std::exit(4);
  }
  madvise(p, bytes, MADV_HUGEPAGE);  // as the program's own buffers
  std::memset(p, 0, n * sizeof(T));
  return Buffer<T>(static_cast<T*>(p));
}

std::vector<float> random_floats(std::size_t n) {
  std::mt19937 random(7);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  std::vector<float> x(n);
  for (float& v : x) v = uniform(random);
  return x;
}

// kMatrices packed copies of one matrix; only the last type asked for is kept.
struct Weights {
  BlockType type = BlockType::kF32;
  std::size_t bytes = 0;  // of one matrix
  Buffer<std::byte> data;
  PackedMatrix matrix(std::uint32_t i) const {
    return {type, kRows, kCols, data.get() + (i % kMatrices) * bytes};
  }
};

const Weights& weights(BlockType type) {
  static Weights w;
  if (w.data && w.type == type) return w;
  w.data.reset();
  w.type = type;
  w.bytes = packed_bytes(type, kRows, kCols);
  w.data = allocate<std::byte>(w.bytes * kMatrices);
  // A few rows are encoded and repeated: content doesn't matter for time.
  const BlockTypeInfo& info = block_type_info(type);
  const std::size_t row_bytes = kCols / info.block_size * info.block_bytes;
  std::vector<std::byte> source(row_bytes * kRows);
  const auto row = random_floats(std::size_t{kCols} * 64);
  std::vector<std::byte> stored(row_bytes * 64);
  if (const Status status = encode_blocks(type, row, stored); !status.ok()) {
    std::fprintf(stderr, "kernel_bench: %s\n", status.error().message.c_str());
    std::exit(1);
  }
  for (std::size_t r = 0; r < kRows; r += 64)
    std::memcpy(source.data() + r * row_bytes, stored.data(), stored.size());
  pack_groups(type, source.data(), kRows, kCols, 0, kRows / kRowGroup, w.data.get());
  for (std::uint32_t i = 1; i < kMatrices; ++i)
    std::memcpy(w.data.get() + i * w.bytes, w.data.get(), w.bytes);
  return w;
}

struct Inputs {
  std::vector<float> x;
  Buffer<std::int8_t> q;
  Buffer<float> scale;
  Buffer<std::int32_t> sum;
  QuantizedRows rows;
  Inputs(const Kernels& kernels, std::uint32_t n)
      : x(random_floats(std::size_t{n} * kCols)),
        q(allocate<std::int8_t>(x.size())),
        scale(allocate<float>(x.size() / 32)),
        sum(allocate<std::int32_t>(x.size() / 16)),
        rows{n, kCols, q.get(), scale.get(), sum.get()} {
    kernels.quantize_rows(x.data(), kCols, rows);
  }
};

void multiply(const Kernels& kernels, const PackedMatrix& w, std::uint32_t begin, std::uint32_t end,
              const Inputs& in, float* out) {
  if (is_float_type(w.type)) {
    kernels.matmul_float(w, begin, end, in.x.data(), kCols, in.rows.rows, out, kRows);
  } else {
    kernels.matmul(w, begin, end, in.rows, out, kRows);
  }
}

// First groups of a matrix against the generic table: a wrong kernel is not worth timing.
bool agrees_with_generic(const Kernels& kernels, BlockType type, std::uint32_t rows) {
  const Kernels& generic = *find_kernels("generic");
  const Inputs in(kernels, rows < 9 ? rows : 9);
  std::vector<float> a(std::size_t{in.rows.rows} * kRows);
  std::vector<float> b(a.size());
  const PackedMatrix w = weights(type).matrix(0);
  multiply(generic, w, 0, 2, in, a.data());
  multiply(kernels, w, 0, 2, in, b.data());
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

void matmul(benchmark::State& state, const Kernels* kernels, BlockType type, std::uint32_t rows,
            unsigned threads) {
  const Weights& w = weights(type);
  if (!agrees_with_generic(*kernels, type, rows)) {
    state.SkipWithError("differs from the generic kernels");
    return;
  }
  const Inputs in(*kernels, rows);
  const auto out = allocate<float>(std::size_t{rows} * kRows);
  ThreadPool pool(threads);
  std::uint32_t i = 0;
  for ([[maybe_unused]] auto _ : state) {
    const PackedMatrix matrix = w.matrix(i++);
    pool.parallel_for(matrix.groups(), kGroupGrain, [&](std::uint64_t begin, std::uint64_t end) {
      multiply(*kernels, matrix, static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end),
               in, out.get());
    });
    benchmark::ClobberMemory();
  }
  using benchmark::Counter;
  const double runs = static_cast<double>(state.iterations());
  state.counters["GB/s"] = Counter(1e-9 * static_cast<double>(w.bytes) * runs, Counter::kIsRate);
  state.counters["GOP/s"] = Counter(2e-9 * kRows * kCols * rows * runs, Counter::kIsRate);
}

void read_bandwidth(benchmark::State& state, unsigned threads) {
  const std::size_t words = std::size_t{32} << 20;  // 256 MiB
  static const auto data = allocate<std::uint64_t>(words);
  ThreadPool pool(threads);
  std::atomic<std::uint64_t> total{0};
  for ([[maybe_unused]] auto _ : state) {
    pool.parallel_for(words, 1 << 17, [&](std::uint64_t begin, std::uint64_t end) {
      std::uint64_t sums[16] = {};
      for (std::uint64_t i = begin; i + 16 <= end; i += 16) {
        for (std::uint64_t j = 0; j < 16; ++j) sums[j] += data[i + j];
      }
      std::uint64_t sum = 0;
      for (const std::uint64_t s : sums) sum += s;
      total.fetch_add(sum, std::memory_order_relaxed);
    });
  }
  benchmark::DoNotOptimize(total.load());
  state.counters["GB/s"] = benchmark::Counter(
      8e-9 * static_cast<double>(words) * static_cast<double>(state.iterations()),
      benchmark::Counter::kIsRate);
}

// Products of bytes in registers: what the arithmetic of one thread can do at best.
void int8_peak(benchmark::State& state, const Kernels* kernels) {
  double operations = 0;
  for ([[maybe_unused]] auto _ : state)
    operations += static_cast<double>(kernels->byte_products(1 << 16));
  state.counters["GOP/s"] = benchmark::Counter(1e-9 * operations, benchmark::Counter::kIsRate);
}

// One decode step of `kv_heads` heads over `context` tokens, or `rows` prompt rows at its end.
// With int4, rows that are more than a block are as if all were in the last one.
void attention(benchmark::State& state, const Kernels* kernels, KvType type, std::uint32_t context,
               std::uint32_t rows) {
  constexpr std::uint32_t kDim = 128;
  constexpr std::uint32_t kHeads = 4;
  constexpr std::uint32_t kLayers = 64;  // copies, so that the bytes come from memory
  const KvLayout layout{type, kDim};
  const std::uint32_t blocks = context / kKvBlock;
  const auto bytes = allocate<std::byte>(layout.head_bytes() * blocks * kLayers);
  const auto x = random_floats(kDim * 2);
  std::vector<const std::byte*> pointers;
  const KvLayout f16{KvType::kF16, kDim};
  const auto f16_block = allocate<std::byte>(f16.head_bytes());  // int4: the newest of all layers
  const bool int4 = type == KvType::kInt4;
  for (std::uint32_t b = 0; b < blocks * kLayers; ++b) {
    std::byte* block = bytes.get() + b * layout.head_bytes();
    for (std::uint32_t slot = 0; slot < kKvBlock; ++slot)
      kernels->store_kv(int4 ? f16 : layout, x.data() + slot, x.data() + 2 * slot, slot,
                        int4 ? f16_block.get() : block);
    if (int4) kernels->quantize_kv(kDim, f16_block.get(), block);
    pointers.push_back(int4 && b % blocks == blocks - 1 ? f16_block.get() : block);
  }
  const auto query = random_floats(std::size_t{rows} * kHeads * kDim);
  std::vector<std::uint32_t> first(rows, 0);
  std::vector<std::uint32_t> last(rows);
  for (std::uint32_t r = 0; r < rows; ++r) last[r] = context - rows + r;
  std::vector<float> maximum(rows * kHeads);
  std::vector<float> sum(rows * kHeads);
  std::vector<float> output(std::size_t{rows} * kHeads * kDim);
  AttentionTask task;
  task.layout = layout;
  task.rows = rows;
  task.heads = kHeads;
  task.query = query.data();
  task.query_stride = kHeads * kDim;
  task.first = first.data();
  task.last = last.data();
  task.scale = 0.088f;
  task.maximum = maximum.data();
  task.sum = sum.data();
  task.output = output.data();
  task.output_stride = kHeads * kDim;
  std::uint32_t layer = 0;
  for ([[maybe_unused]] auto _ : state) {
    std::fill(maximum.begin(), maximum.end(), -1e30f);
    std::fill(sum.begin(), sum.end(), 0.0f);
    std::fill(output.begin(), output.end(), 0.0f);
    for (std::uint32_t start = 0; start < context; start += kKvPiece) {
      task.blocks = pointers.data() + std::size_t{layer % kLayers} * blocks + start / kKvBlock;
      task.piece_start = start;
      task.f16_block = start + kKvPiece == context ? kKvPiece / kKvBlock - 1 : kKvPiece / kKvBlock;
      kernels->attention(task);
    }
    ++layer;
    benchmark::ClobberMemory();
  }
  using benchmark::Counter;
  const double runs = static_cast<double>(state.iterations());
  state.counters["GB/s"] =
      Counter(1e-9 * static_cast<double>(layout.head_bytes()) * blocks * runs, Counter::kIsRate);
  state.counters["GOP/s"] = Counter(4e-9 * context * kDim * kHeads * rows * runs, Counter::kIsRate);
}

// A region with nothing to do: what a barrier costs.
void empty_region(benchmark::State& state, unsigned threads) {
  ThreadPool pool(threads);
  for ([[maybe_unused]] auto _ : state)
    pool.parallel_for(threads, 1, [](std::uint64_t, std::uint64_t) {});
}

void register_all(const std::vector<unsigned>& thread_counts) {
  for (const unsigned threads : thread_counts) {
    benchmark::RegisterBenchmark(fmt::format("read_bandwidth/threads:{}", threads).c_str(),
                                 read_bandwidth, threads)
        ->UseRealTime();
    benchmark::RegisterBenchmark(fmt::format("empty_region/threads:{}", threads).c_str(),
                                 empty_region, threads)
        ->UseRealTime();
  }
  for (const Kernels* kernels : all_kernels()) {
    if (!kernels->supported()) continue;
    if (kernels->name == "generic") continue;  // an oracle; its speed is not of interest
    benchmark::RegisterBenchmark(fmt::format("int8_peak/{}", kernels->name).c_str(), int8_peak,
                                 kernels);
    for (const BlockTypeInfo& info : block_types()) {
      for (const std::uint32_t rows : {1u, 2u, 3u, 4u, 6u, 8u, 16u, 64u, 512u}) {
        for (const unsigned threads : thread_counts) {
          benchmark::RegisterBenchmark(fmt::format("matmul/{}/{}/rows:{}/threads:{}", info.name,
                                                   kernels->name, rows, threads)
                                           .c_str(),
                                       matmul, kernels, info.type, rows, threads)
              ->UseRealTime()
              ->Unit(benchmark::kMicrosecond);
        }
      }
    }
    for (const auto& [type, name] : std::map<KvType, const char*>{{KvType::kInt8, "int8"},
                                                                  {KvType::kInt4, "int4"},
                                                                  {KvType::kF16, "f16"},
                                                                  {KvType::kF32, "f32"}}) {
      for (const std::uint32_t context : {512u, 4096u}) {
        for (const std::uint32_t rows : {1u, 4u, 64u}) {
          benchmark::RegisterBenchmark(
              fmt::format("attention/{}/{}/context:{}/rows:{}", name, kernels->name, context, rows)
                  .c_str(),
              attention, kernels, type, context, rows)
              ->Unit(benchmark::kMicrosecond);
        }
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<unsigned> thread_counts{1};
  if (default_threads() > 1) thread_counts.push_back(default_threads());
  register_all(thread_counts);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

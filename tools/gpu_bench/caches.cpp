#include <chrono>
#include <cstdio>
#include <vector>

#include "cuda/host/backend.h"
#include "src/backend/cpu/thread_pool.h"
#include "tools/gpu_bench/bench.h"
#include "tools/gpu_bench/made_up_model.h"

namespace sluice::cuda {
namespace {

struct Cache {
  const char* name;
  KvCacheType kv;
};
constexpr Cache kCaches[] = {
    {"int8", KvCacheType::kInt8}, {"f16", KvCacheType::kF16}, {"int4", KvCacheType::kInt4}};

struct Step {
  double seconds = 0;
  double cache_bytes = 0;
};

}  // namespace

Status bench_caches(const Options& options) {
  const MadeUp shape = options.quick ? kTiny : k8B;
  // Beginnings of blocks, which any kind of cache can go on from.
  const std::vector<std::uint32_t> contexts = options.quick
                                                  ? std::vector<std::uint32_t>{64}
                                                  : std::vector<std::uint32_t>{1024, 8192, 32768};
  const MadeUpModel made(shape);
  fmt::print(
      "\n{} by cache and context: a decode step, and GB/s of keys and values in the time that it "
      "takes beyond a step without context\n",
      shape.name);
  for (const Cache& cache : kCaches) {
    GpuOptions gpu;
    gpu.layers = {0, shape.layers};
    gpu.kv = cache.kv;
    gpu.positions = contexts.back() + 32;
    gpu.kv_blocks = gpu.positions / 32;
    gpu.max_rows = 16;
    gpu.max_logits = 1;
    gpu.pool = std::make_shared<cpu::ThreadPool>(cpu::default_threads());
    SLUICE_ASSIGN_OR_RETURN(const auto backend, CudaBackend::create(made.model(), gpu));
    KvCache kv(gpu.kv_blocks, backend->block_tokens());
    const SequenceId sequence = kv.create();
    SLUICE_RETURN_IF_ERROR(kv.reserve(sequence, gpu.positions));
    std::vector<float> logits(shape.vocabulary);
    const auto run = [&](std::uint32_t position, int repeats) -> Result<Step> {
      const std::vector<BatchRow> row = {{1, position, sequence, true}};
      Step step;
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < repeats; ++i) {
        SLUICE_ASSIGN_OR_RETURN(
            const PassTraffic traffic,
            backend->forward(row, kv, {0, shape.layers}, {{}, logits, nullptr}));
        step.cache_bytes = static_cast<double>(traffic.kv_bytes);
      }
      const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
      step.seconds = elapsed.count() / repeats;
      return step;
    };
    const auto step_at = [&](std::uint32_t position) -> Result<Step> {
      SLUICE_ASSIGN_OR_RETURN(const Step warm, run(position, 1));
      return options.quick ? warm : run(position, 30);
    };
    SLUICE_ASSIGN_OR_RETURN(const Step none, step_at(0));
    fmt::print("{:<5} 0: {:.3f} ms", cache.name, 1e3 * none.seconds);
    for (const std::uint32_t context : contexts) {
      SLUICE_ASSIGN_OR_RETURN(const Step step, step_at(context));
      fmt::print("; {}: {:.3f} ms, {:.0f} tokens/s, {:.0f} GB/s", context, 1e3 * step.seconds,
                 1 / step.seconds,
                 giga((step.cache_bytes - none.cache_bytes) / (step.seconds - none.seconds)));
    }
    fmt::print("\n");
    std::fflush(stdout);
  }
  return {};
}

}  // namespace sluice::cuda

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/host/backend.h"
#include "src/backend/cpu/thread_pool.h"
#include "tools/gpu_bench/bench.h"
#include "tools/gpu_bench/made_up_model.h"

namespace sluice::cuda {
namespace {

struct ModelTimes {
  double step = 0;               // seconds of a decode step at position 512
  std::map<int, double> passes;  // by rows
  double prompt = 0;             // of a pass of `prompt_rows`
  double bytes = 0;              // that a step reads
};

Result<ModelTimes> time_model(const Model& model, bool graphs, bool quick,
                              std::uint32_t prompt_rows) {
  GpuOptions options;
  options.layers = {0, model.spec.layers};
  options.positions = quick ? 128 : 4096;
  options.kv_blocks = options.positions / 32;
  options.max_rows = prompt_rows;
  options.max_logits = 16;
  options.graphs = graphs;
  options.pool = std::make_shared<cpu::ThreadPool>(cpu::default_threads());
  SLUICE_ASSIGN_OR_RETURN(const auto backend, CudaBackend::create(model, options));
  KvCache kv(options.kv_blocks, backend->block_tokens());
  const SequenceId sequence = kv.create();
  SLUICE_RETURN_IF_ERROR(kv.reserve(sequence, options.positions));
  std::vector<float> logits(std::size_t{16} * model.spec.vocabulary);
  ModelTimes times;
  const auto pass = [&](std::uint32_t rows, std::uint32_t position, int repeats) -> Result<double> {
    std::vector<BatchRow> batch;
    for (std::uint32_t i = 0; i < rows; ++i) {
      batch.push_back(
          {static_cast<std::int32_t>(i), position + i, sequence, rows <= 16 || i + 1 == rows});
    }
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < repeats; ++i) {
      SLUICE_ASSIGN_OR_RETURN(
          const PassTraffic traffic,
          backend->forward(batch, kv, {0, model.spec.layers}, {{}, logits, nullptr}));
      times.bytes = static_cast<double>(traffic.weight_bytes + traffic.kv_bytes);
    }
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() /
           repeats;
  };
  const int repeats = quick ? 1 : 20;
  const std::uint32_t at = quick ? 20 : 512;
  SLUICE_ASSIGN_OR_RETURN(times.prompt, pass(prompt_rows, 0, 1));
  if (!quick) {  // warm now
    SLUICE_ASSIGN_OR_RETURN(times.prompt, pass(prompt_rows, 0, 3));
  }
  for (const int rows : {16, 8, 4, 2, 1}) {
    if (quick && rows > 2) continue;
    if (!quick) {
      SLUICE_ASSIGN_OR_RETURN(const double warm, pass(static_cast<std::uint32_t>(rows), at, 2));
      (void)warm;
    }
    SLUICE_ASSIGN_OR_RETURN(times.passes[rows],
                            pass(static_cast<std::uint32_t>(rows), at, repeats));
  }
  times.step = times.passes[1];
  return times;
}

}  // namespace

Status bench_models(const Options& options, double copy, Goals& goals) {
  const std::vector<MadeUp> models =
      options.quick ? std::vector<MadeUp>{kTiny} : std::vector<MadeUp>{k1B, k8B, k70B};
  const std::uint32_t prompt_rows = options.quick ? 20 : 512;
  fmt::print("\nmodels of Q4_0 weights, int8 cache, at position 512\n");
  for (const MadeUp& shape : models) {
    const MadeUpModel made(shape);
    double parameters = 0;
    for (const LayerWeights& w : made.model().weights.layer) {
      for (const MatrixRef* m :
           {&w.query, &w.key, &w.value, &w.attention_output, &w.gate, &w.up, &w.down}) {
        parameters += static_cast<double>(m->rows) * m->cols;
      }
    }
    SLUICE_ASSIGN_OR_RETURN(const ModelTimes with,
                            time_model(made.model(), true, options.quick, prompt_rows));
    const double rate = with.bytes / with.step;
    fmt::print(
        "{:<4} {:.1f} tokens/s, {:.0f} GB/s ({:.0f}% of copy); prompt of {}: {:.0f} tokens/s, "
        "{:.1f} TFLOP/s\n",
        shape.name, 1 / with.step, giga(rate), 100 * rate / copy, prompt_rows,
        prompt_rows / with.prompt, 2 * parameters * prompt_rows / with.prompt / 1e12);
    if (std::string_view(shape.name) != "1B")
      goals.at_least(fmt::format("decoding {}, share of the copy bandwidth", shape.name),
                     rate / copy, 0.75);
    std::string curve;
    for (const auto& [rows, seconds] : with.passes) {
      curve += fmt::format(" {}: {:.2f}x", rows, seconds / with.step);
    }
    fmt::print("     a pass by rows, against one row:{}\n", curve);
    std::fflush(stdout);
    if (shape.layers <= 32) {
      SLUICE_ASSIGN_OR_RETURN(const ModelTimes without,
                              time_model(made.model(), false, options.quick, prompt_rows));
      fmt::print("     without graphs: {:.1f} tokens/s\n", 1 / without.step);
    }
    std::fflush(stdout);
  }
  return {};
}

}  // namespace sluice::cuda

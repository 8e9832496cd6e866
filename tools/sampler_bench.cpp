// Time of one sampler step over a vocabulary of 151,936 tokens (Qwen's), shaped like a model's
// logits: a broad bulk and a few hundred likely tokens. "flat" is random noise, the worst case.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "src/engine/sampling/logprobs.h"
#include "src/engine/sampling/sampler.h"

namespace {

using namespace sluice;

constexpr std::size_t kVocab = 151936;
constexpr std::size_t kRows = 8;  // different logits, so that branches cannot be learnt by heart

std::vector<std::vector<float>> make_logits(bool flat) {
  std::mt19937 rng(1);
  std::normal_distribution<float> bulk(0, flat ? 1.0f : 2.5f);
  std::exponential_distribution<float> head(0.7f);
  std::vector<std::vector<float>> rows(kRows, std::vector<float>(kVocab));
  for (auto& row : rows) {
    for (float& x : row) x = bulk(rng);
    if (flat) continue;
    for (int i = 0; i < 300; ++i) row[rng() % kVocab] = 8 + head(rng);
  }
  return rows;
}

void run(benchmark::State& state, const SamplingParams& params, bool flat, std::size_t history) {
  const auto rows = make_logits(flat);
  const PieceOf piece_of = [](std::int32_t id) {
    return id % 97 == 0 ? std::string(".\n") : std::string(" word");
  };
  auto sampler = Sampler::create(params, kVocab, 0, piece_of);
  if (!sampler.ok()) return state.SkipWithError(sampler.error().message.c_str());
  std::mt19937 rng(2);
  for (std::size_t i = 0; i < history; ++i) {
    // Text of 2,000 different tokens with repeated stretches.
    const auto token =
        i % 3 ? static_cast<std::int32_t>(1 + i % 50) : static_cast<std::int32_t>(1 + rng() % 2000);
    if (!sampler->accept(token).ok()) return state.SkipWithError("accept failed");
  }
  std::size_t row = 0, candidates = 0;
  for (auto _ : state) {
    const auto choice = sampler->sample(rows[row++ % kRows]);
    if (!choice.ok()) return state.SkipWithError(choice.error().message.c_str());
    candidates = choice->candidates;
    if (!sampler->accept(choice->id).ok()) return state.SkipWithError("accept failed");
    if (!sampler->truncate(history).ok()) return state.SkipWithError("truncate failed");
  }
  state.counters["candidates"] = static_cast<double>(candidates);
}

SamplingParams plain() {
  SamplingParams p;
  p.temperature = 1;
  p.top_k = 0;
  p.top_p = 1;
  p.min_p = 0;
  return p;
}

void add(const char* name, SamplingParams params, bool flat = false, std::size_t history = 0) {
  benchmark::RegisterBenchmark(name, [=](benchmark::State& state) {
    run(state, params, flat, history);
  })->Unit(benchmark::kMicrosecond);
}

}  // namespace

int main(int argc, char** argv) {
  SamplingParams p = plain();
  p.temperature = 0;
  add("greedy", p);
  p.repeat_penalty = 1.1;
  p.repeat_last_n = -1;
  add("greedy, repeat penalty over 4,000 tokens", p, false, 4000);
  add("defaults", SamplingParams{});
  p = plain();
  p.top_p = 0.95;
  add("top-k 0, top-p 0.95", p);
  add("top-k 0, top-p 0.95, flat", p, true);
  p.min_p = 0.05;
  add("top-k 0, top-p 0.95, min-p 0.05", p);
  p = plain();
  p.min_p = 0.05;
  add("top-k 0, min-p 0.05", p);
  p = plain();
  p.typical_p = 0.9;
  add("top-k 0, typical 0.9", p);
  add("top-k 0, typical 0.9, flat", p, true);
  add("no filter", plain());
  p = plain();
  p.mirostat = 2;
  add("mirostat 2", p);
  p = SamplingParams{};
  p.repeat_penalty = 1.1;
  p.repeat_last_n = -1;
  p.dry_multiplier = 0.8;
  add("defaults, penalties and DRY over 4,000 tokens", p, false, 4000);
  benchmark::RegisterBenchmark("20 log-probabilities", [](benchmark::State& state) {
    const auto rows = make_logits(false);
    std::size_t row = 0;
    for (auto _ : state) {
      benchmark::DoNotOptimize(top_logprobs(rows[row++ % kRows], 20, 0, 0));
    }
  })->Unit(benchmark::kMicrosecond);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

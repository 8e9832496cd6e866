// Logits and greedy chains of the reference models against llama.cpp's.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "src/backend/cpu/cpu_backend.h"
#include "src/backend/cpu/kernels.h"
#include "tests/conformance.h"
#include "tests/run_model.h"

using namespace sluice;
using sluice::test::ModelRun;

namespace {

nlohmann::json read_json(const std::string& path) {
  std::ifstream in(path);
  return nlohmann::json::parse(in);
}

double relative_l2(std::span<const float> got, const std::vector<double>& want) {
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    error += (got[i] - want[i]) * (got[i] - want[i]);
    norm += want[i] * want[i];
  }
  return std::sqrt(error / norm);
}

std::int32_t argmax(std::span<const float> row) {
  return static_cast<std::int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
}

// Runs the reference's prompt and greedy chain; returns the relative L2 error of the last logits.
double check_model(const std::string& name, KvCacheType kv) {
  const std::string model_path = test::conformance_file("models/" + name + ".gguf");
  if (model_path.empty()) return 0;
  const nlohmann::json want = read_json(test::conformance_file("models/" + name + ".json"));
  const auto tokens = want["tokens"].get<std::vector<std::int32_t>>();

  ModelRun run(model_path, {.kv = kv, .max_rows = 64, .max_logits = 64});
  const std::vector<float> logits = run.forward(tokens);  // [48, vocabulary]
  const std::size_t vocabulary = run.spec().vocabulary;
  const auto row = [&](std::size_t i) {
    return std::span(logits).subspan(i * vocabulary, vocabulary);
  };

  const auto argmaxes = want["argmax_per_position"].get<std::vector<std::int32_t>>();
  std::size_t same = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) same += argmax(row(i)) == argmaxes[i] ? 1 : 0;
  CHECK(same >= tokens.size() - 1);  // near-ties have no gap recorded here

  std::vector<float> last(row(tokens.size() - 1).begin(), row(tokens.size() - 1).end());
  const double error = relative_l2(last, want["last_logits"].get<std::vector<double>>());

  const auto greedy = want["greedy"].get<std::vector<std::int32_t>>();
  const auto gap = want["greedy_gap"].get<std::vector<double>>();
  std::size_t equal = 0;
  for (std::size_t i = 0; i < greedy.size(); ++i) {
    const std::int32_t best = argmax(last);
    if (gap[i] >= 0.02) CHECK(best == greedy[i]);
    equal += best == greedy[i] ? 1 : 0;
    last = run.forward({greedy[i]});
  }
  std::printf("%-24s kv %d: relative L2 %.2e, argmax %zu of %zu, greedy %zu of %zu\n", name.c_str(),
              static_cast<int>(kv), error, same, tokens.size(), equal, greedy.size());
  return error;
}

}  // namespace

TEST_CASE("reference models give llama.cpp's logits and greedy chains") {
  for (const char* name : {"llama", "llama-untied-ropefactors", "mixtral", "qwen2", "qwen3",
                           "qwen3moe", "gemma2", "gemma3"}) {
    CAPTURE(name);
    CHECK(check_model(name, KvCacheType::kF32) < 1e-4);
    CHECK(check_model(name, KvCacheType::kF16) < 1e-3);
    CHECK(check_model(name, KvCacheType::kInt8) < 4e-2);
  }
}

TEST_CASE("a reference model with F16 weights is as close as F16 activations allow") {
  // llama.cpp rounds activations to F16 for F16 weights; here they stay F32.
  CHECK(check_model("phi3", KvCacheType::kF32) < 2e-3);
  CHECK(check_model("phi3", KvCacheType::kF16) < 2e-3);
}

// Scoring a text: how well a model predicts it (perplexity), and how a variant's predictions differ
// from a saved reference (Kullback-Leibler divergence, same top token).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/engine/engine.h"

namespace sluice {

struct ScoreOptions {
  std::uint32_t window = 512;   // tokens evaluated together; windows do not overlap
  std::uint32_t skip = 0;       // logits at window positions [skip, window - 1) are scored
  std::uint64_t limit = 0;      // tokens of the text to use; 0: all
  bool bos_each_window = true;  // replaces each window's first token by BOS, as llama.cpp does
  const std::atomic<bool>* cancel = nullptr;
  // Hears tokens done, tokens in all, and the running perplexity.
  std::function<void(std::uint64_t, std::uint64_t, double)> on_progress;
  // Hears the natural-log probabilities of each scored row [vocabulary]; may be empty.
  std::function<Status(std::span<const float> logprobs, std::int32_t next)> on_row;
};

struct Score {
  std::uint64_t tokens = 0;  // scored
  double mean_nll = 0;       // mean negative log-likelihood, natural log
  double nll_error = 0;      // standard error of that mean
  double perplexity = 0;     // exp(mean_nll)
  double perplexity_error = 0;
  double seconds = 0;
};

Result<Score> score(Engine& engine, std::span<const std::int32_t> tokens,
                    const ScoreOptions& options);

}  // namespace sluice

#include "src/engine/score.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "src/engine/sampling/logprobs.h"

namespace sluice {
namespace {

// Natural-log probabilities of a row of logits, in double; false for logits that are not usable.
bool log_softmax(std::span<const float> logits, std::span<float> out) {
  float highest = -INFINITY;
  for (const float x : logits) {
    if (std::isnan(x) || x == INFINITY) return false;
    highest = std::max(highest, x);
  }
  if (highest == -INFINITY) return false;
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x) - highest);
  const double log_sum = highest + std::log(sum);
  for (std::size_t i = 0; i < logits.size(); ++i) {
    out[i] = static_cast<float>(logits[i] - log_sum);
  }
  return true;
}

}  // namespace

Result<Score> score(Engine& engine, std::span<const std::int32_t> tokens,
                    const ScoreOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  const std::uint32_t window = options.window;
  if (window < 2 || options.skip >= window - 1) {
    return make_error(
        ErrorCode::kUsage,
        "a window of {} tokens with {} unscored leaves nothing to score; {} or more are "
        "needed",
        window, options.skip, std::max<std::uint64_t>(3, std::uint64_t{options.skip} + 2));
  }
  if (window > engine.context()) {
    return make_error(ErrorCode::kUsage, "a window of {} tokens is larger than the context of {}",
                      window, engine.context());
  }
  if (options.limit != 0)
    tokens = tokens.first(std::min<std::size_t>(tokens.size(), options.limit));
  const std::size_t windows = tokens.size() / window;
  if (windows == 0) {
    return make_error(ErrorCode::kUsage,
                      "the text has {} tokens, a window has {}; a longer text or a smaller window "
                      "(-c) is needed",
                      tokens.size(), window);
  }
  const std::int32_t bos = engine.tokenizer().bos_id();
  const bool replace_first =
      options.bos_each_window && engine.tokenizer().add_bos() && bos != kNoToken;

  KvCache& kv = engine.kv();
  const std::uint32_t vocabulary = engine.spec().vocabulary;
  const auto candidates = static_cast<std::size_t>(engine.tokenizer().vocab_size());
  const std::uint32_t chunk = std::min(engine.prefill_chunk(), engine.backend().max_logits());
  std::vector<float> logits(std::size_t{chunk} * vocabulary);  // [chunk, vocabulary]
  std::vector<float> logprobs(candidates);
  std::vector<BatchRow> rows;

  Score result;
  double mean = 0, squares = 0;  // Welford's running mean and sum of squared differences
  const auto finish = [&] {
    const auto n = static_cast<double>(result.tokens);
    result.mean_nll = mean;
    result.nll_error = result.tokens > 1 ? std::sqrt(squares / (n - 1) / n) : 0;
    result.perplexity = std::exp(mean);
    result.perplexity_error = result.perplexity * result.nll_error;
  };
  for (std::size_t w = 0; w < windows; ++w) {
    const std::span<const std::int32_t> part = tokens.subspan(w * window, window);
    const SequenceId sequence = kv.create();
    Status status;
    for (std::uint32_t done = 0; done < window && status.ok();) {
      // Rows before `skip` need no logits and may go in larger passes.
      const bool scored = done >= options.skip;
      const std::uint32_t most =
          scored ? chunk : std::min(engine.prefill_chunk(), options.skip - done);
      const std::uint32_t count = std::min(most, window - done);
      rows.clear();
      for (std::uint32_t i = 0; i < count; ++i) {
        const bool first = done + i == 0 && replace_first;
        rows.push_back({first ? bos : part[done + i], done + i, sequence, scored});
      }
      const auto pass = engine.run(rows, logits, options.cancel);
      if (!pass.ok()) {
        status = pass.error();
        break;
      }
      for (std::uint32_t i = 0; i < count && scored && done + i + 1 < window; ++i) {
        const auto row =
            std::span<const float>(logits).subspan(std::size_t{i} * vocabulary, candidates);
        if (!log_softmax(row, logprobs)) {
          status = unusable_logits(row, w * window + done + i);
          break;
        }
        const std::int32_t next = part[done + i + 1];
        const double nll = -static_cast<double>(logprobs[static_cast<std::size_t>(next)]);
        ++result.tokens;
        const double delta = nll - mean;
        mean += delta / static_cast<double>(result.tokens);
        squares += delta * (nll - mean);
        if (options.on_row) {
          status = options.on_row(logprobs, next);
          if (!status.ok()) break;
        }
      }
      done += count;
      finish();
      if (options.on_progress) {
        options.on_progress(w * window + done, windows * window, result.perplexity);
      }
    }
    kv.release(sequence);
    if (!status.ok()) return status.error();
  }
  finish();
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace sluice

// One request between passes: what it drew so far, what it wants to run next, and where it ends.
// Whoever runs the passes (generate(), the scheduler) gives it logits; so there is one way from
// logits to text, and the tokens don't depend on who runs the passes.
//
//   plan()     the tokens of the next pass: the last one drawn and guesses behind it
//   advance()  draws from the logits of a pass as far as its guesses came true
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "src/engine/generate.h"
#include "src/engine/logit_rows.h"
#include "src/engine/sampling/sampler.h"
#include "src/engine/speculation/speculator.h"
#include "src/engine/token_tree.h"
#include "src/text/stop_matcher.h"
#include "src/text/text_stream.h"

namespace sluice {

class Generation {
 public:
  // Checks the request against model and context; errors as generate()'s. `engine` must outlive it.
  static Result<std::unique_ptr<Generation>> create(Engine& engine, GenerateRequest request);
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;

  const GenerateRequest& request() const { return request_; }
  // The prompt and the tokens drawn since.
  std::span<const std::int32_t> text() const { return text_; }
  // How many of them must be in the cache for the next pass, and are needed afterwards.
  std::size_t held() const { return held_; }
  bool ended() const { return ended_; }

  // The prompt was run (`reused`: tokens that were in the cache), or found to be unwanted
  // (max_tokens 0).
  Status prompt_done(std::size_t reused);

  // Draws as many tokens as the last pass allows: one, and one more for each guess that came true.
  // `logits`, from row `first` on, are those of all tokens of plan(), or of the prompt's last
  // token; `hidden` their residual streams [tokens, embedding], or empty. Afterwards ended(), or
  // plan() for the next pass.
  Status advance(const LogitRows& logits, std::size_t first, std::span<const float> hidden);
  // How many of the largest logits of a row are enough for that; 0: all are needed.
  std::size_t top_needed() const;
  // Tokens of the last pass that came true, the first one included: indices into its plan.
  std::span<const std::uint32_t> path() const { return path_; }

  // The next pass: text()[held()] and guesses behind it, at most `most_rows` tokens in all.
  // `beside` says what else the pass holds. Requires !ended(). kInterrupted: by request().cancel.
  Result<TokenTree> plan(std::size_t most_rows, const PassLoad& beside = {});
  // Gives up all guesses of plan() but those on its first path, for want of room.
  TokenTree plan_first_path();
  // What the pass took, and what of its reading falls to this request.
  void pass_done(double ms, const PassTraffic& traffic);

  // The user stopped it.
  void interrupt();
  bool wants_hidden() const;
  // Requires ended().
  Result<GenerateResult> finish();

 private:
  using Clock = std::chrono::steady_clock;
  Generation(Engine& engine, GenerateRequest request);
  Status emit(std::string_view text);
  void end(FinishReason reason);
  // Draws one token. Its place in the pass: `at`.
  Status draw(const LogitRow& row);

  Engine& engine_;
  GenerateRequest request_;
  std::optional<Sampler> sampler_;
  TextStream stream_{BadBytes::kKeep};
  std::optional<StopMatcher> matcher_;
  GenerateResult result_;

  std::vector<std::int32_t> text_;
  std::size_t held_;
  bool ended_ = false;
  TokenTree tree_;  // of the last pass
  std::vector<std::uint32_t> path_;
  std::vector<float> hidden_;  // [embedding] at the last token of path_, where drafters want it

  Clock::time_point start_;
  Clock::time_point first_token_;
  Clock::time_point last_token_;
  PassTraffic read_;  // by decode passes
  std::uint64_t drawn_ = 0;
  double pass_ms_ = 0;
};

}  // namespace sluice

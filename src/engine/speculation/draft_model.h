// Drafts by a smaller model with the same vocabulary. Source: Leviathan, Kalman, Matias, "Fast
// Inference from Transformers via Speculative Decoding", 2023; the draws are coupled as in
// draw_race().
#pragma once

#include <optional>
#include <vector>

#include "src/engine/cached_sequence.h"
#include "src/engine/sampling/sampler.h"
#include "src/engine/speculation/drafter.h"

namespace sluice {

// Refuses (kUsage) a draft whose tokens differ from the target's, and names the first one. Rows at
// the end of one vocabulary alone (padding) are no difference.
Status check_same_vocabulary(const Tokenizer& target, const Tokenizer& draft);

class DraftModel final : public Drafter {
 public:
  // `engine` must outlive the drafter; `vocabulary`: of the target. Drafts are drawn with the
  // request's settings, seed and positions: they are what the target draws, were its distribution
  // the same.
  // expected_cost: see Drafter.
  DraftModel(Engine& engine, std::size_t vocabulary, double expected_cost = 0);

  std::string_view name() const override { return "draft"; }
  double expected_cost() const override { return expected_cost_; }
  Status begin(std::span<const std::int32_t> tokens, const SamplingParams& sampling,
               std::uint32_t stream) override;
  Status accept(std::int32_t token) override;
  std::size_t peek() const override { return fits_ ? kConfidence : kDraftClasses; }
  Result<Draft> propose(const DraftContext& context, std::size_t most) override;

 private:
  // Three of four tokens of a model of the family are right, before more is known.
  static constexpr std::size_t kConfidence = 2;

  Engine& engine_;
  double expected_cost_;
  CachedSequence sequence_;  // accepted text, then rejected drafts until the next assign()
  std::optional<Sampler>
      sampler_;             // its history is the text, then drafts of which nothing is known yet
  std::size_t text_ = 0;    // tokens of the text
  std::size_t vocabulary_;  // tokens that both models have
  bool fits_ = true;        // the text is in the vocabulary, and shorter than the context
  // The probability of a token that sample() chose from logits_.
  float sure_of(const TokenChoice& choice);

  std::vector<float> logits_;
  std::vector<float> block_max_;  // scratch
};

}  // namespace sluice

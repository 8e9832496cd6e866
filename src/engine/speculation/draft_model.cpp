#include "src/engine/speculation/draft_model.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "src/engine/sampling/passes.h"
#include "src/gguf/describe.h"

namespace sluice {
namespace {

constexpr std::size_t kUsuallyUnread = 4;

}  // namespace

Status check_same_vocabulary(const Tokenizer& target, const Tokenizer& draft) {
  const std::int32_t common = std::min(target.vocab_size(), draft.vocab_size());
  for (std::int32_t id = 0; id < common; ++id) {
    if (target.token_text(id) == draft.token_text(id)) continue;
    // Padding is named in many ways; rows that can't be part of a text are no difference.
    const auto unusable = [id](const Tokenizer& tokenizer) {
      return tokenizer.type(id) == TokenType::kUnused;
    };
    if (unusable(target) || unusable(draft)) continue;
    return make_error(ErrorCode::kUsage,
                      "the draft has another vocabulary: token {} is '{}' there and '{}' in the "
                      "model; a draft must be of the model's family",
                      id, printable(draft.token_text(id), 40),
                      printable(target.token_text(id), 40));
  }
  return {};
}

DraftModel::DraftModel(Engine& engine, std::size_t vocabulary, double expected_cost)
    : engine_(engine),
      expected_cost_(expected_cost),
      sequence_(engine),
      vocabulary_(std::min(vocabulary, static_cast<std::size_t>(engine.tokenizer().vocab_size()))),
      logits_(engine.spec().vocabulary) {}

Status DraftModel::begin(std::span<const std::int32_t> tokens, const SamplingParams& sampling,
                         std::uint32_t stream) {
  const Tokenizer& tokenizer = engine_.tokenizer();
  SamplingParams params = sampling;
  std::erase_if(params.logit_bias, [this](const LogitBias& bias) {
    return static_cast<std::size_t>(bias.token) >= vocabulary_;
  });
  SLUICE_ASSIGN_OR_RETURN(
      sampler_, Sampler::create(params, vocabulary_, stream, [&tokenizer](std::int32_t id) {
        return tokenizer.bytes_of(id, true);
      }));
  text_ = 0;
  fits_ = true;
  for (const std::int32_t token : tokens) SLUICE_RETURN_IF_ERROR(accept(token));
  return {};
}

Status DraftModel::accept(std::int32_t token) {
  if (static_cast<std::size_t>(token) >= vocabulary_) fits_ = false;
  if (text_ + 1 >= engine_.context()) fits_ = false;
  if (!fits_) return {};
  // A draft that came true is in the history already.
  const std::span<const std::int32_t> history = sampler_->history();
  if (text_ < history.size() && history[text_] == token) {
    ++text_;
    return {};
  }
  SLUICE_RETURN_IF_ERROR(sampler_->truncate(text_));
  ++text_;
  return sampler_->accept(token);
}

float DraftModel::sure_of(const TokenChoice& choice) {
  if (!sampler_->greedy()) return static_cast<float>(choice.probability);
  const VocabPasses& passes = best_passes();
  block_max_.resize(scan_blocks(vocabulary_));
  const double max = passes.scan(logits_.data(), vocabulary_, block_max_.data()).max;
  const double weight = std::exp(logits_[static_cast<std::size_t>(choice.id)] - max);
  return static_cast<float>(weight / passes.sum(logits_.data(), vocabulary_, max, 1));
}

Result<Draft> DraftModel::propose(const DraftContext& context, std::size_t most) {
  Draft draft;
  if (!fits_) return draft;
  draft.confidence = kConfidence;
  most = std::min<std::size_t>(most, engine_.context() - text_);
  SLUICE_RETURN_IF_ERROR(sampler_->truncate(text_));
  const std::span<const float> usable = std::span(logits_).first(vocabulary_);
  const auto start = std::chrono::steady_clock::now();
  SLUICE_ASSIGN_OR_RETURN(const CachedSequence::Prefill prefill,
                          sequence_.assign(context.tokens, logits_, context.cancel));
  // A token or two since the last draft are part of drafting; a prompt is not.
  if (context.tokens.size() - prefill.reused > kUsuallyUnread) {
    const std::chrono::duration<double, std::milli> ms = std::chrono::steady_clock::now() - start;
    draft.reading_ms = ms.count();
  }
  for (std::size_t i = 0; i < most; ++i) {
    SLUICE_ASSIGN_OR_RETURN(const TokenChoice choice, sampler_->sample(usable));
    draft.tokens.push_back(choice.id);
    draft.sure.push_back(sure_of(choice));
    SLUICE_RETURN_IF_ERROR(sampler_->accept(choice.id));
    if (i + 1 == most || engine_.tokenizer().is_eog(choice.id)) break;
    if (context.worth_more && !context.worth_more(draft.sure)) break;
    SLUICE_ASSIGN_OR_RETURN(const PassTraffic traffic,
                            sequence_.append({&choice.id, 1}, logits_, context.cancel));
    (void)traffic;
  }
  return draft;
}

}  // namespace sluice

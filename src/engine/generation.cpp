#include "src/engine/generation.h"

#include <algorithm>
#include <limits>

#include "src/engine/sampling/logprobs.h"

namespace sluice {
namespace {

double ms_between(std::chrono::steady_clock::time_point from,
                  std::chrono::steady_clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

SamplingParams with_bans(const GenerateRequest& request, const Tokenizer& tokenizer) {
  SamplingParams params = request.sampling;
  // "Until the context is full" means that no end may come before.
  if (request.ignore_eos || request.max_tokens == -2) {
    for (const std::int32_t id : tokenizer.eog_ids()) {
      params.logit_bias.push_back({id, -std::numeric_limits<double>::infinity()});
    }
  }
  return params;
}

}  // namespace

Generation::Generation(Engine& engine, GenerateRequest request)
    : engine_(engine),
      request_(std::move(request)),
      text_(request_.prompt),
      held_(request_.prompt.size()),
      start_(Clock::now()),
      first_token_(start_) {
  result_.prompt_tokens = static_cast<std::uint32_t>(request_.prompt.size());
}

Result<std::unique_ptr<Generation>> Generation::create(Engine& engine, GenerateRequest request) {
  const Tokenizer& tokenizer = engine.tokenizer();
  if (request.prompt.empty()) {
    return make_error(ErrorCode::kUsage, "the prompt has no tokens; give at least one");
  }
  if (request.prompt.size() >= engine.context()) {
    return make_error(ErrorCode::kUsage, "the prompt has {} tokens, the context holds {}; {}",
                      request.prompt.size(), engine.context(),
                      engine.advice_for_context(request.prompt.size() + 128));
  }
  // Rows of the embedding beyond the vocabulary are padding and no candidates.
  const auto candidates = static_cast<std::size_t>(tokenizer.vocab_size());
  for (const std::int32_t id : request.prompt) {
    if (id < 0 || static_cast<std::size_t>(id) >= candidates) {
      return make_error(ErrorCode::kUsage, "prompt token {} is outside the vocabulary of {}", id,
                        candidates);
    }
  }
  std::unique_ptr<Generation> generation(new Generation(engine, std::move(request)));
  const GenerateRequest& kept = generation->request_;
  SLUICE_ASSIGN_OR_RETURN(
      generation->sampler_,
      Sampler::create(with_bans(kept, tokenizer), candidates, kept.stream,
                      [&tokenizer](std::int32_t id) { return tokenizer.bytes_of(id, true); }));
  SLUICE_ASSIGN_OR_RETURN(generation->matcher_, StopMatcher::create(kept.stop));
  SLUICE_RETURN_IF_ERROR(generation->sampler_->accept(kept.prompt));
  return generation;
}

Status Generation::prompt_done(std::size_t reused) {
  result_.timings.prefill_ms = ms_between(start_, Clock::now());
  result_.reused_tokens = static_cast<std::uint32_t>(reused);
  if (request_.max_tokens == 0) {
    end(FinishReason::kLength);
  } else if (request_.speculator != nullptr) {
    SLUICE_RETURN_IF_ERROR(
        request_.speculator->begin(request_.prompt, sampler_->params(), request_.stream));
  }
  return {};
}

bool Generation::wants_hidden() const {
  return request_.speculator != nullptr && request_.speculator->wants_hidden();
}

std::size_t Generation::top_needed() const {
  return request_.logprobs > 0 ? 0 : sampler_->top_needed(tree_.size());  // those sum over all
}

Status Generation::advance(const LogitRows& logits, std::size_t first,
                           std::span<const float> hidden) {
  path_.assign(1, 0);
  for (;;) {
    const std::uint32_t at = path_.back();
    SLUICE_RETURN_IF_ERROR(draw(logits.row(first + at)));
    if (ended_) break;
    const std::optional<std::uint32_t> next = tree_.child(at, text_.back());
    if (!next) break;
    path_.push_back(*next);  // its row was run already
    if (request_.cancel == nullptr || !*request_.cancel) continue;
    end(FinishReason::kInterrupted);
    break;
  }
  const std::size_t embedding = engine_.spec().embedding;
  if (!hidden.empty()) {
    const auto row = hidden.subspan(path_.back() * embedding, embedding);
    hidden_.assign(row.begin(), row.end());
  }
  if (request_.speculator != nullptr && !tree_.tokens.empty() &&
      result_.finish != FinishReason::kInterrupted) {
    // Where the text ended, the guesses behind it were not looked at.
    const std::size_t accepted = path_.size() - 1;
    const bool guessed = std::find(tree_.parents.begin() + path_.back() + 1, tree_.parents.end(),
                                   path_.back()) != tree_.parents.end();
    request_.speculator->outcome(accepted + (!ended_ && guessed ? 1 : 0), accepted);
  }
  return {};
}

Status Generation::draw(const LogitRow& row) {
  const Tokenizer& tokenizer = engine_.tokenizer();
  held_ = text_.size();
  ++drawn_;
  SLUICE_ASSIGN_OR_RETURN(const TokenChoice choice, sampler_->sample(row));
  const Clock::time_point now = Clock::now();
  Timings& timings = result_.timings;
  if (drawn_ == 1) {
    first_token_ = now;
    timings.ttft_ms = ms_between(start_, now);
  } else {
    timings.longest_gap_ms = std::max(timings.longest_gap_ms, ms_between(last_token_, now));
  }
  last_token_ = now;
  if (tokenizer.is_eog(choice.id)) {
    end(FinishReason::kStop);
    return {};
  }
  result_.tokens.push_back(choice.id);
  if (request_.logprobs > 0) {
    SLUICE_ASSIGN_OR_RETURN(const Logprobs top, top_logprobs(row.logits, request_.logprobs,
                                                             choice.id, sampler_->position()));
    TokenLogprobs entry{top.chosen, {}};
    for (const TokenLogprob& each : top.top) entry.top.emplace_back(each.id, each.logprob);
    result_.logprobs.push_back(std::move(entry));
  }
  SLUICE_RETURN_IF_ERROR(sampler_->accept(choice.id));
  SLUICE_RETURN_IF_ERROR(
      emit(matcher_->push(stream_.push(tokenizer.bytes_of(choice.id, request_.show_special)))));
  if (matcher_->stopped()) {
    result_.stop_string = request_.stop[matcher_->which()];
    end(FinishReason::kStop);
  } else if (request_.max_tokens >= 0 &&
             result_.tokens.size() >= static_cast<std::uint64_t>(request_.max_tokens)) {
    end(FinishReason::kLength);
  } else if (request_.prompt.size() + result_.tokens.size() >= engine_.context()) {
    end(FinishReason::kContext);
  } else {
    text_.push_back(choice.id);
    if (request_.speculator != nullptr) return request_.speculator->accept(choice.id);
  }
  return {};
}

Result<TokenTree> Generation::plan(std::size_t most_rows, const PassLoad& beside) {
  const std::int32_t root = text_.back();
  tree_ = chain({root});
  if (request_.speculator == nullptr) return tree_;
  // No further than the text may go: the last token allowed needs no pass.
  std::size_t most = std::min(most_rows - 1, engine_.context() - text_.size());
  if (request_.max_tokens >= 0) {
    const auto left = static_cast<std::size_t>(request_.max_tokens) - result_.tokens.size();
    most = std::min(most, left - 1);
  }
  DraftContext context;
  context.tokens = text_;
  context.hidden = hidden_;
  context.vocabulary = static_cast<std::size_t>(engine_.tokenizer().vocab_size());
  context.cancel = request_.cancel;
  SLUICE_ASSIGN_OR_RETURN(tree_, request_.speculator->propose(context, most, beside));
  return tree_;
}

TokenTree Generation::plan_first_path() {
  std::vector<std::int32_t> tokens;
  const auto paths = tree_.paths();
  for (const std::uint32_t at : paths.front()) tokens.push_back(tree_.tokens[at]);
  tree_ = chain(std::move(tokens));
  return tree_;
}

void Generation::pass_done(double ms, const PassTraffic& traffic) {
  pass_ms_ += ms;
  read_.add(traffic);
  if (request_.speculator != nullptr) request_.speculator->pass_done(tree_.size(), ms);
}

Status Generation::emit(std::string_view text) {
  if (text.empty()) return {};
  result_.text += text;
  if (request_.on_text && !request_.on_text(text)) {
    return failed("the output can no longer be written");
  }
  return {};
}

void Generation::end(FinishReason reason) {
  result_.finish = reason;
  ended_ = true;
}

void Generation::interrupt() { end(FinishReason::kInterrupted); }

Result<GenerateResult> Generation::finish() {
  SLUICE_RETURN_IF_ERROR(emit(matcher_->push(stream_.finish())));
  SLUICE_RETURN_IF_ERROR(emit(matcher_->finish()));
  Timings& timings = result_.timings;
  if (!result_.tokens.empty()) timings.decode_ms = ms_between(first_token_, Clock::now());
  if (drawn_ > 1 && pass_ms_ > 0) {
    const double bytes = static_cast<double>(read_.weight_bytes + read_.kv_bytes);
    timings.tpot_ms = timings.decode_ms / static_cast<double>(drawn_ - 1);
    timings.tokens_per_s = 1000.0 / timings.tpot_ms;
    timings.bytes_per_token = bytes / static_cast<double>(drawn_ - 1);
    timings.decode_bandwidth = bytes / (pass_ms_ / 1000.0);
  }
  return std::move(result_);
}

}  // namespace sluice

#include "src/engine/generate.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "src/engine/sampling/logprobs.h"
#include "src/engine/sampling/sampler.h"
#include "src/text/stop_matcher.h"
#include "src/text/text_stream.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// Turns tokens into certain text: whole characters, no part of a stop string.
class TextOut {
 public:
  static Result<TextOut> create(const GenerateRequest& request, GenerateResult& result) {
    SLUICE_ASSIGN_OR_RETURN(StopMatcher matcher, StopMatcher::create(request.stop));
    return TextOut(request, result, std::move(matcher));
  }

  // false: a stop string is complete.
  Result<bool> push(std::string_view bytes) {
    SLUICE_RETURN_IF_ERROR(emit(matcher_.push(stream_.push(bytes))));
    return !matcher_.stopped();
  }
  // Everything held back turns out to be text.
  Status finish() {
    SLUICE_RETURN_IF_ERROR(emit(matcher_.push(stream_.finish())));
    return emit(matcher_.finish());
  }
  std::string stop_string() const {
    return matcher_.stopped() ? request_->stop[matcher_.which()] : std::string{};
  }

 private:
  TextOut(const GenerateRequest& request, GenerateResult& result, StopMatcher matcher)
      : request_(&request), result_(&result), matcher_(std::move(matcher)) {}

  Status emit(std::string_view text) {
    if (text.empty()) return {};
    result_->text += text;
    if (request_->on_text && !request_->on_text(text)) {
      return failed("the output can no longer be written");
    }
    return {};
  }

  const GenerateRequest* request_;
  GenerateResult* result_;
  TextStream stream_{BadBytes::kKeep};
  StopMatcher matcher_;
};

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

std::string_view finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kContext:
      return "context";
    case FinishReason::kInterrupted:
      return "interrupted";
  }
  return "";
}

Result<GenerateResult> generate(Engine& engine, const GenerateRequest& request) {
  CachedSequence sequence(engine);
  return generate(sequence, request);
}

Result<GenerateResult> generate(CachedSequence& sequence, const GenerateRequest& request) {
  const auto start = Clock::now();
  Engine& engine = sequence.engine();
  const Tokenizer& tokenizer = engine.tokenizer();
  const std::uint32_t context = engine.context();
  if (request.prompt.empty()) {
    return make_error(ErrorCode::kUsage, "the prompt has no tokens; give at least one");
  }
  if (request.prompt.size() >= context) {
    return make_error(ErrorCode::kUsage,
                      "the prompt has {} tokens, the context holds {}; use -c {} or more, or a "
                      "shorter prompt",
                      request.prompt.size(), context, request.prompt.size() + 128);
  }
  // Rows of the embedding beyond the vocabulary are padding and no candidates.
  const auto candidates = static_cast<std::size_t>(tokenizer.vocab_size());
  for (const std::int32_t id : request.prompt) {
    if (id < 0 || static_cast<std::size_t>(id) >= candidates) {
      return make_error(ErrorCode::kUsage, "prompt token {} is outside the vocabulary of {}", id,
                        candidates);
    }
  }
  SLUICE_ASSIGN_OR_RETURN(
      Sampler sampler,
      Sampler::create(with_bans(request, tokenizer), candidates, request.stream,
                      [&](std::int32_t id) { return tokenizer.bytes_of(id, true); }));
  GenerateResult result;
  result.prompt_tokens = static_cast<std::uint32_t>(request.prompt.size());
  SLUICE_ASSIGN_OR_RETURN(TextOut out, TextOut::create(request, result));
  SLUICE_RETURN_IF_ERROR(sampler.accept(request.prompt));

  std::vector<float> logits(engine.spec().vocabulary);
  const std::span<const float> usable = std::span(logits).first(candidates);

  const auto interrupted = [&](const Error& error) {
    return error.code == ErrorCode::kInterrupted;
  };
  auto prefill = sequence.assign(request.prompt, logits, request.cancel, [&](std::size_t held) {
    if (!request.on_prefill) return;
    request.on_prefill(held, request.prompt.size());
  });
  if (!prefill.ok() && !interrupted(prefill.error())) return prefill.error();
  result.timings.prefill_ms = ms_since(start);
  bool running = prefill.ok();
  if (running) result.reused_tokens = static_cast<std::uint32_t>(prefill->reused);
  if (!running) result.finish = FinishReason::kInterrupted;
  if (running && request.max_tokens == 0) {
    result.finish = FinishReason::kLength;
    running = false;
  }

  PassTraffic read;  // by decode passes
  std::uint64_t passes = 0;
  double pass_ms = 0;
  auto first_token = Clock::now();
  while (running) {
    SLUICE_ASSIGN_OR_RETURN(const TokenChoice choice, sampler.sample(usable));
    if (result.tokens.empty()) {
      first_token = Clock::now();
      result.timings.ttft_ms = ms_since(start);
    }
    if (tokenizer.is_eog(choice.id)) {
      result.finish = FinishReason::kStop;
      break;
    }
    result.tokens.push_back(choice.id);
    if (request.logprobs > 0) {
      SLUICE_ASSIGN_OR_RETURN(const Logprobs top, top_logprobs(usable, request.logprobs, choice.id,
                                                               sampler.position()));
      TokenLogprobs entry{top.chosen, {}};
      for (const TokenLogprob& each : top.top) entry.top.emplace_back(each.id, each.logprob);
      result.logprobs.push_back(std::move(entry));
    }
    SLUICE_RETURN_IF_ERROR(sampler.accept(choice.id));
    SLUICE_ASSIGN_OR_RETURN(const bool more,
                            out.push(tokenizer.bytes_of(choice.id, request.show_special)));
    if (!more) {
      result.finish = FinishReason::kStop;
      result.stop_string = out.stop_string();
      break;
    }
    if (request.max_tokens >= 0 &&
        result.tokens.size() >= static_cast<std::uint64_t>(request.max_tokens)) {
      result.finish = FinishReason::kLength;
      break;
    }
    if (request.prompt.size() + result.tokens.size() >= context) {
      result.finish = FinishReason::kContext;
      break;
    }
    const auto pass_start = Clock::now();
    auto step = sequence.append(choice.id, logits, request.cancel);
    if (!step.ok()) {
      if (!interrupted(step.error())) return step.error();
      result.finish = FinishReason::kInterrupted;
      break;
    }
    pass_ms += ms_since(pass_start);
    read.weight_bytes += step->weight_bytes;
    read.kv_bytes += step->kv_bytes;
    ++passes;
  }
  SLUICE_RETURN_IF_ERROR(out.finish());

  Timings& timings = result.timings;
  if (!result.tokens.empty()) {
    timings.decode_ms =
        std::chrono::duration<double, std::milli>(Clock::now() - first_token).count();
  }
  if (passes > 0) {
    const double bytes = static_cast<double>(read.weight_bytes + read.kv_bytes);
    timings.tpot_ms = timings.decode_ms / static_cast<double>(passes);
    timings.tokens_per_s = 1000.0 / timings.tpot_ms;
    timings.bytes_per_token = bytes / static_cast<double>(passes);
    timings.decode_bandwidth = bytes / (pass_ms / 1000.0);
  }
  return result;
}

}  // namespace sluice

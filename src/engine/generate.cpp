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

// What the decode loop keeps between passes.
struct Decode {
  std::span<float> logits;     // [most rows, vocabulary]
  std::vector<float>& hidden;  // [rows of the last pass, embedding] where drafters want it
  const std::vector<std::int32_t>& text;  // prompt and tokens so far, the chosen one included
  std::vector<std::int32_t>& draft;       // of the last pass
  std::size_t& row;                       // its tokens that came true
  PassTraffic& read;
  double& pass_ms;
};

// Runs the chosen token, and a draft behind it where that pays. false: interrupted.
Result<bool> next_pass(CachedSequence& sequence, const GenerateRequest& request,
                       std::int32_t chosen, const GenerateResult& result, std::size_t most_rows,
                       const Decode& decode) {
  const std::size_t embedding = sequence.engine().spec().embedding;
  const std::size_t length = request.prompt.size() + result.tokens.size() - 1;
  sequence.truncate(length);  // rejected drafts
  std::vector<std::int32_t> tokens = {chosen};
  if (request.speculator != nullptr) {
    if (length > request.prompt.size()) {
      request.speculator->outcome(std::min(decode.row + 1, decode.draft.size()), decode.row);
    }
    // No further than the text may go: the last token allowed needs no pass.
    std::size_t most = std::min(most_rows - 1, sequence.engine().context() - length - 1);
    if (request.max_tokens >= 0) {
      const auto left = static_cast<std::size_t>(request.max_tokens) - result.tokens.size();
      most = std::min(most, left - 1);
    }
    DraftContext context;
    context.tokens = decode.text;
    if (!decode.hidden.empty()) {
      context.hidden =
          std::span<const float>(decode.hidden).subspan(decode.row * embedding, embedding);
    }
    context.cancel = request.cancel;
    Result<std::vector<std::int32_t>> draft = request.speculator->propose(context, most);
    if (!draft.ok()) {
      if (draft.error().code == ErrorCode::kInterrupted) return false;
      return draft.error();
    }
    decode.draft = std::move(*draft);
    // Whatever a drafter says: no more than asked for, and only tokens.
    const auto candidates = sequence.engine().tokenizer().vocab_size();
    const auto bad = std::find_if(decode.draft.begin(), decode.draft.end(),
                                  [&](std::int32_t id) { return id < 0 || id >= candidates; });
    decode.draft.erase(bad, decode.draft.end());
    if (decode.draft.size() > most) decode.draft.resize(most);
    tokens.insert(tokens.end(), decode.draft.begin(), decode.draft.end());
  }
  decode.row = 0;
  const std::size_t vocabulary = sequence.engine().spec().vocabulary;
  if (request.speculator != nullptr && request.speculator->wants_hidden()) {
    decode.hidden.resize(tokens.size() * embedding);
  }
  const auto start = Clock::now();
  const Result<PassTraffic> pass = sequence.append(
      tokens, decode.logits.first(tokens.size() * vocabulary), request.cancel, decode.hidden);
  if (!pass.ok()) {
    if (pass.error().code == ErrorCode::kInterrupted) return false;
    return pass.error();
  }
  const double ms = ms_since(start);
  decode.pass_ms += ms;
  decode.read.weight_bytes += pass->weight_bytes;
  decode.read.kv_bytes += pass->kv_bytes;
  if (request.speculator != nullptr) request.speculator->pass_done(tokens.size(), ms);
  return true;
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
    return make_error(ErrorCode::kUsage, "the prompt has {} tokens, the context holds {}; {}",
                      request.prompt.size(), context,
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
  SLUICE_ASSIGN_OR_RETURN(
      Sampler sampler,
      Sampler::create(with_bans(request, tokenizer), candidates, request.stream,
                      [&](std::int32_t id) { return tokenizer.bytes_of(id, true); }));
  GenerateResult result;
  result.prompt_tokens = static_cast<std::uint32_t>(request.prompt.size());
  SLUICE_ASSIGN_OR_RETURN(TextOut out, TextOut::create(request, result));
  SLUICE_RETURN_IF_ERROR(sampler.accept(request.prompt));

  const std::size_t vocabulary = engine.spec().vocabulary;
  const std::size_t most_rows =
      request.speculator == nullptr
          ? 1
          : std::min<std::size_t>(engine.backend().max_logits(), DraftController::kMostDrafted + 1);
  std::vector<float> logits(vocabulary * most_rows);  // of the last pass
  // The last pass ran a token and these drafted ones after it; row r of the logits is valid once
  // the first r of them have come true.
  std::vector<std::int32_t> draft;
  std::size_t row = 0;

  const auto interrupted = [&](const Error& error) {
    return error.code == ErrorCode::kInterrupted;
  };
  auto prefill = sequence.assign(request.prompt, std::span(logits).first(vocabulary),
                                 request.cancel, [&](std::size_t held) {
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

  if (running && request.speculator != nullptr) {
    SLUICE_RETURN_IF_ERROR(
        request.speculator->begin(request.prompt, sampler.params(), request.stream));
  }

  std::vector<std::int32_t> text = request.prompt;
  std::vector<float> hidden;
  PassTraffic read;  // by decode passes
  std::uint64_t sampled = 0;
  double pass_ms = 0;
  std::size_t held = sequence.tokens().size();  // tokens that the next choice depends on
  auto first_token = Clock::now();
  while (running) {
    held = request.prompt.size() + result.tokens.size();
    const std::span<const float> usable =
        std::span<const float>(logits).subspan(row * vocabulary, candidates);
    ++sampled;
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
    text.push_back(choice.id);
    if (request.speculator != nullptr) {
      SLUICE_RETURN_IF_ERROR(request.speculator->accept(choice.id));
    }
    if (row < draft.size() && draft[row] == choice.id) {  // its row was run already
      ++row;
      if (request.cancel == nullptr || !*request.cancel) continue;
      result.finish = FinishReason::kInterrupted;
      break;
    }
    SLUICE_ASSIGN_OR_RETURN(const bool done,
                            next_pass(sequence, request, choice.id, result, most_rows,
                                      Decode{logits, hidden, text, draft, row, read, pass_ms}));
    if (!done) {
      result.finish = FinishReason::kInterrupted;
      break;
    }
  }
  SLUICE_RETURN_IF_ERROR(out.finish());
  const bool counted = request.speculator == nullptr || result.finish == FinishReason::kInterrupted;
  if (!counted && running && request.speculator->stats().passes > 0) {
    request.speculator->outcome(row, row);  // the draft's rest was not looked at
  }
  // Drafts beyond the end are forgotten.
  if (sequence.tokens().size() > held) sequence.truncate(held);

  Timings& timings = result.timings;
  if (!result.tokens.empty()) {
    timings.decode_ms =
        std::chrono::duration<double, std::milli>(Clock::now() - first_token).count();
  }
  if (sampled > 1 && pass_ms > 0) {
    const double bytes = static_cast<double>(read.weight_bytes + read.kv_bytes);
    timings.tpot_ms = timings.decode_ms / static_cast<double>(sampled - 1);
    timings.tokens_per_s = 1000.0 / timings.tpot_ms;
    timings.bytes_per_token = bytes / static_cast<double>(sampled - 1);
    timings.decode_bandwidth = bytes / (pass_ms / 1000.0);
  }
  return result;
}

}  // namespace sluice

#include "src/engine/batch/batch_runner.h"

#include <algorithm>
#include <utility>

#include "src/engine/batch/native_format.h"
#include "src/engine/batch/openai_format.h"
#include "src/engine/sampling/fields.h"

namespace sluice {
namespace {

// Of finished answers that wait for an earlier one.
constexpr std::size_t kMostHeld = 4096;
constexpr std::size_t kMostHeldBytes = std::size_t{64} << 20;
constexpr std::size_t kMostKeysWarned = 20;

std::string error_line(const BatchItem& item, const std::string& message) {
  return item.form == ItemForm::kNative ? native_error_line(item, message)
                                        : openai_error_line(item, message);
}

// What the item says wins over `defaults`.
SamplingOverrides merged(const SamplingOverrides& defaults, const SamplingOverrides& item) {
  SamplingOverrides all = defaults;
  for (const SamplingField& field : sampling_fields()) {
    if (const std::optional<double> value = field.get(item)) field.set(all, *value);
  }
  if (item.seed) all.seed = item.seed;
  all.logit_bias.insert(all.logit_bias.end(), item.logit_bias.begin(), item.logit_bias.end());
  return all;
}

ItemLatency latency_of(const Finished& finished) {
  const GenerateResult& result = *finished.result;
  ItemLatency latency;
  latency.queue_ms = finished.queue_ms;
  latency.ttft_ms = result.timings.ttft_ms;
  latency.tpot_ms = result.timings.tpot_ms;
  latency.end_ms = finished.queue_ms + result.timings.ttft_ms + result.timings.decode_ms;
  latency.prompt_tokens = result.prompt_tokens;
  latency.tokens = result.tokens.size();
  return latency;
}

}  // namespace

BatchRunner::BatchRunner(Scheduler& scheduler, ItemReader& reader, const PromptMaker& prompts,
                         const ResultContext& context, BatchOptions options, BatchEvents events)
    : scheduler_(scheduler),
      reader_(reader),
      prompts_(prompts),
      context_(context),
      options_(std::move(options)),
      events_(std::move(events)) {}

Status BatchRunner::run(const std::atomic<bool>* cancel) {
  for (;;) {
    SLUICE_RETURN_IF_ERROR(take_items(cancel));
    if (scheduler_.idle()) {
      if (end_) return {};
      continue;
    }
    SLUICE_ASSIGN_OR_RETURN(const std::vector<Finished> finished, scheduler_.step(cancel));
    for (const Finished& each : finished) SLUICE_RETURN_IF_ERROR(answer(each));
    if (events_.on_step) events_.on_step();
  }
}

bool BatchRunner::has_room() const {
  return scheduler_.stats().waiting < options_.queue && held_.size() < kMostHeld &&
         held_bytes_ < kMostHeldBytes;
}

Status BatchRunner::take_items(const std::atomic<bool>* cancel) {
  while (!end_ && has_room()) {
    BatchItem item;
    // A slow writer at the other end of a pipe must not hold up what runs.
    SLUICE_ASSIGN_OR_RETURN(const LineReader::State state,
                            reader_.next(item, scheduler_.idle(), cancel));
    if (state == LineReader::State::kNotYet) return {};
    if (state == LineReader::State::kEnd) {
      end_ = true;
      return {};
    }
    SLUICE_RETURN_IF_ERROR(take(std::move(item)));
  }
  return {};
}

Status BatchRunner::take(BatchItem item) {
  if (options_.answers != nullptr) {
    const auto known = options_.answers->find(item.id);
    if (known != options_.answers->end() && !(known->second.error && options_.retry_errors)) {
      ++counts_.skipped;
      counts_.skipped_errors += known->second.error ? 1 : 0;
      return {};
    }
  }
  const std::uint64_t place = places_++;
  if (!item.error.empty()) return fail(item, place, item.error);
  warn_of_keys(item);
  Result<GenerateRequest> request = make_request(item);
  if (!request.ok()) return fail(item, place, request.error().message);
  prefix_advice_.add(request->prompt);
  const Ticket ticket = scheduler_.submit(std::move(*request));
  running_[ticket] = {std::move(item), place};
  return {};
}

Result<GenerateRequest> BatchRunner::make_request(BatchItem& item) {
  const ItemDefaults& defaults = options_.defaults;
  SLUICE_ASSIGN_OR_RETURN(PromptMaker::Prompt prompt, prompts_.make(item));
  if (prompt.double_bos) {
    warn_once("bos", fmt::format("the prompt of line {} begins with BOS twice: one is added, so "
                                 "leave out the one in the text",
                                 item.line));
  }
  if (prompt.plain && item.messages) {
    warn_once("plain", fmt::format("the model has no chat template: conversations go to it as "
                                   "plain 'User:' and 'Assistant:' lines (first on line {})",
                                   item.line));
  }
  if (prompt.no_prefix) {
    warn_once("prefix", fmt::format("--prefix-file is a text: prompts of token ids stay without "
                                    "it (first on line {})",
                                    item.line));
  }
  SLUICE_ASSIGN_OR_RETURN(
      const ResolvedSampling sampling,
      resolve_sampling(merged(defaults.sampling, item.sampling), defaults.file_sampling));
  item.logprobs = item.logprobs.value_or(defaults.logprobs);
  item.want_tokens = item.want_tokens.value_or(defaults.want_tokens);

  GenerateRequest request;
  request.prompt = std::move(prompt.ids);
  request.max_tokens = item.max_tokens.value_or(defaults.max_tokens);
  request.sampling = sampling.params;
  // By the id, so that an item draws the same wherever and whenever it runs.
  request.stream = random_stream(item.id);
  request.stop = item.stop.value_or(defaults.stop);
  request.stop.insert(request.stop.end(), prompt.stops.begin(), prompt.stops.end());
  request.ignore_eos = item.ignore_eos.value_or(defaults.ignore_eos);
  // The chosen token's own comes with those of at least one alternative.
  request.logprobs = std::max<std::uint32_t>(*item.logprobs, item.want_logprobs ? 1 : 0);
  // What was asked for is what is answered, and nothing else of the item is needed.
  item.prompt.reset();
  item.messages.reset();
  item.prompt_ids.reset();
  item.tools = nullptr;
  return request;
}

Status BatchRunner::answer(const Finished& finished) {
  const auto node = running_.extract(finished.ticket);
  if (node.empty()) return failed("internal error: the scheduler finished an unknown request");
  const Running& running = node.mapped();
  if (!finished.result.ok()) {
    const Error& error = finished.result.error();
    if (error.code == ErrorCode::kInterrupted) return error;
    return fail(running.item, running.place, error.message);
  }
  if (finished.result->finish == FinishReason::kInterrupted) {
    return make_error(ErrorCode::kInterrupted, "interrupted");
  }
  const ItemResult result = {*finished.result, latency_of(finished)};
  if (events_.on_done) events_.on_done(result.latency);
  return hand_out(running.place, {running.item.form == ItemForm::kNative
                                      ? native_line(running.item, result, context_)
                                      : openai_line(running.item, result, context_),
                                  false});
}

Status BatchRunner::fail(const BatchItem& item, std::uint64_t place, const std::string& message) {
  return hand_out(place, {error_line(item, message), true});
}

Status BatchRunner::hand_out(std::uint64_t place, Answer answer) {
  if (!options_.ordered) return write(answer);
  held_bytes_ += answer.line.size();
  held_.emplace(place, std::move(answer));
  while (!held_.empty() && held_.begin()->first == next_place_) {
    SLUICE_RETURN_IF_ERROR(write(held_.begin()->second));
    held_bytes_ -= held_.begin()->second.line.size();
    held_.erase(held_.begin());
    ++next_place_;
  }
  return {};
}

Status BatchRunner::write(const Answer& answer) {
  SLUICE_RETURN_IF_ERROR(events_.on_line(answer.line));
  ++(answer.error ? counts_.failed : counts_.done);
  return {};
}

void BatchRunner::warn_once(const std::string& what, const std::string& line) {
  if (warned_.insert(what).second && events_.on_warning) events_.on_warning(line);
}

void BatchRunner::warn_of_keys(const BatchItem& item) {
  if (!item.model.empty() && item.model != context_.model) {
    warn_once("model", fmt::format("line {} asks for the model '{}'; all items are answered by {}",
                                   item.line, item.model.substr(0, 100), context_.model));
  }
  for (const std::string& key : item.unknown_keys) {
    if (warned_.size() > kMostKeysWarned) {
      warn_once("keys", "more keys are unknown, and not listed");
      break;
    }
    warn_once("key " + key.substr(0, 100),
              fmt::format("unknown key '{}' is ignored (first on line {})", key.substr(0, 100),
                          item.line));
  }
}

}  // namespace sluice

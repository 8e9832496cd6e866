// sluice run: text for one prompt.
#include <algorithm>
#include <chrono>
#include <limits>
#include <optional>

#include "src/cli/command.h"
#include "src/cli/flags.h"
#include "src/cli/load_engine.h"
#include "src/cli/machine_ceilings.h"
#include "src/cli/model_flags.h"
#include "src/cli/prompt.h"
#include "src/cli/run_report.h"
#include "src/cli/sampling_flags.h"
#include "src/cli/speculation_flags.h"
#include "src/engine/generate.h"

namespace sluice::cli {
namespace {

struct RunOptions {
  ModelFlags model;
  PromptFlags prompt;
  SamplingFlags sampling;
  SpeculationFlags speculation;
  std::optional<std::int64_t> predict;
  std::vector<std::string> stop;
  std::optional<std::int64_t> logprobs;
  bool ignore_eos = false;
  bool special = false;
  bool json = false;
  bool stats = false;
  bool quiet = false;
  bool verify = false;
};

void declare_flags(Flags& flags, RunOptions& options) {
  options.prompt.declare(flags);
  options.model.declare_model(flags);
  flags.integer("-n,--predict,--n-predict", "N",
                "most tokens; -1: until done, -2: until the context is full (-1)", -2,
                std::numeric_limits<std::int32_t>::max(), &options.predict);
  flags.texts("-r,--stop,--reverse-prompt", "TEXT", "end in front of this text; may be repeated",
              &options.stop);
  flags.toggle("--json", "print one JSON object at the end instead of streaming", &options.json);
  flags.integer("--logprobs", "N", "with --json: the N likeliest tokens at each place", 1, 1000,
                &options.logprobs);
  flags.toggle("--stats", "timings, memory, bytes moved and settings on stderr", &options.stats);
  options.speculation.declare(flags);
  flags.toggle("--quiet", "only warnings and errors on stderr", &options.quiet);
  flags.section("Sampling (defaults: those of the model file, else these)");
  options.sampling.declare(flags);
  flags.section("Machine");
  options.model.declare_context(flags, "tokens of context (the trained context, at most 4096)");
  options.model.declare_machine(flags);

  flags.section("Rarely used", true);
  flags.toggle("--ignore-eos", "never end by itself: tokens that end a text are banned",
               &options.ignore_eos);
  flags.toggle("--special", "print control tokens too", &options.special);
  options.speculation.declare_rare(flags);
  flags.toggle("--verify",
               "decode again without guesses and compare; exit code 1 if a token differs",
               &options.verify);
  options.model.declare_rare(flags);
  options.sampling.declare_rare(flags);
}

Status check(const RunOptions& options) {
  for (const std::string& stop : options.stop) {
    if (stop.empty()) return make_error(ErrorCode::kUsage, "--stop: the text is empty");
  }
  if (options.logprobs && !options.json) {
    return make_error(ErrorCode::kUsage, "--logprobs is part of the JSON output; add --json");
  }
  return options.speculation.check();
}

// Streams text to stdout and remembers how that went.
class TextPrinter {
 public:
  TextPrinter(Console& console, Progress& progress) : console_(console), progress_(progress) {}

  bool print(std::string_view text) {
    progress_.clear();
    if (!text.empty()) last_ = text.back();
    status_ = console_.print_untrusted(text);
    return status_.ok();
  }
  // A shell's prompt should begin on a line of its own; a file or a pipe gets the text alone.
  void finish() {
    if (console_.stdout_is_terminal() && last_ != '\n' && status_.ok()) {
      status_ = console_.print("\n");
    }
  }
  const Status& status() const { return status_; }

 private:
  Console& console_;
  Progress& progress_;
  Status status_;
  char last_ = '\n';
};

// The progress of the prompt with its rate.
void show_prefill(Progress& progress, std::chrono::steady_clock::time_point began, std::size_t done,
                  std::size_t total) {
  if (done >= total) progress.clear();
  if (done >= total || !progress.due()) return;
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - began;
  progress.update(static_cast<double>(done) / static_cast<double>(total),
                  fmt::format("{} of {} tokens, {:.0f} t/s", done, total,
                              static_cast<double>(done) / seconds.count()));
}

// Decodes the request again, one token a pass.
Status verify(Engine& engine, GenerateRequest request, const GenerateResult& result,
              Console& console) {
  request.speculator = nullptr;
  request.on_text = {};
  request.on_prefill = {};
  SLUICE_ASSIGN_OR_RETURN(const GenerateResult again, generate(engine, request));
  const auto [a, b] = std::mismatch(result.tokens.begin(), result.tokens.end(),
                                    again.tokens.begin(), again.tokens.end());
  const auto at = a - result.tokens.begin();
  if (a == result.tokens.end() && b == again.tokens.end() && again.finish == result.finish) {
    console.info(fmt::format("verified: the same {} tokens without guesses", again.tokens.size()));
    return {};
  }
  const auto id = [](auto it, const auto& tokens) {
    return it == tokens.end() ? std::string("the end") : std::to_string(*it);
  };
  return failed(
      "--verify: token {} is {} with guesses and {} without; this is a fault of the program", at,
      id(a, result.tokens), id(b, again.tokens));
}

// Why the text ends where it does, when that is not the model's wish.
void say_finish(const GenerateResult& result, const GenerateRequest& request, const Engine& engine,
                Console& console) {
  if (result.finish == FinishReason::kLength) {
    console.info(fmt::format("cut after {} tokens (-n)", result.tokens.size()));
  } else if (result.finish == FinishReason::kContext) {
    console.info(request.max_tokens == -2
                     ? fmt::format("the context of {} tokens is full, as asked", engine.context())
                     : fmt::format("cut: the context of {} tokens is full (-c)", engine.context()));
  }
}

}  // namespace

Status run_command(std::span<const std::string> args, Console& console) {
  RunOptions options;
  Flags flags("run", "run [-m MODEL] [-p TEXT | -f FILE | -] [FLAGS]",
              "Generates text for one prompt and streams it to stdout. A piped stdin is a prompt "
              "if none is given.");
  declare_flags(flags, options);
  SLUICE_ASSIGN_OR_RETURN(const Flags::Outcome outcome, flags.parse(args));
  if (!outcome.help.empty()) return console.print(outcome.help);
  SLUICE_RETURN_IF_ERROR(check(options));
  console.set_quiet(options.quiet);
  SLUICE_RETURN_IF_ERROR(options.prompt.read(console));
  SLUICE_ASSIGN_OR_RETURN(const std::string path, options.model.path(console));

  Progress progress(console);
  SLUICE_ASSIGN_OR_RETURN(
      const std::unique_ptr<Engine> engine,
      load_engine(path, options.model.engine_options(console, progress), console, progress));
  SLUICE_ASSIGN_OR_RETURN(
      const ResolvedSampling sampling,
      resolve_sampling(options.sampling.overrides, read_file_sampling(engine->file())));
  for (const std::string& note : sampling.notes) console.warning(note);
  if (options.sampling.say_seed) console.info(fmt::format("seed {}", sampling.params.seed));
  SLUICE_ASSIGN_OR_RETURN(const PromptFlags::Prompt prompt,
                          options.prompt.encode(*engine, console));

  SLUICE_ASSIGN_OR_RETURN(const Speculation speculation,
                          options.speculation.load(*engine, options.model, console, progress));

  GenerateRequest request;
  request.speculator = speculation.speculator.get();
  request.prompt = prompt.ids;
  request.max_tokens = options.predict.value_or(-1);
  request.sampling = sampling.params;
  request.stop = options.stop;
  request.ignore_eos = options.ignore_eos;
  request.logprobs = static_cast<std::uint32_t>(options.logprobs.value_or(0));
  request.show_special = options.special;
  request.cancel = &console.cancel();
  TextPrinter printer(console, progress);
  if (!options.json) {
    request.on_text = [&printer](std::string_view text) { return printer.print(text); };
  }
  progress.begin("reading the prompt");
  const auto began = std::chrono::steady_clock::now();
  request.on_prefill = [&](std::size_t done, std::size_t total) {
    show_prefill(progress, began, done, total);
  };
  Result<GenerateResult> generated = generate(*engine, request);
  progress.clear();
  printer.finish();
  if (!printer.status().ok()) return printer.status();

  GenerateResult result;
  if (generated.ok()) {
    result = std::move(*generated);
  } else if (generated.error().code == ErrorCode::kInterrupted) {  // while reading the prompt
    result.finish = FinishReason::kInterrupted;
  } else {
    return generated.error();
  }
  double bandwidth = 0;  // of this machine's memory; of a GPU's nothing is known
  const bool wanted = options.json || options.stats;
  if (result.finish != FinishReason::kInterrupted && wanted && !engine->info().on_gpu) {
    bandwidth = measure_read_bandwidth(options.model.threads(), console.cancel());
  }
  const RunReport report = {*engine,
                            sampling,
                            prompt,
                            result,
                            speculation.speculator.get(),
                            speculation.draft.get(),
                            options.model.kv,
                            bandwidth,
                            options.logprobs.has_value()};
  if (options.json) SLUICE_RETURN_IF_ERROR(console.print(run_json(report)));
  say_finish(result, request, *engine, console);
  if (options.stats) console.note(run_stats(report));
  if (options.verify && result.finish != FinishReason::kInterrupted) {
    SLUICE_RETURN_IF_ERROR(verify(*engine, request, result, console));
  }
  if (console.cancel()) return make_error(ErrorCode::kInterrupted, "interrupted");
  return {};
}

}  // namespace sluice::cli

// sluice batch: answers for a file of prompts.
#include <algorithm>
#include <chrono>
#include <ctime>
#include <memory>

#include "src/cli/batch/batch_options.h"
#include "src/cli/batch/batch_progress.h"
#include "src/cli/batch/batch_report.h"
#include "src/cli/command.h"
#include "src/cli/load_engine.h"
#include "src/engine/batch/batch_runner.h"
#include "src/engine/batch/run_file.h"
#include "src/engine/model_fingerprint.h"
#include "src/engine/sampling/resolve.h"
#include "src/engine/scheduler/auto_slots.h"
#include "src/gguf/describe.h"
#include "src/text/utf8.h"

namespace sluice::cli {
namespace {

constexpr std::uint32_t kMostAutoSlots = 32;
constexpr std::uint64_t kDefaultSeed = 0;

std::string model_name(const Engine& engine) {
  return engine.spec().name.empty() ? engine.file().name() : engine.spec().name;
}

// As asked for, or by measured passes.
Result<std::uint32_t> pick_slots(const BatchCommandOptions& options, Engine& engine,
                                 bool nothing_left, Console& console) {
  if (options.slots) return *options.slots;
  if (nothing_left) return 1;
  SLUICE_ASSIGN_OR_RETURN(const SlotChoice choice,
                          choose_slots(engine, kMostAutoSlots, &console.cancel()));
  std::string measured;
  for (const SlotChoice::Measured& each : choice.measured) {
    measured += fmt::format("{}{} in {:.1f} ms", measured.empty() ? "" : ", ", each.rows, each.ms);
  }
  console.info(
      fmt::format("{} items at a time (passes of {}); --slots N sets it", choice.slots, measured));
  return choice.slots;
}

EngineOptions engine_options(const BatchCommandOptions& options, Console& console,
                             Progress& progress) {
  EngineOptions engine = options.model.engine_options(console, progress);
  engine.sequences = options.slots.value_or(kMostAutoSlots);
  // Each sequence wants logits, and guesses want more of them.
  engine.max_logits = std::max(2 * engine.sequences, engine.max_logits);
  if (options.model.prefill_chunk && engine.prefill_chunk < engine.max_logits) {
    console.warning(fmt::format(
        "--prefill-chunk {}: passes of so many sequences need room for {} rows, which is used; "
        "--step-tokens N makes prompt chunks smaller",
        engine.prefill_chunk, engine.max_logits));
  }
  engine.prefill_chunk = std::max(engine.prefill_chunk, engine.max_logits);
  return engine;
}

std::tm local_time(std::int64_t unix_time) {
  const auto time = static_cast<std::time_t>(unix_time);
  std::tm local{};
  localtime_r(&time, &local);
  return local;
}

// Where the answers go: a file that is gone on with, or stdout.
struct Destination {
  std::unique_ptr<BatchOutput> file;  // null: stdout

  static Result<Destination> open(const BatchCommandOptions& options, Console& console) {
    Destination destination;
    if (options.to_stdout()) return destination;
    // Only a batch has such a file beside it.
    SLUICE_ASSIGN_OR_RETURN(const std::optional<RunFile> before,
                            RunFile::read(RunFile::path_for(*options.output)));
    SLUICE_ASSIGN_OR_RETURN(destination.file, BatchOutput::open(*options.output, before.has_value(),
                                                                &console.cancel()));
    if (!destination.file->locked()) {
      console.warning(
          "the file system of the output has no locks: see to it that no second "
          "process writes there");
    }
    if (destination.file->torn_bytes() > 0) {
      console.info(fmt::format("dropped a last line of {} bytes that was cut short",
                               destination.file->torn_bytes()));
    }
    return destination;
  }
};

Error refused(const std::string& output, const std::vector<std::string>& lines) {
  std::string list;
  for (std::size_t i = 0; i < std::min<std::size_t>(lines.size(), 5); ++i) {
    list += fmt::format("{}{}", i == 0 ? "" : "; ", lines[i]);
  }
  if (lines.size() > 5) list += fmt::format("; and {} more", lines.size() - 5);
  return make_error(ErrorCode::kUsage,
                    "'{}' was begun with other settings: {}. Give the same ones, or another output",
                    output, list);
}

// A changed input is allowed (more items, a mended line) and told.
Status compare_input(const BatchCommandOptions& options, const RunFile& before, Console& console) {
  if (!before.input) return {};
  SLUICE_ASSIGN_OR_RETURN(const std::optional<InputSummary> now,
                          summarize_input(*options.input, before.input->bytes, &console.cancel()));
  if (now && now->hashed == before.input->bytes && now->hash == before.input->hash) return {};
  console.warning(
      "the input is not what the output was begun with: items with an answer keep it, by their "
      "ids");
  return {};
}

// Finds out whether an output is begun or gone on with, and by what seed and clock.
Result<RunFile> begin_or_resume(const BatchCommandOptions& options, const Destination& destination,
                                const std::optional<InputSummary>& input, const Engine& engine,
                                Console& console) {
  RunFile run;
  run.settings = options.settings(engine.context());
  run.settings["model"] =
      fmt::format("{} ({:016x})", model_name(engine), model_fingerprint(engine.file()));
  // A GPU adds up in another order than the CPU, so answers may differ between them.
  if (engine.info().on_gpu)
    run.settings["the GPU (--device, --gpu-layers)"] = engine.info().placement;
  run.began = static_cast<std::int64_t>(std::time(nullptr));
  run.seed = options.sampling.overrides.seed.value_or(kDefaultSeed);
  if (options.sampling.say_seed) {
    SLUICE_ASSIGN_OR_RETURN(run.seed, pick_seed());
  }
  run.input = input;
  if (destination.file == nullptr) return run;

  const std::string path = RunFile::path_for(*options.output);
  if (destination.file->empty()) {  // whatever the file says, no answer depends on it
    SLUICE_RETURN_IF_ERROR(run.write(path));
    return run;
  }
  SLUICE_ASSIGN_OR_RETURN(const std::optional<RunFile> before, RunFile::read(path));
  if (!before) {
    return make_error(
        ErrorCode::kUsage,
        "'{}' has answers, but '{}', which says what they were made with, is missing; "
        "give another output",
        *options.output, path);
  }
  const std::vector<std::string> changes = differences(before->settings, run.settings);
  if (!changes.empty()) return refused(*options.output, changes);
  SLUICE_RETURN_IF_ERROR(compare_input(options, *before, console));
  console.info(
      fmt::format("going on: {} answers are there already", destination.file->answers().size()));
  return *before;
}

Result<ChatFormat> load_format(const BatchCommandOptions& options, const Engine& engine) {
  if (!options.template_file) return ChatFormat::load(engine.file(), engine.tokenizer());
  Result<ChatFormat> format = ChatFormat::from_source(options.template_text, engine.tokenizer());
  if (format.ok()) return format;
  return bad_input("'{}': {}", *options.template_file, format.error().message);
}

ItemDefaults item_defaults(const BatchCommandOptions& options, const Engine& engine,
                           std::uint64_t seed) {
  ItemDefaults defaults;
  defaults.sampling = options.sampling.overrides;
  defaults.sampling.seed = seed;
  defaults.file_sampling = read_file_sampling(engine.file());
  defaults.max_tokens = options.predict.value_or(-1);
  defaults.stop = options.stop;
  defaults.logprobs = static_cast<std::uint32_t>(options.logprobs.value_or(0));
  defaults.want_tokens = options.tokens;
  defaults.ignore_eos = options.ignore_eos;
  return defaults;
}

SchedulerOptions scheduler_options(const BatchCommandOptions& options,
                                   const Speculation& speculation, std::uint32_t slots) {
  SchedulerOptions scheduler;
  scheduler.slots = slots;
  scheduler.drafters = speculation.drafters;
  scheduler.speculation = speculation.options;
  scheduler.step_tokens = static_cast<std::uint32_t>(options.step_tokens.value_or(0));
  scheduler.policy = options.policy;
  scheduler.continuous = !options.run_static;
  scheduler.chunked_prefill = !options.no_chunking;
  scheduler.share_prefixes = !options.no_prefix_cache;
  return scheduler;
}

void say_prefix_advice(const PrefixAdvice& advice, const Tokenizer& tokenizer, Console& console) {
  const std::optional<PrefixAdvice::Advice> found = advice.advice();
  if (!found) return;
  console.info(fmt::format(
      "prompts differ from token {}, '{}', and have much in common behind it; moving that to the "
      "end "
      "would save {:.0f}% of prefill",
      found->differ_from, printable(replace_invalid_utf8(tokenizer.decode(found->different)), 60),
      100 * found->could_save));
}

// A text in front of all prompts that leaves no room for any is one error, not one for each item.
Status check_prefix(const BatchCommandOptions& options, const Engine& engine) {
  if (options.prefix.empty()) return {};
  std::size_t tokens = engine.tokenizer().fewest_tokens(options.prefix.size());
  if (tokens < engine.context()) {
    SLUICE_ASSIGN_OR_RETURN(const auto ids, engine.tokenizer().encode(options.prefix, {}));
    tokens = ids.size();
  }
  if (tokens < engine.context()) return {};
  return make_error(
      ErrorCode::kUsage, "--prefix-file: '{}' has {} tokens or more, the context holds {}; {}",
      *options.prefix_file, tokens, engine.context(), engine.advice_for_context(tokens + 128));
}

// What the exit code and the last line tell.
Status outcome(const Status& ran, const BatchCounts& counts, bool any_lines,
               const BatchCommandOptions& options, Console& console) {
  const char* again = options.to_stdout() ? "" : "; the same command goes on from here";
  if (!ran.ok()) {
    if (ran.error().code == ErrorCode::kInterrupted) {
      console.info(fmt::format("stopped after {} answers{}", counts.settled(), again));
    }
    return ran;
  }
  // Most likely the program died that should have written it.
  if (!any_lines && *options.input == "-") return bad_input("standard input has no items");
  if (counts.settled() == 0) {
    console.warning(any_lines ? "no item of the input belongs to this shard"
                              : "the input has no items");
  }
  const std::uint64_t errors = counts.failed + counts.skipped_errors;
  if (errors == 0) return {};
  std::string earlier;
  if (counts.skipped_errors > 0) {
    earlier = fmt::format(" ({} of them in an earlier run: --retry-errors)", counts.skipped_errors);
  }
  return failed("{} of {} items failed{}; their answers say why", errors, counts.settled(),
                earlier);
}

}  // namespace

Status batch_command(std::span<const std::string> args, Console& console) {
  BatchCommandOptions options;
  Flags flags("batch", "batch -i IN.jsonl -o OUT.jsonl [-m MODEL] [FLAGS]",
              "Answers a file of prompts (our format, OpenAI's batch format, or plain lines). "
              "Stopped or killed, the same command goes on.");
  options.declare(flags);
  SLUICE_ASSIGN_OR_RETURN(const Flags::Outcome parsed, flags.parse(args));
  if (!parsed.help.empty()) return console.print(parsed.help);
  SLUICE_RETURN_IF_ERROR(options.check());
  console.set_quiet(options.quiet);
  SLUICE_RETURN_IF_ERROR(options.read_files(console));
  SLUICE_ASSIGN_OR_RETURN(const std::string path, options.model.path(console));

  SLUICE_ASSIGN_OR_RETURN(LineReader lines,
                          LineReader::open(*options.input, ItemReader::kMostLineBytes));
  SLUICE_ASSIGN_OR_RETURN(const std::optional<InputSummary> input,
                          summarize_input(*options.input, ~std::uint64_t{0}, &console.cancel()));
  SLUICE_ASSIGN_OR_RETURN(const Destination destination, Destination::open(options, console));

  Progress loading(console);
  SLUICE_ASSIGN_OR_RETURN(
      const std::unique_ptr<Engine> engine,
      load_engine(path, engine_options(options, console, loading), console, loading));
  SLUICE_ASSIGN_OR_RETURN(const RunFile run,
                          begin_or_resume(options, destination, input, *engine, console));
  if (options.sampling.say_seed) console.info(fmt::format("seed {}", run.seed));
  SLUICE_ASSIGN_OR_RETURN(ChatFormat format, load_format(options, *engine));
  if (options.system && format.plain()) {
    console.warning(
        "the model has no chat template: with --system prompts go to it as plain "
        "'User:' and 'Assistant:' lines");
  }
  SLUICE_ASSIGN_OR_RETURN(const PromptMaker prompts,
                          PromptMaker::create(engine->tokenizer(), std::move(format),
                                              {options.system, options.prefix, options.raw,
                                               local_time(run.began), engine->context()}));

  SLUICE_RETURN_IF_ERROR(check_prefix(options, *engine));

  BatchOptions batch;
  batch.defaults = item_defaults(options, *engine, run.seed);
  SLUICE_ASSIGN_OR_RETURN(const ResolvedSampling sampling,
                          resolve_sampling(batch.defaults.sampling, batch.defaults.file_sampling));
  for (const std::string& note : sampling.notes) console.warning(note);
  const bool nothing_left = input && destination.file != nullptr && !options.retry_errors &&
                            options.shard.count == 1 &&
                            destination.file->answers().size() >= input->lines;
  SLUICE_ASSIGN_OR_RETURN(const std::uint32_t slots,
                          pick_slots(options, *engine, nothing_left, console));
  SLUICE_ASSIGN_OR_RETURN(
      const Speculation speculation,
      options.speculation.load(*engine, options.model, console, loading, slots));
  batch.ordered = options.ordered;
  batch.retry_errors = options.retry_errors;
  batch.queue = 2 * slots;
  if (destination.file != nullptr) batch.answers = &destination.file->answers();
  if (options.ordered && options.retry_errors) {
    console.warning("--ordered: answers of items that run again stand at the end");
  }

  Scheduler scheduler(*engine, scheduler_options(options, speculation, slots));
  if (!scheduler.note().empty()) console.warning(scheduler.note());
  ItemReader reader(std::move(lines), {options.lines, options.shard});
  const ResultContext context = {engine->tokenizer(), model_name(*engine), run.began};
  LatencyStats latency(options.goal);
  Timeline timeline;
  std::optional<std::uint64_t> total;
  if (input) total = (input->lines + options.shard.count - 1) / options.shard.count;
  BatchProgress progress(console, total);
  const auto began = std::chrono::steady_clock::now();
  const auto seconds = [began] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  };

  const BatchRunner* counting = nullptr;
  BatchEvents events;
  events.on_line = [&](std::string_view line) {
    return destination.file != nullptr ? destination.file->write_line(line) : console.print(line);
  };
  events.on_done = [&](const ItemLatency& item) {
    latency.add(item);
    timeline.item(seconds(), item);
  };
  events.on_warning = [&](const std::string& line) {
    progress.clear();
    console.warning(line);
  };
  events.on_step = [&] {
    timeline.step(seconds(), scheduler.stats());
    progress.update(counting->counts(), scheduler.stats());
  };
  BatchRunner runner(scheduler, reader, prompts, context, std::move(batch), std::move(events));
  counting = &runner;

  Status ran = runner.run(&console.cancel());
  progress.clear();
  if (destination.file != nullptr) {
    const Status closed = destination.file->close();
    if (ran.ok()) ran = closed;
  }
  if (reader.repaired() > 0) {
    console.warning(
        fmt::format("{} lines held bytes that are not UTF-8: read as U+FFFD", reader.repaired()));
  }
  const BatchReport report = {model_name(*engine),
                              engine->backend().description(),
                              *options.input,
                              *options.output,
                              slots,
                              engine->kv().block_tokens(),
                              ran.ok(),
                              seconds(),
                              runner.counts(),
                              scheduler.stats(),
                              latency,
                              timeline};
  if (!options.quiet) console.note(batch_summary(report));
  say_prefix_advice(runner.prefix_advice(), engine->tokenizer(), console);
  for (const std::string& file : options.reports) {
    const Status written = write_batch_report(file, report);
    if (ran.ok()) ran = written;
  }
  return outcome(ran, runner.counts(), reader.lines_read() > 0, options, console);
}

}  // namespace sluice::cli

// sluice perplexity: how well a model predicts a text, and how far a variant is from a reference.
#include <chrono>
#include <filesystem>
#include <limits>
#include <optional>

#include "src/cli/command.h"
#include "src/cli/flags.h"
#include "src/cli/input.h"
#include "src/cli/interrupt.h"
#include "src/cli/json.h"
#include "src/cli/load_engine.h"
#include "src/cli/model_flags.h"
#include "src/cli/numbers.h"
#include "src/cli/reference_file.h"
#include "src/engine/score.h"

namespace sluice::cli {
namespace {

constexpr std::uint32_t kDefaultWindow = 512;

struct PerplexityOptions {
  ModelFlags model;
  std::optional<std::string> file;
  std::optional<std::string> reference;
  std::optional<std::int64_t> first_tokens;
  bool json = false;
  bool quiet = false;
};

void show_progress(Progress& progress, std::uint64_t done, std::uint64_t total, double running) {
  if (!progress.due()) return;
  progress.update(static_cast<double>(done) / static_cast<double>(total),
                  fmt::format("{} of {} tokens, perplexity {:.4f}", done, total, running));
}

// Specials as the model wants them, control tokens in the text as plain text.
Result<std::vector<std::int32_t>> encode(const Engine& engine, std::string_view text,
                                         std::optional<std::int64_t> first_tokens) {
  const ExitOnInterrupt nothing_to_lose;
  SLUICE_ASSIGN_OR_RETURN(std::vector<std::int32_t> tokens,
                          engine.tokenizer().encode(text, {true, false}));
  if (first_tokens && static_cast<std::uint64_t>(*first_tokens) < tokens.size()) {
    tokens.resize(static_cast<std::size_t>(*first_tokens));
  }
  return tokens;
}

Json score_to_json(const Score& score, std::uint32_t window, std::size_t text_tokens,
                   const std::string& line) {
  Json json;
  json["perplexity"] = score.perplexity;
  json["error"] = score.perplexity_error;
  json["tokens"] = score.tokens;
  json["mean_nll"] = score.mean_nll;
  json["text_tokens"] = text_tokens;
  json["window"] = window;
  json["seconds"] = score.seconds;
  json["line"] = line;
  return json;
}

Json comparison_to_json(const Comparison& comparison) {
  const auto with_error = [](const MeanAndError& value) {
    Json json;
    json["mean"] = value.mean();
    json["error"] = value.error();
    return json;
  };
  Json json;
  json["kl_divergence"] = with_error(comparison.kl);
  json["same_top"] = with_error(comparison.same_top);
  json["reference_perplexity"] = comparison.reference_perplexity();
  json["delta_nll"] = with_error(comparison.delta_nll);
  json["perplexity_ratio"] = comparison.perplexity_ratio();
  json["least_mass"] = comparison.least_mass;
  return json;
}

std::string describe_comparison(const Comparison& comparison) {
  return fmt::format(
      "KL divergence: {:.6f} +- {:.6f} nats per token\n"
      "same top token: {:.3f}% +- {:.3f}%\n"
      "perplexity against the reference's {:.4f}: {:+.4f}% +- {:.4f}%\n",
      comparison.kl.mean(), comparison.kl.error(), 100 * comparison.same_top.mean(),
      100 * comparison.same_top.error(), comparison.reference_perplexity(),
      100 * (comparison.perplexity_ratio() - 1),
      100 * comparison.perplexity_ratio() * comparison.delta_nll.error());
}

}  // namespace

Status perplexity_command(std::span<const std::string> args, Console& console) {
  PerplexityOptions options;
  Flags flags("perplexity", "perplexity [-m MODEL] -f FILE [-c N] [--reference FILE] [--json]",
              "Measures how well a model predicts a text. The text is cut into windows of N tokens "
              "(a last partial one is left out), each begins with BOS where the model wants one, "
              "and the second half of each is scored. Ends with a line \"perplexity: P +- E over N "
              "tokens\".");
  options.model.declare_model(flags);
  flags.text("-f,--file", "FILE", "the text, as it is; -: stdin", &options.file);
  options.model.declare_context(flags, "tokens of a window (512)");
  flags.text("--reference", "FILE",
             "save the predictions here; if the file exists, compare with it: KL divergence, same "
             "top token, change of perplexity",
             &options.reference);
  flags.integer("--first-tokens", "N", "score only the text's first N tokens", 1,
                std::numeric_limits<std::int64_t>::max(), &options.first_tokens);
  flags.toggle("--json", "print one JSON object", &options.json);
  flags.toggle("--quiet", "only warnings and errors on stderr", &options.quiet);
  options.model.declare_machine(flags);
  flags.section("Rarely used", true);
  options.model.declare_rare(flags);
  SLUICE_ASSIGN_OR_RETURN(const Flags::Outcome outcome, flags.parse(args));
  if (!outcome.help.empty()) return console.print(outcome.help);
  console.set_quiet(options.quiet);
  if (!options.file) {
    return make_error(ErrorCode::kUsage, "perplexity wants a text: -f FILE");
  }
  SLUICE_ASSIGN_OR_RETURN(const std::string text,
                          read_file_or_stdin(*options.file, console.cancel()));
  warn_of_invalid_utf8(text, "the text", console);
  SLUICE_ASSIGN_OR_RETURN(const std::string path, options.model.path(console));

  Progress progress(console);
  if (!options.model.context) options.model.context = kDefaultWindow;
  EngineOptions engine_options = options.model.engine_options(console, progress);
  engine_options.max_logits = 64;  // rows of a pass; more would take memory without being faster
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine,
                          load_engine(path, engine_options, console, progress));
  SLUICE_ASSIGN_OR_RETURN(const std::vector<std::int32_t> tokens,
                          encode(*engine, text, options.first_tokens));

  ScoreOptions score_options;
  score_options.window = engine->context();
  score_options.skip = score_options.window / 2;
  score_options.cancel = &console.cancel();
  score_options.on_progress = [&progress](std::uint64_t done, std::uint64_t total, double running) {
    show_progress(progress, done, total, running);
  };

  // The reference: written, or read and compared with.
  const ReferenceHeader header = {
      static_cast<std::uint32_t>(engine->tokenizer().vocab_size()), score_options.window,
      score_options.skip,
      std::vector<std::int32_t>(
          tokens.begin(),
          tokens.end() - static_cast<std::ptrdiff_t>(tokens.size() % score_options.window))};
  std::optional<ReferenceWriter> writer;
  std::optional<ReferenceReader> reader;
  std::error_code ignored;
  if (options.reference && std::filesystem::exists(*options.reference, ignored)) {
    SLUICE_ASSIGN_OR_RETURN(reader, ReferenceReader::open(*options.reference, header));
  } else if (options.reference) {
    SLUICE_ASSIGN_OR_RETURN(writer, ReferenceWriter::create(*options.reference, header));
  }
  score_options.on_row = [&](std::span<const float> logprobs, std::int32_t next) -> Status {
    // With a large vocabulary the rows of a pass take longer than the pass.
    if (console.cancel()) return make_error(ErrorCode::kInterrupted, "interrupted");
    if (reader) return reader->compare(logprobs, next);
    if (writer) return writer->add(logprobs, next);
    return {};
  };

  progress.begin("scoring");
  const Result<Score> scored = score(*engine, tokens, score_options);
  progress.clear();
  if (!scored.ok()) return scored.error();
  if (writer) {
    SLUICE_RETURN_IF_ERROR(writer->commit());
    console.info(fmt::format("reference saved in {}", *options.reference));
  }

  const std::string line =
      fmt::format("perplexity: {:.4f} +- {:.4f} over {} tokens", scored->perplexity,
                  scored->perplexity_error, scored->tokens);
  if (options.json) {
    Json json = score_to_json(*scored, score_options.window, tokens.size(), line);
    if (reader) json["comparison"] = comparison_to_json(reader->comparison());
    return console.print(json_line(json));
  }
  return console.print((reader ? describe_comparison(reader->comparison()) : "") + line + "\n");
}

}  // namespace sluice::cli

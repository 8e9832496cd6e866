#include "src/cli/batch/batch_options.h"

#include <algorithm>
#include <filesystem>
#include <limits>

#include "src/cli/batch/batch_report.h"
#include "src/cli/input.h"
#include "src/cli/numbers.h"
#include "src/engine/batch/run_file.h"
#include "src/engine/sampling/fields.h"

namespace sluice::cli {
namespace {

constexpr std::int64_t kMostSlots = 4096;
constexpr std::int64_t kMostRows = 1 << 16;

// Tells texts apart without keeping them.
std::string text_mark(const std::string& text) {
  return fmt::format("{} bytes, {:016x}", text.size(), stable_hash(text));
}

Json sampling_settings(const SamplingOverrides& overrides) {
  Json json = Json::object();
  for (const SamplingField& field : sampling_fields()) {
    if (const std::optional<double> value = field.get(overrides)) {
      json[fmt::format("--{}", field.name)] = *value;
    }
  }
  if (overrides.dry_sequence_breakers) {
    std::string all;
    for (const std::string& each : *overrides.dry_sequence_breakers) all += each + '\0';
    json["--dry-sequence-breaker"] = text_mark(all);
  }
  std::string biases;
  for (const LogitBias& bias : overrides.logit_bias) {
    biases += fmt::format("{}{:+} ", bias.token, bias.bias);
  }
  if (!biases.empty()) json["--logit-bias"] = biases;
  return json;
}

}  // namespace

void BatchCommandOptions::declare(Flags& flags) {
  flags.text("-i,--input", "FILE", "prompts, an object a line; -: stdin", &input);
  flags.text("-o,--output", "FILE", "answers; an existing one is gone on with; -: stdout", &output);
  model.declare_model(flags);
  flags.toggle("--lines", "the input is plain text, a prompt a line", &lines);
  flags.text("--system", "TEXT", "system message, where an item has none of its own", &system);
  flags.text("--prefix-file", "FILE", "text in front of every prompt; read once; -: stdin",
             &prefix_file);
  flags.integer("-n,--predict,--n-predict", "N", "most tokens of an answer; -1: until done (-1)",
                -2, std::numeric_limits<std::int32_t>::max(), &predict);
  flags.toggle("--ordered", "answers in the order of the input", &ordered);
  flags.toggle("--retry-errors", "when going on: items answered by an error run again",
               &retry_errors);
  flags.value("--shard", "K/N", "only the K-th of N parts, from 0; by a hash of the ids",
              [this](std::string_view text) -> Status {
                SLUICE_ASSIGN_OR_RETURN(shard, parse_shard(text));
                return {};
              });
  flags.value(
      "--slots", "N", "items at a time, or auto (auto)", [this](std::string_view text) -> Status {
        const std::optional<std::int64_t> number = parse_integer(text);
        if (text == "auto") return {};
        if (!number || *number < 1 || *number > kMostSlots) {
          return make_error(ErrorCode::kUsage, "'{}' is not auto or 1 to {}", text, kMostSlots);
        }
        slots = static_cast<std::uint32_t>(*number);
        return {};
      });
  flags.value("--slo", "GOAL", "ttft=MS,tpot=MS: report what is answered within it",
              [this](std::string_view text) -> Status {
                SLUICE_ASSIGN_OR_RETURN(goal, parse_latency_goal(text));
                return {};
              });
  flags.texts("--report", "FILE", "statistics as .json or .html; may be repeated", &reports);
  flags.section("Sampling (defaults: items, then these, then the model file)");
  sampling.declare(flags, "0");
  flags.section("Machine");
  model.declare_context(flags, "tokens of context of an item (the trained one, at most 4096)");
  model.declare_machine(flags);

  flags.section("Rarely used", true);
  flags.toggle("--quiet", "only warnings and errors on stderr", &quiet);
  flags.toggle("--raw", "no chat template: continue prompts; control tokens in them count", &raw);
  flags.text("--template", "FILE", "a chat template (Jinja) in place of the model's",
             &template_file);
  flags.texts("-r,--stop,--reverse-prompt", "TEXT",
              "end in front of this text; may be repeated; an item's own stops replace them",
              &stop);
  flags.toggle("--ignore-eos", "never end by itself: tokens that end a text are banned",
               &ignore_eos);
  flags.toggle("--tokens", "token ids in the answers", &tokens);
  flags.integer("--logprobs", "N", "the N likeliest tokens at each place in the answers", 1, 1000,
                &logprobs);
  flags.value("--policy", "NAME", "throughput, or latency: small prompt chunks (throughput)",
              [this](std::string_view text) -> Status {
                if (text == "throughput") {
                  policy = SchedulePolicy::kThroughput;
                } else if (text == "latency") {
                  policy = SchedulePolicy::kLatency;
                } else {
                  return make_error(ErrorCode::kUsage, "'{}' is not throughput or latency", text);
                }
                return {};
              });
  flags.integer("--step-tokens", "N",
                "most rows of a pass, but one for each running item (by policy)", 1, kMostRows,
                &step_tokens);
  flags.toggle("--static", "the next group of items waits for the last of this one", &run_static);
  flags.toggle("--no-prefix-cache", "equal beginnings of prompts are run each time",
               &no_prefix_cache);
  flags.toggle("--no-chunking", "a prompt runs whole, and the others wait", &no_chunking);
  speculation.declare(flags);
  speculation.declare_rare(flags);
  model.declare_rare(flags);
  sampling.declare_rare(flags);
}

Status BatchCommandOptions::check_files_differ() const {
  struct Named {
    std::string_view flag;
    std::string path;
  };
  std::vector<Named> read = {{"-i", *input}};
  if (prefix_file) read.push_back({"--prefix-file", *prefix_file});
  if (template_file) read.push_back({"--template", *template_file});
  if (model.file()) read.push_back({"-m", *model.file()});
  if (speculation.draft_file()) read.push_back({"--draft", *speculation.draft_file()});
  for (const std::string& file : speculation.lookup_files()) {
    read.push_back({"--lookup-file", file});
  }
  std::vector<Named> written;
  if (!to_stdout()) {
    written.push_back({"-o", *output});
    written.push_back({"-o (its file of settings)", RunFile::path_for(*output)});
  }
  for (const std::string& report : reports) written.push_back({"--report", report});
  for (std::size_t i = 0; i < written.size(); ++i) {
    const auto clash = [&](const Named& other) {
      std::error_code none;  // files that don't exist yet are compared by their names
      return other.path != "-" && (other.path == written[i].path ||
                                   std::filesystem::equivalent(other.path, written[i].path, none));
    };
    for (const auto& others :
         {read, std::vector(written.begin(), written.begin() + static_cast<long>(i))}) {
      const auto found = std::find_if(others.begin(), others.end(), clash);
      if (found == others.end()) continue;
      return make_error(ErrorCode::kUsage, "{} and {} are the same file, '{}'; give another one",
                        found->flag, written[i].flag, written[i].path);
    }
  }
  return {};
}

Status BatchCommandOptions::check() const {
  const auto usage = [](std::string message) {
    return Error{ErrorCode::kUsage, std::move(message)};
  };
  if (!input) return usage("no input: -i FILE (- for stdin)");
  if (!output) return usage("no output: -o FILE (- for stdout)");
  SLUICE_RETURN_IF_ERROR(check_files_differ());
  if (raw && (system || template_file)) {
    return usage("--raw turns the chat template off, which --system and --template need");
  }
  if (to_stdout() && retry_errors) {
    return usage("--retry-errors is about the answers in a file; -o FILE");
  }
  if (prefix_file && *prefix_file == "-" && *input == "-") {
    return usage("-i and --prefix-file cannot both be stdin");
  }
  for (const std::string& each : stop) {
    if (each.empty()) return usage("--stop: the text is empty");
  }
  for (const std::string& report : reports) {
    const Status status = check_report_path(report);
    if (!status.ok()) return usage("--report: " + status.error().message);
  }
  return speculation.check();
}

Status BatchCommandOptions::read_files(Console& console) {
  if (template_file) {
    SLUICE_ASSIGN_OR_RETURN(template_text, read_file(*template_file, console.cancel()));
  }
  if (prefix_file) {
    SLUICE_ASSIGN_OR_RETURN(prefix, read_file_or_stdin(*prefix_file, console.cancel()));
    warn_of_invalid_utf8(prefix, fmt::format("'{}' (--prefix-file)", *prefix_file), console);
  }
  return {};
}

Json BatchCommandOptions::settings(std::uint32_t context) const {
  Json json;
  json["--ctx-size"] = context;
  json["--kv"] = kv_type_name(model.kv);
  json["--lines"] = lines;
  json["--raw"] = raw;
  json["--system"] = system ? Json(text_mark(*system)) : Json();
  json["--template"] = template_file ? Json(text_mark(template_text)) : Json();
  json["--prefix-file"] = prefix_file ? Json(text_mark(prefix)) : Json();
  json["--predict"] = predict.value_or(-1);
  json["--stop"] = Json();
  if (!stop.empty()) json["--stop"] = stop;
  json["--ignore-eos"] = ignore_eos;
  json["--tokens"] = tokens;
  json["--logprobs"] = logprobs ? Json(*logprobs) : Json();
  json["--ordered"] = ordered;
  json["--shard"] = fmt::format("{}/{}", shard.index, shard.count);
  json["--seed"] = sampling.say_seed ? Json("-1") : Json(sampling.overrides.seed.value_or(0));
  json.update(sampling_settings(sampling.overrides));
  return json;
}

}  // namespace sluice::cli

#include "src/cli/run_report.h"

#include <cmath>

#include "src/cli/json.h"
#include "src/cli/model_flags.h"
#include "src/cli/numbers.h"
#include "src/cli/speculation_flags.h"
#include "src/gguf/describe.h"
#include "src/text/escape.h"

namespace sluice::cli {
namespace {

// Share of the measured bandwidth that decode passes reached; 0: unknown.
double bandwidth_share(const RunReport& report) {
  if (report.bandwidth <= 0) return 0;
  return report.result.timings.decode_bandwidth / report.bandwidth;
}

Json known(double value) { return value > 0 && std::isfinite(value) ? Json(value) : Json(); }

Json logprob(double value) { return std::isfinite(value) ? Json(value) : Json(); }

std::string model_name(const Engine& engine) {
  return engine.spec().name.empty() ? engine.file().name() : engine.spec().name;
}

Json logprobs_to_json(const RunReport& report) {
  const Tokenizer& tokenizer = report.engine.tokenizer();
  Json list = Json::array();
  for (std::size_t i = 0; i < report.result.logprobs.size(); ++i) {
    const TokenLogprobs& entry = report.result.logprobs[i];
    Json json;
    json["token"] = report.result.tokens[i];
    json["logprob"] = logprob(entry.logprob);
    Json top = Json::array();
    for (const auto& [id, value] : entry.top) {
      Json alternative;
      alternative["token"] = id;
      alternative["text"] = json_text(tokenizer.bytes_of(id, true));
      alternative["logprob"] = logprob(value);
      top.push_back(std::move(alternative));
    }
    json["top"] = std::move(top);
    list.push_back(std::move(json));
  }
  return list;
}

std::string row(std::string_view name, std::string_view value) {
  return fmt::format("  {:<12}{}\n", name, value);
}

// A line for each place that settings come from.
std::string describe_sampling(const ResolvedSampling& sampling) {
  std::string text = row("sampling", fmt::format("seed {} ({})", sampling.params.seed,
                                                 setting_source_name(sampling.seed_source)));
  for (const SettingSource source :
       {SettingSource::kFlag, SettingSource::kFile, SettingSource::kBuiltIn}) {
    std::string line;
    for (const SettingRecord& setting : sampling.settings) {
      if (setting.source != source) continue;
      // Files hold 32-bit floats; six digits show what was meant.
      const bool whole = setting.value == std::floor(setting.value);
      line += fmt::format(
          "{} {} {}", line.empty() ? "" : ",", setting.name,
          whole ? fmt::format("{:.0f}", setting.value) : fmt::format("{:.6g}", setting.value));
    }
    if (!line.empty()) text += row("", fmt::format("{}:{}", setting_source_name(source), line));
  }
  return text;
}

}  // namespace

std::string run_json(const RunReport& report) {
  const GenerateResult& result = report.result;
  Json json;
  json["model"] = json_text(model_name(report.engine));
  json["device"] = json_text(report.engine.backend().description());
  json["prompt_tokens"] = report.prompt.ids.size();
  json["tokens"] = result.tokens;
  json["text"] = json_text(result.text);
  json["finish_reason"] = finish_reason_name(result.finish);
  json["stop"] = result.stop_string.empty() ? Json() : Json(json_text(result.stop_string));
  json["seed"] = report.sampling.params.seed;
  Json timings;
  timings["load_ms"] = report.engine.info().load_ms;
  timings["ttft_ms"] = known(result.timings.ttft_ms);
  timings["tpot_ms"] = known(result.timings.tpot_ms);
  timings["tokens_per_s"] = known(result.timings.tokens_per_s);
  timings["bytes_per_token"] = known(result.timings.bytes_per_token);
  timings["bandwidth_share"] = known(bandwidth_share(report));
  json["timings"] = std::move(timings);
  json["speculation"] = speculation_json(report.speculator);
  if (report.want_logprobs) json["logprobs"] = logprobs_to_json(report);
  return json_line(json);
}

std::string run_stats(const RunReport& report) {
  const GenerateResult& result = report.result;
  const Timings& timings = result.timings;
  const LoadInfo& info = report.engine.info();
  std::string text = "sluice: stats\n";
  text += row("model",
              fmt::format("{} ({}, {}), loaded in {:.0f} ms", printable(model_name(report.engine)),
                          printable(report.engine.spec().architecture),
                          format_bytes(report.engine.file().file_bytes()), info.load_ms));
  text += row("device", report.engine.backend().description());
  if (const std::string tuning = report.engine.backend().tuning(); !tuning.empty()) {
    text += row("", "as measured: " + tuning);
  }
  const double prefill_s = timings.prefill_ms / 1000;
  text += row(
      "prompt",
      fmt::format("{} tokens ({}), {:.1f} t/s", report.prompt.ids.size(),
                  prompt_form_name(report.prompt.form),
                  prefill_s > 0 ? static_cast<double>(report.prompt.ids.size()) / prefill_s : 0.0));
  text += row("generated", fmt::format("{} tokens ({}), {:.1f} t/s, {:.2f} ms each, the first "
                                       "after {:.0f} ms",
                                       result.tokens.size(), finish_reason_name(result.finish),
                                       timings.tokens_per_s, timings.tpot_ms, timings.ttft_ms));
  text += row("memory", fmt::format("{} weights, {} KV cache ({}, {} tokens), {} work",
                                    format_bytes(info.memory.weights),
                                    format_bytes(info.memory.kv_cache), kv_type_name(report.kv),
                                    report.engine.context(), format_bytes(info.memory.work)));
  if (report.draft != nullptr) {
    const MemoryPlan& memory = report.draft->info().memory;
    text += row("draft",
                fmt::format("{}, {}: {} weights, {} KV cache, {} work",
                            printable(model_name(*report.draft)),
                            report.draft->backend().description(), format_bytes(memory.weights),
                            format_bytes(memory.kv_cache), format_bytes(memory.work)));
  }
  std::string traffic =
      fmt::format("{} per token, {:.2f} GB/s",
                  format_bytes(static_cast<std::uint64_t>(std::max(0.0, timings.bytes_per_token))),
                  timings.decode_bandwidth / 1e9);
  if (report.bandwidth > 0) {
    traffic += fmt::format(", {:.0f}% of the {:.1f} GB/s measured for reading",
                           100 * bandwidth_share(report), report.bandwidth / 1e9);
  }
  text += row("traffic", traffic);
  text += row("guesses", describe_speculation(report.speculator));
  return text + describe_sampling(report.sampling);
}

}  // namespace sluice::cli

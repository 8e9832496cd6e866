#include "src/cli/serve/serve_bench.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "src/cli/batch/batch_report.h"
#include "src/cli/batch/svg_plot.h"
#include "src/cli/input.h"
#include "src/cli/json.h"
#include "src/cli/load_engine.h"
#include "src/cli/numbers.h"
#include "src/gguf/output_file.h"

namespace sluice::cli {
namespace {

constexpr std::uint32_t kDefaultRequests = 40;
constexpr std::uint32_t kDefaultSlots = 8;
// Of the throughput that is reached when all requests are there from the beginning.
constexpr double kShares[] = {0.25, 0.5, 0.75, 1.0};

SchedulerOptions scheduler_options(const ServePolicy& policy, std::uint32_t slots) {
  SchedulerOptions options;
  options.slots = slots;
  options.continuous = policy.continuous;
  options.chunked_prefill = policy.chunked_prefill;
  options.share_prefixes = policy.share_prefixes;
  options.policy = policy.chunks;
  return options;
}

std::string rate_text(double rate) {
  return rate > 0 ? fmt::format("{:.2f}", rate) : std::string("at once");
}

std::string table(const std::vector<ReplayResult>& results) {
  std::string text =
      fmt::format("{:<12}{:>9}{:>10}{:>9}{:>10}{:>10}{:>10}{:>9}{:>9}\n", "policy", "arrive/s",
                  "answer/s", "t/s", "TTFT p50", "p90", "p99", "TPOT p50", "p99");
  for (const ReplayResult& each : results) {
    const Percentiles ttft = each.latency.ttft(), tpot = each.latency.tpot();
    text += fmt::format(
        "{:<12}{:>9}{:>10.2f}{:>9.1f}{:>10.0f}{:>9.0f}{:>9.0f}{:>10.1f}{:>9.1f}{:>11.0f}\n",
        each.policy, rate_text(each.rate), each.requests_per_s(), each.tokens_per_s(), ttft.p50,
        ttft.p90, ttft.p99, tpot.p50, tpot.p99, each.longest_gap_ms);
  }
  return text;
}

// The curve as text: a policy a letter, answered requests to the right, TTFT (p90) upwards by
// powers of ten.
std::string curve(const std::vector<ReplayResult>& results) {
  constexpr std::size_t kWidth = 64, kHeight = 12;
  double most = 0, low = 1e30, high = 0;
  for (const ReplayResult& each : results) {
    most = std::max(most, each.requests_per_s());
    low = std::min(low, std::max(each.latency.ttft().p90, 0.1));
    high = std::max(high, each.latency.ttft().p90);
  }
  if (most <= 0 || high <= 0) return {};
  const double bottom = std::floor(std::log10(low)), top = std::ceil(std::log10(high) + 1e-9);
  std::vector<std::string> grid(kHeight, std::string(kWidth, ' '));
  std::string legend;
  for (const ReplayResult& each : results) {
    const auto policies = serve_policies();
    const auto which = std::find_if(policies.begin(), policies.end(),
                                    [&](const auto& policy) { return policy.name == each.policy; });
    const char letter = static_cast<char>('A' + (which - policies.begin()));
    const double up =
        (std::log10(std::max(each.latency.ttft().p90, 0.1)) - bottom) / std::max(top - bottom, 1.0);
    const auto x = static_cast<std::size_t>(each.requests_per_s() / most * (kWidth - 1));
    const auto y = static_cast<std::size_t>(std::clamp(1 - up, 0.0, 1.0) * (kHeight - 1));
    grid[y][x] = letter;
    const std::string name = fmt::format("{} {}", letter, each.policy);
    if (legend.find(name) == std::string::npos) legend += (legend.empty() ? "" : ", ") + name;
  }
  std::string text =
      fmt::format("TTFT p90, ms, against requests answered per second: {}\n", legend);
  for (std::size_t y = 0; y < kHeight; ++y) {
    const double exponent =
        top - (top - bottom) * static_cast<double>(y) / static_cast<double>(kHeight - 1);
    const bool marked = y == 0 || y + 1 == kHeight || y == kHeight / 2;
    text += fmt::format("{:>9} |{}\n", marked ? fmt::format("{:.0f}", std::pow(10, exponent)) : "",
                        grid[y]);
  }
  text += fmt::format("{:>9} +{}\n{:>11}{:>{}.2f}\n", "", std::string(kWidth, '-'), "0", most,
                      static_cast<int>(kWidth));
  return text;
}

Json percentiles_json(const Percentiles& values) {
  if (values.count == 0) return {};
  return {{"p50", values.p50}, {"p90", values.p90}, {"p99", values.p99}};
}

Json to_json(const std::vector<ReplayResult>& results) {
  Json list = Json::array();
  for (const ReplayResult& each : results) {
    Json entry;
    entry["policy"] = each.policy;
    entry["arrivals_per_s"] = each.rate > 0 ? Json(each.rate) : Json();
    entry["requests"] = each.latency.items();
    entry["seconds"] = each.seconds;
    entry["requests_per_s"] = each.requests_per_s();
    entry["tokens_per_s"] = each.tokens_per_s();
    entry["ttft_ms"] = percentiles_json(each.latency.ttft());
    entry["tpot_ms"] = percentiles_json(each.latency.tpot());
    entry["end_to_end_ms"] = percentiles_json(each.latency.end_to_end());
    entry["longest_gap_ms"] = each.longest_gap_ms;
    entry["prompt_tokens"] = each.stats.prompt_tokens;
    entry["shared_tokens"] = each.stats.shared_tokens;
    entry["rows"] = each.stats.rows;
    entry["passes"] = each.stats.passes;
    list.push_back(std::move(entry));
  }
  return Json{{"serve", std::move(list)}};
}

std::string page(const std::vector<ReplayResult>& results) {
  constexpr const char* kColours[] = {"#8a8a8a", "#2563ab", "#c2571a", "#2c7a4b", "#8a3ab0"};
  std::vector<PlotSeries> ttft, tpot;
  const auto policies = serve_policies();
  for (std::size_t i = 0; i < policies.size(); ++i) {
    PlotSeries first{std::string(policies[i].name), kColours[i], {}, false};
    PlotSeries further = first;
    for (const ReplayResult& each : results) {
      if (each.policy != policies[i].name) continue;
      first.points.emplace_back(each.requests_per_s(), each.latency.ttft().p90);
      further.points.emplace_back(each.requests_per_s(), each.latency.tpot().p90);
    }
    if (first.points.empty()) continue;
    std::sort(first.points.begin(), first.points.end());
    std::sort(further.points.begin(), further.points.end());
    ttft.push_back(std::move(first));
    tpot.push_back(std::move(further));
  }
  return "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>sluice bench "
         "--serve</title>\n<style>body { font: 15px system-ui, sans-serif; margin: 2em auto; "
         "max-width: 900px; } svg { width: 100%; background: #fafafa; } pre { overflow-x: auto; }\n"
         ".t { font: 11px system-ui, sans-serif; } .g { stroke: #e5e5e5; }</style></head><body>\n"
         "<h1>Latency against throughput</h1>\n" +
         svg_plot("requests answered per second", "TTFT p90, ms", ttft) + "\n" +
         svg_plot("requests answered per second", "TPOT p90, ms", tpot) + "\n<pre>" +
         table(results) + "</pre>\n</body></html>\n";
}

}  // namespace

void ServeBench::declare(Flags& flags) {
  flags.section("Requests that arrive over time, in place of passes");
  flags.toggle("--serve", "replay arrivals through the scheduler of batch, in real time", &wanted_);
  flags.integer("--requests", "N", "arrivals of chance, a Poisson process (40)", 1, 1000000,
                &requests_);
  flags.value(
      "--rate", "R",
      "arrivals per second, 0: all at once; may be repeated (shares of what it can do)",
      [this](std::string_view text) -> Status {
        const std::optional<double> rate = parse_real(text);
        if (!rate || !(*rate >= 0 && *rate < 1e6)) {
          return make_error(ErrorCode::kUsage, "'{}' is not a number from 0 to 1e6", text);
        }
        rates_.push_back(*rate);
        return {};
      },
      true);
  flags.text("--arrivals", "FILE", "lines {\"at\": s, \"prompt_tokens\": n, \"tokens\": n}",
             &arrivals_);
  flags.value(
      "--policies", "P,P,...", "static, continuous, chunked, prefix, latency (all)",
      [this](std::string_view text) -> Status {
        while (!text.empty()) {
          const std::size_t end = std::min(text.find(','), text.size());
          const std::string_view name = text.substr(0, end);
          text.remove_prefix(std::min(end + 1, text.size()));
          const auto all = serve_policies();
          const auto found = std::find_if(all.begin(), all.end(),
                                          [&](const auto& policy) { return policy.name == name; });
          if (found == all.end()) {
            return make_error(ErrorCode::kUsage,
                              "'{}' is not static, continuous, chunked, prefix or latency", name);
          }
          policies_.push_back(&*found);
        }
        return {};
      });
  flags.integer("--slots", "N", "requests at a time (8)", 1, 4096, &slots_);
  flags.integer("--prefix", "N", "tokens that all prompts begin with (0)", 0, 1 << 20, &prefix_);
  flags.text("--report", "FILE", "a page with plots (.html)", &report_);
}

std::string ServeBench::given() const {
  std::string names;
  const auto add = [&names](bool given, const char* name) {
    if (given) names += (names.empty() ? "" : ", ") + std::string(name);
  };
  add(requests_.has_value(), "--requests");
  add(!rates_.empty(), "--rate");
  add(arrivals_.has_value(), "--arrivals");
  add(!policies_.empty(), "--policies");
  add(slots_.has_value(), "--slots");
  add(prefix_.has_value(), "--prefix");
  add(report_.has_value(), "--report");
  return names;
}

Status ServeBench::check() const {
  if (report_) {
    if (!report_->ends_with(".html")) {
      return make_error(ErrorCode::kUsage, "--report: '{}' does not end in .html", *report_);
    }
    const Status status = check_report_path(*report_);
    if (!status.ok()) return make_error(ErrorCode::kUsage, "--report: {}", status.error().message);
  }
  if (arrivals_ && (!rates_.empty() || requests_)) {
    return make_error(ErrorCode::kUsage,
                      "--arrivals has its own times: leave --rate and "
                      "--requests out");
  }
  return {};
}

Status ServeBench::run(const ModelFlags& model, bool json, Console& console) const {
  SLUICE_RETURN_IF_ERROR(check());
  SLUICE_ASSIGN_OR_RETURN(const std::string path, model.path(console));
  for (const std::string& read : {path, arrivals_.value_or("")}) {
    std::error_code none;  // files that don't exist are not the same
    if (report_ && std::filesystem::equivalent(*report_, read, none)) {
      return make_error(ErrorCode::kUsage, "--report: '{}' is read by this run; give another file",
                        *report_);
    }
  }
  Progress progress(console);
  const auto slots = static_cast<std::uint32_t>(slots_.value_or(kDefaultSlots));
  EngineOptions engine_options = model.engine_options(console, progress);
  engine_options.sequences = slots;
  engine_options.max_logits = slots;
  if (model.prefill_chunk && engine_options.prefill_chunk < slots) {
    console.warning(
        fmt::format("--prefill-chunk {}: a pass of {} sequences needs {} rows, which is used",
                    engine_options.prefill_chunk, slots, slots));
  }
  engine_options.prefill_chunk = std::max(engine_options.prefill_chunk, slots);
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine,
                          load_engine(path, engine_options, console, progress));

  TraceShape shape;
  shape.requests = static_cast<std::uint32_t>(requests_.value_or(kDefaultRequests));
  shape.prefix = static_cast<std::uint32_t>(prefix_.value_or(0));
  if (shape.prefix + 4 > engine->context()) {
    return make_error(ErrorCode::kUsage, "--prefix {} does not fit the context of {} (-c)",
                      shape.prefix, engine->context());
  }
  shape.most_prompt = (engine->context() - shape.prefix) / 2;
  shape.most_tokens = shape.most_prompt;
  std::vector<Arrival> given;
  if (arrivals_) {
    SLUICE_ASSIGN_OR_RETURN(const std::string text, read_file(*arrivals_, console.cancel()));
    SLUICE_ASSIGN_OR_RETURN(given, parse_trace(text, *arrivals_));
    for (const Arrival& arrival : given) {
      const std::uint64_t tokens =
          std::uint64_t{shape.prefix} + arrival.prompt_tokens + arrival.tokens;
      if (tokens <= engine->context()) continue;
      return bad_input("'{}': the request at {} s needs {} tokens, the context holds {}; {}",
                       *arrivals_, arrival.at_s, tokens, engine->context(),
                       engine->advice_for_context(tokens));
    }
  }

  std::vector<const ServePolicy*> policies = policies_;
  if (policies.empty()) {
    for (const ServePolicy& policy : serve_policies()) policies.push_back(&policy);
  }
  std::vector<ReplayResult> results;
  std::string said;
  if (!arrivals_) {  // lengths do not depend on the rate
    const std::vector<Arrival> trace = make_trace(shape);
    const auto cut = std::count_if(trace.begin(), trace.end(), [&shape](const Arrival& each) {
      return each.prompt_tokens == shape.most_prompt || each.tokens == shape.most_tokens;
    });
    if (cut > 0) {
      console.info(fmt::format(
          "{} of {} requests have a prompt or an answer cut to {} tokens, half of the context (-c)",
          cut, trace.size(), shape.most_prompt));
    }
  }
  const auto measure = [&](const ServePolicy& policy, double rate) -> Status {
    shape.rate = rate;
    const std::vector<Arrival> trace = arrivals_ ? given : make_trace(shape);
    progress.begin(fmt::format("{}, {} arrivals/s", policy.name, rate_text(rate)));
    SLUICE_ASSIGN_OR_RETURN(
        ReplayResult result,
        replay(*engine, scheduler_options(policy, slots), trace, shape.prefix, console.cancel(),
               [&](std::size_t done) {
                 if (!progress.due()) return;
                 progress.update(static_cast<double>(done) / static_cast<double>(trace.size()),
                                 fmt::format("{} of {} answered", done, trace.size()));
               }));
    progress.clear();
    if (!result.note.empty() && result.note != said) {
      said = result.note;
      console.warning(said);
    }
    result.policy = std::string(policy.name);
    result.rate = rate;
    results.push_back(std::move(result));
    return {};
  };
  std::vector<double> rates = rates_;
  if (rates.empty() && !arrivals_) {
    // What the best policy can do at most sets the rates.
    SLUICE_RETURN_IF_ERROR(measure(*policies.back(), 0));
    for (const double share : kShares) rates.push_back(share * results.back().requests_per_s());
  }
  if (arrivals_) {
    rates = {static_cast<double>(given.size()) / std::max(given.back().at_s, 1e-3)};
  }
  for (const ServePolicy* policy : policies) {
    for (const double rate : rates) SLUICE_RETURN_IF_ERROR(measure(*policy, rate));
  }
  if (report_) {
    const std::string text = page(results);
    SLUICE_ASSIGN_OR_RETURN(OutputFile file, OutputFile::create(*report_, text.size()));
    SLUICE_RETURN_IF_ERROR(file.write(std::as_bytes(std::span(text))));
    SLUICE_RETURN_IF_ERROR(file.commit());
  }
  if (json) return console.print(json_line(to_json(results)));
  return console.print(table(results) + "\n" + curve(results));
}

}  // namespace sluice::cli

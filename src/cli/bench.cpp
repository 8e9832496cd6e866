// sluice bench: the speed of passes, on random tokens.
#include <algorithm>
#include <chrono>
#include <optional>

#include "src/base/rng.h"
#include "src/cli/command.h"
#include "src/cli/flags.h"
#include "src/cli/json.h"
#include "src/cli/load_engine.h"
#include "src/cli/machine_ceilings.h"
#include "src/cli/model_flags.h"
#include "src/cli/numbers.h"
#include "src/cli/serve/serve_bench.h"

namespace sluice::cli {
namespace {

using Clock = std::chrono::steady_clock;

struct BenchOptions {
  ModelFlags model;
  std::optional<std::int64_t> prompt;
  std::optional<std::int64_t> decode;
  std::optional<std::int64_t> depth;
  std::optional<std::int64_t> repetitions;
  std::vector<std::int32_t> rows = {1, 2, 4, 8, 16};
  bool json = false;
  bool quiet = false;
  bool profile = false;
};

constexpr std::int64_t kMostTokens = std::int64_t{1} << 24;
constexpr std::int32_t kMostRows = 1024;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// A kind of pass: the median time of one, and what one reads and does.
struct PassTime {
  std::uint32_t rows = 1;
  double seconds = 0;
  double bytes = 0;
  double operations = 0;  // multiplications and additions of the weight matrices
  PassProfile profile;    // mean of a pass; of a prompt, the last run's
};

struct BenchResult {
  PassTime prompt;  // all passes of one
  std::uint32_t depth = 0;
  std::uint32_t decoded = 0;
  PassTime step;                 // one decode step
  std::vector<PassTime> passes;  // by rows
  double bandwidth = 0;          // measured, bytes per second
  double arithmetic = 0;         // measured, operations per second
};

// Runs passes of random tokens in a sequence of its own.
class Bench {
 public:
  Bench(Engine& engine, bool profile, const std::atomic<bool>& cancel)
      : engine_(engine), profile_(profile), cancel_(cancel), sequence_(engine.kv().create()) {}
  ~Bench() { engine_.kv().release(sequence_); }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  // Back to `length` tokens; those that some caches must run again to go on are run.
  Status shorten(std::uint32_t length) {
    KvCache& kv = engine_.kv();
    const std::uint32_t held = engine_.backend().resumable_length(kv, sequence_, length);
    kv.truncate(sequence_, held);
    if (held == length) return {};
    SLUICE_ASSIGN_OR_RETURN([[maybe_unused]] const PassTime again, prompt(length - held));
    return {};
  }

  // A prompt of `count` tokens behind what is there.
  Result<PassTime> prompt(std::uint32_t count) {
    std::vector<std::int32_t> tokens;
    for (std::uint32_t i = 0; i < count; ++i) tokens.push_back(random_token());
    std::vector<float> logits(engine_.spec().vocabulary);
    PassProfile profile;
    const Clock::time_point start = Clock::now();
    SLUICE_ASSIGN_OR_RETURN(
        const PassTraffic traffic,
        engine_.prefill(sequence_, tokens, logits, &cancel_, {}, profile_ ? &profile : nullptr));
    PassTime time = pass_time(count, seconds_since(start), traffic);
    time.profile = profile;
    return time;
  }

  // One pass of `rows` rows with logits for each.
  Result<PassTime> pass(std::uint32_t rows) {
    const std::uint32_t length = engine_.kv().length(sequence_);
    std::vector<BatchRow> batch;
    for (std::uint32_t i = 0; i < rows; ++i) {
      batch.push_back({random_token(), length + i, sequence_, true});
    }
    std::vector<float> logits(std::size_t{rows} * engine_.spec().vocabulary);
    PassProfile profile;
    const Clock::time_point start = Clock::now();
    SLUICE_ASSIGN_OR_RETURN(const PassTraffic traffic, engine_.run(batch, logits, &cancel_, {},
                                                                   profile_ ? &profile : nullptr));
    PassTime time = pass_time(rows, seconds_since(start), traffic);
    time.profile = profile;
    return time;
  }

 private:
  static PassTime pass_time(std::uint32_t rows, double seconds, const PassTraffic& traffic) {
    return {rows,
            seconds,
            static_cast<double>(traffic.weight_bytes + traffic.kv_bytes),
            2 * static_cast<double>(traffic.multiply_adds),
            {}};
  }
  std::int32_t random_token() {
    const auto candidates = static_cast<double>(engine_.tokenizer().vocab_size());
    return static_cast<std::int32_t>(uniform(0, 0, drawn_++, 0) * candidates);
  }

  Engine& engine_;
  bool profile_;
  const std::atomic<bool>& cancel_;
  SequenceId sequence_;
  std::uint64_t drawn_ = 0;
};

void add(PassProfile& sum, const PassProfile& profile, double weight) {
  for (std::size_t i = 0; i < kStages; ++i) {
    sum.stage[i].ms += weight * profile.stage[i].ms;
    sum.stage[i].bytes = profile.stage[i].bytes;  // the same each time, but for a token or two
  }
}

// The median over `times` runs of `rows` rows, each at `depth`, after one that warms up.
Result<PassTime> measure_pass(Bench& bench, std::uint32_t rows, std::uint32_t depth, int times) {
  PassTime result;
  PassProfile profile;
  std::vector<double> seconds;
  for (int i = 0; i <= times; ++i) {
    SLUICE_ASSIGN_OR_RETURN(result, bench.pass(rows));
    SLUICE_RETURN_IF_ERROR(bench.shorten(depth));
    if (i == 0) continue;
    seconds.push_back(result.seconds);
    add(profile, result.profile, 1.0 / times);
  }
  result.seconds = median(std::move(seconds));
  result.profile = profile;
  return result;
}

Result<BenchResult> measure(Engine& engine, const BenchOptions& options, Console& console) {
  BenchResult result;
  const auto prompt = static_cast<std::uint32_t>(*options.prompt);
  result.depth = static_cast<std::uint32_t>(*options.depth);
  result.decoded = static_cast<std::uint32_t>(*options.decode);
  const int repetitions = static_cast<int>(*options.repetitions);
  // A machine that others share changes from minute to minute: ceilings are taken before and after
  // each kind of pass, and the highest counts.
  const auto measure_ceilings = [&] {
    if (engine.info().on_gpu) return;  // of a GPU nothing is known here
    const unsigned threads = options.model.threads();
    result.bandwidth =
        std::max(result.bandwidth, measure_read_bandwidth(threads, console.cancel()));
    result.arithmetic =
        std::max(result.arithmetic,
                 measure_byte_products(threads, options.model.cpu_isa(), console.cancel()));
  };
  measure_ceilings();

  Bench bench(engine, options.profile, console.cancel());
  SLUICE_ASSIGN_OR_RETURN([[maybe_unused]] const PassTime warm, bench.prompt(2));
  SLUICE_RETURN_IF_ERROR(bench.shorten(0));
  std::vector<double> seconds;
  result.prompt.rows = prompt;
  for (int i = 0; i < repetitions && prompt > 0; ++i) {
    SLUICE_ASSIGN_OR_RETURN(result.prompt, bench.prompt(prompt));
    seconds.push_back(result.prompt.seconds);
    SLUICE_RETURN_IF_ERROR(bench.shorten(0));
  }
  if (!seconds.empty()) result.prompt.seconds = median(seconds);
  measure_ceilings();

  if (result.depth > 0) {
    SLUICE_ASSIGN_OR_RETURN([[maybe_unused]] const PassTime filled, bench.prompt(result.depth));
  }
  seconds.clear();
  for (int i = 0; i < repetitions && result.decoded > 0; ++i) {
    PassTime sum;
    for (std::uint32_t token = 0; token < result.decoded; ++token) {
      SLUICE_ASSIGN_OR_RETURN(const PassTime step, bench.pass(1));
      sum.seconds += step.seconds;
      sum.bytes += step.bytes;
      sum.operations += step.operations;
      add(result.step.profile, step.profile, 1.0 / repetitions / result.decoded);
    }
    SLUICE_RETURN_IF_ERROR(bench.shorten(result.depth));
    seconds.push_back(sum.seconds / result.decoded);
    result.step.bytes = sum.bytes / result.decoded;
    result.step.operations = sum.operations / result.decoded;
  }
  if (!seconds.empty()) result.step.seconds = median(seconds);
  measure_ceilings();

  for (const std::int32_t rows : options.rows) {
    SLUICE_ASSIGN_OR_RETURN(const PassTime pass,
                            measure_pass(bench, static_cast<std::uint32_t>(rows), result.depth,
                                         std::max(5, 2 * repetitions)));
    result.passes.push_back(pass);
  }
  measure_ceilings();
  return result;
}

// What a pass reaches of what was measured; 0: unknown.
double bandwidth_share(const PassTime& pass, const BenchResult& result) {
  if (result.bandwidth <= 0 || pass.seconds <= 0) return 0;
  return pass.bytes / pass.seconds / result.bandwidth;
}
double arithmetic_share(const PassTime& pass, const BenchResult& result) {
  if (result.arithmetic <= 0 || pass.seconds <= 0) return 0;
  return pass.operations / pass.seconds / result.arithmetic;
}

// "954 MiB read, 20.1 GB/s (93%); 3.1 GOP, 65 GOP/s (12%)"
std::string describe_rates(const PassTime& pass, const BenchResult& result) {
  const auto percent = [](double share) {
    return share > 0 ? fmt::format(" ({:.0f}%)", 100 * share) : std::string();
  };
  std::string text =
      fmt::format("{} read, {:.2f} GB/s{}", format_bytes(static_cast<std::uint64_t>(pass.bytes)),
                  pass.bytes / pass.seconds / 1e9, percent(bandwidth_share(pass, result)));
  if (pass.operations > 0) {
    text += fmt::format("; {:.0f} GOP/s{}", pass.operations / pass.seconds / 1e9,
                        percent(arithmetic_share(pass, result)));
  }
  return text;
}

// A line for each stage that took time.
std::string describe_profile(const PassTime& pass) {
  double sum = 0;
  for (const PassProfile::Cost& cost : pass.profile.stage) sum += cost.ms;
  if (sum <= 0) return "  this device does not tell what its stages take\n";
  std::string text;
  for (std::size_t i = 0; i < kStages; ++i) {
    const PassProfile::Cost& cost = pass.profile.stage[i];
    if (cost.ms <= 0) continue;
    text += fmt::format("  {:<18}{:>9.3f} ms {:>5.1f}%", stage_name(static_cast<Stage>(i)), cost.ms,
                        100 * cost.ms / sum);
    if (cost.bytes > 0) {
      text += fmt::format("  {:>10}  {:>6.2f} GB/s", format_bytes(cost.bytes),
                          static_cast<double>(cost.bytes) / cost.ms / 1e6);
    }
    text += '\n';
  }
  return text;
}

std::string describe(const BenchResult& result, Engine& engine, const BenchOptions& options) {
  std::string text = fmt::format("{}, {}, {} cache\n", engine.spec().architecture,
                                 engine.backend().description(), kv_type_name(options.model.kv));
  if (result.bandwidth > 0) {
    text += fmt::format("at best (100%): {:.1f} GB/s read", result.bandwidth / 1e9);
    if (result.arithmetic > 0) {
      text += fmt::format(", {:.0f} GOP/s of byte products", result.arithmetic / 1e9);
    }
    text += '\n';
  }
  if (result.prompt.rows > 0) {
    text += fmt::format("prompt of {} tokens: {:.1f} t/s ({:.1f} ms); {}\n", result.prompt.rows,
                        result.prompt.rows / result.prompt.seconds, 1e3 * result.prompt.seconds,
                        describe_rates(result.prompt, result));
    if (options.profile) text += describe_profile(result.prompt);
  }
  if (result.decoded > 0) {
    text += fmt::format("decode at depth {}: {:.1f} t/s ({:.2f} ms a token); {}\n", result.depth,
                        1 / result.step.seconds, 1e3 * result.step.seconds,
                        describe_rates(result.step, result));
    if (options.profile) text += describe_profile(result.step);
  }
  for (const PassTime& pass : result.passes) {
    text += fmt::format("pass of {} rows: {:.2f} ms, {:.2f} of the first; {}\n", pass.rows,
                        1e3 * pass.seconds, pass.seconds / result.passes.front().seconds,
                        describe_rates(pass, result));
    if (options.profile) text += describe_profile(pass);
  }
  return text;
}

Json to_json(const BenchResult& result, Engine& engine, const BenchOptions& options) {
  Json json;
  json["device"] = json_text(engine.backend().description());
  json["kv"] = kv_type_name(options.model.kv);
  json["bandwidth"] = result.bandwidth;
  json["arithmetic"] = result.arithmetic;
  const auto add_rates = [&](Json& entry, const PassTime& pass) {
    entry["ms"] = 1e3 * pass.seconds;
    entry["bytes"] = pass.bytes;
    entry["bytes_per_s"] = pass.bytes / pass.seconds;
    entry["bandwidth_share"] = bandwidth_share(pass, result);
    entry["operations"] = pass.operations;
    entry["operations_per_s"] = pass.operations / pass.seconds;
    entry["arithmetic_share"] = arithmetic_share(pass, result);
    if (!options.profile) return;
    entry["stages"] = Json::array();
    for (std::size_t i = 0; i < kStages; ++i) {
      const PassProfile::Cost& cost = pass.profile.stage[i];
      if (cost.ms <= 0) continue;
      entry["stages"].push_back(
          {{"name", stage_name(static_cast<Stage>(i))}, {"ms", cost.ms}, {"bytes", cost.bytes}});
    }
  };
  if (result.prompt.rows > 0) {
    json["prompt"]["tokens"] = result.prompt.rows;
    json["prompt"]["tokens_per_s"] = result.prompt.rows / result.prompt.seconds;
    json["prompt"]["operations_per_s"] = result.prompt.operations / result.prompt.seconds;
    json["prompt"]["arithmetic_share"] = arithmetic_share(result.prompt, result);
  }
  json["decode"] = Json::array();
  if (result.decoded > 0) {
    Json entry;
    entry["depth"] = result.depth;
    entry["tokens"] = result.decoded;
    entry["tokens_per_s"] = 1 / result.step.seconds;
    add_rates(entry, result.step);
    json["decode"].push_back(std::move(entry));
  }
  json["passes"] = Json::array();
  for (const PassTime& pass : result.passes) {
    Json entry;
    entry["rows"] = pass.rows;
    add_rates(entry, pass);
    json["passes"].push_back(std::move(entry));
  }
  return json;
}

}  // namespace

Status bench_command(std::span<const std::string> args, Console& console) {
  BenchOptions options;
  bool rows_given = false;
  Flags flags(
      "bench", "bench [-m MODEL] [-p N] [-n N] [-d N] [-b N,N,...] [--serve] [FLAGS]",
      "Measures passes on random tokens: medians, bytes read, and the shares of the measured "
      "memory bandwidth and arithmetic.");
  options.model.declare_model(flags);
  flags.integer("-p,--prompt", "N", "tokens of a prompt; 0: none (512)", 0, kMostTokens,
                &options.prompt);
  flags.integer("-n,--predict", "N", "decode steps, one token each; 0: none (128)", 0, kMostTokens,
                &options.decode);
  flags.integer("-d,--depth", "N", "tokens in the cache before decoding and passes (0)", 0,
                kMostTokens, &options.depth);
  flags.value("-b,--rows", "N,N,...", "passes of so many rows with logits (1,2,4,8,16)",
              [&options, &rows_given](std::string_view text) -> Status {
                rows_given = true;
                SLUICE_ASSIGN_OR_RETURN(options.rows,
                                        parse_number_list(text, "a number of rows", 1, kMostRows));
                return {};
              });
  flags.integer("-r,--repetitions", "N", "runs of which the median is taken (3)", 1, 1000,
                &options.repetitions);
  flags.toggle("--profile", "say what each stage of a pass takes", &options.profile);
  flags.toggle("--json", "print one JSON object", &options.json);
  flags.toggle("--quiet", "only warnings and errors on stderr", &options.quiet);
  options.model.declare_machine(flags);
  ServeBench serve;
  serve.declare(flags);
  flags.section("Rarely used", true);
  options.model.declare_context(
      flags, "with --serve: tokens of context of a request (the trained ones, at most 4096)");
  options.model.declare_rare(flags);
  SLUICE_ASSIGN_OR_RETURN(const Flags::Outcome outcome, flags.parse(args));
  if (!outcome.help.empty()) return console.print(outcome.help);
  console.set_quiet(options.quiet);
  if (serve.wanted()) {
    if (options.prompt || options.decode || options.depth || options.repetitions ||
        options.profile || rows_given) {
      return make_error(ErrorCode::kUsage,
                        "-p, -n, -d, -b, -r and --profile are about passes; leave them out "
                        "with --serve");
    }
    return serve.run(options.model, options.json, console);
  }
  const std::string unused = options.model.context
                                 ? (serve.given().empty() ? "-c" : serve.given() + ", -c")
                                 : serve.given();
  if (!unused.empty()) {
    return make_error(ErrorCode::kUsage, "{} has no meaning without --serve", unused);
  }
  if (!options.prompt) options.prompt = 512;
  if (!options.decode) options.decode = 128;
  if (!options.depth) options.depth = 0;
  if (!options.repetitions) options.repetitions = 3;

  SLUICE_ASSIGN_OR_RETURN(const std::string path, options.model.path(console));
  Progress progress(console);
  const std::int64_t most_rows = *std::max_element(options.rows.begin(), options.rows.end());
  options.model.context = std::max(
      {*options.prompt, *options.depth + std::max(*options.decode, most_rows), std::int64_t{16}});
  EngineOptions engine_options = options.model.engine_options(console, progress);
  engine_options.max_logits = static_cast<std::uint32_t>(most_rows);
  engine_options.prefill_chunk = std::max(engine_options.prefill_chunk, engine_options.max_logits);
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine,
                          load_engine(path, engine_options, console, progress));
  SLUICE_ASSIGN_OR_RETURN(const BenchResult result, measure(*engine, options, console));
  if (options.json) return console.print(json_line(to_json(result, *engine, options)));
  return console.print(describe(result, *engine, options));
}

}  // namespace sluice::cli

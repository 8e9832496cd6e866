// The flags of `sluice batch`, and what of them answers depend on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/cli/console.h"
#include "src/cli/flags.h"
#include "src/cli/json.h"
#include "src/cli/model_flags.h"
#include "src/cli/sampling_flags.h"
#include "src/cli/speculation_flags.h"
#include "src/engine/batch/latency_stats.h"
#include "src/engine/batch/shard.h"
#include "src/engine/scheduler/scheduler.h"

namespace sluice::cli {

struct BatchCommandOptions {
  ModelFlags model;
  SamplingFlags sampling;
  SpeculationFlags speculation;
  std::optional<std::string> input, output;
  std::optional<std::string> system, template_file, prefix_file;
  std::optional<std::int64_t> predict, logprobs;
  std::vector<std::string> stop;
  std::vector<std::string> reports;
  Shard shard;
  LatencyGoal goal;
  std::optional<std::uint32_t> slots;  // nothing: auto
  std::optional<std::int64_t> step_tokens;
  SchedulePolicy policy = SchedulePolicy::kThroughput;
  bool lines = false;
  bool raw = false;
  bool ordered = false;
  bool retry_errors = false;
  bool tokens = false;
  bool ignore_eos = false;
  bool quiet = false;
  bool run_static = false;
  bool no_prefix_cache = false;
  bool no_chunking = false;

  // Contents of the files, read by read_files().
  std::string template_text, prefix;

  void declare(Flags& flags);
  Status check() const;  // kUsage for what is missing or contradicts itself
  Status read_files(Console& console);
  bool to_stdout() const { return *output == "-"; }

  // kUsage where a file that is written is one of the others.
  Status check_files_differ() const;

  // Everything that answers depend on beside items and model, by the flags' names.
  Json settings(std::uint32_t context) const;
};

}  // namespace sluice::cli

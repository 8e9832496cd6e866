// What `sluice run` says about a finished run: --json and --stats.
#pragma once

#include <string>

#include "src/cli/prompt.h"
#include "src/engine/engine.h"
#include "src/engine/generate.h"
#include "src/engine/sampling/resolve.h"
#include "src/engine/speculation/speculator.h"

namespace sluice::cli {

struct RunReport {
  Engine& engine;
  const ResolvedSampling& sampling;
  const PromptFlags::Prompt& prompt;
  const GenerateResult& result;
  const Speculator* speculator = nullptr;  // null: off
  const Engine* draft = nullptr;           // null: none
  KvCacheType kv;
  double bandwidth = 0;  // measured, bytes per second; 0: not measured
  bool want_logprobs = false;
};

// One line: the object that docs/CLI.md describes.
std::string run_json(const RunReport& report);

// A block for stderr.
std::string run_stats(const RunReport& report);

}  // namespace sluice::cli

// Many requests through one engine: sequences are admitted, run and retired at every pass
// (continuous batching; Yu et al., "Orca", 2022), prompts in chunks beside the running ones
// (Agrawal et al., "Sarathi-Serve", 2024). Tokens are those of generate(), whatever runs beside.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/engine/engine.h"
#include "src/engine/generate.h"

namespace sluice {

enum class SchedulePolicy : std::uint8_t {
  kThroughput,  // prompts fill the pass up to its budget
  kLatency,     // small prompt chunks: running sequences are held up less
};

struct SchedulerOptions {
  // Sequences at a time; at most the engine's max_logits, and with an int4 cache one more than its
  // `sequences`.
  std::uint32_t slots = 1;
  // Rows of a pass, running sequences first; 0: by policy. At most the backend's max_rows.
  std::uint32_t step_tokens = 0;
  SchedulePolicy policy = SchedulePolicy::kThroughput;
  bool continuous = true;       // false: the next group waits for the last of this one
  bool chunked_prefill = true;  // false: a prompt runs whole, and running sequences wait for it
  bool share_prefixes = true;   // equal beginnings of prompts are run once
  // Makes the drafters of a sequence, always the same kinds; empty: one token a pass.
  std::function<std::vector<std::unique_ptr<Drafter>>()> drafters;
  SpeculationOptions speculation;
};

using Ticket = std::uint64_t;

struct Finished {
  Ticket ticket = 0;
  // An error of this request alone, as generate()'s. Its times count from admission.
  Result<GenerateResult> result;
  double queue_ms = 0;  // from submit() to admission
};

// Since the scheduler was made, except where it says "now".
struct SchedulerStats {
  std::uint64_t passes = 0;
  std::uint64_t rows = 0;            // of all passes
  std::uint64_t prompt_tokens = 0;   // of the requests whose prompts were run
  std::uint64_t prefill_tokens = 0;  // run for them
  std::uint64_t shared_tokens = 0;   // found in the cache instead
  std::uint64_t decode_tokens = 0;   // drawn
  std::uint64_t drafted_tokens = 0;
  std::uint64_t accepted_tokens = 0;    // of the drafted ones
  std::uint64_t preemptions = 0;        // sequences put back because the cache was full
  std::uint64_t recomputed_tokens = 0;  // run again for them
  std::uint32_t running = 0;            // now
  std::uint32_t waiting = 0;            // now
  std::uint32_t blocks_used = 0;  // now, of the KV cache, those kept for later prompts included
  std::uint32_t blocks_kept = 0;  // now, for later prompts only
  std::uint32_t blocks_most = 0;
  std::uint32_t blocks_total = 0;
  double pass_ms = 0;  // of all passes
};

class Scheduler {
 public:
  // `engine` must outlive the scheduler, which has its cache for itself.
  Scheduler(Engine& engine, const SchedulerOptions& options);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Queues a request; its speculator is ignored, options.drafters rules. Its callbacks are called
  // from step().
  Ticket submit(GenerateRequest request);
  bool idle() const;  // nothing runs and nothing waits
  // Runs one pass and gives the requests that came to an end by it, and those that can't run at
  // all. Errors: of the backend; kInterrupted when `cancel` became true. The requests stay as they
  // were before the pass.
  Result<std::vector<Finished>> step(const std::atomic<bool>* cancel = nullptr);

  const SchedulerStats& stats() const;
  // For the user, where fewer sequences run at a time than options.slots asked for: how many, and
  // why. Empty otherwise.
  const std::string& note() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice

// Takes items from a reader, runs them through a scheduler, and hands out a line for each.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "src/base/status.h"
#include "src/engine/batch/item_reader.h"
#include "src/engine/batch/item_result.h"
#include "src/engine/batch/output_file.h"
#include "src/engine/batch/prefix_advice.h"
#include "src/engine/batch/prompt_maker.h"
#include "src/engine/sampling/resolve.h"
#include "src/engine/scheduler/scheduler.h"

namespace sluice {

// What items have that say nothing else.
struct ItemDefaults {
  SamplingOverrides sampling;  // with a seed
  FileSampling file_sampling;
  std::int64_t max_tokens = -1;
  std::vector<std::string> stop;
  std::uint32_t logprobs = 0;
  bool want_tokens = false;
  bool ignore_eos = false;
};

struct BatchOptions {
  ItemDefaults defaults;
  bool ordered = false;       // answers in the order of the input
  bool retry_errors = false;  // items that are answered by an error run again
  std::uint32_t queue = 2;    // items that wait in the scheduler, at most
  // Answers of an earlier run; null: none. Must outlive the runner.
  const std::unordered_map<std::string, BatchOutput::Answer>* answers = nullptr;
};

struct BatchCounts {
  std::uint64_t skipped = 0;         // answered by an earlier run
  std::uint64_t skipped_errors = 0;  // of them, by an error
  std::uint64_t done = 0;            // handed out by this one, without an error
  std::uint64_t failed = 0;

  std::uint64_t settled() const { return skipped + done + failed; }
};

struct BatchEvents {
  // A whole line with its end. An error ends the batch.
  std::function<Status(std::string_view line)> on_line;
  std::function<void(const ItemLatency&)> on_done;
  std::function<void(const std::string&)> on_warning;  // once each
  std::function<void()> on_step;                       // after each pass
};

class BatchRunner {
 public:
  // All must outlive the runner.
  BatchRunner(Scheduler& scheduler, ItemReader& reader, const PromptMaker& prompts,
              const ResultContext& context, BatchOptions options, BatchEvents events);

  // To the end of the input. Errors: of reading, writing and the backend, and kInterrupted; what
  // was handed out until then is whole and stays so.
  Status run(const std::atomic<bool>* cancel);

  const BatchCounts& counts() const { return counts_; }
  const PrefixAdvice& prefix_advice() const { return prefix_advice_; }

 private:
  struct Running {
    BatchItem item;
    std::uint64_t place = 0;  // among the items that are not skipped
  };
  Status take_items(const std::atomic<bool>* cancel);
  Status take(BatchItem item);
  Result<GenerateRequest> make_request(BatchItem& item);
  Status answer(const Finished& finished);
  Status fail(const BatchItem& item, std::uint64_t place, const std::string& message);
  struct Answer {
    std::string line;
    bool error = false;
  };
  Status hand_out(std::uint64_t place, Answer answer);
  Status write(const Answer& answer);
  bool has_room() const;
  void warn_once(const std::string& what, const std::string& line);
  void warn_of_keys(const BatchItem& item);

  Scheduler& scheduler_;
  ItemReader& reader_;
  const PromptMaker& prompts_;
  const ResultContext& context_;
  BatchOptions options_;
  BatchEvents events_;

  BatchCounts counts_;
  PrefixAdvice prefix_advice_;
  bool end_ = false;
  std::unordered_map<Ticket, Running> running_;
  std::uint64_t places_ = 0;
  std::uint64_t next_place_ = 0;          // to be handed out, where order counts
  std::map<std::uint64_t, Answer> held_;  // finished before an earlier one
  std::size_t held_bytes_ = 0;
  std::set<std::string> warned_;
};

}  // namespace sluice

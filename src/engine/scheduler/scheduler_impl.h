// What a scheduler is made of. admission.cpp: who gets a sequence; pass_plan.cpp: the rows of a
// pass; scheduler.cpp: running it.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/engine/scheduler/scheduler.h"
#include "src/engine/scheduler/slot.h"
#include "src/kv/prefix_tree.h"

namespace sluice {

class Scheduler::Impl {
 public:
  Impl(Engine& engine, const SchedulerOptions& options);
  ~Impl();
  Ticket submit(GenerateRequest request);
  bool idle() const { return running_.empty() && waiting_.empty() && finished_.empty(); }
  const SchedulerStats& stats() const { return stats_; }
  const std::string& note() const { return note_; }
  Result<std::vector<Finished>> step(const std::atomic<bool>* cancel);

 private:
  // Admission.
  void admit();
  // Whether the cache has blocks for all its tokens and one more for each sequence to grow into. A
  // sequence alone always fits.
  bool fits(const Waiting& next);
  Result<std::unique_ptr<Slot>> make_slot(Waiting& next);
  // A slot whose prompt begins like that of one that is being run waits for it: the blocks in
  // common are run once.
  void find_donor(Slot& slot);
  bool waits_for_donor(Slot& slot);
  void put_back_youngest();

  // A pass.
  // Fills rows_; puts sequences back until something can run.
  Status plan();
  Status plan_decoding(bool beside_prompts);
  Status plan_prompts(bool& complete);
  // Frees blocks until the sequence can grow to `tokens`: kept prefixes first, then, if `preempt`,
  // the youngest sequences. false: there are not enough, or the slot itself was put back.
  bool make_room(const Slot& slot, std::size_t tokens, bool preempt);
  void adopt_prefix(Slot& slot);
  // Rows behind `length` tokens; the last `logits` of them want logits.
  Status add_rows(Slot& slot, std::span<const std::int32_t> tokens, std::size_t length,
                  std::size_t logits);
  Error no_room() const;
  // How many of the largest logits of a row are enough for all sequences of the pass; 0: all.
  std::size_t top_needed() const;
  Status run(const std::atomic<bool>* cancel);
  Status prompt_ran(Slot& slot);
  Status decoded(Slot& slot, double ms, const PassTraffic& traffic);
  void retire(Slot& slot, const Status& status);
  void update_stats();
  std::uint32_t blocks_for(std::size_t tokens) const {
    const std::uint32_t size = kv_.block_tokens();
    return static_cast<std::uint32_t>((tokens + size - 1) / size);
  }
  static double ms_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
        .count();
  }

  Engine& engine_;
  KvCache& kv_;
  SchedulerOptions options_;
  PrefixTree tree_;
  std::shared_ptr<DraftController> controller_;
  std::deque<Waiting> waiting_;
  std::vector<std::unique_ptr<Slot>> running_;  // in the order of admission
  std::vector<Finished> finished_;              // not yet told
  Ticket last_ticket_ = 0;
  SchedulerStats stats_;
  std::string note_;

  // The pass that is made.
  std::vector<BatchRow> rows_;
  std::size_t wanted_ = 0;  // rows with logits
  LogitRows logits_;
};

}  // namespace sluice

#include "src/engine/scheduler/auto_slots.h"

#include <algorithm>
#include <chrono>

namespace sluice {
namespace {

constexpr double kWorthIt = 1.05;
constexpr std::uint32_t kPasses = 3;  // of each kind, where the context allows; the fastest counts

// Sequences of their own, released at the end.
class Sequences {
 public:
  Sequences(KvCache& kv, std::uint32_t count) : kv_(kv) {
    for (std::uint32_t i = 0; i < count; ++i) ids_.push_back(kv.create());
  }
  ~Sequences() {
    for (const SequenceId id : ids_) kv_.release(id);
  }
  Sequences(const Sequences&) = delete;
  Sequences& operator=(const Sequences&) = delete;
  const std::vector<SequenceId>& ids() const { return ids_; }

 private:
  KvCache& kv_;
  std::vector<SequenceId> ids_;
};

Result<double> pass_ms(Engine& engine, std::uint32_t count, const std::atomic<bool>* cancel) {
  const Sequences sequences(engine.kv(), count);
  std::vector<float> logits(std::size_t{count} * engine.spec().vocabulary);
  double best = 0;
  for (std::uint32_t pass = 0; pass < std::min(kPasses, engine.context()); ++pass) {
    std::vector<BatchRow> rows;
    for (const SequenceId id : sequences.ids()) rows.push_back({0, pass, id, true});
    const auto start = std::chrono::steady_clock::now();
    const auto traffic = engine.run(rows, logits, cancel);
    if (!traffic.ok()) return traffic.error();
    const std::chrono::duration<double, std::milli> ms = std::chrono::steady_clock::now() - start;
    best = pass == 0 ? ms.count() : std::min(best, ms.count());
  }
  return best;
}

}  // namespace

Result<SlotChoice> choose_slots(Engine& engine, std::uint32_t most,
                                const std::atomic<bool>* cancel) {
  most = std::min({most, engine.backend().max_logits(), engine.backend().max_rows(),
                   engine.backend().max_open_blocks(), engine.kv().free_blocks()});
  SlotChoice choice;
  double best = 0;  // rows per ms
  for (std::uint32_t rows = 1; rows <= most; rows *= 2) {
    SLUICE_ASSIGN_OR_RETURN(const double ms, pass_ms(engine, rows, cancel));
    choice.measured.push_back({rows, ms});
    const double rate = rows / ms;
    const bool gained = rate > best * kWorthIt;
    best = std::max(best, rate);
    if (!gained) break;
  }
  for (const SlotChoice::Measured& each : choice.measured) {
    choice.slots = each.rows;
    if (each.rows / each.ms * kWorthIt >= best) break;
  }
  return choice;
}

}  // namespace sluice

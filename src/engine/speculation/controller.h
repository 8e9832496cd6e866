// How much to draft: the length that maximises expected tokens per second, from measured costs and
// measured acceptance; zero where drafting does not pay.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "src/engine/speculation/drafter.h"

namespace sluice {

// With acceptance a at each position, a pass that verifies k drafted tokens gives
// (1 - a^(k+1)) / (1 - a) tokens on average (Leviathan et al., 2023, equation 1).
double expected_tokens(double acceptance, std::size_t drafted);

// What a pass holds beside the text that a draft is chosen for.
struct PassLoad {
  std::size_t rows = 0;  // of other sequences
  double tokens = 0;     // that they are expected to give
};

class DraftController {
 public:
  static constexpr std::size_t kMostDrafted = 15;
  static constexpr std::size_t kMostRows = 128;  // passes of more are not measured

  // `drafters`: how many there are; they are told apart by index.
  explicit DraftController(std::size_t drafters);

  // What a drafter could do at this step.
  struct Option {
    std::size_t drafter = 0;
    std::size_t confidence = 0;
  };
  struct Plan {
    std::size_t drafter = 0;
    std::size_t length = 0;      // 0: no draft
    double expected_tokens = 1;  // of this text
    double expected_ms = 0;      // of the pass, drafting included; 0: nothing is known yet
  };
  // The best of the options, drafts of at most `most` tokens. Where none pays, a short draft is
  // tried now and then, ever more rarely, so that a change is noticed.
  Plan choose(std::span<const Option> options, std::size_t most, const PassLoad& beside = {});

  // What happened. `rows`: of a pass of the target.
  void observe_pass(std::size_t rows, double ms);
  void observe_drafting(std::size_t drafter, std::size_t length, double ms);
  void observe_outcome(std::size_t drafter, std::size_t confidence, std::size_t drafted,
                       std::size_t accepted);

  // Estimates, for reports and tests.
  double pass_ms(std::size_t rows) const;  // 0 before the first pass
  double acceptance(std::size_t drafter, std::size_t confidence, std::size_t position) const;

 private:
  // A mean that forgets: older observations count less.
  struct Mean {
    double sum = 0;
    double weight = 0;
    void add(double value, double memory);
  };
  struct PerDrafter {
    std::array<std::array<Mean, kMostDrafted>, kDraftClasses> accepted;
    Mean fixed_ms;      // of a draft of one token
    Mean per_token_ms;  // of each further one
  };
  double drafting_ms(std::size_t drafter, std::size_t length) const;

  std::array<Mean, kMostRows + 1> pass_ms_;  // by rows
  std::vector<PerDrafter> drafters_;
  std::size_t steps_without_draft_ = 0;
  std::size_t probe_after_ = 16;
};

}  // namespace sluice

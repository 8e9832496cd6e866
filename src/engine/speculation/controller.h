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
  static constexpr std::size_t kMostDrafted = 16;
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
    double rate = 0;             // tokens a millisecond that it promises, those `beside` included
    std::size_t confidence = 0;  // of the option
    bool probe = false;          // made to learn: all of the draft is verified
  };
  // The best of the options, drafts of at most `most` tokens. Where none pays, a short draft is
  // tried now and then, ever more rarely, so that a change is noticed.
  Plan choose(std::span<const Option> options, std::size_t most, const PassLoad& beside = {});

  // Drafts that say how sure they are of each token (Draft::sure) stop early: a token, or the time
  // for drafting one, is worth it while it adds tokens at a better rate than the plan's. (The
  // stopping rule of a renewal process: its best rate is the price of time.)
  bool worth_more(const Plan& plan, std::span<const float> sure, const PassLoad& beside = {}) const;
  // How many of the tokens to verify, and what is expected then, in `plan`.
  std::size_t worth_verifying(Plan& plan, std::span<const float> sure,
                              const PassLoad& beside = {}) const;

  // Before a drafter was measured: its time for a token, as a share of a pass of one row.
  void expect_drafting(std::size_t drafter, double share) {
    drafters_[drafter].expected_share = share;
  }
  // What happened. `rows`: of a pass of the target.
  void observe_pass(std::size_t rows, double ms);
  void observe_drafting(std::size_t drafter, std::size_t length, double ms);
  void observe_outcome(std::size_t drafter, std::size_t confidence, std::size_t drafted,
                       std::size_t accepted);
  // The same of a draft with `sure` of each token: `verified` of them were in the pass, `checked`
  // of those were compared.
  void observe_sure(std::size_t drafter, std::span<const float> sure, std::size_t verified,
                    std::size_t checked, std::size_t accepted);

  // Estimates, for reports and tests.
  double pass_ms(std::size_t rows) const;  // 0 before the first pass
  bool measured(std::size_t rows) const { return pass_ms_[rows].weight > 0; }
  double drafting_ms(std::size_t drafter, double length) const;
  double acceptance(std::size_t drafter, std::size_t confidence, std::size_t position) const;
  double sure_acceptance(std::size_t drafter, double sure) const;

 private:
  static constexpr std::size_t kSureClasses = 12;

  // A mean that forgets: older observations count less.
  struct Mean {
    double sum = 0;
    double weight = 0;
    void add(double value, double memory);
    void forget(double memory) {
      sum *= memory;
      weight *= memory;
    }
    double value_or(double guess, double guess_weight) const {
      return (sum + guess_weight * guess) / (weight + guess_weight);
    }
  };
  struct PerDrafter {
    std::array<std::array<Mean, kMostDrafted>, kDraftClasses> accepted;
    double expected_share = 0;
    Mean fixed_ms;      // of a draft of one token
    Mean per_token_ms;  // of each further one
    // Of drafts that stop where they are no longer sure.
    std::array<Mean, kSureClasses> accepted_sure;
    Mean grown;           // tokens drafted
    Mean grown_verified;  // of them in the pass
    Mean grown_accepted;
  };
  double pass_ms_between(double rows) const;  // between two whole numbers
  Plan grown_plan(const Option& option, std::size_t most, const PassLoad& beside) const;

  std::array<Mean, kMostRows + 1> pass_ms_;  // by rows
  std::vector<PerDrafter> drafters_;
  std::size_t steps_without_draft_ = 0;
  std::size_t probe_after_ = 16;
};

}  // namespace sluice

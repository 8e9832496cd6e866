// Drafters and their controller, together for one target; lives as long as the conversation.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/engine/speculation/controller.h"
#include "src/engine/speculation/drafter.h"

namespace sluice {

// Counts of one request (Speculator::begin starts them anew).
struct SpeculationStats {
  struct PerDrafter {
    std::string name;
    std::uint64_t drafted = 0;
    std::uint64_t accepted = 0;
    double reading_ms = 0;  // once: the prompt, by a draft model
    // [position]: how often a draft had a token there, and how often it was right.
    std::array<std::uint64_t, DraftController::kMostDrafted> drafted_at = {};
    std::array<std::uint64_t, DraftController::kMostDrafted> accepted_at = {};
  };
  std::vector<PerDrafter> drafters;
  std::uint64_t passes = 0;       // of the target after the prompt
  std::uint64_t tokens = 0;       // that they gave
  double predicted_ms = 0;        // what the controller expected these passes to take
  double predicted_plain_ms = 0;  // and the tokens it expected of them, one a pass
  double pass_ms = 0;             // measured: a pass of one row; 0: none was run
  double elapsed_ms = 0;          // measured: passes and drafting

  std::uint64_t checked = 0;  // drafted tokens that were compared: accepted, or the first wrong one

  std::uint64_t drafted() const;
  std::uint64_t accepted() const;
  double acceptance() const;  // share of the drafted tokens; 0 if there were none
  // Tokens of a pass by the formula (expected_tokens()), from the mean acceptance where a token was
  // looked at and the mean length of all passes' drafts.
  double formula_tokens() const;
  // Against one pass a token; 0 where nothing is known.
  double predicted_speedup() const;
  double measured_speedup() const;
};

struct SpeculationOptions {
  std::size_t most = DraftController::kMostDrafted;  // tokens of a draft
  // Drafts of exactly this length wherever there is one, whether it pays or not; 0: the controller
  // decides. For tests and measurements.
  std::size_t fixed_length = 0;
};

class Speculator {
 public:
  // `controller`: one that several texts of a target share, for as many drafters of the same kinds;
  // whoever runs their passes tells it what they took. Null: one of its own, told by pass_done().
  explicit Speculator(std::vector<std::unique_ptr<Drafter>> drafters,
                      SpeculationOptions options = {},
                      std::shared_ptr<DraftController> controller = nullptr);

  bool wants_hidden() const;
  // A request begins.
  Status begin(std::span<const std::int32_t> tokens, const SamplingParams& sampling,
               std::uint32_t stream);
  // The text grew by a token.
  Status accept(std::int32_t token);
  // The last token of the text and a draft of at most `most` tokens behind it, for the next pass;
  // no draft where none pays.
  Result<TokenTree> propose(const DraftContext& context, std::size_t most,
                            const PassLoad& beside = {});
  // Tokens that a pass with the last proposal is expected to give.
  double expected_tokens() const { return expected_; }
  // The pass of the last proposal took that long.
  void pass_done(std::size_t rows, double ms);
  // How many of the last proposal's tokens came true. Where the text ended within the draft, only
  // those that were looked at count: `checked`.
  void outcome(std::size_t checked, std::size_t accepted);

  const SpeculationStats& stats() const { return stats_; }
  const DraftController& controller() const { return *controller_; }

 private:
  // Keeps what the plan promises.
  void expect(const DraftController::Plan& plan, const PassLoad& beside);

  std::vector<std::unique_ptr<Drafter>> drafters_;
  SpeculationOptions options_;
  std::shared_ptr<DraftController> controller_;
  bool shared_;
  SpeculationStats stats_;
  struct Last {
    std::size_t drafter = 0;
    std::size_t confidence = 0;
    std::size_t length = 0;   // tokens of it in the pass
    std::vector<float> sure;  // of all that were drafted, where the drafter says
  };
  Last last_;
  double expected_ = 1;
  double one_row_ms_ = 0;  // of this request's passes of one row
  std::uint64_t one_row_passes_ = 0;
};

}  // namespace sluice

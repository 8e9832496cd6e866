// The flags of speculative decoding, shared by the commands that generate, and its report.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "src/cli/console.h"
#include "src/cli/flags.h"
#include "src/cli/json.h"
#include "src/cli/model_flags.h"
#include "src/engine/engine.h"
#include "src/engine/speculation/speculator.h"

namespace sluice::cli {

// A draft model and what uses it.
struct Speculation {
  std::unique_ptr<Engine> draft;  // null: none
  // Makes the drafters of a text; empty: --spec off. The draft model must outlive them.
  std::function<std::vector<std::unique_ptr<Drafter>>()> drafters;
  SpeculationOptions options;
  std::unique_ptr<Speculator> speculator;  // for one text at a time; null: --spec off
};

class SpeculationFlags {
 public:
  void declare(Flags& flags);       // --spec, --draft
  void declare_rare(Flags& flags);  // --lookup-file, --draft-max, --draft-length
  // kUsage for flags that contradict each other; before anything is loaded.
  Status check() const;
  // Loads the draft model, with the same machine flags as the target and room for so many
  // `sequences`, and reads the lookup files.
  Result<Speculation> load(const Engine& target, const ModelFlags& model, Console& console,
                           Progress& progress, std::uint32_t sequences = 1) const;

  const std::optional<std::string>& draft_file() const { return draft_; }
  const std::vector<std::string>& lookup_files() const { return lookup_files_; }

 private:
  enum class Mode { kAuto, kLookup, kDraft, kOff };
  Mode mode_ = Mode::kAuto;
  std::optional<std::string> draft_;
  std::vector<std::string> lookup_files_;
  std::optional<std::int64_t> most_;
  std::optional<std::int64_t> fixed_;
};

// {"drafted": 20, "accepted": 12, "by_drafter": [...], ...}; null without a speculator.
Json speculation_json(const Speculator* speculator);
// One line: "12 of 20 drafted tokens accepted (lookup 12 of 20: 80% 60% 40%), speed-up 1.31,
// predicted 1.36".
std::string describe_speculation(const Speculator* speculator);

}  // namespace sluice::cli

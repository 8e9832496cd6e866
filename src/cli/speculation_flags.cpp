#include "src/cli/speculation_flags.h"

#include <algorithm>

#include "src/cli/input.h"
#include "src/cli/load_engine.h"
#include "src/engine/speculation/draft_model.h"
#include "src/engine/speculation/prompt_lookup.h"

namespace sluice::cli {

void SpeculationFlags::declare(Flags& flags) {
  flags.value("--spec", "MODE", "guess tokens ahead (same text): auto, lookup, draft or off (auto)",
              [this](std::string_view text) -> Status {
                if (text == "auto") {
                  mode_ = Mode::kAuto;
                } else if (text == "lookup") {
                  mode_ = Mode::kLookup;
                } else if (text == "draft") {
                  mode_ = Mode::kDraft;
                } else if (text == "off") {
                  mode_ = Mode::kOff;
                } else {
                  return make_error(ErrorCode::kUsage, "'{}' is not auto, lookup, draft or off",
                                    text);
                }
                return {};
              });
  flags.text("--draft,--model-draft", "FILE", "a small model of the same vocabulary that guesses",
             &draft_);
}

void SpeculationFlags::declare_rare(Flags& flags) {
  flags.texts("--lookup-file", "FILE", "more text that guesses are copied from; may be repeated",
              &lookup_files_);
  flags.integer("--draft-max,--draft-n", "N", "most tokens of a guess (16)", 1,
                DraftController::kMostDrafted, &most_);
  flags.integer("--draft-length", "N", "always guess so many, whether it pays or not", 1,
                DraftController::kMostDrafted, &fixed_);
}

Status SpeculationFlags::check() const {
  if (mode_ == Mode::kDraft && !draft_) {
    return make_error(ErrorCode::kUsage, "--spec draft needs a draft model (--draft FILE)");
  }
  if (draft_ && (mode_ == Mode::kLookup || mode_ == Mode::kOff)) {
    return make_error(ErrorCode::kUsage, "--draft has no use with --spec lookup or off");
  }
  if (mode_ == Mode::kOff && (most_ || fixed_)) {
    return make_error(ErrorCode::kUsage, "{} has no use with --spec off",
                      most_ ? "--draft-max" : "--draft-length");
  }
  if (most_ && fixed_) {
    return make_error(ErrorCode::kUsage,
                      "--draft-max has no use with --draft-length, which sets the length itself");
  }
  if (!lookup_files_.empty() && (mode_ == Mode::kDraft || mode_ == Mode::kOff)) {
    return make_error(ErrorCode::kUsage, "--lookup-file has no use with --spec draft or off");
  }
  return {};
}

Result<Speculation> SpeculationFlags::load(const Engine& target, const ModelFlags& model,
                                           Console& console, Progress& progress,
                                           std::uint32_t sequences) const {
  Speculation speculation;
  if (mode_ == Mode::kOff) return speculation;
  const bool lookup = mode_ != Mode::kDraft;
  std::shared_ptr<const NgramIndex> corpus;
  if (!lookup_files_.empty()) {
    std::vector<std::int32_t> tokens;
    for (const std::string& path : lookup_files_) {
      SLUICE_ASSIGN_OR_RETURN(const std::string text, read_file(path, console.cancel()));
      SLUICE_ASSIGN_OR_RETURN(const auto ids, target.tokenizer().encode(text, {}));
      tokens.insert(tokens.end(), ids.begin(), ids.end());
    }
    corpus = PromptLookup::index(tokens);
  }
  if (draft_) {
    EngineOptions options = model.engine_options(console, progress);
    SLUICE_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::open(*draft_));
    SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, Tokenizer::load(file));
    SLUICE_RETURN_IF_ERROR(check_same_vocabulary(target.tokenizer(), *tokenizer));
    SLUICE_ASSIGN_OR_RETURN(const Model checked, load_model(file, 0));
    options.context = std::min(checked.spec.context, target.context());
    options.sequences = sequences;
    options.threads_of = &target;  // drafting and verifying take turns
    auto draft = load_engine(*draft_, options, console, progress, target.info().notes);
    if (!draft.ok()) {
      return Error{draft.error().code, "--draft: " + draft.error().message};
    }
    speculation.draft = std::move(draft).value();
  }
  if (most_) speculation.options.most = static_cast<std::size_t>(*most_);
  if (fixed_) speculation.options.fixed_length = static_cast<std::size_t>(*fixed_);
  const auto vocabulary = static_cast<std::size_t>(target.tokenizer().vocab_size());
  // Both read their weights at about the same rate.
  const auto weights = [](const Engine& engine) {
    return static_cast<double>(engine.info().memory.weights);
  };
  const double cost = draft_ ? weights(*speculation.draft) / std::max(1.0, weights(target)) : 0;
  speculation.drafters = [lookup, corpus, vocabulary, cost, draft = speculation.draft.get()] {
    std::vector<std::unique_ptr<Drafter>> drafters;
    if (lookup) drafters.push_back(std::make_unique<PromptLookup>(corpus));
    if (draft != nullptr)
      drafters.push_back(std::make_unique<DraftModel>(*draft, vocabulary, cost));
    return drafters;
  };
  speculation.speculator =
      std::make_unique<Speculator>(speculation.drafters(), speculation.options);
  return speculation;
}

Json speculation_json(const Speculator* speculator) {
  if (speculator == nullptr) return {};
  const SpeculationStats& stats = speculator->stats();
  Json json;
  json["drafted"] = stats.drafted();
  json["accepted"] = stats.accepted();
  json["acceptance"] = stats.acceptance();
  json["passes"] = stats.passes;
  json["tokens"] = stats.tokens;
  Json list = Json::array();
  const DraftController& controller = speculator->controller();
  for (std::size_t index = 0; index < stats.drafters.size(); ++index) {
    const SpeculationStats::PerDrafter& each = stats.drafters[index];
    Json drafter;
    drafter["name"] = each.name;
    drafter["drafted"] = each.drafted;
    drafter["accepted"] = each.accepted;
    Json positions = Json::array();
    for (std::size_t i = 0; i < each.drafted_at.size() && each.drafted_at[i] > 0; ++i) {
      positions.push_back({each.drafted_at[i], each.accepted_at[i]});
    }
    drafter["by_position"] = std::move(positions);
    drafter["token_ms"] = controller.drafting_ms(index, 2) - controller.drafting_ms(index, 1);
    drafter["reading_ms"] = each.reading_ms;
    list.push_back(std::move(drafter));
  }
  json["by_drafter"] = std::move(list);
  Json passes = Json::array();  // [rows, ms] of those that were run lately
  for (std::size_t rows = 1; rows <= DraftController::kMostDrafted + 1; ++rows) {
    if (controller.measured(rows)) passes.push_back({rows, controller.pass_ms(rows)});
  }
  json["pass_ms"] = std::move(passes);
  const auto known = [](double value) { return value > 0 ? Json(value) : Json(); };
  json["expected_tokens_per_pass"] = known(stats.formula_tokens());
  json["tokens_per_pass"] = known(
      stats.passes > 0 ? static_cast<double>(stats.tokens) / static_cast<double>(stats.passes) : 0);
  json["predicted_speedup"] = known(stats.predicted_speedup());
  json["measured_speedup"] = known(stats.measured_speedup());
  return json;
}

std::string describe_speculation(const Speculator* speculator) {
  if (speculator == nullptr) return "off";
  const SpeculationStats& stats = speculator->stats();
  if (stats.drafted() == 0) return "nothing drafted";
  std::string text =
      fmt::format("{} of {} drafted tokens accepted", stats.accepted(), stats.drafted());
  for (const SpeculationStats::PerDrafter& each : stats.drafters) {
    if (each.drafted == 0) continue;
    text += fmt::format("; {} {} of {}, by position", each.name, each.accepted, each.drafted);
    for (std::size_t i = 0; i < each.drafted_at.size() && each.drafted_at[i] > 0; ++i) {
      text += fmt::format(" {:.0f}%", 100.0 * static_cast<double>(each.accepted_at[i]) /
                                          static_cast<double>(each.drafted_at[i]));
    }
    if (each.reading_ms > 0) text += fmt::format(", the prompt read in {:.0f} ms", each.reading_ms);
  }
  text += fmt::format("; {:.2f} tokens a pass, by the formula {:.2f}",
                      static_cast<double>(stats.tokens) / static_cast<double>(stats.passes),
                      stats.formula_tokens());
  if (stats.measured_speedup() > 0) {
    text += fmt::format("; speed-up {:.2f}, predicted {:.2f}", stats.measured_speedup(),
                        stats.predicted_speedup());
  }
  return text;
}

}  // namespace sluice::cli

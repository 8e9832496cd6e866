#include "src/engine/speculation/speculator.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace sluice {

std::uint64_t SpeculationStats::drafted() const {
  std::uint64_t sum = 0;
  for (const PerDrafter& each : drafters) sum += each.drafted;
  return sum;
}

std::uint64_t SpeculationStats::accepted() const {
  std::uint64_t sum = 0;
  for (const PerDrafter& each : drafters) sum += each.accepted;
  return sum;
}

double SpeculationStats::acceptance() const {
  return drafted() == 0 ? 0 : static_cast<double>(accepted()) / static_cast<double>(drafted());
}

double SpeculationStats::formula_tokens() const {
  if (checked == 0 || passes == 0) return 1;
  const double a = static_cast<double>(accepted()) / static_cast<double>(checked);
  const double k = static_cast<double>(drafted()) / static_cast<double>(passes);
  return a < 1 ? (1 - std::pow(a, k + 1)) / (1 - a) : k + 1;
}

double SpeculationStats::predicted_speedup() const {
  return predicted_ms > 0 ? predicted_plain_ms / predicted_ms : 0;
}

double SpeculationStats::measured_speedup() const {
  return elapsed_ms > 0 ? static_cast<double>(tokens) / elapsed_ms * pass_ms : 0;
}

Speculator::Speculator(std::vector<std::unique_ptr<Drafter>> drafters, SpeculationOptions options,
                       std::shared_ptr<DraftController> controller)
    : drafters_(std::move(drafters)),
      options_(options),
      controller_(std::move(controller)),
      shared_(controller_ != nullptr) {
  if (!shared_) controller_ = std::make_shared<DraftController>(drafters_.size());
  for (std::size_t i = 0; i < drafters_.size(); ++i) {
    controller_->expect_drafting(i, drafters_[i]->expected_cost());
  }
}

bool Speculator::wants_hidden() const {
  return std::any_of(drafters_.begin(), drafters_.end(),
                     [](const auto& drafter) { return drafter->wants_hidden(); });
}

Status Speculator::begin(std::span<const std::int32_t> tokens, const SamplingParams& sampling,
                         std::uint32_t stream) {
  stats_ = {};
  last_ = {};
  one_row_ms_ = 0;
  one_row_passes_ = 0;
  for (const auto& drafter : drafters_) {
    stats_.drafters.push_back({std::string(drafter->name()), 0, 0, 0, {}, {}});
    SLUICE_RETURN_IF_ERROR(drafter->begin(tokens, sampling, stream));
  }
  return {};
}

Status Speculator::accept(std::int32_t token) {
  for (const auto& drafter : drafters_) SLUICE_RETURN_IF_ERROR(drafter->accept(token));
  return {};
}

Result<TokenTree> Speculator::propose(const DraftContext& context, std::size_t most,
                                      const PassLoad& beside) {
  std::vector<DraftController::Option> options;
  for (std::size_t i = 0; i < drafters_.size(); ++i) {
    const std::size_t confidence = drafters_[i]->peek();
    if (confidence < kDraftClasses) options.push_back({i, confidence});
  }
  DraftController::Plan plan = controller_->choose(options, std::min(most, options_.most), beside);
  if (options_.fixed_length > 0 && !options.empty()) {
    plan.drafter = options.front().drafter;
    plan.length = std::min(most, options_.fixed_length);
  }
  last_ = {};
  const std::int32_t root = context.tokens.back();
  if (plan.length == 0) {
    expect(plan, beside);
    return chain({root});
  }
  const bool may_stop = options_.fixed_length == 0;
  DraftContext asking = context;
  if (may_stop) {
    asking.worth_more = [&](std::span<const float> sure) {
      return controller_->worth_more(plan, sure, beside);
    };
  }
  const auto start = std::chrono::steady_clock::now();
  SLUICE_ASSIGN_OR_RETURN(Draft draft, drafters_[plan.drafter]->propose(asking, plan.length));
  const std::chrono::duration<double, std::milli> ms = std::chrono::steady_clock::now() - start;
  stats_.elapsed_ms += ms.count();
  stats_.drafters[plan.drafter].reading_ms += draft.reading_ms;
  const std::size_t made = std::min(draft.tokens.size(), plan.length);
  std::size_t verified = made;
  const bool says_how_sure =
      draft.parents.empty() && draft.sure.size() == draft.tokens.size() &&
      std::all_of(draft.sure.begin(), draft.sure.end(), [](float p) { return p >= 0 && p <= 1; });
  if (says_how_sure && may_stop) {
    verified = controller_->worth_verifying(plan, std::span(draft.sure).first(made), beside);
  }
  expect(plan, beside);
  if (made > 0) {
    controller_->observe_drafting(plan.drafter, made, std::max(0.0, ms.count() - draft.reading_ms));
  }
  // Whatever a drafter says: no more than asked for, and only tokens.
  TokenTree tree = usable_tree(root, draft, verified, context.vocabulary);
  last_.drafter = plan.drafter;
  last_.confidence = std::min(draft.confidence, kDraftClasses - 1);
  last_.length = tree.size() - 1;
  if (says_how_sure) {
    draft.sure.resize(made);
    last_.sure = std::move(draft.sure);
    if (last_.length == 0 && made > 0) {
      controller_->observe_sure(plan.drafter, last_.sure, 0, 0, 0);
    }
  }
  return tree;
}

void Speculator::expect(const DraftController::Plan& plan, const PassLoad& beside) {
  expected_ = plan.expected_tokens;
  if (plan.expected_ms <= 0) return;
  stats_.predicted_ms += plan.expected_ms;
  stats_.predicted_plain_ms += plan.expected_tokens * controller_->pass_ms(beside.rows + 1);
}

void Speculator::pass_done(std::size_t rows, double ms) {
  if (!shared_) controller_->observe_pass(rows, ms);
  ++stats_.passes;
  stats_.elapsed_ms += ms;
  if (rows == 1) {
    one_row_ms_ += ms;
    ++one_row_passes_;
  }
  stats_.pass_ms = one_row_passes_ > 0 ? one_row_ms_ / static_cast<double>(one_row_passes_)
                                       : controller_->pass_ms(1);
}

void Speculator::outcome(std::size_t checked, std::size_t accepted) {
  stats_.tokens += accepted + 1;
  if (last_.length == 0 || checked == 0) return;
  controller_->observe_outcome(last_.drafter, last_.confidence, checked, accepted);
  if (!last_.sure.empty()) {
    controller_->observe_sure(last_.drafter, last_.sure, last_.length, checked, accepted);
  }
  SpeculationStats::PerDrafter& counts = stats_.drafters[last_.drafter];
  counts.drafted += last_.length;
  counts.accepted += accepted;
  stats_.checked += checked;
  for (std::size_t i = 0; i < last_.length && i < counts.drafted_at.size(); ++i) {
    ++counts.drafted_at[i];
    if (i < accepted) ++counts.accepted_at[i];
  }
}

}  // namespace sluice

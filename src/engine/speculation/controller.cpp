#include "src/engine/speculation/controller.h"

#include <algorithm>
#include <cmath>

namespace sluice {
namespace {

constexpr double kPassMemory = 0.9;         // weight of the past at each observation
constexpr double kAcceptanceMemory = 0.98;  // about the last 50 drafts
// Before anything is measured: a row more costs little, and lookups of longer agreement are better
// guesses.
constexpr double kRowGuess = 0.08;
constexpr double kAcceptanceGuess[kDraftClasses] = {0.5, 0.6, 0.75, 0.9};
constexpr double kGuessWeight = 2;
// Estimates are noisy; a draft must promise a little more than nothing.
constexpr double kMargin = 1.02;
constexpr std::size_t kRarestProbe = 512;

}  // namespace

double expected_tokens(double acceptance, std::size_t drafted) {
  double sum = 1;
  double all = 1;
  for (std::size_t i = 0; i < drafted; ++i) sum += all *= acceptance;
  return sum;
}

void DraftController::Mean::add(double value, double memory) {
  sum = sum * memory + value;
  weight = weight * memory + 1;
}

DraftController::DraftController(std::size_t drafters) : drafters_(drafters) {}

void DraftController::observe_pass(std::size_t rows, double ms) {
  if (rows == 0 || rows >= pass_ms_.size()) return;
  Mean& mean = pass_ms_[rows];
  // One pass that the system held up must not forbid this length for good.
  const double known = mean.weight > 0 ? mean.sum / mean.weight : ms;
  mean.add(std::min(ms, 3 * known), kPassMemory);
}

double DraftController::pass_ms(std::size_t rows) const {
  if (pass_ms_[rows].weight > 0) return pass_ms_[rows].sum / pass_ms_[rows].weight;
  // The nearest number of rows that was measured, fewer first, with the guess for the difference.
  for (std::size_t distance = 1; distance < pass_ms_.size(); ++distance) {
    for (const bool fewer : {true, false}) {
      if (fewer && distance >= rows) continue;
      const std::size_t other = fewer ? rows - distance : rows + distance;
      if (other >= pass_ms_.size() || pass_ms_[other].weight == 0) continue;
      const double ms = pass_ms_[other].sum / pass_ms_[other].weight;
      const double guess = 1 + kRowGuess * static_cast<double>(rows - 1);
      return ms * guess / (1 + kRowGuess * static_cast<double>(other - 1));
    }
  }
  return 0;
}

double DraftController::acceptance(std::size_t drafter, std::size_t confidence,
                                   std::size_t position) const {
  const Mean& mean = drafters_[drafter].accepted[confidence][position];
  // Later positions are rarely seen: they lean on the one before.
  const double guess =
      position == 0 ? kAcceptanceGuess[confidence] : acceptance(drafter, confidence, position - 1);
  return (mean.sum + kGuessWeight * guess) / (mean.weight + kGuessWeight);
}

double DraftController::drafting_ms(std::size_t drafter, std::size_t length) const {
  const PerDrafter& each = drafters_[drafter];
  double ms = each.fixed_ms.weight > 0 ? each.fixed_ms.sum / each.fixed_ms.weight : 0;
  const double step =
      each.per_token_ms.weight > 0 ? each.per_token_ms.sum / each.per_token_ms.weight : ms;
  ms += step * static_cast<double>(length - 1);
  return ms;
}

void DraftController::observe_drafting(std::size_t drafter, std::size_t length, double ms) {
  PerDrafter& each = drafters_[drafter];
  if (length <= 1) {
    each.fixed_ms.add(ms, kPassMemory);
    return;
  }
  const double share = ms / static_cast<double>(length);
  each.per_token_ms.add(share, kPassMemory);
  if (each.fixed_ms.weight == 0) each.fixed_ms.add(share, kPassMemory);
}

void DraftController::observe_outcome(std::size_t drafter, std::size_t confidence,
                                      std::size_t drafted, std::size_t accepted) {
  auto& means = drafters_[drafter].accepted[confidence];
  for (std::size_t i = 0; i < accepted && i < kMostDrafted; ++i) {
    means[i].add(1, kAcceptanceMemory);
  }
  if (accepted < drafted && accepted < kMostDrafted) means[accepted].add(0, kAcceptanceMemory);
  if (accepted > 0) probe_after_ = 16;
}

DraftController::Plan DraftController::choose(std::span<const Option> options, std::size_t most,
                                              const PassLoad& beside) {
  Plan best;
  if (beside.rows + 1 > kMostRows) return best;
  best.expected_ms = pass_ms(beside.rows + 1);
  most = std::min({most, kMostDrafted, kMostRows - beside.rows - 1});
  if (options.empty() || most == 0) return best;
  const auto rate = [&beside](const Plan& plan) {
    return plan.expected_ms > 0 ? (beside.tokens + plan.expected_tokens) / plan.expected_ms : 0;
  };
  const auto cost = [&](std::size_t drafter, std::size_t length) {
    return pass_ms(beside.rows + 1 + length) + drafting_ms(drafter, length);
  };
  double best_rate = rate(best) * kMargin;
  for (const Option& option : options) {
    double all = 1;
    Plan plan = {option.drafter, 0, 1, 0};
    for (std::size_t k = 1; k <= most; ++k) {
      all *= acceptance(option.drafter, option.confidence, k - 1);
      plan.length = k;
      plan.expected_tokens += all;
      plan.expected_ms = cost(option.drafter, k);
      if (rate(plan) > best_rate) {
        best = plan;
        best_rate = rate(plan);
      }
    }
  }
  if (best.length > 0) {
    steps_without_draft_ = 0;
    return best;
  }
  if (++steps_without_draft_ < probe_after_) return best;
  steps_without_draft_ = 0;
  probe_after_ = std::min(2 * probe_after_, kRarestProbe);
  // The option most likely to be right.
  const Option& option =
      *std::max_element(options.begin(), options.end(), [this](const Option& a, const Option& b) {
        return acceptance(a.drafter, a.confidence, 0) < acceptance(b.drafter, b.confidence, 0);
      });
  const std::size_t length = std::min<std::size_t>(2, most);
  double all = 1;
  Plan probe = {option.drafter, length, 1, cost(option.drafter, length)};
  for (std::size_t k = 0; k < length; ++k) {
    all *= acceptance(option.drafter, option.confidence, k);
    probe.expected_tokens += all;
  }
  return probe;
}

}  // namespace sluice

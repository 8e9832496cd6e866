#include "src/engine/speculation/controller.h"

#include <algorithm>
#include <cmath>

namespace sluice {
namespace {

constexpr double kPassMemory = 0.9;         // weight of the past at each observation
constexpr double kAcceptanceMemory = 0.98;  // about the last 50 drafts
// Before anything is measured: a row more costs little, and lookups of longer agreement are better
// guesses.
constexpr double kRowGuess = 0.15;
constexpr std::size_t kNear = 6;  // rows
constexpr double kAcceptanceGuess[kDraftClasses] = {0.5, 0.6, 0.75, 0.9};
constexpr double kGuessWeight = 2;
// Estimates are noisy; a draft must promise a little more than nothing.
constexpr double kMargin = 1.02;
constexpr double kHope = 0.4;
constexpr std::size_t kRarestProbe = 512;
// Drafts that stop by themselves, before any was seen.
constexpr double kGrownMemory = 0.99;
constexpr double kSureMemory = 0.99;
constexpr double kGrownGuess = 3;
constexpr double kGrownAcceptedGuess = 2;

// Tenths, and two finer classes at the sure end, where most tokens are.
std::size_t sure_class(double sure) {
  if (sure >= 0.99) return 11;
  if (sure >= 0.95) return 10;
  return static_cast<std::size_t>(std::clamp(sure, 0.0, 0.9) * 10);
}

double rate_of(const DraftController::Plan& plan, const PassLoad& beside) {
  return plan.expected_ms > 0 ? (beside.tokens + plan.expected_tokens) / plan.expected_ms : 0;
}

}  // namespace

double expected_tokens(double acceptance, std::size_t drafted) {
  double sum = 1;
  double all = 1;
  for (std::size_t i = 0; i < drafted; ++i) sum += all *= acceptance;
  return sum;
}

void DraftController::Mean::add(double value, double memory) {
  forget(memory);
  sum += value;
  weight += 1;
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
  const auto guess = [](std::size_t r) { return 1 + kRowGuess * static_cast<double>(r - 1); };
  // A pass or two say little: neighbours count, the less the further away they are.
  double sum = 0;
  double weight = 0;
  const std::size_t last = std::min(rows + kNear, pass_ms_.size() - 1);
  for (std::size_t other = rows > kNear ? rows - kNear : 1; other <= last; ++other) {
    const Mean& mean = pass_ms_[other];
    if (mean.weight == 0) continue;
    const double distance = static_cast<double>(other) - static_cast<double>(rows);
    const double near = mean.weight / (1 + 8 * distance * distance);
    sum += near * (mean.sum / mean.weight) * guess(rows) / guess(other);
    weight += near;
  }
  if (weight > 0) return sum / weight;
  // The nearest number of rows that was measured, fewer first.
  for (std::size_t distance = 1; distance < pass_ms_.size(); ++distance) {
    for (const bool fewer : {true, false}) {
      if (fewer && distance >= rows) continue;
      const std::size_t other = fewer ? rows - distance : rows + distance;
      if (other >= pass_ms_.size() || pass_ms_[other].weight == 0) continue;
      const double ms = pass_ms_[other].sum / pass_ms_[other].weight;
      return ms * guess(rows) / guess(other);
    }
  }
  return 0;
}

double DraftController::pass_ms_between(double rows) const {
  const auto below = static_cast<std::size_t>(rows);
  const double part = rows - static_cast<double>(below);
  if (part == 0 || below + 1 >= pass_ms_.size()) return pass_ms(below);
  return (1 - part) * pass_ms(below) + part * pass_ms(below + 1);
}

double DraftController::acceptance(std::size_t drafter, std::size_t confidence,
                                   std::size_t position) const {
  const Mean& mean = drafters_[drafter].accepted[confidence][position];
  // Later positions are rarely seen: they lean on the one before.
  const double guess =
      position == 0 ? kAcceptanceGuess[confidence] : acceptance(drafter, confidence, position - 1);
  return mean.value_or(guess, kGuessWeight);
}

double DraftController::sure_acceptance(std::size_t drafter, double sure) const {
  // A drafter that knows itself is right as often as it says.
  return drafters_[drafter].accepted_sure[sure_class(sure)].value_or(sure, kGuessWeight);
}

double DraftController::drafting_ms(std::size_t drafter, double length) const {
  const PerDrafter& each = drafters_[drafter];
  double ms = each.fixed_ms.weight > 0 ? each.fixed_ms.sum / each.fixed_ms.weight
                                       : each.expected_share * pass_ms(1);
  const double step =
      each.per_token_ms.weight > 0 ? each.per_token_ms.sum / each.per_token_ms.weight : ms;
  return ms + step * std::max(0.0, length - 1);
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

void DraftController::observe_sure(std::size_t drafter, std::span<const float> sure,
                                   std::size_t verified, std::size_t checked,
                                   std::size_t accepted) {
  PerDrafter& each = drafters_[drafter];
  for (std::size_t i = 0; i < checked; ++i) {
    each.accepted_sure[sure_class(sure[i])].add(i < accepted ? 1 : 0, kSureMemory);
  }
  // What is left out is slowly forgotten, or bad luck at the beginning would last for ever.
  for (const float token : sure.subspan(verified)) {
    each.accepted_sure[sure_class(token)].forget(kSureMemory);
  }
  // What was to be expected says more than what happened once.
  double expected = 0;
  double reach = 1;
  for (const float token : sure.first(verified))
    expected += reach *= sure_acceptance(drafter, token);
  each.grown.add(static_cast<double>(sure.size()), kGrownMemory);
  each.grown_verified.add(static_cast<double>(verified), kGrownMemory);
  each.grown_accepted.add(expected, kGrownMemory);
}

DraftController::Plan DraftController::grown_plan(const Option& option, std::size_t most,
                                                  const PassLoad& beside) const {
  const PerDrafter& each = drafters_[option.drafter];
  const auto limit = static_cast<double>(most);
  const double grown = std::min(limit, each.grown.value_or(kGrownGuess, kGuessWeight));
  const double verified = std::min(limit, each.grown_verified.value_or(kGrownGuess, kGuessWeight));
  const double accepted =
      std::min(limit, each.grown_accepted.value_or(kGrownAcceptedGuess, kGuessWeight));
  Plan plan = {option.drafter, most, 1 + accepted, 0, 0, option.confidence};
  plan.expected_ms = pass_ms_between(static_cast<double>(beside.rows + 1) + verified) +
                     drafting_ms(option.drafter, grown);
  plan.rate = rate_of(plan, beside);
  return plan;
}

bool DraftController::worth_more(const Plan& plan, std::span<const float> sure,
                                 const PassLoad& beside) const {
  if (plan.rate <= 0) return true;
  double reach = 1;
  for (const float each : sure) reach *= sure_acceptance(plan.drafter, each);
  // Nothing is known of the next token but how often those at its place were right.
  const std::size_t length = sure.size();
  const double gain =
      reach * acceptance(plan.drafter, plan.confidence, std::min(length, kMostDrafted - 1));
  const double row_ms =
      std::max(0.0, pass_ms(beside.rows + 2 + length) - pass_ms(beside.rows + 1 + length));
  const double step_ms = drafting_ms(plan.drafter, 2) - drafting_ms(plan.drafter, 1);
  return gain > plan.rate * (step_ms + row_ms);
}

std::size_t DraftController::worth_verifying(Plan& plan, std::span<const float> sure,
                                             const PassLoad& beside) const {
  double reach = 1;
  double expected = 1;
  std::size_t best = 0;
  double best_surplus = 0;
  plan.expected_tokens = 1;
  const double alone = pass_ms(beside.rows + 1);
  for (std::size_t i = 0; i < sure.size(); ++i) {
    expected += reach *= sure_acceptance(plan.drafter, sure[i]);
    const double surplus = expected - 1 - plan.rate * (pass_ms(beside.rows + 2 + i) - alone);
    if (surplus <= best_surplus && !plan.probe) continue;
    best = i + 1;
    best_surplus = surplus;
    plan.expected_tokens = expected;
  }
  plan.expected_ms =
      pass_ms(beside.rows + 1 + best) + drafting_ms(plan.drafter, static_cast<double>(sure.size()));
  return best;
}

DraftController::Plan DraftController::choose(std::span<const Option> options, std::size_t most,
                                              const PassLoad& beside) {
  Plan best;
  if (beside.rows + 1 > kMostRows) return best;
  best.expected_ms = pass_ms(beside.rows + 1);
  most = std::min({most, kMostDrafted, kMostRows - beside.rows - 1});
  if (options.empty() || most == 0) return best;
  const auto cost = [&](std::size_t drafter, std::size_t length) {
    return pass_ms(beside.rows + 1 + length) + drafting_ms(drafter, static_cast<double>(length));
  };
  best.rate = rate_of(best, beside);
  double best_rate = best.rate * kMargin;
  for (const Option& option : options) {
    if (drafters_[option.drafter].grown.weight > 0) {
      // Instead of a margin, hope: such drafts cost little where they do not pay, and little is
      // known after a few. (An upper confidence bound, as for bandits.)
      const Plan plan = grown_plan(option, most, beside);
      const double hoped =
          plan.rate * (1 + kHope / std::sqrt(drafters_[option.drafter].grown.weight));
      if (hoped > best_rate) {
        best = plan;
        best_rate = hoped;
      }
      continue;
    }
    double all = 1;
    Plan plan = {option.drafter, 0, 1, 0, 0, option.confidence};
    for (std::size_t k = 1; k <= most; ++k) {
      all *= acceptance(option.drafter, option.confidence, k - 1);
      plan.length = k;
      plan.expected_tokens += all;
      plan.expected_ms = cost(option.drafter, k);
      plan.rate = rate_of(plan, beside);
      if (plan.rate > best_rate) {
        best = plan;
        best_rate = plan.rate;
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
  if (drafters_[option.drafter].grown.weight > 0) {  // it stops by itself
    Plan probe = grown_plan(option, most, beside);
    probe.rate = best.rate;
    probe.probe = true;
    return probe;
  }
  const std::size_t length = std::min<std::size_t>(2, most);
  double all = 1;
  Plan probe = {option.drafter, length,           1, cost(option.drafter, length),
                best.rate,      option.confidence};
  for (std::size_t k = 0; k < length; ++k) {
    all *= acceptance(option.drafter, option.confidence, k);
    probe.expected_tokens += all;
  }
  return probe;
}

}  // namespace sluice

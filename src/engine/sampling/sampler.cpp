#include "src/engine/sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "src/base/rng.h"
#include "src/engine/sampling/logprobs.h"

namespace sluice {
namespace {

// A logit moved by biases or penalties. It stays a finite float, so a penalty never bans a token
// and never makes an infinity; NaN and infinities pass unchanged, to be found later.
float finite_float(double value) {
  constexpr double kLimit = std::numeric_limits<float>::max();
  return static_cast<float>(std::clamp(value, -kLimit, kLimit));
}

// The chain's own window of penalties: 0 if none of them does anything.
std::int32_t penalty_window(const SamplingParams& params) {
  const bool any =
      params.repeat_penalty != 1 || params.presence_penalty != 0 || params.frequency_penalty != 0;
  return any ? params.repeat_last_n : 0;
}

std::vector<LogitBias> merged(const std::vector<LogitBias>& biases) {
  std::map<std::int32_t, double> sums;
  for (const LogitBias& bias : biases) sums[bias.token] += bias.bias;
  std::vector<LogitBias> result;
  for (const auto& [token, bias] : sums) result.push_back({token, bias});
  return result;
}

}  // namespace

Result<Sampler> Sampler::create(SamplingParams params, std::size_t vocab_size, std::uint32_t stream,
                                PieceOf piece_of) {
  SLUICE_RETURN_IF_ERROR(validate(params));
  if (vocab_size == 0 ||
      vocab_size > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max())) {
    return failed("a vocabulary of {} tokens cannot be sampled from; expected 1 to 2^31 - 1",
                  vocab_size);
  }
  for (const LogitBias& bias : params.logit_bias) {
    if (bias.token < 0 || static_cast<std::size_t>(bias.token) >= vocab_size) {
      return make_error(ErrorCode::kUsage, "logit-bias names token {}; expected an id from 0 to {}",
                        bias.token, vocab_size - 1);
    }
  }
  const bool dry = params.dry_multiplier > 0 && params.dry_penalty_last_n != 0;
  if (dry && !params.dry_sequence_breakers.empty() && !piece_of) {
    return failed("DRY with sequence breakers needs the texts of the tokens");
  }
  return Sampler(std::move(params), vocab_size, stream, std::move(piece_of));
}

Sampler::Sampler(SamplingParams params, std::size_t vocab_size, std::uint32_t stream,
                 PieceOf piece_of)
    : params_(std::move(params)),
      vocab_size_(vocab_size),
      stream_(stream),
      biases_(merged(params_.logit_bias)),
      history_(vocab_size, penalty_window(params_)),
      dry_(params_, std::move(piece_of)),
      passes_(&best_passes()),
      selector_(*passes_),
      block_max_(scan_blocks(vocab_size)) {
  if (mirostat()) mu_.push_back(2 * params_.mirostat_tau);
}

Status Sampler::accept(std::int32_t token) { return accept(std::span(&token, 1)); }

Status Sampler::accept(std::span<const std::int32_t> tokens) {
  for (const std::int32_t token : tokens) {
    if (token < 0 || static_cast<std::size_t>(token) >= vocab_size_) {
      return failed("token {} is outside the vocabulary; expected an id from 0 to {}", token,
                    vocab_size_ - 1);
    }
  }
  for (const std::int32_t token : tokens) push(token);
  return {};
}

void Sampler::push(std::int32_t token) {
  history_.push(token);
  dry_.push(history_.tokens());
  if (!mirostat()) return;
  double mu = mu_.back();
  const double p = drawn_from_known_ ? drawn_from_.probability_of(token) : 0;
  if (p > 0) mu -= params_.mirostat_eta * (-std::log2(p) - params_.mirostat_tau);
  mu_.push_back(mu);
  drawn_from_known_ = false;
}

Status Sampler::truncate(std::size_t length) {
  if (length > position()) {
    return failed("cannot shorten a sequence of {} tokens to {}", position(), length);
  }
  history_.truncate(length);
  if (dry_.enabled()) dry_.truncate(length);
  if (mirostat()) mu_.resize(length + 1);
  drawn_from_known_ = false;
  return {};
}

std::uint64_t Sampler::random_bits(RandomUse use) const {
  return sluice::random_bits(params_.seed, stream_, position(), static_cast<std::uint32_t>(use));
}

std::size_t Sampler::top_needed(std::size_t more) const {
  const SamplingParams& p = params_;
  const bool cuts = p.top_k > 0 && static_cast<std::size_t>(p.top_k) < vocab_size_;
  if (mirostat() || dry_.enabled() || (!greedy() && !cuts)) return 0;
  // A token that is made less likely makes room for one that follows; one that is made likelier may
  // come from anywhere.
  const bool raises = p.repeat_penalty < 1 || p.presence_penalty < 0 || p.frequency_penalty < 0;
  if (raises && penalty_window(p) != 0) return 0;
  for (const LogitBias& bias : biases_) {
    if (!(bias.bias <= 0)) return 0;
  }
  const std::size_t lowered =
      biases_.size() + (penalty_window(p) != 0 ? history_.counts().size() + more : 0);
  return (greedy() ? 1 : static_cast<std::size_t>(p.top_k)) + lowered;
}

std::span<const float> Sampler::adjust(const LogitRow& row) {
  const std::span<const float> logits = row.logits;
  const std::span<const TokenCount> counts = history_.counts();
  const std::span<const DryPenalty::Repeat> repeats = dry_.repeats(history_.tokens());
  if (biases_.empty() && counts.empty() && repeats.empty()) return logits;

  adjusted_.assign(logits.begin(), logits.end());
  float unseen = 0;  // of a token that is not in the row, which nobody reads
  const auto logit_of = [&](std::int32_t token) -> float& {
    if (row.ids == nullptr) return adjusted_[static_cast<std::size_t>(token)];
    const std::int32_t* end = row.ids + logits.size();
    const std::int32_t* at = std::lower_bound(row.ids, end, token);
    return at != end && *at == token ? adjusted_[static_cast<std::size_t>(at - row.ids)] : unseen;
  };
  for (const LogitBias& bias : biases_) {
    float& logit = logit_of(bias.token);
    if (std::isinf(bias.bias) && logit < std::numeric_limits<float>::infinity()) {
      logit = -std::numeric_limits<float>::infinity();
    } else if (std::isfinite(logit)) {
      logit = finite_float(double{logit} + bias.bias);
    }
  }
  for (const TokenCount& seen : counts) {
    float& logit = logit_of(seen.token);
    if (!std::isfinite(logit)) continue;
    // Dividing a negative logit would make the token likelier.
    const double scaled =
        logit > 0 ? double{logit} / params_.repeat_penalty : double{logit} * params_.repeat_penalty;
    logit =
        finite_float(scaled - seen.count * params_.frequency_penalty - params_.presence_penalty);
  }
  for (const DryPenalty::Repeat& repeat : repeats) {
    float& logit = logit_of(repeat.token);
    if (std::isfinite(logit)) logit = finite_float(double{logit} - dry_.penalty(repeat.length));
  }
  return adjusted_;
}

void Sampler::filter(const Pool& vocabulary, CandidateList& list) {
  const SamplingParams& p = params_;
  if (mirostat()) {
    selector_.surprise_at_most(vocabulary, p.temperature, mu_.back(), list);
    return;
  }
  // Each filter reads the pool and writes a list, which becomes the next one's pool.
  Pool pool = vocabulary;
  CandidateList* in = &lists_[1];
  CandidateList* out = &list;
  const auto next = [&] {
    std::swap(in, out);
    list_block_max_.resize(std::max(list_block_max_.size(), scan_blocks(in->count)));
    pool.logits = {in->logits.data(), in->count};
    pool.ids = in->ids.data();
    pool.max = passes_->scan(in->logits.data(), in->count, list_block_max_.data()).max;
    pool.block_max = {list_block_max_.data(), scan_blocks(in->count)};
  };
  if (p.top_k > 0 && static_cast<std::size_t>(p.top_k) < vocab_size_) {
    selector_.top_k(pool, static_cast<std::size_t>(p.top_k), *out);
    next();
  }
  if (p.typical_p < 1) {
    selector_.typical(pool, p.typical_p, *out);
    next();
  }
  selector_.nucleus(pool, p.top_p, p.min_p, *out);
  if (p.xtc_probability > 0 && unit_interval(random_bits(RandomUse::kXtc)) < p.xtc_probability) {
    selector_.exclude_top(*out, pool.max, p.xtc_threshold);
  }
  if (out != &list) std::swap(*out, list);
}

void Sampler::normalise(const CandidateList& list, Distribution& out) {
  const std::size_t n = list.count;
  list_block_max_.resize(std::max(list_block_max_.size(), scan_blocks(n)));
  const double max = passes_->scan(list.logits.data(), n, list_block_max_.data()).max;
  weights_.resize(std::max(weights_.size(), n));
  passes_->weights(list.logits.data(), n, max, params_.temperature, weights_.data());
  const double total = ordered_sum(weights_.data(), n);
  out.ids.resize(n);
  out.probabilities.resize(n);
  std::size_t kept = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const double p = weights_[i] / total;
    out.ids[kept] = list.ids[i];
    out.probabilities[kept] = p;
    kept += static_cast<std::size_t>(p > 0);  // far below the best it rounds to 0
  }
  out.ids.resize(kept);
  out.probabilities.resize(kept);
}

Status Sampler::distribution(const LogitRow& row, Distribution& out) {
  const std::size_t given = row.logits.size();
  if (row.ids == nullptr ? given != vocab_size_ : given == 0 || given > vocab_size_) {
    return failed("got {} logits for position {}; expected {}, the size of the vocabulary", given,
                  position(), vocab_size_);
  }
  const std::span<const float> adjusted = adjust(row);
  const ScanResult scan = passes_->scan(adjusted.data(), adjusted.size(), block_max_.data());
  if (scan.has_nan || !std::isfinite(scan.max)) return unusable_logits(adjusted, position());

  const Pool vocabulary{adjusted, row.ids,
                        std::span(block_max_).first(scan_blocks(adjusted.size())), scan.max};
  if (greedy()) {
    out.ids.assign(1, vocabulary.id(Selector::best(vocabulary)));
    out.probabilities.assign(1, 1.0);
  } else {
    filter(vocabulary, lists_[0]);
    normalise(lists_[0], out);
  }
  if (mirostat()) {
    drawn_from_ = out;
    drawn_from_known_ = true;
  }
  return {};
}

Result<TokenChoice> Sampler::sample(const LogitRow& row) {
  SLUICE_RETURN_IF_ERROR(distribution(row, sampled_));
  const std::size_t i = draw_race(sampled_, random_bits(RandomUse::kToken));
  return TokenChoice{sampled_.ids[i], sampled_.probabilities[i], sampled_.size()};
}

SamplerState Sampler::state() const {
  const std::span<const std::int32_t> tokens = history_.tokens();
  return {params_.seed, stream_, {tokens.begin(), tokens.end()}, mu_};
}

Status Sampler::restore(const SamplerState& state) {
  for (const std::int32_t token : state.history) {
    if (token < 0 || static_cast<std::size_t>(token) >= vocab_size_) {
      return bad_input(
          "the saved sequence has token {}; expected ids from 0 to {}: was it saved "
          "with another model?",
          token, vocab_size_ - 1);
    }
  }
  const std::size_t expected = mirostat() ? state.history.size() + 1 : 0;
  if (state.mirostat_mu.size() != expected) {
    return bad_input(
        "the saved sampler state has {} mirostat values; expected {}: mirostat must be "
        "set as it was when the sequence was saved",
        state.mirostat_mu.size(), expected);
  }
  for (const double mu : state.mirostat_mu) {
    if (!std::isfinite(mu)) return bad_input("the sampler state has a mirostat value of {}", mu);
  }
  SLUICE_RETURN_IF_ERROR(truncate(0));
  for (const std::int32_t token : state.history) push(token);
  mu_ = state.mirostat_mu;
  params_.seed = state.seed;
  stream_ = state.stream;
  return {};
}

}  // namespace sluice

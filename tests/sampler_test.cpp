#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "src/base/rng.h"
#include "src/engine/sampling/logprobs.h"
#include "src/engine/sampling/resolve.h"
#include "src/engine/sampling/sampler.h"

using namespace sluice;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// ---- The oracle: full sorts, plain loops, doubles. -------------------------------------------

struct Item {
  std::int32_t id;
  double logit;
};

std::vector<double> oracle_weights(const std::vector<Item>& items, double temperature) {
  double max = -INFINITY;
  for (const Item& item : items) max = std::max(max, item.logit);
  std::vector<double> w;
  for (const Item& item : items) {
    const double d = (item.logit - max) / temperature;
    w.push_back(d < -708 ? 0.0 : std::exp(d));
  }
  return w;
}

double total(const std::vector<double>& w) { return std::accumulate(w.begin(), w.end(), 0.0); }

float clamp_float(double x) {
  constexpr double m = std::numeric_limits<float>::max();
  return static_cast<float>(std::min(m, std::max(-m, x)));
}

struct Oracle {
  SamplingParams p;
  std::uint32_t stream = 0;
  std::vector<std::string> pieces;  // for DRY
  std::vector<std::int32_t> history;
  double mu = 0;

  explicit Oracle(SamplingParams params) : p(std::move(params)), mu(2 * p.mirostat_tau) {}

  bool breaks_at(std::size_t i) const {  // does a breaker end in token i of the history?
    std::string before, piece = pieces[static_cast<std::size_t>(history[i])];
    for (std::size_t j = 0; j < i; ++j) before += pieces[static_cast<std::size_t>(history[j])];
    const std::string text = before + piece;
    for (const std::string& b : p.dry_sequence_breakers) {
      for (std::size_t end = before.size() + 1; end <= text.size(); ++end) {
        if (end >= b.size() && text.compare(end - b.size(), b.size(), b) == 0) return true;
      }
    }
    return false;
  }

  void penalise(std::vector<float>& x) const {
    std::map<std::int32_t, double> bias;
    for (const LogitBias& b : p.logit_bias) bias[b.token] += b.bias;
    for (const auto& [id, b] : bias) {
      float& v = x[static_cast<std::size_t>(id)];
      if (std::isinf(b)) {
        v = -kInf;
      } else if (std::isfinite(v)) {
        v = clamp_float(v + b);
      }
    }
    const std::size_t n = history.size();
    const std::size_t window =
        p.repeat_last_n < 0 ? n
                            : std::min<std::size_t>(n, static_cast<std::size_t>(p.repeat_last_n));
    std::map<std::int32_t, int> counts;
    for (std::size_t i = n - window; i < n; ++i) ++counts[history[i]];
    for (const auto& [id, count] : counts) {
      float& v = x[static_cast<std::size_t>(id)];
      if (!std::isfinite(v)) continue;
      double d = v > 0 ? v / p.repeat_penalty : v * p.repeat_penalty;
      d = d - count * p.frequency_penalty - p.presence_penalty;
      v = clamp_float(d);
    }
    if (p.dry_multiplier == 0 || p.dry_penalty_last_n == 0) return;
    const std::size_t m =
        p.dry_penalty_last_n < 0
            ? n
            : std::min<std::size_t>(n, static_cast<std::size_t>(p.dry_penalty_last_n));
    const std::size_t first = n - m;
    std::map<std::int32_t, std::size_t> longest;
    for (std::size_t next = first + 1; next < n; ++next) {
      // How many tokens before `next` equal the last tokens of the history?
      std::size_t length = 0;
      while (length < next - first && history[next - 1 - length] == history[n - 1 - length] &&
             !breaks_at(n - 1 - length)) {
        ++length;
      }
      if (length >= static_cast<std::size_t>(p.dry_allowed_length)) {
        longest[history[next]] = std::max(longest[history[next]], length);
      }
    }
    for (const auto& [id, length] : longest) {
      const std::string& piece = pieces[static_cast<std::size_t>(id)];
      bool breaker = false;
      for (const std::string& b : p.dry_sequence_breakers) {
        breaker = breaker || piece.find(b) != std::string::npos;
      }
      float& v = x[static_cast<std::size_t>(id)];
      if (breaker || !std::isfinite(v)) continue;
      v = clamp_float(v - p.dry_multiplier * std::pow(p.dry_base, static_cast<double>(length) -
                                                                      p.dry_allowed_length));
    }
  }

  // Sorted by descending probability.
  std::vector<std::pair<std::int32_t, double>> run(std::vector<float> x) const {
    penalise(x);
    std::vector<Item> items;
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (x[i] != -kInf) items.push_back({static_cast<std::int32_t>(i), x[i]});
    }
    const auto order = [](const Item& a, const Item& b) {
      return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
    };
    std::sort(items.begin(), items.end(), order);
    if (p.temperature == 0) return {{items[0].id, 1.0}};
    if (p.mirostat == 2) {
      const auto w = oracle_weights(items, p.temperature);
      const double z = total(w);
      std::size_t kept = 0;
      while (kept < items.size() && -std::log2(w[kept] / z) <= mu) ++kept;
      items.resize(std::max<std::size_t>(1, kept));
    } else {
      if (p.top_k > 0 && static_cast<std::size_t>(p.top_k) < items.size()) {
        items.resize(static_cast<std::size_t>(p.top_k));
      }
      if (p.typical_p < 1) {
        const auto w = oracle_weights(items, 1);
        const double z = total(w);
        double mean = 0;
        for (std::size_t i = 0; i < items.size(); ++i) {
          if (w[i] > 0) mean += w[i] / z * (items[i].logit - items[0].logit);
        }
        mean += items[0].logit;
        std::vector<std::size_t> by(items.size());
        std::iota(by.begin(), by.end(), std::size_t{0});
        std::stable_sort(by.begin(), by.end(), [&](std::size_t a, std::size_t b) {
          return std::fabs(items[a].logit - mean) < std::fabs(items[b].logit - mean);
        });
        std::vector<Item> kept;
        double sum = 0;
        for (const std::size_t i : by) {
          kept.push_back(items[i]);
          sum += w[i];
          if (sum >= p.typical_p * z * (1 - kMassTolerance)) break;
        }
        std::sort(kept.begin(), kept.end(), order);
        items = kept;
      }
      if (p.top_p < 1) {
        const auto w = oracle_weights(items, 1);
        const double z = total(w);
        double sum = 0;
        std::size_t kept = 0;
        do {
          sum += w[kept++];
        } while (sum < p.top_p * z * (1 - kMassTolerance) && kept < items.size());
        items.resize(kept);
      }
      if (p.min_p > 0) {
        const double low = items[0].logit + std::log(p.min_p);
        while (items.back().logit < low) items.pop_back();
      }
      if (p.xtc_probability > 0 && uniform(p.seed, stream, history.size(), 1) < p.xtc_probability) {
        const auto w = oracle_weights(items, 1);
        const double z = total(w);
        std::size_t above = 0;
        while (above < items.size() && w[above] / z >= p.xtc_threshold) ++above;
        if (above >= 2) items.erase(items.begin(), items.begin() + static_cast<long>(above) - 1);
      }
    }
    const auto w = oracle_weights(items, p.temperature);
    const double z = total(w);
    std::vector<std::pair<std::int32_t, double>> result;
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (w[i] / z > 0) result.emplace_back(items[i].id, w[i] / z);
    }
    return result;
  }
};

// ---- Helpers -----------------------------------------------------------------------------------

// Every filter off, temperature 1.
SamplingParams plain() {
  SamplingParams p;
  p.temperature = 1;
  p.top_k = 0;
  p.top_p = 1;
  p.min_p = 0;
  return p;
}

Sampler make(const SamplingParams& p, std::size_t vocab, std::uint32_t stream = 0,
             PieceOf piece_of = {}) {
  auto sampler = Sampler::create(p, vocab, stream, std::move(piece_of));
  REQUIRE_MESSAGE(sampler.ok(), sampler.error().message);
  return std::move(sampler).value();
}

Distribution distribution_of(Sampler& sampler, const std::vector<float>& logits) {
  Distribution d;
  const Status status = sampler.distribution(logits, d);
  REQUIRE_MESSAGE(status.ok(), status.error().message);
  return d;
}

std::vector<std::int32_t> kept_ids(const SamplingParams& p, const std::vector<float>& logits) {
  Sampler sampler = make(p, logits.size());
  return distribution_of(sampler, logits).ids;
}

std::vector<float> logs(std::initializer_list<double> probabilities) {
  std::vector<float> x;
  for (const double p : probabilities) x.push_back(static_cast<float>(std::log(p)));
  return x;
}

using Ids = std::vector<std::int32_t>;

bool mentions(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

void check_equal(const Distribution& got, std::vector<std::pair<std::int32_t, double>> expected) {
  std::sort(expected.begin(), expected.end());
  Ids ids;
  for (const auto& entry : expected) ids.push_back(entry.first);
  REQUIRE(got.ids == ids);
  double sum = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    CHECK(std::fabs(got.probabilities[i] - expected[i].second) <= 1e-12);
    sum += got.probabilities[i];
  }
  CHECK(std::fabs(sum - 1) <= 1e-12);
}

}  // namespace

// ---- Boundary values ---------------------------------------------------------------------------

TEST_CASE("top-k: zero, negative and too large keep all, ties go to the lower id") {
  const auto x = logs({0.1, 0.2, 0.3, 0.4});
  SamplingParams p = plain();
  for (const std::int32_t k : {0, -1, -2000000000, 4, 5, 2000000000}) {
    p.top_k = k;
    CHECK(kept_ids(p, x).size() == 4);
  }
  p.top_k = 1;
  CHECK(kept_ids(p, x) == Ids{3});
  p.top_k = 3;
  CHECK(kept_ids(p, x) == Ids{1, 2, 3});
  CHECK(kept_ids(p, {5, 1, 5, 5, 5, 7}) == Ids{0, 2, 5});
  CHECK(kept_ids(p, {0.0f, -0.0f, 0.0f, -0.0f}) == Ids{0, 1, 2});
}

TEST_CASE("top-p: 0 keeps one, 1 keeps all, a share that is met but for rounding is met") {
  const auto x = logs({0.1, 0.2, 0.3, 0.4});
  SamplingParams p = plain();
  const auto kept = [&](double top_p) {
    p.top_p = top_p;
    return kept_ids(p, x);
  };
  CHECK(kept(0) == Ids{3});
  CHECK(kept(0.4) == Ids{3});
  CHECK(kept(0.41) == Ids{2, 3});
  CHECK(kept(0.7) == Ids{2, 3});
  CHECK(kept(0.8) == Ids{1, 2, 3});
  CHECK(kept(0.9) == Ids{1, 2, 3});
  CHECK(kept(0.95) == Ids{0, 1, 2, 3});
  CHECK(kept(1) == Ids{0, 1, 2, 3});
  // What is left is renormalised.
  p.top_p = 0.7;
  Sampler sampler = make(p, 4);
  const Distribution d = distribution_of(sampler, x);
  CHECK(d.probability_of(3) == doctest::Approx(0.4 / 0.7));
  CHECK(d.probability_of(0) == 0);
  CHECK(d.ids[d.best()] == 3);
}

TEST_CASE("min-p: 0 keeps all, 1 keeps the best and its equals") {
  const auto x = logs({0.1, 0.2, 0.3, 0.4});
  SamplingParams p = plain();
  const auto kept = [&](double min_p) {
    p.min_p = min_p;
    return kept_ids(p, x).size();
  };
  CHECK(kept(0) == 4);
  CHECK(kept(0.24) == 4);
  CHECK(kept(0.26) == 3);
  CHECK(kept(0.49) == 3);
  CHECK(kept(0.51) == 2);
  CHECK(kept(0.74) == 2);
  CHECK(kept(0.76) == 1);
  CHECK(kept(1) == 1);
  CHECK(kept(5e-324) == 4);
  p.min_p = 1;
  CHECK(kept_ids(p, {3, 4, 4, 1}) == Ids{1, 2});
}

TEST_CASE("typical drops the obvious when the rest is nearer the entropy") {
  SamplingParams p = plain();
  p.typical_p = 0.5;
  CHECK(kept_ids(p, logs({0.97, 0.01, 0.01, 0.01})) == Ids{0});
  CHECK(kept_ids(p, logs({0.4, 0.2, 0.2, 0.2})) == Ids{1, 2, 3});
  p.typical_p = 0;
  CHECK(kept_ids(p, logs({0.4, 0.2, 0.2, 0.2})) == Ids{1});
  p.typical_p = 1;
  CHECK(kept_ids(p, logs({0.4, 0.2, 0.2, 0.2})).size() == 4);
}

TEST_CASE("XTC leaves the least of the top choices") {
  SamplingParams p = plain();
  p.xtc_probability = 1;
  const auto x = logs({0.4, 0.3, 0.2, 0.1});
  const auto kept = [&](double threshold) {
    p.xtc_threshold = threshold;
    return kept_ids(p, x);
  };
  CHECK(kept(0.099) == Ids{3});
  CHECK(kept(0.15) == Ids{2, 3});
  CHECK(kept(0.25) == Ids{1, 2, 3});
  CHECK(kept(0.35) == Ids{0, 1, 2, 3});  // a single top choice stays
  CHECK(kept(0.6) == Ids{0, 1, 2, 3});
  CHECK(kept(0) == Ids{3});
  p.xtc_threshold = 0.1;
  CHECK(kept_ids(p, {5, 5, 5, 0}) == Ids{2, 3});  // of equals the last id stays
  p.xtc_probability = 0;
  CHECK(kept(0.15).size() == 4);
}

TEST_CASE("XTC happens as often as it should") {
  SamplingParams p = plain();
  p.xtc_probability = 0.3;
  Sampler sampler = make(p, 3);
  int happened = 0;
  for (int i = 0; i < 4000; ++i) {
    happened += distribution_of(sampler, {2, 2, -1}).size() == 2;
    REQUIRE(sampler.accept(0).ok());
  }
  CHECK(happened > 1080);  // 1200 +- 4 standard deviations
  CHECK(happened < 1320);
}

TEST_CASE("temperature 0 is the first of the largest logits, whatever the filters say") {
  SamplingParams p;
  p.temperature = 0;
  p.xtc_probability = 1;
  p.typical_p = 0.1;
  p.top_k = 5;
  std::vector<float> x(100, -3.0f);
  x[37] = x[38] = x[99] = 2.5f;
  Sampler sampler = make(p, 100);
  const Distribution d = distribution_of(sampler, x);
  CHECK(d.ids == Ids{37});
  CHECK(d.probabilities == std::vector<double>{1.0});
  CHECK(sampler.sample(x)->id == 37);
}

TEST_CASE("extreme temperatures neither divide by zero nor choose the impossible") {
  SamplingParams p = plain();
  const std::vector<float> x = {1, 3, 3, 2, -kInf};
  for (const double t : {5e-324, 1e-300, 1e-30, 1e-3}) {
    p.temperature = t;
    Sampler sampler = make(p, 5);
    const Distribution d = distribution_of(sampler, x);
    CHECK(d.ids == Ids{1, 2});
    CHECK(d.probabilities[0] == 0.5);
  }
  p.temperature = 1000;
  CHECK(kept_ids(p, x) == Ids{0, 1, 2, 3});
  p.temperature = 1;
  CHECK(kept_ids(p, {3e38f, -3e38f, 0}) == Ids{0});
}

TEST_CASE("one candidate, one token, and banned tokens") {
  CHECK(kept_ids(SamplingParams{}, {-7.0f}) == Ids{0});
  CHECK(kept_ids(plain(), {-kInf, 2, -kInf}) == Ids{1});
  SamplingParams p = plain();
  p.logit_bias = {{1, -INFINITY}};
  CHECK(kept_ids(p, {1, 50, 1}) == Ids{0, 2});
  p.top_k = 2;  // fewer allowed tokens than k
  CHECK(kept_ids(p, {1, 50, -kInf}) == Ids{0});
  p.temperature = 0;
  CHECK(kept_ids(p, {1, 50, 2}) == Ids{2});
}

TEST_CASE("logits that are NaN, infinite or all banned are an error that says so") {
  for (const std::size_t n : {1u, 31u, 32u, 33u, 1000u}) {
    for (const bool greedy : {false, true}) {
      SamplingParams p;
      if (greedy) p.temperature = 0;
      Sampler sampler = make(p, n);
      for (std::size_t at = 0; at<n; at += n> 100 ? 97 : 1) {
        for (const float bad : {kNan, kInf}) {
          std::vector<float> x(n, 1.0f);
          x[at] = bad;
          const auto choice = sampler.sample(x);
          REQUIRE_FALSE(choice.ok());
          CHECK(choice.error().code == ErrorCode::kFailed);
          CHECK(mentions(choice.error().message, "not usable"));
          CHECK(mentions(choice.error().message, fmt::format("1 of {} are NaN", n)));
          CHECK(mentions(choice.error().message, fmt::format("token {}", at)));
        }
      }
      const auto banned = sampler.sample(std::vector<float>(n, -kInf));
      REQUIRE_FALSE(banned.ok());
      CHECK(mentions(banned.error().message, "every token is banned"));
    }
  }
  // Also behind a bias, and named with the position.
  SamplingParams p;
  p.logit_bias = {{0, -INFINITY}, {1, 5}};
  Sampler sampler = make(p, 3);
  REQUIRE(sampler.accept(Ids{2, 2, 2, 2}).ok());
  for (const auto& x : std::vector<std::vector<float>>{{kNan, 0, 0}, {kInf, 0, 0}, {0, kNan, 0}}) {
    const auto choice = sampler.sample(x);
    REQUIRE_FALSE(choice.ok());
    CHECK(mentions(choice.error().message, "position 4"));
  }
  CHECK_FALSE(sampler.sample(std::vector<float>{1, -kInf, -kInf}).ok());
  CHECK(mentions(sampler.sample(std::vector<float>{1, 2}).error().message, "expected 3"));
  CHECK_FALSE(sampler.sample(std::vector<float>()).ok());
}

// ---- Penalties ---------------------------------------------------------------------------------

TEST_CASE("repeat penalty divides positive and multiplies negative logits") {
  SamplingParams p = plain();
  p.repeat_penalty = 2;
  p.presence_penalty = 0.25;
  p.frequency_penalty = 0.5;
  Sampler sampler = make(p, 4);
  REQUIRE(sampler.accept(Ids{0, 1, 1, 2}).ok());
  const Distribution d = distribution_of(sampler, {3, -1, 0, 0});
  // 3 / 2 - 0.75; -1 * 2 - 1.25; 0 - 0.75; 0
  const double z = std::exp(0.75) + std::exp(-3.25) + std::exp(-0.75) + 1;
  CHECK(d.probability_of(0) == doctest::Approx(std::exp(0.75) / z).epsilon(1e-12));
  CHECK(d.probability_of(1) == doctest::Approx(std::exp(-3.25) / z).epsilon(1e-12));
  CHECK(d.probability_of(2) == doctest::Approx(std::exp(-0.75) / z).epsilon(1e-12));
}

TEST_CASE("the penalty window: 0 is off, n forgets, -1 is the whole sequence") {
  SamplingParams p = plain();
  p.temperature = 0;
  p.presence_penalty = 10;
  const auto best_after = [&](std::int32_t window) {
    p.repeat_last_n = window;
    Sampler sampler = make(p, 4);
    REQUIRE(sampler.accept(Ids{3, 2, 1}).ok());
    return distribution_of(sampler, {1, 2, 3, 4}).ids[0];
  };
  CHECK(best_after(0) == 3);
  CHECK(best_after(1) == 3);
  CHECK(best_after(2) == 3);
  CHECK(best_after(3) == 0);
  CHECK(best_after(1000) == 0);
  CHECK(best_after(-1) == 0);
}

TEST_CASE("huge penalties stay finite: nothing is banned, nothing is NaN") {
  SamplingParams p = plain();
  p.repeat_penalty = 1000;
  p.presence_penalty = 1000;
  Sampler sampler = make(p, 2);
  REQUIRE(sampler.accept(Ids{0, 1}).ok());
  CHECK(distribution_of(sampler, {-3e38f, -3.1e38f}).size() == 2);  // both at the lowest float
}

TEST_CASE("penalties neither unban a token nor hide an unusable logit") {
  SamplingParams p = plain();
  p.repeat_penalty = 2;
  p.dry_multiplier = 1;
  p.dry_allowed_length = 1;
  p.dry_sequence_breakers.clear();
  Sampler sampler = make(p, 2);
  REQUIRE(sampler.accept(Ids{0, 0, 0}).ok());
  for (const float bad : {-kInf, kInf, kNan}) {
    CHECK_FALSE(sampler.sample(std::vector<float>{bad, -kInf}).ok());
  }
}

TEST_CASE("DRY penalises what would continue a repetition, up to the last breaker") {
  SamplingParams p = plain();
  p.temperature = 0;
  p.dry_multiplier = 100;
  const std::vector<std::string> pieces = {"a", "b", "c", "d", ".\n", "x"};
  const PieceOf piece_of = [&](std::int32_t id) { return pieces[static_cast<std::size_t>(id)]; };
  const std::vector<float> x = {0, 1, 5, 4, 4.5, 0};
  const auto best_after = [&](const Ids& history) {
    Sampler sampler = make(p, pieces.size(), 0, piece_of);
    REQUIRE(sampler.accept(history).ok());
    return distribution_of(sampler, x).ids[0];
  };
  CHECK(best_after({0, 1, 2, 5, 0, 1}) == 4);  // "abc x ab" does not go on with "c"
  CHECK(best_after({0, 1, 2, 5, 5, 1}) == 2);  // only "b" repeats: shorter than allowed
  CHECK(best_after({0, 1, 2, 4, 0, 1}) == 4);  // the breaker lies before the repetition
  CHECK(best_after({4, 1, 2, 5, 4, 1}) == 2);  // it cuts the repetition to one token
  CHECK(best_after({0, 1, 4, 5, 0, 1}) == 2);  // breakers themselves are not penalised
  p.dry_penalty_last_n = 5;                    // the window starts at "b": "ab" is not in it
  CHECK(best_after({0, 1, 2, 5, 0, 1}) == 2);
  p.dry_penalty_last_n = 6;
  CHECK(best_after({0, 1, 2, 5, 0, 1}) == 4);
  p.dry_penalty_last_n = -1;
  p.dry_sequence_breakers = {"xa"};  // across two tokens
  CHECK(best_after({0, 1, 2, 5, 0, 1}) == 2);
  CHECK(best_after({0, 1, 2, 3, 0, 1}) == 4);
  p.dry_base = 1000;  // an exponent beyond double: still no ban, no NaN
  Sampler sampler = make(p, pieces.size(), 0, piece_of);
  for (int i = 0; i < 500; ++i) REQUIRE(sampler.accept(1).ok());
  CHECK(distribution_of(sampler, {-kInf, 1, -kInf, -kInf, -kInf, -kInf}).ids == Ids{1});
}

// ---- Random numbers ----------------------------------------------------------------------------

TEST_CASE("a draw depends on seed, stream and position, not on earlier candidates") {
  SamplingParams p = plain();
  p.seed = 7;
  const std::vector<float> wide(50, 1.0f);
  std::vector<float> narrow(50, -kInf);
  narrow[3] = 1;
  const auto draws = [&](std::uint64_t seed, std::uint32_t stream, bool narrow_first) {
    SamplingParams q = p;
    q.seed = seed;
    Sampler sampler = make(q, 50, stream);
    Ids ids;
    for (int i = 0; i < 30; ++i) {
      const auto choice = sampler.sample(narrow_first && i < 10 ? narrow : wide);
      REQUIRE(choice.ok());
      CHECK(choice->id == sampler.sample(narrow_first && i < 10 ? narrow : wide)->id);
      if (i >= 10) ids.push_back(choice->id);
      REQUIRE(sampler.accept(choice->id).ok());
    }
    return ids;
  };
  const Ids first = draws(7, 0, false);
  CHECK(first == draws(7, 0, true));
  CHECK(first != draws(8, 0, false));
  CHECK(first != draws(7, 1, false));
  CHECK(first != draws(7 + (std::uint64_t{1} << 32), 0, false));
  Sampler sampler = make(p, 50);
  CHECK(sampler.random_bits(RandomUse::kToken) == random_bits(7, 0, 0, 0));
  CHECK(sampler.random_bits(RandomUse::kToken) != sampler.random_bits(RandomUse::kXtc));
}

TEST_CASE("draws follow the distribution (chi-squared)") {
  const auto x = logs({0.30, 0.22, 0.15, 0.1, 0.08, 0.06, 0.04, 0.03, 0.015, 0.005});
  for (const double temperature : {0.7, 1.0, 1.6}) {
    SamplingParams p = plain();
    p.temperature = temperature;
    p.seed = 11;
    Sampler sampler = make(p, x.size());
    const Distribution d = distribution_of(sampler, x);
    std::vector<int> seen(x.size(), 0);
    const int draws = 40000;
    for (int i = 0; i < draws; ++i) {
      const auto choice = sampler.sample(x);
      REQUIRE(choice.ok());
      ++seen[static_cast<std::size_t>(choice->id)];
      REQUIRE(sampler.accept(choice->id).ok());
    }
    double chi = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double expected = draws * d.probabilities[i];
      chi += (seen[i] - expected) * (seen[i] - expected) / expected;
    }
    CHECK(chi < 27.9);  // 9 degrees of freedom, p = 0.001
    CHECK(chi > 0.97);  // nor suspiciously even: p = 0.9996
  }
}

TEST_CASE("the race draws each token with its probability, also the rare and the only one") {
  const Distribution d{{2, 5, 9, 700}, {0.25, 0.5, 0.249, 0.001}};
  std::map<std::size_t, double> seen;
  constexpr int kDraws = 200000;
  for (std::uint64_t key = 0; key < kDraws; ++key) ++seen[draw_race(d, key * key + 17)];
  double chi = 0;
  for (std::size_t i = 0; i < d.size(); ++i) {
    const double expected = kDraws * d.probabilities[i];
    chi += (seen[i] - expected) * (seen[i] - expected) / expected;
  }
  CHECK(chi < 16.3);  // 3 degrees of freedom, p = 0.001
  CHECK(draw_race({{4}, {1.0}}, 99) == 0);
}

TEST_CASE("distributions that are alike draw the same token with one key") {
  std::mt19937 rng(8);
  for (int round = 0; round < 20; ++round) {
    Distribution p;
    Distribution q;
    for (std::int32_t id = 0; id < 40; ++id) {
      const double weight = std::exp(-0.2 * id);
      // q lacks some of p's tokens, and p some of q's.
      if (id % 7 != 3) p.ids.push_back(id), p.probabilities.push_back(weight);
      if (id % 11 != 5) {
        q.ids.push_back(id);
        q.probabilities.push_back(weight * (0.5 + static_cast<double>(rng() % 100) / 100));
      }
    }
    for (Distribution* each : {&p, &q}) {
      double sum = 0;
      for (const double x : each->probabilities) sum += x;
      for (double& x : each->probabilities) x /= sum;
    }
    double overlap = 0;
    for (std::size_t i = 0; i < p.size(); ++i) {
      overlap += std::min(p.probabilities[i], q.probability_of(p.ids[i]));
    }
    const double distance = 1 - overlap;
    constexpr int kDraws = 20000;
    int same = 0;
    for (int i = 0; i < kDraws; ++i) {
      const std::uint64_t key = (std::uint64_t{rng()} << 32) | rng();
      same += p.ids[draw_race(p, key)] == q.ids[draw_race(q, key)];
    }
    CHECK(same > kDraws * ((1 - distance) / (1 + distance) - 0.015));
    CHECK(same < kDraws * (overlap + 0.015));  // no coupling does better
  }
}

// ---- Against the oracle ------------------------------------------------------------------------

TEST_CASE("the chain equals the oracle on random logits and settings") {
  std::mt19937 rng(20240607);
  const auto pick = [&](std::initializer_list<double> values) {
    return values.begin()[rng() % values.size()];
  };
  const std::vector<std::size_t> sizes = {1, 2, 3, 7, 31, 32, 33, 64, 97, 257, 1021, 2500};
  std::size_t largest = 0, smallest = 1000000;
  for (int round = 0; round < 1500; ++round) {
    const std::size_t n = sizes[rng() % sizes.size()];
    SamplingParams p;
    p.seed = rng();
    p.temperature = pick({0.3, 0.8, 1.0, 1.0, 1.7, 0});
    p.top_k = static_cast<std::int32_t>(pick({0, 0, 0, 1, 2, 5, 40, 300, 2000}));
    p.typical_p = pick({1, 1, 1, 0, 0.2, 0.9});
    p.top_p = pick({1, 1, 0, 0.3, 0.9, 0.95, 0.999});
    p.min_p = pick({0, 0, 0.001, 0.05, 0.5, 1});
    p.xtc_probability = pick({0, 0, 0.5, 1});
    p.xtc_threshold = pick({0.01, 0.1, 0.3});
    p.mirostat = static_cast<std::int32_t>(pick({0, 0, 0, 0, 2}));
    p.mirostat_tau = pick({0.5, 3, 5});
    p.repeat_penalty = pick({1, 1, 1.1, 2, 0.7});
    p.repeat_last_n = static_cast<std::int32_t>(pick({-1, 0, 1, 5, 64}));
    p.presence_penalty = pick({0, 0, 0.5, -0.5});
    p.frequency_penalty = pick({0, 0, 0.2});
    p.dry_multiplier = pick({0, 0.8});
    p.dry_allowed_length = static_cast<std::int32_t>(pick({1, 2, 3}));
    p.dry_penalty_last_n = static_cast<std::int32_t>(pick({-1, 0, 7, 20}));
    p.dry_sequence_breakers = {"q", "zz"};
    if (rng() % 3 == 0) {
      p.logit_bias = {{0, 2.5}, {static_cast<std::int32_t>(n / 2), -1.25}, {0, 0.5}};
    }

    Oracle oracle(p);
    oracle.stream = static_cast<std::uint32_t>(rng() % 3);
    for (std::size_t i = 0; i < n; ++i) {
      oracle.pieces.push_back(i % 5 == 4 ? "q" : i % 5 == 3 ? "z" : i % 5 == 2 ? "az" : "b");
    }
    Sampler sampler = make(p, n, oracle.stream, [&](std::int32_t id) {
      return oracle.pieces[static_cast<std::size_t>(id)];
    });
    const std::size_t prompt = rng() % 40;
    for (std::size_t i = 0; i < prompt; ++i) {
      oracle.history.push_back(static_cast<std::int32_t>(rng() % std::min<std::size_t>(n, 6)));
      REQUIRE(sampler.accept(oracle.history.back()).ok());
    }
    const float spread = static_cast<float>(pick({0.01, 1, 3, 10, 200}));
    const bool coarse = rng() % 4 == 0;  // many ties
    std::normal_distribution<float> normal(0, spread);
    for (int step = 0; step < 3; ++step) {
      std::vector<float> x(n);
      for (float& v : x) {
        v = coarse ? std::round(normal(rng)) : normal(rng);
        if (n > 1 && rng() % 17 == 0) v = -kInf;
      }
      x[rng() % n] = 1;
      CAPTURE(round);
      CAPTURE(step);
      CAPTURE(n);
      const Distribution d = distribution_of(sampler, x);
      const auto expected = oracle.run(x);
      check_equal(d, expected);
      largest = std::max(largest, d.size());
      smallest = std::min(smallest, d.size());
      const auto choice = sampler.sample(x);
      REQUIRE(choice.ok());
      CHECK(choice->candidates == d.size());
      REQUIRE(sampler.accept(choice->id).ok());
      oracle.history.push_back(choice->id);
      oracle.mu -= p.mirostat_eta * (-std::log2(choice->probability) - p.mirostat_tau);
    }
  }
  CHECK(smallest == 1);
  CHECK(largest > 2000);
}

TEST_CASE("the largest logits alone give what all of them give, where they are said to be enough") {
  std::mt19937_64 random(77);
  const auto uniform = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  const auto one_in = [&](std::uint32_t n) { return random() % n == 0; };
  std::size_t enough = 0;
  for (std::uint32_t round = 0; round < 600; ++round) {
    const std::size_t vocab = 2 + random() % 700;
    SamplingParams p = plain();
    p.seed = round;
    p.temperature = one_in(4) ? 0 : uniform(0.2, 3);
    p.top_k = static_cast<std::int32_t>(random() % 50);
    if (one_in(2)) p.top_p = uniform(0, 1);
    if (one_in(2)) p.min_p = uniform(0, 0.3);
    if (one_in(4)) p.typical_p = uniform(0, 1);
    if (one_in(4)) p.xtc_probability = 0.5;
    if (one_in(2)) p.repeat_penalty = uniform(0.9, 2);
    if (one_in(3)) p.presence_penalty = uniform(-0.2, 2);
    if (one_in(3)) p.frequency_penalty = uniform(0, 1);
    p.repeat_last_n = static_cast<std::int32_t>(random() % 20) - 1;
    for (std::size_t i = 0; i < 3 && one_in(3); ++i) {
      const auto token = static_cast<std::int32_t>(random() % vocab);
      p.logit_bias.push_back({token, one_in(4) ? -kInf : uniform(-9, one_in(3) ? 1 : 0)});
    }
    Sampler of_all = make(p, vocab);
    Sampler of_top = of_all;
    const std::size_t more = 3;
    const std::size_t needed = of_all.top_needed(more);
    if (needed == 0) continue;
    ++enough;
    for (std::size_t step = 0; step <= more; ++step) {
      std::vector<float> logits(vocab);
      const bool coarse = one_in(2);  // many equals
      for (float& x : logits) {
        x = static_cast<float>(coarse ? std::floor(uniform(-4, 4)) : uniform(-8, 8));
      }
      Ids order(vocab);
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
        return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
      });
      order.resize(std::min(needed, vocab));
      std::sort(order.begin(), order.end());
      std::vector<float> top;
      for (const std::int32_t id : order) top.push_back(logits[static_cast<std::size_t>(id)]);
      Distribution want;
      Distribution got;
      const bool usable = of_all.distribution(logits, want).ok();
      REQUIRE(of_top.distribution({top, order.data()}, got).ok() == usable);
      if (!usable) break;  // everything is banned
      CHECK(got.ids == want.ids);
      CHECK(got.probabilities == want.probabilities);
      const auto choice = of_all.sample(logits);
      CHECK(of_top.sample({top, order.data()})->id == choice->id);
      REQUIRE(of_all.accept(choice->id).ok());
      REQUIRE(of_top.accept(choice->id).ok());
    }
  }
  CHECK(enough > 200);
  SamplingParams p = plain();
  CHECK(make(p, 100).top_needed(0) == 0);  // nothing is cut
  p.top_k = 7;
  CHECK(make(p, 100).top_needed(5) == 7);
  CHECK(make(p, 7).top_needed(5) == 0);
  p.temperature = 0;
  CHECK(make(p, 100).top_needed(5) == 1);
  p.dry_multiplier = 1;
  p.dry_sequence_breakers.clear();
  CHECK(make(p, 100).top_needed(5) == 0);
}

TEST_CASE("a vocabulary of real size equals the oracle, flat and peaked") {
  constexpr std::size_t n = 151936;
  std::mt19937 rng(5);
  for (const float spread : {0.5f, 2.5f}) {
    std::normal_distribution<float> normal(0, spread);
    std::vector<float> x(n);
    for (float& v : x) v = normal(rng);
    for (std::size_t i = 0; i < 20; ++i) x[rng() % n] = 10 + static_cast<float>(i) / 2;
    struct Case {
      std::int32_t top_k;
      double typical, top_p, min_p;
    };
    for (const Case& c : {Case{40, 1, 0.95, 0.05}, Case{0, 1, 0.95, 0}, Case{0, 1, 0.9999, 0},
                          Case{0, 0.9, 1, 0}, Case{0, 0.2, 0.9, 0.01}, Case{300, 1, 1, 0},
                          Case{5000, 1, 1, 0}, Case{0, 1, 1, 1e-6}, Case{0, 1, 1, 0}}) {
      SamplingParams p = plain();
      p.top_k = c.top_k;
      p.typical_p = c.typical;
      p.top_p = c.top_p;
      p.min_p = c.min_p;
      Sampler sampler = make(p, n);
      const Distribution d = distribution_of(sampler, x);
      std::vector<std::pair<std::int32_t, double>> expected = Oracle(p).run(x);
      std::sort(expected.begin(), expected.end());
      REQUIRE(d.size() == expected.size());
      double worst = 0;
      bool same = true;
      for (std::size_t i = 0; i < d.size(); ++i) {
        same = same && d.ids[i] == expected[i].first;
        worst = std::max(worst, std::fabs(d.probabilities[i] - expected[i].second));
      }
      CHECK(same);
      CHECK(worst <= 1e-12);
    }
  }
}

// ---- Vector passes -----------------------------------------------------------------------------

TEST_CASE("every instruction set gives the same bits, and exp is good to 1e-15") {
  std::mt19937 rng(3);
  for (const std::size_t n : {1u, 3u, 4u, 5u, 8u, 31u, 32u, 33u, 95u, 1000u, 4099u}) {
    std::vector<float> x(n);
    std::normal_distribution<float> normal(0, 30);
    for (float& v : x) v = rng() % 9 == 0 ? -kInf : normal(rng);
    x[rng() % n] = 120;
    std::vector<float> maxima(scan_blocks(n));
    const ScanResult scan = generic_passes().scan(x.data(), n, maxima.data());
    CHECK_FALSE(scan.has_nan);
    CHECK(scan.max == *std::max_element(x.begin(), x.end()));
    for (std::size_t b = 0; b < maxima.size(); ++b) {
      const auto begin = x.begin() + static_cast<long>(b * kScanBlock);
      const auto end = x.begin() + static_cast<long>(std::min(n, (b + 1) * kScanBlock));
      CHECK(maxima[b] == *std::max_element(begin, end));
    }
    for (const double t : {0.1, 0.37, 1.0, 20.0}) {
      std::vector<double> w(n);
      generic_passes().weights(x.data(), n, scan.max, t, w.data());
      double sum = 0, moment = 0;
      for (std::size_t i = 0; i < n; ++i) {
        const double d = (double{x[i]} - scan.max) / t;
        const double exact = d < -708 ? 0 : std::exp(d);
        CHECK(std::fabs(w[i] - exact) <= 1e-15 * exact);
        sum += exact;
        moment += exact > 0 ? exact * d : 0;
      }
      const WeightSums sums = generic_passes().sums(x.data(), n, scan.max, t);
      CHECK(sums.weight == doctest::Approx(sum).epsilon(1e-13));
      CHECK(generic_passes().sum(x.data(), n, scan.max, t) == sums.weight);
      CHECK(sums.moment == doctest::Approx(moment).epsilon(1e-13));
      if (const VocabPasses* fast = avx2_passes()) {
        std::vector<double> w2(n);
        std::vector<float> maxima2(maxima.size());
        fast->weights(x.data(), n, scan.max, t, w2.data());
        CHECK(w == w2);
        const WeightSums sums2 = fast->sums(x.data(), n, scan.max, t);
        CHECK(sums2.weight == sums.weight);
        CHECK(sums2.moment == sums.moment);
        CHECK(fast->sum(x.data(), n, scan.max, t) == sums.weight);
        CHECK(fast->scan(x.data(), n, maxima2.data()).max == scan.max);
        CHECK(maxima == maxima2);
      }
    }
  }
  if (!avx2_passes()) MESSAGE("no AVX2 here: the AVX2 passes were not tested");
}

// ---- History and state -------------------------------------------------------------------------

TEST_CASE("counts of the window match a recount after any pushes and truncations") {
  std::mt19937 rng(9);
  for (const std::int32_t window : {-1, 0, 1, 2, 7, 64}) {
    TokenHistory history(10, window);
    for (int step = 0; step < 2000; ++step) {
      if (rng() % 4 == 0 && history.size() > 0) {
        history.truncate(history.size() - rng() % std::min<std::size_t>(history.size() + 1, 12));
      } else {
        history.push(static_cast<std::int32_t>(rng() % 10));
      }
      std::map<std::int32_t, std::uint32_t> expected, got;
      const auto tokens = history.tokens();
      const std::size_t m =
          window < 0 ? tokens.size() : std::min(tokens.size(), static_cast<std::size_t>(window));
      for (const std::int32_t t : tokens.last(m)) ++expected[t];
      for (const TokenCount& c : history.counts()) got[c.token] += c.count;
      REQUIRE(got == expected);
      REQUIRE(history.counts().size() == expected.size());
    }
  }
}

TEST_CASE("truncate and restore lead back to the same future, mirostat included") {
  std::mt19937 rng(21);
  std::normal_distribution<float> normal(0, 2);
  const PieceOf piece_of = [](std::int32_t id) { return id % 11 == 0 ? "\n" : "w"; };
  for (const std::int32_t mirostat : {0, 2}) {
    SamplingParams p;
    p.seed = 99;
    p.mirostat = mirostat;
    p.repeat_penalty = 1.2;
    p.repeat_last_n = 5;
    p.dry_multiplier = 0.5;
    std::vector<std::vector<float>> rows(20, std::vector<float>(60));
    for (auto& row : rows) {
      for (float& v : row) v = normal(rng);
    }
    const auto follow = [&](Sampler& sampler, std::size_t count) {
      Ids ids;
      for (std::size_t i = 0; i < count; ++i) {
        const auto choice = sampler.sample(rows[sampler.position() % rows.size()]);
        REQUIRE(choice.ok());
        ids.push_back(choice->id);
        REQUIRE(sampler.accept(choice->id).ok());
      }
      return ids;
    };
    Sampler sampler = make(p, 60, 4, piece_of);
    REQUIRE(sampler.accept(Ids{1, 2, 3, 1, 2}).ok());
    follow(sampler, 6);
    const SamplerState saved = sampler.state();
    const Ids future = follow(sampler, 12);
    const SamplerState end = sampler.state();

    REQUIRE(sampler.truncate(11).ok());
    CHECK(sampler.state() == saved);
    // A rejected draft in between leaves no trace.
    REQUIRE(sampler.accept(Ids{7, 8, 9}).ok());
    REQUIRE(sampler.truncate(11).ok());
    CHECK(follow(sampler, 12) == future);
    CHECK(sampler.state() == end);

    const auto decoded = decode_sampler_state(encode_sampler_state(saved));
    REQUIRE(decoded.ok());
    CHECK(*decoded == saved);
    SamplingParams other_seed = p;
    other_seed.seed = 1;
    Sampler resumed = make(other_seed, 60, 0, piece_of);
    REQUIRE(resumed.restore(*decoded).ok());
    CHECK(follow(resumed, 12) == future);
    CHECK_FALSE(sampler.truncate(sampler.position() + 1).ok());

    SamplerState wrong = saved;
    wrong.history[0] = 60;
    CHECK_FALSE(resumed.restore(wrong).ok());
    wrong = saved;
    wrong.mirostat_mu = mirostat ? std::vector<double>{} : std::vector<double>(12, 1.0);
    CHECK_FALSE(resumed.restore(wrong).ok());
    CHECK(resumed.state() == end);  // untouched by the refusals
  }
}

TEST_CASE("mirostat moves mu by the surprise of what was chosen") {
  SamplingParams p = plain();
  p.mirostat = 2;
  p.mirostat_tau = 2;
  p.mirostat_eta = 0.5;
  Sampler sampler = make(p, 4);
  REQUIRE(sampler.accept(3).ok());  // the prompt does not move it
  CHECK(sampler.state().mirostat_mu == std::vector<double>{4, 4});
  const Distribution d = distribution_of(sampler, logs({0.5, 0.25, 0.1249, 0.1251}));
  CHECK(d.size() == 4);
  REQUIRE(sampler.accept(1).ok());
  CHECK(sampler.state().mirostat_mu.back() == doctest::Approx(4 - 0.5 * (2 - 2)));
  distribution_of(sampler, logs({0.5, 0.25, 0.125, 0.125}));
  REQUIRE(sampler.accept(0).ok());
  CHECK(sampler.state().mirostat_mu.back() == doctest::Approx(4 - 0.5 * (1 - 2)));
}

TEST_CASE("a damaged state is refused") {
  const SamplerState state{5, 6, {1, 2, 3}, {1, 2, 3, 4}};
  const std::vector<std::byte> good = encode_sampler_state(state);
  CHECK(decode_sampler_state(good).ok());
  for (std::size_t length = 0; length < good.size(); ++length) {
    CHECK_FALSE(decode_sampler_state(std::span(good).first(length)).ok());
  }
  for (const std::size_t at : {0u, 4u, 20u, 24u, 31u, 32u, 39u}) {
    std::vector<std::byte> bad = good;
    bad[at] ^= std::byte{0xff};
    CHECK_FALSE(decode_sampler_state(bad).ok());
  }
  std::vector<std::byte> longer = good;
  longer.push_back(std::byte{0});
  CHECK_FALSE(decode_sampler_state(longer).ok());
  SamplerState nan = state;
  nan.mirostat_mu[1] = NAN;
  CHECK_FALSE(decode_sampler_state(encode_sampler_state(nan)).ok());
  CHECK_FALSE(decode_sampler_state(encode_sampler_state({5, 6, {1, 2, 3}, {1, 2}})).ok());
  CHECK(decode_sampler_state(encode_sampler_state({5, 6, {1, 2, 3}, {}})).ok());
  CHECK(decode_sampler_state(encode_sampler_state({})).ok());
}

TEST_CASE("tokens outside the vocabulary are refused and change nothing") {
  Sampler sampler = make(SamplingParams{}, 10);
  CHECK_FALSE(sampler.accept(10).ok());
  CHECK_FALSE(sampler.accept(-1).ok());
  CHECK_FALSE(sampler.accept(Ids{1, 2, 99}).ok());
  CHECK(sampler.position() == 0);
}

// ---- Settings ----------------------------------------------------------------------------------

TEST_CASE("nonsense is refused by name, with what was found and what is expected") {
  const auto refused = [](auto change, const std::string& name, const std::string& found) {
    SamplingParams p;
    change(p);
    const Status status = validate(p);
    REQUIRE_FALSE(status.ok());
    CHECK(status.error().code == ErrorCode::kUsage);
    CHECK_MESSAGE(mentions(status.error().message, name), status.error().message);
    CHECK_MESSAGE(mentions(status.error().message, found), status.error().message);
    CHECK(mentions(status.error().message, "expected"));
  };
  using P = SamplingParams;
  CHECK(validate(P{}).ok());
  refused([](P& p) { p.temperature = -0.1; }, "temp", "-0.1");
  refused([](P& p) { p.temperature = NAN; }, "temp", "nan");
  refused([](P& p) { p.temperature = INFINITY; }, "temp", "inf");
  refused([](P& p) { p.top_p = 1.01; }, "top-p", "1.01");
  refused([](P& p) { p.top_p = -1; }, "top-p", "from 0 to 1");
  refused([](P& p) { p.min_p = 2; }, "min-p", "2");
  refused([](P& p) { p.typical_p = -0.5; }, "typical", "-0.5");
  refused([](P& p) { p.repeat_penalty = 0; }, "repeat-penalty", "above 0");
  refused([](P& p) { p.repeat_last_n = -2; }, "repeat-last-n", "-2");
  refused([](P& p) { p.presence_penalty = 1e9; }, "presence-penalty", "1000");
  refused([](P& p) { p.frequency_penalty = NAN; }, "frequency-penalty", "nan");
  refused([](P& p) { p.dry_multiplier = -1; }, "dry-multiplier", "-1");
  refused([](P& p) { p.dry_base = 0.5; }, "dry-base", "0.5");
  refused([](P& p) { p.dry_allowed_length = 0; }, "dry-allowed-length", "at least 1");
  refused([](P& p) { p.dry_penalty_last_n = -2; }, "dry-penalty-last-n", "-2");
  refused([](P& p) { p.dry_sequence_breakers = {""}; }, "dry-sequence-breaker", "0 bytes");
  refused([](P& p) { p.xtc_probability = 1.5; }, "xtc-probability", "1.5");
  refused([](P& p) { p.xtc_threshold = -1; }, "xtc-threshold", "-1");
  refused([](P& p) { p.mirostat = 1; }, "mirostat", "0 (off) or 2");
  refused([](P& p) { p.mirostat = 3; }, "mirostat", "3");
  refused([](P& p) { p.mirostat_tau = 0; }, "mirostat-ent", "above 0");
  refused([](P& p) { p.mirostat_eta = -1; }, "mirostat-lr", "-1");
  refused([](P& p) { p.logit_bias = {{5, NAN}}; }, "logit-bias of token 5", "nan");
  refused([](P& p) { p.logit_bias = {{5, INFINITY}}; }, "logit-bias of token 5", "inf");

  P p;
  p.logit_bias = {{10, 1}};
  const auto outside = Sampler::create(p, 10);
  REQUIRE_FALSE(outside.ok());
  CHECK(mentions(outside.error().message, "from 0 to 9"));
  P dry;
  dry.dry_multiplier = 1;
  CHECK_FALSE(Sampler::create(dry, 10).ok());  // no texts for the breakers
  dry.dry_sequence_breakers.clear();
  CHECK(Sampler::create(dry, 10).ok());
  CHECK_FALSE(Sampler::create(P{}, 0).ok());
}

TEST_CASE("settings come from flags, then the file, then the built-in defaults") {
  const std::map<std::string, GgufValue, std::less<>> metadata = {
      {"general.sampling.temp", {GgufValueType::kFloat32, 0.6}},
      {"general.sampling.top_k", {GgufValueType::kInt32, std::int64_t{64}}},
      {"general.sampling.top_p", {GgufValueType::kFloat32, 7.5}},
      {"general.sampling.min_p", {GgufValueType::kString, std::string_view("x")}},
      {"general.sampling.penalty_last_n", {GgufValueType::kInt32, std::int64_t{-1}}},
      {"general.sampling.penalty_repeat", {GgufValueType::kFloat64, 1.1}},
      {"general.sampling.mirostat", {GgufValueType::kUint32, std::uint64_t{1}}},
      {"general.sampling.xtc_probability", {GgufValueType::kBool, std::uint64_t{1}}},
      {"general.sampling.sequence", {GgufValueType::kString, std::string_view("top_k;temp")}},
  };
  const FileSampling file = read_file_sampling([&](std::string_view key) -> const GgufValue* {
    const auto it = metadata.find(key);
    return it == metadata.end() ? nullptr : &it->second;
  });
  CHECK(file.notes.size() == 5);
  CHECK(file.values.temperature == 0.6);
  CHECK_FALSE(file.values.top_p.has_value());

  SamplingOverrides flags;
  flags.top_k = 10;
  flags.seed = 42;
  const auto resolved = resolve_sampling(flags, file);
  REQUIRE(resolved.ok());
  CHECK(resolved->params.top_k == 10);
  CHECK(resolved->params.temperature == 0.6);
  CHECK(resolved->params.top_p == 0.95);
  CHECK(resolved->params.min_p == 0.05);
  CHECK(resolved->params.repeat_last_n == -1);
  CHECK(resolved->params.repeat_penalty == 1.1);
  CHECK(resolved->params.mirostat == 0);
  CHECK(resolved->params.seed == 42);
  CHECK(resolved->seed_source == SettingSource::kFlag);
  CHECK(resolved->notes.size() == 5);
  const std::string line = resolved->describe();
  CHECK(mentions(line, "seed 42 (flag)"));
  CHECK(mentions(line, "top-k 10 (flag)"));
  CHECK(mentions(line, "temp 0.6 (file)"));
  CHECK(mentions(line, "top-p 0.95 (built in)"));

  SamplingOverrides bad;
  bad.top_p = 3;
  REQUIRE_FALSE(resolve_sampling(bad, file).ok());
  CHECK(resolve_sampling(bad, file).error().code == ErrorCode::kUsage);
}

TEST_CASE("without a seed one is picked and said; what mirostat replaces is said") {
  const auto a = resolve_sampling({}, {});
  const auto b = resolve_sampling({}, {});
  const auto c = resolve_sampling({}, {});
  REQUIRE(a.ok());
  REQUIRE(b.ok());
  REQUIRE(c.ok());
  CHECK(a->seed_source == SettingSource::kPicked);
  CHECK(mentions(a->describe(), "(picked)"));
  CHECK((a->params.seed != b->params.seed || b->params.seed != c->params.seed));
  CHECK(a->notes.empty());

  SamplingOverrides flags;
  flags.mirostat = 2;
  flags.top_k = 5;
  flags.min_p = 0.1;
  const auto mirostat = resolve_sampling(flags, {});
  REQUIRE(mirostat.ok());
  CHECK(mirostat->notes.size() == 2);
}

// ---- Log-probabilities -------------------------------------------------------------------------

TEST_CASE("log-probabilities are those of a full softmax, best first") {
  std::mt19937 rng(17);
  for (const std::size_t n : {1u, 5u, 33u, 5000u}) {
    std::normal_distribution<float> normal(0, 4);
    std::vector<float> x(n);
    for (float& v : x) v = std::round(2 * normal(rng)) / 2;  // with ties
    double z = 0;
    for (const float v : x) z += std::exp(double{v});
    std::vector<std::size_t> by(n);
    std::iota(by.begin(), by.end(), std::size_t{0});
    std::stable_sort(by.begin(), by.end(),
                     [&](std::size_t a, std::size_t b) { return x[a] > x[b]; });
    for (const std::size_t count : {0u, 1u, 5u, 20u, 100000u}) {
      const auto result = top_logprobs(x, count, static_cast<std::int32_t>(n / 2), 3);
      REQUIRE(result.ok());
      CHECK(result->chosen == doctest::Approx(x[n / 2] - std::log(z)).epsilon(1e-12));
      REQUIRE(result->top.size() == std::min(count, n));
      for (std::size_t i = 0; i < result->top.size(); ++i) {
        CHECK(result->top[i].id == static_cast<std::int32_t>(by[i]));
        CHECK(std::fabs(result->top[i].logprob - (x[by[i]] - std::log(z))) < 1e-12);
      }
    }
  }
  CHECK(top_logprobs(std::vector<float>{1, -kInf}, 5, 1, 0)->chosen == -INFINITY);
  CHECK(top_logprobs(std::vector<float>{1, -kInf}, 5, 1, 0)->top.size() == 1);
  CHECK_FALSE(top_logprobs(std::vector<float>{1, kNan}, 5, 0, 0).ok());
  CHECK_FALSE(top_logprobs(std::vector<float>{-kInf}, 5, 0, 0).ok());
  CHECK_FALSE(top_logprobs(std::vector<float>{1}, 5, 1, 0).ok());
  CHECK_FALSE(top_logprobs({}, 5, 0, 0).ok());
}

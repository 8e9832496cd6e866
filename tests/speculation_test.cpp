// Speculative decoding gives the tokens of plain decoding, whatever is drafted; and its parts.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>
#include <string>

#include "src/engine/generate.h"
#include "src/engine/speculation/draft_model.h"
#include "src/engine/speculation/prompt_lookup.h"
#include "tests/sanitized.h"
#include "tests/temporary_folder.h"
#include "tools/model_maker/maker.h"

using namespace sluice;
using sluice::test::TemporaryFolder;

namespace {

const std::string kModels = std::string(SLUICE_SOURCE_DIR) + "/models/";

std::unique_ptr<Engine> load(const char* name, EngineOptions options = {.context = 512}) {
  auto engine = Engine::load(kModels + name, options);
  REQUIRE_MESSAGE(engine.ok(), (engine.ok() ? "" : engine.error().message));
  return std::move(engine).value();
}

// Proposes a known text with mistakes in it: from never wrong to always wrong.
class Parrot final : public Drafter {
 public:
  Parrot(std::vector<std::int32_t> whole, double wrong, std::uint32_t seed)
      : whole_(std::move(whole)), wrong_(wrong), random_(seed) {}
  std::string_view name() const override { return "parrot"; }
  Status begin(std::span<const std::int32_t> tokens, const SamplingParams&,
               std::uint32_t) override {
    at_ = tokens.size();
    return {};
  }
  Status accept(std::int32_t) override {
    ++at_;
    return {};
  }
  std::size_t peek() const override { return at_ < whole_.size() ? 0 : kDraftClasses; }
  Result<Draft> propose(const DraftContext& context, std::size_t most) override {
    CHECK(context.tokens.size() == at_);
    Draft draft;
    for (std::size_t i = 0; i < most && at_ + i < whole_.size(); ++i) {
      const bool wrong = std::uniform_real_distribution<>()(random_) < wrong_;
      draft.tokens.push_back(wrong ? static_cast<std::int32_t>(random_() % 2000) : whole_[at_ + i]);
    }
    return draft;
  }

 private:
  std::vector<std::int32_t> whole_;
  double wrong_;
  std::mt19937 random_;
  std::size_t at_ = 0;
};

// Proposes a known text among wrong guesses, as a tree: the right token of each place is any of up
// to three, so the path that comes true is seldom the first one.
class Bush final : public Drafter {
 public:
  Bush(std::vector<std::int32_t> whole, std::uint32_t seed)
      : whole_(std::move(whole)), random_(seed) {}
  std::string_view name() const override { return "bush"; }
  Status begin(std::span<const std::int32_t>, const SamplingParams&, std::uint32_t) override {
    return {};
  }
  Status accept(std::int32_t) override { return {}; }
  std::size_t peek() const override { return 0; }
  Result<Draft> propose(const DraftContext& context, std::size_t most) override {
    Draft draft;
    std::int32_t right = -1;  // the last right token
    for (std::size_t at = context.tokens.size(); at < whole_.size(); ++at) {
      const std::size_t width = 1 + random_() % 3;
      if (draft.tokens.size() + width > most) break;
      const std::size_t place = random_() % width;
      const std::int32_t parent = right;
      for (std::size_t i = 0; i < width; ++i) {
        if (i == place) right = static_cast<std::int32_t>(draft.tokens.size());
        draft.tokens.push_back(
            i == place ? whole_[at] : static_cast<std::int32_t>(random_() % context.vocabulary));
        draft.parents.push_back(parent);
      }
    }
    return draft;
  }

 private:
  std::vector<std::int32_t> whole_;
  std::mt19937 random_;
};

GenerateRequest request_for(Engine& engine, const char* text, std::int64_t most = 120) {
  GenerateRequest request;
  auto ids = engine.tokenizer().encode(text, {});
  REQUIRE(ids.ok());
  request.prompt = *ids;
  request.max_tokens = most;
  request.sampling.seed = 5;
  return request;
}

struct Outcome {
  GenerateResult result;
  std::vector<std::int32_t> held;  // by the cache afterwards
};

GenerateResult run(CachedSequence& sequence, const GenerateRequest& request) {
  auto result = generate(sequence, request);
  REQUIRE_MESSAGE(result.ok(), (result.ok() ? "" : result.error().message));
  return std::move(result).value();
}

// In a sequence of its own, whose blocks are free again afterwards.
Outcome run_alone(Engine& engine, const GenerateRequest& request) {
  CachedSequence sequence(engine);
  GenerateResult result = run(sequence, request);
  return {std::move(result), sequence.tokens()};
}

template <class T, class... Args>
std::unique_ptr<Speculator> speculator(SpeculationOptions options, Args&&... args) {
  std::vector<std::unique_ptr<Drafter>> drafters;
  drafters.push_back(std::make_unique<T>(std::forward<Args>(args)...));
  return std::make_unique<Speculator>(std::move(drafters), options);
}

std::vector<SamplingParams> chains() {
  SamplingParams greedy;
  greedy.temperature = 0;
  SamplingParams usual;
  SamplingParams wild;
  wild.temperature = 1.5;
  wild.top_k = 0;
  wild.top_p = 1;
  wild.min_p = 0;
  SamplingParams penalties;
  penalties.repeat_penalty = 1.3;
  penalties.frequency_penalty = 0.5;
  penalties.dry_multiplier = 0.8;
  penalties.logit_bias = {{17, 2.0}, {300, -std::numeric_limits<double>::infinity()}};
  SamplingParams mirostat;
  mirostat.mirostat = 2;
  SamplingParams xtc;
  xtc.xtc_probability = 0.5;
  xtc.typical_p = 0.9;
  return {greedy, usual, wild, penalties, mirostat, xtc};
}

}  // namespace

TEST_CASE("any draft gives the tokens, the text, the logprobs and the cache of plain decoding") {
  const auto engine = load("storyteller-q4_0.gguf");
  std::uint32_t seed = 0;
  for (SamplingParams chain : chains()) {
    chain.seed = 5;
    GenerateRequest request =
        request_for(*engine, "<|user|>\nA story.<|end|>\n<|assistant|>\n", 60);
    request.sampling = chain;
    request.logprobs = 2;
    CachedSequence plain_sequence(*engine);
    const GenerateResult plain = run(plain_sequence, request);
    std::vector<std::int32_t> whole = request.prompt;
    whole.insert(whole.end(), plain.tokens.begin(), plain.tokens.end());
    for (const double wrong : {0.0, 0.3, 1.0}) {
      for (const std::size_t length : {1U, 3U, 15U}) {
        const auto parrot = speculator<Parrot>({.fixed_length = length}, whole, wrong, ++seed);
        request.speculator = parrot.get();
        CachedSequence sequence(*engine);
        const GenerateResult drafted = run(sequence, request);
        REQUIRE(drafted.tokens == plain.tokens);
        CHECK(drafted.text == plain.text);
        CHECK(drafted.finish == plain.finish);
        CHECK(sequence.tokens() == plain_sequence.tokens());
        REQUIRE(drafted.logprobs.size() == plain.logprobs.size());
        for (std::size_t i = 0; i < plain.logprobs.size(); ++i) {
          CHECK(drafted.logprobs[i].logprob == plain.logprobs[i].logprob);
        }
        const SpeculationStats& stats = parrot->stats();
        CHECK(stats.tokens + 1 >= plain.tokens.size());
        if (wrong == 0) {
          CHECK(stats.accepted() + length > stats.drafted());  // but for the end
          CHECK(stats.passes <= plain.tokens.size() / (length + 1) + 2);
        }
      }
    }
    request.speculator = nullptr;
  }
}

TEST_CASE("of a tree of guesses the path that comes true is kept, whichever it is") {
  for (std::size_t round = 0; round < 2 * chains().size(); ++round) {
    const bool int4 = round % 2 == 1;
    const auto engine =
        load("storyteller-q4_0.gguf",
             {.sequences = int4 ? 8u : 1u, .kv = int4 ? KvCacheType::kInt4 : KvCacheType::kInt8});
    SamplingParams chain = chains()[round / 2];
    chain.seed = 3;
    GenerateRequest request =
        request_for(*engine, "<|user|>\nA story.<|end|>\n<|assistant|>\n", 60);
    request.sampling = chain;
    request.logprobs = 1;
    const Outcome plain = run_alone(*engine, request);
    std::vector<std::int32_t> whole = request.prompt;
    whole.insert(whole.end(), plain.result.tokens.begin(), plain.result.tokens.end());
    const auto bush = speculator<Bush>({.fixed_length = 15}, whole, 8U);
    request.speculator = bush.get();
    const Outcome drafted = run_alone(*engine, request);
    REQUIRE(drafted.result.tokens == plain.result.tokens);
    CHECK(drafted.held == plain.held);
    for (std::size_t i = 0; i < plain.result.logprobs.size(); ++i) {
      CHECK(drafted.result.logprobs[i].logprob == plain.result.logprobs[i].logprob);
    }
    // About seven places a pass, all of them right.
    CHECK(bush->stats().passes < plain.result.tokens.size() / 4);
    CHECK(engine->kv().free_blocks() == engine->kv().total_blocks());
    request.speculator = nullptr;
  }
}

TEST_CASE("what can't be verified of a draft is left out, and what is behind it") {
  const auto tree = [](std::vector<std::int32_t> tokens, std::vector<std::int32_t> parents,
                       std::size_t most) {
    return usable_tree(7, {std::move(tokens), std::move(parents), 0}, most, 100);
  };
  using Ids = std::vector<std::int32_t>;
  using Places = std::vector<std::uint32_t>;
  CHECK(tree({}, {}, 5).tokens == Ids{7});
  CHECK(tree({1, 2, 3}, {}, 2).tokens == Ids{7, 1, 2});
  CHECK(tree({1, 100, 3}, {}, 5).tokens == Ids{7, 1});
  CHECK(tree({-1, 2}, {}, 5).tokens == Ids{7});
  const TokenTree two = tree({1, 2, 3, 4}, {-1, -1, 0, 1}, 9);
  CHECK(two.tokens == Ids{7, 1, 2, 3, 4});
  CHECK(two.parents == Places{0, 0, 0, 1, 2});
  CHECK(two.paths() == std::vector<Places>{{0, 1, 3}, {0, 2, 4}});
  CHECK(tree({1, 2, 3}, {-1, 5, 1}, 9).tokens == Ids{7, 1});      // a parent behind its child
  CHECK(tree({1, 2, 3}, {-1, -2, 1}, 9).tokens == Ids{7, 1});     // no such parent
  CHECK(tree({1, 2, 3}, {-1}, 9).tokens == Ids{7, 1});            // too few parents
  CHECK(tree({1, 1, 3}, {-1, -1, 1}, 9).tokens == Ids{7, 1, 3});  // equal tokens are one
  CHECK(tree({1, 1, 3}, {-1, -1, 1}, 9).parents == Places{0, 0, 1});
  CHECK(tree({200, 2, 3}, {-1, 0, -1}, 9).tokens == Ids{7, 3});  // behind one that is left out
}

TEST_CASE("ends within an accepted draft cut where plain decoding would") {
  const auto engine = load("storyteller-q4_0.gguf", {.context = 100});
  GenerateRequest request = request_for(*engine, "<|user|>\nA story.<|end|>\n<|assistant|>\n", -1);
  request.sampling.temperature = 0;
  const GenerateResult context_end = run_alone(*engine, request).result;
  REQUIRE(context_end.finish == FinishReason::kContext);
  std::vector<std::int32_t> whole = request.prompt;
  whole.insert(whole.end(), context_end.tokens.begin(), context_end.tokens.end());

  const auto same_with_draft = [&](const GenerateRequest& plain_request) {
    const auto [plain, plain_held] = run_alone(*engine, plain_request);
    for (const std::size_t length : {1U, 4U, 15U}) {
      const auto parrot = speculator<Parrot>({.fixed_length = length}, whole, 0.0, 1);
      GenerateRequest drafted_request = plain_request;
      drafted_request.speculator = parrot.get();
      const auto [drafted, drafted_held] = run_alone(*engine, drafted_request);
      CHECK(drafted.tokens == plain.tokens);
      CHECK(drafted.text == plain.text);
      CHECK(drafted.finish == plain.finish);
      CHECK(drafted.stop_string == plain.stop_string);
      CHECK(drafted_held == plain_held);
    }
    return plain.finish;
  };
  CHECK(same_with_draft(request) == FinishReason::kContext);
  for (const std::int64_t most : {0, 1, 2, 3, 16, 17, 31}) {
    request.max_tokens = most;
    CHECK(same_with_draft(request) == FinishReason::kLength);
  }
  request.max_tokens = -1;
  // Every text of a few tokens as a stop string.
  for (std::size_t at = 1; at + 2 < 24; at += 3) {
    GenerateRequest stopped = request;
    stopped.stop = {engine->tokenizer().decode(std::span(context_end.tokens).subspan(at, 2))};
    if (stopped.stop[0].empty()) continue;
    CHECK(same_with_draft(stopped) == FinishReason::kStop);
  }
  // An end-of-generation token in the draft: any token will do if it is banned from nothing else.
  GenerateRequest ended = request_for(*engine, "<|user|>\nHello!<|end|>\n<|assistant|>\n", -1);
  ended.sampling.temperature = 0;
  const GenerateResult greeting = run_alone(*engine, ended).result;
  whole = ended.prompt;
  whole.insert(whole.end(), greeting.tokens.begin(), greeting.tokens.end());
  whole.insert(whole.end(), {4, 4, 4, 4, 4, 4, 4, 4});  // <|end|> and more
  CHECK(same_with_draft(ended) == greeting.finish);
}

TEST_CASE(
    "a draft model changes no token; with the target's own weights nearly all drafts come true") {
  const auto engine = load("storyteller-q4_0.gguf");
  const auto small = load("storyteller-draft-q4_0.gguf");
  const auto twin = load("storyteller-q4_0.gguf");
  const auto vocabulary = static_cast<std::size_t>(engine->tokenizer().vocab_size());
  REQUIRE(check_same_vocabulary(engine->tokenizer(), small->tokenizer()).ok());
  for (SamplingParams chain : chains()) {
    chain.seed = 9;
    GenerateRequest request =
        request_for(*engine, "<|user|>\nA story about a cat.<|end|>\n<|assistant|>\n", 50);
    request.sampling = chain;
    CachedSequence sequence(*engine);
    const GenerateResult plain = run(sequence, request);
    for (Engine* draft : {small.get(), twin.get()}) {
      for (const std::size_t length : {0U, 4U}) {
        const auto drafter = speculator<DraftModel>({.fixed_length = length}, *draft, vocabulary);
        request.speculator = drafter.get();
        // Twice: the second time the caches hold the first text.
        for (int round = 0; round < 2; ++round) {
          CHECK(run(sequence, request).tokens == plain.tokens);
          if (draft == twin.get() && length > 0) {
            CHECK(drafter->stats().accepted() + length >= drafter->stats().drafted());
          }
        }
      }
    }
    request.speculator = nullptr;
  }
}

TEST_CASE("prompt lookup copies what followed the longest agreement, also into the end") {
  const auto drafts = [](std::vector<std::int32_t> corpus, std::vector<std::int32_t> text,
                         std::size_t most) {
    PromptLookup lookup(PromptLookup::index(corpus));
    REQUIRE(lookup.begin(text, {}, 0).ok());
    DraftContext context;
    context.tokens = text;
    auto draft = lookup.propose(context, most);
    REQUIRE(draft.ok());
    return draft->tokens;
  };
  using Ids = std::vector<std::int32_t>;
  CHECK(drafts({}, {1, 2, 3, 4, 9, 1, 2}, 3) == Ids{3, 4, 9});
  CHECK(drafts({}, {1, 2, 3, 7, 2, 3, 8, 1, 2, 3}, 1) == Ids{7});  // three agree, not the later two
  CHECK(drafts({}, {5, 2, 3, 7, 6, 2, 3, 8, 2, 3}, 1) == Ids{8});  // the later of equals
  CHECK(drafts({}, {1, 2, 3, 4}, 3).empty());
  CHECK(drafts({}, {1}, 3).empty());
  CHECK(drafts({}, {}, 3).empty());
  CHECK(drafts({}, {7, 7, 7}, 4) == Ids{7, 7, 7, 7});
  CHECK(drafts({}, {1, 2, 1, 2, 1, 2}, 5) == Ids{1, 2, 1, 2, 1});
  CHECK(drafts({1, 2, 3, 4}, {1, 2}, 5) == Ids{3, 4});  // and not across the border
  CHECK(drafts({1, 2, 3, 4}, {4, 1}, 5).empty());
}

TEST_CASE("a lookup that grows token by token finds what one made at once finds") {
  std::mt19937 random(4);
  for (int round = 0; round < 50; ++round) {
    std::vector<std::int32_t> text;
    PromptLookup grown;
    REQUIRE(grown.begin({}, {}, 0).ok());
    for (int i = 0; i < 200; ++i) {
      text.push_back(static_cast<std::int32_t>(random() % 5));
      REQUIRE(grown.accept(text.back()).ok());
      if (i % 7 != 0) continue;
      PromptLookup fresh;
      REQUIRE(fresh.begin(text, {}, 0).ok());
      DraftContext context;
      context.tokens = text;
      CHECK(grown.peek() == fresh.peek());
      CHECK(grown.propose(context, 6)->tokens == fresh.propose(context, 6)->tokens);
    }
    // Another text after it: nothing of the old one is proposed.
    const std::vector<std::int32_t> other = {100, 101, 102, 100, 101};
    REQUIRE(grown.begin(other, {}, 0).ok());
    DraftContext context;
    CHECK(grown.propose(context, 2)->tokens == std::vector<std::int32_t>{102, 100});
  }
}

TEST_CASE("the controller finds the best length, and that there is none") {
  // A machine where each further row costs `slope` of a pass, and drafts are right with probability
  // a.
  const auto settle = [](double slope, double a, double draft_ms) {
    DraftController controller(1);
    std::mt19937 random(1);
    std::array<int, DraftController::kMostDrafted + 1> chosen = {};
    for (int step = 0; step < 4000; ++step) {
      const DraftController::Option option = {0, 0};
      const auto plan = controller.choose({&option, 1}, DraftController::kMostDrafted);
      if (step >= 2000) ++chosen[plan.length];
      if (plan.length > 0) {
        controller.observe_drafting(0, plan.length, draft_ms * static_cast<double>(plan.length));
      }
      controller.observe_pass(plan.length + 1, 10 * (1 + slope * static_cast<double>(plan.length)));
      std::size_t accepted = 0;
      while (accepted < plan.length && std::uniform_real_distribution<>()(random) < a) ++accepted;
      controller.observe_outcome(0, 0, plan.length, accepted);
    }
    double mean = 0;
    for (std::size_t k = 0; k < chosen.size(); ++k)
      mean += static_cast<double>(k) * chosen[k] / 2000;
    return mean;
  };
  const auto best = [](double slope, double a, double draft_ms) {
    std::size_t length = 0;
    double rate = 0;
    for (std::size_t k = 0; k <= DraftController::kMostDrafted; ++k) {
      const double ms =
          10 * (1 + slope * static_cast<double>(k)) + draft_ms * static_cast<double>(k);
      if (expected_tokens(a, k) / ms > rate) {
        rate = expected_tokens(a, k) / ms;
        length = k;
      }
    }
    return static_cast<double>(length);
  };
  for (const double slope : {0.02, 0.1, 0.3}) {
    for (const double a : {0.5, 0.8, 0.95}) {
      CHECK(settle(slope, a, 0) == doctest::Approx(best(slope, a, 0)).epsilon(0.35));
    }
  }
  CHECK(settle(0.5, 0.3, 0) < 0.2);   // never pays, probes aside
  CHECK(settle(0.1, 0.6, 20) < 0.2);  // the draft is slower than the target
  CHECK(settle(0.1, 0.0, 0) < 0.1);
  CHECK(expected_tokens(0.5, 3) == doctest::Approx((1 - 0.0625) / 0.5));
  CHECK(expected_tokens(1, 4) == 5);
}

namespace {

// A machine and a drafter that knows how sure it is: `share` of its tokens are right with
// probability 0.97, the others with probability 0.25, and it says which. Times in ms.
struct SureMachine {
  double share = 0.5;
  double row_ms = 0.5;   // of each row of a pass but the first, which takes 10
  double step_ms = 1.5;  // of drafting a token
  std::mt19937 random{7};

  double uniform() { return std::uniform_real_distribution<>()(random); }
  float next_sure() { return uniform() < share ? 0.97f : 0.25f; }
  double pass_ms(std::size_t drafted) const { return 10 + row_ms * static_cast<double>(drafted); }
  std::size_t verify(std::span<const float> sure) {
    std::size_t accepted = 0;
    while (accepted < sure.size() && uniform() < static_cast<double>(sure[accepted])) ++accepted;
    return accepted;
  }
};

// Tokens a ms, with drafts of always this length.
double fixed_rate(SureMachine machine, std::size_t length) {
  double ms = 0, tokens = 0;
  for (int step = 0; step < 20000; ++step) {
    std::vector<float> sure(length);
    for (float& each : sure) each = machine.next_sure();
    ms += machine.pass_ms(length) + machine.step_ms * static_cast<double>(length);
    tokens += 1 + static_cast<double>(machine.verify(sure));
  }
  return tokens / ms;
}

double controlled_rate(SureMachine machine) {
  DraftController controller(1);
  double ms = 0, tokens = 0;
  for (int step = 0; step < 20000; ++step) {
    const DraftController::Option option = {0, 0};
    auto plan = controller.choose({&option, 1}, DraftController::kMostDrafted);
    std::vector<float> sure;
    std::size_t verified = 0;
    if (plan.length > 0) {
      do sure.push_back(machine.next_sure());
      while (sure.size() < plan.length && controller.worth_more(plan, sure));
      verified = controller.worth_verifying(plan, sure);
      const double drafting = machine.step_ms * static_cast<double>(sure.size());
      controller.observe_drafting(0, sure.size(), drafting);
      ms += drafting;
    }
    controller.observe_pass(verified + 1, machine.pass_ms(verified));
    ms += machine.pass_ms(verified);
    const std::size_t accepted = machine.verify(std::span(sure).first(verified));
    tokens += 1 + static_cast<double>(accepted);
    if (sure.empty()) continue;
    const std::size_t checked = std::min(accepted + 1, verified);
    controller.observe_outcome(0, 0, checked, accepted);
    controller.observe_sure(0, sure, verified, checked, accepted);
  }
  return tokens / ms;
}

}  // namespace

TEST_CASE("drafts that stop where they are no longer sure are as good as the best fixed length" *
          doctest::skip(sluice::test::kSanitized)) {  // a long simulation in this file alone
  for (const double share : {0.1, 0.5, 0.8, 0.95}) {
    for (const double row_ms : {0.1, 1.0, 4.0}) {
      for (const double step_ms : {0.2, 2.0, 6.0}) {
        const SureMachine machine = {share, row_ms, step_ms};
        double best = 0;
        for (std::size_t k = 0; k <= DraftController::kMostDrafted; ++k) {
          best = std::max(best, fixed_rate(machine, k));
        }
        CAPTURE(share);
        CAPTURE(row_ms);
        CAPTURE(step_ms);
        CHECK(controlled_rate(machine) > 0.97 * best);
      }
    }
  }
}

namespace {

// How drafted decoding takes a token: the draft's, by its noisy logits, and the target's.
enum class Verifier {
  kSameDraw,  // as it is: the target draws with the draft's random number, and its token counts
  kCompareSampled,  // wrong: two independent draws; the draft's where they agree, else a new one
  kKeepDraft,       // wrong: the draft's token wherever the target gives it some probability
};

struct ChiSquared {
  double value = 0;
  double accepted = 0;  // share of the drafts
};

// Draws 120,000 tokens of a vocabulary of 12 and compares their frequencies with the distributions
// they should have been drawn from, 11 degrees of freedom at most.
ChiSquared chi_squared(const SamplingParams& params, Verifier verifier) {
  constexpr int kDraws = sluice::test::kSanitized ? 2000 : 120000;
  std::mt19937 random(12);
  std::vector<float> logits(12), noisy(12);
  for (float& x : logits) x = std::uniform_real_distribution<float>(-3, 2)(random);
  auto target = Sampler::create(params, logits.size());
  auto other = Sampler::create(params, logits.size(), 1);  // independent of it
  REQUIRE(target.ok());
  REQUIRE(other.ok());
  std::vector<double> seen(logits.size()), expected(logits.size());
  double accepted = 0;
  Distribution distribution;
  for (int i = 0; i < kDraws; ++i) {
    // Penalties change it from token to token.
    REQUIRE(target->distribution(logits, distribution).ok());
    for (std::size_t j = 0; j < distribution.size(); ++j) {
      expected[static_cast<std::size_t>(distribution.ids[j])] += distribution.probabilities[j];
    }
    for (std::size_t j = 0; j < logits.size(); ++j) {
      noisy[j] = logits[j] + static_cast<float>(random() % 2000) / 1000 - 1;
    }
    const std::int32_t by_target = target->sample(logits)->id;
    std::int32_t taken = by_target;
    if (verifier == Verifier::kSameDraw) {
      accepted += target->sample(noisy)->id == by_target;
    } else {
      const std::int32_t drafted = other->sample(noisy)->id;
      const bool possible = std::find(distribution.ids.begin(), distribution.ids.end(), drafted) !=
                            distribution.ids.end();
      if (verifier == Verifier::kKeepDraft ? possible : drafted == by_target) {
        taken = drafted;
        accepted += 1;
      } else {
        const double u = std::uniform_real_distribution<>()(random);
        double sum = 0;
        for (std::size_t j = 0; j < distribution.size(); ++j) {
          taken = distribution.ids[j];
          if ((sum += distribution.probabilities[j]) > u) break;
        }
      }
    }
    REQUIRE(target->accept(taken).ok());
    REQUIRE(other->accept(taken).ok());
    ++seen[static_cast<std::size_t>(taken)];
  }
  ChiSquared result{0, accepted / kDraws};
  for (std::size_t j = 0; j < expected.size(); ++j) {
    const double difference = seen[j] - expected[j];
    if (expected[j] > 0) result.value += difference * difference / expected[j];
    if (expected[j] == 0) CHECK(seen[j] == 0);
  }
  return result;
}

constexpr double kChiLimit = 31.3;  // 11 degrees of freedom, p = 0.001

}  // namespace

TEST_CASE("the draws of drafted decoding follow the model's distribution (chi-squared)") {
  SamplingParams base;
  base.top_k = 0;
  base.top_p = 1;
  base.min_p = 0;
  base.temperature = 1;
  std::vector<SamplingParams> settings(8, base);
  settings[1].temperature = 0.6;
  settings[2].top_k = 5;
  settings[3].top_p = 0.8;
  settings[4].min_p = 0.1;
  settings[5].logit_bias = {{3, 1.5}, {7, -2.0}};
  settings[6].repeat_penalty = 1.5;
  settings[6].repeat_last_n = 4;
  settings[7].presence_penalty = 0.7;
  settings[7].frequency_penalty = 0.3;
  settings[7].repeat_last_n = 9;
  settings[7].top_k = 8;
  settings[7].temperature = 1.3;
  for (const SamplingParams& params : settings) {
    const ChiSquared right = chi_squared(params, Verifier::kSameDraw);
    CHECK(right.value < kChiLimit);
    CHECK(right.accepted > 0.5);
    if (sluice::test::kSanitized) continue;  // too few draws to tell
    // The test would notice: verifiers as they are often got wrong.
    CHECK(chi_squared(params, Verifier::kCompareSampled).value > 100);
    CHECK(chi_squared(params, Verifier::kKeepDraft).value > 100);
  }
}

TEST_CASE(
    "a draft of another vocabulary is refused with the token named; padding is no difference") {
  const auto tokenizer_of = [](std::uint64_t vocabulary, std::unique_ptr<GgufFile>& file) {
    ModelShape shape;
    shape.vocab = vocabulary;
    const TemporaryFolder folder;  // a mapped file stays readable
    const std::string path = folder / "model.gguf";
    REQUIRE(make_model(shape, path, 1).ok());
    auto opened = GgufFile::open(path);
    REQUIRE(opened.ok());
    file = std::make_unique<GgufFile>(std::move(opened).value());
    auto loaded = Tokenizer::load(*file);
    REQUIRE(loaded.ok());
    return std::move(loaded).value();
  };
  std::unique_ptr<GgufFile> files[2];
  const auto small = tokenizer_of(400, files[0]);
  const auto large = tokenizer_of(450, files[1]);
  CHECK(check_same_vocabulary(*small, *large).ok());
  CHECK(check_same_vocabulary(*large, *small).ok());
  const auto story = load("storyteller-q4_0.gguf");
  const Status refused = check_same_vocabulary(story->tokenizer(), *small);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == ErrorCode::kUsage);
  CHECK(refused.error().message.find("token 0 is '<unk>'") != std::string::npos);
}

namespace {

// Drafts of every kind, none of them any good: garbage, ids that don't exist, far too long, trees
// that can't be.
class Hostile final : public Drafter {
 public:
  explicit Hostile(std::uint32_t seed) : random_(seed) {}
  std::string_view name() const override { return "hostile"; }
  bool wants_hidden() const override { return true; }
  Status begin(std::span<const std::int32_t>, const SamplingParams&, std::uint32_t) override {
    return {};
  }
  Status accept(std::int32_t) override { return {}; }
  std::size_t peek() const override { return 0; }
  Result<Draft> propose(const DraftContext& context, std::size_t most) override {
    for (const float x : context.hidden) CHECK(std::isfinite(x));
    Draft draft;
    const std::size_t length = random_() % 3 == 0 ? 1000 : random_() % (most + 3);
    for (std::size_t i = 0; i < length; ++i) {
      const auto kind = random_() % 4;
      draft.tokens.push_back(kind == 0   ? static_cast<std::int32_t>(random_())
                             : kind == 1 ? -1
                                         : static_cast<std::int32_t>(random_() % 300));
    }
    if (random_() % 3 == 0) {
      for (std::size_t i = 0; i < length; ++i) {
        draft.parents.push_back(static_cast<std::int32_t>(random_() % 7) - 2);
      }
    }
    draft.confidence = random_() % 9;
    return draft;
  }

 private:
  std::mt19937 random_;
};

// Two models of one random shape: a target, and another one as its draft.
void make_engines(std::mt19937& random, std::unique_ptr<Engine> (&engines)[2]) {
  constexpr const char* kArchitectures[] = {"llama",    "mixtral", "qwen2",  "qwen3",
                                            "qwen3moe", "gemma2",  "gemma3", "phi3"};
  const char* arch = kArchitectures[random() % std::size(kArchitectures)];
  for (auto& engine : engines) {
    ModelShape shape;
    shape.arch = arch;
    shape.layers = arch == std::string("gemma3") ? 7 : 1 + random() % 2;
    shape.kv_heads = 1 + random() % 2;
    shape.heads = shape.kv_heads * (1 + random() % 2);
    shape.embd = 32 * (1 + random() % 3);
    shape.ffn = 32 * (1 + random() % 3);
    shape.vocab = 300;
    shape.seed = random();
    shape.type = random() % 2 == 0 ? BlockType::kQ4_0 : BlockType::kF16;
    const TemporaryFolder folder;  // a mapped file stays readable
    const std::string path = folder / "model.gguf";
    REQUIRE(make_model(shape, path, 1).ok());
    const auto kv = static_cast<KvCacheType>(random() % 4);
    auto loaded = Engine::load(path, {.context = 96, .kv = kv, .threads = 1});
    REQUIRE_MESSAGE(loaded.ok(), (loaded.ok() ? "" : loaded.error().message));
    engine = std::move(loaded).value();
  }
}

GenerateRequest random_request(std::mt19937& random, bool sampled) {
  GenerateRequest request;
  for (std::size_t n = 1 + random() % 40; n > 0; --n) {
    // Few different tokens, so that lookups find something.
    const bool any = random() % 2 == 0;
    request.prompt.push_back(static_cast<std::int32_t>(random() % (any ? 300 : 6)));
  }
  request.max_tokens = static_cast<std::int64_t>(random() % 50) - 1;
  request.sampling.temperature = sampled ? 1.0 : 0.0;
  request.sampling.seed = random();
  request.sampling.repeat_penalty = random() % 4 == 0 ? 1.2 : 1.0;
  return request;
}

}  // namespace

// SLUICE_CASES=10000 for a long run.
TEST_CASE("random models, prompts and drafters: the tokens of plain decoding, bit for bit") {
  const char* wanted = std::getenv("SLUICE_CASES");
  constexpr int kUsualCases = sluice::test::kSanitized ? 25 : 150;
  const int cases = wanted == nullptr ? kUsualCases : std::atoi(wanted);
  constexpr int kCasesOfAModel = 25;
  std::mt19937 random(2026);
  std::unique_ptr<Engine> engines[2];
  std::uint64_t drafted = 0;
  std::uint64_t accepted = 0;
  for (int i = 0; i < cases; ++i) {
    if (i % kCasesOfAModel == 0) make_engines(random, engines);
    GenerateRequest request = random_request(random, i % 4 == 3);
    const Outcome plain = run_alone(*engines[0], request);

    std::vector<std::int32_t> whole = request.prompt;
    whole.insert(whole.end(), plain.result.tokens.begin(), plain.result.tokens.end());
    std::vector<std::unique_ptr<Drafter>> drafters;
    const auto choice = random() % 6;
    if (choice == 5) drafters.push_back(std::make_unique<Bush>(whole, random()));
    if (choice == 0) drafters.push_back(std::make_unique<Hostile>(random()));
    if (choice == 1) drafters.push_back(std::make_unique<Parrot>(whole, 0.3, random()));
    if (choice >= 2 && choice < 5)
      drafters.push_back(std::make_unique<PromptLookup>(PromptLookup::index(whole)));
    if (choice == 3 || choice == 4)
      drafters.push_back(std::make_unique<DraftModel>(*engines[1], 300));
    if (choice == 4) std::swap(drafters[0], drafters[1]);
    Speculator speculator(std::move(drafters),
                          {.fixed_length = random() % 4 == 0 ? 0 : 1 + random() % 15});
    request.speculator = &speculator;
    const Outcome outcome = run_alone(*engines[0], request);
    REQUIRE(outcome.result.tokens == plain.result.tokens);
    REQUIRE(outcome.result.finish == plain.result.finish);
    REQUIRE(outcome.held == plain.held);
    drafted += speculator.stats().drafted();
    accepted += speculator.stats().accepted();
  }
  MESSAGE(cases << " cases, " << drafted << " tokens drafted, " << accepted << " accepted");
  CHECK(accepted > static_cast<std::uint64_t>(cases));
}

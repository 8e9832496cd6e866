// Many requests at a time give the tokens that each gives alone, whatever runs beside it.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>

#include "src/engine/generate.h"
#include "src/engine/scheduler/auto_slots.h"
#include "src/engine/scheduler/scheduler.h"
#include "src/engine/speculation/prompt_lookup.h"
#include "tests/sanitized.h"
#include "tests/temporary_folder.h"
#include "tools/model_maker/maker.h"

using namespace sluice;
using sluice::test::TemporaryFolder;

namespace {

std::unique_ptr<Engine> make_engine(std::mt19937& random, const EngineOptions& options) {
  constexpr const char* kArchitectures[] = {"llama", "qwen2", "gemma3", "mixtral"};
  ModelShape shape;
  shape.arch = kArchitectures[random() % std::size(kArchitectures)];
  shape.layers = shape.arch == "gemma3" ? 7 : 2;
  shape.kv_heads = 1;
  shape.heads = 2;
  shape.embd = 64;
  shape.ffn = 64;
  shape.vocab = 300;
  shape.seed = random();
  shape.type = BlockType::kQ4_0;
  const TemporaryFolder folder;  // a mapped file stays readable
  const std::string path = folder / "model.gguf";
  REQUIRE(make_model(shape, path, 1).ok());
  auto engine = Engine::load(path, options);
  REQUIRE_MESSAGE(engine.ok(), (engine.ok() ? "" : engine.error().message));
  return std::move(engine).value();
}

// Prompts that often begin alike, of many lengths.
std::vector<GenerateRequest> random_requests(std::mt19937& random, std::size_t count,
                                             std::size_t longest) {
  std::vector<std::vector<std::int32_t>> beginnings(3);
  for (auto& beginning : beginnings) {
    beginning.resize(random() % longest);
    for (auto& token : beginning) token = static_cast<std::int32_t>(3 + random() % 290);
  }
  std::vector<GenerateRequest> requests(count);
  for (GenerateRequest& request : requests) {
    if (random() % 4 != 0) request.prompt = beginnings[random() % beginnings.size()];
    for (std::size_t n = 1 + random() % 40; n > 0; --n) {
      request.prompt.push_back(static_cast<std::int32_t>(3 + random() % 8));
    }
    request.max_tokens = static_cast<std::int64_t>(random() % 40);
    request.sampling.seed = random();
    request.sampling.temperature = random() % 2 == 0 ? 0.0 : 1.0;
    if (random() % 3 == 0) request.sampling.repeat_penalty = 1.2;
    if (random() % 4 == 0) request.logprobs = 2;
  }
  return requests;
}

std::vector<GenerateResult> one_by_one(Engine& engine, const std::vector<GenerateRequest>& all) {
  std::vector<GenerateResult> results;
  for (const GenerateRequest& request : all) {
    auto result = generate(engine, request);
    REQUIRE_MESSAGE(result.ok(), (result.ok() ? "" : result.error().message));
    results.push_back(std::move(result).value());
  }
  return results;
}

std::vector<std::unique_ptr<Drafter>> lookup() {
  std::vector<std::unique_ptr<Drafter>> drafters;
  drafters.push_back(std::make_unique<PromptLookup>());
  return drafters;
}

// Runs all requests, which arrive in the given shares, and compares; the scheduler's numbers.
SchedulerStats check_same(Engine& engine, const SchedulerOptions& options,
                          const std::vector<GenerateRequest>& requests,
                          const std::vector<GenerateResult>& alone, std::mt19937& random) {
  SchedulerStats stats;
  {
    Scheduler scheduler(engine, options);
    std::map<Ticket, std::size_t> index;
    std::size_t submitted = 0, ended = 0;
    while (ended < requests.size()) {
      if (submitted < requests.size() && (scheduler.idle() || random() % 3 == 0)) {
        const std::size_t more = std::min(1 + random() % 6, requests.size() - submitted);
        for (std::size_t i = 0; i < more; ++i) {
          index[scheduler.submit(requests[submitted])] = submitted;
          ++submitted;
        }
      }
      auto finished = scheduler.step();
      REQUIRE_MESSAGE(finished.ok(), (finished.ok() ? "" : finished.error().message));
      for (const Finished& each : *finished) {
        const GenerateResult& expected = alone[index.at(each.ticket)];
        REQUIRE_MESSAGE(each.result.ok(), (each.result.ok() ? "" : each.result.error().message));
        REQUIRE(each.result->tokens == expected.tokens);
        CHECK(each.result->text == expected.text);
        CHECK(each.result->finish == expected.finish);
        REQUIRE(each.result->logprobs.size() == expected.logprobs.size());
        for (std::size_t i = 0; i < expected.logprobs.size(); ++i) {
          CHECK(each.result->logprobs[i].logprob == expected.logprobs[i].logprob);
        }
        ++ended;
      }
    }
    CHECK(scheduler.idle());
    stats = scheduler.stats();
    CHECK(stats.blocks_most <= stats.blocks_total);
    CHECK(stats.prefill_tokens + stats.shared_tokens == stats.prompt_tokens);
  }
  CHECK(engine.kv().free_blocks() == engine.kv().total_blocks());
  return stats;
}

}  // namespace

TEST_CASE("the same tokens alone, in any company, with any policy and however small the cache") {
  std::mt19937 random(99);
  std::uint64_t preemptions = 0, shared = 0, accepted = 0;
  for (int round = 0; round < (sluice::test::kSanitized ? 3 : 12); ++round) {
    const std::uint32_t context = 160;
    const auto engine = make_engine(
        random,
        {.context = context,
         .kv_tokens = round % 3 == 0 ? 161u : 161u + static_cast<std::uint32_t>(random() % 600),
         .sequences = 12,
         .kv = round % 2 == 0 ? KvCacheType::kInt8 : KvCacheType::kInt4,
         .threads = 1 + static_cast<std::uint32_t>(random() % 2),
         .prefill_chunk = 64});
    const std::vector<GenerateRequest> requests = random_requests(random, 24, 80);
    const std::vector<GenerateResult> alone = one_by_one(*engine, requests);
    for (int variant = 0; variant < 6; ++variant) {
      SchedulerOptions options;
      options.slots = 1 + random() % 12;
      options.step_tokens = random() % 2 == 0 ? 0 : 1 + random() % 64;
      options.policy = random() % 2 == 0 ? SchedulePolicy::kLatency : SchedulePolicy::kThroughput;
      options.continuous = random() % 4 != 0;
      options.chunked_prefill = random() % 4 != 0;
      options.share_prefixes = random() % 4 != 0;
      if (random() % 2 == 0) options.drafters = lookup;
      const SchedulerStats stats = check_same(*engine, options, requests, alone, random);
      preemptions += stats.preemptions;
      shared += stats.shared_tokens;
      accepted += stats.accepted_tokens;
      if (!options.share_prefixes) CHECK(stats.shared_tokens == 0);
    }
  }
  // Otherwise the test would not be about them.
  MESSAGE(preemptions << " preemptions, " << shared << " tokens shared, " << accepted
                      << " guesses accepted");
  CHECK(preemptions > 20);
  CHECK(shared > 1000);
  CHECK(accepted > 100);
}

TEST_CASE("an int4 cache runs no more sequences at a time than it was made for") {
  std::mt19937 random(17);
  const auto engine = make_engine(random, {.context = 512,
                                           .kv_tokens = 4096,
                                           .sequences = 2,
                                           .kv = KvCacheType::kInt4,
                                           .prefill_chunk = 64});
  const std::vector<GenerateRequest> requests = random_requests(random, 16, 200);
  const std::vector<GenerateResult> alone = one_by_one(*engine, requests);
  SchedulerOptions options;
  options.slots = 12;
  check_same(*engine, options, requests, alone, random);
  // 2 blocks that a pass of 64 rows fills, and two for each of three sequences.
  CHECK(Scheduler(*engine, options).note() ==
        "3 sequences run at a time, not 12: the KV cache was made for no more, it can write to 8 "
        "blocks in a pass");
  options.slots = 3;
  CHECK(Scheduler(*engine, options).note().empty());
  options.slots = 17;
  const auto int8 = make_engine(random, {.context = 64, .max_logits = 16});
  CHECK(Scheduler(*int8, options).note() ==
        "16 sequences run at a time, not 17: passes have logits for no more");
}

TEST_CASE("a common beginning is run once, also when all arrive together") {
  std::mt19937 random(7);
  const auto engine = make_engine(random, {.context = 256, .kv_tokens = 4096, .prefill_chunk = 64});
  GenerateRequest request;
  for (int i = 0; i < 128; ++i) request.prompt.push_back(3 + i);
  request.max_tokens = 3;
  request.sampling.temperature = 0;
  std::vector<GenerateRequest> requests;
  for (int i = 0; i < 20; ++i) {
    requests.push_back(request);
    requests.back().prompt.push_back(150 + i);
  }
  SchedulerOptions options;
  options.slots = 8;
  Scheduler scheduler(*engine, options);
  for (const GenerateRequest& each : requests) (void)scheduler.submit(each);
  while (!scheduler.idle()) REQUIRE(scheduler.step().ok());
  CHECK(scheduler.stats().prompt_tokens == 20 * 129);
  CHECK(scheduler.stats().prefill_tokens == 128 + 20);
  CHECK(scheduler.stats().shared_tokens == 19 * 128);
}

TEST_CASE("a request that can't run is told; the others go on; a cancelled pass loses nothing") {
  std::mt19937 random(8);
  const auto engine = make_engine(random, {.context = 64, .kv_tokens = 256});
  GenerateRequest good;
  good.prompt = {5, 6, 7};
  good.max_tokens = 8;
  good.sampling.temperature = 0;
  const GenerateResult alone = std::move(generate(*engine, good)).value();
  GenerateRequest long_one = good;
  long_one.prompt.assign(64, 5);
  GenerateRequest no_token = good;
  no_token.prompt = {5, 100000};
  GenerateRequest broken_pipe = good;
  broken_pipe.on_text = [](std::string_view) { return false; };

  SchedulerOptions options;
  options.slots = 3;
  Scheduler scheduler(*engine, options);
  std::map<Ticket, std::string> names;
  names[scheduler.submit(long_one)] = "long";
  names[scheduler.submit(good)] = "good";
  names[scheduler.submit(no_token)] = "no token";
  names[scheduler.submit(broken_pipe)] = "broken pipe";
  names[scheduler.submit(good)] = "good";
  const std::atomic<bool> cancel = true;
  std::map<std::string, int> ended;
  for (int step = 0; !scheduler.idle(); ++step) {
    REQUIRE(step < 100);
    if (step % 3 == 1) {
      const auto cancelled = scheduler.step(&cancel);
      REQUIRE_FALSE(cancelled.ok());
      CHECK(cancelled.error().code == ErrorCode::kInterrupted);
    }
    auto finished = scheduler.step();
    REQUIRE(finished.ok());
    for (const Finished& each : *finished) {
      const std::string& name = names.at(each.ticket);
      ++ended[name];
      CHECK(each.result.ok() == (name == "good"));
      if (name == "good") CHECK(each.result->tokens == alone.tokens);
    }
  }
  CHECK(ended ==
        std::map<std::string, int>{{"long", 1}, {"good", 2}, {"no token", 1}, {"broken pipe", 1}});
}

TEST_CASE("continuous batching fills a slot as soon as it is free; static batching waits") {
  std::mt19937 random(9);
  const auto engine = make_engine(random, {.context = 256, .kv_tokens = 1024});
  std::vector<GenerateRequest> requests(8);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].prompt = {5, 6, 7, static_cast<std::int32_t>(10 + i)};
    requests[i].max_tokens = i % 4 == 0 ? 90 : 3;  // each group of four has a long one
    requests[i].ignore_eos = true;
  }
  std::uint64_t passes[2];
  for (const bool continuous : {false, true}) {
    SchedulerOptions options;
    options.slots = 4;
    options.continuous = continuous;
    Scheduler scheduler(*engine, options);
    for (const GenerateRequest& each : requests) (void)scheduler.submit(each);
    while (!scheduler.idle()) REQUIRE(scheduler.step().ok());
    passes[continuous ? 1 : 0] = scheduler.stats().passes;
  }
  CHECK(passes[0] >= 180);
  CHECK(passes[1] < 110);
}

TEST_CASE("the number of slots comes from measured passes, within what is possible") {
  std::mt19937 random(10);
  const auto engine = make_engine(random, {.context = 64, .kv_tokens = 512, .max_logits = 16});
  for (const std::uint32_t most : {1u, 5u, 100u}) {
    const auto choice = choose_slots(*engine, most, nullptr);
    REQUIRE(choice.ok());
    CHECK(choice->slots >= 1);
    CHECK(choice->slots <= std::min(most, 16u));
    CHECK(choice->measured.front().rows == 1);
    CHECK(choice->measured.back().rows <= std::min(most, 16u));
    CHECK(engine->kv().free_blocks() == engine->kv().total_blocks());
  }
  const std::atomic<bool> cancel = true;
  const auto cancelled = choose_slots(*engine, 8, &cancel);
  REQUIRE_FALSE(cancelled.ok());
  CHECK(cancelled.error().code == ErrorCode::kInterrupted);
}

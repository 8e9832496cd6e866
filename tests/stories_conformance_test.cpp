// A real model end to end: greedy text and perplexity against llama.cpp's.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "src/engine/generate.h"
#include "src/engine/score.h"
#include "tests/conformance.h"

using namespace sluice;

namespace {

std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::unique_ptr<Engine> load(EngineOptions options) {
  auto engine = Engine::load(test::conformance_file("stories260K.gguf"), options);
  REQUIRE_MESSAGE(engine.ok(), (engine.ok() ? "" : engine.error().message));
  return std::move(engine).value();
}

}  // namespace

TEST_CASE("the reference model continues its prompt with the reference's tokens and text") {
  const std::string facts = test::conformance_file("stories260K.json");
  if (facts.empty()) return;
  const nlohmann::json want = nlohmann::json::parse(read_text(facts));
  const auto engine = load({.kv = KvCacheType::kF32});

  const std::string prompt = want["prompt"];
  auto ids = engine->tokenizer().encode(prompt, {.add_special = true, .parse_special = true});
  REQUIRE(ids.ok());
  CHECK(*ids == want["prompt_ids"].get<std::vector<std::int32_t>>());

  GenerateRequest request;
  request.prompt = *ids;
  request.max_tokens = 201;  // the reference's text goes one token beyond its ids
  request.sampling.temperature = 0;
  std::string streamed;
  request.on_text = [&](std::string_view text) {
    streamed += text;
    return true;
  };
  auto result = generate(*engine, request);
  REQUIRE_MESSAGE(result.ok(), (result.ok() ? "" : result.error().message));
  const auto greedy = want["greedy_ids"].get<std::vector<std::int32_t>>();
  const auto gap = want["greedy_gap"].get<std::vector<double>>();
  std::size_t same = 0;
  while (same < greedy.size() && result->tokens[same] == greedy[same]) ++same;
  // A different choice is excusable only at a near-tie.
  CHECK_MESSAGE((same == greedy.size() || gap[same] < 0.02), same);
  std::printf("stories260K: %zu of %zu greedy tokens equal\n", same, greedy.size());
  CHECK(result->finish == FinishReason::kLength);
  CHECK(streamed == result->text);
  if (same == greedy.size()) {
    CHECK(prompt + streamed == want["text_of_prompt_and_first_200"].get<std::string>());
  }
}

TEST_CASE("perplexity follows the reference's protocol and figures") {
  const std::string facts = test::conformance_file("stories260K.json");
  if (facts.empty()) return;
  const nlohmann::json want = nlohmann::json::parse(read_text(facts))["perplexity"];
  const std::string text = read_text(test::conformance_file("stories.txt"));

  for (const std::uint32_t window : {256u, 512u}) {
    for (const KvCacheType kv :
         {KvCacheType::kF32, KvCacheType::kF16, KvCacheType::kInt8, KvCacheType::kInt4}) {
      const auto engine = load({.context = window, .kv = kv, .max_logits = 64});
      auto ids = engine->tokenizer().encode(text, {.add_special = true});
      REQUIRE(ids.ok());
      auto result = score(*engine, *ids, {.window = window, .skip = window / 2});
      REQUIRE_MESSAGE(result.ok(), (result.ok() ? "" : result.error().message));
      const nlohmann::json& expected = want["n_ctx_" + std::to_string(window)];
      const double ppl = expected["ppl"];
      std::printf("stories260K: window %u kv %d perplexity %.4f (reference %.4f)\n", window,
                  static_cast<int>(kv), result->perplexity, ppl);
      CHECK(result->tokens == expected["chunks"].get<std::uint64_t>() * (window / 2 - 1));
      CHECK(std::abs(result->perplexity / ppl - 1) <
            // Heads of 8 numbers feel the rounding of keys more than any real model's.
            (kv == KvCacheType::kInt8 || kv == KvCacheType::kInt4 ? 0.01 : 0.001));
    }
  }
}

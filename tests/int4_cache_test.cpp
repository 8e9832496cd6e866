// An int4 cache through backend and engine: whatever is guessed and rejected, shared, copied,
// cut back, saved and read again, a row's logits keep their bits.
#include <doctest/doctest.h>

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "src/backend/cpu/key_outliers.h"
#include "src/engine/cached_sequence.h"
#include "src/engine/engine.h"
#include "tests/run_model.h"
#include "tests/temporary_folder.h"
#include "tools/model_maker/maker.h"

using namespace sluice;
using sluice::test::ModelRun;

namespace {

using Random = std::mt19937;
using Tokens = std::vector<std::int32_t>;

constexpr std::uint32_t kVocabulary = 300;

Tokens random_tokens(Random& random, std::size_t count) {
  Tokens tokens(count);
  for (auto& token : tokens) token = static_cast<std::int32_t>(random() % kVocabulary);
  return tokens;
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

// A file with a model of random weights, windows included.
class Made {
 public:
  explicit Made(std::uint32_t seed, const char* arch = "gemma3") {
    ModelShape shape;
    shape.arch = arch;
    shape.layers = arch == std::string("gemma3") ? 7 : 2;
    shape.kv_heads = 2;
    shape.heads = 4;
    shape.head_dim = 48;
    shape.embd = 64;
    shape.ffn = 64;
    shape.vocab = kVocabulary;
    shape.window = 50;
    shape.seed = seed;
    shape.type = BlockType::kQ8_0;
    const auto made = make_model(shape, path_, 1);
    REQUIRE_MESSAGE(made.ok(), (made.ok() ? "" : made.error().message));
  }
  const std::string& path() const { return path_; }

 private:
  test::TemporaryFolder folder_;
  std::string path_ = folder_ / "model.gguf";
};

cpu::CpuOptions int4(std::uint32_t rows) {
  return {.threads = 1, .kv = KvCacheType::kInt4, .max_rows = rows, .max_logits = rows};
}

std::span<const float> row(const ModelRun& run, const std::vector<float>& logits, std::size_t i) {
  const std::size_t vocabulary = run.spec().vocabulary;
  return std::span(logits).subspan(i * vocabulary, vocabulary);
}

// -- Key biases ----------------------------------------------------------------------------------

// Pairs that are taken out of the keys of one head of 64 with these biases of its first half.
std::vector<std::uint32_t> outlying_pairs(const std::vector<float>& bias) {
  ModelSpec spec;
  spec.kv_heads = 1;
  spec.head_dim = 64;
  spec.rope_dims = 64;
  Rope rope;
  rope.inverse_frequency.assign(32, 1.0f);
  spec.ropes = {rope};
  LayerWeights weights;
  weights.key_bias = bias;
  weights.key_bias.resize(64);
  const auto heads = cpu::find_key_outliers(spec, weights, LayerSpec{}, 4);
  std::vector<std::uint32_t> pairs;
  for (const cpu::KeyOutliers::Pair& pair : heads[0].pairs) pairs.push_back(pair.first);
  return pairs;
}

TEST_CASE("key biases: large ones are taken out, however many there are") {
  std::vector<float> bias(32, 1.0f);
  CHECK(outlying_pairs(bias).empty());
  bias[5] = -7.9f;  // of a key's own size
  CHECK(outlying_pairs(bias).empty());
  bias[5] = -8.1f;
  bias[9] = 100;
  CHECK(outlying_pairs(bias) == std::vector<std::uint32_t>{5, 9});
  // As in the first layer of Qwen2.5 0.5B: many are large, and the largest are not four times that.
  for (std::uint32_t i = 0; i < 12; ++i) bias[i] = 90.0f + 5.0f * static_cast<float>(i);
  CHECK(outlying_pairs(bias).size() == 12);
}

}  // namespace

TEST_CASE("rejected guesses across the borders of blocks change nothing") {
  const Made model(1);
  Random random(1);
  ModelRun run(model.path(), int4(128));
  const Tokens tokens = random_tokens(random, 110);
  const std::vector<float> want = run.forward(tokens);
  for (const std::uint32_t start : {1u, 29u, 30u, 31u, 32u, 33u, 62u, 63u, 64u}) {
    for (const std::uint32_t guesses : {1u, 2u, 3u, 4u, 33u, 40u}) {
      for (const std::uint32_t right : {0u, 1u, 2u}) {
        if (right >= guesses) continue;
        CAPTURE(start);
        CAPTURE(guesses);
        CAPTURE(right);
        run.restart();
        run.forward({tokens.begin(), tokens.begin() + start}, 7);
        Tokens pass(tokens.begin() + start, tokens.begin() + start + 1 + right);
        for (std::uint32_t i = right; i < guesses; ++i)
          pass.push_back(static_cast<std::int32_t>(random() % kVocabulary));
        const auto guessed = run.forward(pass);
        for (std::uint32_t i = 0; i <= right; ++i)
          REQUIRE(same_bits(row(run, guessed, i), row(run, want, start + i)));
        // What came true is kept, nothing of it is run again.
        const std::uint32_t kept = start + 1 + right;
        REQUIRE(run.backend().resumable_length(run.kv(), run.sequence(), kept) == kept);
        run.kv().truncate(run.sequence(), kept);
        const auto rest = run.forward({tokens.begin() + kept, tokens.end()}, 1 + random() % 40);
        REQUIRE(
            same_bits(rest, std::span(want).subspan(std::size_t{kept} * run.spec().vocabulary)));
      }
    }
  }
}

TEST_CASE("a sequence goes on only from where its newest block is still held") {
  const Made model(2, "llama");
  Random random(2);
  ModelRun run(model.path(), int4(32));  // 5 slots
  CHECK(run.backend().max_open_blocks() == 5);
  const Tokens tokens = random_tokens(random, 300);
  const std::vector<float> want = run.forward(tokens);
  KvCache& kv = run.kv();
  const auto resumable = [&](std::uint32_t length) {
    return run.backend().resumable_length(kv, run.sequence(), length);
  };
  CHECK(resumable(300) == 300);
  CHECK(resumable(270) == 270);  // its block was full lately
  CHECK(resumable(70) == 64);
  CHECK(resumable(64) == 64);
  kv.truncate(run.sequence(), 70);
  std::vector<float> logits(run.spec().vocabulary);
  const std::vector<BatchRow> rows = {{tokens[70], 70, run.sequence(), true}};
  const auto refused = run.backend().forward(rows, kv, {0, 2}, {{}, logits, nullptr});
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().message.find("still held") != std::string::npos);
  kv.truncate(run.sequence(), resumable(70));
  const auto rest = run.forward({tokens.begin() + 64, tokens.end()}, 9);
  CHECK(same_bits(rest, std::span(want).subspan(std::size_t{64} * run.spec().vocabulary)));
}

TEST_CASE("more sequences at a time than it was made for: an error that says so") {
  const Made model(3, "llama");
  ModelRun run(model.path(), int4(16));  // 4 slots
  KvCache& kv = run.kv();
  std::vector<float> logits(run.spec().vocabulary);
  int done = 0;
  std::string message;
  for (int i = 0; i < 10; ++i) {
    const SequenceId id = kv.create();
    REQUIRE(kv.reserve(id, 1).ok());
    const std::vector<BatchRow> rows = {{1, 0, id, true}};
    const auto pass = run.backend().forward(rows, kv, {0, 2}, {{}, logits, nullptr});
    if (!pass.ok()) {
      message = pass.error().message;
      break;
    }
    kv.set_length(id, 1);
    ++done;
  }
  CHECK(done == 4);
  CHECK(message.find("run fewer sequences at a time") != std::string::npos);
}

TEST_CASE("sequences that share a partial block get it whole when one of them writes") {
  const Made model(4);
  Random random(4);
  ModelRun run(model.path(), int4(64));
  KvCache& kv = run.kv();
  const std::size_t vocabulary = run.spec().vocabulary;
  const Tokens common = random_tokens(random, 45);
  Tokens ends[2] = {random_tokens(random, 40), random_tokens(random, 40)};
  std::vector<float> want[2];
  for (int i = 0; i < 2; ++i) {
    run.restart();
    run.forward(common);
    want[i] = run.forward(ends[i]);
  }
  run.restart();
  run.forward(common);
  const SequenceId other = kv.create();
  kv.adopt(other, kv.blocks(run.sequence()), 45);
  const SequenceId ids[2] = {run.sequence(), other};
  for (std::uint32_t step = 0; step < 40; ++step) {  // both in every pass
    std::vector<BatchRow> rows;
    for (int i = 0; i < 2; ++i) {
      REQUIRE(kv.reserve(ids[i], 46 + step).ok());
      for (const BlockCopy& copy : kv.take_copies())
        REQUIRE(run.backend().copy_kv_block(kv, copy).ok());
      rows.push_back({ends[i][step], 45 + step, ids[i], true});
    }
    std::vector<float> logits(2 * vocabulary);
    REQUIRE(run.backend().forward(rows, kv, {0, run.spec().layers}, {{}, logits, nullptr}).ok());
    for (int i = 0; i < 2; ++i) {
      kv.set_length(ids[i], 46 + step);
      REQUIRE(same_bits(std::span(logits).subspan(i * vocabulary, vocabulary),
                        row(run, want[i], step)));
    }
  }
}

TEST_CASE("a block that is imported over another one leaves nothing of it behind") {
  const Made model(5, "llama");
  Random random(5);
  ModelRun run(model.path(), int4(64));
  KvCache& kv = run.kv();
  const Tokens tokens = random_tokens(random, 90);
  const std::vector<float> want = run.forward(tokens);
  std::vector<std::vector<std::byte>> saved;
  for (const std::uint32_t block : kv.blocks(run.sequence())) {
    saved.emplace_back(run.backend().kv_block_bytes());
    REQUIRE(run.backend().export_kv_block(block, saved.back()).ok());
  }
  // Another text goes into the same blocks, whose newest ones are held.
  run.restart();
  run.forward(random_tokens(random, 90));
  run.restart();
  REQUIRE(kv.reserve(run.sequence(), 90).ok());
  for (std::size_t i = 0; i < saved.size(); ++i)
    run.backend().import_kv_block(kv.blocks(run.sequence())[i], saved[i]);
  kv.set_length(run.sequence(), 90);
  const std::uint32_t held = run.backend().resumable_length(kv, run.sequence(), 90);
  CHECK(held == 64);
  kv.truncate(run.sequence(), held);
  const auto rest = run.forward({tokens.begin() + held, tokens.end()});
  CHECK(same_bits(rest, std::span(want).subspan(std::size_t{held} * run.spec().vocabulary)));
}

TEST_CASE("an interrupted pass can be run again, and tokens of other lengths in its place") {
  const Made model(6, "llama");
  Random random(6);
  ModelRun run(model.path(), int4(64));
  KvCache& kv = run.kv();
  const Tokens tokens = random_tokens(random, 100);
  const std::vector<float> want = run.forward(tokens);
  run.restart();
  std::vector<float> logits(64 * run.spec().vocabulary);
  for (std::uint32_t done = 0; done < 100;) {
    const std::uint32_t count = std::min<std::uint32_t>(1 + random() % 40, 100 - done);
    REQUIRE(kv.reserve(run.sequence(), done + count).ok());
    std::vector<BatchRow> rows;
    for (std::uint32_t i = 0; i < count; ++i)
      rows.push_back(
          {static_cast<std::int32_t>(random() % kVocabulary), done + i, run.sequence(), false});
    const std::atomic<bool> cancel = true;
    const auto cancelled = run.backend().forward(rows, kv, {0, 2}, {{}, logits, &cancel});
    REQUIRE_FALSE(cancelled.ok());
    CHECK(cancelled.error().code == ErrorCode::kInterrupted);
    const std::uint32_t now = 1 + random() % count;
    const auto got = run.forward({tokens.begin() + done, tokens.begin() + done + now});
    REQUIRE(same_bits(
        got, std::span(want).subspan(std::size_t{done} * run.spec().vocabulary, got.size())));
    done += now;
  }
}

TEST_CASE("a conversation that is rewound anywhere, or restored, gives the logits of a fresh one") {
  const Made model(7);
  Random random(7);
  auto loaded = Engine::load(model.path(), {.context = 512,
                                            .sequences = 2,
                                            .kv = KvCacheType::kInt4,
                                            .threads = 1,
                                            .prefill_chunk = 48});
  REQUIRE_MESSAGE(loaded.ok(), (loaded.ok() ? "" : loaded.error().message));
  Engine& engine = **loaded;
  const std::size_t vocabulary = engine.spec().vocabulary;
  CachedSequence kept(engine);
  Tokens tokens = random_tokens(random, 40);
  std::uint64_t reused = 0;
  for (int turn = 0; turn < 60; ++turn) {
    CAPTURE(turn);
    if (turn % 7 == 6) {  // saved and restored
      std::vector<std::byte> bytes(kept.snapshot_bytes());
      REQUIRE(kept.export_snapshot(bytes).ok());
      const Tokens held = kept.tokens();
      REQUIRE(kept.import_snapshot(held, bytes).ok());
      CHECK(kept.tokens().size() == held.size() / 32 * 32);
    }
    // Back to any place, and on with other tokens.
    if (turn % 3 != 0) tokens.resize(1 + random() % tokens.size());
    const Tokens more = random_tokens(random, 1 + random() % 60);
    tokens.insert(tokens.end(), more.begin(), more.end());
    if (tokens.size() > 400) tokens.resize(30);
    std::vector<float> logits(vocabulary), fresh_logits(vocabulary);
    const auto prefill = kept.assign(tokens, logits, nullptr);
    REQUIRE_MESSAGE(prefill.ok(), (prefill.ok() ? "" : prefill.error().message));
    reused += prefill->reused;
    CHECK(kept.tokens() == tokens);
    CachedSequence fresh(engine);
    REQUIRE(fresh.assign(tokens, fresh_logits, nullptr).ok());
    REQUIRE(same_bits(logits, fresh_logits));
    // A few tokens of an answer, with guesses that are dropped.
    for (int step = 0; step < 5; ++step) {
      const Tokens pass = random_tokens(random, 4);
      std::vector<float> guessed(4 * vocabulary), alone(4 * vocabulary);
      const TokenTree tree = chain(pass);
      REQUIRE(kept.append(tree, guessed, nullptr).ok());
      const std::vector<std::uint32_t> path = {0, 1};
      REQUIRE(kept.keep(tree, path).ok());
      for (int i = 0; i < 2; ++i) {
        REQUIRE(fresh.append({&pass[static_cast<std::size_t>(i)], 1}, alone, nullptr).ok());
        REQUIRE(same_bits(
            std::span(alone).first(vocabulary),
            std::span(guessed).subspan(static_cast<std::size_t>(i) * vocabulary, vocabulary)));
        tokens.push_back(pass[static_cast<std::size_t>(i)]);
      }
    }
  }
  CHECK(reused > 1000);
}

TEST_CASE("a tree of guesses runs while there are slots for its paths") {
  const Made model(9, "llama");
  Random random(9);
  auto loaded = Engine::load(
      model.path(),
      {.context = 512, .kv = KvCacheType::kInt4, .threads = 1, .prefill_chunk = 32});  // 5 slots
  REQUIRE(loaded.ok());
  Engine& engine = **loaded;
  const std::size_t vocabulary = engine.spec().vocabulary;
  const Tokens prompt = random_tokens(random, 62);
  CachedSequence sequence(engine);
  std::vector<float> logits(16 * vocabulary), alone(vocabulary);
  REQUIRE(sequence.assign(prompt, std::span(logits).first(vocabulary), nullptr).ok());
  const auto tree_of = [](std::uint32_t paths) {  // of two tokens behind the root
    TokenTree tree = chain({5});
    for (std::uint32_t i = 0; i < paths; ++i) {
      tree.tokens.push_back(static_cast<std::int32_t>(10 + i));
      tree.parents.push_back(0);
      tree.tokens.push_back(static_cast<std::int32_t>(50 + i));
      tree.parents.push_back(1 + 2 * i);
    }
    return tree;
  };
  // Tokens 62, 63 and 64: two blocks a path.
  CHECK(sequence.has_room(tree_of(1)));
  CHECK(sequence.has_room(tree_of(2)));
  CHECK_FALSE(sequence.has_room(tree_of(3)));
  const TokenTree tree = tree_of(2);
  REQUIRE(sequence.append(tree, std::span(logits).first(5 * vocabulary), nullptr).ok());
  REQUIRE(sequence.keep(tree, std::vector<std::uint32_t>{0, 3, 4}).ok());  // the second path
  Tokens text = prompt;
  text.insert(text.end(), {5, 11, 51});
  CHECK(sequence.tokens() == text);
  CachedSequence fresh(engine);
  REQUIRE(fresh.assign(text, alone, nullptr).ok());
  CHECK(same_bits(alone, std::span(logits).subspan(4 * vocabulary, vocabulary)));
  const Tokens next = {7};  // and on from there
  REQUIRE(fresh.append(next, alone, nullptr).ok());
  REQUIRE(sequence.append(next, std::span(logits).first(vocabulary), nullptr).ok());
  CHECK(same_bits(alone, std::span(logits).first(vocabulary)));
}

TEST_CASE("the memory plan counts the newest blocks, and 4 bits are 0.59 of 8") {
  const Made model(8, "llama");
  const auto bytes = [&](KvCacheType kv, std::uint32_t context, std::uint32_t sequences) {
    auto engine = Engine::load(
        model.path(),
        {.context = context, .kv_tokens = context, .sequences = sequences, .kv = kv, .threads = 1});
    REQUIRE(engine.ok());
    return (*engine)->info().memory.kv_cache;
  };
  // Heads of 48 take 2 groups: keys and values of 640 bytes a group and 32 tokens; in f16 the keys
  // are not padded. 2 heads, 2 layers.
  const std::uint64_t block = std::uint64_t{2} * 2 * 2 * 2 * 640;
  const std::uint64_t slot = std::uint64_t{2} * 2 * (48 + 64) * 32 * 2;
  CHECK(bytes(KvCacheType::kInt4, 4096, 1) == 128 * block + (8 + 4) * slot);
  CHECK(bytes(KvCacheType::kInt4, 4096, 3) >= 128 * block + (8 + 8) * slot);
  CHECK(bytes(KvCacheType::kInt4, 64, 1) == 2 * block + 2 * slot);  // no more than there are blocks
  const double share =
      static_cast<double>(128 * block) / static_cast<double>(bytes(KvCacheType::kInt8, 4096, 1));
  CHECK(share == doctest::Approx(0.588).epsilon(0.001));
}

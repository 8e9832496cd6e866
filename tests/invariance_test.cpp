// The first promise: a row's logits depend on its own sequence only, bit for bit. Random models of
// every architecture and block type are run in one pass, in chunks, token by token, with more
// threads, on other instruction sets, beside other sequences, after a rollback and with the layers
// split; every logit must have the same bits.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "src/backend/cpu/kernels.h"
#include "tests/run_model.h"
#include "tests/sanitized.h"
#include "tests/temporary_folder.h"
#include "tools/model_maker/maker.h"

using namespace sluice;
using sluice::test::ModelRun;

namespace {

using Random = std::mt19937;

std::uint64_t pick(Random& random, std::initializer_list<std::uint64_t> choices) {
  return std::data(choices)[random() % choices.size()];
}

ModelShape random_shape(Random& random, std::string_view arch, BlockType type) {
  const std::uint64_t block = block_type_info(type).block_size;
  ModelShape shape;
  shape.arch = arch;
  shape.type = type;
  shape.layers = arch == "gemma3" ? 7 : 2;
  shape.kv_heads = pick(random, {1, 2, 3});
  shape.heads = shape.kv_heads * pick(random, {1, 2, 3, 4});
  shape.head_dim = pick(random, {32, 64, 80, 96, 112});
  if (block == 256) shape.head_dim = pick(random, {64, 128, 256});
  // Rows of a matrix are whole blocks.
  while (shape.heads * shape.head_dim % block != 0) shape.heads += shape.kv_heads;
  shape.embd = block == 256 ? 256 : 32 * pick(random, {2, 3, 5});
  shape.ffn = block == 256 ? 512 : 32 * pick(random, {3, 4, 7});
  shape.vocab = 300 + random() % 50;
  shape.untied = random() % 2 == 0;
  shape.rope_factors = arch == "llama" && random() % 2 == 0;
  shape.seed = random();
  if (arch == "qwen2") shape.key_bias_outliers = 20;
  return shape;
}

std::vector<std::int32_t> random_tokens(Random& random, std::size_t count, std::size_t vocabulary) {
  std::vector<std::int32_t> tokens(count);
  for (auto& token : tokens) token = static_cast<std::int32_t>(random() % vocabulary);
  return tokens;
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

bool all_finite(std::span<const float> values) {
  return std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
}

// Runs `tokens` in passes that other sequences' rows share, in random shares; logits of all rows.
std::vector<float> run_among_neighbours(ModelRun& run, const std::vector<std::int32_t>& tokens,
                                        Random& random) {
  KvCache& kv = run.kv();
  const std::size_t vocabulary = run.spec().vocabulary;
  const SequenceId before = kv.create(), after = kv.create();
  std::vector<float> all(tokens.size() * vocabulary), logits(64 * vocabulary);
  for (std::size_t done = 0; done < tokens.size();) {
    const std::size_t own = std::min<std::size_t>(1 + random() % 9, tokens.size() - done);
    std::vector<BatchRow> rows;
    std::size_t first = 0;
    const auto add = [&](SequenceId sequence, std::size_t count) {
      const std::uint32_t length = kv.length(sequence);
      REQUIRE(kv.reserve(sequence, length + static_cast<std::uint32_t>(count)).ok());
      for (std::uint32_t i = 0; i < count; ++i) {
        const bool mine = sequence == run.sequence();
        const auto other = static_cast<std::int32_t>(random() % vocabulary);
        rows.push_back({mine ? tokens[done + i] : other, length + i, sequence, true});
      }
      kv.set_length(sequence, length + static_cast<std::uint32_t>(count));
    };
    if (kv.length(before) < 400) add(before, random() % 6);
    first = rows.size();
    add(run.sequence(), own);
    if (kv.length(after) < 400) add(after, random() % 6);
    const auto pass =
        run.backend().forward(rows, kv, {0, run.spec().layers}, {{}, logits, nullptr});
    REQUIRE_MESSAGE(pass.ok(), (pass.ok() ? "" : pass.error().message));
    std::copy_n(logits.data() + first * vocabulary, own * vocabulary,
                all.data() + done * vocabulary);
    done += own;
  }
  kv.release(before);
  kv.release(after);
  return all;
}

// The layers in two calls, the residual stream handed over between them.
std::vector<float> run_split(ModelRun& run, const std::vector<std::int32_t>& tokens) {
  KvCache& kv = run.kv();
  const ModelSpec& spec = run.spec();
  std::vector<float> logits(tokens.size() * spec.vocabulary);
  std::vector<float> hidden(tokens.size() * spec.embedding);
  REQUIRE(kv.reserve(run.sequence(), static_cast<std::uint32_t>(tokens.size())).ok());
  std::vector<BatchRow> rows;
  for (std::uint32_t i = 0; i < tokens.size(); ++i) {
    rows.push_back({tokens[i], i, run.sequence(), true});
  }
  REQUIRE(run.backend().forward(rows, kv, {0, 1}, {hidden, {}, nullptr}).ok());
  REQUIRE(run.backend().forward(rows, kv, {1, spec.layers}, {hidden, logits, nullptr}).ok());
  return logits;
}

void check_shape(const ModelShape& shape, KvCacheType kv, std::size_t length, Random& random) {
  CAPTURE(shape.arch);
  CAPTURE(block_type_info(shape.type).name);
  CAPTURE(shape.head_dim);
  const test::TemporaryFolder folder;
  const std::string path = folder / "model.gguf";
  const auto made = make_model(shape, path, 1);
  REQUIRE_MESSAGE(made.ok(), (made.ok() ? "" : made.error().message));

  const cpu::CpuOptions plain{.threads = 1, .kv = kv, .max_rows = 512, .max_logits = 512};
  ModelRun whole(path, plain);
  const auto tokens = random_tokens(random, length, shape.vocab);
  const std::vector<float> want = whole.forward(tokens);
  CHECK(all_finite(want));

  for (const std::uint32_t chunk :
       {std::uint32_t{1}, static_cast<std::uint32_t>(2 + random() % 40)}) {
    CAPTURE(chunk);
    whole.restart();
    CHECK(same_bits(whole.forward(tokens, chunk), want));
  }
  // Back to a random place, over other tokens and on again.
  auto keep = static_cast<std::uint32_t>(random() % length);
  keep = whole.backend().resumable_length(whole.kv(), whole.sequence(), keep);
  whole.kv().truncate(whole.sequence(), keep);
  whole.forward(random_tokens(random, length - keep, shape.vocab));
  keep = whole.backend().resumable_length(whole.kv(), whole.sequence(), keep);
  whole.kv().truncate(whole.sequence(), keep);
  const std::vector<std::int32_t> rest(tokens.begin() + keep, tokens.end());
  CHECK(same_bits(whole.forward(rest), std::span(want).subspan(keep * whole.spec().vocabulary)));

  whole.restart();
  CHECK(same_bits(run_among_neighbours(whole, tokens, random), want));
  whole.restart();
  CHECK(same_bits(run_split(whole, tokens), want));

  cpu::CpuOptions more = plain;
  more.threads = 3;
  ModelRun threaded(path, more);
  CHECK(same_bits(threaded.forward(tokens), want));

  for (const cpu::Kernels* kernels : cpu::all_kernels()) {
    if (!kernels->supported() || kernels == &cpu::best_kernels()) continue;
    CAPTURE(kernels->name);
    cpu::CpuOptions other = plain;
    other.isa = kernels->name;
    ModelRun run(path, other);
    CHECK(run.backend().description().find(kernels->name) != std::string::npos);
    CHECK(same_bits(run.forward(tokens), want));
  }
}

}  // namespace

TEST_CASE("same logits for every architecture, however the rows are run") {
  Random random(11);
  const KvCacheType kinds[] = {KvCacheType::kInt8, KvCacheType::kF16, KvCacheType::kInt4,
                               KvCacheType::kF32};
  std::size_t n = 0;
  for (const ArchitectureFacts& arch : model_architectures()) {
    const BlockType type = n % 2 == 0 ? BlockType::kQ4_0 : BlockType::kF32;
    check_shape(random_shape(random, arch.name, type), kinds[n % 4], 40 + random() % 30, random);
    ++n;
  }
}

TEST_CASE("same logits for every block type, however the rows are run" *
          doctest::skip(test::kThreadSanitized)) {  // threads do the same for all types
  Random random(12);
  const KvCacheType kinds[] = {KvCacheType::kF16, KvCacheType::kInt8, KvCacheType::kF32,
                               KvCacheType::kInt4};
  std::size_t n = 0;
  for (const BlockTypeInfo& info : block_types()) {
    check_shape(random_shape(random, "llama", info.type), kinds[n % 4], 20 + random() % 30, random);
    ++n;
  }
}

TEST_CASE("same logits beyond the borders of attention's pieces and windows") {
  Random random(13);
  for (const char* arch : {"llama", "gemma3"}) {
    for (const KvCacheType kv : {KvCacheType::kInt8, KvCacheType::kF16, KvCacheType::kInt4}) {
      ModelShape shape = random_shape(random, arch, BlockType::kQ8_0);
      shape.embd = 64;
      shape.ffn = 96;
      shape.window = 100;
      check_shape(shape, kv, 257 + random() % 60, random);
    }
  }
}

TEST_CASE("large key biases do not spoil a cache of few bits") {
  const test::TemporaryFolder folder;
  Random random(14);
  double error[2] = {}, error4[2] = {};
  for (const bool outliers : {false, true}) {
    ModelShape shape;
    shape.arch = "qwen2";
    shape.head_dim = 64;
    shape.layers = 2;
    shape.key_bias_outliers = outliers ? 150.0f : 0.0f;  // as in Qwen2.5's first layer
    const std::string path = folder / (outliers ? "biased.gguf" : "plain.gguf");
    REQUIRE(make_model(shape, path, 1).ok());
    Random same_tokens(15);
    const auto tokens = random_tokens(same_tokens, 100, shape.vocab);
    ModelRun exact(path, {.kv = KvCacheType::kF32, .max_rows = 128, .max_logits = 128});
    const std::vector<float> want = exact.forward(tokens);
    for (const KvCacheType kv : {KvCacheType::kInt8, KvCacheType::kInt4}) {
      ModelRun small(path, {.kv = kv, .max_rows = 128, .max_logits = 128});
      const std::vector<float> got = small.forward(tokens);
      double difference = 0, norm = 0;
      for (std::size_t i = 0; i < want.size(); ++i) {
        difference += std::pow(double{got[i]} - want[i], 2);
        norm += std::pow(double{want[i]}, 2);
      }
      (kv == KvCacheType::kInt8 ? error : error4)[outliers ? 1 : 0] = std::sqrt(difference / norm);
    }
  }
  std::printf("int8 KV, relative L2 of logits from F32 KV: %.1e, with key biases of 150: %.1e\n",
              error[0], error[1]);
  std::printf("int4 KV: %.1e, with key biases of 150: %.1e\n", error4[0], error4[1]);
  CHECK(error4[0] < 0.1);
  CHECK(error4[1] < 0.1);
  CHECK(error[0] < 0.02);
  CHECK(error[1] < 0.02);
}

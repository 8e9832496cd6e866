// An int4 cache on the CUDA backend: tokens of the CPU's, and the same bits whatever is guessed and
// rejected, shared, copied, cut back, saved and read again. With SLUICE_ON_DEVICE on a GPU.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "cuda/host/cuda_platform.h"
#include "src/engine/cached_sequence.h"
#include "src/engine/engine.h"
#include "tests/conformance.h"
#include "tests/run_model.h"
#ifndef SLUICE_ON_DEVICE
#include "tests/simt/runtime_emulated.h"
#endif
#include "tests/temporary_folder.h"
#include "tools/model_maker/maker.h"

using namespace sluice;
using sluice::test::ModelRun;

namespace {

using Kind = DeviceChoice::Kind;
using Random = std::mt19937;
using Tokens = std::vector<std::int32_t>;

constexpr std::uint32_t kVocabulary = 300;

Tokens random_tokens(Random& random, std::size_t count, std::uint32_t vocabulary = kVocabulary) {
  Tokens tokens(count);
  for (auto& token : tokens) token = static_cast<std::int32_t>(random() % vocabulary);
  return tokens;
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

// A file with a model of random weights: "llama" has heads of whole tiles and the fused kernels,
// "gemma3" windows and heads that need padding, "qwen2" large key biases.
class Made {
 public:
  explicit Made(std::uint32_t seed, const std::string& arch = "llama") {
    ModelShape shape;
    shape.arch = arch;
    shape.layers = arch == "gemma3" ? 7 : 2;
    shape.kv_heads = 2;
    shape.heads = 6;
    shape.head_dim = arch == "llama" ? 64 : 48;
    shape.embd = 64;
    shape.ffn = 64;
    shape.vocab = kVocabulary;
    shape.window = 50;
    shape.seed = seed;
    shape.type = arch == "llama" ? BlockType::kQ4_0 : BlockType::kQ8_0;
    if (arch == "qwen2") shape.key_bias_outliers = 10;
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
ModelRun on_gpu(const std::string& path, std::uint32_t rows,
                DeviceChoice choice = {.kind = Kind::kGpu}) {
  return ModelRun(path, int4(rows), 512, cuda::platform(), choice);
}

std::span<const float> row(const ModelRun& run, std::span<const float> logits, std::size_t i) {
  const std::size_t vocabulary = run.spec().vocabulary;
  return logits.subspan(i * vocabulary, vocabulary);
}
std::int32_t argmax(std::span<const float> row) {
  return static_cast<std::int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
}
float gap(std::span<const float> logits) {
  std::vector<float> sorted(logits.begin(), logits.end());
  std::nth_element(sorted.begin(), sorted.begin() + 1, sorted.end(), std::greater<>());
  return sorted[0] - sorted[1];
}
double relative_l2(std::span<const float> got, std::span<const float> want) {
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double difference = static_cast<double>(got[i]) - want[i];
    error += difference * difference;
    norm += static_cast<double>(want[i]) * want[i];
  }
  return std::sqrt(error / norm);
}

}  // namespace

TEST_CASE("int4: reference models give the CPU backend's tokens, past the borders of blocks") {
  for (const char* name : {"llama", "qwen2", "gemma3"}) {
    const std::string path = test::conformance_file("models/" + std::string(name) + ".gguf");
    if (path.empty()) return;
    CAPTURE(name);
    ModelRun cpu(path, int4(64));
    ModelRun gpu = on_gpu(path, 64);
    Random random(1);
    const Tokens tokens = random_tokens(random, 40, cpu.spec().vocabulary);
    const auto want = cpu.forward(tokens);
    const auto got = gpu.forward(tokens);
    int equal = 0;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const bool same = argmax(row(gpu, got, i)) == argmax(row(cpu, want, i));
      equal += same ? 1 : 0;
      // Where two logits are as good as equal, rounding decides.
      if (gap(row(cpu, want, i)) > 0.02f) CHECK(same);
    }
    const double distance = relative_l2(got, want);
    std::printf("%-10s int4 cache: relative L2 %.1e from the CPU backend, %d of 40 tokens equal\n",
                name, distance, equal);
    CHECK(distance < 1e-2);
  }
}

TEST_CASE("int4: a row's logits are the same bits in any pass, on one device or more") {
  for (const char* arch : {"llama", "gemma3", "qwen2"}) {
    CAPTURE(arch);
    const Made model(1, arch);
    Random random(1);
    const Tokens tokens = random_tokens(random, 75);
    ModelRun run = on_gpu(model.path(), 80);
    const auto want = run.forward(tokens);  // in one pass
    ModelRun cpu(model.path(), int4(80));
    CHECK(relative_l2(want, cpu.forward(tokens)) < 2e-2);
    for (const std::uint32_t chunk : {1u, 33u}) {
      CAPTURE(chunk);
      run.restart();
      CHECK(same_bits(run.forward(tokens, chunk), want));
    }
    // Beside rows of another sequence, which fills blocks in the same passes.
    run.restart();
    KvCache& kv = run.kv();
    const SequenceId other = kv.create();
    std::vector<float> logits(std::size_t{80} * run.spec().vocabulary);
    for (std::uint32_t done = 0; done < tokens.size();) {
      const auto own = std::min<std::uint32_t>(1 + random() % 30,
                                               static_cast<std::uint32_t>(tokens.size()) - done);
      const std::uint32_t theirs = 1 + random() % 40;
      std::vector<BatchRow> rows;
      const auto add = [&](SequenceId sequence, std::uint32_t count) {
        const std::uint32_t length = kv.length(sequence);
        REQUIRE(kv.reserve(sequence, length + count).ok());
        for (std::uint32_t i = 0; i < count; ++i)
          rows.push_back({tokens[(sequence == other ? i : done + i) % tokens.size()], length + i,
                          sequence, true});
        kv.set_length(sequence, length + count);
      };
      const bool is_first = random() % 2 == 0;
      if (!is_first) add(other, theirs);
      add(run.sequence(), own);
      if (is_first) add(other, theirs);
      const auto pass =
          run.backend().forward(rows, kv, {0, run.spec().layers}, {{}, logits, nullptr});
      REQUIRE_MESSAGE(pass.ok(), (pass.ok() ? "" : pass.error().message));
      const std::size_t vocabulary = run.spec().vocabulary;
      CHECK(same_bits(
          std::span(logits).subspan((is_first ? 0 : theirs) * vocabulary, own * vocabulary),
          std::span(want).subspan(done * vocabulary, own * vocabulary)));
      done += own;
    }
  }
}

TEST_CASE("int4: rejected guesses across the borders of blocks change nothing") {
  const Made model(2);
  Random random(2);
  ModelRun run = on_gpu(model.path(), 80);
  const Tokens tokens = random_tokens(random, 70);
  const std::vector<float> want = run.forward(tokens);
  for (const std::uint32_t start : {1u, 30u, 31u, 32u, 63u}) {
    for (const std::uint32_t guesses : {1u, 3u, 33u}) {
      const std::uint32_t right = random() % std::min(guesses, 3u);
      CAPTURE(start);
      CAPTURE(guesses);
      CAPTURE(right);
      run.restart();
      run.forward({tokens.begin(), tokens.begin() + start}, 40);
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
      REQUIRE(same_bits(rest, std::span(want).subspan(std::size_t{kept} * run.spec().vocabulary)));
    }
  }
}

TEST_CASE("int4: sequences that share a partial block, and blocks in other places") {
  const Made model(3);
  Random random(3);
  ModelRun run = on_gpu(model.path(), 64);
  KvCache& kv = run.kv();
  const std::size_t vocabulary = run.spec().vocabulary;
  const Tokens common = random_tokens(random, 45);
  Tokens ends[2] = {random_tokens(random, 25), random_tokens(random, 25)};
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
  for (std::uint32_t step = 0; step < 25; ++step) {  // both in every pass
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
      REQUIRE(same_bits(row(run, logits, static_cast<std::size_t>(i)), row(run, want[i], step)));
    }
  }

  // Exported, another text in the same blocks, imported: it goes on from whole blocks.
  std::vector<std::vector<std::byte>> saved;
  for (const std::uint32_t block : kv.blocks(run.sequence())) {
    saved.emplace_back(run.backend().kv_block_bytes());
    REQUIRE(run.backend().export_kv_block(block, saved.back()).ok());
  }
  CHECK(run.backend().kv_format().find("cuda-3 int4 ") == 0);
  run.restart();
  run.forward(random_tokens(random, 70));
  run.restart();
  REQUIRE(kv.reserve(run.sequence(), 70).ok());
  for (std::size_t i = 0; i < saved.size(); ++i)
    run.backend().import_kv_block(kv.blocks(run.sequence())[i], saved[i]);
  kv.set_length(run.sequence(), 70);
  CHECK(run.backend().resumable_length(kv, run.sequence(), 70) == 64);
  kv.truncate(run.sequence(), 64);
  const auto rest = run.forward({ends[0].begin() + 19, ends[0].end()});
  CHECK(same_bits(rest, std::span(want[0]).subspan(std::size_t{19} * vocabulary)));
}

TEST_CASE("int4: only where the newest block is still held; too many sequences are an error") {
  const Made model(4);
  Random random(4);
  ModelRun run = on_gpu(model.path(), 16);  // 4 slots
  CHECK(run.backend().max_open_blocks() == 4);
  KvCache& kv = run.kv();
  run.forward(random_tokens(random, 170));
  CHECK(run.backend().resumable_length(kv, run.sequence(), 150) == 150);
  CHECK(run.backend().resumable_length(kv, run.sequence(), 40) == 32);
  kv.truncate(run.sequence(), 40);
  std::vector<float> logits(run.spec().vocabulary);
  const std::vector<BatchRow> rows = {{1, 40, run.sequence(), true}};
  const auto refused = run.backend().forward(rows, kv, {0, 2}, {{}, logits, nullptr});
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().message.find("still held") != std::string::npos);
  kv.truncate(run.sequence(), 0);
  int done = 0;
  std::string message;
  for (int i = 0; i < 10 && message.empty(); ++i) {
    const SequenceId id = kv.create();
    REQUIRE(kv.reserve(id, 1).ok());
    const std::vector<BatchRow> first = {{1, 0, id, true}};
    const auto pass = run.backend().forward(first, kv, {0, 2}, {{}, logits, nullptr});
    if (!pass.ok()) message = pass.error().message;
    if (pass.ok()) kv.set_length(id, 1);
    done += pass.ok() ? 1 : 0;
  }
  CHECK(done == 4);
  CHECK(message.find("run fewer sequences at a time") != std::string::npos);
}

TEST_CASE("int4: a conversation that is rewound anywhere, or restored, also on CPU and GPU") {
  const Made model(5, "gemma3");
  for (const bool split : {false, true}) {
    CAPTURE(split);
    Random random(5);
    DeviceChoice device = {.kind = Kind::kGpu};
    if (split) device.gpu_layers = 3;
    auto loaded = Engine::load(model.path(), {.context = 256,
                                              .sequences = 2,
                                              .kv = KvCacheType::kInt4,
                                              .threads = 1,
                                              .gpu = cuda::platform(),
                                              .device = device,
                                              .prefill_chunk = 48});
    REQUIRE_MESSAGE(loaded.ok(), (loaded.ok() ? "" : loaded.error().message));
    Engine& engine = **loaded;
    const std::size_t vocabulary = engine.spec().vocabulary;
    CachedSequence kept(engine);
    Tokens tokens = random_tokens(random, 40);
    std::uint64_t reused = 0;
    for (int turn = 0; turn < (split ? 3 : 5); ++turn) {
      CAPTURE(turn);
      if (turn % 4 == 3) {  // saved and restored
        std::vector<std::byte> bytes(kept.snapshot_bytes());
        REQUIRE(kept.export_snapshot(bytes).ok());
        const Tokens held = kept.tokens();
        REQUIRE(kept.import_snapshot(held, bytes).ok());
        CHECK(kept.tokens().size() == held.size() / 32 * 32);
      }
      // Back to any place, and on with other tokens.
      if (turn % 3 == 2) tokens.resize(1 + random() % tokens.size());
      const Tokens more = random_tokens(random, 1 + random() % 40);
      tokens.insert(tokens.end(), more.begin(), more.end());
      std::vector<float> logits(vocabulary), fresh_logits(vocabulary);
      const auto prefill = kept.assign(tokens, logits, nullptr);
      REQUIRE_MESSAGE(prefill.ok(), (prefill.ok() ? "" : prefill.error().message));
      reused += prefill->reused;
      CachedSequence fresh(engine);
      REQUIRE(fresh.assign(tokens, fresh_logits, nullptr).ok());
      REQUIRE(same_bits(logits, fresh_logits));
    }
    CHECK(reused > 30);
  }
}

#ifndef SLUICE_ON_DEVICE
TEST_CASE("int4: heads that want more shared memory than a GPU has are an error") {
  test::TemporaryFolder folder;
  const std::string path = folder / "model.gguf";
  ModelShape shape;
  shape.layers = 1;
  shape.heads = 2;
  shape.kv_heads = 1;
  shape.head_dim = 256;
  shape.embd = 64;
  shape.ffn = 64;
  shape.vocab = kVocabulary;
  REQUIRE(make_model(shape, path, 1).ok());
  for (const std::uint32_t major : {7u, 8u}) {
    cuda::emulated_machine().major = major;
    const auto engine = Engine::load(path, {.context = 64,
                                            .kv = KvCacheType::kInt4,
                                            .threads = 1,
                                            .gpu = cuda::platform(),
                                            .device = {.kind = Kind::kGpu}});
    CHECK(engine.ok() == (major == 8));
    if (!engine.ok()) CHECK(engine.error().message.find("over an int4 cache") != std::string::npos);
  }
  cuda::emulated_machine() = {};
}
#endif

TEST_CASE("int4: the memory plan counts the newest blocks") {
  const Made model(6);
  const auto bytes = [&](std::uint32_t context, std::uint32_t sequences) {
    auto engine = Engine::load(model.path(), {.context = context,
                                              .kv_tokens = context,
                                              .sequences = sequences,
                                              .kv = KvCacheType::kInt4,
                                              .threads = 1,
                                              .gpu = cuda::platform(),
                                              .device = {.kind = Kind::kGpu}});
    REQUIRE_MESSAGE(engine.ok(), (engine.ok() ? "" : engine.error().message));
    return (*engine)->info().memory.kv_cache;
  };
  // Heads of 64 take 2 groups, of keys and of values: 640 bytes a group and 32 tokens, 2048 in f16.
  // 2 heads, 2 layers.
  const std::uint64_t block = std::uint64_t{2} * 2 * 2 * 2 * 640;
  const std::uint64_t slot = std::uint64_t{2} * 2 * 2 * 2 * 2048;
  CHECK(bytes(2048, 1) == 64 * block + (8 + 4) * slot);
  CHECK(bytes(64, 1) == 2 * block + 2 * slot);  // no more than there are blocks
}

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "src/gguf/gguf.h"
#include "src/quant/codec.h"
#include "tests/conformance.h"
#include "tests/temporary_folder.h"
#include "tools/model_maker/maker.h"

using namespace sluice;
using test::TemporaryFolder;

namespace {

ModelShape small(std::string_view arch) {
  ModelShape shape;
  shape.arch = arch;
  shape.vocab = 300;
  return shape;
}

std::vector<float> decoded(const GgufTensor& tensor) {
  std::vector<float> out(tensor.elements);
  decode_blocks(tensor.type, tensor.data, out);
  return out;
}

// FNV-1a, 64 bits.
std::uint64_t hash(std::string_view bytes) {
  std::uint64_t h = 0xcbf29ce484222325u;
  for (const char c : bytes) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return h;
}

}  // namespace

TEST_CASE("every architecture has the tensors and keys of the reference models") {
  const TemporaryFolder folder;
  for (const ArchitectureFacts& facts : model_architectures()) {
    INFO(facts.name);
    const std::string path = test::conformance_file(fmt::format("models/{}.gguf", facts.name));
    if (path.empty()) return;
    const auto reference = GgufFile::open(path);
    REQUIRE(reference.ok());
    const auto value = [&](std::string_view key) {
      const auto found = reference->get_uint_or(fmt::format("{}.{}", facts.gguf_name, key), 0);
      return found.ok() ? *found : 0;
    };
    ModelShape shape;
    shape.arch = facts.name;
    shape.layers = value("block_count");
    shape.embd = value("embedding_length");
    shape.heads = value("attention.head_count");
    shape.kv_heads = value("attention.head_count_kv");
    shape.head_dim = value("attention.key_length");
    shape.ffn = facts.name == "qwen3moe" ? value("expert_feed_forward_length")
                                         : value("feed_forward_length");
    shape.vocab = value("vocab_size");
    shape.untied = reference->find_tensor("output.weight") != nullptr;
    if (facts.experts) {
      shape.experts = value("expert_count");
      shape.experts_used = value("expert_used_count");
    }
    REQUIRE(make_model(shape, folder / "made.gguf", 1).ok());
    const auto made = GgufFile::open(folder / "made.gguf");
    REQUIRE(made.ok());
    CHECK(made->tensors().size() == reference->tensors().size());
    for (const GgufTensor& expected : reference->tensors()) {
      INFO(expected.name);
      const GgufTensor* tensor = made->find_tensor(expected.name);
      REQUIRE(tensor != nullptr);
      CHECK(tensor->dims == expected.dims);
    }
    for (const auto& [key, expected] : reference->metadata()) {
      // phi3 comes with a vocabulary of its own.
      if (facts.name == "phi3" && key.starts_with("tokenizer.")) continue;
      const std::string_view shown = key;  // clang cannot capture a structured binding
      INFO(shown);
      const GgufValue* found = made->find(key);
      REQUIRE(found != nullptr);
      CHECK(found->type == expected.type);
    }
  }
}

TEST_CASE("weights have the announced mean and deviation, norms are near one") {
  const TemporaryFolder folder;
  ModelShape shape = small("llama");
  shape.rope_factors = true;
  REQUIRE(make_model(shape, folder / "m.gguf", 2).ok());
  const auto file = GgufFile::open(folder / "m.gguf");
  REQUIRE(file.ok());
  const auto statistics = [&](std::string_view name) {
    const auto weights = decoded(*file->find_tensor(name));
    double sum = 0;
    double square = 0;
    for (const float w : weights) sum += w;
    const double mean = sum / static_cast<double>(weights.size());
    for (const float w : weights) square += (w - mean) * (w - mean);
    return std::pair(mean, std::sqrt(square / static_cast<double>(weights.size())));
  };
  const auto [q_mean, q_deviation] = statistics("blk.0.attn_q.weight");
  CHECK(std::fabs(q_mean) < 0.001);
  CHECK(q_deviation == doctest::Approx(1 / std::sqrt(256)).epsilon(0.02));
  const auto [norm_mean, norm_deviation] = statistics("blk.1.ffn_norm.weight");
  CHECK(norm_mean == doctest::Approx(1).epsilon(0.05));
  CHECK(norm_deviation == doctest::Approx(0.1).epsilon(0.2));
  // Other tensors, layers and seeds hold other weights.
  CHECK(decoded(*file->find_tensor("blk.0.attn_q.weight")) !=
        decoded(*file->find_tensor("blk.1.attn_q.weight")));
  // Llama 3 factors: fast rotations stay, slow ones are slowed 32-fold, in between they rise.
  const auto factors = decoded(*file->find_tensor("rope_freqs.weight"));
  CHECK(factors.front() == 1);
  CHECK(factors.back() == 32);
  CHECK(std::is_sorted(factors.begin(), factors.end()));
}

TEST_CASE("files are the same for any number of threads, and differ by seed") {
  const TemporaryFolder folder;
  ModelShape shape = small("qwen2");
  shape.embd = 512;
  shape.vocab = 5000;  // an embedding of several slabs
  shape.type = BlockType::kQ4_0;
  shape.embd_type = BlockType::kQ8_0;
  REQUIRE(make_model(shape, folder / "1.gguf", 1).ok());
  REQUIRE(make_model(shape, folder / "3.gguf", 3).ok());
  REQUIRE(make_model(shape, folder / "16.gguf", 16).ok());
  const std::string one = TemporaryFolder::read(folder / "1.gguf");
  CHECK(one == TemporaryFolder::read(folder / "3.gguf"));
  CHECK(one == TemporaryFolder::read(folder / "16.gguf"));
  shape.seed = 2;
  REQUIRE(make_model(shape, folder / "2.gguf", 1).ok());
  CHECK(one != TemporaryFolder::read(folder / "2.gguf"));
}

TEST_CASE("the made bytes never change: recorded results stay valid") {
  const TemporaryFolder folder;
  REQUIRE(make_model(small("llama"), folder / "f32.gguf", 2).ok());
  CHECK(hash(TemporaryFolder::read(folder / "f32.gguf")) == 16172189363449746192u);
  ModelShape shape = small("gemma3");
  shape.type = BlockType::kQ4_K;
  shape.seed = 42;
  REQUIRE(make_model(shape, folder / "q4_k.gguf", 2).ok());
  CHECK(hash(TemporaryFolder::read(folder / "q4_k.gguf")) == 6602155576926483998u);
}

TEST_CASE("every block type can be made") {
  const TemporaryFolder folder;
  for (const BlockTypeInfo& info : block_types()) {
    INFO(info.name);
    ModelShape shape = small("llama");
    shape.untied = true;
    shape.type = info.type;
    shape.embd_type = BlockType::kQ8_0;
    shape.output_type = BlockType::kQ6_K;
    const auto made = make_model(shape, folder / "m.gguf", 2);
    REQUIRE(made.ok());
    const auto file = GgufFile::open(folder / "m.gguf");
    REQUIRE(file.ok());
    CHECK(made->bytes == file->file_bytes());
    CHECK(file->find_tensor("blk.0.attn_q.weight")->type == info.type);
    CHECK(file->find_tensor("blk.0.attn_norm.weight")->type == BlockType::kF32);
    CHECK(file->find_tensor("token_embd.weight")->type == BlockType::kQ8_0);
    CHECK(file->find_tensor("output.weight")->type == BlockType::kQ6_K);
    std::uint64_t parameters = 0;
    for (const GgufTensor& tensor : file->tensors()) parameters += tensor.elements;
    CHECK(made->parameters == parameters);
  }
}

TEST_CASE("the vocabulary has no text twice and fills any size") {
  for (const std::uint64_t count : {260u, 354u, 355u, 5000u, 300000u}) {
    const auto texts = make_vocabulary(count);
    CHECK(texts.size() == count);
    CHECK(std::set<std::string>(texts.begin(), texts.end()).size() == count);
    CHECK(texts[2] == "</s>");
    CHECK(texts[3] == "<0x00>");
    CHECK(texts[258] == "<0xFF>");
  }
  const auto texts = make_vocabulary(300000);
  for (const char* word : {"a", "z", "~",
                           "\xe2\x96\x81"
                           "a",
                           "\xe2\x96\x81zz", "aa", "the", "\xe2\x96\x81the"}) {
    CHECK(std::find(texts.begin(), texts.end(), word) != texts.end());
  }
}

TEST_CASE("wished outliers are in the key biases") {
  const TemporaryFolder folder;
  ModelShape shape = small("qwen2");
  shape.key_bias_outliers = 100;
  REQUIRE(make_model(shape, folder / "m.gguf", 1).ok());
  const auto file = GgufFile::open(folder / "m.gguf");
  REQUIRE(file.ok());
  const auto bias = decoded(*file->find_tensor("blk.1.attn_k.bias"));
  CHECK(std::count_if(bias.begin(), bias.end(), [](float b) { return b > 99; }) == 2);
  CHECK(std::count_if(bias.begin(), bias.end(), [](float b) { return b < -99; }) == 2);
}

TEST_CASE("shapes that make no model are refused with the flag") {
  const TemporaryFolder folder;
  const auto message = [&](auto change) {
    ModelShape shape = small("llama");
    change(shape);
    const auto made = make_model(shape, folder / "m.gguf", 1);
    CHECK(folder.count() == 0);
    return made.ok() ? std::string() : made.error().message;
  };
  const auto has = [](const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
  };
  CHECK(has(message([](ModelShape& s) { s.arch = "gpt5"; }), "--arch"));
  CHECK(has(message([](ModelShape& s) { s.layers = 0; }), "--layers"));
  CHECK(has(message([](ModelShape& s) { s.heads = 7; }), "--heads"));
  CHECK(has(message([](ModelShape& s) { s.kv_heads = 9; }), "--kv-heads"));
  CHECK(has(message([](ModelShape& s) { s.head_dim = 33; }), "--head-dim"));
  CHECK(has(message([](ModelShape& s) { s.vocab = 10; }), "--vocab"));
  CHECK(has(message([](ModelShape& s) { s.key_bias_outliers = 1; }), "--key-bias-outliers"));
  CHECK(has(message([](ModelShape& s) { s.arch = "qwen3", s.rope_factors = true; }),
            "--rope-factors"));
  CHECK(has(message([](ModelShape& s) { s.embd = 300, s.type = BlockType::kQ4_K; }), "token_embd"));
  for (const ModelPreset& preset : model_presets()) {
    INFO(preset.name);
    CHECK(check_shape(preset.shape).ok());
  }
}

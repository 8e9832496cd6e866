// The tensors and metadata of each architecture, with the names that llama.cpp gives them.
#include <array>
#include <cmath>

#include "tools/model_maker/maker.h"

namespace sluice {
namespace {

class Planner {
 public:
  explicit Planner(const ModelShape& shape)
      : shape_(shape), facts_(*find_architecture(shape.arch)) {}

  std::vector<PlannedTensor> run() {
    // Deviation 2 / sqrt(embd) gives logits of deviation 2: likely and unlikely tokens, no certain
    // ones. Layers add values of about 1, so the embedding of the last token does not dominate.
    const float embedding = 2 / std::sqrt(static_cast<float>(shape_.embd));
    const BlockType embd_type = shape_.embd_type.value_or(shape_.type);
    add({.name = "token_embd.weight",
         .type = embd_type,
         .dims = {shape_.embd, shape_.vocab},
         .deviation = embedding,
         .vocabulary_rows = true});
    norm("output_norm.weight", shape_.embd);
    if (shape_.untied) {
      add({.name = "output.weight",
           .type = shape_.output_type.value_or(embd_type),
           .dims = {shape_.embd, shape_.vocab},
           .deviation = embedding,
           .vocabulary_rows = true});
    }
    if (shape_.rope_factors) rope_factors();
    for (std::uint64_t layer = 0; layer < shape_.layers; ++layer) {
      prefix_ = fmt::format("blk.{}.", layer);
      attention();
      if (facts_.experts) {
        experts();
      } else {
        feed_forward();
      }
    }
    return std::move(tensors_);
  }

 private:
  void add(PlannedTensor tensor) { tensors_.push_back(std::move(tensor)); }

  void norm(std::string name, std::uint64_t size, float mean = 1) {
    add({.name = std::move(name), .dims = {size}, .mean = mean, .deviation = 0.1f * mean});
  }

  void matrix(std::string_view name, std::vector<std::uint64_t> dims) {
    const float deviation = 1 / std::sqrt(static_cast<float>(dims[0]));
    add({.name = prefix_ + std::string(name),
         .type = shape_.type,
         .dims = std::move(dims),
         .deviation = deviation});
  }

  void attention() {
    const std::uint64_t q_size = shape_.heads * shape_.head_dim;
    const std::uint64_t kv_size = shape_.kv_heads * shape_.head_dim;
    norm(prefix_ + "attn_norm.weight", shape_.embd);
    if (facts_.fused) {
      matrix("attn_qkv.weight", {shape_.embd, q_size + 2 * kv_size});
    } else {
      matrix("attn_q.weight", {shape_.embd, q_size});
      matrix("attn_k.weight", {shape_.embd, kv_size});
      matrix("attn_v.weight", {shape_.embd, kv_size});
    }
    matrix("attn_output.weight", {q_size, shape_.embd});
    if (facts_.qkv_bias) {
      add({.name = prefix_ + "attn_q.bias", .dims = {q_size}, .deviation = 0.1f});
      add({.name = prefix_ + "attn_k.bias",
           .dims = {kv_size},
           .deviation = 0.1f,
           .added = key_outliers()});
      add({.name = prefix_ + "attn_v.bias", .dims = {kv_size}, .deviation = 0.1f});
    }
    if (facts_.qk_norm) {
      norm(prefix_ + "attn_q_norm.weight", shape_.head_dim);
      norm(prefix_ + "attn_k_norm.weight", shape_.head_dim);
    }
    if (facts_.post_norms) norm(prefix_ + "post_attention_norm.weight", shape_.embd, post_mean());
  }

  // In Qwen2 a few channels that rotate slowly have biases of 100 and more.
  std::vector<std::pair<std::uint64_t, float>> key_outliers() const {
    std::vector<std::pair<std::uint64_t, float>> outliers;
    if (shape_.key_bias_outliers == 0) return outliers;
    for (std::uint64_t head = 0; head < shape_.kv_heads; ++head) {
      const std::uint64_t start = head * shape_.head_dim;
      outliers.emplace_back(start + shape_.head_dim / 2 - 1, shape_.key_bias_outliers);
      outliers.emplace_back(start + shape_.head_dim - 1, -shape_.key_bias_outliers);
    }
    return outliers;
  }

  // Gemma multiplies embeddings by sqrt(embd); what layers add must be of that order too.
  float post_mean() const { return std::sqrt(static_cast<float>(shape_.embd)) / 8; }

  void feed_forward() {
    norm(prefix_ + "ffn_norm.weight", shape_.embd);
    if (facts_.fused) {
      matrix("ffn_up.weight", {shape_.embd, 2 * shape_.ffn});
    } else {
      matrix("ffn_gate.weight", {shape_.embd, shape_.ffn});
      matrix("ffn_up.weight", {shape_.embd, shape_.ffn});
    }
    matrix("ffn_down.weight", {shape_.ffn, shape_.embd});
    if (facts_.post_norms) norm(prefix_ + "post_ffw_norm.weight", shape_.embd, post_mean());
  }

  void experts() {
    norm(prefix_ + "ffn_norm.weight", shape_.embd);
    add({.name = prefix_ + "ffn_gate_inp.weight",
         .dims = {shape_.embd, shape_.experts},
         .deviation = 2 / std::sqrt(static_cast<float>(shape_.embd))});
    matrix("ffn_gate_exps.weight", {shape_.embd, shape_.ffn, shape_.experts});
    matrix("ffn_up_exps.weight", {shape_.embd, shape_.ffn, shape_.experts});
    matrix("ffn_down_exps.weight", {shape_.ffn, shape_.embd, shape_.experts});
  }

  // Divisors of the rotation frequencies, as Llama 3.1 and later have them: waves longer than
  // 8192 / 1 tokens are slowed 32-fold, those shorter than 8192 / 4 not at all.
  void rope_factors() {
    constexpr double kContext = 8192;
    constexpr double kFactor = 32;
    const double base = shape_.rope_base != 0 ? shape_.rope_base : facts_.rope_base;
    PlannedTensor tensor{.name = "rope_freqs.weight", .dims = {shape_.head_dim / 2}};
    for (std::uint64_t i = 0; i < shape_.head_dim / 2; ++i) {
      const double exponent = 2 * static_cast<double>(i) / static_cast<double>(shape_.head_dim);
      const double turns = kContext / (6.283185307179586 * std::pow(base, exponent));
      double divisor = 1;
      if (turns < 1) {
        divisor = kFactor;
      } else if (turns < 4) {
        const double smooth = (turns - 1) / (4 - 1);
        divisor = 1 / ((1 - smooth) / kFactor + smooth);
      }
      tensor.fixed.push_back(static_cast<float>(divisor));
    }
    add(std::move(tensor));
  }

  const ModelShape& shape_;
  const ArchitectureFacts& facts_;
  std::string prefix_;
  std::vector<PlannedTensor> tensors_;
};

// general.file_type of llama.cpp, for files that are mostly of one type.
std::uint32_t file_type_number(BlockType type) {
  switch (type) {
    case BlockType::kF32:
      return 0;
    case BlockType::kF16:
      return 1;
    case BlockType::kQ4_0:
      return 2;
    case BlockType::kQ4_1:
      return 3;
    case BlockType::kQ8_0:
      return 7;
    case BlockType::kQ5_0:
      return 8;
    case BlockType::kQ5_1:
      return 9;
    case BlockType::kQ2_K:
      return 10;
    case BlockType::kQ3_K:
      return 12;
    case BlockType::kQ4_K:
      return 15;
    case BlockType::kQ5_K:
      return 17;
    case BlockType::kQ6_K:
      return 18;
    case BlockType::kIQ4_NL:
      return 25;
    case BlockType::kIQ4_XS:
      return 30;
    case BlockType::kBF16:
      return 32;
    case BlockType::kMXFP4:
      return 38;
  }
  return 0;
}

void add_vocabulary(std::uint64_t count, GgufWriter& writer) {
  constexpr std::int32_t kNormal = 1;
  constexpr std::int32_t kUnknown = 2;
  constexpr std::int32_t kControl = 3;
  constexpr std::int32_t kByte = 6;
  const std::vector<std::string> texts = make_vocabulary(count);
  std::vector<float> scores(count, 0);
  std::vector<std::int32_t> types(count, kNormal);
  types[0] = kUnknown;
  types[1] = kControl;
  types[2] = kControl;
  for (std::size_t i = 3; i < 259; ++i) types[i] = kByte;
  // Earlier texts are joined first.
  for (std::size_t i = 259; i < count; ++i) scores[i] = -static_cast<float>(i - 258);
  writer.add("tokenizer.ggml.model", std::string_view("llama"));
  writer.add_array("tokenizer.ggml.tokens", std::span<const std::string>(texts));
  writer.add_array("tokenizer.ggml.scores", std::span<const float>(scores));
  writer.add_array("tokenizer.ggml.token_type", std::span<const std::int32_t>(types));
  writer.add("tokenizer.ggml.bos_token_id", std::uint32_t{1});
  writer.add("tokenizer.ggml.eos_token_id", std::uint32_t{2});
  writer.add("tokenizer.ggml.unknown_token_id", std::uint32_t{0});
  writer.add("tokenizer.ggml.add_bos_token", true);
}

}  // namespace

std::uint64_t PlannedTensor::elements() const {
  std::uint64_t count = 1;
  for (const std::uint64_t size : dims) count *= size;
  return count;
}

std::vector<PlannedTensor> plan_tensors(const ModelShape& shape) { return Planner(shape).run(); }

void add_metadata(const ModelShape& shape, GgufWriter& writer) {
  const ArchitectureFacts& facts = *find_architecture(shape.arch);
  const auto key = [&](std::string_view name) {
    return fmt::format("{}.{}", facts.gguf_name, name);
  };
  const auto number = [&](std::string_view name, std::uint64_t value) {
    writer.add(key(name), static_cast<std::uint32_t>(value));
  };
  writer.add("general.architecture", facts.gguf_name);
  // Without the architecture: llama.cpp looks for special tokens in models that are called phi3.
  writer.add("general.name",
             std::string_view(fmt::format("synthetic, random weights, seed {}", shape.seed)));
  number("context_length", shape.ctx);
  number("embedding_length", shape.embd);
  number("block_count", shape.layers);
  number("feed_forward_length", shape.ffn);
  number("attention.head_count", shape.heads);
  number("attention.head_count_kv", shape.kv_heads);
  number("attention.key_length", shape.head_dim);
  number("attention.value_length", shape.head_dim);
  writer.add(key("attention.layer_norm_rms_epsilon"), 1e-6f);
  number("rope.dimension_count", shape.head_dim);
  writer.add(key("rope.freq_base"), shape.rope_base != 0 ? shape.rope_base : facts.rope_base);
  number("vocab_size", shape.vocab);
  if (facts.windows) number("attention.sliding_window", shape.window);
  if (facts.soft_caps) {
    writer.add(key("attn_logit_softcapping"), 50.0f);
    writer.add(key("final_logit_softcapping"), 30.0f);
  }
  if (facts.experts) {
    number("expert_count", shape.experts);
    number("expert_used_count", shape.experts_used);
    if (facts.name == "qwen3moe") number("expert_feed_forward_length", shape.ffn);
  }
  add_vocabulary(shape.vocab, writer);
  writer.add("general.quantization_version", std::uint32_t{2});
  writer.add("general.file_type", file_type_number(shape.type));
}

}  // namespace sluice

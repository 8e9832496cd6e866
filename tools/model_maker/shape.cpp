#include "tools/model_maker/shape.h"

#include <array>

namespace sluice {
namespace {

constexpr std::array<ArchitectureFacts, 8> kArchitectures{{
    {.name = "llama", .gguf_name = "llama", .rope_base = 500000},
    {.name = "mixtral", .gguf_name = "llama", .experts = true, .rope_base = 1000000},
    {.name = "qwen2", .gguf_name = "qwen2", .qkv_bias = true, .rope_base = 1000000},
    {.name = "qwen3", .gguf_name = "qwen3", .qk_norm = true, .rope_base = 1000000},
    {.name = "qwen3moe",
     .gguf_name = "qwen3moe",
     .qk_norm = true,
     .experts = true,
     .rope_base = 1000000},
    {.name = "gemma2",
     .gguf_name = "gemma2",
     .post_norms = true,
     .soft_caps = true,
     .windows = true,
     .rope_base = 10000},
    {.name = "gemma3",
     .gguf_name = "gemma3",
     .qk_norm = true,
     .post_norms = true,
     .windows = true,
     .rope_base = 1000000},
    {.name = "phi3", .gguf_name = "phi3", .fused = true, .rope_base = 10000},
}};

ModelShape dense(std::string_view arch, std::uint64_t layers, std::uint64_t embd,
                 std::uint64_t heads, std::uint64_t kv_heads, std::uint64_t head_dim,
                 std::uint64_t ffn, std::uint64_t vocab, std::uint64_t ctx, bool untied) {
  ModelShape shape;
  shape.arch = arch;
  shape.layers = layers;
  shape.embd = embd;
  shape.heads = heads;
  shape.kv_heads = kv_heads;
  shape.head_dim = head_dim;
  shape.ffn = ffn;
  shape.vocab = vocab;
  shape.ctx = ctx;
  shape.untied = untied;
  return shape;
}

ModelShape with_experts(ModelShape shape, std::uint64_t experts, std::uint64_t used) {
  shape.experts = experts;
  shape.experts_used = used;
  return shape;
}

ModelShape with_window(ModelShape shape, std::uint64_t window) {
  shape.window = window;
  return shape;
}

ModelShape with_rope(ModelShape shape, float base, bool factors) {
  shape.rope_base = base;
  shape.rope_factors = factors;
  return shape;
}

}  // namespace

std::span<const ArchitectureFacts> model_architectures() { return kArchitectures; }

const ArchitectureFacts* find_architecture(std::string_view name) {
  for (const ArchitectureFacts& facts : kArchitectures) {
    if (facts.name == name) return &facts;
  }
  return nullptr;
}

const std::vector<ModelPreset>& model_presets() {
  // arch, layers, embd, heads, kv heads, head size, ffn, vocabulary, context, untied
  static const std::vector<ModelPreset> presets{
      {"llama-3.2-1b",
       with_rope(dense("llama", 16, 2048, 32, 8, 64, 8192, 128256, 131072, false), 500000, true)},
      {"llama-3.2-3b",
       with_rope(dense("llama", 28, 3072, 24, 8, 128, 8192, 128256, 131072, false), 500000, true)},
      {"llama-3.1-8b",
       with_rope(dense("llama", 32, 4096, 32, 8, 128, 14336, 128256, 131072, true), 500000, true)},
      {"tinyllama-1.1b",
       with_rope(dense("llama", 22, 2048, 32, 4, 64, 5632, 32000, 2048, true), 10000, false)},
      {"smollm2-135m",
       with_rope(dense("llama", 30, 576, 9, 3, 64, 1536, 49152, 8192, false), 100000, false)},
      {"qwen2.5-0.5b", dense("qwen2", 24, 896, 14, 2, 64, 4864, 151936, 32768, false)},
      {"qwen2.5-1.5b", dense("qwen2", 28, 1536, 12, 2, 128, 8960, 151936, 32768, false)},
      {"qwen3-0.6b", dense("qwen3", 28, 1024, 16, 8, 128, 3072, 151936, 40960, false)},
      {"qwen3-1.7b", dense("qwen3", 28, 2048, 16, 8, 128, 6144, 151936, 40960, false)},
      {"qwen3-30b-a3b",
       with_experts(dense("qwen3moe", 48, 2048, 32, 4, 128, 768, 151936, 40960, true), 128, 8)},
      {"gemma-2-2b",
       with_window(dense("gemma2", 26, 2304, 8, 4, 256, 9216, 256000, 8192, false), 4096)},
      {"gemma-3-270m",
       with_window(dense("gemma3", 18, 640, 4, 1, 256, 2048, 262144, 32768, false), 512)},
      {"gemma-3-1b",
       with_window(dense("gemma3", 26, 1152, 4, 1, 256, 6912, 262144, 32768, false), 512)},
      {"phi-3-mini", dense("phi3", 32, 3072, 32, 32, 96, 8192, 32064, 4096, true)},
      {"mixtral-8x7b",
       with_experts(dense("mixtral", 32, 4096, 32, 8, 128, 14336, 32000, 32768, true), 8, 2)},
  };
  return presets;
}

Status check_shape(const ModelShape& shape) {
  const auto usage = [](std::string message) { return Error{ErrorCode::kUsage, message}; };
  const ArchitectureFacts* facts = find_architecture(shape.arch);
  if (facts == nullptr) return usage(fmt::format("--arch {} is not known", shape.arch));
  struct Size {
    std::string_view flag;
    std::uint64_t value;
    std::uint64_t low;
    std::uint64_t high;
  };
  const Size sizes[] = {{"--layers", shape.layers, 1, 1000},
                        {"--embd", shape.embd, 1, 1 << 20},
                        {"--heads", shape.heads, 1, 1 << 12},
                        {"--kv-heads", shape.kv_heads, 1, shape.heads},
                        {"--head-dim", shape.head_dim, 2, 1 << 12},
                        {"--ffn", shape.ffn, 1, 1 << 20},
                        {"--vocab", shape.vocab, 260, 1 << 20},
                        {"--ctx", shape.ctx, 1, 1 << 24},
                        {"--experts", shape.experts, 1, 1 << 10},
                        {"--experts-used", shape.experts_used, 1, shape.experts},
                        {"--window", shape.window, 1, 1 << 24}};
  for (const Size& size : sizes) {
    if (size.value < size.low || size.value > size.high) {
      return usage(
          fmt::format("{} is {}, expected {} to {}", size.flag, size.value, size.low, size.high));
    }
  }
  if (shape.heads % shape.kv_heads != 0) {
    return usage(
        fmt::format("--heads {} is no multiple of --kv-heads {}", shape.heads, shape.kv_heads));
  }
  if (shape.head_dim % 2 != 0) {
    return usage(fmt::format("--head-dim {} is odd, rotation needs pairs", shape.head_dim));
  }
  if (shape.rope_factors && facts->gguf_name != "llama") {
    return usage("--rope-factors needs --arch llama or mixtral");
  }
  if (shape.key_bias_outliers != 0 && !facts->qkv_bias) {
    return usage("--key-bias-outliers needs an architecture with biases (--arch qwen2)");
  }
  return {};
}

}  // namespace sluice

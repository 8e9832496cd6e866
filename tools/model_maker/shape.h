// What a synthetic model looks like: architecture, sizes and types.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/quant/block_type.h"

namespace sluice {

// How the architectures differ in their files.
struct ArchitectureFacts {
  std::string_view name;       // as on the command line
  std::string_view gguf_name;  // general.architecture, and the prefix of the keys
  bool qkv_bias = false;
  bool qk_norm = false;
  bool post_norms = false;  // norms after attention and feed-forward, beside those before
  bool fused = false;       // one attn_qkv, and gate and up in one ffn_up
  bool soft_caps = false;
  bool windows = false;  // some layers see attention.sliding_window tokens only
  bool experts = false;
  float rope_base = 10000;
};

std::span<const ArchitectureFacts> model_architectures();
const ArchitectureFacts* find_architecture(std::string_view name);

struct ModelShape {
  std::string arch = "llama";
  std::uint64_t layers = 2;
  std::uint64_t embd = 256;
  std::uint64_t heads = 8;
  std::uint64_t kv_heads = 2;
  std::uint64_t head_dim = 32;
  std::uint64_t ffn = 512;  // of an expert, in models of experts
  std::uint64_t vocab = 512;
  std::uint64_t ctx = 2048;
  std::uint64_t experts = 4;  // where the architecture has experts
  std::uint64_t experts_used = 2;
  std::uint64_t window = 16;             // where the architecture has windows
  float rope_base = 0;                   // 0: the architecture's
  bool rope_factors = false;             // rope_freqs.weight as in Llama 3.1 and later (llama only)
  bool untied = false;                   // an output matrix of its own
  float key_bias_outliers = 0;           // qkv_bias only: size of two large key biases in each head
  BlockType type = BlockType::kF32;      // of matrices
  std::optional<BlockType> embd_type;    // of the token embedding, if not `type`
  std::optional<BlockType> output_type;  // of the output matrix, if not that of the embedding
  std::uint64_t seed = 1;
};

struct ModelPreset {
  std::string_view name;
  ModelShape shape;  // types, seed as by default
};

// Shapes of well-known models.
const std::vector<ModelPreset>& model_presets();

// Ok, or what is wrong with the shape and which flag sets it.
Status check_shape(const ModelShape& shape);

}  // namespace sluice

#include "src/model/architectures.h"

#include <array>

namespace sluice {
namespace {

// Facts of each row: the model's paper or reference code, as carried by its GGUF conversion.
constexpr std::array kArchitectures{
    // Llama 2 and 3, Mistral, SmolLM, TinyLlama; with experts: Mixtral.
    Architecture{.name = "llama", .rope_interleaved = true},
    Architecture{.name = "qwen2", .qkv_bias = true},
    Architecture{.name = "qwen3", .qk_norm = true},
    Architecture{.name = "qwen3moe", .qk_norm = true, .must_have_experts = true},
    Architecture{.name = "gemma2",
                 .activation = Activation::kGeluTanh,
                 .scaled_embedding = true,
                 .post_norms = true,
                 .window_period = 2,
                 .default_window = 4096,
                 .default_attention_softcap = 50.0f,
                 .default_logit_softcap = 30.0f,
                 .odd_scale_layers = 46},
    Architecture{.name = "gemma3",
                 .activation = Activation::kGeluTanh,
                 .scaled_embedding = true,
                 .qk_norm = true,
                 .post_norms = true,
                 .window_period = 6,
                 .window_rope_base = 10000.0f,
                 .odd_scale_layers = 62},
    Architecture{.name = "phi3", .fused = true},
};

}  // namespace

std::span<const Architecture> architectures() { return kArchitectures; }

}  // namespace sluice

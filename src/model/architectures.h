// What distinguishes one architecture from another, a row each. A new Llama-like architecture is a
// new row here (and a test).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "src/model/model_spec.h"

namespace sluice {

struct Architecture {
  std::string_view name;  // general.architecture, and the prefix of its keys
  bool rope_interleaved = false;
  Activation activation = Activation::kSilu;
  bool scaled_embedding = false;  // embedding rows times sqrt(embedding)
  bool qkv_bias = false;          // biases are required (elsewhere they are optional)
  bool qk_norm = false;           // norms of query and key heads are required
  bool post_norms = false;        // norms after attention and feed-forward are required
  bool fused = false;             // attn_qkv, and ffn_up that holds gate and up
  bool must_have_experts = false;
  // Sliding windows: every `window_period`-th layer is full, the others see the window. 0: the
  // file's window is not used.
  std::uint32_t window_period = 0;
  std::uint32_t default_window = 0;  // when the file has none and window_period > 0
  float window_rope_base = 0.0f;     // rotation base of windowed layers; 0: as the others
  float default_attention_softcap = 0.0f;
  float default_logit_softcap = 0.0f;
  // Layer count of the one size whose attention scale is 1 / sqrt(embedding / heads).
  std::uint32_t odd_scale_layers = 0;
};

std::span<const Architecture> architectures();

}  // namespace sluice

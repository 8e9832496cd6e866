#include "tools/gpu_bench/made_up_model.h"

#include <algorithm>

namespace sluice::cuda {

MadeUpModel::MadeUpModel(const MadeUp& s) {
  ModelSpec& spec = model_.spec;
  spec.architecture = "llama";
  spec.layers = s.layers;
  spec.embedding = s.embedding;
  spec.heads = s.heads;
  spec.kv_heads = s.kv_heads;
  spec.head_dim = s.head_dim;
  spec.feed_forward = s.feed_forward;
  spec.vocabulary = s.vocabulary;
  spec.context = 1 << 17;
  spec.norm_epsilon = 1e-5f;
  spec.attention_scale = 0.1f;
  spec.rope_dims = s.head_dim;
  spec.ropes.resize(1);
  spec.ropes[0].inverse_frequency.assign(s.head_dim / 2, 0.01);
  spec.layer.resize(s.layers);

  const std::uint32_t q = s.heads * s.head_dim, kv = s.kv_heads * s.head_dim;
  const std::uint64_t most =
      std::max({std::uint64_t{s.vocabulary} * s.embedding,
                std::uint64_t{s.feed_forward} * s.embedding, std::uint64_t{q} * s.embedding});
  blocks_.resize(most / 32 * 18);
  std::uint64_t state = 1;
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    blocks_[i] = static_cast<std::byte>(state);
    if (i % 18 == 0) blocks_[i] = std::byte{0x00};  // the scale: 2^-7 as f16
    if (i % 18 == 1) blocks_[i] = std::byte{0x20};
  }
  const auto matrix = [this](std::uint32_t rows, std::uint32_t cols) {
    return MatrixRef{BlockType::kQ4_0, blocks_.data(), rows, cols};
  };
  Weights& w = model_.weights;
  w.embedding = matrix(s.vocabulary, s.embedding);
  w.output = w.embedding;
  w.tied = true;
  w.output_norm.assign(s.embedding, 1.0f);
  LayerWeights layer;
  layer.attention_norm.assign(s.embedding, 1.0f);
  layer.feed_forward_norm.assign(s.embedding, 1.0f);
  layer.query = matrix(q, s.embedding);
  layer.key = matrix(kv, s.embedding);
  layer.value = matrix(kv, s.embedding);
  layer.attention_output = matrix(s.embedding, q);
  layer.gate = matrix(s.feed_forward, s.embedding);
  layer.up = matrix(s.feed_forward, s.embedding);
  layer.down = matrix(s.embedding, s.feed_forward);
  w.layer.assign(s.layers, layer);
}

}  // namespace sluice::cuda

// A model as data: what a backend must know to run it, read from GGUF metadata and checked. A
// backend reads these fields, never an architecture's name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/gguf/gguf.h"

namespace sluice {

enum class Activation : std::uint8_t { kSilu, kGeluTanh };

// Rotary embedding of one kind of layer. A model has one or two: `ModelSpec::ropes`.
struct Rope {
  // The angle of pair i at position p is p * inverse_frequency[i]; size dims / 2. Scaling (linear,
  // YaRN, factors from a tensor) is folded in.
  std::vector<double> inverse_frequency;
  float magnitude = 1.0f;  // factor of cos and sin (YaRN, long-context Phi-3)
};

struct LayerSpec {
  std::uint32_t window = 0;  // tokens a row sees, itself included; 0: all
  std::uint32_t rope = 0;    // index into ModelSpec::ropes
  bool experts = false;      // mixture of experts instead of one feed-forward network
};

struct ModelSpec {
  std::string architecture;  // for people; backends must not branch on it
  std::string name;

  std::uint32_t layers = 0;
  std::uint32_t embedding = 0;     // width of the residual stream
  std::uint32_t heads = 0;         // query heads
  std::uint32_t kv_heads = 0;      // divides heads
  std::uint32_t head_dim = 0;      // of queries, keys and values
  std::uint32_t feed_forward = 0;  // of the dense network
  std::uint32_t vocabulary = 0;    // rows of the embedding
  std::uint32_t context = 0;       // tokens it was trained for

  float norm_epsilon = 0.0f;
  float embedding_scale = 1.0f;    // factor of the embedding rows
  float attention_scale = 0.0f;    // factor of query-key products
  float attention_softcap = 0.0f;  // 0: none
  float logit_softcap = 0.0f;      // 0: none
  Activation activation = Activation::kSilu;

  std::uint32_t rope_dims = 0;    // first values of a head that are rotated; even
  bool rope_interleaved = false;  // pairs (2i, 2i+1) rather than (i, i + rope_dims / 2)
  std::vector<Rope> ropes;

  std::uint32_t experts = 0;
  std::uint32_t experts_used = 0;
  std::uint32_t expert_feed_forward = 0;

  std::vector<LayerSpec> layer;  // one a layer

  // Lines for the user: settings of the file that are not honoured, and what follows.
  std::vector<std::string> warnings;
};

// A matrix inside the mapped file: rows x cols, stored row by row in blocks along a row.
struct MatrixRef {
  BlockType type = BlockType::kF32;
  const std::byte* data = nullptr;  // nullptr: the model has no such matrix
  std::uint32_t rows = 0;
  std::uint32_t cols = 0;

  explicit operator bool() const { return data != nullptr; }
  std::size_t row_bytes() const;
  std::size_t bytes() const { return row_bytes() * rows; }
  MatrixRef row_range(std::uint32_t first, std::uint32_t count) const;
};

// F32 vectors (norm weights, biases) decoded at load; empty when the model has none.
using Vector = std::vector<float>;

struct LayerWeights {
  Vector attention_norm;        // [embedding]
  MatrixRef query, key, value;  // rows x embedding; slices of one tensor where a file fuses them
  Vector query_bias, key_bias, value_bias;
  Vector query_norm, key_norm;  // [head_dim], applied to each head before rotation
  MatrixRef attention_output;   // [embedding, heads * head_dim]
  Vector attention_output_bias;
  Vector attention_post_norm;  // [embedding], on the attention's result before it is added

  Vector feed_forward_norm;  // [embedding]
  MatrixRef gate, up, down;
  Vector feed_forward_post_norm;

  MatrixRef router;                                            // [experts, embedding]
  std::vector<MatrixRef> expert_gate, expert_up, expert_down;  // one an expert
};

struct Weights {
  MatrixRef embedding;  // [vocabulary, embedding]
  Vector output_norm;   // [embedding]
  MatrixRef output;     // [vocabulary, embedding]; the embedding itself where tied
  bool tied = false;
  bool mapped = false;  // matrices lie in a mapped file: pages can be given back and read again
  std::vector<LayerWeights> layer;
};

// What a GGUF file describes. `Weights` refer to the file's bytes: keep the GgufFile alive.
struct Model {
  ModelSpec spec;
  Weights weights;
};

// Reads and checks hyperparameters and tensor shapes. Errors name the key or tensor, what was found
// and what was expected. `context` is the number of tokens a run will use (0: the trained context):
// some models choose their rotation factors by it.
Result<Model> load_model(const GgufFile& file, std::uint32_t context);

// Names of the architectures that load, for messages.
std::vector<std::string> supported_architectures();

}  // namespace sluice

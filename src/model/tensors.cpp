// Tensors of a model by their GGUF names, each with the shape that the hyperparameters ask for.
#include <cmath>
#include <string>
#include <unordered_set>

#include "src/model/load_internal.h"
#include "src/quant/codec.h"

namespace sluice::model_internal {
namespace {

std::string shape_text(const std::vector<std::uint64_t>& dims) {
  std::string text;
  for (const std::uint64_t dim : dims) text += fmt::format("{}{}", text.empty() ? "" : " x ", dim);
  return text;
}

class Finder {
 public:
  explicit Finder(const GgufFile& file) : file_(file) {}

  // The tensor of a name with exactly these dimensions; nullptr when absent and not required.
  Result<const GgufTensor*> tensor(const std::string& name, const std::vector<std::uint64_t>& dims,
                                   bool required) {
    const GgufTensor* found = file_.find_tensor(name);
    if (found == nullptr) {
      if (!required) return nullptr;
      return bad_input("{}: tensor '{}' ({}) is missing", file_.name(), name, shape_text(dims));
    }
    used_.insert(found->name);
    std::vector<std::uint64_t> have = found->dims;  // trailing ones do not matter
    while (have.size() > dims.size() && have.back() == 1) have.pop_back();
    if (have != dims) {
      return bad_input("{}: tensor '{}' is {}; the hyperparameters ask for {}", file_.name(), name,
                       shape_text(found->dims), shape_text(dims));
    }
    return found;
  }

  Result<MatrixRef> matrix(const std::string& name, std::uint32_t rows, std::uint32_t cols,
                           bool required = true) {
    SLUICE_ASSIGN_OR_RETURN(const GgufTensor* found, tensor(name, {cols, rows}, required));
    if (found == nullptr) return MatrixRef{};
    return MatrixRef{found->type, found->data.data(), rows, cols};
  }

  // [count] matrices of rows x cols, stored as one tensor.
  Result<std::vector<MatrixRef>> stack(const std::string& name, std::uint32_t count,
                                       std::uint32_t rows, std::uint32_t cols) {
    SLUICE_ASSIGN_OR_RETURN(const GgufTensor* found, tensor(name, {cols, rows, count}, true));
    std::vector<MatrixRef> all;
    const std::size_t stride = MatrixRef{found->type, nullptr, rows, cols}.bytes();
    for (std::uint32_t i = 0; i < count; ++i) {
      all.push_back(MatrixRef{found->type, found->data.data() + stride * i, rows, cols});
    }
    return all;
  }

  Result<Vector> vector(const std::string& name, std::uint32_t size, bool required = true) {
    SLUICE_ASSIGN_OR_RETURN(const GgufTensor* found, tensor(name, {size}, required));
    if (found == nullptr) return Vector{};
    if (block_type_info(found->type).block_size != 1) {
      return bad_input("{}: tensor '{}' is {}; F32, F16 or BF16 is expected for a vector",
                       file_.name(), name, block_type_info(found->type).name);
    }
    Vector values(size);
    decode_blocks(found->type, found->data, values);
    for (std::uint32_t i = 0; i < size; ++i) {
      if (!std::isfinite(values[i])) {
        return bad_input("{}: tensor '{}' holds {} at {}; the file is damaged", file_.name(), name,
                         values[i], i);
      }
    }
    return values;
  }

  bool used(std::string_view name) const { return used_.count(name) != 0; }

 private:
  const GgufFile& file_;
  std::unordered_set<std::string_view> used_;
};

Status find_attention(Finder& find, const Architecture& arch, const ModelSpec& spec,
                      const std::string& at, LayerWeights& layer) {
  const std::uint32_t q_rows = spec.heads * spec.head_dim;
  const std::uint32_t kv_rows = spec.kv_heads * spec.head_dim;
  SLUICE_ASSIGN_OR_RETURN(layer.attention_norm,
                          find.vector(at + "attn_norm.weight", spec.embedding));
  if (arch.fused) {
    SLUICE_ASSIGN_OR_RETURN(const MatrixRef all, find.matrix(at + "attn_qkv.weight",
                                                             q_rows + 2 * kv_rows, spec.embedding));
    layer.query = all.row_range(0, q_rows);
    layer.key = all.row_range(q_rows, kv_rows);
    layer.value = all.row_range(q_rows + kv_rows, kv_rows);
  } else {
    SLUICE_ASSIGN_OR_RETURN(layer.query, find.matrix(at + "attn_q.weight", q_rows, spec.embedding));
    SLUICE_ASSIGN_OR_RETURN(layer.key, find.matrix(at + "attn_k.weight", kv_rows, spec.embedding));
    SLUICE_ASSIGN_OR_RETURN(layer.value,
                            find.matrix(at + "attn_v.weight", kv_rows, spec.embedding));
    SLUICE_ASSIGN_OR_RETURN(layer.query_bias,
                            find.vector(at + "attn_q.bias", q_rows, arch.qkv_bias));
    SLUICE_ASSIGN_OR_RETURN(layer.key_bias,
                            find.vector(at + "attn_k.bias", kv_rows, arch.qkv_bias));
    SLUICE_ASSIGN_OR_RETURN(layer.value_bias,
                            find.vector(at + "attn_v.bias", kv_rows, arch.qkv_bias));
  }
  SLUICE_ASSIGN_OR_RETURN(layer.query_norm,
                          find.vector(at + "attn_q_norm.weight", spec.head_dim, arch.qk_norm));
  SLUICE_ASSIGN_OR_RETURN(layer.key_norm,
                          find.vector(at + "attn_k_norm.weight", spec.head_dim, arch.qk_norm));
  SLUICE_ASSIGN_OR_RETURN(layer.attention_output,
                          find.matrix(at + "attn_output.weight", spec.embedding, q_rows));
  SLUICE_ASSIGN_OR_RETURN(layer.attention_output_bias,
                          find.vector(at + "attn_output.bias", spec.embedding, false));
  if (arch.post_norms) {
    SLUICE_ASSIGN_OR_RETURN(layer.attention_post_norm,
                            find.vector(at + "post_attention_norm.weight", spec.embedding));
  }
  return {};
}

Status find_feed_forward(Finder& find, const Architecture& arch, const ModelSpec& spec,
                         const std::string& at, bool experts, LayerWeights& layer) {
  SLUICE_ASSIGN_OR_RETURN(layer.feed_forward_norm,
                          find.vector(at + "ffn_norm.weight", spec.embedding));
  if (arch.post_norms) {
    SLUICE_ASSIGN_OR_RETURN(layer.feed_forward_post_norm,
                            find.vector(at + "post_ffw_norm.weight", spec.embedding));
  }
  if (experts) {
    const std::uint32_t n = spec.experts, width = spec.expert_feed_forward;
    SLUICE_ASSIGN_OR_RETURN(layer.router,
                            find.matrix(at + "ffn_gate_inp.weight", n, spec.embedding));
    SLUICE_ASSIGN_OR_RETURN(layer.expert_gate,
                            find.stack(at + "ffn_gate_exps.weight", n, width, spec.embedding));
    SLUICE_ASSIGN_OR_RETURN(layer.expert_up,
                            find.stack(at + "ffn_up_exps.weight", n, width, spec.embedding));
    SLUICE_ASSIGN_OR_RETURN(layer.expert_down,
                            find.stack(at + "ffn_down_exps.weight", n, spec.embedding, width));
    return {};
  }
  if (arch.fused) {
    SLUICE_ASSIGN_OR_RETURN(
        const MatrixRef both,
        find.matrix(at + "ffn_up.weight", 2 * spec.feed_forward, spec.embedding));
    layer.gate = both.row_range(0, spec.feed_forward);
    layer.up = both.row_range(spec.feed_forward, spec.feed_forward);
  } else {
    SLUICE_ASSIGN_OR_RETURN(layer.gate,
                            find.matrix(at + "ffn_gate.weight", spec.feed_forward, spec.embedding));
    SLUICE_ASSIGN_OR_RETURN(layer.up,
                            find.matrix(at + "ffn_up.weight", spec.feed_forward, spec.embedding));
  }
  SLUICE_ASSIGN_OR_RETURN(layer.down,
                          find.matrix(at + "ffn_down.weight", spec.embedding, spec.feed_forward));
  return {};
}

// Tensors read elsewhere (rotation factors), or known to be copies of computed values.
bool known_elsewhere(std::string_view name) {
  return name == "rope_freqs.weight" || name == "rope_factors_long.weight" ||
         name == "rope_factors_short.weight" || name.ends_with(".attn_rot_embd.weight") ||
         name.ends_with(".attn_rot_embd");
}

}  // namespace

Result<Weights> find_weights(const GgufFile& file, const Architecture& arch, ModelSpec& spec) {
  Finder find(file);
  Weights weights;

  const GgufTensor* table = file.find_tensor("token_embd.weight");
  if (table == nullptr || table->dims.size() != 2) {
    return bad_input("{}: tensor 'token_embd.weight' is missing or not a matrix", file.name());
  }
  if (table->rows() > (1u << 30)) {
    return bad_input("{}: tensor 'token_embd.weight' has {} rows; at most {} are expected",
                     file.name(), table->rows(), 1u << 30);
  }
  spec.vocabulary = static_cast<std::uint32_t>(table->rows());
  const GgufValue* tokens = file.find("tokenizer.ggml.tokens");
  if (tokens != nullptr && tokens->type == GgufValueType::kArray &&
      std::get<GgufArray>(tokens->data).count > spec.vocabulary) {
    return bad_input(
        "{}: key 'tokenizer.ggml.tokens' lists {} tokens, but tensor "
        "'token_embd.weight' has only {} rows",
        file.name(), std::get<GgufArray>(tokens->data).count, spec.vocabulary);
  }
  SLUICE_ASSIGN_OR_RETURN(weights.embedding,
                          find.matrix("token_embd.weight", spec.vocabulary, spec.embedding));
  SLUICE_ASSIGN_OR_RETURN(weights.output_norm, find.vector("output_norm.weight", spec.embedding));
  SLUICE_ASSIGN_OR_RETURN(weights.output,
                          find.matrix("output.weight", spec.vocabulary, spec.embedding, false));
  weights.tied = !weights.output;
  if (weights.tied) weights.output = weights.embedding;

  weights.layer.resize(spec.layers);
  for (std::uint32_t i = 0; i < spec.layers; ++i) {
    const std::string at = fmt::format("blk.{}.", i);
    SLUICE_RETURN_IF_ERROR(find_attention(find, arch, spec, at, weights.layer[i]));
    SLUICE_RETURN_IF_ERROR(
        find_feed_forward(find, arch, spec, at, spec.layer[i].experts, weights.layer[i]));
  }

  for (const GgufTensor& tensor : file.tensors()) {
    if (find.used(tensor.name) || known_elsewhere(tensor.name)) continue;
    if (tensor.name.starts_with("blk.")) {
      return bad_input(
          "{}: tensor '{}' has no place in architecture '{}' as it is known here; running without "
          "it would give wrong results",
          file.name(), tensor.name, arch.name);
    }
    spec.warnings.push_back(fmt::format("tensor '{}' is not used", tensor.name));
  }
  return weights;
}

}  // namespace sluice::model_internal

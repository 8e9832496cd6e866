// Hyperparameters from metadata: present, of the right type, in range, and consistent.
#include <cmath>
#include <string>

#include "src/model/load_internal.h"

namespace sluice::model_internal {
namespace {

// Bounds far above any real model; they keep sizes computed from hostile values small.
constexpr std::uint64_t kMaxLayers = 4096;
constexpr std::uint64_t kMaxHeads = 4096;
constexpr std::uint64_t kMaxWidth = 1u << 20;
constexpr std::uint64_t kMaxContext = 1u << 30;
constexpr std::uint64_t kMaxHeadDim = 512;

class Reader {
 public:
  Reader(const GgufFile& file, const Architecture& arch) : file_(file), arch_(arch) {}

  std::string key(std::string_view suffix) const {
    return std::string(arch_.name) + "." + std::string(suffix);
  }
  bool has(std::string_view suffix) const { return file_.find(key(suffix)) != nullptr; }

  // An integer in [1, limit]. A value a layer is accepted where all layers agree.
  Result<std::uint32_t> count(std::string_view suffix, std::uint64_t limit) const {
    const std::string name = key(suffix);
    std::uint64_t value = 0;
    const GgufValue* found = file_.find(name);
    if (found != nullptr && found->type == GgufValueType::kArray) {
      const auto& array = std::get<GgufArray>(found->data);
      if (array.element_type == GgufValueType::kString ||
          array.element_type == GgufValueType::kArray || array.count == 0) {
        return bad_input("{}: key '{}' is an array without numbers; an integer is expected",
                         file_.name(), name);
      }
      for (std::uint64_t i = 0; i < array.count; ++i) {
        if (array.integer_at(i) != array.integer_at(0)) {
          return bad_input(
              "{}: key '{}' differs between layers ({} and {}); only models whose layers all have "
              "the same value can be run",
              file_.name(), name, array.integer_at(0), array.integer_at(i));
        }
      }
      if (array.integer_at(0) > 0) value = static_cast<std::uint64_t>(array.integer_at(0));
    } else {
      SLUICE_ASSIGN_OR_RETURN(value, file_.get_uint(name));
    }
    if (value < 1 || value > limit) {
      return bad_input("{}: key '{}' is {}; a value from 1 to {} is expected", file_.name(), name,
                       value, limit);
    }
    return static_cast<std::uint32_t>(value);
  }
  Result<std::uint32_t> count_or(std::string_view suffix, std::uint64_t limit,
                                 std::uint32_t absent) const {
    if (!has(suffix)) return absent;
    return count(suffix, limit);
  }

  // A finite number >= 0 (> 0 when `positive`).
  Result<float> number_or(std::string_view suffix, float absent, bool positive) const {
    const std::string name = key(suffix);
    SLUICE_ASSIGN_OR_RETURN(const double value, file_.get_float_or(name, absent));
    if (!std::isfinite(value) || value < 0 || (positive && value == 0) || value > 1e30) {
      return bad_input("{}: key '{}' is {}; a finite number {} 0 is expected", file_.name(), name,
                       value, positive ? ">" : ">=");
    }
    return static_cast<float>(value);
  }

 private:
  const GgufFile& file_;
  const Architecture& arch_;
};

// Which layers see only a window, as the file or the architecture says.
Status set_windows(const GgufFile& file, const Architecture& arch, const Reader& read,
                   ModelSpec& spec) {
  SLUICE_ASSIGN_OR_RETURN(
      const std::uint32_t window,
      read.count_or("attention.sliding_window", kMaxContext, arch.default_window));
  if (window == 0) return {};
  if (arch.window_period == 0) {
    // Mistral 7B v0.1 and Phi-3 files name a window; the peers run them with full attention too.
    if (window < spec.context) {
      spec.warnings.push_back(fmt::format(
          "the file names a sliding window of {} tokens, which is not used for '{}': every layer "
          "sees the whole context",
          window, arch.name));
    }
    return {};
  }
  const std::string pattern_key = read.key("attention.sliding_window_pattern");
  const GgufValue* pattern = file.find(pattern_key);
  std::uint64_t period = arch.window_period;
  if (pattern != nullptr && pattern->type == GgufValueType::kArray) {
    const auto& array = std::get<GgufArray>(pattern->data);
    if (array.element_type != GgufValueType::kBool || array.count != spec.layers) {
      return bad_input("{}: key '{}' must be one bool for each of the {} layers; found {} x {}",
                       file.name(), pattern_key, spec.layers, array.count,
                       gguf_value_type_name(array.element_type));
    }
    for (std::uint32_t i = 0; i < spec.layers; ++i) {
      spec.layer[i].window = array.integer_at(i) != 0 ? window : 0;
    }
  } else {
    if (pattern != nullptr) {
      SLUICE_ASSIGN_OR_RETURN(period, read.count("attention.sliding_window_pattern", kMaxLayers));
    }
    for (std::uint32_t i = 0; i < spec.layers; ++i) {
      spec.layer[i].window = i % period < period - 1 ? window : 0;
    }
  }
  if (arch.window_rope_base > 0) {
    for (LayerSpec& layer : spec.layer) layer.rope = layer.window != 0 ? 1 : 0;
  }
  return {};
}

Status read_experts(const GgufFile& file, const Architecture& arch, const Reader& read,
                    ModelSpec& spec) {
  if (!read.has("expert_count") && !arch.must_have_experts) return {};
  SLUICE_ASSIGN_OR_RETURN(const std::uint64_t count, file.get_uint(read.key("expert_count")));
  if (count == 0 && !arch.must_have_experts) return {};
  SLUICE_ASSIGN_OR_RETURN(spec.experts, read.count("expert_count", 4096));
  SLUICE_ASSIGN_OR_RETURN(spec.experts_used, read.count("expert_used_count", spec.experts));
  SLUICE_ASSIGN_OR_RETURN(spec.expert_feed_forward, read.count_or("expert_feed_forward_length",
                                                                  kMaxWidth, spec.feed_forward));
  for (LayerSpec& layer : spec.layer) layer.experts = true;
  return {};
}

}  // namespace

Result<ModelSpec> read_hyperparameters(const GgufFile& file, const Architecture& arch) {
  const Reader read(file, arch);
  ModelSpec spec;
  spec.architecture = arch.name;
  SLUICE_ASSIGN_OR_RETURN(const std::string_view name, file.get_string_or("general.name", ""));
  spec.name = name;

  // Each layer has several tensors: a larger layer count is refused before anything is sized by it.
  const std::uint64_t most_layers = std::min<std::uint64_t>(kMaxLayers, file.tensors().size() + 1);
  SLUICE_ASSIGN_OR_RETURN(spec.layers, read.count("block_count", most_layers));
  SLUICE_ASSIGN_OR_RETURN(spec.embedding, read.count("embedding_length", kMaxWidth));
  SLUICE_ASSIGN_OR_RETURN(spec.context, read.count("context_length", kMaxContext));
  SLUICE_ASSIGN_OR_RETURN(spec.feed_forward, read.count("feed_forward_length", kMaxWidth));
  SLUICE_ASSIGN_OR_RETURN(spec.heads, read.count("attention.head_count", kMaxHeads));
  SLUICE_ASSIGN_OR_RETURN(spec.kv_heads,
                          read.count_or("attention.head_count_kv", kMaxHeads, spec.heads));
  if (spec.heads % spec.kv_heads != 0) {
    return bad_input("{}: key '{}' is {}; it must divide '{}', which is {}", file.name(),
                     read.key("attention.head_count_kv"), spec.kv_heads,
                     read.key("attention.head_count"), spec.heads);
  }
  if (!read.has("attention.key_length") && spec.embedding % spec.heads != 0) {
    return bad_input("{}: key '{}' is {}; it must divide '{}', which is {}, when '{}' is absent",
                     file.name(), read.key("attention.head_count"), spec.heads,
                     read.key("embedding_length"), spec.embedding,
                     read.key("attention.key_length"));
  }
  SLUICE_ASSIGN_OR_RETURN(spec.head_dim, read.count_or("attention.key_length", kMaxHeadDim,
                                                       spec.embedding / spec.heads));
  SLUICE_ASSIGN_OR_RETURN(
      const std::uint32_t value_dim,
      read.count_or("attention.value_length", kMaxHeadDim, spec.embedding / spec.heads));
  if (spec.head_dim > kMaxHeadDim || spec.head_dim % 2 != 0 || value_dim != spec.head_dim) {
    return bad_input(
        "{}: heads of {} key and {} value numbers; an even number up to {}, the same for both, is "
        "expected",
        file.name(), spec.head_dim, value_dim, kMaxHeadDim);
  }
  SLUICE_ASSIGN_OR_RETURN(spec.rope_dims,
                          read.count_or("rope.dimension_count", spec.head_dim, spec.head_dim));
  if (spec.rope_dims % 2 != 0) {
    return bad_input("{}: key '{}' is {}; an even number is expected", file.name(),
                     read.key("rope.dimension_count"), spec.rope_dims);
  }
  spec.rope_interleaved = arch.rope_interleaved;
  spec.activation = arch.activation;

  if (!read.has("attention.layer_norm_rms_epsilon")) {
    return bad_input("{}: key '{}' is missing", file.name(),
                     read.key("attention.layer_norm_rms_epsilon"));
  }
  SLUICE_ASSIGN_OR_RETURN(spec.norm_epsilon,
                          read.number_or("attention.layer_norm_rms_epsilon", 0, false));
  SLUICE_ASSIGN_OR_RETURN(
      spec.attention_softcap,
      read.number_or("attn_logit_softcapping", arch.default_attention_softcap, false));
  SLUICE_ASSIGN_OR_RETURN(spec.logit_softcap, read.number_or("final_logit_softcapping",
                                                             arch.default_logit_softcap, false));
  if (arch.scaled_embedding) spec.embedding_scale = std::sqrt(static_cast<float>(spec.embedding));
  const bool odd_scale = arch.odd_scale_layers != 0 && spec.layers == arch.odd_scale_layers;
  const std::uint32_t scale_dim = odd_scale ? spec.embedding / spec.heads : spec.head_dim;
  spec.attention_scale = 1.0f / std::sqrt(static_cast<float>(scale_dim));

  spec.layer.resize(spec.layers);
  SLUICE_RETURN_IF_ERROR(set_windows(file, arch, read, spec));
  SLUICE_RETURN_IF_ERROR(read_experts(file, arch, read, spec));
  return spec;
}

}  // namespace sluice::model_internal

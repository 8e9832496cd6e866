// Rotary position embedding (Su et al., "RoFormer", 2021) and its ways to longer contexts: linear
// scaling, YaRN (Peng et al., 2023), and factors a pair (Llama 3, Phi-3 LongRoPE).
#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "src/model/load_internal.h"
#include "src/quant/codec.h"

namespace sluice::model_internal {
namespace {

struct Scaling {
  double factor = 1.0;  // positions are divided by it
  bool yarn = false;
  double beta_fast = 32.0, beta_slow = 1.0;
  double original_context = 0.0;
  double attention_factor = 1.0;
};

Result<double> positive(const GgufFile& file, const std::string& key, double absent) {
  SLUICE_ASSIGN_OR_RETURN(const double value, file.get_float_or(key, absent));
  if (!std::isfinite(value) || value <= 0) {
    return bad_input("{}: key '{}' is {}; a finite number > 0 is expected", file.name(), key,
                     value);
  }
  return value;
}

Result<Scaling> read_scaling(const GgufFile& file, const std::string& prefix, double context) {
  Scaling scaling;
  SLUICE_ASSIGN_OR_RETURN(const std::string_view type,
                          file.get_string_or(prefix + "rope.scaling.type", "none"));
  SLUICE_ASSIGN_OR_RETURN(scaling.original_context,
                          positive(file, prefix + "rope.scaling.original_context_length", context));
  SLUICE_ASSIGN_OR_RETURN(scaling.attention_factor,
                          positive(file, prefix + "rope.scaling.attn_factor", 1.0));
  if (type == "none" || type == "longrope") return scaling;
  if (type != "linear" && type != "yarn") {
    return bad_input(
        "{}: key '{}rope.scaling.type' is '{}'; none, linear, yarn or longrope is "
        "expected",
        file.name(), prefix, type);
  }
  SLUICE_ASSIGN_OR_RETURN(const double legacy, positive(file, prefix + "rope.scale_linear", 1.0));
  SLUICE_ASSIGN_OR_RETURN(scaling.factor, positive(file, prefix + "rope.scaling.factor", legacy));
  scaling.yarn = type == "yarn";
  SLUICE_ASSIGN_OR_RETURN(scaling.beta_fast,
                          positive(file, prefix + "rope.scaling.yarn_beta_fast", 32.0));
  SLUICE_ASSIGN_OR_RETURN(scaling.beta_slow,
                          positive(file, prefix + "rope.scaling.yarn_beta_slow", 1.0));
  return scaling;
}

// Divisors of the frequencies, one a pair; empty when the file has none.
Result<std::vector<float>> read_factors(const GgufFile& file, std::string_view name,
                                        std::uint32_t pairs) {
  const GgufTensor* tensor = file.find_tensor(name);
  if (tensor == nullptr) return std::vector<float>{};
  if (tensor->type != BlockType::kF32 || tensor->elements != pairs) {
    return bad_input("{}: tensor '{}' is {} x {}; {} x F32 (half of the rotated size) is expected",
                     file.name(), name, tensor->elements, block_type_info(tensor->type).name,
                     pairs);
  }
  std::vector<float> factors(pairs);
  decode_blocks(tensor->type, tensor->data, factors);
  for (const float f : factors) {
    if (!std::isfinite(f) || f <= 0) {
      return bad_input("{}: tensor '{}' holds {}; finite numbers > 0 are expected", file.name(),
                       name, f);
    }
  }
  return factors;
}

// The pair (as a real number) that makes `rotations` full turns over the original context.
double pair_of_rotations(double rotations, const Scaling& scaling, double base,
                         std::uint32_t dims) {
  return dims * std::log(scaling.original_context / (rotations * 2 * std::numbers::pi)) /
         (2 * std::log(base));
}

Rope make_rope(double base, const Scaling& scaling, const std::vector<float>& factors,
               std::uint32_t dims) {
  Rope rope;
  const std::uint32_t pairs = dims / 2;
  const double low =
      std::max(0.0, std::floor(pair_of_rotations(scaling.beta_fast, scaling, base, dims)));
  const double high =
      std::min(dims - 1.0, std::ceil(pair_of_rotations(scaling.beta_slow, scaling, base, dims)));
  for (std::uint32_t i = 0; i < pairs; ++i) {
    double own = std::pow(base, -2.0 * i / dims);
    if (!factors.empty()) own /= factors[i];
    const double interpolated = own / scaling.factor;
    double used = interpolated;
    if (scaling.yarn) {  // fast pairs keep their frequency, slow ones are interpolated
      const double ramp = std::clamp((i - low) / std::max(0.001, high - low), 0.0, 1.0);
      used = interpolated * ramp + own * (1.0 - ramp);
    }
    rope.inverse_frequency.push_back(used);
  }
  rope.magnitude = static_cast<float>(scaling.attention_factor);
  if (scaling.yarn) rope.magnitude *= static_cast<float>(1.0 + 0.1 * std::log(scaling.factor));
  return rope;
}

}  // namespace

Status read_ropes(const GgufFile& file, const Architecture& arch, std::uint32_t context,
                  ModelSpec& spec) {
  const std::string prefix = std::string(arch.name) + ".";
  SLUICE_ASSIGN_OR_RETURN(const double base, positive(file, prefix + "rope.freq_base", 10000.0));
  if (base <= 1.0) {
    return bad_input("{}: key '{}rope.freq_base' is {}; a number > 1 is expected", file.name(),
                     prefix, base);
  }
  SLUICE_ASSIGN_OR_RETURN(const Scaling scaling, read_scaling(file, prefix, spec.context));

  const bool beyond = (context == 0 ? spec.context : context) > scaling.original_context;
  const std::string_view sized = beyond ? "rope_factors_long.weight" : "rope_factors_short.weight";
  SLUICE_ASSIGN_OR_RETURN(auto factors,
                          read_factors(file, "rope_freqs.weight", spec.rope_dims / 2));
  if (factors.empty()) {
    SLUICE_ASSIGN_OR_RETURN(factors, read_factors(file, sized, spec.rope_dims / 2));
  }
  spec.ropes.push_back(make_rope(base, scaling, factors, spec.rope_dims));
  if (arch.window_rope_base > 0) {
    SLUICE_ASSIGN_OR_RETURN(const double window_base,
                            positive(file, prefix + "rope.freq_base_swa", arch.window_rope_base));
    spec.ropes.push_back(make_rope(window_base, Scaling{}, {}, spec.rope_dims));
  }
  return {};
}

}  // namespace sluice::model_internal

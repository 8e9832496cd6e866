#include "src/engine/sampling/params.h"

#include <cmath>
#include <limits>

#include "src/engine/sampling/fields.h"

namespace sluice {
namespace {

using P = SamplingParams;
using O = SamplingOverrides;

constexpr double kIntMin = std::numeric_limits<std::int32_t>::min();
constexpr double kIntMax = std::numeric_limits<std::int32_t>::max();
constexpr std::size_t kLongestBreaker = 128;

constexpr SamplingField real(std::string_view name, std::string_view key, double lowest,
                             double highest, double P::*member, std::optional<double> O::*given,
                             bool above_lowest = false, bool ignored_by_mirostat = false) {
  return {name,   key,   lowest,  highest, above_lowest, ignored_by_mirostat,
          member, given, nullptr, nullptr};
}
constexpr SamplingField integer(std::string_view name, std::string_view key, double lowest,
                                double highest, std::int32_t P::*member,
                                std::optional<std::int32_t> O::*given,
                                bool ignored_by_mirostat = false) {
  return {name, key, lowest, highest, false, ignored_by_mirostat, nullptr, nullptr, member, given};
}

constexpr SamplingField kFields[] = {
    real("repeat-penalty", "general.sampling.penalty_repeat", 0, 1000, &P::repeat_penalty,
         &O::repeat_penalty, true),
    integer("repeat-last-n", "general.sampling.penalty_last_n", -1, kIntMax, &P::repeat_last_n,
            &O::repeat_last_n),
    real("presence-penalty", "", -1000, 1000, &P::presence_penalty, &O::presence_penalty),
    real("frequency-penalty", "", -1000, 1000, &P::frequency_penalty, &O::frequency_penalty),
    real("dry-multiplier", "", 0, 1000, &P::dry_multiplier, &O::dry_multiplier),
    real("dry-base", "", 1, 1000, &P::dry_base, &O::dry_base),
    integer("dry-allowed-length", "", 1, kIntMax, &P::dry_allowed_length, &O::dry_allowed_length),
    integer("dry-penalty-last-n", "", -1, kIntMax, &P::dry_penalty_last_n, &O::dry_penalty_last_n),
    integer("top-k", "general.sampling.top_k", kIntMin, kIntMax, &P::top_k, &O::top_k, true),
    real("typical", "", 0, 1, &P::typical_p, &O::typical_p, false, true),
    real("top-p", "general.sampling.top_p", 0, 1, &P::top_p, &O::top_p, false, true),
    real("min-p", "general.sampling.min_p", 0, 1, &P::min_p, &O::min_p, false, true),
    real("xtc-probability", "general.sampling.xtc_probability", 0, 1, &P::xtc_probability,
         &O::xtc_probability, false, true),
    real("xtc-threshold", "general.sampling.xtc_threshold", 0, 1, &P::xtc_threshold,
         &O::xtc_threshold, false, true),
    real("temp", "general.sampling.temp", 0, 1000, &P::temperature, &O::temperature),
    integer("mirostat", "general.sampling.mirostat", 0, 2, &P::mirostat, &O::mirostat),
    real("mirostat-ent", "general.sampling.mirostat_tau", 0, 100, &P::mirostat_tau,
         &O::mirostat_tau, true),
    real("mirostat-lr", "general.sampling.mirostat_eta", 0, 10, &P::mirostat_eta, &O::mirostat_eta),
};

}  // namespace

std::span<const SamplingField> sampling_fields() { return kFields; }

std::optional<double> SamplingField::get(const SamplingOverrides& overrides) const {
  if (real) return overrides.*real_override;
  const auto& value = overrides.*integer_override;
  return value ? std::optional<double>(*value) : std::nullopt;
}

void SamplingField::set(SamplingParams& params, double value) const {
  if (real) {
    params.*real = value;
  } else {
    params.*integer = static_cast<std::int32_t>(value);
  }
}

void SamplingField::set(SamplingOverrides& overrides, double value) const {
  if (real) {
    overrides.*real_override = value;
  } else {
    overrides.*integer_override = static_cast<std::int32_t>(value);
  }
}

bool SamplingField::accepts(double value) const {
  if (!(value >= lowest && value <= highest)) return false;  // also refuses NaN
  if (above_lowest && value == lowest) return false;
  if (integer == &SamplingParams::mirostat && value == 1) return false;
  return integer == nullptr || std::trunc(value) == value;
}

std::string SamplingField::expected() const {
  if (integer == &SamplingParams::mirostat) return "0 (off) or 2 (mirostat 1 does not exist here)";
  const std::string kind = integer ? "a whole number" : "a number";
  if (integer && highest == kIntMax && lowest == kIntMin) return kind;
  if (integer && highest == kIntMax) return fmt::format("{} of at least {}", kind, lowest);
  return fmt::format("{} {} {} to {}", kind, above_lowest ? "above" : "from", lowest, highest);
}

Status validate(const SamplingParams& params) {
  for (const SamplingField& field : sampling_fields()) {
    const double value = field.get(params);
    if (!field.accepts(value)) {
      return make_error(ErrorCode::kUsage, "{} is {}; expected {}", field.name, value,
                        field.expected());
    }
  }
  for (const std::string& breaker : params.dry_sequence_breakers) {
    if (breaker.empty() || breaker.size() > kLongestBreaker) {
      return make_error(ErrorCode::kUsage,
                        "a dry-sequence-breaker has {} bytes; expected 1 to {} bytes",
                        breaker.size(), kLongestBreaker);
    }
  }
  for (const LogitBias& bias : params.logit_bias) {
    if (std::isnan(bias.bias) || bias.bias == std::numeric_limits<double>::infinity()) {
      return make_error(ErrorCode::kUsage,
                        "logit-bias of token {} is {}; expected a finite number, or -inf to ban "
                        "the token",
                        bias.token, bias.bias);
    }
  }
  return {};
}

}  // namespace sluice

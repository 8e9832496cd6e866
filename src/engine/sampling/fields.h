// The one table of numeric sampling settings: validation, merging and reports walk it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "src/engine/sampling/params.h"
#include "src/engine/sampling/resolve.h"

namespace sluice {

struct SamplingField {
  std::string_view name;      // as the flag is spelled, without dashes
  std::string_view file_key;  // metadata key, empty if there is none
  double lowest;
  double highest;
  bool above_lowest;         // `lowest` itself is out of range
  bool ignored_by_mirostat;  // replaced by mirostat 2
  // Exactly one pair is set.
  double SamplingParams::*real;
  std::optional<double> SamplingOverrides::*real_override;
  std::int32_t SamplingParams::*integer;
  std::optional<std::int32_t> SamplingOverrides::*integer_override;

  double get(const SamplingParams& params) const {
    return real ? params.*real : static_cast<double>(params.*integer);
  }
  std::optional<double> get(const SamplingOverrides& overrides) const;
  // Requires accepts(value).
  void set(SamplingParams& params, double value) const;
  void set(SamplingOverrides& overrides, double value) const;

  // In range, not NaN, and whole for an integer setting. mirostat also refuses 1.
  bool accepts(double value) const;
  std::string expected() const;  // "a number from 0 to 1"
};

// In the order of the chain.
std::span<const SamplingField> sampling_fields();

}  // namespace sluice

// A sampler's state as data, so that a session resumes with the tokens it would have had.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "src/base/status.h"

namespace sluice {

struct SamplerState {
  std::uint64_t seed = 0;
  std::uint32_t stream = 0;
  std::vector<std::int32_t> history;  // prompt and generated tokens
  // Mirostat's mu after each token, and before the first: history.size() + 1 values. Empty without
  // mirostat.
  std::vector<double> mirostat_mu;

  bool operator==(const SamplerState&) const = default;
};

// Bytes, little-endian: "SLSM", u32 version 1, u64 seed, u32 stream, u32 0, u64 number of tokens,
// u64 number of mu values, i32 tokens, f64 mu values; nothing after.
std::vector<std::byte> encode_sampler_state(const SamplerState& state);

// Checks every size, and that the mu values are finite and absent or one more than the tokens
// (kBadInput).
Result<SamplerState> decode_sampler_state(std::span<const std::byte> bytes);

}  // namespace sluice

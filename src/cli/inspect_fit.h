// What a model needs in memory and how fast it will be: `sluice inspect --fit`.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "src/backend/backend.h"
#include "src/cli/json.h"
#include "src/model/model_spec.h"

namespace sluice::cli {

inline constexpr std::array<KvCacheType, 4> kFitTypes = {KvCacheType::kInt4, KvCacheType::kInt8,
                                                         KvCacheType::kF16, KvCacheType::kF32};

struct FitCell {
  MemoryPlan memory;
  double tokens_per_s = 0;  // when the context is full; 0: bandwidth unknown
};

struct FitRow {
  std::uint32_t context = 0;
  std::array<FitCell, kFitTypes.size()> cells;  // one a cache type
};

struct Fit {
  double bandwidth = 0;            // measured, bytes per second; 0: could not be measured
  unsigned threads = 0;            // that measured it
  std::uint64_t available = 0;     // memory; 0: unknown
  std::uint64_t weight_bytes = 0;  // that a one-token pass reads
  std::uint32_t trained_context = 0;
  std::vector<FitRow> rows;
  std::array<std::uint32_t, kFitTypes.size()> largest{};  // contexts that fit in `available`
};

// The share of a model's weights that a one-token pass reads: all matrices, but of the experts only
// those used. And how many bytes that is in the CPU backend's layout.
double active_share(const Model& model);
std::uint64_t active_weight_bytes(const Model& model);

// Bytes of keys and values that a token reads when `depth` tokens are in the cache; windows count.
std::uint64_t kv_bytes_at_depth(const ModelSpec& spec, KvCacheType type, std::uint32_t depth);

// Measures the bandwidth and plans `contexts` (empty: powers of two from 2048 to the trained one).
Fit compute_fit(const Model& model, std::span<const std::int64_t> contexts,
                const std::atomic<bool>& cancel);

std::string describe_fit(const Fit& fit);
Json fit_to_json(const Fit& fit);

}  // namespace sluice::cli

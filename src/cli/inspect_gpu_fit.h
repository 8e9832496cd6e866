// What of a model fits on GPUs and how fast it will be there: the second half of
// `sluice inspect --fit`.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "src/backend/placement.h"
#include "src/cli/inspect_fit.h"

namespace sluice::cli {

struct GpuFitCell {
  MemoryPlan needed;             // on GPUs, for all layers there; nothing: the cache can't be there
  std::uint32_t layers = 0;      // that fit
  double tokens_per_s = 0;       // with those there, the rest on the CPU; 0: bandwidth unknown
  std::vector<std::string> why;  // what `run` would say to it
};

struct GpuFitRow {
  std::uint32_t context = 0;
  std::array<GpuFitCell, kFitTypes.size()> cells;  // one a cache type
};

struct GpuFit {
  std::vector<GpuInfo> devices;  // those that may be used; none: `note` says why
  std::vector<std::uint32_t> numbers;
  std::string note;
  std::uint32_t layers = 0;  // of the model
  std::vector<GpuFitRow> rows;
};

// For the contexts of `fit`, whose bandwidth is that of the layers left to the CPU. Nothing without
// a platform, or where the CPU is chosen; kUsage where a GPU was asked for and is not there.
Result<std::optional<GpuFit>> compute_gpu_fit(const Model& model, const GpuPlatform* platform,
                                              const DeviceChoice& choice, const Fit& fit);

std::string describe_gpu_fit(const GpuFit& fit);
Json gpu_fit_to_json(const GpuFit& fit);

}  // namespace sluice::cli

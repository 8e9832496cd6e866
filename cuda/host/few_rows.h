// Which of the two kernels multiplies a quantized matrix by a few rows of activations: dp4a
// (matvec_dp4a.cuh) or tensor cores (matvec_mma.cuh). Both give the same bits.
//
// dp4a's work grows with the rows, that of tensor cores is the same for one to eight of them, so up
// to some number of rows dp4a is faster. That number depends on the device (its lanes of dp4a and
// its memory) and on the kind of tiles (their bytes, and the work of unpacking them), so it is
// measured where the model runs, on its own matrices, right after they are uploaded. Timed are
// plain products; those with something fused behind them (gated.cuh, qkv.cuh) and those of experts
// have the same inner loops and follow the same numbers.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "cuda/host/launch.h"
#include "cuda/host/weights.h"
#include "src/base/status.h"

namespace sluice::cuda {

// Seconds for a matrix, with one row of activations (entry 0), two, ...
struct KernelTimes {
  std::array<double, kMostDp4aRows> dp4a = {};
  std::array<double, kMostDp4aRows> mma = {};
  // Rows up to which dp4a is at least as fast; 0: never.
  std::int32_t most_dp4a() const;
};

// Times both kernels on matrices of one quantized type, one after the other, as a pass reads them:
// caches help as much as they do there. Of large matrices, the first
// kMostTimedRows rows count, of those of experts the first expert's. At least one matrix.
inline constexpr std::uint32_t kMostTimedRows = 32768;
Result<KernelTimes> time_kernels(Device& device, std::span<const DeviceMatrix* const> matrices);

// The numbers by kind of tiles.
class FewRows {
 public:
  Arithmetic arithmetic(TileKind kind, std::int32_t x_rows) const {
    return x_rows <= most_dp4a_[static_cast<std::size_t>(kind)] ? Arithmetic::kDp4a
                                                                : Arithmetic::kMma;
  }
  // "rows that dp4a takes: Q4_0 2, Q6_K 3"; types that were not measured are left out.
  std::string text() const;

  // Measures every kind that `weights` has; the others stay with tensor cores. Takes some tens of
  // milliseconds and, for that time, less memory of the device than a small matrix.
  static Result<FewRows> measure(Device& device, const DeviceWeights& weights);

 private:
  std::array<std::int32_t, kTileKinds> most_dp4a_ = {};
  std::array<bool, kTileKinds> measured_ = {};
};

}  // namespace sluice::cuda

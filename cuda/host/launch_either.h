// A matrix times a few rows by the kernel that the caller names, whatever few_rows.h says: for
// measuring and tests, and so no part of the program.
#pragma once

#include <cstdint>

#include "cuda/arguments.h"
#include "cuda/weight_tiles.h"

namespace sluice::cuda {

class Device;

enum class Arithmetic : std::uint8_t { kDp4a, kMma };

inline constexpr std::int32_t kMostEitherRows = 8;  // of activations

void launch_matvec_by(Arithmetic arithmetic, Device& device, TileKind tiles,
                      const MatvecArgs& args);

}  // namespace sluice::cuda

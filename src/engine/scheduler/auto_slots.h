// How many sequences at a time: from what a pass costs by its number of rows, measured.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "src/base/status.h"
#include "src/engine/engine.h"

namespace sluice {

struct SlotChoice {
  std::uint32_t slots = 1;
  struct Measured {
    std::uint32_t rows = 0;
    double ms = 0;  // of a pass of so many sequences, a row each
  };
  std::vector<Measured> measured;
};

// The smallest number whose tokens per second come within 5% of the best one's, at most `most`.
// Runs a few passes of 1, 2, 4, ... sequences; ends when a doubling gains less than 5%. The cache
// is empty before and after. Errors: of the backend, kInterrupted.
Result<SlotChoice> choose_slots(Engine& engine, std::uint32_t most,
                                const std::atomic<bool>* cancel);

}  // namespace sluice

// The passes that read every logit of the vocabulary, vectorised. Both versions give the same bits:
// lanes are added in one fixed order, and no product and sum are fused.
#pragma once

#include <cstddef>

namespace sluice {

// scan() keeps one maximum for each block of this many logits, so that later steps visit only the
// few blocks that hold candidates.
inline constexpr std::size_t kScanBlock = 32;
constexpr std::size_t scan_blocks(std::size_t n) { return (n + kScanBlock - 1) / kScanBlock; }

struct ScanResult {
  float max = 0;         // -inf for no logits or only -inf; undefined if has_nan
  bool has_nan = false;  // +inf shows as max == +inf
};

struct WeightSums {
  double weight = 0;  // sum of w = exp((x - max) / temperature)
  double moment = 0;  // sum of w * (x - max) / temperature
};

struct VocabPasses {
  // x (n), block_max (scan_blocks(n)).
  ScanResult (*scan)(const float* x, std::size_t n, float* block_max);
  // x (n) without NaN and +inf; max >= every x, finite; temperature > 0. -inf weighs 0, and so
  // does what lies more than 708 * temperature below max.
  double (*sum)(const float* x, std::size_t n, double max, double temperature);
  // The same sum, and the moment.
  WeightSums (*sums)(const float* x, std::size_t n, double max, double temperature);
  // The weights themselves: w (n).
  void (*weights)(const float* x, std::size_t n, double max, double temperature, double* w);
};

const VocabPasses& generic_passes();
// nullptr where the program was built for, or runs on, a CPU without AVX2.
const VocabPasses* avx2_passes();
// The fastest that this CPU runs.
const VocabPasses& best_passes();

}  // namespace sluice

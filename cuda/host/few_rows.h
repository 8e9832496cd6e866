// Which of the two kernels multiplies a quantized matrix by a few rows of activations: dp4a
// (matvec_dp4a.cuh) or tensor cores (matvec_mma.cuh). Both give the same bits.
//
// dp4a's work grows with the rows, that of tensor cores is the same for one to eight of them, so up
// to some number of rows dp4a is faster. The table says up to how many.
//
// Where its figures come from: predicted, not measured. dp4a has 64 lanes a clock and
// multiprocessor. The record of 32 x 32 weights, which a warp takes at a time, is eight
// instructions for each row of activations: 4 clocks, and about three times as many with the loads
// of the activations and what makes floats of the sums. An H200 brings 18 bytes a clock and
// multiprocessor, so 32 clocks go by until the 576 bytes of a record of Q4_0 are there: two rows or
// three keep up with memory. Types of more bytes leave more time, and where memory is slower
// beside the arithmetic (chips with GDDR) both kernels wait for it; a larger number gains nothing
// there. `gpu_bench --only crossover` measures it, on each kind of device: what it prints under
// "dp4a" is a line's number.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "cuda/weight_tiles.h"

namespace sluice::cuda {

struct FewRows {
  TileKind kind;
  std::int32_t turing;     // compute capability 7.x
  std::int32_t ampere;     // 8.x, Ada too
  std::int32_t hopper;     // 9.x
  std::int32_t blackwell;  // 10.x and later
};

inline constexpr FewRows kMostDp4aRows[] = {
    {TileKind::kQ4_0, 2, 2, 2, 2},        // 576 bytes a record
    {TileKind::kQ8_0, 2, 2, 2, 2},        // 1088 bytes a record
    {TileKind::kIQ4_NL, 2, 2, 2, 2},      // 576 bytes a record
    {TileKind::kMXFP4, 2, 2, 2, 2},       // 544 bytes a record
    {TileKind::kQ4_K, 2, 2, 2, 2},        // 592 bytes a record
    {TileKind::kQ5_K, 2, 2, 2, 2},        // 720 bytes a record
    {TileKind::kQ6_K, 2, 2, 2, 2},        // 840 bytes a record
    {TileKind::kWide, 2, 2, 2, 2},        // 1280 bytes a record
    {TileKind::kWideHalves, 2, 2, 2, 2},  // 1536 bytes a record
};

// Rows up to which dp4a is taken on a device of compute capability `major`.x.
constexpr std::int32_t most_dp4a_rows(TileKind kind, std::uint32_t major) {
  const FewRows& row = kMostDp4aRows[static_cast<int>(kind)];
  if (major < 8) return row.turing;
  if (major < 9) return row.ampere;
  return major < 10 ? row.hopper : row.blackwell;
}

// The largest number in the table: what kernels are made for.
constexpr std::int32_t largest_dp4a_rows() {
  std::int32_t most = 1;
  for (const FewRows& row : kMostDp4aRows) {
    for (const std::int32_t rows : {row.turing, row.ampere, row.hopper, row.blackwell}) {
      if (rows > most) most = rows;
    }
  }
  return most;
}

// Every kind has its line, in the order of TileKind.
constexpr bool is_in_order() {
  std::int32_t place = 0;
  for (const FewRows& row : kMostDp4aRows) {
    if (static_cast<std::int32_t>(row.kind) != place++) return false;
  }
  return place == static_cast<std::int32_t>(TileKind::kWideHalves) + 1;
}
static_assert(is_in_order() && largest_dp4a_rows() <= 8);

}  // namespace sluice::cuda

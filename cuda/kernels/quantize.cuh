// Activations to int8 with one float scale for 32 values of a row.
//
// A lane takes four neighbouring values, eight lanes a group: a warp reads 512 bytes, writes 128.
//
//   x     [rows][x_stride] float          | group 0: 8 lanes x 4 | group 1 | ...
//   q     [rows][cols] int8               same order
//   scale [rows][cols / 32] float
//   sum   [rows][cols / 32] sums of the codes of both halves of a group
//
// The same operations as src/backend/cpu/generic.cpp, and so the same bits: scale = max / 127,
// codes rounded to nearest even, a group whose largest magnitude is tiny is zeros, and a value that
// is not finite makes the group's scale NaN, so that it poisons the results and never hides.
#pragma once

#include "cuda/arguments.h"

namespace sluice::cuda {

inline constexpr std::int32_t kQuantizeThreads = 256;  // 1024 values of one row a block

// Blocks for a row.
SIMT_ANYWHERE std::int32_t quantize_row_blocks(std::int32_t cols) {
  return (cols + 4 * kQuantizeThreads - 1) / (4 * kQuantizeThreads);
}
// Blocks of the grid.
SIMT_ANYWHERE std::int32_t quantize_blocks(std::int32_t rows, std::int32_t cols) {
  return rows * quantize_row_blocks(cols);
}

// The code of x, in the low byte. Adding 1.5 * 2^23 rounds |x| < 2^22 to the nearest integer, ties
// to even, and leaves it in the low bits.
SIMT_DEVICE std::uint32_t quantized_code(std::uint32_t x_bits, float inverse) {
  const float rounded = simt::float_of_bits(x_bits) * inverse + 12582912.0f;
  return (simt::float_bits(rounded) - simt::float_bits(12582912.0f)) & 0xffu;
}

// Quantizes the four values (bits of floats) that each lane of a warp has; eight neighbouring lanes
// have a group, which is inside as a whole or outside. Lanes outside take part and write nothing.
// `at` is the index of a lane's first value in out.q.
SIMT_DEVICE void quantize_four(const simt::Words& x, bool inside, std::int64_t at,
                               const QuantizedOut& out) {
  std::uint32_t max_bits = 0;  // magnitudes order like their bits
  SIMT_UNROLL
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t magnitude = x.word[i] & 0x7fffffffu;
    if (magnitude > max_bits) max_bits = magnitude;
  }
  SIMT_UNROLL
  for (std::uint32_t lanes = 4; lanes > 0; lanes /= 2) {
    const std::uint32_t other = simt::shuffle_xor(simt::kAllLanes, max_bits, lanes);
    if (other > max_bits) max_bits = other;
  }

  const float max = simt::float_of_bits(max_bits);
  std::uint32_t codes = 0;
  float scale = 0.0f;
  if (max_bits >= 0x7f800000u) {  // infinity or NaN
    scale = simt::float_of_bits(0x7fc00000u);
  } else if (max >= 1e-30f) {
    const float inverse = 127.0f / max;
    SIMT_UNROLL
    for (int i = 0; i < 4; ++i) codes |= quantized_code(x.word[i], inverse) << (8 * i);
    scale = max / 127.0f;
  }

  // Four lanes have a half of the group.
  auto sum = static_cast<std::uint32_t>(simt::dp4a(codes, 0x01010101u, 0));
  sum += simt::shuffle_xor(simt::kAllLanes, sum, 1);
  sum += simt::shuffle_xor(simt::kAllLanes, sum, 2);
  const std::uint32_t second = simt::shuffle_xor(simt::kAllLanes, sum, 4);
  if (!inside) return;
  simt::store(simt::cast<std::uint32_t>(out.q + at), codes);
  if (simt::lane() % 8 == 0) {
    simt::store(out.scale + at / 32, scale);
    simt::store(out.sum + at / 32, (sum & 0xffffu) | second << 16);
  }
}

// The bits of the largest magnitude that the lanes have; magnitudes order like their bits.
SIMT_DEVICE std::uint32_t largest_magnitude(float x) {
  std::uint32_t bits = simt::float_bits(x) & 0x7fffffffu;
  SIMT_UNROLL
  for (std::uint32_t lanes = 16; lanes > 0; lanes /= 2) {
    const std::uint32_t other = simt::shuffle_xor(simt::kAllLanes, bits, lanes);
    if (other > bits) bits = other;
  }
  return bits;
}

// A value of a group that a warp has, one each lane; the scale is the group's.
struct LaneCode {
  std::uint32_t code;
  float scale;
};
SIMT_DEVICE LaneCode quantize_lane(float x) {
  const std::uint32_t max_bits = largest_magnitude(x);
  const float max = simt::float_of_bits(max_bits);
  if (max_bits >= 0x7f800000u) return {0, simt::float_of_bits(0x7fc00000u)};  // infinity or NaN
  if (!(max >= 1e-30f)) return {0, 0.0f};
  return {quantized_code(simt::float_bits(x), 127.0f / max), max / 127.0f};
}

// The same as quantize_four for such a group; `at` is the index of the lane's own value in out.q.
SIMT_DEVICE void quantize_lanes(float x, std::int64_t at, const QuantizedOut& out) {
  const LaneCode quantized = quantize_lane(x);
  const std::uint32_t code = quantized.code;
  auto sum = static_cast<std::uint32_t>(static_cast<std::int32_t>(static_cast<std::int8_t>(code)));
  SIMT_UNROLL
  for (std::uint32_t lanes = 8; lanes > 0; lanes /= 2) {
    sum += simt::shuffle_xor(simt::kAllLanes, sum, lanes);
  }
  const std::uint32_t second = simt::shuffle_xor(simt::kAllLanes, sum, 16);
  simt::store(out.q + at, static_cast<std::int8_t>(code));
  if (simt::lane() == 0) {
    simt::store(out.scale + at / 32, quantized.scale);
    simt::store(out.sum + at / 32, (sum & 0xffffu) | second << 16);
  }
}

SIMT_KERNEL(kQuantizeThreads) quantize_rows(QuantizeArgs args) {
  simt::wait_for_previous();
  const auto blocks = static_cast<std::uint32_t>(quantize_row_blocks(args.cols));
  const std::int64_t row = simt::block_index() / blocks;
  const std::int64_t chunk = simt::block_index() % blocks;
  const std::int64_t col = 4 * (chunk * kQuantizeThreads + simt::thread_index());
  const bool inside = col < args.cols;
  simt::Words x = {};
  if (inside) x = simt::load_words(args.x + row * args.x_stride + col);
  quantize_four(x, inside, row * args.cols + col, args.out);
}

}  // namespace sluice::cuda

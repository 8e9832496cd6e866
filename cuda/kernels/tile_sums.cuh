// From the codes of a block to the sums: scales, and the one order of operations in which a block's
// dot product enters the sum of a weight row and an activation row:
//
//   acc = fma(w_scale * x_scale, float(dot), acc)
//   acc = fma(w_min * x_scale, float(x_sum), acc)    for layouts with a minimum
//
// for each part of the block in sequence (TileLayout::kParts: one, or two of 16 columns). `dot` is
// an exact int32, x_sum the sum of the part's activation codes. The products w_scale = d * sc and
// w_min = -(dmin * m) are rounded to float. All this is what src/backend/cpu/kernels.h says too.
// Where a layout has a minimum and its type none, the minimum is zero, and the second line leaves
// acc as it is: acc is never -0, since it begins at +0 and each step is exact near zero.
//
// kRows is how many weight rows a lane needs scales of: 1 with dp4a, its own; 4 with mma, g + 8 i.
#pragma once

#include "cuda/kernels/tile_codes.cuh"

namespace sluice::cuda {

// -- Scales --------------------------------------------------------------------------------------

// What the header of a bundle says, kept until the next one.
template <int kRows>
struct HeaderScales {
  float d[kRows];
  float dmin[kRows];
};

template <int kParts, int kRows>
struct BlockScales {
  float scale[kParts][kRows];
  float min[kParts][kRows];
};

// The bits of kRows neighbouring entries of an array.
template <class T, int kRows>
SIMT_DEVICE void load_entries(SharedBytes array, std::int32_t place, std::uint32_t (&bits)[kRows]) {
  static_assert(kRows == 1 || kRows == 4);
  const SharedBytes at = array + place * static_cast<std::int32_t>(sizeof(T));
  if constexpr (kRows == 1) {
    bits[0] = simt::load(simt::cast<T>(at));
  } else if constexpr (sizeof(T) == 1) {
    const std::uint32_t word = simt::load(simt::cast<std::uint32_t>(at));
    SIMT_UNROLL
    for (int i = 0; i < 4; ++i) bits[i] = word >> (8 * i) & 0xffu;
  } else if constexpr (sizeof(T) == 2) {
    const std::uint64_t pair = simt::load(simt::cast<std::uint64_t>(at));
    SIMT_UNROLL
    for (int i = 0; i < 4; ++i) bits[i] = static_cast<std::uint32_t>(pair >> (16 * i)) & 0xffffu;
  } else {
    const simt::Words words = simt::load_words(at);
    SIMT_UNROLL
    for (int i = 0; i < 4; ++i) bits[i] = words.word[i];
  }
}
template <int kRows>
SIMT_DEVICE void load_halves(SharedBytes array, std::int32_t place, float (&values)[kRows]) {
  std::uint32_t bits[kRows];
  load_entries<std::uint16_t>(array, place, bits);
  SIMT_UNROLL
  for (int i = 0; i < kRows; ++i) {
    values[i] = simt::half_to_float(static_cast<std::uint16_t>(bits[i]));
  }
}
template <int kRows>
SIMT_DEVICE void load_floats(SharedBytes array, std::int32_t place, float (&values)[kRows]) {
  std::uint32_t bits[kRows];
  load_entries<std::uint32_t>(array, place, bits);
  SIMT_UNROLL
  for (int i = 0; i < kRows; ++i) values[i] = simt::float_of_bits(bits[i]);
}

template <class Tiles, int kRows>
SIMT_DEVICE void load_header(SharedBytes header, std::int32_t place, HeaderScales<kRows>& scales) {
  load_halves(header, place, scales.d);
  if constexpr (Tiles::kHasMin) load_halves(header + 2 * kTileRows, place, scales.dmin);
}

// Half of 2^(e - 127), as mxfp4_half_scale() in src/quant/layout.h.
SIMT_DEVICE float half_of_exponent(std::uint32_t e) {
  return simt::float_of_bits(e < 2 ? 0x00200000u << e : (e - 1) << 23);
}

template <class Tiles, int kRows>
SIMT_DEVICE BlockScales<Tiles::kParts, kRows> load_scales(SharedBytes record, std::int32_t place,
                                                          const HeaderScales<kRows>& header) {
  constexpr TileScales kScales = Tiles::kScales;
  const SharedBytes at = record + Tiles::kScalesAt;
  BlockScales<Tiles::kParts, kRows> scales = {};
  std::uint32_t bits[kRows];
  if constexpr (kScales == TileScales::kHalf) {
    load_halves(at, place, scales.scale[0]);
  } else if constexpr (kScales == TileScales::kExponent) {
    load_entries<std::uint8_t>(at, place, bits);
    SIMT_UNROLL
    for (int i = 0; i < kRows; ++i) scales.scale[0][i] = half_of_exponent(bits[i]);
  } else if constexpr (kScales == TileScales::kK) {
    load_entries<std::uint8_t>(at, place, bits);
    SIMT_UNROLL
    for (int i = 0; i < kRows; ++i) {
      scales.scale[0][i] = header.d[i] * static_cast<float>(bits[i]);
    }
    load_entries<std::uint8_t>(at + kTileRows, place, bits);
    SIMT_UNROLL
    for (int i = 0; i < kRows; ++i) {
      scales.min[0][i] = -(header.dmin[i] * static_cast<float>(bits[i]));
    }
  } else if constexpr (kScales == TileScales::kKHalves) {
    SIMT_UNROLL
    for (int part = 0; part < 2; ++part) {
      load_entries<std::uint8_t>(at + part * kTileRows, place, bits);
      SIMT_UNROLL
      for (int i = 0; i < kRows; ++i) {
        scales.scale[part][i] = header.d[i] * static_cast<float>(static_cast<std::int8_t>(bits[i]));
      }
    }
  } else {
    SIMT_UNROLL
    for (int part = 0; part < Tiles::kParts; ++part) {
      load_floats(at + part * 4 * kTileRows, place, scales.scale[part]);
      load_floats(at + (Tiles::kParts + part) * 4 * kTileRows, place, scales.min[part]);
    }
  }
  return scales;
}

// -- Activations ---------------------------------------------------------------------------------

// A group of 32 columns of some activation rows in shared memory:
//   | columns 0-15: kXRows x 16 bytes | columns 16-31 | scales | sums, if there is a minimum |
template <class Tiles, int kXRows>
struct XStage {
  static constexpr std::int32_t kPlane = kXRows * 16;
  static constexpr std::int32_t kScales = 2 * kPlane;
  static constexpr std::int32_t kSums = kScales + 4 * kXRows;
  static constexpr std::int32_t kBytes = (kSums + (Tiles::kHasMin ? 4 * kXRows : 0) + 15) / 16 * 16;
};

// Starts the copies of a group of row thread / 2: its two threads each take half of the codes, one
// the scale, the other the sums. `source` is the row of args.x; if it is not `inside`, zeros come.
template <class Tiles, int kXRows>
SIMT_DEVICE void copy_x(const MatvecArgs& args, std::int32_t source, bool inside,
                        std::int32_t block, SharedBytes stage, std::int32_t thread) {
  using Layout = XStage<Tiles, kXRows>;
  const std::int32_t row = thread / 2;
  const std::int32_t half = thread % 2;
  const std::int64_t group = std::int64_t{source} * (args.cols / kBlockCols) + block;
  simt::copy_async_16(stage + (half * Layout::kPlane + 16 * row),
                      args.x.q + (group * kBlockCols + 16 * half), inside ? 16 : 0);
  if (half == 0) {
    simt::copy_async_4(stage + (Layout::kScales + 4 * row), args.x.scale + group, inside ? 4 : 0);
  } else if constexpr (Tiles::kHasMin) {
    simt::copy_async_4(stage + (Layout::kSums + 4 * row), args.x.sum + group, inside ? 4 : 0);
  }
}

// Scale and sums of an activation row's group, the sums by the parts of a block.
template <int kParts>
struct XGroup {
  float scale;
  float sum[kParts];
};

template <class Tiles>
SIMT_DEVICE XGroup<Tiles::kParts> x_group(std::uint32_t scale, std::uint32_t sums) {
  XGroup<Tiles::kParts> group = {simt::float_of_bits(scale), {}};
  if constexpr (Tiles::kHasMin) {
    const std::int32_t first = static_cast<std::int16_t>(sums & 0xffffu);
    const std::int32_t second = static_cast<std::int16_t>(sums >> 16);
    if constexpr (Tiles::kParts == 1) {
      group.sum[0] = static_cast<float>(first + second);
    } else {
      group.sum[0] = static_cast<float>(first);
      group.sum[1] = static_cast<float>(second);
    }
  }
  return group;
}

// -- Sums ----------------------------------------------------------------------------------------

// Dot products begin here: 1.5 * 2^23 as a float, whose bits then count in steps of one. So a dot
// product becomes a float by one operation, which takes back the start and 2^kShift. Exact up to
// 2^22; the largest, 32 * 128 * 127, is below 2^19.
inline constexpr std::int32_t kDotStart = 0x4b400000;

template <class Tiles>
SIMT_DEVICE float dot_value(std::int32_t dot) {
  constexpr float kUnit = 1.0f / (1 << Tiles::kShift);
  return simt::fma(simt::float_of_bits(static_cast<std::uint32_t>(dot)), kUnit,
                   -12582912.0f * kUnit);
}

// A step of the order of operations above: part `part` of a block, row `row` of the scales.
template <class Tiles, int kRows>
SIMT_DEVICE float accumulate(const BlockScales<Tiles::kParts, kRows>& w, int part, int row,
                             const XGroup<Tiles::kParts>& x, std::int32_t dot, float acc) {
  acc = simt::fma(w.scale[part][row] * x.scale, dot_value<Tiles>(dot), acc);
  if constexpr (Tiles::kHasMin) acc = simt::fma(w.min[part][row] * x.scale, x.sum[part], acc);
  return acc;
}

// -- By tensor cores -----------------------------------------------------------------------------
//
// One mma is 16 weight rows of a block times 8 activation rows; where a block has two parts, one
// for each. Result c[i] of half m belongs to weight row 16 m + g + 8 (i / 2) of the tile and to
// activation row 2 t + i % 2 of the eight.

struct XFragment {
  std::uint32_t b[2];  // columns 4t..4t+3 of row g, columns 16+4t..
};

// Of rows 16 p .. in a stage: rows 16 p .. + 7, rows 16 p + 8 .. . One ldmatrix on both planes.
template <class Tiles, int kXRows>
SIMT_DEVICE void load_x_fragments(SharedBytes stage, std::int32_t p, XFragment (&x)[2]) {
  const auto lane = static_cast<std::int32_t>(simt::lane());
  const simt::Words words = simt::load_matrices_x4(
      stage + (lane / 16 * XStage<Tiles, kXRows>::kPlane + 16 * (16 * p + lane % 16)));
  SIMT_UNROLL
  for (int n = 0; n < 2; ++n) x[n] = {{words.word[n], words.word[2 + n]}};
}

// Of rows 8 n + 2 t, + 1.
template <class Tiles, int kXRows>
SIMT_DEVICE void load_x_groups(SharedBytes stage, std::int32_t n, XGroup<Tiles::kParts> (&x)[2]) {
  using Layout = XStage<Tiles, kXRows>;
  const std::int32_t row = 8 * n + 2 * static_cast<std::int32_t>(simt::lane() % 4);
  const std::uint64_t scales =
      simt::load(simt::cast<std::uint64_t>(stage + (Layout::kScales + 4 * row)));
  std::uint64_t sums = 0;
  if constexpr (Tiles::kHasMin) {
    sums = simt::load(simt::cast<std::uint64_t>(stage + (Layout::kSums + 4 * row)));
  }
  SIMT_UNROLL
  for (int i = 0; i < 2; ++i) {
    x[i] = x_group<Tiles>(static_cast<std::uint32_t>(scales >> (32 * i)),
                          static_cast<std::uint32_t>(sums >> (32 * i)));
  }
}

// acc[m][i] += 32 weight rows of a block times 8 activation rows.
template <class Tiles>
SIMT_DEVICE void multiply_block(const std::uint32_t (&low)[4], const std::uint32_t (&high)[4],
                                const BlockScales<Tiles::kParts, 4>& w, const XFragment& x,
                                const XGroup<Tiles::kParts> (&groups)[2], float (&acc)[2][4]) {
  SIMT_UNROLL
  for (int m = 0; m < 2; ++m) {
    SIMT_UNROLL
    for (int part = 0; part < Tiles::kParts; ++part) {
      std::int32_t dot[4] = {kDotStart, kDotStart, kDotStart, kDotStart};
      if constexpr (Tiles::kParts == 1) {
        simt::mma_s8(dot, {low[2 * m], low[2 * m + 1], high[2 * m], high[2 * m + 1]}, x.b);
      } else if (part == 0) {
        simt::mma_s8_k16(dot, {low[2 * m], low[2 * m + 1]}, x.b[0]);
      } else {
        simt::mma_s8_k16(dot, {high[2 * m], high[2 * m + 1]}, x.b[1]);
      }
      SIMT_UNROLL
      for (int i = 0; i < 4; ++i) {
        acc[m][i] = accumulate<Tiles>(w, part, 2 * m + i / 2, groups[i % 2], dot[i], acc[m][i]);
      }
    }
  }
}

}  // namespace sluice::cuda

// The inner loops of all matrix products: a tile of T rows of x against 16 packed rows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/backend/cpu/simd_compat.h"

namespace sluice::cpu {
namespace {

// How the codes of a source are multiplied. Known at compile time.
struct Dot {
  bool is_signed;  // codes are signed bytes; otherwise unsigned, and offset is taken out
  int quads;       // products of unsigned codes that fit 16 bits: quads * 2 * max code * 127 < 2^15
  int segments;    // scales in a block of 32: 1 or 2
  bool has_min;    // a minimum is added
  bool has_offset;  // x.offset is added to the integer dot product
};

// Rows of x for a tile; strides are between rows. Entries of a row: q 32 a block, scale 1 a block,
// offset and sum `segments` a block.
struct TileX {
  const std::int8_t* q;
  std::size_t q_stride;
  const float* scale;
  std::size_t scale_stride;
  const std::int32_t* offset;  // -code offset * sum of q
  const float* sum;            // sum of q, for minima
  std::size_t extra_stride;    // of offset and sum
};

// Calls f.operator()<i>() for i in [0, n).
template <int n, class F>
SLUICE_INLINE void unroll(const F& f) {
  if constexpr (n > 0) {
    unroll<n - 1>(f);
    f.template operator()<n - 1>();
  }
}

// Covers rows [0, rows) with tiles of 4 rows and one of what is left: calls f.operator()<T>(first
// row).
template <class F>
SLUICE_INLINE void in_tiles(std::uint32_t rows, const F& f) {
  std::uint32_t r = 0;
  for (; r + 4 <= rows; r += 4) f.template operator()<4>(r);
  if (rows - r == 3) f.template operator()<3>(r);
  if (rows - r == 2) f.template operator()<2>(r);
  if (rows - r == 1) f.template operator()<1>(r);
}

// Integer dot products of one block (or segment of it) for T rows of x and H halves of the group, x
// pointing at the block. A broadcast of x serves all halves, loaded codes serve all rows.
template <class Isa, Dot kDot, int T, int H, int kSegment, class Codes>
SLUICE_INLINE void dot_products(const Codes& code_of, const std::int8_t* x, std::size_t x_stride,
                                typename Isa::I (&dot)[T][H]) {
  using I = typename Isa::I;
  constexpr int kQuads = 8 / kDot.segments;
  I pairs[T][H];
  unroll<kQuads>([&]<int i>() SLUICE_ALWAYS_INLINE {
    // Whole blocks go 0 4 1 5 ...: codes of quad j and j + 4 share a line of nibbles.
    constexpr int quad = kDot.segments == 1 ? i / 2 + i % 2 * 4 : kSegment * kQuads + i;
    I codes[H];
    I magnitude[H];
    for (int h = 0; h < H; ++h) {
      codes[h] = code_of.template operator()<quad>(h);
      if constexpr (kDot.is_signed) magnitude[h] = Isa::absolute(codes[h]);
    }
    for (int t = 0; t < T; ++t) {
      const I bytes = Isa::broadcast4(x + t * x_stride + 4 * quad);
      for (int h = 0; h < H; ++h) {
        if constexpr (Isa::kHasByteDot) {
          dot[t][h] = Isa::byte_dot(i == 0 ? Isa::set1_int(0) : dot[t][h], codes[h], bytes);
        } else if constexpr (kDot.is_signed) {
          // |w| * (x with the sign of w): 128 * 127 * 2 still fits 16 bits.
          const I wide =
              Isa::widen_pairs(Isa::multiply_pairs(magnitude[h], Isa::copy_sign(bytes, codes[h])));
          dot[t][h] = i == 0 ? wide : Isa::in_order(Isa::add_int(dot[t][h], wide));
        } else {
          const I product = Isa::multiply_pairs(codes[h], bytes);
          pairs[t][h] =
              i % kDot.quads == 0 ? product : Isa::in_order(Isa::add_pairs(pairs[t][h], product));
          if constexpr ((i + 1) % kDot.quads == 0) {
            const I wide = Isa::widen_pairs(pairs[t][h]);
            dot[t][h] = i + 1 == kDot.quads ? wide : Isa::in_order(Isa::add_int(dot[t][h], wide));
          }
        }
      }
    }
  });
}

// acc[t][lane] += blocks [first, first + count) of `source` times x (whose pointers are at block
// `first`), for T rows and the H halves of a group. A source has
//   code<quad>(block, half), scale<segment>(block, half), min<segment>(block, half),
//   prefetch(block)
template <class Isa, Dot kDot, int T, int H, class Source>
static void tile(const Source source, std::uint32_t first, std::uint32_t count, const TileX x,
                 float* acc_memory, std::size_t acc_stride) {
  using F = typename Isa::F;
  using I = typename Isa::I;
  F acc[T][H];
  for (int t = 0; t < T; ++t) {
    for (int h = 0; h < H; ++h)
      acc[t][h] = Isa::load(acc_memory + t * acc_stride + h * Isa::kLanes);
  }
  const std::int8_t* q = x.q;
  for (std::uint32_t b = 0; b < count; ++b, q += 32) {
    source.prefetch(first + b);
    unroll<kDot.segments>([&]<int segment>() SLUICE_ALWAYS_INLINE {
      I dot[T][H];
      dot_products<Isa, kDot, T, H, segment>(
          [&]<int quad>(int h)
              SLUICE_ALWAYS_INLINE { return source.template code<quad>(first + b, h); },
          q, x.q_stride, dot);
      F scale[H];
      F min[H];
      for (int h = 0; h < H; ++h) {
        scale[h] = source.template scale<segment>(first + b, h);
        if constexpr (kDot.has_min) min[h] = source.template min<segment>(first + b, h);
      }
      const std::size_t extra = std::size_t{b} * kDot.segments + segment;
      for (int t = 0; t < T; ++t) {
        const F x_scale = Isa::set1(x.scale[t * x.scale_stride + b]);
        for (int h = 0; h < H; ++h) {
          if constexpr (kDot.has_offset)
            dot[t][h] =
                Isa::add_int(dot[t][h], Isa::set1_int(x.offset[t * x.extra_stride + extra]));
          acc[t][h] = Isa::fma(Isa::mul(scale[h], x_scale), Isa::from_int(dot[t][h]), acc[t][h]);
          if constexpr (kDot.has_min) {
            const F sum = Isa::set1(x.sum[t * x.extra_stride + extra]);
            acc[t][h] = Isa::fma(Isa::mul(min[h], x_scale), sum, acc[t][h]);
          }
        }
      }
    });
  }
  for (int t = 0; t < T; ++t) {
    for (int h = 0; h < H; ++h)
      Isa::store(acc_memory + t * acc_stride + h * Isa::kLanes, acc[t][h]);
  }
}

// Elements of float matrices.
struct F32Elements {
  static constexpr std::size_t kBytes = 4;
  template <class Isa>
  SLUICE_MEMBER typename Isa::F load(const std::uint8_t* p) {
    return Isa::load(reinterpret_cast<const float*>(p));
  }
};
struct F16Elements {
  static constexpr std::size_t kBytes = 2;
  template <class Isa>
  SLUICE_MEMBER typename Isa::F load(const std::uint8_t* p) {
    return Isa::load_half(p);
  }
};
struct Bf16Elements {
  static constexpr std::size_t kBytes = 2;
  template <class Isa>
  SLUICE_MEMBER typename Isa::F load(const std::uint8_t* p) {
    return Isa::load_bfloat(p);
  }
};

// acc[t][lane] += sum over c < cols of w[c][lane] * x[t][c], 16 lanes for each of the groups, which
// are `group_bytes` apart, and `w_stride` elements between the columns of one.
template <class Isa, class Elements, int T, int kGroups = 1>
static void float_tile(const std::uint8_t* w, std::size_t w_stride, std::uint32_t cols,
                       const float* x, std::size_t x_stride, float* acc_memory,
                       std::size_t acc_stride, std::size_t group_bytes = 0) {
  using F = typename Isa::F;
  constexpr int H = kGroups * Isa::kHalves;
  F acc[T][H];
  for (int t = 0; t < T; ++t) {
    for (int h = 0; h < H; ++h)
      acc[t][h] = Isa::load(acc_memory + t * acc_stride + h * Isa::kLanes);
  }
  for (std::uint32_t c = 0; c < cols; ++c, w += w_stride * Elements::kBytes) {
    F column[H];
    for (int h = 0; h < H; ++h) {
      const std::uint8_t* group = w + static_cast<std::size_t>(h / Isa::kHalves) * group_bytes;
      column[h] =
          Elements::template load<Isa>(group + h % Isa::kHalves * Isa::kLanes * Elements::kBytes);
    }
    for (int t = 0; t < T; ++t) {
      const F value = Isa::set1(x[t * x_stride + c]);
      for (int h = 0; h < H; ++h) acc[t][h] = Isa::fma(column[h], value, acc[t][h]);
    }
  }
  for (int t = 0; t < T; ++t) {
    for (int h = 0; h < H; ++h)
      Isa::store(acc_memory + t * acc_stride + h * Isa::kLanes, acc[t][h]);
  }
}

}  // namespace
}  // namespace sluice::cpu

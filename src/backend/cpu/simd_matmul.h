// Matrix products over packed weights, for any vector instruction set.
//
// Few rows of x (decoding): the packed bytes are streamed once and unpacked in registers. Many rows
// (prompts): a stretch of a group is unpacked into a buffer that stays in the first-level cache and
// is used for all rows. Both give each row the same sequence of operations.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/backend/cpu/kernels.h"
#include "src/backend/cpu/pack.h"
#include "src/backend/cpu/pack_layout.h"
#include "src/backend/cpu/simd_compat.h"
#include "src/backend/cpu/simd_tile.h"
#include "src/quant/layout.h"

namespace sluice::cpu {
namespace {

inline constexpr std::uint32_t kBlockRows = 64;      // rows of x that share an unpacked stretch
inline constexpr std::uint32_t kStretch = 16;        // blocks of 32 columns in a stretch
inline constexpr std::uint32_t kExtras = 4096;       // blocks of x prepared at a time
inline constexpr std::uint32_t kFloatStretch = 256;  // columns
inline constexpr std::size_t kPrefetchBytes = 2048;  // ahead of the stream

constexpr bool uses_codebook(BlockType type) {
  return type == BlockType::kIQ4_NL || type == BlockType::kIQ4_XS || type == BlockType::kMXFP4;
}

// What is added to a type's integers so that codes are unsigned; 0 for signed codes.
template <class Isa>
constexpr int code_offset(BlockType type) {
  if (type == BlockType::kMXFP4) return 12;
  if (uses_codebook(type) || type == BlockType::kQ8_0) return Isa::kHasByteDot ? 128 : 0;
  return pack_layout(type).offset;
}

template <class Isa>
constexpr Dot dot_of(BlockType type) {
  const PackLayout layout = pack_layout(type);
  const bool any_byte =
      type == BlockType::kQ8_0 || type == BlockType::kIQ4_NL || type == BlockType::kIQ4_XS;
  int quads = 8;                                                                // codes up to 15
  if (layout.high == HighPlane::kPairs) quads = 2;                              // up to 63
  if (layout.high == HighPlane::kBits || type == BlockType::kMXFP4) quads = 4;  // up to 31
  if (layout.block_scales == 2 && quads > 4) quads = 4;
  return Dot{any_byte && !Isa::kHasByteDot, quads, layout.block_scales, layout.has_min,
             code_offset<Isa>(type) != 0};
}

struct CodeTable {
  alignas(16) std::uint8_t value[16];
};
template <class Isa>
constexpr CodeTable code_table(BlockType type) {
  CodeTable table{};
  for (std::size_t i = 0; i < 16; ++i) {
    const int value = type == BlockType::kMXFP4 ? kMxfp4DoubledCodebook[i] : kIq4Codebook[i];
    table.value[i] = static_cast<std::uint8_t>(value + code_offset<Isa>(type));
  }
  return table;
}

// A packed group, taken apart in registers.
template <class Isa, BlockType kType>
struct PackedSource {
  using F = typename Isa::F;
  using I = typename Isa::I;
  static constexpr PackLayout kLayout = pack_layout(kType);
  static constexpr CodeTable kTable = code_table<Isa>(kType);
  static constexpr std::size_t kHalfBytes = 4 * Isa::kLanes;  // a half's part of a line
  static constexpr std::size_t kBlockBytes = kLayout.bundle_bytes() / kLayout.bundle_blocks;

  const std::uint8_t* group;

  SLUICE_INLINE const std::uint8_t* bundle_of(const std::uint8_t* g, std::uint32_t block) {
    return g + block / kLayout.bundle_blocks * kLayout.bundle_bytes();
  }
  SLUICE_INLINE std::size_t slot_of(std::uint32_t block) { return block % kLayout.bundle_blocks; }

  template <int quad>
  SLUICE_ALWAYS_INLINE I code(std::uint32_t block, int half) const {
    const std::uint8_t* codes = bundle_of(group, block) + kLayout.header_bytes +
                                slot_of(block) * kLayout.code_bytes() + half * kHalfBytes;
    constexpr int low_bits = kLayout.low == LowPlane::kNibbles ? 4 : 2;
    I v;
    if constexpr (kLayout.low == LowPlane::kBytes) {
      v = Isa::load_bytes(codes + 64 * quad);
      return code_offset<Isa>(kType) == 128 ? Isa::bit_xor(v, Isa::set1_byte(-128)) : v;
    } else if constexpr (kLayout.low == LowPlane::kNibbles) {
      v = Isa::load_bytes(codes + 64 * (quad % 4));
      v = Isa::bit_and(Isa::template shift16<quad / 4 * 4>(v), Isa::set1_byte(15));
    } else {
      v = Isa::load_bytes(codes + 64 * (quad % 2));
      v = Isa::bit_and(Isa::template shift16<quad / 2 * 2>(v), Isa::set1_byte(3));
    }
    if constexpr (uses_codebook(kType)) v = Isa::lookup(kTable.value, v);
    const std::uint8_t* plane = codes + kLayout.low_bytes();
    if constexpr (kLayout.high == HighPlane::kPairs) {
      const I high = Isa::load_bytes(plane + 64 * (quad % 2));
      v = Isa::bit_or(v, Isa::bit_and(Isa::template shift16<quad / 2 * 2 - low_bits>(high),
                                      Isa::set1_byte(3 << low_bits)));
    } else if constexpr (kLayout.high == HighPlane::kBits) {
      const I high = Isa::load_bytes(plane);
      v = Isa::bit_or(v, Isa::bit_and(Isa::template shift16<quad - low_bits>(high),
                                      Isa::set1_byte(1 << low_bits)));
    }
    return v;
  }

  template <int segment>
  SLUICE_ALWAYS_INLINE F scale(std::uint32_t block, int half) const {
    const std::uint8_t* header = bundle_of(group, block);
    const std::size_t lane = static_cast<std::size_t>(half * Isa::kLanes);
    const std::size_t entry = (slot_of(block) * kLayout.block_scales + segment) * kRowGroup + lane;
    if constexpr (kType == BlockType::kMXFP4) {
      return Isa::exponent_scale(Isa::load_u8(header + entry));
    } else if constexpr (kType == BlockType::kQ4_1 || kType == BlockType::kQ5_1) {
      return Isa::load_half(header + 2 * lane);
    } else if constexpr (kType == BlockType::kQ4_K || kType == BlockType::kQ5_K) {
      return Isa::mul(Isa::load_half(header + 2 * lane),
                      Isa::from_int(Isa::load_u8(header + 64 + entry)));
    } else if constexpr (kType == BlockType::kQ2_K) {
      const I low = Isa::bit_and(Isa::load_u8(header + 64 + entry), Isa::set1_int(15));
      return Isa::mul(Isa::load_half(header + 2 * lane), Isa::from_int(low));
    } else if constexpr (kLayout.bundle_blocks == 8) {
      return Isa::mul(Isa::load_half(header + 2 * lane),
                      Isa::from_int(Isa::load_i8(header + 64 + entry)));
    } else {
      return Isa::load_half(header + 2 * entry);
    }
  }

  template <int segment>
  SLUICE_ALWAYS_INLINE F min(std::uint32_t block, int half) const {
    const std::uint8_t* header = bundle_of(group, block);
    const std::size_t lane = static_cast<std::size_t>(half * Isa::kLanes);
    const std::size_t entry = (slot_of(block) * kLayout.block_scales + segment) * kRowGroup + lane;
    const F d = Isa::load_half(header + 32 + 2 * lane);
    if constexpr (kType == BlockType::kQ4_1 || kType == BlockType::kQ5_1) {
      return d;
    } else if constexpr (kType == BlockType::kQ2_K) {
      const I high = Isa::template shift_right32<4>(Isa::load_u8(header + 64 + entry));
      return Isa::negate(Isa::mul(d, Isa::from_int(high)));
    } else {
      return Isa::negate(Isa::mul(d, Isa::from_int(Isa::load_u8(header + 192 + entry))));
    }
  }

  // Where the block lies, its share of the header counted in.
  SLUICE_ALWAYS_INLINE const std::uint8_t* bytes_of(std::uint32_t block) const {
    return bundle_of(group, block) + slot_of(block) * kBlockBytes;
  }
  SLUICE_ALWAYS_INLINE void prefetch(std::uint32_t block) const {
    const std::uint8_t* ahead = bytes_of(block) + kPrefetchBytes;
    for (std::size_t i = 0; i < kBlockBytes; i += 64)
      _mm_prefetch(reinterpret_cast<const char*>(ahead + i), _MM_HINT_T0);
  }
};

// Groups side by side, one's halves behind the other's, for one or two rows of x: a thread that
// reads a few streams at a time gets more from memory than from one, and what belongs to x is
// loaded once for all. Their sums do not fit the registers of AVX2, which costs less than it gains
// while memory is what is waited for (from three rows on, more).
template <class Isa, BlockType kType, std::uint32_t kGroups>
struct SideBySide {
  PackedSource<Isa, kType> source[kGroups];

  template <int quad>
  SLUICE_ALWAYS_INLINE typename Isa::I code(std::uint32_t block, int half) const {
    return source[half / Isa::kHalves].template code<quad>(block, half % Isa::kHalves);
  }
  template <int segment>
  SLUICE_ALWAYS_INLINE typename Isa::F scale(std::uint32_t block, int half) const {
    return source[half / Isa::kHalves].template scale<segment>(block, half % Isa::kHalves);
  }
  template <int segment>
  SLUICE_ALWAYS_INLINE typename Isa::F min(std::uint32_t block, int half) const {
    return source[half / Isa::kHalves].template min<segment>(block, half % Isa::kHalves);
  }
  // The hardware sees the streams and fetches ahead by itself; doing it here makes them slower.
  SLUICE_ALWAYS_INLINE void prefetch(std::uint32_t) const {}
};

// A stretch of a group, unpacked to a byte a code.
template <int kSegments>
struct Stretch {
  alignas(64) std::uint8_t codes[kStretch][8][64];
  alignas(64) float scale[kStretch][kSegments][kRowGroup];
  alignas(64) float min[kStretch][kSegments][kRowGroup];
};

template <class Isa, int kSegments>
struct StretchSource {
  const Stretch<kSegments>* stretch;
  // The packed bytes of the stretch that comes next, fetched while this one is used: unpacking
  // alone would wait for memory, and memory for the products. Null: somebody else does.
  const std::uint8_t* next;
  std::size_t next_bytes;  // a block

  template <int quad>
  SLUICE_ALWAYS_INLINE typename Isa::I code(std::uint32_t block, int half) const {
    return Isa::load_bytes(&stretch->codes[block][quad][half * 4 * Isa::kLanes]);
  }
  template <int segment>
  SLUICE_ALWAYS_INLINE typename Isa::F scale(std::uint32_t block, int half) const {
    return Isa::load(&stretch->scale[block][segment][half * Isa::kLanes]);
  }
  template <int segment>
  SLUICE_ALWAYS_INLINE typename Isa::F min(std::uint32_t block, int half) const {
    return Isa::load(&stretch->min[block][segment][half * Isa::kLanes]);
  }
  SLUICE_ALWAYS_INLINE void prefetch(std::uint32_t block) const {
    if (next == nullptr) return;
    const std::uint8_t* from = next + block * next_bytes;
    for (std::size_t i = 0; i < next_bytes; i += 64)
      _mm_prefetch(reinterpret_cast<const char*>(from + i), _MM_HINT_T0);
  }
};

template <class Isa, BlockType kType, int kSegments>
static void unpack_stretch(PackedSource<Isa, kType> source, std::uint32_t first,
                           std::uint32_t count, Stretch<kSegments>& out) {
  for (std::uint32_t b = 0; b < count; ++b) {
    source.prefetch(first + b);
    for (int h = 0; h < Isa::kHalves; ++h) {
      unroll<8>([&]<int quad>() SLUICE_ALWAYS_INLINE {
        Isa::store_bytes(&out.codes[b][quad][h * 4 * Isa::kLanes],
                         source.template code<quad>(first + b, h));
      });
      unroll<kSegments>([&]<int segment>() SLUICE_ALWAYS_INLINE {
        Isa::store(&out.scale[b][segment][h * Isa::kLanes],
                   source.template scale<segment>(first + b, h));
        if constexpr (pack_layout(kType).has_min)
          Isa::store(&out.min[b][segment][h * Isa::kLanes],
                     source.template min<segment>(first + b, h));
      });
    }
  }
}

// Sums of x that the tiles need for `count` blocks from `first`, of rows [row, row + rows).
template <Dot kDot>
static void prepare_extras(const QuantizedRows& x, std::uint32_t row, std::uint32_t rows,
                           std::uint32_t first, std::uint32_t count, int offset,
                           std::int32_t* offsets, float* sums) {
  const std::size_t blocks = x.cols / kQuantGroup;
  for (std::uint32_t r = 0; r < rows; ++r) {
    const std::int32_t* sum = x.sum + 2 * ((row + r) * blocks + first);
    const std::size_t at = std::size_t{r} * count * kDot.segments;
    for (std::size_t i = 0; i < std::size_t{count} * kDot.segments; ++i) {
      const std::int32_t s = kDot.segments == 2 ? sum[i] : sum[2 * i] + sum[2 * i + 1];
      if constexpr (kDot.has_min) {
        sums[at + i] = static_cast<float>(s);
      } else {
        offsets[at + i] = -offset * s;
      }
    }
  }
}

// acc[rows][16] from or to out, whose lanes beyond the matrix are not touched.
static void load_acc(const float* out, std::size_t stride, std::uint32_t rows, std::uint32_t lanes,
                     bool start, float* acc) {
  for (std::uint32_t r = 0; r < rows; ++r) {
    for (std::uint32_t i = 0; i < kRowGroup; ++i)
      acc[r * kRowGroup + i] = start || i >= lanes ? 0.0f : out[r * stride + i];
  }
}
static void store_acc(const float* acc, std::uint32_t rows, std::uint32_t lanes, float* out,
                      std::size_t stride) {
  for (std::uint32_t r = 0; r < rows; ++r) {
    if (lanes == kRowGroup) {
      __builtin_memcpy(out + r * stride, acc + r * kRowGroup, kRowGroup * sizeof(float));
    } else {
      for (std::uint32_t i = 0; i < lanes; ++i) out[r * stride + i] = acc[r * kRowGroup + i];
    }
  }
}

SLUICE_INLINE std::uint32_t smaller(std::uint32_t a, std::uint32_t b) { return a < b ? a : b; }

// Cuts [begin, end) into kGroups ranges and calls visit(groups) with one of each: so each of the
// streams is read front to back. Returns the first of the groups that are left, fewer than kGroups.
template <std::uint32_t kGroups, class Visit>
SLUICE_INLINE std::uint32_t for_side_by_side(std::uint32_t begin, std::uint32_t end,
                                             const Visit& visit) {
  const std::uint32_t each = (end - begin) / kGroups;
  for (std::uint32_t g = 0; g < each; ++g) {
    std::uint32_t groups[kGroups];
    for (std::uint32_t i = 0; i < kGroups; ++i) groups[i] = begin + i * each + g;
    visit(groups);
  }
  return begin + each * kGroups;
}
// acc[rows][kGroups][16] from or to rows of results.
template <std::uint32_t kGroups>
static void load_side_by_side(const float* out, std::size_t stride, std::uint32_t rows,
                              std::uint32_t lanes, const std::uint32_t* groups, bool start,
                              float* acc) {
  for (std::uint32_t r = 0; r < rows; ++r) {
    for (std::uint32_t i = 0; i < kGroups; ++i) {
      const std::uint32_t at = groups[i] * kRowGroup;
      load_acc(out + r * stride + at, 0, 1, smaller(kRowGroup, lanes - at), start,
               acc + (r * kGroups + i) * kRowGroup);
    }
  }
}
template <std::uint32_t kGroups>
static void store_side_by_side(const float* acc, std::uint32_t rows, std::uint32_t lanes,
                               const std::uint32_t* groups, float* out, std::size_t stride) {
  for (std::uint32_t r = 0; r < rows; ++r) {
    for (std::uint32_t i = 0; i < kGroups; ++i) {
      const std::uint32_t at = groups[i] * kRowGroup;
      store_acc(acc + (r * kGroups + i) * kRowGroup, 1, smaller(kRowGroup, lanes - at),
                out + r * stride + at, 0);
    }
  }
}

// Rows of x up to which unpacking in registers beats the buffer; one for the types that are costly
// to unpack.
constexpr std::uint32_t few_rows(BlockType type) {
  const PackLayout layout = pack_layout(type);
  if (layout.low == LowPlane::kPairs) return 1;
  return layout.low == LowPlane::kNibbles && layout.high == HighPlane::kNone && !uses_codebook(type)
             ? 8
             : 4;
}

template <class Isa, BlockType kType>
static void matmul_type(const PackedMatrix& w, std::uint32_t group_begin, std::uint32_t group_end,
                        const QuantizedRows& x, float* out, std::size_t out_stride) {
  constexpr Dot kDot = dot_of<Isa>(kType);
  constexpr int kSegments = kDot.segments;
  const std::uint32_t blocks = w.cols / kQuantGroup;
  const std::size_t group_bytes = packed_group_bytes(kType, w.cols);
  const auto* data = reinterpret_cast<const std::uint8_t*>(w.data);
  const bool few = x.rows <= few_rows(kType);
  const std::uint32_t step_rows = smaller(x.rows, kBlockRows);
  if (step_rows == 0) return;
  const std::uint32_t step_blocks = kExtras / step_rows;
  std::int32_t offsets[kDot.has_offset ? kExtras * kSegments : 1];
  float sums[kDot.has_min ? kExtras * kSegments : 1];
  alignas(64) float acc[kBlockRows * kRowGroup];
  Stretch<kSegments> stretch;

  for (std::uint32_t first = 0; first < blocks; first += step_blocks) {
    const std::uint32_t count = smaller(step_blocks, blocks - first);
    for (std::uint32_t row = 0; row < x.rows; row += step_rows) {
      const std::uint32_t rows = smaller(step_rows, x.rows - row);
      if constexpr (kDot.has_offset || kDot.has_min)
        prepare_extras<kDot>(x, row, rows, first, count, code_offset<Isa>(kType), offsets, sums);
      const std::size_t x_at = std::size_t{row} * blocks + first;
      // The tile's view of x from row r and block b of this part on.
      const auto view = [&](std::uint32_t r, std::uint32_t b) SLUICE_ALWAYS_INLINE {
        const std::size_t at = x_at + std::size_t{r} * blocks + b;
        const std::size_t extra = (std::size_t{r} * count + b) * kSegments;
        return TileX{x.q + at * kQuantGroup,
                     x.cols,
                     x.scale + at,
                     blocks,
                     kDot.has_offset ? offsets + extra : offsets,
                     kDot.has_min ? sums + extra : sums,
                     std::size_t{count} * kSegments};
      };
      std::uint32_t group = group_begin;
      const auto side_by_side = [&]<int T, std::uint32_t kGroups>() SLUICE_ALWAYS_INLINE {
        group = for_side_by_side<kGroups>(group_begin, group_end, [&](const std::uint32_t* groups) {
          SideBySide<Isa, kType, kGroups> sources;
          for (std::uint32_t i = 0; i < kGroups; ++i)
            sources.source[i].group = data + groups[i] * group_bytes;
          load_side_by_side<kGroups>(out, out_stride, T, w.rows, groups, first == 0, acc);
          tile<Isa, kDot, T, kGroups * Isa::kHalves>(sources, first, count, view(0, 0), acc,
                                                     kGroups * kRowGroup);
          store_side_by_side<kGroups>(acc, T, w.rows, groups, out, out_stride);
        });
      };
      constexpr bool kBytes = pack_layout(kType).low == LowPlane::kBytes;
      if (x.rows == 1) side_by_side.template operator()<1, 4>();
      if constexpr (few_rows(kType) > 1) {
        if (x.rows == 2) side_by_side.template operator()<2, kBytes ? 4 : 2>();
      }
      for (; group < group_end; ++group) {
        const std::uint32_t lanes = smaller(kRowGroup, w.rows - group * kRowGroup);
        float* out_group = out + row * out_stride + group * kRowGroup;
        load_acc(out_group, out_stride, rows, lanes, first == 0, acc);
        const PackedSource<Isa, kType> source{data + group * group_bytes};
        if (few) {
          // A second tile finds the bytes of the first in the cache; meanwhile the next step's
          // come.
          const std::uint32_t step = rows <= 4 ? count : kStretch;
          for (std::uint32_t b = 0; b < count; b += step) {
            const std::uint32_t n = smaller(step, count - b);
            const auto run = [&]<int T>(std::uint32_t r) SLUICE_ALWAYS_INLINE {
              tile<Isa, kDot, T, Isa::kHalves>(source, first + b, n, view(r, b),
                                               acc + r * kRowGroup, kRowGroup);
            };
            if constexpr (few_rows(kType) == 1) {
              run.template operator()<1>(0);
            } else {
              in_tiles(rows, run);
            }
          }
        } else {
          for (std::uint32_t b = 0; b < count; b += kStretch) {
            const std::uint32_t n = smaller(kStretch, count - b);
            unpack_stretch<Isa, kType>(source, first + b, n, stretch);
            const std::uint8_t* next = b + n < count ? source.bytes_of(first + b + n)
                                                     : source.bytes_of(first) + group_bytes;
            in_tiles(rows, [&]<int T>(std::uint32_t r) SLUICE_ALWAYS_INLINE {
              const StretchSource<Isa, kSegments> unpacked{&stretch, r == 0 ? next : nullptr,
                                                           source.kBlockBytes};
              tile<Isa, kDot, T, Isa::kHalves>(unpacked, 0, n, view(r, b), acc + r * kRowGroup,
                                               kRowGroup);
            });
          }
        }
        store_acc(acc, rows, lanes, out_group, out_stride);
      }
    }
  }
}

template <class Isa>
static void matmul(const PackedMatrix& w, std::uint32_t group_begin, std::uint32_t group_end,
                   const QuantizedRows& x, float* out, std::size_t out_stride) {
  const auto run = [&]<BlockType kType>() {
    matmul_type<Isa, kType>(w, group_begin, group_end, x, out, out_stride);
  };
  switch (w.type) {
    case BlockType::kQ4_0:
      run.template operator()<BlockType::kQ4_0>();
      break;
    case BlockType::kQ4_1:
      run.template operator()<BlockType::kQ4_1>();
      break;
    case BlockType::kQ5_0:
      run.template operator()<BlockType::kQ5_0>();
      break;
    case BlockType::kQ5_1:
      run.template operator()<BlockType::kQ5_1>();
      break;
    case BlockType::kQ8_0:
      run.template operator()<BlockType::kQ8_0>();
      break;
    case BlockType::kQ2_K:
      run.template operator()<BlockType::kQ2_K>();
      break;
    case BlockType::kQ3_K:
      run.template operator()<BlockType::kQ3_K>();
      break;
    case BlockType::kQ4_K:
      run.template operator()<BlockType::kQ4_K>();
      break;
    case BlockType::kQ5_K:
      run.template operator()<BlockType::kQ5_K>();
      break;
    case BlockType::kQ6_K:
      run.template operator()<BlockType::kQ6_K>();
      break;
    case BlockType::kIQ4_NL:
      run.template operator()<BlockType::kIQ4_NL>();
      break;
    case BlockType::kIQ4_XS:
      run.template operator()<BlockType::kIQ4_XS>();
      break;
    case BlockType::kMXFP4:
      run.template operator()<BlockType::kMXFP4>();
      break;
    case BlockType::kF32:
    case BlockType::kF16:
    case BlockType::kBF16:
      break;  // matmul_float's
  }
}

template <class Isa, class Elements>
static void matmul_float_type(const PackedMatrix& w, std::uint32_t group_begin,
                              std::uint32_t group_end, const float* x, std::size_t x_stride,
                              std::uint32_t rows, float* out, std::size_t out_stride) {
  const std::size_t group_bytes = packed_group_bytes(w.type, w.cols);
  const auto* data = reinterpret_cast<const std::uint8_t*>(w.data);
  alignas(64) float acc[kBlockRows * kRowGroup];
  for (std::uint32_t row = 0; row < rows; row += kBlockRows) {
    const std::uint32_t n = smaller(kBlockRows, rows - row);
    const std::uint32_t step = n <= 4 ? w.cols : kFloatStretch;
    std::uint32_t group = group_begin;
    if (rows == 1) {
      group = for_side_by_side<4>(group_begin, group_end, [&](const std::uint32_t* groups) {
        load_side_by_side<4>(out, 0, 1, w.rows, groups, true, acc);
        float_tile<Isa, Elements, 1, 4>(data + groups[0] * group_bytes, kRowGroup, w.cols, x,
                                        x_stride, acc, 0, (groups[1] - groups[0]) * group_bytes);
        store_side_by_side<4>(acc, 1, w.rows, groups, out, 0);
      });
    }
    for (; group < group_end; ++group) {
      const std::uint32_t lanes = smaller(kRowGroup, w.rows - group * kRowGroup);
      float* out_group = out + row * out_stride + group * kRowGroup;
      load_acc(out_group, out_stride, n, lanes, true, acc);
      const std::uint8_t* columns = data + group * group_bytes;
      for (std::uint32_t c = 0; c < w.cols; c += step) {
        in_tiles(n, [&]<int T>(std::uint32_t r) SLUICE_ALWAYS_INLINE {
          float_tile<Isa, Elements, T>(columns + std::size_t{c} * kRowGroup * Elements::kBytes,
                                       kRowGroup, smaller(step, w.cols - c),
                                       x + (row + r) * x_stride + c, x_stride, acc + r * kRowGroup,
                                       kRowGroup);
        });
      }
      store_acc(acc, n, lanes, out_group, out_stride);
    }
  }
}

template <class Isa>
static void matmul_float(const PackedMatrix& w, std::uint32_t group_begin, std::uint32_t group_end,
                         const float* x, std::size_t x_stride, std::uint32_t rows, float* out,
                         std::size_t out_stride) {
  const auto run = [&]<class Elements>() {
    matmul_float_type<Isa, Elements>(w, group_begin, group_end, x, x_stride, rows, out, out_stride);
  };
  if (w.type == BlockType::kF32) run.template operator()<F32Elements>();
  if (w.type == BlockType::kF16) run.template operator()<F16Elements>();
  if (w.type == BlockType::kBF16) run.template operator()<Bf16Elements>();
}

}  // namespace
}  // namespace sluice::cpu

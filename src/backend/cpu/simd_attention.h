// Attention over one piece of the context, for any vector instruction set. Queries (rows times
// heads) go in tiles; a tile makes all its scores of the piece first (keys lie like packed weight
// rows, so that is a matrix product), then the softmax, then the sum of values.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/backend/cpu/kernels.h"
#include "src/backend/cpu/kv_layout.h"
#include "src/backend/cpu/math.h"
#include "src/backend/cpu/simd_compat.h"
#include "src/backend/cpu/simd_int4.h"
#include "src/backend/cpu/simd_matmul.h"
#include "src/backend/cpu/simd_tile.h"
#include "src/backend/cpu/simd_vectors.h"

namespace sluice::cpu {
namespace {

inline constexpr std::uint32_t kQueryTile = 8;

// Some query heads that see a part of the piece.
struct QueryTile {
  std::uint32_t count;
  std::uint32_t begin[kQueryTile];  // visible tokens, as offsets into the piece
  std::uint32_t end[kQueryTile];
  std::size_t index[kQueryTile];  // row * heads + head
  std::size_t output[kQueryTile];
  std::uint32_t first;  // smallest begin
  std::uint32_t last;   // largest end
  alignas(64) float score[kQueryTile][kKvPiece];
  float old_factor[kQueryTile];
  float new_factor[kQueryTile];
  // The queries themselves: codes with a scale a group for int8 keys, otherwise floats; for int4
  // keys both, codes for one block at a time.
  alignas(64) std::int8_t q[kQueryTile * kMaxHeadDim];
  float scale[kQueryTile * kMaxHeadDim / 32];
  std::int32_t offset[kQueryTile * kMaxHeadDim / 32];
  float x[kQueryTile * kMaxHeadDim];
};

// Fetches bytes that are needed soon: the blocks of the cache lie apart, and the processor does not
// guess where the next one is.
SLUICE_INLINE void prefetch_bytes(const std::uint8_t* p, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; i += 64)
    _mm_prefetch(reinterpret_cast<const char*>(p + i), _MM_HINT_T0);
}

// 16 int8 keys: groups of 32 dimensions are the blocks, tokens the lanes.
template <class Isa>
struct KeySource {
  const std::uint8_t* codes;
  const std::uint8_t* scales;
  const std::uint8_t* next;  // codes of the 16 keys after these; null: there are none

  template <int quad>
  SLUICE_ALWAYS_INLINE typename Isa::I code(std::uint32_t block, int half) const {
    const auto v =
        Isa::load_bytes(codes + std::size_t{512} * block + 64 * quad + half * 4 * Isa::kLanes);
    return Isa::kHasByteDot ? Isa::bit_xor(v, Isa::set1_byte(-128)) : v;
  }
  template <int segment>
  SLUICE_ALWAYS_INLINE typename Isa::F scale(std::uint32_t block, int half) const {
    return Isa::load_half(scales + std::size_t{32} * block + half * 2 * Isa::kLanes);
  }
  SLUICE_ALWAYS_INLINE void prefetch(std::uint32_t block) const {
    if (next != nullptr) prefetch_bytes(next + std::size_t{512} * block, 512);
  }
};

template <class Isa>
static void int8_scores(const AttentionTask& task, QueryTile& tile_data, std::uint32_t groups) {
  constexpr Dot kDot{!Isa::kHasByteDot, 1, 1, false, Isa::kHasByteDot};
  const auto codes_of = [&](std::uint32_t t) {
    return reinterpret_cast<const std::uint8_t*>(task.blocks[t / kKvBlock]) +
           key_code_offset(groups, t % kKvBlock, 0);
  };
  for (std::uint32_t t = tile_data.first / 16 * 16; t < tile_data.last; t += 16) {
    const auto* block = reinterpret_cast<const std::uint8_t*>(task.blocks[t / kKvBlock]);
    const std::uint8_t* next = t + 16 < tile_data.last ? codes_of(t + 16) : nullptr;
    KeySource<Isa> source{codes_of(t), block + key_scale_offset(groups, t % kKvBlock, 0), next};
    in_tiles(tile_data.count, [&]<int T>(std::uint32_t i) SLUICE_ALWAYS_INLINE {
      const TileX x{tile_data.q + std::size_t{i} * groups * 32,
                    std::size_t{groups} * 32,
                    tile_data.scale + std::size_t{i} * groups,
                    groups,
                    tile_data.offset + std::size_t{i} * groups,
                    nullptr,
                    groups};
      tile<Isa, kDot, T, Isa::kHalves>(source, 0, groups, x, &tile_data.score[i][t], kKvPiece);
      source.next = nullptr;  // on its way
    });
  }
}

// Scores of tokens [begin, end) of the piece.
template <class Isa, class Elements>
static void float_scores(const AttentionTask& task, QueryTile& tile_data, std::uint32_t begin,
                         std::uint32_t end) {
  const std::uint32_t dim = task.layout.head_dim;
  for (std::uint32_t t = begin / 16 * 16; t < end; t += 16) {
    const auto* block = reinterpret_cast<const std::uint8_t*>(task.blocks[t / kKvBlock]);
    in_tiles(tile_data.count, [&]<int T>(std::uint32_t i) SLUICE_ALWAYS_INLINE {
      float_tile<Isa, Elements, T>(block + t % kKvBlock * Elements::kBytes, kKvBlock, dim,
                                   tile_data.x + std::size_t{i} * dim, dim, &tile_data.score[i][t],
                                   kKvPiece);
    });
  }
}

// 16 int4 keys, whose scales are in the query already.
template <class Isa>
struct Int4KeySource {
  const std::uint8_t* codes;
  const std::uint8_t* next;  // codes of the 16 keys after these; null: there are none

  template <int quad>
  SLUICE_ALWAYS_INLINE typename Isa::I code(std::uint32_t block, int half) const {
    const auto both = Isa::load_bytes(codes + std::size_t{256} * block + 64 * (quad % 4) +
                                      half * 4 * Isa::kLanes);
    return Isa::bit_and(quad < 4 ? both : Isa::template shift16<4>(both), Isa::set1_byte(15));
  }
  template <int segment>
  SLUICE_ALWAYS_INLINE typename Isa::F scale(std::uint32_t, int) const {
    return Isa::set1(1.0f);
  }
  SLUICE_ALWAYS_INLINE void prefetch(std::uint32_t block) const {
    if (next != nullptr) prefetch_bytes(next + std::size_t{256} * block, 256);
  }
};

template <class Isa>
static void int4_scores(const AttentionTask& task, QueryTile& tile_data, std::uint32_t groups) {
  constexpr Dot kDot{false, 8, 1, false, true};
  const std::uint32_t dim = task.layout.head_dim;
  for (std::uint32_t b = tile_data.first / kKvBlock; b * kKvBlock < tile_data.last; ++b) {
    const std::uint32_t start = b * kKvBlock;
    const std::uint32_t begin = tile_data.first > start ? tile_data.first : start;
    const std::uint32_t end = smaller(tile_data.last, start + kKvBlock);
    if (b == task.f16_block) {
      float_scores<Isa, F16Elements>(task, tile_data, begin, end);
      continue;
    }
    const auto* block = reinterpret_cast<const std::uint8_t*>(task.blocks[b]);
    for (std::uint32_t i = 0; i < tile_data.count; ++i) {
      const std::size_t at = std::size_t{i} * groups;
      const auto base = Isa::set1(prepare_int4_query(tile_data.x + std::size_t{i} * dim, dim, block,
                                                     tile_data.q + 32 * at, tile_data.scale + at,
                                                     tile_data.offset + at));
      for (std::uint32_t t = 0; t < kKvBlock; t += Isa::kLanes)
        Isa::store(&tile_data.score[i][start + t], base);
    }
    const bool last = start + kKvBlock >= tile_data.last;
    const auto* following =
        last ? nullptr : reinterpret_cast<const std::uint8_t*>(task.blocks[b + 1]);
    for (std::uint32_t t = begin / 16 * 16; t < end; t += 16) {
      const std::uint8_t* codes = block + int4_key_offset(groups, t - start, 0);
      const bool second = t - start == 16;
      Int4KeySource<Isa> source{codes, second ? following : codes + std::size_t{256} * groups};
      if (second && following != nullptr)
        prefetch_bytes(following + int4_key_scale_offset(groups, 0), std::size_t{128} * groups);
      in_tiles(tile_data.count, [&]<int T>(std::uint32_t i) SLUICE_ALWAYS_INLINE {
        const TileX x{tile_data.q + std::size_t{i} * groups * 32,
                      std::size_t{groups} * 32,
                      tile_data.scale + std::size_t{i} * groups,
                      groups,
                      tile_data.offset + std::size_t{i} * groups,
                      nullptr,
                      groups};
        tile<Isa, kDot, T, Isa::kHalves>(source, 0, groups, x, &tile_data.score[i][t], kKvPiece);
        source.next = nullptr;  // on its way
      });
    }
  }
}

// Scores of query i become weights exp(score - maximum), zero for what it does not see; the running
// maximum and sum take the piece in.
template <class Isa>
static void softmax_piece(const AttentionTask& task, QueryTile& tile_data, std::uint32_t i) {
  using F = typename Isa::F;
  const int begin = static_cast<int>(tile_data.begin[i]);
  const int end = static_cast<int>(tile_data.end[i]);
  float* score = tile_data.score[i];
  const float* coeff = task.coeff + tile_data.index[i] * task.outliers * 2;
  const bool capped = task.softcap > 0.0f;
  const F cap = Isa::set1(task.softcap);
  const F inverse_cap = Isa::set1(capped ? 1.0f / task.softcap : 0.0f);
  const F lowest = Isa::set1(-__builtin_inff());
  F max = lowest;
  const int first = begin / 16 * 16;
  for (int t = first; t < end; t += Isa::kLanes) {
    const auto visible = Isa::lanes_in(t, begin, end);
    F s = Isa::load(score + t);
    for (std::uint32_t o = 0; o < task.outliers; ++o) {
      const float* table = task.table + 2 * o * task.table_stride + task.piece_start + t;
      s = Isa::fma(Isa::set1(coeff[2 * o]), Isa::load_masked(table, visible), s);
      s = Isa::fma(Isa::set1(coeff[2 * o + 1]),
                   Isa::load_masked(table + task.table_stride, visible), s);
    }
    s = Isa::mul(s, Isa::set1(task.scale));
    if (capped) s = Isa::mul(cap, vector_tanh<Isa>(Isa::mul(s, inverse_cap)));
    s = Isa::select(visible, s, lowest);
    Isa::store(score + t, s);
    max = Isa::max(s, max);
  }
  float lanes[16];
  Isa::store(lanes, max);
  float piece_max = lanes[0];
  for (int j = 1; j < Isa::kLanes; ++j) piece_max = lanes[j] > piece_max ? lanes[j] : piece_max;
  piece_max += 0.0f;  // one zero

  F partial[Isa::kHalves];
  for (int h = 0; h < Isa::kHalves; ++h) partial[h] = Isa::zero();
  for (int t = first; t < end; t += 16) {
    for (int h = 0; h < Isa::kHalves; ++h) {
      const int at = t + h * Isa::kLanes;
      F p = vector_exp<Isa>(Isa::sub(Isa::load(score + at), Isa::set1(piece_max)));
      p = Isa::select(Isa::lanes_in(at, begin, end), p, Isa::zero());
      Isa::store(score + at, p);
      partial[h] = Isa::add(partial[h], p);
    }
  }
  for (int h = 0; h < Isa::kHalves; ++h) Isa::store(lanes + h * Isa::kLanes, partial[h]);

  float& maximum = task.maximum[tile_data.index[i]];
  float& sum = task.sum[tile_data.index[i]];
  const float new_max = maximum > piece_max ? maximum : piece_max;
  tile_data.old_factor[i] = scalar_exp(maximum - new_max);
  tile_data.new_factor[i] = scalar_exp(piece_max - new_max);
  sum = __builtin_fmaf(sum_partials(lanes), tile_data.new_factor[i], sum * tile_data.old_factor[i]);
  maximum = new_max;
}

// Values of a group of 32 dimensions of one token.
struct Int8Values {
  static constexpr std::size_t kBytes = 1;
  template <class Isa>
  SLUICE_MEMBER typename Isa::F load(const std::uint8_t* p) {
    return Isa::from_int(Isa::load_i8(p));
  }
};

// acc[t][v] += sum over `count` tokens of weight[t][token] * value[token][v], for T queries and V
// vectors of dimensions. Strides between queries in floats, between tokens in bytes.
template <class Isa, class Values, int T, int V>
static void value_tile(const std::uint8_t* value, std::size_t token_bytes, const float* weight,
                       std::size_t weight_stride, std::uint32_t count, float* acc_memory,
                       std::size_t acc_stride) {
  using F = typename Isa::F;
  F acc[T][V];
  for (int t = 0; t < T; ++t) {
    for (int v = 0; v < V; ++v)
      acc[t][v] = Isa::load(acc_memory + t * acc_stride + v * Isa::kLanes);
  }
  for (std::uint32_t token = 0; token < count; ++token, value += token_bytes) {
    F vectors[V];
    for (int v = 0; v < V; ++v)
      vectors[v] = Values::template load<Isa>(value + v * Isa::kLanes * Values::kBytes);
    for (int t = 0; t < T; ++t) {
      const F w = Isa::set1(weight[t * weight_stride + token]);
      for (int v = 0; v < V; ++v) acc[t][v] = Isa::fma(w, vectors[v], acc[t][v]);
    }
  }
  for (int t = 0; t < T; ++t) {
    for (int v = 0; v < V; ++v)
      Isa::store(acc_memory + t * acc_stride + v * Isa::kLanes, acc[t][v]);
  }
}

// A group of 32 dimensions of one block: adds its tokens for T queries, which see tokens
// [begin[t], end[t]) of it. What all of them see is loaded once; the rest (the diagonal of a
// prompt, the edge of a window) goes query by query.
template <class Isa, class Values, int T>
static void add_block_group(const std::uint8_t* value, std::size_t token_bytes, const float* weight,
                            std::size_t weight_stride, const std::uint32_t* begin,
                            const std::uint32_t* end, float* acc, std::size_t acc_stride) {
  constexpr int kVectors = 2;  // leaves registers for the sums of four queries
  constexpr int kDims = kVectors * Isa::kLanes;
  std::uint32_t low = begin[0];
  std::uint32_t high = end[0];
  for (int t = 1; t < T; ++t) {
    low = low > begin[t] ? low : begin[t];
    high = smaller(high, end[t]);
  }
  if (low >= high) low = high = kKvBlock;  // nothing in common
  const auto alone = [&](int t, std::uint32_t from, std::uint32_t to) {
    for (int d = 0; d < 32 && from < to; d += kDims)
      value_tile<Isa, Values, 1, kVectors>(value + d * Values::kBytes + from * token_bytes,
                                           token_bytes, weight + t * weight_stride + from, 0,
                                           to - from, acc + t * acc_stride + d, 0);
  };
  for (int t = 0; t < T; ++t) alone(t, begin[t], smaller(low, end[t]));
  for (int d = 0; d < 32 && low < high; d += kDims)
    value_tile<Isa, Values, T, kVectors>(value + d * Values::kBytes + low * token_bytes,
                                         token_bytes, weight + low, weight_stride, high - low,
                                         acc + d, acc_stride);
  for (int t = 0; t < T; ++t) alone(t, high > begin[t] ? high : begin[t], end[t]);
}

// What each query of the tile sees of a block, as offsets into it; end 0: nothing.
struct Visible {
  std::uint32_t begin[kQueryTile];
  std::uint32_t end[kQueryTile];
  Visible(const QueryTile& tile_data, std::uint32_t start) {
    for (std::uint32_t i = 0; i < tile_data.count; ++i) {
      const std::uint32_t from = tile_data.begin[i], to = tile_data.end[i];
      begin[i] = from > start ? smaller(from - start, kKvBlock) : 0;
      end[i] = to > start ? smaller(to - start, kKvBlock) : 0;
    }
  }
};

// The outputs take in the sums over the piece's values, acc [queries][padded dimensions].
template <class Isa>
static void merge_values(const AttentionTask& task, const QueryTile& tile_data, const float* acc) {
  const std::uint32_t dim = task.layout.head_dim;
  const std::uint32_t groups = (dim + 31) / 32;
  for (std::uint32_t i = 0; i < tile_data.count; ++i) {
    float* out = task.output + tile_data.output[i];
    const float* sum = acc + std::size_t{i} * groups * 32;
    const auto old_factor = Isa::set1(tile_data.old_factor[i]);
    const auto new_factor = Isa::set1(tile_data.new_factor[i]);
    for (std::uint32_t g = 0; g < groups; ++g) {
      const std::uint32_t dims = smaller(32, dim - 32 * g);
      float merged[32];
      for (std::uint32_t d = 0; d < dims; ++d) merged[d] = out[32 * g + d];
      for (std::uint32_t d = dims; d < 32; ++d) merged[d] = 0.0f;
      for (std::uint32_t d = 0; d < 32; d += Isa::kLanes)
        Isa::store(merged + d, Isa::fma(Isa::load(sum + 32 * g + d), new_factor,
                                        Isa::mul(Isa::load(merged + d), old_factor)));
      for (std::uint32_t d = 0; d < dims; ++d) out[32 * g + d] = merged[d];
    }
  }
}

// Adds the piece's values of all queries of the tile into the output, block by block, so that a
// block comes from memory once for all of them.
template <class Isa, class Values>
static void add_values(const AttentionTask& task, QueryTile& tile_data) {
  const std::uint32_t padded = (task.layout.head_dim + 31) / 32 * 32;
  const std::uint32_t groups = padded / 32;
  const std::size_t key_bytes = task.layout.key_bytes();
  const std::size_t token_bytes = std::size_t{padded} * Values::kBytes;
  constexpr bool kScaled = Values::kBytes == 1;
  alignas(64) float scaled[kScaled ? kQueryTile : 1][kKvBlock];
  alignas(64) float acc[kQueryTile * kMaxHeadDim];
  __builtin_memset(acc, 0, std::size_t{tile_data.count} * padded * sizeof(float));

  const std::uint32_t first_block = tile_data.first / kKvBlock;
  const std::uint32_t last_block = (tile_data.last - 1) / kKvBlock;
  for (std::uint32_t b = first_block; b <= last_block; ++b) {
    const auto* block = reinterpret_cast<const std::uint8_t*>(task.blocks[b]) + key_bytes;
    const std::uint32_t start = b * kKvBlock;
    const Visible visible(tile_data, start);
    const std::uint8_t* next = nullptr;
    if (b < last_block) {
      next = reinterpret_cast<const std::uint8_t*>(task.blocks[b + 1]) + key_bytes;
    }
    for (std::uint32_t g = 0; g < groups; ++g) {
      if (next != nullptr) {  // a share of it with each group
        const std::size_t share = std::size_t{32} * kKvBlock * Values::kBytes;
        prefetch_bytes(next + g * share, share);
        if constexpr (kScaled) prefetch_bytes(next + value_scale_offset(groups, 0, g), 64);
      }
      const float* weight = &tile_data.score[0][start];
      std::size_t weight_stride = kKvPiece;
      if constexpr (kScaled) {
        const std::uint8_t* scales = block + value_scale_offset(groups, 0, g);
        for (std::uint32_t t = 0; t < kKvBlock; t += Isa::kLanes) {
          const auto scale = Isa::load_half(scales + std::size_t{2} * t);
          for (std::uint32_t i = 0; i < tile_data.count; ++i)
            Isa::store(&scaled[i][t], Isa::mul(Isa::load(&tile_data.score[i][start + t]), scale));
        }
        weight = scaled[0];
        weight_stride = kKvBlock;
      }
      in_tiles(tile_data.count, [&]<int T>(std::uint32_t i) {
        add_block_group<Isa, Values, T>(block + std::size_t{32} * g * Values::kBytes, token_bytes,
                                        weight + i * weight_stride, weight_stride,
                                        visible.begin + i, visible.end + i,
                                        acc + std::size_t{i} * padded + 32 * g, padded);
      });
    }
  }
  merge_values<Isa>(task, tile_data, acc);
}

// The same for int4: blocks in 4 bits, the last one perhaps in halves.
template <class Isa>
static void add_int4_values(const AttentionTask& task, QueryTile& tile_data) {
  using F = typename Isa::F;
  constexpr int kVectors = static_cast<int>(kKvBlock) / Isa::kLanes;  // of tokens
  const KvLayout f16{KvType::kF16, task.layout.head_dim};
  const std::uint32_t padded = f16.padded_dim();
  const std::uint32_t groups = padded / 32;
  const std::size_t key_bytes = task.layout.key_bytes();
  alignas(64) float scaled[kQueryTile][kKvBlock];
  alignas(64) float acc[kQueryTile * kMaxHeadDim];
  alignas(64) float base[kQueryTile * kMaxHeadDim / 32][16];  // [queries][groups], middles
  alignas(64) std::uint8_t bytes[kKvBlock * 32];              // a group of dimensions, unpacked
  __builtin_memset(acc, 0, std::size_t{tile_data.count} * padded * sizeof(float));
  __builtin_memset(base, 0, std::size_t{tile_data.count} * groups * sizeof base[0]);

  const std::uint32_t last_block = (tile_data.last - 1) / kKvBlock;
  for (std::uint32_t b = tile_data.first / kKvBlock; b <= last_block; ++b) {
    const auto* block = reinterpret_cast<const std::uint8_t*>(task.blocks[b]);
    const std::uint32_t start = b * kKvBlock;
    const Visible visible(tile_data, start);
    if (b == task.f16_block) {
      for (std::uint32_t g = 0; g < groups; ++g) {
        in_tiles(tile_data.count, [&]<int T>(std::uint32_t i) {
          add_block_group<Isa, F16Elements, T>(block + f16.key_bytes() + std::size_t{64} * g,
                                               std::size_t{64} * groups, &tile_data.score[i][start],
                                               kKvPiece, visible.begin + i, visible.end + i,
                                               acc + std::size_t{i} * padded + 32 * g, padded);
        });
      }
      continue;
    }
    block += key_bytes;
    const std::uint8_t* next = nullptr;
    if (b < last_block) {
      next = reinterpret_cast<const std::uint8_t*>(task.blocks[b + 1]) + key_bytes;
    }
    for (std::uint32_t g = 0; g < groups; ++g) {
      if (next != nullptr) {  // a share of it with each group
        prefetch_bytes(next + std::size_t{512} * g, 512);
        prefetch_bytes(next + int4_value_scale_offset(groups, 0, g), 128);
      }
      F scale[kVectors], middle[kVectors];
      for (int v = 0; v < kVectors; ++v) {
        const auto t = static_cast<std::uint32_t>(v * Isa::kLanes);
        scale[v] = Isa::load_half(block + int4_value_scale_offset(groups, t, g));
        middle[v] = Isa::load_half(block + int4_value_middle_offset(groups, t, g));
      }
      for (std::uint32_t i = 0; i < tile_data.count; ++i) {
        const float* weights = &tile_data.score[i][start];
        float* partial = base[std::size_t{i} * groups + g];
        const int begin = static_cast<int>(visible.begin[i]);
        const int end = static_cast<int>(visible.end[i]);
        const bool whole = begin == 0 && end == static_cast<int>(kKvBlock);
        F sum[Isa::kHalves];
        for (int h = 0; h < Isa::kHalves; ++h) sum[h] = Isa::load(partial + h * Isa::kLanes);
        for (int v = 0; v < kVectors; ++v) {
          const F weight = Isa::load(weights + v * Isa::kLanes);
          Isa::store(&scaled[i][v * Isa::kLanes], Isa::mul(weight, scale[v]));
          F& own = sum[v % Isa::kHalves];
          const F more = Isa::fma(weight, middle[v], own);
          own = whole ? more : Isa::select(Isa::lanes_in(v * Isa::kLanes, begin, end), more, own);
        }
        for (int h = 0; h < Isa::kHalves; ++h) Isa::store(partial + h * Isa::kLanes, sum[h]);
      }
      unpack_int4_values(block + int4_value_offset(groups, 0, 32 * g), groups, bytes);
      in_tiles(tile_data.count, [&]<int T>(std::uint32_t i) {
        add_block_group<Isa, Int8Values, T>(bytes, 32, scaled[i], kKvBlock, visible.begin + i,
                                            visible.end + i, acc + std::size_t{i} * padded + 32 * g,
                                            padded);
      });
    }
  }
  for (std::size_t at = 0; at < std::size_t{tile_data.count} * groups; ++at) {
    const auto sum = Isa::set1(sum_partials(base[at]));
    for (std::size_t d = 32 * at; d < 32 * at + 32; d += Isa::kLanes)
      Isa::store(acc + d, Isa::add(Isa::load(acc + d), sum));
  }
  merge_values<Isa>(task, tile_data, acc);
}

template <class Isa>
static void attend_tile(const AttentionTask& task, QueryTile& tile_data) {
  const std::uint32_t dim = task.layout.head_dim;
  const std::uint32_t groups = (dim + 31) / 32;
  const auto* first_block =
      reinterpret_cast<const std::uint8_t*>(task.blocks[tile_data.first / kKvBlock]);
  for (std::uint32_t i = 0; i < tile_data.count; ++i) {
    const std::uint32_t from = tile_data.first / 16 * 16;
    __builtin_memset(&tile_data.score[i][from], 0, (kKvPiece - from) * sizeof(float));
  }
  switch (task.layout.type) {
    case KvType::kInt8:
      int8_scores<Isa>(task, tile_data, groups);
      break;
    case KvType::kInt4:
      int4_scores<Isa>(task, tile_data, groups);
      break;
    case KvType::kF16:
      float_scores<Isa, F16Elements>(task, tile_data, tile_data.first, tile_data.last);
      break;
    case KvType::kF32:
      float_scores<Isa, F32Elements>(task, tile_data, tile_data.first, tile_data.last);
      break;
  }
  prefetch_bytes(first_block + task.layout.key_bytes(), task.layout.value_bytes());
  for (std::uint32_t i = 0; i < tile_data.count; ++i) softmax_piece<Isa>(task, tile_data, i);
  switch (task.layout.type) {
    case KvType::kInt8:
      add_values<Isa, Int8Values>(task, tile_data);
      break;
    case KvType::kInt4:
      add_int4_values<Isa>(task, tile_data);
      break;
    case KvType::kF16:
      add_values<Isa, F16Elements>(task, tile_data);
      break;
    case KvType::kF32:
      add_values<Isa, F32Elements>(task, tile_data);
      break;
  }
  tile_data.count = 0;
}

// Takes a query into the tile.
static void add_query(const AttentionTask& task, const float* query, QueryTile& tile_data,
                      int offset_of_codes) {
  const std::uint32_t dim = task.layout.head_dim;
  const std::uint32_t i = tile_data.count;
  if (task.layout.type != KvType::kInt8) {
    __builtin_memcpy(tile_data.x + std::size_t{i} * dim, query, dim * sizeof(float));
    return;
  }
  const std::uint32_t groups = (dim + 31) / 32;
  for (std::uint32_t g = 0; g < groups; ++g) {
    __m256i codes;
    const std::size_t at = std::size_t{i} * groups + g;
    tile_data.scale[at] = quantize_group(query + 32 * g, smaller(32, dim - 32 * g), codes);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(tile_data.q + 32 * at), codes);
    std::int32_t sum = 0;
    for (int d = 0; d < 32; ++d) sum += tile_data.q[32 * at + d];
    tile_data.offset[at] = -offset_of_codes * sum;
  }
}

template <class Isa>
static void attention(const AttentionTask& task) {
  QueryTile tile_data;
  tile_data.count = 0;
  const std::uint32_t piece_last = task.piece_start + kKvPiece - 1;
  for (std::uint32_t r = 0; r < task.rows; ++r) {
    if (task.first[r] > piece_last || task.last[r] < task.piece_start) continue;
    const std::uint32_t begin =
        task.first[r] > task.piece_start ? task.first[r] - task.piece_start : 0;
    const std::uint32_t end = smaller(task.last[r], piece_last) - task.piece_start + 1;
    for (std::uint32_t h = 0; h < task.heads; ++h) {
      const std::uint32_t i = tile_data.count;
      const std::size_t head = std::size_t{h} * task.layout.head_dim;
      add_query(task, task.query + r * task.query_stride + head, tile_data,
                Isa::kHasByteDot ? 128 : 0);
      tile_data.begin[i] = begin;
      tile_data.end[i] = end;
      tile_data.index[i] = std::size_t{r} * task.heads + h;
      tile_data.output[i] = r * task.output_stride + head;
      tile_data.first = i == 0 || begin < tile_data.first ? begin : tile_data.first;
      tile_data.last = i == 0 || end > tile_data.last ? end : tile_data.last;
      if (++tile_data.count == kQueryTile) attend_tile<Isa>(task, tile_data);
    }
  }
  if (tile_data.count > 0) attend_tile<Isa>(task, tile_data);
}

}  // namespace
}  // namespace sluice::cpu

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
  // The queries themselves: codes with a scale a group for int8 keys, otherwise floats.
  alignas(64) std::int8_t q[kQueryTile * kMaxHeadDim];
  float scale[kQueryTile * kMaxHeadDim / 32];
  std::int32_t offset[kQueryTile * kMaxHeadDim / 32];
  float x[kQueryTile * kMaxHeadDim];
};

// 16 int8 keys: groups of 32 dimensions are the blocks, tokens the lanes.
template <class Isa>
struct KeySource {
  const std::uint8_t* codes;
  const std::uint8_t* scales;

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
  SLUICE_ALWAYS_INLINE void prefetch(std::uint32_t) const {}
};

template <class Isa>
static void int8_scores(const AttentionTask& task, QueryTile& tile_data, std::uint32_t groups) {
  constexpr Dot kDot{!Isa::kHasByteDot, 1, 1, false, Isa::kHasByteDot};
  for (std::uint32_t t = tile_data.first / 16 * 16; t < tile_data.last; t += 16) {
    const auto* block = reinterpret_cast<const std::uint8_t*>(task.blocks[t / kKvBlock]);
    const std::uint32_t slot = t % kKvBlock;
    const KeySource<Isa> source{block + key_code_offset(groups, slot, 0),
                                block + key_scale_offset(groups, slot, 0)};
    in_tiles(tile_data.count, [&]<int T>(std::uint32_t i) SLUICE_ALWAYS_INLINE {
      const TileX x{tile_data.q + std::size_t{i} * groups * 32,
                    std::size_t{groups} * 32,
                    tile_data.scale + std::size_t{i} * groups,
                    groups,
                    tile_data.offset + std::size_t{i} * groups,
                    nullptr,
                    groups};
      tile<Isa, kDot, T, Isa::kHalves>(source, 0, groups, x, &tile_data.score[i][t], kKvPiece);
    });
  }
}

template <class Isa, class Elements>
static void float_scores(const AttentionTask& task, QueryTile& tile_data) {
  const std::uint32_t dim = task.layout.head_dim;
  for (std::uint32_t t = tile_data.first / 16 * 16; t < tile_data.last; t += 16) {
    const auto* block = reinterpret_cast<const std::uint8_t*>(task.blocks[t / kKvBlock]);
    in_tiles(tile_data.count, [&]<int T>(std::uint32_t i) SLUICE_ALWAYS_INLINE {
      float_tile<Isa, Elements, T>(block + t % kKvBlock * Elements::kBytes, kKvBlock, dim,
                                   tile_data.x + std::size_t{i} * dim, dim, &tile_data.score[i][t],
                                   kKvPiece);
    });
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

// acc[t][0 .. 32) += sum over tokens [begin, end) of weight[t][token] * value[token][0 .. 32), for
// T queries; `values` is the offset of the group's first value in a block.
template <class Isa, class Values, int T>
static void value_tile(const std::byte* const* blocks, std::size_t values, std::size_t stride,
                       const float* weight, std::uint32_t begin, std::uint32_t end,
                       float (*acc_memory)[32]) {
  using F = typename Isa::F;
  constexpr int V = 32 / Isa::kLanes;
  F acc[T][V];
  for (int t = 0; t < T; ++t) {
    for (int v = 0; v < V; ++v) acc[t][v] = Isa::load(acc_memory[t] + v * Isa::kLanes);
  }
  for (std::uint32_t token = begin; token < end;) {
    const std::uint32_t stop = smaller(end, (token / kKvBlock + 1) * kKvBlock);
    const std::uint8_t* p = reinterpret_cast<const std::uint8_t*>(blocks[token / kKvBlock]) +
                            values + token % kKvBlock * stride;
    for (; token < stop; ++token, p += stride) {
      F w[T];
      for (int t = 0; t < T; ++t) w[t] = Isa::set1(weight[t * kKvPiece + token]);
      for (int v = 0; v < V; ++v) {
        const F value = Values::template load<Isa>(p + v * Isa::kLanes * Values::kBytes);
        for (int t = 0; t < T; ++t) acc[t][v] = Isa::fma(w[t], value, acc[t][v]);
      }
    }
  }
  for (int t = 0; t < T; ++t) {
    for (int v = 0; v < V; ++v) Isa::store(acc_memory[t] + v * Isa::kLanes, acc[t][v]);
  }
}

// Adds the piece's values of all queries of the tile into the output. Tokens that all queries of a
// pair see are loaded once for both; the rest (the diagonal of a prompt, the edge of a window) goes
// query by query.
template <class Isa, class Values>
static void add_values(const AttentionTask& task, QueryTile& tile_data) {
  constexpr std::uint32_t kPair = 2;
  const std::uint32_t dim = task.layout.head_dim;
  const std::uint32_t padded = (dim + 31) / 32 * 32;
  const std::uint32_t groups = padded / 32;
  const std::size_t key_bytes = task.layout.key_bytes();
  constexpr bool kScaled = Values::kBytes == 1;
  alignas(64) float scaled[kScaled ? kPair : 1][kKvPiece];
  for (std::uint32_t g = 0; g < groups; ++g) {
    const std::uint32_t dims = smaller(32, dim - 32 * g);
    for (std::uint32_t i = 0; i < tile_data.count; i += kPair) {
      const std::uint32_t n = smaller(kPair, tile_data.count - i);
      const float* weight = tile_data.score[i];
      if constexpr (kScaled) {
        for (std::uint32_t t = 0; t < n; ++t) {
          const std::uint32_t end = tile_data.end[i + t];
          for (std::uint32_t token = tile_data.begin[i + t] / 16 * 16; token < end;
               token += Isa::kLanes) {
            const auto* scales =
                reinterpret_cast<const std::uint8_t*>(task.blocks[token / kKvBlock]) + key_bytes +
                value_scale_offset(groups, token % kKvBlock, g);
            Isa::store(&scaled[t][token],
                       Isa::mul(Isa::load(&tile_data.score[i + t][token]), Isa::load_half(scales)));
          }
        }
        weight = scaled[0];
      }
      alignas(64) float acc[kPair][32] = {};
      const std::size_t values = key_bytes + std::size_t{32} * g * Values::kBytes;
      const std::size_t stride = std::size_t{padded} * Values::kBytes;
      std::uint32_t low = tile_data.begin[i];
      std::uint32_t high = tile_data.end[i];
      if (n == 2) {
        low = low > tile_data.begin[i + 1] ? low : tile_data.begin[i + 1];
        high = smaller(high, tile_data.end[i + 1]);
      }
      for (std::uint32_t t = 0; t < n; ++t)
        value_tile<Isa, Values, 1>(task.blocks, values, stride, weight + t * kKvPiece,
                                   tile_data.begin[i + t], smaller(low, tile_data.end[i + t]),
                                   acc + t);
      if (n == 2 && low < high)
        value_tile<Isa, Values, 2>(task.blocks, values, stride, weight, low, high, acc);
      for (std::uint32_t t = 0; t < n; ++t) {
        // From where the common part ended, or where this query's own tokens begin after it.
        const std::uint32_t from = n == 2 && low < high ? high : low;
        value_tile<Isa, Values, 1>(task.blocks, values, stride, weight + t * kKvPiece,
                                   from > tile_data.begin[i + t] ? from : tile_data.begin[i + t],
                                   tile_data.end[i + t], acc + t);
      }
      for (std::uint32_t t = 0; t < n; ++t) {
        float* out = task.output + tile_data.output[i + t] + 32 * g;
        const auto old_factor = Isa::set1(tile_data.old_factor[i + t]);
        const auto new_factor = Isa::set1(tile_data.new_factor[i + t]);
        float merged[32];
        for (std::uint32_t d = 0; d < dims; ++d) merged[d] = out[d];
        for (std::uint32_t d = dims; d < 32; ++d) merged[d] = 0.0f;
        for (std::uint32_t d = 0; d < 32; d += Isa::kLanes)
          Isa::store(merged + d, Isa::fma(Isa::load(acc[t] + d), new_factor,
                                          Isa::mul(Isa::load(merged + d), old_factor)));
        for (std::uint32_t d = 0; d < dims; ++d) out[d] = merged[d];
      }
    }
  }
}

template <class Isa>
static void attend_tile(const AttentionTask& task, QueryTile& tile_data) {
  const std::uint32_t dim = task.layout.head_dim;
  const std::uint32_t groups = (dim + 31) / 32;
  for (std::uint32_t i = 0; i < tile_data.count; ++i) {
    const std::uint32_t from = tile_data.first / 16 * 16;
    __builtin_memset(&tile_data.score[i][from], 0, (kKvPiece - from) * sizeof(float));
  }
  switch (task.layout.type) {
    case KvType::kInt8:
      int8_scores<Isa>(task, tile_data, groups);
      break;
    case KvType::kF16:
      float_scores<Isa, F16Elements>(task, tile_data);
      break;
    case KvType::kF32:
      float_scores<Isa, F32Elements>(task, tile_data);
      break;
  }
  for (std::uint32_t i = 0; i < tile_data.count; ++i) softmax_piece<Isa>(task, tile_data, i);
  switch (task.layout.type) {
    case KvType::kInt8:
      add_values<Isa, Int8Values>(task, tile_data);
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

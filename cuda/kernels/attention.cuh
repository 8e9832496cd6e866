// Attention over the int8 cache (cuda/kv_pages.h) by integer tensor cores, and the merge of its
// parts. A tile is up to 16 query heads (columns) that see one sequence through one KV head, see
// AttentionTile; tokens come in pieces of 256, which are 8 pages of 32.
//
// attend_chunk: a block of threads has a tile, a KV head and a chunk of pieces, in the order of
// partial_out; warp w has page w of each piece. Of 16 columns by 32 tokens lane (g, t) has, as a
// share of the fragments of mma,
//
//   share[half][j][i]   column g + 8 half, token 8 j + 2 t + i of the page
//
// Order of operations, which for a column depends on its position and on the window alone, not on
// the tile, the chunk or what else is in the pass:
//
//   score     raw = fma(q_scale * k_scale, float(dot), raw) over groups of 32 dimensions, dot exact
//             in int32; outliers by fma, cosine then sine, pair by pair; times args.scale; softcap
//   maximum   over the tokens of the piece that the column sees
//   p         exp_of(score - maximum); 0 for tokens that the column does not see
//   sum       a page's: a lane adds its eight, j before i, then ((t0 + t1) + (t2 + t3)); pages are
//             added in sequence
//   values    page by page and in groups of 32 dimensions, w = p * v_scale, m = largest w:
//               code  = w * (32639 / m), rounded to nearest even: 0 to 32639 = 127 * 256 + 127
//               dot   = sum of code * v, exact in int32
//               out  += (m * (1 / 32639)) * float(dot)
//             A token that the column does not see has w = 0 whatever its scale is; an m below
//             1e-30 adds nothing; a w that is not finite makes the page's share NaN.
//   merge     with the pieces before, see merge_maximum. A piece of which the column sees nothing
//             leaves its state as it is.
//
// 16-bit codes are two signed bytes for the tensor cores, code = 256 * high + low with
// high = (code + 128) >> 8, at most 127.
//
// Records go straight from global memory into registers, those of keys one before they are used. A
// page's share of 32 dimensions goes to the other warps through shared memory:
//
//   maxima, sums   [16 columns][8 pages] float    of the piece
//   sight          [16 columns][2] int32          first and last position that the column sees
//   tile           8 words, see TileView
//   states         [16 columns][2] float          maximum and sum so far
//   factors        [16 columns][4] words: two floats, a flag, see factors_slot
//   q_scale        [16 columns][8] float
//   stage          [8 pages][16 columns][36] float, 32 used: element 8 t + 2 j + i is dimension
//                  8 j + 2 t + i, so that a lane writes 16 bytes; 36 spreads the banks
//   q              [16 columns][padded_dim + 16] int8; the 16 spread the banks
//   out            [groups][16 columns][32] float, the chunk's result so far, in the stage's order;
//                  absent where a chunk is one piece
//
// merge_chunks: four values of a row a lane.
#pragma once

#include "cuda/arguments.h"
#include "cuda/kernels/math.cuh"
#include "cuda/kernels/quantize.cuh"
#include "cuda/kv_pages.h"

namespace sluice::cuda {

inline constexpr std::int32_t kTileColumns = 16;
inline constexpr std::int32_t kNarrowColumns = 8;  // the most of a tile in attend_narrow_chunk
inline constexpr std::int32_t kPiecePages = kPieceTokens / kPageTokens;
inline constexpr std::int32_t kAttendThreads = 32 * kPiecePages;
// Blocks of threads that a multiprocessor holds at a time, for which the compiler saves registers.
inline constexpr std::int32_t kAttendBlocks = 3;
inline constexpr std::int32_t kMergeThreads = kQuantizeThreads;

// The grids.
SIMT_ANYWHERE std::int32_t attend_blocks(std::int32_t tiles, std::int32_t kv_heads,
                                         std::int32_t chunks) {
  return tiles * kv_heads * chunks;
}
SIMT_ANYWHERE std::int32_t merge_blocks(std::int32_t rows, std::int32_t heads,
                                        std::int32_t head_dim) {
  return rows * quantize_row_blocks(heads * head_dim);
}

// Offsets in shared memory of attend_chunk, see above.
struct AttendShared {
  static constexpr std::int32_t kMaxima = 0;
  static constexpr std::int32_t kSums = kMaxima + kTileColumns * kPiecePages * 4;
  static constexpr std::int32_t kSight = kSums + kTileColumns * kPiecePages * 4;
  static constexpr std::int32_t kTile = kSight + kTileColumns * 2 * 4;
  static constexpr std::int32_t kStates = kTile + 32;
  static constexpr std::int32_t kFactors = kStates + kTileColumns * 2 * 4;
  static constexpr std::int32_t kQueryScales = kFactors + kTileColumns * 4 * 4;
  static constexpr std::int32_t kStage = kQueryScales + kTileColumns * kMaxHeadDim / 32 * 4;
  static constexpr std::int32_t kStageColumn = 36 * 4;
  static constexpr std::int32_t kStagePage = kTileColumns * kStageColumn;
  static constexpr std::int32_t kQuery = kStage + kPiecePages * kStagePage;
};
SIMT_ANYWHERE std::int32_t query_stride(std::int32_t head_dim) {
  return 32 * page_groups(head_dim) + 16;
}
SIMT_ANYWHERE std::int32_t attend_out_offset(std::int32_t head_dim) {
  return AttendShared::kQuery + kTileColumns * query_stride(head_dim);
}
// Shared memory of a block of threads.
SIMT_ANYWHERE std::int32_t attend_shared_bytes(std::int32_t head_dim, std::int32_t chunk_pieces) {
  return attend_out_offset(head_dim) +
         (chunk_pieces > 1 ? page_groups(head_dim) * kTileColumns * 32 * 4 : 0);
}
static_assert(attend_shared_bytes(kMaxHeadDim, 2) <= 48 * 1024);

// -- Who sees what -------------------------------------------------------------------------------

// Positions that a row sees.
struct Sight {
  std::int32_t first;
  std::int32_t last;
};

SIMT_DEVICE Sight sight_of(const AttentionArgs& args, std::int32_t row) {
  const std::int32_t last = simt::load(args.position + row);
  const bool cut = args.window > 0 && last >= args.window;
  return {cut ? last - args.window + 1 : 0, last};
}

// The tile of this block of attend_chunk.
SIMT_DEVICE AttentionTile block_tile(const AttentionArgs& args) {
  const auto block = static_cast<std::int32_t>(simt::block_index());
  return simt::load(args.tiles + block / args.chunks / args.kv_heads);
}
// The row of the pass that a tile's column belongs to.
SIMT_DEVICE std::int32_t column_row(const AttentionArgs& args, const AttentionTile& tile,
                                    std::int32_t column) {
  return tile.first_row + (tile.column + column) / (args.heads / args.kv_heads);
}
// Row and head of a column in one number, row * heads + head.
SIMT_DEVICE std::int64_t column_query(const AttentionArgs& args, const AttentionTile& tile,
                                      std::int32_t kv_head, std::int32_t column) {
  const std::int32_t group = args.heads / args.kv_heads;
  return std::int64_t{column_row(args, tile, column)} * args.heads + kv_head * group +
         (tile.column + column) % group;
}
// The piece that chunk 0 of a tile begins with.
SIMT_DEVICE std::int32_t first_piece(const AttentionArgs& args, const AttentionTile& tile) {
  return sight_of(args, column_row(args, tile, 0)).first / kPieceTokens;
}

// What a block of threads keeps of its tile in shared memory.
struct TileView {
  Sight sight;  // of all columns together
  std::int32_t columns;
  std::int32_t table;
  std::int32_t kv_head;
  std::int32_t first_piece;  // of the chunk
  std::int32_t last_piece;
  float inverse_cap;  // 1 / softcap
};
SIMT_DEVICE simt::Shared<std::uint32_t> tile_slot() {
  return simt::cast<std::uint32_t>(simt::dynamic_shared() + AttendShared::kTile);
}
SIMT_DEVICE void store_tile(const TileView& tile) {
  const auto word = [](std::int32_t x) { return static_cast<std::uint32_t>(x); };
  simt::store_words(tile_slot(), {{word(tile.sight.first), word(tile.sight.last),
                                   word(tile.columns), word(tile.table)}});
  simt::store_words(tile_slot() + 4, {{word(tile.kv_head), word(tile.first_piece),
                                       word(tile.last_piece), simt::float_bits(tile.inverse_cap)}});
}
SIMT_DEVICE TileView load_tile() {
  const simt::Words low = simt::load_words(tile_slot());
  const simt::Words high = simt::load_words(tile_slot() + 4);
  const auto number = [](std::uint32_t x) { return static_cast<std::int32_t>(x); };
  return {{number(low.word[0]), number(low.word[1])},
          number(low.word[2]),
          number(low.word[3]),
          number(high.word[0]),
          number(high.word[1]),
          number(high.word[2]),
          simt::float_of_bits(high.word[3])};
}

// -- The state of a softmax ----------------------------------------------------------------------

// What outputs are multiplied by when two parts become one.
struct MergeFactors {
  float old_part;
  float new_part;
};

// Merges the maximum of a further part into that of a state; sums and outputs follow with the
// factors. The operations are the CPU's (generic_attention.cpp). A part with nothing but NaNs or
// infinities in it makes the factors NaN, and a sum that is NaN stays so.
SIMT_DEVICE MergeFactors merge_maximum(float& maximum, float part) {
  const float larger = maximum > part ? maximum : part;
  const MergeFactors factors = {exp_of(maximum - larger), exp_of(part - larger)};
  maximum = larger;
  return factors;
}
SIMT_DEVICE float merge_value(float old_value, float value, const MergeFactors& factors) {
  return simt::fma(value, factors.new_part, old_value * factors.old_part);
}

// -- Pages ---------------------------------------------------------------------------------------

// A lane's share of a matrix of columns by 32 tokens, see above. kHalves is 2; where a tile has at
// most eight columns 1 does, at half the work.
template <int kHalves>
struct Share {
  float x[kHalves][4][2];
};
// A bit for each place of a share: bit 2 j + i of each half.
template <int kHalves>
struct Visible {
  std::uint32_t bits[kHalves];
};
// x, or 0 where a place is not visible, without a branch.
template <int kHalves>
SIMT_DEVICE float if_visible(const Visible<kHalves>& visible, int half, int j, int i, float x) {
  const std::uint32_t mask = 0u - (visible.bits[half] >> (2 * j + i) & 1u);
  return simt::float_of_bits(simt::float_bits(x) & mask);
}

// What a lane needs of a record: words of both planes, and scales of tokens 8 j + 2 t and + 1.
struct RecordShare {
  simt::Words plane[2];
  std::uint32_t scales[4];
};

SIMT_DEVICE RecordShare load_record(simt::Global<const std::uint8_t> record) {
  const auto lane = static_cast<std::int32_t>(simt::lane());
  RecordShare share;
  SIMT_UNROLL
  for (int h = 0; h < 2; ++h) share.plane[h] = simt::load_words(record + (512 * h + 16 * lane));
  SIMT_UNROLL
  for (int j = 0; j < 4; ++j) {
    share.scales[j] =
        simt::load(simt::cast<const std::uint32_t>(record + (page_scale(8 * j) + 4 * (lane % 4))));
  }
  return share;
}
SIMT_DEVICE float record_scale(const RecordShare& record, int j, int i) {
  return simt::half_to_float(static_cast<std::uint16_t>(record.scales[j] >> (16 * i)));
}

// Sums of the tensor cores begin with the bits of 1.5 * 2^23, so that they end as the bits of
// 1.5 * 2^23 + dot, of which a subtraction makes a float: exact below 2^22 (products of a group
// stay below 2^20), and four times the rate of a conversion.
inline constexpr std::int32_t kDotZero = 0x4b400000;
SIMT_DEVICE float float_of_dot(std::int32_t dot) {
  return simt::float_of_bits(static_cast<std::uint32_t>(dot)) - kRoundMagic;
}

// A group's part of the raw scores.
template <int kHalves>
SIMT_DEVICE void add_scores(const RecordShare& keys, std::int32_t group, std::int32_t head_dim,
                            Share<kHalves>& raw) {
  const auto lane = static_cast<std::int32_t>(simt::lane());
  const simt::Shared<std::uint8_t> shared = simt::dynamic_shared();
  const simt::Words query =
      simt::load_matrices_x4(shared + (AttendShared::kQuery + lane % 16 * query_stride(head_dim) +
                                       32 * group + lane / 16 * 16));
  const simt::Shared<float> scales = simt::cast<float>(shared + AttendShared::kQueryScales);
  float q_scale[kHalves];
  SIMT_UNROLL
  for (int half = 0; half < kHalves; ++half) {
    q_scale[half] = simt::load(scales + ((lane / 4 + 8 * half) * (kMaxHeadDim / 32) + group));
  }
  SIMT_UNROLL
  for (int j = 0; j < 4; ++j) {
    const std::uint32_t b[2] = {keys.plane[0].word[j], keys.plane[1].word[j]};
    std::int32_t dot[4] = {kDotZero, kDotZero, kDotZero, kDotZero};
    simt::mma_s8(dot, query.word, b);
    SIMT_UNROLL
    for (int i = 0; i < 2; ++i) {
      const float k_scale = record_scale(keys, j, i);
      SIMT_UNROLL
      for (int half = 0; half < kHalves; ++half) {
        float& x = raw.x[half][j][i];
        x = simt::fma(q_scale[half] * k_scale, float_of_dot(dot[2 * half + i]), x);
      }
    }
  }
}

// Adds what large key biases have to do with the scores. `token` is the page's first; none past
// `last` is looked up.
template <int kHalves>
SIMT_DEVICE void add_outliers(const AttentionArgs& args, std::int32_t kv_head, std::int32_t token,
                              std::int32_t last, Share<kHalves>& raw) {
  const OutlierArgs& outliers = args.outliers;
  const AttentionTile tile = block_tile(args);
  const auto lane = static_cast<std::int32_t>(simt::lane());
  std::int64_t query[kHalves];
  SIMT_UNROLL
  for (int half = 0; half < kHalves; ++half) {
    const std::int32_t column = lane / 4 + 8 * half;
    query[half] = column < tile.columns ? column_query(args, tile, kv_head, column) : -1;
  }
  SIMT_UNROLL
  for (int j = 0; j < 4; ++j) {
    const std::int32_t at = token + 8 * j + lane % 4 * 2;
    SIMT_NO_UNROLL
    for (std::int32_t n = 0; n < outliers.most; ++n) {
      const std::int64_t pair = std::int64_t{kv_head} * outliers.most + n;
      if (simt::load(simt::cast<const std::int32_t>(outliers.pairs + pair)) < 0) break;
      const simt::Global<const float> table = outliers.table + (pair * 2 * outliers.positions + at);
      float cosine[2] = {};
      float sine[2] = {};
      SIMT_UNROLL
      for (int i = 0; i < 2; ++i) {
        if (at + i > last) continue;
        cosine[i] = simt::load(table + i);
        sine[i] = simt::load(table + (outliers.positions + i));
      }
      SIMT_UNROLL
      for (int half = 0; half < kHalves; ++half) {
        if (query[half] < 0) continue;
        const simt::Global<const float> coefficients =
            outliers.coefficients + (query[half] * outliers.most + n) * 2;
        SIMT_UNROLL
        for (int i = 0; i < 2; ++i) {
          float& x = raw.x[half][j][i];
          x = simt::fma(simt::load(coefficients), cosine[i], x);
          x = simt::fma(simt::load(coefficients + 1), sine[i], x);
        }
      }
    }
  }
}

// x = cap * tanh(x / cap). Registers cannot be indexed: so that there is one copy of the code, not
// one for each place, the places take turns in being the first.
template <int kHalves>
SIMT_DEVICE void cap_scores(float cap, float inverse, Share<kHalves>& scores) {
  SIMT_NO_UNROLL
  for (int turn = 0; turn < 8; ++turn) {
    SIMT_UNROLL
    for (int half = 0; half < kHalves; ++half) {
      float(&x)[4][2] = scores.x[half];
      const float capped = cap * tanh_of(x[0][0] * inverse);
      SIMT_UNROLL
      for (int place = 0; place < 7; ++place) {
        x[place / 2][place % 2] = x[(place + 1) / 2][(place + 1) % 2];
      }
      x[3][1] = capped;
    }
  }
}

// Raw scores become scores; returns which of them count. `token` is the page's first.
template <int kHalves>
SIMT_DEVICE Visible<kHalves> scale_scores(const AttentionArgs& args, std::int32_t token,
                                          Share<kHalves>& scores) {
  const auto lane = static_cast<std::int32_t>(simt::lane());
  const simt::Shared<std::int32_t> sight =
      simt::cast<std::int32_t>(simt::dynamic_shared() + AttendShared::kSight);
  Visible<kHalves> visible = {};
  token += lane % 4 * 2;
  SIMT_UNROLL
  for (int half = 0; half < kHalves; ++half) {
    const std::int32_t column = lane / 4 + 8 * half;
    const std::int32_t first = simt::load(sight + 2 * column);
    const std::int32_t last = simt::load(sight + (2 * column + 1));
    SIMT_UNROLL
    for (int j = 0; j < 4; ++j) {
      SIMT_UNROLL
      for (int i = 0; i < 2; ++i) {
        scores.x[half][j][i] *= args.scale;
        const std::int32_t at = token + 8 * j + i;
        if (at >= first && at <= last) visible.bits[half] |= 1u << (2 * j + i);
      }
    }
  }
  return visible;
}

// Where a page leaves the maximum and the sum of a column.
SIMT_DEVICE simt::Shared<float> page_slot(std::int32_t base, std::int32_t column,
                                          std::int32_t page) {
  return simt::cast<float>(simt::dynamic_shared() + base) + (column * kPiecePages + page);
}
// The maximum of a column over the piece.
SIMT_DEVICE float piece_maximum(std::int32_t column) {
  float max = simt::float_of_bits(0xff800000u);
  SIMT_UNROLL
  for (int i = 0; i < kPiecePages; i += 4) {
    const simt::Words words = simt::load_words(page_slot(AttendShared::kMaxima, column, i));
    SIMT_UNROLL
    for (int k = 0; k < 4; ++k) {
      const float x = simt::float_of_bits(words.word[k]);
      if (x > max) max = x;
    }
  }
  return max + 0.0f;  // one zero: the order of comparisons must not show
}
SIMT_DEVICE float piece_sum(std::int32_t column) {
  float sum = 0.0f;
  SIMT_UNROLL
  for (int i = 0; i < kPiecePages; i += 4) {
    const simt::Words words = simt::load_words(page_slot(AttendShared::kSums, column, i));
    SIMT_UNROLL
    for (int k = 0; k < 4; ++k) sum += simt::float_of_bits(words.word[k]);
  }
  return sum;
}

// Leaves the page's largest scores for the other warps.
template <int kHalves>
SIMT_DEVICE void write_maxima(const Share<kHalves>& scores, const Visible<kHalves>& visible) {
  const auto lane = static_cast<std::int32_t>(simt::lane());
  SIMT_UNROLL
  for (int half = 0; half < kHalves; ++half) {
    float max = simt::float_of_bits(0xff800000u);  // NaN is never larger
    SIMT_UNROLL
    for (int j = 0; j < 4; ++j) {
      SIMT_UNROLL
      for (int i = 0; i < 2; ++i) {
        const float x = scores.x[half][j][i];
        if ((visible.bits[half] >> (2 * j + i) & 1u) != 0 && x > max) max = x;
      }
    }
    SIMT_UNROLL
    for (std::uint32_t lanes = 1; lanes < 4; lanes *= 2) {
      const float other =
          simt::float_of_bits(simt::shuffle_xor(simt::kAllLanes, simt::float_bits(max), lanes));
      if (other > max) max = other;
    }
    if (lane % 4 == 0) {
      const auto page = static_cast<std::int32_t>(simt::warp());
      simt::store(page_slot(AttendShared::kMaxima, lane / 4 + 8 * half, page), max);
    }
  }
}

// Scores become exp(score - maximum); leaves the page's sums for the other warps.
template <int kHalves>
SIMT_DEVICE void exponentiate(const Visible<kHalves>& visible, Share<kHalves>& scores) {
  const auto lane = static_cast<std::int32_t>(simt::lane());
  SIMT_UNROLL
  for (int half = 0; half < kHalves; ++half) {
    const float max = piece_maximum(lane / 4 + 8 * half);
    float sum = 0.0f;
    SIMT_UNROLL
    for (int j = 0; j < 4; ++j) {
      SIMT_UNROLL
      for (int i = 0; i < 2; ++i) {
        float& x = scores.x[half][j][i];
        x = if_visible(visible, half, j, i, exp_of(x - max));
        sum += x;
      }
    }
    SIMT_UNROLL
    for (std::uint32_t lanes = 1; lanes < 4; lanes *= 2) {
      sum += simt::float_of_bits(simt::shuffle_xor(simt::kAllLanes, simt::float_bits(sum), lanes));
    }
    if (lane % 4 == 0) {
      const auto page = static_cast<std::int32_t>(simt::warp());
      simt::store(page_slot(AttendShared::kSums, lane / 4 + 8 * half, page), sum);
    }
  }
}

// How w of a column becomes codes, and dot products a share of the output.
struct CodeScale {
  float to_code;
  float of_dot;
};
// From the bits of the largest w; with no sign they order like their values, NaN and infinity last.
SIMT_DEVICE CodeScale code_scale(std::uint32_t max_bits) {
  const float max = simt::float_of_bits(max_bits);
  if (max_bits >= 0x7f800000u) return {0.0f, simt::float_of_bits(0x7fc00000u)};
  if (max < 1e-30f) return {0.0f, 0.0f};
  return {32639.0f / max, max * (1.0f / 32639.0f)};
}

// Codes of a page's weights, as fragments of 16 columns by 32 tokens.
struct WeightCodes {
  std::uint32_t high[4];
  std::uint32_t low[4];
  float of_dot[2];  // for each half of a share
};

template <int kHalves>
SIMT_DEVICE WeightCodes quantize_weights(const RecordShare& values, const Share<kHalves>& p,
                                         const Visible<kHalves>& visible) {
  WeightCodes codes = {};
  SIMT_UNROLL
  for (int half = 0; half < kHalves; ++half) {
    float w[4][2];
    std::uint32_t max_bits = 0;
    SIMT_UNROLL
    for (int j = 0; j < 4; ++j) {
      SIMT_UNROLL
      for (int i = 0; i < 2; ++i) {
        // By selection: the scale of a token that is not seen may be anything.
        w[j][i] = if_visible(visible, half, j, i, p.x[half][j][i] * record_scale(values, j, i));
        if (simt::float_bits(w[j][i]) > max_bits) max_bits = simt::float_bits(w[j][i]);
      }
    }
    SIMT_UNROLL
    for (std::uint32_t lanes = 1; lanes < 4; lanes *= 2) {
      const std::uint32_t other = simt::shuffle_xor(simt::kAllLanes, max_bits, lanes);
      if (other > max_bits) max_bits = other;
    }
    const CodeScale scale = code_scale(max_bits);
    codes.of_dot[half] = scale.of_dot;
    std::uint32_t pair[4];  // codes of two tokens, 16 bits each
    SIMT_UNROLL
    for (int j = 0; j < 4; ++j) {
      std::uint32_t code[2];
      SIMT_UNROLL
      for (int i = 0; i < 2; ++i) {
        code[i] = simt::float_bits(simt::fma(w[j][i], scale.to_code, kRoundMagic));
      }
      pair[j] = simt::byte_permute(code[0], code[1], 0x5410);
    }
    SIMT_UNROLL
    for (int k = 0; k < 2; ++k) {
      // Adding 128 to a code does not carry into its neighbour.
      codes.high[2 * k + half] =
          simt::byte_permute(pair[2 * k] + 0x00800080u, pair[2 * k + 1] + 0x00800080u, 0x7531);
      codes.low[2 * k + half] = simt::byte_permute(pair[2 * k], pair[2 * k + 1], 0x6420);
    }
  }
  return codes;
}

// Weights times values: a page's share of the output, 16 columns by the 32 dimensions of a record,
// goes to the stage.
template <int kHalves>
SIMT_DEVICE void stage_products(const RecordShare& values, const WeightCodes& codes) {
  const auto lane = static_cast<std::int32_t>(simt::lane());
  const auto page = static_cast<std::int32_t>(simt::warp());
  const simt::Shared<std::uint8_t> stage =
      simt::dynamic_shared() + (AttendShared::kStage + page * AttendShared::kStagePage +
                                lane / 4 * AttendShared::kStageColumn + lane % 4 * 32);
  SIMT_UNROLL
  for (int k = 0; k < 2; ++k) {
    simt::Words words[2];  // for each half of a share: dimensions of j = 2 k and 2 k + 1
    SIMT_UNROLL
    for (int j = 0; j < 2; ++j) {
      const std::uint32_t b[2] = {values.plane[0].word[2 * k + j], values.plane[1].word[2 * k + j]};
      std::int32_t high[4] = {kDotZero, kDotZero, kDotZero, kDotZero};
      std::int32_t low[4] = {kDotZero, kDotZero, kDotZero, kDotZero};
      simt::mma_s8(high, codes.high, b);
      simt::mma_s8(low, codes.low, b);
      SIMT_UNROLL
      for (int i = 0; i < 2 * kHalves; ++i) {
        // float(256 * high + low): the fused operation rounds once, as a conversion would.
        const float dot = simt::fma(256.0f, float_of_dot(high[i]), float_of_dot(low[i]));
        words[i / 2].word[2 * j + i % 2] = simt::float_bits(codes.of_dot[i / 2] * dot);
      }
    }
    SIMT_UNROLL
    for (int half = 0; half < kHalves; ++half) {
      simt::store_words(stage + (8 * half * AttendShared::kStageColumn + 16 * k), words[half]);
    }
  }
}

// -- Chunks --------------------------------------------------------------------------------------

// The maximum and the sum of a column so far; lane `column / 8` of warp `column % 8` looks after
// them.
SIMT_DEVICE simt::Shared<float> state_slot(std::int32_t column) {
  return simt::cast<float>(simt::dynamic_shared() + AttendShared::kStates) + 2 * column;
}

// The queries of a tile, to shared memory; columns past its last one are zeros and see nothing.
SIMT_DEVICE void stage_queries(const AttentionArgs& args, const AttentionTile& tile,
                               std::int32_t kv_head) {
  const auto thread = static_cast<std::int32_t>(simt::thread_index());
  const std::int32_t groups = page_groups(args.head_dim);
  const simt::Shared<std::uint8_t> shared = simt::dynamic_shared();
  const std::int32_t words = 2 * groups;  // of 16 bytes, a column
  for (std::int32_t i = thread; i < kTileColumns * words; i += kAttendThreads) {
    const std::int32_t column = i / words;
    simt::Words codes = {};
    if (column < tile.columns) {
      const std::int64_t query = column_query(args, tile, kv_head, column);
      codes = simt::load_words(args.q + (query * groups * 32 + i % words * 16));
    }
    simt::store_words(
        shared + (AttendShared::kQuery + column * query_stride(args.head_dim) + i % words * 16),
        codes);
  }
  if (thread < kTileColumns * (kMaxHeadDim / 32)) {
    const std::int32_t column = thread / (kMaxHeadDim / 32);
    const std::int32_t group = thread % (kMaxHeadDim / 32);
    float scale = 0.0f;
    if (column < tile.columns && group < groups) {
      const std::int64_t query = column_query(args, tile, kv_head, column);
      scale = simt::load(args.q_scale + (query * groups + group));
    }
    simt::store(simt::cast<float>(shared + AttendShared::kQueryScales) + thread, scale);
  }
  if (thread < kTileColumns) {
    Sight sight = {0, -1};
    if (thread < tile.columns) sight = sight_of(args, column_row(args, tile, thread));
    const simt::Shared<std::int32_t> sights =
        simt::cast<std::int32_t>(shared + AttendShared::kSight);
    simt::store(sights + 2 * thread, sight.first);
    simt::store(sights + (2 * thread + 1), sight.last);
    simt::store(state_slot(thread), simt::float_of_bits(0xff800000u));  // -infinity
    simt::store(state_slot(thread) + 1, 0.0f);
  }
}

// Pages of a piece that somebody in the tile sees.
struct SeenPages {
  std::int32_t first;
  std::int32_t last;
};
SIMT_DEVICE SeenPages seen_pages(const Sight& seen, std::int32_t piece) {
  const std::int32_t start = piece * kPieceTokens;
  return {seen.first > start ? (seen.first - start) / kPageTokens : 0,
          seen.last - start < kPieceTokens ? (seen.last - start) / kPageTokens : kPiecePages - 1};
}

// Where the factors of a column for the current piece are: old_part, new_part, and whether the
// column sees something of the piece.
SIMT_DEVICE MergeFactors factors_of(const simt::Words& words) {
  return {simt::float_of_bits(words.word[0]), simt::float_of_bits(words.word[1])};
}
SIMT_DEVICE simt::Shared<float> factors_slot(std::int32_t column) {
  return simt::cast<float>(simt::dynamic_shared() + AttendShared::kFactors) + 4 * column;
}

// The maxima of a piece are there: begins its merge into a column's state.
SIMT_DEVICE void begin_merge(std::int32_t column, std::int32_t piece) {
  const simt::Shared<std::int32_t> sight =
      simt::cast<std::int32_t>(simt::dynamic_shared() + AttendShared::kSight) + 2 * column;
  const std::int32_t start = piece * kPieceTokens;
  const bool sees = simt::load(sight) < start + kPieceTokens && simt::load(sight + 1) >= start;
  MergeFactors factors = {};
  if (sees) {
    float maximum = simt::load(state_slot(column));
    factors = merge_maximum(maximum, piece_maximum(column));
    simt::store(state_slot(column), maximum);
  }
  simt::store_words(factors_slot(column), {{simt::float_bits(factors.old_part),
                                            simt::float_bits(factors.new_part), sees ? 1u : 0u}});
}

// The sums are there too.
SIMT_DEVICE void finish_merge(std::int32_t column) {
  const simt::Words words = simt::load_words(factors_slot(column));
  if (words.word[2] == 0) return;
  const simt::Shared<float> sum = state_slot(column) + 1;
  simt::store(sum, merge_value(simt::load(sum), piece_sum(column), factors_of(words)));
}

// Adds the pages' shares of a group of dimensions, and merges them into a column's result.
SIMT_DEVICE float merge_group(std::int32_t column, const SeenPages& pages, float old_value) {
  const auto lane = static_cast<std::int32_t>(simt::lane());
  const simt::Words words = simt::load_words(factors_slot(column));
  const simt::Shared<std::uint8_t> stage =
      simt::dynamic_shared() +
      (AttendShared::kStage + column * AttendShared::kStageColumn + 4 * lane);
  float sum = 0.0f;  // adding nothing of pages that are not seen gives the same bits
  SIMT_NO_UNROLL
  for (std::int32_t page = pages.first; page <= pages.last; ++page) {
    sum += simt::load(simt::cast<float>(stage + page * AttendShared::kStagePage));
  }
  return words.word[2] != 0 ? merge_value(old_value, sum, factors_of(words)) : old_value;
}

// Weights times values of a piece, group by group of dimensions, into the chunk's result.
template <int kHalves>
SIMT_DEVICE void add_values(const AttentionArgs& args, std::int32_t piece,
                            simt::Global<const std::uint8_t> values, const Share<kHalves>& p,
                            const Visible<kHalves>& visible) {
  const auto lane = static_cast<std::int32_t>(simt::lane());
  const auto warp = static_cast<std::int32_t>(simt::warp());
  const std::int32_t groups = page_groups(args.head_dim);
  const SeenPages pages = seen_pages(load_tile().sight, piece);
  SIMT_NO_UNROLL
  for (std::int32_t group = 0; group < groups; ++group) {
    if (group > 0) simt::sync_threads();  // everyone has read the stage
    if (warp >= pages.first && warp <= pages.last) {
      const RecordShare record = load_record(values + std::int64_t{group} * kPageRecord);
      stage_products<kHalves>(record, quantize_weights(record, p, visible));
    }
    simt::sync_threads();  // the shares and sums of all pages are there

    const TileView tile = load_tile();
    SIMT_UNROLL
    for (int half = 0; half < kHalves; ++half) {
      const std::int32_t column = warp + 8 * half;
      if (column >= tile.columns) continue;
      const simt::Shared<float> so_far =
          simt::cast<float>(simt::dynamic_shared() + attend_out_offset(args.head_dim)) +
          ((group * kTileColumns + column) * 32 + lane);
      const float old_value = piece > tile.first_piece ? simt::load(so_far) : 0.0f;
      const float value = merge_group(column, pages, old_value);
      if (piece < tile.last_piece) {
        simt::store(so_far, value);
      } else {
        const std::int64_t row = std::int64_t{simt::block_index()} * kTileColumns + column;
        const std::int32_t dim = 8 * (lane % 8 / 2) + 2 * (lane / 8) + lane % 2;
        simt::store(args.partial_out + ((row * groups + group) * 32 + dim), value);
      }
    }
  }
}

// Warp w looks after columns w and w + 8: lanes 0 and 1 after their states, all lanes after their
// outputs.
template <int kHalves>
SIMT_DEVICE void attend_piece(const AttentionArgs& args, std::int32_t piece) {
  const TileView tile = load_tile();
  const auto lane = static_cast<std::int32_t>(simt::lane());
  const auto warp = static_cast<std::int32_t>(simt::warp());
  const std::int32_t page = piece * kPiecePages + warp;
  const SeenPages pages = seen_pages(tile.sight, piece);
  simt::Global<const std::uint8_t> record = args.cache;
  Share<kHalves> share = {};  // scores, later p
  Visible<kHalves> visible = {};
  if (warp >= pages.first && warp <= pages.last) {
    const std::uint32_t block = simt::load(args.blocks + (std::int64_t{tile.table} + page));
    record = record + page_record(block, args.kv_heads, args.head_dim, tile.kv_head, false, 0);
    RecordShare next = load_record(record);
    SIMT_NO_UNROLL
    for (std::int32_t group = 0; group < page_groups(args.head_dim); ++group) {
      const RecordShare keys = next;
      record = record + kPageRecord;
      next = load_record(record);  // in the end the first one of the values, which brings it near
      add_scores(keys, group, args.head_dim, share);
    }
    if (args.outliers.most > 0) {
      add_outliers(args, tile.kv_head, page * kPageTokens, tile.sight.last, share);
    }
    visible = scale_scores(args, page * kPageTokens, share);
    if (args.softcap > 0.0f) cap_scores(args.softcap, load_tile().inverse_cap, share);
  }
  write_maxima(share, visible);
  simt::sync_threads();  // the maxima of all pages are there
  const std::int32_t column = warp + 8 * lane;
  const bool has_state = lane < kHalves && column < load_tile().columns;
  if (has_state) begin_merge(column, piece);
  exponentiate(visible, share);
  add_values(args, piece, record, share, visible);
  if (has_state) finish_merge(column);
}

template <int kHalves>
SIMT_DEVICE void attend_pieces(const AttentionArgs& args) {
  const auto block = static_cast<std::int32_t>(simt::block_index());
  const std::int32_t kv_head = block / args.chunks % args.kv_heads;
  const AttentionTile tile = block_tile(args);
  const Sight seen = {sight_of(args, column_row(args, tile, 0)).first,
                      simt::load(args.position + column_row(args, tile, tile.columns - 1))};
  const std::int32_t first = seen.first / kPieceTokens + block % args.chunks * args.chunk_pieces;
  const std::int32_t last = seen.last / kPieceTokens;
  if (first > last) return;  // the whole block
  stage_queries(args, tile, kv_head);
  if (simt::thread_index() == 0) {
    store_tile({seen, tile.columns, tile.table, kv_head, first,
                last - first < args.chunk_pieces ? last : first + args.chunk_pieces - 1,
                args.softcap > 0.0f ? 1.0f / args.softcap : 0.0f});
  }
  simt::sync_threads();  // queries, sights and states are staged

  for (std::int32_t piece = first; piece <= load_tile().last_piece; ++piece) {
    attend_piece<kHalves>(args, piece);
  }

  const auto lane = static_cast<std::int32_t>(simt::lane());
  const std::int32_t column = static_cast<std::int32_t>(simt::warp()) + 8 * lane;
  if (lane < kHalves && column < load_tile().columns) {
    const std::int64_t at = (std::int64_t{block} * kTileColumns + column) * 2;
    simt::store(args.partial_state + at, simt::load(state_slot(column)));
    simt::store(args.partial_state + (at + 1), simt::load(state_slot(column) + 1));
  }
}

SIMT_KERNEL(kAttendThreads, kAttendBlocks) attend_chunk(AttentionArgs args) {
  simt::wait_for_previous();
  attend_pieces<2>(args);
}

// The same bits at half the work, where no tile has more than kNarrowColumns columns.
SIMT_KERNEL(kAttendThreads, kAttendBlocks) attend_narrow_chunk(AttentionArgs args) {
  simt::wait_for_previous();
  attend_pieces<1>(args);
}

// -- The merge -----------------------------------------------------------------------------------

// Chunks whose loads are under way together.
inline constexpr int kMergeBatch = 8;

// What a chunk says about some neighbouring values of a column.
template <int kCount>
struct ChunkShare {
  float maximum;
  float sum;
  float values[kCount];
};

// `slot` counts columns of all partial results.
template <int kCount>
SIMT_DEVICE ChunkShare<kCount> load_chunk(const AttentionArgs& args, std::int64_t slot,
                                          std::int32_t dim) {
  ChunkShare<kCount> share;
  share.maximum = simt::load(args.partial_state + 2 * slot);
  share.sum = simt::load(args.partial_state + (2 * slot + 1));
  const simt::Global<const float> out =
      args.partial_out + (slot * (32 * page_groups(args.head_dim)) + dim);
  if constexpr (kCount == 4) {
    const simt::Words words = simt::load_words(out);
    SIMT_UNROLL
    for (int i = 0; i < 4; ++i) share.values[i] = simt::float_of_bits(words.word[i]);
  } else {
    SIMT_UNROLL
    for (int i = 0; i < kCount; ++i) share.values[i] = simt::load(out + i);
  }
  return share;
}

// `kCount` neighbouring values of a row, all of one head: its chunks one by one, from the initial
// state, then divided by the sum.
template <int kCount>
SIMT_DEVICE void merge_values(const AttentionArgs& args, std::int32_t row, std::int32_t col,
                              float* values) {
  const std::int32_t head = col / args.head_dim;
  const std::int32_t dim = col % args.head_dim;
  const std::int32_t group = args.heads / args.kv_heads;
  const AttentionRow place = simt::load(args.row + row);
  const std::int32_t column = place.column + head % group;
  const std::int32_t tile = place.tile + column / kTileColumns;
  const Sight sight = sight_of(args, row);
  const std::int32_t start = first_piece(args, simt::load(args.tiles + tile));
  const std::int32_t first = (sight.first / kPieceTokens - start) / args.chunk_pieces;
  const std::int32_t last = (sight.last / kPieceTokens - start) / args.chunk_pieces;
  const std::int64_t block = (std::int64_t{tile} * args.kv_heads + head / group) * args.chunks;

  float maximum = simt::float_of_bits(0xff800000u);  // -infinity
  float sum = 0.0f;
  SIMT_UNROLL
  for (int i = 0; i < kCount; ++i) values[i] = 0.0f;
  for (std::int32_t chunk = first; chunk <= last; chunk += kMergeBatch) {
    ChunkShare<kCount> shares[kMergeBatch];
    SIMT_UNROLL
    for (int i = 0; i < kMergeBatch; ++i) {
      const std::int64_t at = (block + chunk + i) * kTileColumns + column % kTileColumns;
      if (chunk + i <= last) shares[i] = load_chunk<kCount>(args, at, dim);
    }
    SIMT_UNROLL
    for (int i = 0; i < kMergeBatch; ++i) {
      if (chunk + i > last) continue;
      const MergeFactors factors = merge_maximum(maximum, shares[i].maximum);
      sum = merge_value(sum, shares[i].sum, factors);
      SIMT_UNROLL
      for (int k = 0; k < kCount; ++k) {
        values[k] = merge_value(values[k], shares[i].values[k], factors);
      }
    }
  }
  const float inverse = 1.0f / sum;
  SIMT_UNROLL
  for (int i = 0; i < kCount; ++i) values[i] *= inverse;
}

SIMT_KERNEL(kMergeThreads) merge_chunks(AttentionArgs args) {
  simt::wait_for_previous();
  const std::int32_t cols = args.heads * args.head_dim;
  const auto blocks = static_cast<std::uint32_t>(quantize_row_blocks(cols));
  const auto row = static_cast<std::int32_t>(simt::block_index() / blocks);
  const auto step = static_cast<std::int32_t>(simt::block_index() % blocks);
  const std::int32_t col =
      4 * (step * kMergeThreads + static_cast<std::int32_t>(simt::thread_index()));
  const std::int64_t at = std::int64_t{row} * cols + col;
  simt::Words words = {};
  if (args.head_dim % 4 == 0) {
    if (col < cols) {
      float values[4];
      merge_values<4>(args, row, col, values);
      SIMT_UNROLL
      for (int i = 0; i < 4; ++i) words.word[i] = simt::float_bits(values[i]);
      if (!simt::is_null(args.out)) simt::store_words(args.out + at, words);
    }
  } else {  // four neighbours may belong to two heads
    SIMT_NO_UNROLL
    for (std::int32_t i = 0; i < 4; ++i) {
      float value = 0.0f;
      if (col + i < cols) {
        merge_values<1>(args, row, col + i, &value);
        if (!simt::is_null(args.out)) simt::store(args.out + (at + i), value);
      }
      words = {{words.word[1], words.word[2], words.word[3], simt::float_bits(value)}};
    }
  }
  if (!simt::is_null(args.quantized.q)) quantize_four(words, col < cols, at, args.quantized);
}

}  // namespace sluice::cuda

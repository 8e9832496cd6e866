// Attention over pages of int8 codes (cuda/kv_pages.h) by integer tensor cores. For a column:
//
//   score     raw = fma(q_scale * k_scale, float(dot), raw) over groups of 32 dimensions, dot exact
//             in int32
//   values    page by page and in groups of 32 dimensions, w = p * v_scale, m = largest w:
//               code  = w * (32639 / m), rounded to nearest even: 0 to 32639 = 127 * 256 + 127
//               dot   = sum of code * v, exact in int32
//               share = (m * (1 / 32639)) * float(dot)
//             A token that the column does not see has w = 0 whatever its scale is; an m below
//             1e-30 adds nothing; a w that is not finite makes the page's share NaN.
//
// 16-bit codes are two signed bytes for the tensor cores, code = 256 * high + low with
// high = (code + 128) >> 8, at most 127.
//
// Shared memory of its own:
//
//   q_scale        [16 columns][8] float
//   q              [16 columns][padded_dim + 16] int8; the 16 spread the banks
#pragma once

#include "cuda/kernels/attention_shared.cuh"

namespace sluice::cuda {

struct Int8Shared {
  static constexpr std::int32_t kQueryScales = AttendShared::kOwn;
  static constexpr std::int32_t kQuery = kQueryScales + kTileColumns * kMaxHeadDim / 32 * 4;
};
SIMT_ANYWHERE std::int32_t query_stride(std::int32_t head_dim) {
  return 32 * page_groups(head_dim) + 16;
}
SIMT_ANYWHERE std::int32_t own_shared_bytes(Int8Pages, std::int32_t head_dim) {
  return Int8Shared::kQuery - AttendShared::kOwn + kTileColumns * query_stride(head_dim);
}
// Blocks of threads that a multiprocessor holds at a time, for which the compiler saves registers.
SIMT_ANYWHERE std::int32_t attend_together(Int8Pages) { return 3; }
template <int kHalves>
SIMT_ANYWHERE int keys_ahead(Int8Pages) {
  return 1;
}
template <int kHalves>
SIMT_ANYWHERE bool values_ahead(Int8Pages) {
  return false;
}

// The queries of a tile, to shared memory; those past its last column are zeros.
SIMT_DEVICE void stage_query_values(Int8Pages, const AttentionArgs& args, const AttentionTile& tile,
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
        shared + (Int8Shared::kQuery + column * query_stride(args.head_dim) + i % words * 16),
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
    simt::store(simt::cast<float>(shared + Int8Shared::kQueryScales) + thread, scale);
  }
}

// -- Scores --------------------------------------------------------------------------------------

// What a lane needs of a record: words of both planes, and scales of tokens 8 j + 2 t and + 1.
struct Int8Record {
  simt::Words plane[2];
  simt::Words scales;  // word j: those of tokens 8 j + 2 t and + 1
};

SIMT_DEVICE Int8Record load_record(Int8Pages, simt::Global<const std::uint8_t> record) {
  const auto lane = static_cast<std::int32_t>(simt::lane());
  Int8Record share;
  SIMT_UNROLL
  for (int h = 0; h < 2; ++h) share.plane[h] = simt::load_words(record + (512 * h + 16 * lane));
  share.scales = simt::load_words(record + page_scale(lane % 4 * 2));
  return share;
}
// Of eight halves number 2 j + i.
SIMT_DEVICE float half_of(const simt::Words& halves, int j, int i) {
  return simt::half_to_float(static_cast<std::uint16_t>(halves.word[j] >> (16 * i)));
}

// Sums of the tensor cores begin with the bits of 1.5 * 2^23, so that they end as the bits of
// 1.5 * 2^23 + dot, of which a subtraction makes a float: exact below 2^22 (products of a group
// stay below 2^20), and four times the rate of a conversion.
inline constexpr std::int32_t kDotZero = 0x4b400000;
SIMT_DEVICE float float_of_dot(std::int32_t dot) {
  return simt::float_of_bits(static_cast<std::uint32_t>(dot)) - kRoundMagic;
}

template <int kHalves>
SIMT_DEVICE Share<kHalves> begin_scores(Int8Pages) {
  return {};
}
// A group's part of the raw scores.
template <int kHalves>
SIMT_DEVICE void add_scores(const Int8Record& keys, std::int32_t group, std::int32_t head_dim,
                            std::int32_t /*columns*/, Share<kHalves>& raw) {
  const auto lane = static_cast<std::int32_t>(simt::lane());
  const simt::Shared<std::uint8_t> shared = simt::dynamic_shared();
  const simt::Words query =
      simt::load_matrices_x4(shared + (Int8Shared::kQuery + lane % 16 * query_stride(head_dim) +
                                       32 * group + lane / 16 * 16));
  const simt::Shared<float> scales = simt::cast<float>(shared + Int8Shared::kQueryScales);
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
      const float k_scale = half_of(keys.scales, j, i);
      SIMT_UNROLL
      for (int half = 0; half < kHalves; ++half) {
        float& x = raw.x[half][j][i];
        x = simt::fma(q_scale[half] * k_scale, float_of_dot(dot[2 * half + i]), x);
      }
    }
  }
}
template <int kHalves>
SIMT_DEVICE Share<kHalves> finish_scores(const Share<kHalves>& raw, std::int32_t /*columns*/) {
  return raw;
}

// -- Values --------------------------------------------------------------------------------------

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

// `scales` of the values: word j has those of tokens 8 j + 2 t and + 1.
template <int kHalves>
SIMT_DEVICE WeightCodes quantize_weights(const simt::Words& scales, const Share<kHalves>& p,
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
        w[j][i] = if_visible(visible, half, j, i, p.x[half][j][i] * half_of(scales, j, i));
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

// Both words of an operand of values, of dimension 8 j + g.
SIMT_DEVICE std::uint32_t value_word(const Int8Record& values, int plane, int j) {
  return values.plane[plane].word[j];
}

// Weights times values: a page's share of the output, 16 columns by the 32 dimensions of a record,
// goes to the stage. `finish(half, dot)` makes a column's share of a dot product.
template <int kHalves, class Record, class Finish>
SIMT_DEVICE void stage_products(const Record& values, const WeightCodes& codes,
                                const Finish& finish) {
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
      const std::uint32_t b[2] = {value_word(values, 0, 2 * k + j),
                                  value_word(values, 1, 2 * k + j)};
      std::int32_t high[4] = {kDotZero, kDotZero, kDotZero, kDotZero};
      std::int32_t low[4] = {kDotZero, kDotZero, kDotZero, kDotZero};
      simt::mma_s8(high, codes.high, b);
      simt::mma_s8(low, codes.low, b);
      SIMT_UNROLL
      for (int i = 0; i < 2 * kHalves; ++i) {
        // float(256 * high + low): the fused operation rounds once, as a conversion would.
        const float dot = simt::fma(256.0f, float_of_dot(high[i]), float_of_dot(low[i]));
        words[i / 2].word[2 * j + i % 2] = simt::float_bits(finish(i / 2, dot));
      }
    }
    SIMT_UNROLL
    for (int half = 0; half < kHalves; ++half) {
      simt::store_words(stage + (8 * half * AttendShared::kStageColumn + 16 * k), words[half]);
    }
  }
}

// Weights are quantized for each record anew: its scales are part of them.
template <int kHalves>
SIMT_DEVICE void keep_weights(Int8Pages, const Share<kHalves>& /*p*/) {}
template <int kHalves>
SIMT_DEVICE void stage_values(const Int8Record& values, const Share<kHalves>& p,
                              const Visible<kHalves>& visible, std::int32_t /*columns*/,
                              std::int32_t /*token*/) {
  const WeightCodes codes = quantize_weights(values.scales, p, visible);
  stage_products<kHalves>(values, codes,
                          [&](int half, float dot) { return codes.of_dot[half] * dot; });
}

}  // namespace sluice::cuda

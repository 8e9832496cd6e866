// Attention over pages of 4 bits (cuda/kv_pages.h) by integer tensor cores. A tile's own block, in
// which its rows are, is a page of f16 and goes the way of attention_f16.cuh; all rows of a tile
// have the same. A code c stands for middle + scale * (c - 8); for a column and an earlier page:
//
//   query     in groups of 32 dimensions: q * scale, m = its largest magnitude, codes
//             (q * scale) * (127 / m) rounded to nearest even. An m below 1e-30 makes zeros of
//             them; one that is not finite makes the page's scores NaN.
//   base      sum of q * middle: lane t of four has dimensions 16 h + 4 t + k of each group,
//   groups,
//             h and k in sequence, by fma from 0; then (t0 + t1) + (t2 + t3)
//   score     raw = fma(m * (1 / 2032), float(16 * dot), raw) over groups from 0, dot of the codes
//             exact in int32; then raw + base
//   values    as with int8 (attention_int8.cuh): codes of weights, dot exact; and
//               b     = sum of p * middle: lane t has tokens 8 j + 2 t + i, j before i, by fma from
//                       0; then (t0 + t1) + (t2 + t3)
//               share = fma((m * (1 / 32639)) * (1 / 16), float(16 * dot), b)
//             Of tokens that the column does not see neither scale nor middle counts.
//
// Nibbles become c - 8 in the upper half of a byte, as those of Q4_0 weights do (tile_codes.cuh):
// sixteen times as much, which is exact. What a query's codes are differs from page to page; a lane
// makes those that it has of the fragment, so they are nowhere but in registers.
//
// What binds. A page's records of a group of 32 dimensions are 1280 bytes. As nvcc 13 compiles it
// for sm_90 a warp issues about 190 instructions for the one of keys and 320 for that of values
// with up to eight columns (int8: 80 and 270 for 2176 bytes). Four a clock on 132 multiprocessors
// of an H200 at 1.75 GHz are 2.3 TB/s: there issuing binds, and a page takes about as long as one
// of int8, for which memory does. Where a multiprocessor has less of the bandwidth, as on an RTX
// 4090, memory binds both, and int4 is faster by its bytes. These are counts, not measurements.
//
// Shared memory of its own: as for f16.
#pragma once

#include "cuda/kernels/attention_f16.cuh"
#include "cuda/kernels/attention_int8.cuh"

namespace sluice::cuda {

SIMT_ANYWHERE std::int32_t own_shared_bytes(Int4Pages, std::int32_t head_dim) {
  return own_shared_bytes(HalfPages(), head_dim);
}
SIMT_ANYWHERE std::int32_t attend_together(Int4Pages) { return 2; }
// Records are small: it takes two of each warp on their way to keep the memory busy.
template <int kHalves>
SIMT_ANYWHERE int keys_ahead(Int4Pages) {
  return 2;
}
template <int kHalves>
SIMT_ANYWHERE bool values_ahead(Int4Pages) {
  return true;
}
SIMT_DEVICE void stage_query_values(Int4Pages, const AttentionArgs& args, const AttentionTile& tile,
                                    std::int32_t kv_head) {
  stage_query_values(HalfPages(), args, tile, kv_head);
}

// What a lane needs of a record: nibbles, and eight scales and middles.
struct Int4Record {
  simt::Words codes;
  simt::Words scales;
  simt::Words middles;
};
SIMT_DEVICE Int4Record load_record(Int4Pages, simt::Global<const std::uint8_t> record) {
  const auto lane = static_cast<std::int32_t>(simt::lane());
  return {simt::load_words(record + 16 * lane),
          simt::load_words(record + (Int4Pages::kScales + 16 * (lane % 4))),
          simt::load_words(record + (Int4Pages::kMiddles + 16 * (lane % 4)))};
}
// Four codes less 8, times 16: of the low nibbles (plane 0) or the high ones.
SIMT_DEVICE std::uint32_t nibble_word(std::uint32_t nibbles, int plane) {
  return ((plane == 0 ? nibbles << 4 : nibbles) & 0xf0f0f0f0u) ^ 0x80808080u;
}
SIMT_DEVICE std::uint32_t value_word(const Int4Record& values, int plane, int j) {
  return nibble_word(values.codes.word[j], plane);
}

// What four lanes that share a column have.
SIMT_DEVICE float add_four_lanes(float x) {
  x += simt::float_of_bits(simt::shuffle_xor(simt::kAllLanes, simt::float_bits(x), 1));
  return x + simt::float_of_bits(simt::shuffle_xor(simt::kAllLanes, simt::float_bits(x), 2));
}

// -- Scores --------------------------------------------------------------------------------------

template <int kHalves>
struct Int4Scores {
  Share<kHalves> raw;
  float base[kHalves];  // this lane's part
};
template <int kHalves>
SIMT_DEVICE Int4Scores<kHalves> begin_scores(Int4Pages) {
  return {};
}

// The low bytes of four words.
SIMT_DEVICE std::uint32_t low_bytes(const std::uint32_t (&x)[4]) {
  return simt::byte_permute(simt::byte_permute(x[0], x[1], 0x0040),
                            simt::byte_permute(x[2], x[3], 0x0040), 0x5410);
}

// A column's eight numbers of a group that this lane has: codes to a fragment's two words, of
// dimensions 4 t .. and 16 + 4 t ..; returns the factor of 16 * dot.
SIMT_DEVICE float quantize_query(const float (&x)[2][4], std::uint32_t (&codes)[2]) {
  std::uint32_t max_bits = 0;
  SIMT_UNROLL
  for (int i = 0; i < 8; ++i) {
    const std::uint32_t magnitude = simt::float_bits(x[i / 4][i % 4]) & 0x7fffffffu;
    if (magnitude > max_bits) max_bits = magnitude;
  }
  SIMT_UNROLL
  for (std::uint32_t lanes = 1; lanes < 4; lanes *= 2) {
    const std::uint32_t other = simt::shuffle_xor(simt::kAllLanes, max_bits, lanes);
    if (other > max_bits) max_bits = other;
  }
  const float max = simt::float_of_bits(max_bits);
  const bool is_finite = max_bits < 0x7f800000u;
  const bool has_codes = is_finite && max >= 1e-30f;
  const float to_code = has_codes ? 127.0f / max : 0.0f;
  SIMT_UNROLL
  for (int h = 0; h < 2; ++h) {
    std::uint32_t rounded[4];
    SIMT_UNROLL
    for (int k = 0; k < 4; ++k)
      rounded[k] = simt::float_bits(simt::fma(x[h][k], to_code, kRoundMagic));
    codes[h] = low_bytes(rounded);
  }
  const float of_dot = max * (1.0f / 2032.0f);
  return has_codes ? of_dot : (is_finite ? 0.0f : simt::float_of_bits(0x7fc00000u));
}

template <int kHalves>
SIMT_DEVICE void add_scores(const Int4Record& keys, std::int32_t group, std::int32_t /*head_dim*/,
                            std::int32_t columns, Int4Scores<kHalves>& sums) {
  const auto lane = static_cast<std::int32_t>(simt::lane());
  const simt::Shared<std::uint8_t> queries =
      simt::dynamic_shared() + (HalfShared::kQuery + group * kTileColumns * 128 + lane % 4 * 16);
  std::uint32_t query[4] = {};
  float of_dot[kHalves];
  SIMT_UNROLL
  for (int half = 0; half < kHalves; ++half) {
    const std::int32_t column = lane / 4 + 8 * half;
    float scaled[2][4];
    SIMT_UNROLL
    for (int h = 0; h < 2; ++h) {
      simt::Words q = {};
      if (column < columns) q = simt::load_words(queries + (column * 128 + h * 64));
      SIMT_UNROLL
      for (int k = 0; k < 4; ++k) {
        const float x = simt::float_of_bits(q.word[k]);
        float& base = sums.base[half];
        base = simt::fma(x, half_of(keys.middles, 2 * h + k / 2, k % 2), base);
        scaled[h][k] = x * half_of(keys.scales, 2 * h + k / 2, k % 2);
      }
    }
    std::uint32_t codes[2];
    of_dot[half] = quantize_query(scaled, codes);
    query[half] = codes[0];
    query[half + 2] = codes[1];
  }
  SIMT_UNROLL
  for (int j = 0; j < 4; ++j) {
    const std::uint32_t b[2] = {nibble_word(keys.codes.word[j], 0),
                                nibble_word(keys.codes.word[j], 1)};
    std::int32_t dot[4] = {kDotZero, kDotZero, kDotZero, kDotZero};
    simt::mma_s8(dot, query, b);
    SIMT_UNROLL
    for (int i = 0; i < 2 * kHalves; ++i) {
      float& x = sums.raw.x[i / 2][j][i % 2];
      x = simt::fma(of_dot[i / 2], float_of_dot(dot[i]), x);
    }
  }
}
template <int kHalves>
SIMT_DEVICE Share<kHalves> finish_scores(const Int4Scores<kHalves>& sums,
                                         std::int32_t /*columns*/) {
  Share<kHalves> share = sums.raw;
  SIMT_UNROLL
  for (int half = 0; half < kHalves; ++half) {
    const float base = add_four_lanes(sums.base[half]);
    SIMT_UNROLL
    for (int j = 0; j < 4; ++j) {
      SIMT_UNROLL
      for (int i = 0; i < 2; ++i) share.x[half][j][i] += base;
    }
  }
  return share;
}

// Of a page of f16: the operations of attention_f16.cuh, four columns at a time, which saves
// registers. `record` is the first one of the keys.
template <int kHalves>
SIMT_DEVICE Share<kHalves> recent_scores(simt::Global<const std::uint8_t> record,
                                         std::int32_t head_dim, std::int32_t columns) {
  const simt::Shared<float> query = simt::cast<float>(simt::dynamic_shared() + HalfShared::kQuery);
  SIMT_NO_UNROLL
  for (std::int32_t first = 0; first < columns; first += 4) {
    SliceSums<4> sums = {};
    HalfRecord next = load_record(HalfPages(), record);
    SIMT_NO_UNROLL
    for (std::int32_t group = 0; group < page_groups(head_dim); ++group) {
      const HalfRecord keys = next;
      // In the end the first one of the values, which brings it near.
      next = load_record(HalfPages(), record + std::int64_t{group + 1} * HalfPages::kRecord);
      multiply_record<32>(keys, query + 32 * (kTileColumns * group + first), columns - first, sums);
    }
    store_scores(sums, columns - first, page_weights() + first * HalfShared::kWeightsColumn);
  }
  return load_scores<kHalves>(columns);
}

// -- Values --------------------------------------------------------------------------------------

template <int kHalves>
SIMT_DEVICE void keep_weights(Int4Pages, const Share<kHalves>& /*p*/) {}

template <int kHalves>
SIMT_DEVICE void stage_values(const Int4Record& values, const Share<kHalves>& p,
                              const Visible<kHalves>& visible, std::int32_t /*columns*/,
                              std::int32_t /*token*/) {
  const WeightCodes codes = quantize_weights(values.scales, p, visible);
  float base[kHalves];
  SIMT_UNROLL
  for (int half = 0; half < kHalves; ++half) {
    float sum = 0.0f;
    SIMT_UNROLL
    for (int j = 0; j < 4; ++j) {
      SIMT_UNROLL
      for (int i = 0; i < 2; ++i) {
        const float middle = if_visible(visible, half, j, i, half_of(values.middles, j, i));
        sum = simt::fma(p.x[half][j][i], middle, sum);
      }
    }
    base[half] = add_four_lanes(sum);
  }
  stage_products<kHalves>(values, codes, [&](int half, float dot) {
    return simt::fma(codes.of_dot[half] * 0.0625f, dot, base[half]);
  });
}

}  // namespace sluice::cuda

// Attention over pages of f16 keys and values (cuda/kv_pages.h): halves become floats, which is
// exact, and are summed by fused operations in float, one order for all. (Tensor cores take halves
// too, but the order and the rounding of their sums are specified for no device.)
//
// Scores are products of keys and queries, sums along dimensions; results are products of values
// and weights, sums along tokens. Both are rows of a record times an operand of each column:
//
//   lane (a, s) = (lane / 4, lane % 4) has rows 8 h + a of a record, h = 0 to 3, and of each the
//   eight numbers 8 s .. 8 s + 7: its slice
//
//   score     slice s: dimensions 8 s .. 8 s + 7 of each group of 32, groups and dimensions in
//             sequence, by fma from 0; then (s0 + s1) + (s2 + s3). Dimensions up to padded_dim
//             count: they are zeros.
//   values    slice s: tokens 8 s .. 8 s + 7 of the page in sequence, by fma from 0; then
//             (s0 + s1) + (s2 + s3). A token that the column does not see counts as 0 * 0,
//             whatever stands there.
//
// What binds. A token of a KV head has 4 bytes for each dimension, and two fused operations for
// each column beside two conversions. A warp's record of keys (2 KB) takes 4 loads and 32
// conversions, and for each column 32 fma, 2 loads of its operand from shared memory and 4
// instructions of control; one of values the same, and 19 for each column to add slices and stage
// them. As nvcc 13 compiles it for sm_90 that is about 130 + 95 C instructions for 4 KB with C
// columns. A multiprocessor issues four in a clock, so 132 of an H200 at 1.75 GHz would go through
//
//   columns (of a row: the group)   1      2      4      8      16
//   clocks for 4 KB                 56     80     128    223    413
//   TB/s                            17     12     7.4    4.2    2.3
//
// against the 4.8 TB/s of its memory. Up to four columns memory binds; at eight issuing is level
// with it, and so nearly is the pipe to shared memory (for a column 4 loads of 16 bytes at 4 clocks
// each, 3 shuffles, a store: 160 clocks, and 32 for the records). At sixteen, and so in prompts,
// fma binds: slower than int8, whose products are those of tensor cores. These are counts, not
// measurements; tools/gpu_bench/ measures.
//
// Shared memory of its own:
//
//   weights   [8 pages][16 columns][36] float, 32 used, of one warp each: raw scores on their way
//             from the lanes that have them to those of the share, then p, by token
//   query     [groups][16 columns][32] float
#pragma once

#include "cuda/kernels/attention_shared.cuh"

namespace sluice::cuda {

struct HalfShared {
  static constexpr std::int32_t kWeightsColumn = 36;  // floats
  static constexpr std::int32_t kWeightsPage = kTileColumns * kWeightsColumn;
  static constexpr std::int32_t kWeights = AttendShared::kOwn;
  static constexpr std::int32_t kQuery = kWeights + kPiecePages * kWeightsPage * 4;
};
SIMT_ANYWHERE std::int32_t own_shared_bytes(HalfPages, std::int32_t head_dim) {
  return HalfShared::kQuery - AttendShared::kOwn + kTileColumns * 32 * page_groups(head_dim) * 4;
}
// Blocks of threads that a multiprocessor holds at a time, for which the compiler saves registers.
SIMT_ANYWHERE std::int32_t attend_together(HalfPages) { return 2; }
// More than eight columns have enough to do while they wait, and need the registers.
template <int kHalves>
SIMT_ANYWHERE int keys_ahead(HalfPages) {
  return kHalves == 1 ? 1 : 0;
}
template <int kHalves>
SIMT_ANYWHERE bool values_ahead(HalfPages) {
  return kHalves == 1;
}

// What column 0 has of a page for this warp; the next columns follow.
SIMT_DEVICE simt::Shared<float> page_weights() {
  return simt::cast<float>(simt::dynamic_shared() + HalfShared::kWeights) +
         static_cast<std::int32_t>(simt::warp()) * HalfShared::kWeightsPage;
}

// The queries of a tile, to shared memory; nobody reads those past its last column.
SIMT_DEVICE void stage_query_values(HalfPages, const AttentionArgs& args, const AttentionTile& tile,
                                    std::int32_t kv_head) {
  const std::int32_t words = 8 * page_groups(args.head_dim);  // of 16 bytes, a column
  const simt::Shared<std::uint8_t> shared = simt::dynamic_shared() + HalfShared::kQuery;
  for (auto i = static_cast<std::int32_t>(simt::thread_index()); i < tile.columns * words;
       i += kAttendThreads) {
    const std::int32_t column = i / words;
    const std::int32_t word = i % words;
    const std::int64_t query = column_query(args, tile, kv_head, column);
    const std::int32_t to = (word / 8 * kTileColumns + column) * 128 + word % 8 * 16;
    simt::store_words(shared + to, simt::load_words(args.q_floats + (query * words + word) * 4));
  }
}

// -- Records times operands ----------------------------------------------------------------------

struct HalfRecord {
  simt::Words row[4];  // the lane's slice of rows 8 h + a
};
SIMT_DEVICE HalfRecord load_record(HalfPages, simt::Global<const std::uint8_t> record) {
  const auto lane = static_cast<std::int32_t>(simt::lane());
  HalfRecord share;
  SIMT_UNROLL
  for (int h = 0; h < 4; ++h) share.row[h] = simt::load_words(record + (512 * h + 16 * lane));
  return share;
}

// Sums of columns and rows 8 h + a over the lane's slice.
template <int kColumns>
struct SliceSums {
  float x[kColumns][4];
};

// Four numbers of row 8 h + a, from 4 `part` of the slice on.
SIMT_DEVICE void row_part(const HalfRecord& record, int h, int part, float (&row)[4]) {
  SIMT_UNROLL
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t word = record.row[h].word[2 * part + i / 2];
    row[i] = simt::half_to_float(static_cast<std::uint16_t>(word >> (16 * (i % 2))));
  }
}

// Adds a record's products. `operand` is what column 0 multiplies the record's first number of a
// row by; that of the next column is kStride floats on.
template <int kStride, int kColumns>
SIMT_DEVICE void multiply_record(const HalfRecord& record, simt::Shared<float> operand,
                                 std::int32_t columns, SliceSums<kColumns>& sums) {
  const std::int32_t slice = static_cast<std::int32_t>(simt::lane()) % 4 * 8;
  SIMT_UNROLL
  for (int part = 0; part < 2; ++part) {
    float row[4][4];
    SIMT_UNROLL
    for (int h = 0; h < 4; ++h) row_part(record, h, part, row[h]);
    SIMT_UNROLL
    for (int column = 0; column < kColumns; ++column) {
      if (column >= columns) break;
      const simt::Words x = simt::load_words(operand + (column * kStride + slice + 4 * part));
      SIMT_UNROLL
      for (int i = 0; i < 4; ++i) {
        SIMT_UNROLL
        for (int h = 0; h < 4; ++h) {
          float& sum = sums.x[column][h];
          sum = simt::fma(row[h][i], simt::float_of_bits(x.word[i]), sum);
        }
      }
    }
  }
}

// Adds the slices of four lanes: lane (a, s) gets the sum of row 8 s + a.
SIMT_DEVICE float add_slices(const float (&x)[4]) {
  const std::uint32_t slice = simt::lane() % 4;
  const auto exchange = [](float given, std::uint32_t lanes) {
    return simt::float_of_bits(simt::shuffle_xor(simt::kAllLanes, simt::float_bits(given), lanes));
  };
  const bool odd = slice % 2 != 0;
  const bool upper = slice >= 2;
  float pair[2];  // of rows 8 (2 k + s % 2) + a
  SIMT_UNROLL
  for (int k = 0; k < 2; ++k) {
    const float own = odd ? x[2 * k + 1] : x[2 * k];
    pair[k] = own + exchange(odd ? x[2 * k] : x[2 * k + 1], 1);
  }
  const float own = upper ? pair[1] : pair[0];
  return own + exchange(upper ? pair[0] : pair[1], 2);
}

// -- Scores --------------------------------------------------------------------------------------

template <int kHalves>
SIMT_DEVICE SliceSums<8 * kHalves> begin_scores(HalfPages) {
  return {};
}
template <int kColumns>
SIMT_DEVICE void add_scores(const HalfRecord& keys, std::int32_t group, std::int32_t /*head_dim*/,
                            std::int32_t columns, SliceSums<kColumns>& sums) {
  const simt::Shared<float> query =
      simt::cast<float>(simt::dynamic_shared() + HalfShared::kQuery) + 32 * kTileColumns * group;
  multiply_record<32>(keys, query, columns, sums);
}
// To the other lanes; `scores` are those of column 0.
template <int kColumns>
SIMT_DEVICE void store_scores(const SliceSums<kColumns>& sums, std::int32_t columns,
                              simt::Shared<float> scores) {
  const auto lane = static_cast<std::int32_t>(simt::lane());
  SIMT_UNROLL
  for (int column = 0; column < kColumns; ++column) {
    if (column >= columns) break;
    simt::store(scores + (column * HalfShared::kWeightsColumn + 8 * (lane % 4) + lane / 4),
                add_slices(sums.x[column]));
  }
}
template <int kHalves>
SIMT_DEVICE Share<kHalves> load_scores(std::int32_t columns) {
  const auto lane = static_cast<std::int32_t>(simt::lane());
  const simt::Shared<float> scores = page_weights();
  simt::sync_warp();  // the scores of all lanes are there
  Share<kHalves> share = {};
  SIMT_UNROLL
  for (int half = 0; half < kHalves; ++half) {
    const std::int32_t column = lane / 4 + 8 * half;
    if (column >= columns) continue;
    SIMT_UNROLL
    for (int j = 0; j < 4; ++j) {
      SIMT_UNROLL
      for (int i = 0; i < 2; ++i) {
        const std::int32_t token = 8 * j + lane % 4 * 2 + i;
        share.x[half][j][i] = simt::load(scores + (column * HalfShared::kWeightsColumn + token));
      }
    }
  }
  return share;
}
template <int kColumns>
SIMT_DEVICE Share<kColumns / 8> finish_scores(const SliceSums<kColumns>& sums,
                                              std::int32_t columns) {
  store_scores(sums, columns, page_weights());
  return load_scores<kColumns / 8>(columns);
}

// -- Values --------------------------------------------------------------------------------------

// Weights for all records of a page. The scores that stood in their place have been read: there was
// a barrier.
template <int kHalves>
SIMT_DEVICE void keep_weights(HalfPages, const Share<kHalves>& p) {
  const auto lane = static_cast<std::int32_t>(simt::lane());
  const simt::Shared<float> weights = page_weights();
  SIMT_UNROLL
  for (int half = 0; half < kHalves; ++half) {
    const std::int32_t column = lane / 4 + 8 * half;
    SIMT_UNROLL
    for (int j = 0; j < 4; ++j) {
      SIMT_UNROLL
      for (int i = 0; i < 2; ++i) {
        const std::int32_t token = 8 * j + lane % 4 * 2 + i;
        simt::store(weights + (column * HalfShared::kWeightsColumn + token), p.x[half][j][i]);
      }
    }
  }
  simt::sync_warp();  // the weights of all lanes are there
}

// Whether all columns of the tile see the whole page. Rows ascend, so the first column says what is
// seen last, and the last one what is seen first.
SIMT_DEVICE bool all_see(std::int32_t token, std::int32_t columns) {
  return column_sight(columns - 1).first <= token &&
         column_sight(0).last >= token + kPageTokens - 1;
}

// Adds one column's products of a page's values whose first token is `token`. Tokens that the
// column does not see count as zeros.
SIMT_DEVICE void multiply_seen(const HalfRecord& values, std::int32_t column, std::int32_t token,
                               float (&sums)[4]) {
  const std::int32_t slice = static_cast<std::int32_t>(simt::lane()) % 4 * 8;
  const Sight sight = column_sight(column);
  SIMT_UNROLL
  for (int part = 0; part < 2; ++part) {
    const std::int32_t first = slice + 4 * part;
    const simt::Words p =
        simt::load_words(page_weights() + (column * HalfShared::kWeightsColumn + first));
    SIMT_UNROLL
    for (int h = 0; h < 4; ++h) {
      float row[4];
      row_part(values, h, part, row);
      SIMT_UNROLL
      for (int i = 0; i < 4; ++i) {
        const std::int32_t at = token + first + i;
        const bool is_seen = at >= sight.first && at <= sight.last;
        sums[h] = simt::fma(is_seen ? row[i] : 0.0f, simt::float_of_bits(p.word[i]), sums[h]);
      }
    }
  }
}

// Leaves a column's results of a record on the stage.
SIMT_DEVICE void stage_column(std::int32_t column, const float (&sums)[4]) {
  const auto lane = static_cast<std::int32_t>(simt::lane());
  const auto page = static_cast<std::int32_t>(simt::warp());
  const std::int32_t place =
      8 * (lane / 8) + 2 * (lane % 4) + lane / 4 % 2;  // of dimension 8 s + a
  const simt::Shared<std::uint8_t> stage =
      simt::dynamic_shared() + (AttendShared::kStage + page * AttendShared::kStagePage +
                                column * AttendShared::kStageColumn + 4 * place);
  simt::store(simt::cast<float>(stage), add_slices(sums));
}

// Column by column: the same operations, and little code.
SIMT_DEVICE void stage_seen(const HalfRecord& values, std::int32_t columns, std::int32_t token) {
  SIMT_NO_UNROLL
  for (std::int32_t column = 0; column < columns; ++column) {
    float sums[4] = {};
    multiply_seen(values, column, token, sums);
    stage_column(column, sums);
  }
}

template <int kHalves>
SIMT_DEVICE void stage_values(const HalfRecord& values, const Share<kHalves>& /*p*/,
                              const Visible<kHalves>& /*visible*/, std::int32_t columns,
                              std::int32_t token) {
  if (all_see(token, columns)) {
    SliceSums<8 * kHalves> sums = {};
    multiply_record<HalfShared::kWeightsColumn>(values, page_weights(), columns, sums);
    SIMT_UNROLL
    for (int column = 0; column < 8 * kHalves; ++column) {
      if (column >= columns) break;
      stage_column(column, sums.x[column]);
    }
  } else {  // the first or the last pages
    stage_seen(values, columns, token);
  }
}

}  // namespace sluice::cuda

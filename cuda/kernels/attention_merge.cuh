// The merge of attention's chunks (attention.cuh): four neighbouring values of a row a lane, chunk
// by chunk in sequence, then divided by the sum. The operations are those by which attend_chunk
// merges pieces, so it makes no difference how a context is cut into chunks of one piece or all.
#pragma once

#include "cuda/kernels/attention_parts.cuh"
#include "cuda/kernels/quantize.cuh"

namespace sluice::cuda {

inline constexpr std::int32_t kMergeThreads = kQuantizeThreads;

// The grid.
SIMT_ANYWHERE std::int32_t merge_blocks(std::int32_t rows, std::int32_t heads,
                                        std::int32_t head_dim) {
  return rows * quantize_row_blocks(heads * head_dim);
}

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

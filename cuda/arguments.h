// What the kernels take, one struct a kernel: filled by the host (cuda/backend/), read by device
// code. Layouts are drawn above the kernels in cuda/kernels/.
//
// R is the number of rows of a pass. Matrices are row by row; `[a][b]` names extents, the last one
// runs fastest. Pointers are 16-byte aligned unless said otherwise, and may be null only where
// said.
#pragma once

#include <cstdint>

#include "cuda/simt.h"

namespace sluice::cuda {

using simt::Global;

// -- Activations ---------------------------------------------------------------------------------

// int8 activations: x[r][c] ~= q[r][c] * scale[r][c / 32]; cols is a multiple of 32.
struct QuantizedRows {
  Global<const std::int8_t> q;      // [rows][cols]
  Global<const float> scale;        // [rows][cols / 32]
  Global<const std::uint32_t> sum;  // [rows][cols / 32]: sums of the codes of both halves of a
                                    // group, 16 bits each with sign, the first half's low
};
// The same, to be written. Where q is null the others are too, and nobody wants them.
struct QuantizedOut {
  Global<std::int8_t> q;
  Global<float> scale;
  Global<std::uint32_t> sum;
};

// kernels/quantize.cuh: activations to int8.
struct QuantizeArgs {
  Global<const float> x;
  QuantizedOut out;       // [rows][cols]
  std::int64_t x_stride;  // floats between rows, a multiple of 4
  std::int32_t cols;      // a multiple of 32
};

// kernels/norm.cuh: adds a result to the residual stream and normalises the sum, row by row:
//   hidden += add_norm(add + add_bias)      where there is something to add
//   normed  = norm(hidden), also quantized  where somebody wants it
struct NormArgs {
  Global<float> hidden;          // [rows][cols]
  Global<const float> add;       // [rows][cols]; null: nothing is added
  Global<const float> add_bias;  // [cols] or null
  Global<const float> add_norm;  // [cols], a norm of what is added; or null
  Global<const float> norm;      // [cols]; null: nothing is normalised
  Global<float> normed;          // [rows][cols] or null
  QuantizedOut quantized;        // [rows][cols], may be null; otherwise cols is a multiple of 32
  // Row i of `normed` and `quantized` comes from row `row[i]` of `hidden`, where given; then
  // nothing is added.
  Global<const std::int32_t> row;
  float epsilon;
  std::int32_t cols;
};

// kernels/activate.cuh: out = activation(gate) * up, also quantized.
struct ActivateArgs {
  Global<const float> gate;  // [rows][stride], the first `cols` are read
  Global<const float> up;    // [rows][stride]
  Global<float> out;         // [rows][cols] or null
  QuantizedOut quantized;    // [rows][cols], may be null; otherwise cols is a multiple of 32
  std::int64_t stride;       // floats between rows of gate and of up
  std::int32_t rows;
  std::int32_t cols;
  bool gelu;   // in its tanh form; otherwise silu
  bool pairs;  // gate and up alternate every 32 columns, gate first, and `up` is gate + 32; then
               // cols is a multiple of 32
};

// kernels/softcap.cuh: x = cap * tanh(x / cap), in place.
struct SoftcapArgs {
  Global<float> x;
  std::int64_t count;
  float cap;
};

// The most that kernels/top_logits.cuh gives of a row.
inline constexpr std::int32_t kMostTopLogits = 128;

// kernels/top_logits.cuh: the `count` largest logits of each row, in the order of their index.
struct TopLogitsArgs {
  Global<const float> logits;      // [rows][stride], the first `cols` count
  Global<std::int32_t> part_id;    // [rows][chunks][count]
  Global<std::uint32_t> part_key;  // [rows][chunks][count]
  Global<std::int32_t> id;         // [rows][count]
  Global<float> logit;             // [rows][count]
  std::int64_t stride;
  std::int32_t cols;   // more than 0
  std::int32_t count;  // 1 to most_selected(cols)
};

// -- Matrices times rows -------------------------------------------------------------------------

// Rows that go through the same expert, see ExpertArgs.
struct ExpertItem {
  std::int32_t expert;
  std::int32_t first;  // index of the first row in the order of experts
  std::int32_t count;  // 0: nothing to do
};

// kernels/matvec*.cuh, kernels/gemm.cuh: out[r][n] = sum over k of weight[n][k] * x[r][k].
struct MatvecArgs {
  Global<const std::uint8_t> weights;  // packed, cuda/weight_tiles.h
  QuantizedRows x;                     // [x_rows][cols]
  Global<float> out;                   // [x_rows][out_stride], the first `rows` are written
  std::int64_t out_stride;
  std::int32_t rows;    // of the matrix
  std::int32_t cols;    // a multiple of 32, of 256 for K types
  std::int32_t x_rows;  // the kernel says how many it can do

  // Mixture of experts: `weights` holds the experts' matrices, `expert_bytes` apart. Item i does
  // rows [first, first + count) of `out`; row j's activations are row x_row[j] of x, row j itself
  // where x_row is null. x_rows is the most rows that an item has. Null: no experts.
  Global<const ExpertItem> items;
  Global<const std::int32_t> x_row;
  std::int64_t expert_bytes;
};

// kernels/gated.cuh: out[r][n] = activation(gate[n] x[r]) * (up[n] x[r]), quantized. `product` has
// the tiles of both matrices in turn; its `rows` are those of one, a multiple of 32, and its `out`
// is not used.
struct GatedArgs {
  MatvecArgs product;
  QuantizedOut out;  // [x_rows][rows]
  bool gelu;         // as in ActivateArgs
};

enum class FloatType : std::uint8_t { kF32, kF16, kBF16 };

// kernels/matvec_float.cuh: the same with weights and activations of floats.
struct MatvecFloatArgs {
  Global<const std::uint8_t> weights;  // [rows][cols] of `type`, as in the file
  Global<const float> x;               // [x_rows][x_stride]
  Global<float> out;                   // [x_rows][out_stride]
  std::int64_t x_stride;
  std::int64_t out_stride;
  std::int32_t rows;
  std::int32_t cols;  // any number
  std::int32_t x_rows;
  FloatType type;
  // As in MatvecArgs.
  Global<const ExpertItem> items;
  Global<const std::int32_t> x_row;
  std::int64_t expert_bytes;
};

// -- Mixture of experts --------------------------------------------------------------------------

// kernels/experts.cuh: the best experts of each row, and the rows in the order of their experts.
// A row with its rank-th expert is a pair, number row * used + rank.
struct ExpertArgs {
  Global<float> router;         // [rows][experts] logits; becomes their softmax
  Global<float> weight;         // [rows][used]: of each pair, a row's add up to one
  Global<std::int32_t> expert;  // [rows][used]
  Global<std::int32_t> place;   // [rows][used]: where a pair stands in the order of experts
  Global<std::int32_t> x_row;   // [rows * used]: the row of the pair that stands there
  Global<ExpertItem> items;     // [item_count], unused ones with count 0
  std::int32_t item_count;      // at least min(experts, pairs) + pairs / item_rows
  std::int32_t item_rows;       // the most rows of an item
  std::int32_t rows;
  std::int32_t experts;
  std::int32_t used;
};

// result[r] = sum over ranks k, in sequence, of weight[r][k] * in[place[r][k]].
struct ExpertSumArgs {
  Global<const float> in;            // [rows * used][cols]
  Global<const float> weight;        // [rows][used]
  Global<const std::int32_t> place;  // [rows][used]
  Global<float> result;              // [rows][cols]
  std::int32_t rows;
  std::int32_t cols;
  std::int32_t used;
};

// -- Attention -----------------------------------------------------------------------------------

// A pair of values of a key head whose bias stays out of the cache
// (src/backend/cpu/key_outliers.h).
struct OutlierPair {
  std::int32_t first;  // index within the head; -1: no pair (lists are filled up with these)
  std::int32_t second;
  float bias_first;
  float bias_second;
};

// Large key biases of a layer; `most` 0 and null pointers where there are none.
struct OutlierArgs {
  Global<const OutlierPair> pairs;  // [kv_heads][most]
  Global<const float> table;        // [kv_heads][most][2][positions]: cosines, sines
  Global<float> coefficients;       // [R][heads][most][2], from kernels/rope.cuh
  std::int64_t positions;
  std::int32_t most;
};

// kernels/rope.cuh: biases, norms and rotation of queries and keys; queries as the kind of pages
// (cuda/kv_pages.h) wants them, quantized or as floats; keys and values into the cache.
struct RopeArgs {
  Global<const float> qkv;                // [R][(heads + 2 kv_heads) * head_dim]
  Global<const float> bias;               // [(heads + 2 kv_heads) * head_dim] or null
  Global<const float> query_norm;         // [head_dim] or null
  Global<const float> key_norm;           // [head_dim] or null
  Global<const float> cosine;             // [R][rope_dims / 2]
  Global<const float> sine;               // [R][rope_dims / 2]
  Global<const std::int32_t> position;    // [R]
  Global<const std::uint32_t> row_block;  // [R]: the block, or slot, of the row's position
  Global<std::int8_t> q;                  // [R][heads][padded_dim], Int8Pages
  Global<float> q_scale;                  // [R][heads][padded_dim / 32], Int8Pages
  Global<float> q_floats;                 // [R][heads][padded_dim], HalfPages
  Global<std::uint8_t> cache;             // this layer's blocks or slots, cuda/kv_pages.h
  OutlierArgs outliers;
  std::int32_t rows;
  std::int32_t heads;
  std::int32_t kv_heads;
  std::int32_t head_dim;   // padded_dim is the next multiple of 32; at most 256
  std::int32_t rope_dims;  // even
  bool interleaved;        // pairs (2i, 2i + 1), not (i, i + rope_dims / 2)
  float epsilon;
};

// kernels/quantize_pages.cuh: a block of an int4 cache that a pass fills, and where it is in f16.
struct FullBlock {
  std::uint32_t block;
  std::uint32_t slot;
};
struct QuantizePagesArgs {
  Global<const FullBlock> blocks;     // [count]
  Global<const std::uint8_t> recent;  // this layer's slots, HalfPages
  Global<std::uint8_t> cache;         // this layer's blocks, Int4Pages
  std::int32_t count;
  std::int32_t kv_heads;
  std::int32_t head_dim;
};

// kernels/qkv.cuh: query, key and value matrices, or some of them, and RopeArgs' work on their
// results.
struct QkvArgs {
  // Whole heads, of a multiple of 32 rows. `out` is where rope.qkv has head `first_head`; no
  // experts.
  MatvecArgs product;
  RopeArgs rope;
  Global<std::uint32_t> arrivals;  // a word for each head of the product, 0 before and after
  std::int32_t first_head;
  bool half_pages;  // cuda/kv_pages.h: rows are written as f16 instead of int8
};

// Up to 16 query heads that see one sequence through one KV head. Rows of a pass that belong to
// one sequence are a run; its columns are (row, head of the group), column c is row
// first_row + c / group and head c % group.
struct AttentionTile {
  std::int32_t first_row;  // of the run
  std::int32_t column;     // the tile's first
  std::int32_t columns;    // 1 to 16
  std::int32_t table;      // where the sequence's blocks begin in `blocks`
};

// Where a row's heads are: head h of a group is column `column` + h, counted on through tiles.
struct AttentionRow {
  std::int32_t tile;
  std::int32_t column;  // within the tile
};

// kernels/attention.cuh: attention of query tiles over pieces of 256 tokens, and their merge.
struct AttentionArgs {
  Global<const std::int8_t> q;       // [R][heads][padded_dim], Int8Pages
  Global<const float> q_scale;       // [R][heads][padded_dim / 32], Int8Pages
  Global<const float> q_floats;      // [R][heads][padded_dim], HalfPages and Int4Pages
  Global<const std::uint8_t> cache;  // this layer's blocks
  // Int4Pages: this layer's slots of HalfPages, and which one has a row's own block. Rows of a run
  // have the same.
  Global<const std::uint8_t> recent;
  Global<const std::uint32_t> row_slot;  // [R]
  Global<const std::uint32_t> blocks;    // block tables, one behind the other
  Global<const AttentionTile> tiles;     // [tiles]
  Global<const AttentionRow> row;        // [R]
  Global<const std::int32_t> position;   // [R], ascending in a run; a row sees itself and before
  // A chunk is `chunk_pieces` pieces: 1, or all that there can be. Chunk 0 begins with the first
  // piece that the tile's first row sees; chunks that the tile does not see are not written.
  Global<float> partial_out;    // [tiles][kv_heads][chunks][16][padded_dim], not normalised
  Global<float> partial_state;  // [tiles][kv_heads][chunks][16][2]: maximum, sum
  // Merged: [R][heads * head_dim]; one may be null. Quantized: that is a multiple of 32.
  Global<float> out;
  QuantizedOut quantized;
  OutlierArgs outliers;
  std::int32_t rows;
  std::int32_t tile_count;
  std::int32_t chunks;
  std::int32_t chunk_pieces;
  std::int32_t heads;
  std::int32_t kv_heads;
  std::int32_t head_dim;
  std::int32_t window;  // tokens a row sees, itself included; 0: all
  float scale;          // of the scores
  float softcap;        // 0: none
};

}  // namespace sluice::cuda

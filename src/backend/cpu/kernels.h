// The CPU backend's arithmetic: one table of functions an instruction set. All tables give the same
// bits for the same input: `generic` is plain C++ and the oracle of the others.
//
// Fixed order of accumulation (what makes a row's result independent of batch, threads and tiles):
//  - quantized matmul: the dot product of a block (32 weights) is an exact int32; a row's float
//    accumulator then takes the blocks in sequence, acc = fma(w_scale * x_scale, float(dot), acc),
//    followed, for types with a minimum, by acc = fma(w_min * x_scale, float(x_sum), acc).
//    Types whose scale covers 16 weights do that once a half block, first half first.
//  - float matmul: acc = fma(w[k], x[k], acc) for k in sequence.
//  - sums over a vector (norms): 16 partial sums, element i in partial i % 16, added pairwise at
//  the
//    end: p[i] + p[i+8], then +4, +2, +1.
//  - attention: raw scores take dimensions (int8 keys: groups of 32) in sequence, values take
//    tokens in sequence; what 4-bit blocks do beside that is written down in kv_layout.h.
//  - exp is one polynomial, written with the same operations everywhere.
// No function uses a thread pool; callers split the work by row groups, rows or heads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "src/quant/block_type.h"

namespace sluice::cpu {

inline constexpr std::uint32_t kRowGroup = 16;    // weight rows interleaved in a packed matrix
inline constexpr std::uint32_t kQuantGroup = 32;  // activations that share a scale
inline constexpr std::uint32_t kKvBlock = 32;     // tokens in a block of the KV cache
inline constexpr std::uint32_t kKvPiece = 256;    // tokens that share a softmax pass; fixed split

// A weight matrix in kernel layout (see pack.h): rows in groups of kRowGroup, the last one padded
// with zero rows. Does not own its bytes.
struct PackedMatrix {
  BlockType type = BlockType::kF32;  // what it was packed from
  std::uint32_t rows = 0;
  std::uint32_t cols = 0;  // a multiple of 32 for quantized types, any number for F32, F16, BF16
  const std::byte* data = nullptr;  // 64-byte aligned
  std::uint32_t groups() const { return (rows + kRowGroup - 1) / kRowGroup; }
};

// Activations of some rows, quantized: x[r][c] ~= q[r][c] * scale[r][c / 32], scale = max|x| / 127,
// q rounded to nearest even; an all-zero group has scale 0. Does not own its memory.
struct QuantizedRows {
  std::uint32_t rows = 0;
  std::uint32_t cols = 0;       // a multiple of 32
  std::int8_t* q = nullptr;     // [rows][cols], 64-byte aligned rows when cols % 64 == 0
  float* scale = nullptr;       // [rows][cols / 32]
  std::int32_t* sum = nullptr;  // [rows][cols / 32][2]: sums of q over each half group of 16
};

enum class KvType : std::uint8_t { kInt8, kF16, kF32, kInt4 };

// One layer's share of one KV block for one head holds kKvBlock keys, then kKvBlock values. Byte
// sizes and the layout are documented in kv_layout.h.
struct KvLayout {
  KvType type = KvType::kInt8;  // kInt4: of whole blocks; until it is full, a block is kF16
  std::uint32_t head_dim = 0;
  std::uint32_t padded_dim() const { return (head_dim + 31) / 32 * 32; }
  std::size_t key_bytes() const;    // of one block and head, a multiple of 64
  std::size_t value_bytes() const;  // of one block and head, a multiple of 64
  std::size_t head_bytes() const { return key_bytes() + value_bytes(); }
};

// Attention of one KV head for `rows` query rows of one sequence over one piece of the context.
struct AttentionTask {
  KvLayout layout;
  // Blocks of the piece: pointers to this layer's and head's bytes, kKvPiece / kKvBlock of them
  // (entries past the last visible token may be null).
  const std::byte* const* blocks = nullptr;
  // kInt4: the one of `blocks` that has the kF16 layout, or a number past them; rows see tokens of
  // the blocks before it and of it, so all rows of a task have their own position in one block.
  std::uint32_t f16_block = kKvPiece / kKvBlock;
  std::uint32_t piece_start =
      0;  // absolute position of the piece's first token, multiple of kKvPiece
  std::uint32_t rows = 0;
  std::uint32_t heads = 0;  // query heads that share the KV head
  // Query vectors [rows][heads][head_dim], row stride in floats; not yet scaled.
  const float* query = nullptr;
  std::size_t query_stride = 0;
  // Visible positions of each row: [first[r], last[r]], may lie partly or wholly outside the piece.
  const std::uint32_t* first = nullptr;
  const std::uint32_t* last = nullptr;
  float scale = 1.0f;    // of the scores
  float softcap = 0.0f;  // score = softcap * tanh(score / softcap) when > 0
  // A constant part of the keys that is kept out of the cache (large key biases): adds
  // sum over i < outliers of coeff[r][h][i][0] * table[i][0][pos] + coeff[r][h][i][1] *
  // table[i][1][pos] to the raw score, i in sequence, by fma.
  std::uint32_t outliers = 0;
  const float* coeff = nullptr;  // [rows][heads][outliers][2]
  const float* table = nullptr;  // [outliers][2][table_stride], indexed by absolute position
  std::size_t table_stride = 0;
  // Running softmax state, updated: maximum [rows][heads] (starts at -inf), sum [rows][heads]
  // (starts at 0) and the unnormalised output [rows][heads][head_dim] (starts at 0).
  float* maximum = nullptr;
  float* sum = nullptr;
  float* output = nullptr;
  std::size_t output_stride = 0;  // floats between rows of `output`
};

struct Kernels {
  std::string_view name;  // "generic", "avx2", "avx512"
  bool (*supported)();    // on this machine

  // Quantizes rows of floats, [rows][cols] with a stride in floats. cols is a multiple of 32.
  void (*quantize_rows)(const float* x, std::size_t stride, QuantizedRows out);

  // out[r][row] = dot(w[row], x[r]) for the weight rows of groups [group_begin, group_end), every
  // x row. out has a stride in floats; rows past w.rows are not written. For quantized types.
  void (*matmul)(const PackedMatrix& w, std::uint32_t group_begin, std::uint32_t group_end,
                 const QuantizedRows& x, float* out, std::size_t out_stride);
  // The same for F32, F16 and BF16 weights with float activations [rows][cols].
  void (*matmul_float)(const PackedMatrix& w, std::uint32_t group_begin, std::uint32_t group_end,
                       const float* x, std::size_t x_stride, std::uint32_t rows, float* out,
                       std::size_t out_stride);

  // out = x * rsqrt(mean(x^2) + eps) * weight, over n values. weight may be null (all ones).
  void (*rms_norm)(const float* x, const float* weight, std::uint32_t n, float eps, float* out);
  // out[i] = silu(gate[i]) * up[i]; the second with gelu in its tanh form.
  void (*silu_mul)(const float* gate, const float* up, std::size_t n, float* out);
  void (*gelu_mul)(const float* gate, const float* up, std::size_t n, float* out);
  // x[i] += y[i].
  void (*add)(float* x, const float* y, std::size_t n);
  // Rotates pairs of a head in place. interleaved: pairs (2i, 2i+1); otherwise (i, i + dims / 2).
  // cos and sin have dims / 2 entries; values past dims stay.
  void (*rope)(float* x, std::uint32_t dims, bool interleaved, const float* cos, const float* sin);

  // Stores one token's key and value of one head in slot `slot` (< kKvBlock) of a block; not kInt4.
  void (*store_kv)(const KvLayout& layout, const float* key, const float* value, std::uint32_t slot,
                   std::byte* block);
  // Makes the kInt4 form of a full block, one head of it, of its kF16 form.
  void (*quantize_kv)(std::uint32_t head_dim, const std::byte* f16_block, std::byte* block);
  // One piece of attention, see AttentionTask; pieces of a row must be done in ascending order.
  void (*attention)(const AttentionTask& task);
  // Multiplies bytes and adds the products up, in registers, `rounds` times; returns how many
  // multiplications and additions that were. A measure of what matmul could reach.
  std::uint64_t (*byte_products)(std::uint64_t rounds);
  // Softmax in place over n values (experts), maximum subtracted.
  void (*softmax)(float* x, std::uint32_t n);
};

// All tables compiled in, slowest first.
std::span<const Kernels* const> all_kernels();
// The fastest table that this machine supports.
const Kernels& best_kernels();
// The table of a name, nullptr if there is none.
const Kernels* find_kernels(std::string_view name);

}  // namespace sluice::cpu

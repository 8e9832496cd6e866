// From the results of the query, key and value matrices to what attention reads: biases, norms and
// rotation, then what the kind of pages wants (cuda/kv_pages.h): int8 or floats for the queries, in
// the pass's memory, and int8 or f16 for keys and values, in the cache.
//
// A warp has a head of a row. Lane l has its dimensions l, l + 32, ..., so that a group of 32, a
// record's share, is one value of each lane:
//
//   head = | dimensions 0-31 | 32-63 | ...       lane l: x[i] = dimension 32 i + l, 0 past the head
//
// The operations are those of the CPU (src/backend/cpu/generic.cpp, generic_attention.cpp,
// key_outliers.cpp), and so the bits, but for the norm, whose sum of squares has an order of its
// own: lane l takes l, l + 32, ... by fma in sequence, then add_lanes. A rotation needs the other
// value of a pair, and outliers any two: the head passes through shared memory for both.
#pragma once

#include "cuda/arguments.h"
#include "cuda/kernels/math.cuh"
#include "cuda/kernels/quantize.cuh"
#include "cuda/kv_pages.h"

namespace sluice::cuda {

inline constexpr std::int32_t kRopeThreads = 128;
inline constexpr std::int32_t kRopeWarps = kRopeThreads / 32;
inline constexpr std::int32_t kRopeSharedBytes = kRopeWarps * kMaxHeadDim * 4;
static_assert(kRopeSharedBytes <= 48 * 1024);

// The grid: a warp for each head of each row.
SIMT_ANYWHERE std::int32_t rope_blocks(std::int32_t rows, std::int32_t heads,
                                       std::int32_t kv_heads) {
  return (rows * (heads + 2 * kv_heads) + kRopeWarps - 1) / kRopeWarps;
}

inline constexpr int kHeadGroups = kMaxHeadDim / 32;

struct Head {
  float x[kHeadGroups];  // see above
};

// Head `head` of a row, counted through queries, keys and values, with its bias.
SIMT_DEVICE Head load_head(const RopeArgs& args, std::int64_t row, std::int32_t head) {
  const auto lane = static_cast<std::int32_t>(simt::lane());
  const std::int64_t width = std::int64_t{args.heads + 2 * args.kv_heads} * args.head_dim;
  const std::int64_t first = std::int64_t{head} * args.head_dim;
  Head values = {};
  SIMT_UNROLL
  for (int i = 0; i < kHeadGroups; ++i) {
    const std::int32_t dim = 32 * i + lane;
    if (dim >= args.head_dim) continue;
    values.x[i] = simt::load(args.qkv + (row * width + first + dim));
    if (!simt::is_null(args.bias)) values.x[i] += simt::load(args.bias + (first + dim));
  }
  return values;
}

// x = x / sqrt(mean(x^2) + epsilon) * weight
SIMT_DEVICE void normalise_head(const RopeArgs& args, simt::Global<const float> weight,
                                Head& values) {
  const auto lane = static_cast<std::int32_t>(simt::lane());
  float squares = 0.0f;
  SIMT_UNROLL
  for (int i = 0; i < kHeadGroups; ++i) squares = simt::fma(values.x[i], values.x[i], squares);
  const float mean = add_lanes(squares) / static_cast<float>(args.head_dim);
  const float inverse = 1.0f / simt::square_root(mean + args.epsilon);
  SIMT_UNROLL
  for (int i = 0; i < kHeadGroups; ++i) {
    const std::int32_t dim = 32 * i + lane;
    if (dim < args.head_dim) values.x[i] = values.x[i] * inverse * simt::load(weight + dim);
  }
}

// Makes the head visible to all lanes of the warp, which has `staged` for itself.
SIMT_DEVICE void stage_head(const RopeArgs& args, const Head& values, simt::Shared<float> staged) {
  const auto lane = static_cast<std::int32_t>(simt::lane());
  simt::sync_warp();  // everyone has read what was staged before
  SIMT_UNROLL
  for (int i = 0; i < kHeadGroups; ++i) {
    if (32 * i + lane < args.head_dim) simt::store(staged + (32 * i + lane), values.x[i]);
  }
  simt::sync_warp();  // the head is staged
}

// Rotates pairs (a, b) of the first rope_dims dimensions: a cos - b sin, a sin + b cos.
SIMT_DEVICE void rotate_head(const RopeArgs& args, std::int64_t row, simt::Shared<float> staged,
                             Head& values) {
  const auto lane = static_cast<std::int32_t>(simt::lane());
  const std::int32_t pairs = args.rope_dims / 2;
  stage_head(args, values, staged);
  SIMT_UNROLL
  for (int i = 0; i < kHeadGroups; ++i) {
    const std::int32_t dim = 32 * i + lane;
    if (dim >= args.rope_dims) continue;
    const bool second = args.interleaved ? dim % 2 == 1 : dim >= pairs;
    const std::int32_t distance = args.interleaved ? 1 : pairs;
    const std::int32_t first = second ? dim - distance : dim;
    const std::int32_t pair = args.interleaved ? first / 2 : first;
    const float a = simt::load(staged + first);
    const float b = simt::load(staged + (first + distance));
    const float cosine = simt::load(args.cosine + (row * pairs + pair));
    const float sine = simt::load(args.sine + (row * pairs + pair));
    values.x[i] = second ? simt::fma(a, sine, b * cosine) : simt::fma(a, cosine, -(b * sine));
  }
}

// The outliers' share of scores, as factors of cosine and sine of each pair's angle.
SIMT_DEVICE void write_coefficients(const RopeArgs& args, std::int64_t row, std::int32_t head,
                                    simt::Shared<float> staged, const Head& values) {
  const OutlierArgs& outliers = args.outliers;
  const std::int32_t kv_head = head / (args.heads / args.kv_heads);
  stage_head(args, values, staged);
  for (auto i = static_cast<std::int32_t>(simt::lane()); i < outliers.most; i += 32) {
    const OutlierPair pair =
        simt::load(outliers.pairs + (std::int64_t{kv_head} * outliers.most + i));
    if (pair.first < 0) continue;
    const float a = simt::load(staged + pair.first);
    const float b = simt::load(staged + pair.second);
    const std::int64_t at = ((row * args.heads + head) * outliers.most + i) * 2;
    simt::store(outliers.coefficients + at, a * pair.bias_first + b * pair.bias_second);
    simt::store(outliers.coefficients + (at + 1), b * pair.bias_first - a * pair.bias_second);
  }
}

// -- int8 ----------------------------------------------------------------------------------------

// Quantized as activations are, see quantize_four.
SIMT_DEVICE void write_query(Int8Pages, const RopeArgs& args, std::int64_t row, std::int32_t head,
                             const Head& values) {
  const auto lane = static_cast<std::int32_t>(simt::lane());
  const std::int32_t groups = page_groups(args.head_dim);
  SIMT_UNROLL
  for (int i = 0; i < kHeadGroups; ++i) {
    if (i >= groups) break;
    const LaneCode quantized = quantize_lane(values.x[i]);  // what is not finite poisons the scores
    const std::int64_t group = (row * args.heads + head) * groups + i;
    simt::store(args.q + (group * 32 + lane), static_cast<std::int8_t>(quantized.code));
    if (lane == 0) simt::store(args.q_scale + group, quantized.scale);
  }
}

// Bits of an f16 that is max / 127 rounded up, as kv_scale_bits of src/backend/cpu/kv_layout.cpp.
SIMT_DEVICE std::uint32_t cache_scale(std::uint32_t max_bits) {
  if (max_bits >= 0x7f800000u) return 0x7e00u;  // NaN
  const float scale = simt::float_of_bits(max_bits) / 127.0f;
  const std::uint16_t nearest = simt::float_to_half(scale);
  const std::uint32_t bits = nearest + (simt::half_to_float(nearest) < scale ? 1u : 0u);
  return bits > 0x7bffu ? 0x7bffu : bits;  // the largest that is finite
}

// Writes a group of a key or value to its slot of a record.
SIMT_DEVICE void write_group(Int8Pages pages, simt::Global<std::uint8_t> record, std::int32_t slot,
                             bool is_value, float x) {
  const auto lane = static_cast<std::int32_t>(simt::lane());
  const std::uint32_t max_bits = largest_magnitude(x);
  const auto scale_bits = static_cast<std::uint16_t>(cache_scale(max_bits));
  const float scale = simt::half_to_float(scale_bits);
  std::uint32_t code = 0;
  if (max_bits < 0x7f800000u && scale != 0.0f) {
    float y = x * (1.0f / scale);
    y = y > 127.0f ? 127.0f : y;  // only beyond the largest scale
    y = y < -127.0f ? -127.0f : y;
    code = simt::float_bits(y + kRoundMagic) - simt::float_bits(kRoundMagic);
  }
  const std::int32_t at = is_value ? value_place(pages, slot, lane) : key_place(pages, slot, lane);
  simt::store(record + at, static_cast<std::uint8_t>(code));
  if (lane == 0) simt::store(simt::cast<std::uint16_t>(record + page_scale(slot)), scale_bits);
}

// -- f16 -----------------------------------------------------------------------------------------

SIMT_DEVICE void write_query(HalfPages, const RopeArgs& args, std::int64_t row, std::int32_t head,
                             const Head& values) {
  const auto lane = static_cast<std::int32_t>(simt::lane());
  const std::int32_t groups = page_groups(args.head_dim);
  SIMT_UNROLL
  for (int i = 0; i < kHeadGroups; ++i) {
    if (i >= groups) break;
    simt::store(args.q_floats + (((row * args.heads + head) * groups + i) * 32 + lane),
                values.x[i]);
  }
}

// To nearest even; what is beyond the largest f16 becomes infinity, as on the CPU.
SIMT_DEVICE void write_group(HalfPages pages, simt::Global<std::uint8_t> record, std::int32_t slot,
                             bool is_value, float x) {
  const auto lane = static_cast<std::int32_t>(simt::lane());
  const std::int32_t at = is_value ? value_place(pages, slot, lane) : key_place(pages, slot, lane);
  simt::store(simt::cast<std::uint16_t>(record + at), simt::float_to_half(x));
}

// -- The kernel ----------------------------------------------------------------------------------

// Writes a key or value to its slot of the cache.
template <class Pages>
SIMT_DEVICE void write_cache(const RopeArgs& args, std::int64_t row, std::int32_t kv_head,
                             bool is_value, const Head& values) {
  const std::int32_t groups = page_groups(args.head_dim);
  const std::uint32_t block = simt::load(args.row_block + row);
  const std::int32_t slot = simt::load(args.position + row) % kPageTokens;
  const simt::Global<std::uint8_t> records =
      args.cache + page_record<Pages>(block, args.kv_heads, args.head_dim, kv_head, is_value, 0);
  SIMT_UNROLL
  for (int i = 0; i < kHeadGroups; ++i) {
    if (i >= groups) break;
    write_group(Pages(), records + std::int64_t{i} * Pages::kRecord, slot, is_value, values.x[i]);
  }
}

// Head `head` of a row, counted through queries, keys and values, after bias, norm and rotation. A
// warp has a head, and room for one at `staged`.
SIMT_DEVICE Head rotated_head(const RopeArgs& args, std::int64_t row, std::int32_t head,
                              simt::Shared<float> staged) {
  Head values = load_head(args, row, head);
  if (head >= args.heads + args.kv_heads) return values;
  const bool is_query = head < args.heads;
  const simt::Global<const float> norm = is_query ? args.query_norm : args.key_norm;
  if (!simt::is_null(norm)) normalise_head(args, norm, values);
  rotate_head(args, row, staged, values);
  if (is_query && args.outliers.most > 0) write_coefficients(args, row, head, staged, values);
  return values;
}

// To where attention looks for it.
template <class Pages>
SIMT_DEVICE void store_head(const RopeArgs& args, std::int64_t row, std::int32_t head,
                            const Head& values) {
  if (head < args.heads) {
    write_query(Pages(), args, row, head, values);
  } else {
    const std::int32_t cached = head - args.heads;
    const bool is_value = cached >= args.kv_heads;
    write_cache<Pages>(args, row, is_value ? cached - args.kv_heads : cached, is_value, values);
  }
}

template <class Pages>
SIMT_KERNEL(kRopeThreads)
rope_and_store(RopeArgs args) {
  simt::wait_for_previous();
  const std::int32_t all_heads = args.heads + 2 * args.kv_heads;
  const auto warp = static_cast<std::int32_t>(simt::warp());
  const auto unit = static_cast<std::int32_t>(simt::block_index()) * kRopeWarps + warp;
  if (unit >= args.rows * all_heads) return;  // whole warps; nothing below waits for others
  const std::int64_t row = unit / all_heads;
  const std::int32_t head = unit % all_heads;
  const simt::Shared<float> staged = simt::cast<float>(simt::dynamic_shared()) + warp * kMaxHeadDim;
  store_head<Pages>(args, row, head, rotated_head(args, row, head, staged));
}

}  // namespace sluice::cuda

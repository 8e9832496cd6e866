// From blocks of f16 keys and values that are full to blocks of 4 bits (cuda/kv_pages.h).
//
// A warp has a record: 32 rows of 32 numbers, tokens by dimensions for keys, dimensions by tokens
// for values. Lane l has column l, whose numbers share a scale and a middle; it goes through the
// rows in sequence. The operations are those of the CPU (generic_attention.cpp), and so the bits.
// The codes pass through shared memory, [32 rows][36] bytes, from the lanes that have a column to
// those that have the bytes of a fragment:
//
//   byte 16 h + 4 t + b of a row   byte b of lane t's word of plane h, see value_place, key_place
//
// Rows of values past the head's last dimension do not count and have the code 8, as do columns of
// keys, which are zeros.
#pragma once

#include "cuda/arguments.h"
#include "cuda/kernels/math.cuh"
#include "cuda/kv_pages.h"

namespace sluice::cuda {

inline constexpr std::int32_t kQuantizePageThreads = 128;
inline constexpr std::int32_t kQuantizePageWarps = kQuantizePageThreads / 32;
inline constexpr std::int32_t kCodeRow = 36;  // bytes; 4 more spread the banks
inline constexpr std::int32_t kQuantizePageShared = kQuantizePageWarps * 32 * kCodeRow;

// The grid: a warp for each record of each block.
SIMT_ANYWHERE std::int64_t quantize_page_blocks(std::int32_t blocks, std::int32_t kv_heads,
                                                std::int32_t head_dim) {
  const std::int64_t records = std::int64_t{2} * blocks * kv_heads * page_groups(head_dim);
  return (records + kQuantizePageWarps - 1) / kQuantizePageWarps;
}

// What the numbers of a column share: bits of f16, and what makes codes of them.
struct Int4Range {
  std::uint16_t scale;
  std::uint16_t middle;
};
// int4_range of src/backend/cpu/kv_layout.cpp.
SIMT_DEVICE Int4Range int4_range(float min, float max) {
  const float scale = (max - min) / 15.0f + 0.0f;  // one zero
  std::uint16_t bits = simt::float_to_half(scale);
  if (simt::half_to_float(bits) < scale) ++bits;
  return {bits, simt::float_to_half(0.5f * ((min + max) + simt::half_to_float(bits)))};
}

// The numbers of this lane's column, `count` rows of it.
SIMT_DEVICE float column_number(simt::Global<const std::uint16_t> record, std::int32_t row) {
  const auto lane = static_cast<std::int32_t>(simt::lane());
  return simt::half_to_float(simt::load(record + (32 * row + lane)));
}
SIMT_DEVICE Int4Range column_range(simt::Global<const std::uint16_t> record, std::int32_t count) {
  float min = column_number(record, 0);
  float max = min;
  std::uint32_t most_bits = 0;  // of a magnitude; NaN and infinity are the largest
  for (std::int32_t row = 0; row < count; ++row) {
    const float x = column_number(record, row);
    const std::uint32_t magnitude = simt::float_bits(x) & 0x7fffffffu;
    if (magnitude > most_bits) most_bits = magnitude;
    min = x < min ? x : min;
    max = x > max ? x : max;
  }
  if (most_bits >= 0x7f800000u) return {0x7e00, 0x7e00};  // poisons what it has to do with
  return int4_range(min, max);
}

SIMT_DEVICE std::uint32_t int4_code(float x, float middle, float inverse) {
  float y = (x - middle) * inverse;
  y = y > 7.0f ? 7.0f : y;
  y = y < -8.0f ? -8.0f : y;
  return simt::float_bits(y + kRoundMagic) - simt::float_bits(kRoundMagic) + 8;
}

// Codes of this lane's column to shared memory; `at` is where its byte of a row is.
SIMT_DEVICE void stage_codes(simt::Global<const std::uint16_t> record, std::int32_t count,
                             const Int4Range& range, simt::Shared<std::uint8_t> at) {
  const float scale = simt::half_to_float(range.scale);
  const float middle = simt::half_to_float(range.middle);
  const bool has_codes = scale > 0.0f;  // neither 0 nor NaN
  const float inverse = has_codes ? 1.0f / scale : 0.0f;
  for (std::int32_t row = 0; row < 32; ++row) {
    const bool counts = has_codes && row < count;
    const std::uint32_t code = counts ? int4_code(column_number(record, row), middle, inverse) : 8u;
    simt::store(at + row * kCodeRow, static_cast<std::uint8_t>(code));
  }
}

SIMT_DEVICE void quantize_record(simt::Global<const std::uint8_t> from, bool is_value,
                                 std::int32_t count, simt::Shared<std::uint8_t> codes,
                                 simt::Global<std::uint8_t> to) {
  const auto lane = static_cast<std::int32_t>(simt::lane());
  const simt::Global<const std::uint16_t> numbers = simt::cast<const std::uint16_t>(from);
  const std::int32_t byte =
      is_value ? 16 * (lane / 16) + 4 * (lane % 8 / 2) + 2 * (lane % 16 / 8) + lane % 2 : lane;
  const Int4Range range = column_range(numbers, count);
  stage_codes(numbers, count, range, codes + byte);
  const std::int32_t number = 2 * (is_value ? token_number(lane) : dim_number(lane));
  simt::store(simt::cast<std::uint16_t>(to + (Int4Pages::kScales + number)), range.scale);
  simt::store(simt::cast<std::uint16_t>(to + (Int4Pages::kMiddles + number)), range.middle);
  simt::sync_warp();  // the codes of all columns are there
  simt::Words words;
  SIMT_UNROLL
  for (int j = 0; j < 4; ++j) {
    const simt::Shared<std::uint32_t> row =
        simt::cast<std::uint32_t>(codes + ((8 * j + lane / 4) * kCodeRow + 4 * (lane % 4)));
    words.word[j] = simt::load(row) | simt::load(row + 4) << 4;
  }
  simt::store_words(to + 16 * lane, words);
}

SIMT_KERNEL(kQuantizePageThreads) quantize_pages(QuantizePagesArgs args) {
  simt::wait_for_previous();
  const std::int32_t groups = page_groups(args.head_dim);
  const auto warp = static_cast<std::int32_t>(simt::warp());
  const std::int64_t unit = std::int64_t{simt::block_index()} * kQuantizePageWarps + warp;
  const std::int32_t of_block = 2 * args.kv_heads * groups;  // records, one behind the other
  if (unit >= std::int64_t{args.count} * of_block) return;   // the whole warp; no barriers below
  const FullBlock block = simt::load(args.blocks + unit / of_block);
  const auto record = static_cast<std::int32_t>(unit % of_block);
  const bool is_value = record / groups % 2 == 1;
  const std::int32_t dims = args.head_dim - 32 * (record % groups);
  const auto at = [&](std::uint32_t number, std::int64_t page, std::int32_t record_bytes) {
    return number * page + std::int64_t{record} * record_bytes;
  };
  quantize_record(
      args.recent +
          at(block.slot, page_bytes<HalfPages>(args.kv_heads, args.head_dim), HalfPages::kRecord),
      is_value, is_value && dims < 32 ? dims : 32, simt::dynamic_shared() + warp * 32 * kCodeRow,
      args.cache +
          at(block.block, page_bytes<Int4Pages>(args.kv_heads, args.head_dim), Int4Pages::kRecord));
}

}  // namespace sluice::cuda

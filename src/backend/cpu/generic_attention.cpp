// Attention and the KV cache in plain C++, one query at a time.
#include <cmath>
#include <cstring>

#include "src/backend/cpu/generic.h"
#include "src/backend/cpu/kv_layout.h"
#include "src/backend/cpu/math.h"
#include "src/base/half.h"

namespace sluice::cpu {
namespace {

template <class T>
T load(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}
template <class T>
void store(std::byte* p, T value) {
  std::memcpy(p, &value, sizeof value);
}

float load_half(const std::byte* p) { return half_to_float(load<std::uint16_t>(p)); }

float load_float(KvType type, const std::byte* base, std::size_t index) {
  return type == KvType::kF16 ? load_half(base + 2 * index) : load<float>(base + 4 * index);
}
void store_float(KvType type, std::byte* base, std::size_t index, float value) {
  if (type == KvType::kF16) {
    store(base + 2 * index, float_to_half(value));
  } else {
    store(base + 4 * index, value);
  }
}

// Codes of one group of an int8 key or value; returns the bits of the scale.
std::uint16_t quantize_kv_group(const float* x, std::uint32_t count, std::int8_t (&q)[32]) {
  std::uint32_t max_bits = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t magnitude = bits_of(x[i]) & 0x7fffffffu;
    if (magnitude > max_bits) max_bits = magnitude;
  }
  std::memset(q, 0, 32);
  const std::uint16_t scale_bits = kv_scale_bits(max_bits);
  const float scale = half_to_float(scale_bits);
  if (max_bits >= kInfinityBits || scale == 0.0f) return scale_bits;
  const float inverse = 1.0f / scale;
  for (std::uint32_t i = 0; i < count; ++i) {
    float y = x[i] * inverse;
    y = y > 127.0f ? 127.0f : y;  // only beyond the largest f16 scale
    y = y < -127.0f ? -127.0f : y;
    q[i] = static_cast<std::int8_t>(bits_of(y + kRoundMagic) - bits_of(kRoundMagic));
  }
  return scale_bits;
}

// Codes of up to 32 numbers of a block that share a scale and a middle, 8 behind them.
Int4Range quantize_int4_group(const float* x, std::uint32_t count, std::uint8_t (&codes)[32]) {
  std::memset(codes, 8, 32);
  float min = x[0], max = x[0];
  for (std::uint32_t i = 0; i < count; ++i) {
    if ((bits_of(x[i]) & 0x7fffffffu) >= kInfinityBits) return kInt4NotFinite;
    min = x[i] < min ? x[i] : min;
    max = x[i] > max ? x[i] : max;
  }
  const Int4Range range = int4_range(min, max);
  if (range.scale == 0) return range;
  const float inverse = 1.0f / half_to_float(range.scale);
  const float middle = half_to_float(range.middle);
  for (std::uint32_t i = 0; i < count; ++i) {
    float y = (x[i] - middle) * inverse;
    y = y > 7.0f ? 7.0f : y;
    y = y < -8.0f ? -8.0f : y;
    codes[i] = static_cast<std::uint8_t>(bits_of(y + kRoundMagic) - bits_of(kRoundMagic) + 8);
  }
  return range;
}

std::uint32_t nibble(const std::byte* byte, std::uint32_t dim) {
  const auto both = std::to_integer<std::uint32_t>(*byte);
  return dim % 32 < 16 ? both & 15 : both >> 4;
}
void set_nibble(std::byte* byte, std::uint32_t dim, std::uint8_t code) {
  const std::uint32_t other = nibble(byte, dim + 16);
  *byte = static_cast<std::byte>(dim % 32 < 16 ? other << 4 | code : code << 4 | other);
}

// One query head, prepared for the type of the keys.
struct Query {
  const float* x;
  float base;  // of all scores of an int4 block
  alignas(64) std::int8_t q[kMaxHeadDim];
  float scale[kMaxHeadDim / 32];
};

void prepare(const KvLayout& layout, const float* x, Query& query) {
  query.x = x;
  if (layout.type != KvType::kInt8) return;
  for (std::uint32_t d = 0; d < layout.head_dim; d += 32) {
    const std::uint32_t count = layout.head_dim - d < 32 ? layout.head_dim - d : 32;
    query.scale[d / 32] = generic_quantize_group(x + d, count, query.q + d);
  }
}

// The query for one block of int4 keys, whose scales go into its codes.
void prepare_int4(const KvLayout& layout, const std::byte* block, Query& query) {
  const std::uint32_t groups = layout.padded_dim() / 32;
  float partial[16] = {};
  for (std::uint32_t g = 0; g < groups; ++g) {
    float scaled[32];
    for (std::uint32_t i = 0; i < 32; ++i) {
      const std::uint32_t d = 32 * g + i;
      const float q = d < layout.head_dim ? query.x[d] : 0.0f;
      const float middle = load_half(block + int4_key_middle_offset(groups, d));
      partial[d % 16] = __builtin_fmaf(q, middle, partial[d % 16]);
      scaled[i] = q * load_half(block + int4_key_scale_offset(groups, d));
    }
    query.scale[g] = generic_quantize_group(scaled, 32, query.q + std::size_t{32} * g);
  }
  query.base = sum_partials(partial);
}

float int4_raw_score(const KvLayout& layout, const Query& query, const std::byte* block,
                     std::uint32_t slot) {
  const std::uint32_t groups = layout.padded_dim() / 32;
  float raw = query.base;
  for (std::uint32_t g = 0; g < groups; ++g) {
    std::int32_t dot = 0;
    for (std::uint32_t d = 32 * g; d < 32 * g + 32; ++d) {
      const auto code =
          static_cast<std::int32_t>(nibble(block + int4_key_offset(groups, slot, d), d));
      dot += (code - 8) * query.q[d];
    }
    raw = __builtin_fmaf(query.scale[g], static_cast<float>(dot), raw);
  }
  return raw;
}

float raw_score(const KvLayout& layout, const Query& query, const std::byte* block,
                std::uint32_t slot) {
  float raw = 0.0f;
  if (layout.type == KvType::kInt8) {
    const std::uint32_t groups = layout.padded_dim() / 32;
    for (std::uint32_t g = 0; g < groups; ++g) {
      std::int32_t dot = 0;
      for (std::uint32_t d = 32 * g; d < 32 * g + 32; ++d)
        dot += load<std::int8_t>(block + key_code_offset(groups, slot, d)) * query.q[d];
      const float scale = load_half(block + key_scale_offset(groups, slot, g));
      raw = __builtin_fmaf(query.scale[g] * scale, static_cast<float>(dot), raw);
    }
    return raw;
  }
  for (std::uint32_t d = 0; d < layout.head_dim; ++d)
    raw = __builtin_fmaf(load_float(layout.type, block, std::size_t{d} * kKvBlock + slot),
                         query.x[d], raw);
  return raw;
}

// The sum of the visible values of a piece in dimension d, weighted.
float weigh_values(const AttentionTask& task, const float* p, std::uint32_t begin,
                   std::uint32_t end, std::uint32_t d) {
  const KvLayout& layout = task.layout;
  const std::uint32_t groups = layout.padded_dim() / 32;
  float acc = 0.0f;
  for (std::uint32_t t = begin; t < end; ++t) {
    const std::byte* values = task.blocks[t / kKvBlock] + layout.key_bytes();
    const std::uint32_t slot = t % kKvBlock;
    const std::size_t index = std::size_t{slot} * layout.padded_dim() + d;
    if (layout.type == KvType::kInt8) {
      const float scale = load_half(values + value_scale_offset(groups, slot, d / 32));
      acc =
          __builtin_fmaf(p[t] * scale, static_cast<float>(load<std::int8_t>(values + index)), acc);
    } else {
      acc = __builtin_fmaf(p[t], load_float(layout.type, values, index), acc);
    }
  }
  return acc;
}

float weigh_int4_values(const AttentionTask& task, const float* p, std::uint32_t begin,
                        std::uint32_t end, std::uint32_t d) {
  const KvLayout f16{KvType::kF16, task.layout.head_dim};
  const std::uint32_t groups = f16.padded_dim() / 32;
  float acc = 0.0f;
  float base[16] = {};
  for (std::uint32_t t = begin; t < end; ++t) {
    const std::uint32_t slot = t % kKvBlock;
    if (t / kKvBlock == task.f16_block) {
      const std::byte* values = task.blocks[t / kKvBlock] + f16.key_bytes();
      acc = __builtin_fmaf(
          p[t], load_float(KvType::kF16, values, std::size_t{slot} * f16.padded_dim() + d), acc);
      continue;
    }
    const std::byte* values = task.blocks[t / kKvBlock] + task.layout.key_bytes();
    const float scale = load_half(values + int4_value_scale_offset(groups, slot, d / 32));
    const float middle = load_half(values + int4_value_middle_offset(groups, slot, d / 32));
    const auto code =
        static_cast<std::int32_t>(nibble(values + int4_value_offset(groups, slot, d), d));
    acc = __builtin_fmaf(p[t] * scale, static_cast<float>(code - 8), acc);
    base[t % 16] = __builtin_fmaf(p[t], middle, base[t % 16]);
  }
  return acc + sum_partials(base);
}

void attend(const AttentionTask& task, std::uint32_t r, std::uint32_t h, Query& query) {
  const KvLayout& layout = task.layout;
  const bool int4 = layout.type == KvType::kInt4;
  const std::uint32_t piece_last = task.piece_start + kKvPiece - 1;
  if (task.first[r] > piece_last || task.last[r] < task.piece_start) return;
  // Visible tokens, as offsets into the piece.
  const std::uint32_t begin =
      task.first[r] > task.piece_start ? task.first[r] - task.piece_start : 0;
  const std::uint32_t end =
      (task.last[r] < piece_last ? task.last[r] : piece_last) - task.piece_start + 1;

  prepare(layout, task.query + r * task.query_stride + std::size_t{h} * layout.head_dim, query);
  const std::size_t rh = std::size_t{r} * task.heads + h;
  const float inverse_cap = task.softcap > 0.0f ? 1.0f / task.softcap : 0.0f;
  float p[kKvPiece];
  float max = -INFINITY;
  for (std::uint32_t t = begin; t < end; ++t) {
    const std::byte* block = task.blocks[t / kKvBlock];
    const bool quantized = int4 && t / kKvBlock != task.f16_block;
    if (quantized && (t == begin || t % kKvBlock == 0)) prepare_int4(layout, block, query);
    float s = quantized ? int4_raw_score(layout, query, block, t % kKvBlock)
                        : raw_score(int4 ? KvLayout{KvType::kF16, layout.head_dim} : layout, query,
                                    block, t % kKvBlock);
    for (std::uint32_t i = 0; i < task.outliers; ++i) {
      const float* c = task.coeff + (rh * task.outliers + i) * 2;
      const float* table = task.table + 2 * i * task.table_stride + task.piece_start + t;
      s = __builtin_fmaf(c[0], table[0], s);
      s = __builtin_fmaf(c[1], table[task.table_stride], s);
    }
    s *= task.scale;
    if (task.softcap > 0.0f) s = task.softcap * scalar_tanh(s * inverse_cap);
    p[t] = s;
    max = s > max ? s : max;
  }
  max += 0.0f;
  float partial[16] = {};
  for (std::uint32_t t = begin; t < end; ++t) {
    p[t] = scalar_exp(p[t] - max);
    partial[t % 16] += p[t];
  }
  const float sum = sum_partials(partial);

  // Merge with the pieces before.
  const float old_max = task.maximum[rh];
  const float new_max = old_max > max ? old_max : max;
  const float old_factor = scalar_exp(old_max - new_max);
  const float new_factor = scalar_exp(max - new_max);
  task.maximum[rh] = new_max;
  task.sum[rh] = __builtin_fmaf(sum, new_factor, task.sum[rh] * old_factor);

  float* out = task.output + r * task.output_stride + std::size_t{h} * layout.head_dim;
  for (std::uint32_t d = 0; d < layout.head_dim; ++d) {
    const float acc =
        int4 ? weigh_int4_values(task, p, begin, end, d) : weigh_values(task, p, begin, end, d);
    out[d] = __builtin_fmaf(acc, new_factor, out[d] * old_factor);
  }
}

}  // namespace

void generic_store_kv(const KvLayout& layout, const float* key, const float* value,
                      std::uint32_t slot, std::byte* block) {
  std::byte* values = block + layout.key_bytes();
  if (layout.type == KvType::kInt8) {
    const std::uint32_t groups = layout.padded_dim() / 32;
    for (std::uint32_t g = 0; g < groups; ++g) {
      const std::uint32_t d0 = 32 * g;
      const std::uint32_t count = layout.head_dim - d0 < 32 ? layout.head_dim - d0 : 32;
      std::int8_t q[32];
      store(block + key_scale_offset(groups, slot, g), quantize_kv_group(key + d0, count, q));
      for (std::uint32_t j = 0; j < 8; ++j)
        std::memcpy(block + key_code_offset(groups, slot, d0 + 4 * j), q + 4 * j, 4);
      store(values + value_scale_offset(groups, slot, g), quantize_kv_group(value + d0, count, q));
      std::memcpy(values + std::size_t{slot} * layout.padded_dim() + d0, q, 32);
    }
    return;
  }
  for (std::uint32_t d = 0; d < layout.head_dim; ++d)
    store_float(layout.type, block, std::size_t{d} * kKvBlock + slot, key[d]);
  for (std::uint32_t d = 0; d < layout.padded_dim(); ++d)
    store_float(layout.type, values, std::size_t{slot} * layout.padded_dim() + d,
                d < layout.head_dim ? value[d] : 0.0f);
}

void generic_quantize_kv(std::uint32_t head_dim, const std::byte* f16_block, std::byte* block) {
  const KvLayout f16{KvType::kF16, head_dim};
  const KvLayout int4{KvType::kInt4, head_dim};
  const std::uint32_t padded = int4.padded_dim();
  const std::uint32_t groups = padded / 32;
  std::memset(block, 0, int4.head_bytes());
  std::uint8_t codes[32];
  float x[32];
  for (std::uint32_t d = 0; d < padded; ++d) {  // of all tokens
    for (std::uint32_t t = 0; t < kKvBlock; ++t)
      x[t] = d < head_dim ? load_half(f16_block + 2 * (std::size_t{d} * kKvBlock + t)) : 0.0f;
    const Int4Range range = quantize_int4_group(x, kKvBlock, codes);
    store(block + int4_key_scale_offset(groups, d), range.scale);
    store(block + int4_key_middle_offset(groups, d), range.middle);
    for (std::uint32_t t = 0; t < kKvBlock; ++t)
      set_nibble(block + int4_key_offset(groups, t, d), d, codes[t]);
  }
  const std::byte* from = f16_block + f16.key_bytes();
  std::byte* values = block + int4.key_bytes();
  for (std::uint32_t t = 0; t < kKvBlock; ++t) {
    for (std::uint32_t g = 0; g < groups; ++g) {
      const std::uint32_t count = head_dim - 32 * g < 32 ? head_dim - 32 * g : 32;
      for (std::uint32_t i = 0; i < count; ++i)
        x[i] = load_half(from + 2 * (std::size_t{t} * padded + 32 * g + i));
      const Int4Range range = quantize_int4_group(x, count, codes);
      store(values + int4_value_scale_offset(groups, t, g), range.scale);
      store(values + int4_value_middle_offset(groups, t, g), range.middle);
      for (std::uint32_t i = 0; i < 32; ++i)
        set_nibble(values + int4_value_offset(groups, t, 32 * g + i), 32 * g + i, codes[i]);
    }
  }
}

void generic_attention(const AttentionTask& task) {
  Query query;
  for (std::uint32_t r = 0; r < task.rows; ++r) {
    for (std::uint32_t h = 0; h < task.heads; ++h) attend(task, r, h, query);
  }
}

}  // namespace sluice::cpu

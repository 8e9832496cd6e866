// Plain C++: the oracle of the other tables, and what runs where they don't.
#include "src/backend/cpu/generic.h"

#include <cmath>
#include <cstring>

#include "src/backend/cpu/math.h"
#include "src/backend/cpu/pack.h"
#include "src/backend/cpu/pack_layout.h"
#include "src/base/half.h"

namespace sluice::cpu {

float generic_quantize_group(const float* x, std::uint32_t count, std::int8_t* q) {
  std::uint32_t max_bits = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t magnitude = bits_of(x[i]) & 0x7fffffffu;
    if (magnitude > max_bits) max_bits = magnitude;
  }
  std::memset(q, 0, 32);
  if (max_bits >= kInfinityBits) return float_of(0x7fc00000u);  // NaN: poisons, never hides
  const float max = float_of(max_bits);
  if (max < kTinyGroup) return 0.0f;
  const float inverse = 127.0f / max;
  for (std::uint32_t i = 0; i < count; ++i) {
    const float rounded = x[i] * inverse + kRoundMagic;
    q[i] = static_cast<std::int8_t>(bits_of(rounded) - bits_of(kRoundMagic));
  }
  return max / 127.0f;
}

namespace {

void quantize_rows(const float* x, std::size_t stride, QuantizedRows out) {
  const std::uint32_t blocks = out.cols / kQuantGroup;
  for (std::uint32_t r = 0; r < out.rows; ++r) {
    for (std::uint32_t b = 0; b < blocks; ++b) {
      const std::size_t at = std::size_t{r} * blocks + b;
      std::int8_t* q = out.q + at * kQuantGroup;
      out.scale[at] = generic_quantize_group(x + r * stride + b * kQuantGroup, kQuantGroup, q);
      for (std::uint32_t half = 0; half < 2; ++half) {
        std::int32_t sum = 0;
        for (std::uint32_t i = 0; i < 16; ++i) sum += q[16 * half + i];
        out.sum[2 * at + half] = sum;
      }
    }
  }
}

// acc += part of the dot product that shares scale and minimum.
void accumulate(const PackedBlock& w, std::uint32_t lane, std::uint32_t half, bool has_min,
                std::int32_t dot, std::int32_t x_sum, float x_scale, float& acc) {
  acc = __builtin_fmaf(w.scale[half][lane] * x_scale, static_cast<float>(dot), acc);
  if (has_min) acc = __builtin_fmaf(w.min[half][lane] * x_scale, static_cast<float>(x_sum), acc);
}

void matmul(const PackedMatrix& w, std::uint32_t group_begin, std::uint32_t group_end,
            const QuantizedRows& x, float* out, std::size_t out_stride) {
  const PackLayout layout = pack_layout(w.type);
  const std::size_t group_bytes = packed_group_bytes(w.type, w.cols);
  const std::uint32_t blocks = w.cols / kQuantGroup;
  PackedBlock block;
  for (std::uint32_t group = group_begin; group < group_end; ++group) {
    const std::uint32_t first = group * kRowGroup;
    const std::uint32_t lanes = w.rows - first < kRowGroup ? w.rows - first : kRowGroup;
    for (std::uint32_t r = 0; r < x.rows; ++r) {
      for (std::uint32_t lane = 0; lane < lanes; ++lane) out[r * out_stride + first + lane] = 0.0f;
    }
    for (std::uint32_t b = 0; b < blocks; ++b) {
      unpack_packed_block(w.type, w.data + group * group_bytes, b, block);
      for (std::uint32_t r = 0; r < x.rows; ++r) {
        const std::size_t at = std::size_t{r} * blocks + b;
        const std::int8_t* q = x.q + at * kQuantGroup;
        for (std::uint32_t lane = 0; lane < lanes; ++lane) {
          std::int32_t dot[2] = {0, 0};
          for (std::uint32_t i = 0; i < 16; ++i) {
            dot[0] += block.q[lane][i] * q[i];
            dot[1] += block.q[lane][16 + i] * q[16 + i];
          }
          const std::int32_t* sum = x.sum + 2 * at;
          float& acc = out[r * out_stride + first + lane];
          if (layout.block_scales == 2) {
            accumulate(block, lane, 0, layout.has_min, dot[0], sum[0], x.scale[at], acc);
            accumulate(block, lane, 1, layout.has_min, dot[1], sum[1], x.scale[at], acc);
          } else {
            accumulate(block, lane, 0, layout.has_min, dot[0] + dot[1], sum[0] + sum[1],
                       x.scale[at], acc);
          }
        }
      }
    }
  }
}

float element(const PackedMatrix& w, const std::byte* group, std::uint32_t col,
              std::uint32_t lane) {
  const std::size_t index = std::size_t{col} * kRowGroup + lane;
  if (w.type == BlockType::kF32) {
    float value;
    std::memcpy(&value, group + 4 * index, 4);
    return value;
  }
  std::uint16_t bits;
  std::memcpy(&bits, group + 2 * index, 2);
  return w.type == BlockType::kF16 ? half_to_float(bits) : bfloat_to_float(bits);
}

void matmul_float(const PackedMatrix& w, std::uint32_t group_begin, std::uint32_t group_end,
                  const float* x, std::size_t x_stride, std::uint32_t rows, float* out,
                  std::size_t out_stride) {
  const std::size_t group_bytes = packed_group_bytes(w.type, w.cols);
  for (std::uint32_t group = group_begin; group < group_end; ++group) {
    const std::uint32_t first = group * kRowGroup;
    const std::uint32_t lanes = w.rows - first < kRowGroup ? w.rows - first : kRowGroup;
    for (std::uint32_t r = 0; r < rows; ++r) {
      float acc[kRowGroup] = {};
      for (std::uint32_t c = 0; c < w.cols; ++c) {
        for (std::uint32_t lane = 0; lane < lanes; ++lane) {
          acc[lane] = __builtin_fmaf(element(w, w.data + group * group_bytes, c, lane),
                                     x[r * x_stride + c], acc[lane]);
        }
      }
      std::memcpy(out + r * out_stride + first, acc, lanes * sizeof(float));
    }
  }
}

void rms_norm(const float* x, const float* weight, std::uint32_t n, float eps, float* out) {
  float partial[16] = {};
  for (std::uint32_t i = 0; i < n; ++i)
    partial[i % 16] = __builtin_fmaf(x[i], x[i], partial[i % 16]);
  const float mean = sum_partials(partial) / static_cast<float>(n);
  const float inverse = 1.0f / std::sqrt(mean + eps);
  for (std::uint32_t i = 0; i < n; ++i) {
    const float y = x[i] * inverse;
    out[i] = weight != nullptr ? y * weight[i] : y;
  }
}

void silu_mul(const float* gate, const float* up, std::size_t n, float* out) {
  for (std::size_t i = 0; i < n; ++i) out[i] = scalar_silu(gate[i]) * up[i];
}

void gelu_mul(const float* gate, const float* up, std::size_t n, float* out) {
  for (std::size_t i = 0; i < n; ++i) out[i] = scalar_gelu(gate[i]) * up[i];
}

void add(float* x, const float* y, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) x[i] += y[i];
}

void rope(float* x, std::uint32_t dims, bool interleaved, const float* cos, const float* sin) {
  const std::uint32_t half = dims / 2;
  for (std::uint32_t i = 0; i < half; ++i) {
    float& a = x[interleaved ? 2 * i : i];
    float& b = x[interleaved ? 2 * i + 1 : i + half];
    const float a0 = a;
    const float b0 = b;
    a = __builtin_fmaf(a0, cos[i], -(b0 * sin[i]));
    b = __builtin_fmaf(a0, sin[i], b0 * cos[i]);
  }
}

void softmax(float* x, std::uint32_t n) {
  float max = -INFINITY;
  for (std::uint32_t i = 0; i < n; ++i) max = x[i] > max ? x[i] : max;
  max += 0.0f;  // one zero: the order of comparisons must not show
  float partial[16] = {};
  for (std::uint32_t i = 0; i < n; ++i) {
    x[i] = scalar_exp(x[i] - max);
    partial[i % 16] += x[i];
  }
  const float inverse = 1.0f / sum_partials(partial);
  for (std::uint32_t i = 0; i < n; ++i) x[i] *= inverse;
}

std::uint64_t byte_products(std::uint64_t rounds) {
  std::int8_t x[32], w[32];
  for (int i = 0; i < 32; ++i) x[i] = w[i] = static_cast<std::int8_t>(i);
  std::int32_t sum = 0;
  for (std::uint64_t round = 0; round < rounds; ++round) {
    for (int i = 0; i < 32; ++i) sum += x[i] * w[i];
    x[sum & 31] ^= 1;  // or the sum would be made once
    sum &= 0xffff;
  }
  volatile std::int32_t kept = sum;
  (void)kept;
  return rounds * 64;
}

bool always_supported() { return true; }

}  // namespace

const Kernels kGenericKernels = {
    .name = "generic",
    .supported = always_supported,
    .quantize_rows = quantize_rows,
    .matmul = matmul,
    .matmul_float = matmul_float,
    .rms_norm = rms_norm,
    .silu_mul = silu_mul,
    .gelu_mul = gelu_mul,
    .add = add,
    .rope = rope,
    .store_kv = generic_store_kv,
    .quantize_kv = generic_quantize_kv,
    .attention = generic_attention,
    .byte_products = byte_products,
    .softmax = softmax,
};

}  // namespace sluice::cpu

// A block of one head in 4 bits as the CPU makes it of f16, and where cuda/kv_pages.h draws it,
// written out once more.
#pragma once

#include <array>
#include <cstring>
#include <span>
#include <vector>

#include "cuda/kv_pages.h"
#include "src/backend/cpu/generic.h"
#include "src/backend/cpu/kv_layout.h"
#include "src/base/half.h"

namespace sluice::simt {

// [token][dimension] f16 of a block, of keys or values.
using HalfBlock = std::array<std::array<std::uint16_t, cuda::kMaxHeadDim>, 32>;

struct Int4Block {
  std::array<std::array<std::uint8_t, cuda::kMaxHeadDim>, 32> key_code, value_code;
  std::array<std::uint16_t, cuda::kMaxHeadDim> key_scale, key_middle;
  std::array<std::array<std::uint16_t, cuda::kMaxHeadDim / 32>, 32> value_scale, value_middle;

  float key(std::size_t token, std::size_t dim) const {
    return half_to_float(key_middle[dim]) +
           half_to_float(key_scale[dim]) * static_cast<float>(key_code[token][dim] - 8);
  }
  float value(std::size_t token, std::size_t dim) const {
    return half_to_float(value_middle[token][dim / 32]) +
           half_to_float(value_scale[token][dim / 32]) *
               static_cast<float>(value_code[token][dim] - 8);
  }
};

inline Int4Block quantize_block(std::uint32_t head_dim, const HalfBlock& keys,
                                const HalfBlock& values) {
  const cpu::KvLayout f16 = {.type = cpu::KvType::kF16, .head_dim = head_dim};
  const cpu::KvLayout int4 = {.type = cpu::KvType::kInt4, .head_dim = head_dim};
  const std::uint32_t padded = int4.padded_dim();
  const std::uint32_t groups = padded / 32;
  std::vector<std::byte> from(f16.head_bytes());
  std::vector<std::byte> to(int4.head_bytes());
  for (std::uint32_t t = 0; t < 32; ++t) {
    for (std::uint32_t d = 0; d < head_dim; ++d) {
      std::memcpy(&from[2 * (std::size_t{d} * 32 + t)], &keys[t][d], 2);
    }
    std::memcpy(&from[f16.key_bytes() + std::size_t{2} * t * padded], values[t].data(),
                std::size_t{2} * head_dim);
  }
  cpu::generic_quantize_kv(head_dim, from.data(), to.data());
  const std::byte* of_values = to.data() + int4.key_bytes();
  const auto nibble = [](std::byte both, std::uint32_t d) {
    return static_cast<std::uint8_t>(d % 32 < 16 ? std::to_integer<int>(both) & 15
                                                 : std::to_integer<int>(both) >> 4);
  };
  Int4Block block = {};
  for (std::uint32_t d = 0; d < padded; ++d) {
    std::memcpy(&block.key_scale[d], &to[cpu::int4_key_scale_offset(groups, d)], 2);
    std::memcpy(&block.key_middle[d], &to[cpu::int4_key_middle_offset(groups, d)], 2);
    for (std::uint32_t t = 0; t < 32; ++t) {
      block.key_code[t][d] = nibble(to[cpu::int4_key_offset(groups, t, d)], d);
      block.value_code[t][d] = nibble(of_values[cpu::int4_value_offset(groups, t, d)], d);
    }
  }
  for (std::uint32_t t = 0; t < 32; ++t) {
    for (std::uint32_t g = 0; g < groups; ++g) {
      std::memcpy(&block.value_scale[t][g], of_values + cpu::int4_value_scale_offset(groups, t, g),
                  2);
      std::memcpy(&block.value_middle[t][g],
                  of_values + cpu::int4_value_middle_offset(groups, t, g), 2);
    }
  }
  return block;
}

// The GPU's bytes of a head: keys, then values, each `groups` records of 640 bytes.
inline void put_int4(const Int4Block& block, std::size_t groups, std::byte* head) {
  for (std::size_t record = 0; record < 2 * groups; ++record) {
    const bool is_value = record >= groups;
    const std::size_t g = record % groups;
    std::byte* to = head + record * 640;
    std::memset(to, 0, 640);
    for (std::size_t t = 0; t < 32; ++t) {
      for (std::size_t d = 0; d < 32; ++d) {
        const std::size_t along = is_value ? t : d;  // what the contraction runs over
        const std::size_t across = is_value ? d : t;
        const std::size_t of_four = is_value ? along % 8 / 2 : along % 16 / 4;
        const std::size_t byte = is_value ? along % 16 / 8 * 2 + along % 2 : along % 4;
        const std::size_t at = 16 * (4 * (across % 8) + of_four) + across / 8 * 4 + byte;
        const int code = is_value ? block.value_code[t][32 * g + d] : block.key_code[t][32 * g + d];
        to[at] |= static_cast<std::byte>(along < 16 ? code : code << 4);
      }
    }
    for (std::size_t i = 0; i < 32; ++i) {
      const std::size_t number =
          is_value ? i % 8 / 2 * 8 + i / 8 * 2 + i % 2 : i % 16 / 4 * 8 + i / 16 * 4 + i % 4;
      const std::uint16_t shared[2] = {
          is_value ? block.value_scale[i][g] : block.key_scale[32 * g + i],
          is_value ? block.value_middle[i][g] : block.key_middle[32 * g + i]};
      std::memcpy(to + 512 + 2 * number, &shared[0], 2);
      std::memcpy(to + 576 + 2 * number, &shared[1], 2);
    }
  }
}
// The same for f16: rows of tokens for keys, of dimensions for values, padded with zeros.
inline void put_halves(const HalfBlock& keys, const HalfBlock& values, std::uint32_t head_dim,
                       std::byte* head) {
  const std::size_t groups = (head_dim + 31) / 32;
  std::memset(head, 0, 2 * groups * 2048);
  for (std::size_t t = 0; t < 32; ++t) {
    for (std::size_t d = 0; d < head_dim; ++d) {
      std::memcpy(head + d / 32 * 2048 + 2 * (32 * t + d % 32), &keys[t][d], 2);
      std::memcpy(head + (groups + d / 32) * 2048 + 2 * (32 * (d % 32) + t), &values[t][d], 2);
    }
  }
}

}  // namespace sluice::simt

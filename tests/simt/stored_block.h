// Thirty-two weights of a file's block, of any type: integers, and scales and minima multiplied as
// src/quant/layout.h says. Nothing of cuda/pack.cpp is in it.
#pragma once

#include <cstring>
#include <vector>

#include "src/quant/block_type.h"
#include "src/quant/layout.h"

namespace sluice::simt {

struct StoredWeights {
  std::int8_t q[32];
  // One scale for all, or one for 16 each.
  std::size_t parts = 1;
  float scale[2] = {};
  float min[2] = {};
  bool has_min = false;
};

namespace stored {

template <class Block, std::size_t kWeights>
struct Opened {
  Block block;
  std::int8_t q[kWeights];
};

template <class Block, std::size_t kWeights>
Opened<Block, kWeights> open(const std::byte* at, std::size_t group, StoredWeights& out) {
  Opened<Block, kWeights> opened;
  std::memcpy(&opened.block, at, sizeof(Block));
  unpack(opened.block, opened.q);
  std::memcpy(out.q, opened.q + 32 * group, 32);
  return opened;
}

template <class Block>
void simple(const std::byte* at, StoredWeights& out) {
  out.scale[0] = open<Block, 32>(at, 0, out).block.d.value();
}
template <class Block>
void with_minimum(const std::byte* at, StoredWeights& out) {
  const Block block = open<Block, 32>(at, 0, out).block;
  out.scale[0] = block.d.value();
  out.min[0] = block.m.value();
  out.has_min = true;
}
template <class Block>
void four_or_five_bit_k(const std::byte* at, std::size_t group, StoredWeights& out) {
  const Block block = open<Block, 256>(at, group, out).block;
  std::uint8_t scales[8];
  std::uint8_t mins[8];
  unpack_q4_k_scales(block.scales, scales, mins);
  out.scale[0] = block.d.value() * scales[group];
  out.min[0] = -(block.dmin.value() * mins[group]);
  out.has_min = true;
}

}  // namespace stored

// Group `group` of 32 (0 for blocks of 32) of the block at `at`. F32, F16 and BF16 have none.
inline StoredWeights stored_weights(BlockType type, const std::byte* at, std::size_t group) {
  StoredWeights out;
  switch (type) {
    case BlockType::kQ4_0:
      stored::simple<BlockQ4_0>(at, out);
      break;
    case BlockType::kQ5_0:
      stored::simple<BlockQ5_0>(at, out);
      break;
    case BlockType::kQ8_0:
      stored::simple<BlockQ8_0>(at, out);
      break;
    case BlockType::kIQ4_NL:
      stored::simple<BlockIQ4_NL>(at, out);
      break;
    case BlockType::kMXFP4:
      out.scale[0] = mxfp4_half_scale(stored::open<BlockMXFP4, 32>(at, 0, out).block.e);
      break;
    case BlockType::kQ4_1:
      stored::with_minimum<BlockQ4_1>(at, out);
      break;
    case BlockType::kQ5_1:
      stored::with_minimum<BlockQ5_1>(at, out);
      break;
    case BlockType::kQ4_K:
      stored::four_or_five_bit_k<BlockQ4_K>(at, group, out);
      break;
    case BlockType::kQ5_K:
      stored::four_or_five_bit_k<BlockQ5_K>(at, group, out);
      break;
    case BlockType::kIQ4_XS: {
      const BlockIQ4_XS block = stored::open<BlockIQ4_XS, 256>(at, group, out).block;
      std::int8_t scales[8];
      unpack_iq4_xs_scales(block, scales);
      out.scale[0] = block.d.value() * scales[group];
      break;
    }
    case BlockType::kQ6_K: {
      const BlockQ6_K block = stored::open<BlockQ6_K, 256>(at, group, out).block;
      out.parts = 2;
      for (std::size_t p = 0; p < 2; ++p) {
        out.scale[p] = block.d.value() * block.scales[2 * group + p];
      }
      break;
    }
    case BlockType::kQ3_K: {
      const BlockQ3_K block = stored::open<BlockQ3_K, 256>(at, group, out).block;
      std::int8_t scales[16];
      unpack_q3_k_scales(block.scales, scales);
      out.parts = 2;
      for (std::size_t p = 0; p < 2; ++p) out.scale[p] = block.d.value() * scales[2 * group + p];
      break;
    }
    case BlockType::kQ2_K: {
      const BlockQ2_K block = stored::open<BlockQ2_K, 256>(at, group, out).block;
      out.parts = 2;
      out.has_min = true;
      for (std::size_t p = 0; p < 2; ++p) {
        const int both = block.scales[2 * group + p];
        out.scale[p] = block.d.value() * static_cast<float>(both & 15);
        out.min[p] = -(block.dmin.value() * static_cast<float>(both >> 4));
      }
      break;
    }
    case BlockType::kF32:
    case BlockType::kF16:
    case BlockType::kBF16:
      break;
  }
  return out;
}

// All types of quantized weights.
inline std::vector<BlockType> quantized_types() {
  std::vector<BlockType> types;
  for (const BlockTypeInfo& info : block_types()) {
    if (info.block_size > 1) types.push_back(info.type);
  }
  return types;
}

namespace stored {

// Sets all bytes of blocks, but keeps their scales of halves (and exponents).
template <class Block, class Keep>
void fill(std::vector<std::byte>& blocks, std::uint8_t byte, const Keep& keep) {
  for (std::size_t at = 0; at < blocks.size(); at += sizeof(Block)) {
    Block kept;
    Block filled;
    std::memcpy(&kept, &blocks[at], sizeof kept);
    std::memset(&filled, byte, sizeof filled);
    keep(filled, kept);
    std::memcpy(&blocks[at], &filled, sizeof filled);
  }
}
template <class Block>
void fill(std::vector<std::byte>& blocks, std::uint8_t byte) {
  fill<Block>(blocks, byte, [](Block& block, const Block& kept) {
    block.d = kept.d;
    if constexpr (requires { block.m; }) block.m = kept.m;
    if constexpr (requires { block.dmin; }) block.dmin = kept.dmin;
  });
}

}  // namespace stored

// Sets all bytes of a matrix's blocks that are codes, or factors of scales, to `byte`.
inline void fill_codes(BlockType type, std::uint8_t byte, std::vector<std::byte>& blocks) {
  switch (type) {
    case BlockType::kQ4_0:
      return stored::fill<BlockQ4_0>(blocks, byte);
    case BlockType::kQ4_1:
      return stored::fill<BlockQ4_1>(blocks, byte);
    case BlockType::kQ5_0:
      return stored::fill<BlockQ5_0>(blocks, byte);
    case BlockType::kQ5_1:
      return stored::fill<BlockQ5_1>(blocks, byte);
    case BlockType::kQ8_0:
      return stored::fill<BlockQ8_0>(blocks, byte);
    case BlockType::kQ2_K:
      return stored::fill<BlockQ2_K>(blocks, byte);
    case BlockType::kQ3_K:
      return stored::fill<BlockQ3_K>(blocks, byte);
    case BlockType::kQ4_K:
      return stored::fill<BlockQ4_K>(blocks, byte);
    case BlockType::kQ5_K:
      return stored::fill<BlockQ5_K>(blocks, byte);
    case BlockType::kQ6_K:
      return stored::fill<BlockQ6_K>(blocks, byte);
    case BlockType::kIQ4_NL:
      return stored::fill<BlockIQ4_NL>(blocks, byte);
    case BlockType::kIQ4_XS:
      return stored::fill<BlockIQ4_XS>(blocks, byte);
    case BlockType::kMXFP4:
      return stored::fill<BlockMXFP4>(
          blocks, byte, [](BlockMXFP4& block, const BlockMXFP4& kept) { block.e = kept.e; });
    case BlockType::kF32:
    case BlockType::kF16:
    case BlockType::kBF16:
      break;
  }
}

}  // namespace sluice::simt

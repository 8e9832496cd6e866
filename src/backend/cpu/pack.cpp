#include "src/backend/cpu/pack.h"

#include <array>
#include <cstring>

#include "src/backend/cpu/pack_layout.h"
#include "src/base/half.h"
#include "src/quant/layout.h"

namespace sluice::cpu {
namespace {

constexpr std::size_t kLine = 64;

std::size_t round_to_line(std::size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

std::uint8_t* u8(std::byte* p) { return reinterpret_cast<std::uint8_t*>(p); }
const std::uint8_t* u8(const std::byte* p) { return reinterpret_cast<const std::uint8_t*>(p); }

// Four codes at once: byte k of word j is the code of column 4 * j + k, which is also how a line
// holds them.
using Words = std::array<std::uint32_t, 8>;

std::uint32_t load_word(const std::uint8_t* line, std::uint32_t lane) {
  std::uint32_t word;
  std::memcpy(&word, line + 4 * lane, 4);
  return word;
}
void store_word(std::uint8_t* line, std::uint32_t lane, std::uint32_t word) {
  std::memcpy(line + 4 * lane, &word, 4);
}

// Each byte's bit field of `width` bits at `shift`.
std::uint32_t fields(std::uint32_t word, unsigned shift, unsigned width) {
  return (word >> shift) & (0x01010101u * ((1u << width) - 1));
}

void put_block(const PackLayout& layout, const Words& w, std::uint32_t lane, std::uint8_t* codes) {
  unsigned low_bits = 8;
  switch (layout.low) {
    case LowPlane::kBytes:
      for (std::size_t j = 0; j < 8; ++j) store_word(codes + kLine * j, lane, w[j]);
      break;
    case LowPlane::kNibbles:
      low_bits = 4;
      for (std::size_t j = 0; j < 4; ++j)
        store_word(codes + kLine * j, lane, fields(w[j], 0, 4) | fields(w[j + 4], 0, 4) << 4);
      break;
    case LowPlane::kPairs:
      low_bits = 2;
      for (std::size_t j = 0; j < 2; ++j)
        store_word(codes + kLine * j, lane,
                   fields(w[j], 0, 2) | fields(w[j + 2], 0, 2) << 2 | fields(w[j + 4], 0, 2) << 4 |
                       fields(w[j + 6], 0, 2) << 6);
      break;
  }
  std::uint8_t* plane = codes + layout.low_bytes();
  if (layout.high == HighPlane::kPairs) {
    for (std::size_t j = 0; j < 2; ++j)
      store_word(plane + kLine * j, lane,
                 fields(w[j], low_bits, 2) | fields(w[j + 2], low_bits, 2) << 2 |
                     fields(w[j + 4], low_bits, 2) << 4 | fields(w[j + 6], low_bits, 2) << 6);
  } else if (layout.high == HighPlane::kBits) {
    std::uint32_t word = 0;
    for (std::size_t j = 0; j < 8; ++j) word |= fields(w[j], low_bits, 1) << j;
    store_word(plane, lane, word);
  }
}

Words get_block(const PackLayout& layout, const std::uint8_t* codes, std::uint32_t lane) {
  Words w{};
  const std::uint8_t* plane = codes + layout.low_bytes();
  for (std::uint32_t j = 0; j < 8; ++j) {
    unsigned low_bits = 8;
    switch (layout.low) {
      case LowPlane::kBytes:
        w[j] = load_word(codes + kLine * j, lane);
        break;
      case LowPlane::kNibbles:
        low_bits = 4;
        w[j] = fields(load_word(codes + kLine * (j % 4), lane), 4 * (j / 4), 4);
        break;
      case LowPlane::kPairs:
        low_bits = 2;
        w[j] = fields(load_word(codes + kLine * (j % 2), lane), 2 * (j / 2), 2);
        break;
    }
    if (layout.high == HighPlane::kPairs) {
      w[j] |= fields(load_word(plane + kLine * (j % 2), lane), 2 * (j / 2), 2) << low_bits;
    } else if (layout.high == HighPlane::kBits) {
      w[j] |= fields(load_word(plane, lane), j, 1) << low_bits;
    }
  }
  return w;
}

void put_half(std::uint8_t* header, std::size_t index, StoredHalf value) {
  const std::uint16_t bits = value.bits();
  std::memcpy(header + 2 * index, &bits, 2);
}
float get_half(const std::uint8_t* header, std::size_t index) {
  std::uint16_t bits;
  std::memcpy(&bits, header + 2 * index, 2);
  return half_to_float(bits);
}

// Codebook types store the index, not the value.
void nibble_codes(const std::uint8_t* qs, std::int8_t (&codes)[32]) {
  for (int i = 0; i < 16; ++i) {
    codes[i] = static_cast<std::int8_t>(qs[i] & 15);
    codes[i + 16] = static_cast<std::int8_t>(qs[i] >> 4);
  }
}

// Puts the codes of consecutive blocks of 32, given as weights' integers, into a bundle.
template <std::size_t N>
void put_codes(const PackLayout& layout, std::int8_t (&q)[N], std::uint32_t lane,
               std::uint32_t first_block, std::uint8_t* bundle) {
  for (std::int8_t& code : q) code = static_cast<std::int8_t>(code + layout.offset);
  for (std::uint32_t block = 0; block < N / 32; ++block) {
    Words words;
    std::memcpy(words.data(), q + std::size_t{32} * block, 32);
    put_block(layout, words, lane,
              bundle + layout.header_bytes + (first_block + block) * layout.code_bytes());
  }
}

// Packs one stored block into lane `lane`; `slot` is its index in the bundle (0 for K types, whose
// block is a bundle).
void pack_block(BlockType type, const PackLayout& layout, const std::byte* source,
                std::uint32_t lane, std::uint32_t slot, std::uint8_t* bundle) {
  const std::size_t entry = slot * kRowGroup + lane;  // of a table [slot][lane]
  std::int8_t q32[32];
  std::int8_t q256[256];
  const auto block_of = [source](auto block) {
    std::memcpy(&block, source, sizeof block);
    return block;
  };
  switch (type) {
    case BlockType::kQ4_0: {
      const auto block = block_of(BlockQ4_0{});
      put_half(bundle, entry, block.d);
      unpack(block, q32);
      break;
    }
    case BlockType::kQ4_1: {
      const auto block = block_of(BlockQ4_1{});
      put_half(bundle, lane, block.d);
      put_half(bundle, kRowGroup + lane, block.m);
      unpack(block, q32);
      break;
    }
    case BlockType::kQ5_0: {
      const auto block = block_of(BlockQ5_0{});
      put_half(bundle, entry, block.d);
      unpack(block, q32);
      break;
    }
    case BlockType::kQ5_1: {
      const auto block = block_of(BlockQ5_1{});
      put_half(bundle, lane, block.d);
      put_half(bundle, kRowGroup + lane, block.m);
      unpack(block, q32);
      break;
    }
    case BlockType::kQ8_0: {
      const auto block = block_of(BlockQ8_0{});
      put_half(bundle, entry, block.d);
      unpack(block, q32);
      break;
    }
    case BlockType::kIQ4_NL: {
      const auto block = block_of(BlockIQ4_NL{});
      put_half(bundle, entry, block.d);
      nibble_codes(block.qs, q32);
      break;
    }
    case BlockType::kMXFP4: {
      const auto block = block_of(BlockMXFP4{});
      bundle[entry] = block.e;
      nibble_codes(block.qs, q32);
      break;
    }
    case BlockType::kQ2_K: {
      const auto block = block_of(BlockQ2_K{});
      put_half(bundle, lane, block.d);
      put_half(bundle, kRowGroup + lane, block.dmin);
      for (std::size_t g = 0; g < 16; ++g) bundle[64 + g * kRowGroup + lane] = block.scales[g];
      unpack(block, q256);
      put_codes(layout, q256, lane, 0, bundle);
      return;
    }
    case BlockType::kQ3_K: {
      const auto block = block_of(BlockQ3_K{});
      std::int8_t scales[16];
      unpack_q3_k_scales(block.scales, scales);
      put_half(bundle, lane, block.d);
      for (std::size_t g = 0; g < 16; ++g)
        bundle[64 + g * kRowGroup + lane] = static_cast<std::uint8_t>(scales[g]);
      unpack(block, q256);
      put_codes(layout, q256, lane, 0, bundle);
      return;
    }
    case BlockType::kQ4_K:
    case BlockType::kQ5_K: {
      const auto pack_k = [&](const auto& block) {
        std::uint8_t scales[8];
        std::uint8_t mins[8];
        unpack_q4_k_scales(block.scales, scales, mins);
        put_half(bundle, lane, block.d);
        put_half(bundle, kRowGroup + lane, block.dmin);
        for (std::size_t g = 0; g < 8; ++g) {
          bundle[64 + g * kRowGroup + lane] = scales[g];
          bundle[192 + g * kRowGroup + lane] = mins[g];
        }
        unpack(block, q256);
      };
      if (type == BlockType::kQ4_K) {
        pack_k(block_of(BlockQ4_K{}));
      } else {
        pack_k(block_of(BlockQ5_K{}));
      }
      put_codes(layout, q256, lane, 0, bundle);
      return;
    }
    case BlockType::kQ6_K: {
      const auto block = block_of(BlockQ6_K{});
      put_half(bundle, lane, block.d);
      for (std::size_t g = 0; g < 16; ++g)
        bundle[64 + g * kRowGroup + lane] = static_cast<std::uint8_t>(block.scales[g]);
      unpack(block, q256);
      put_codes(layout, q256, lane, 0, bundle);
      return;
    }
    case BlockType::kIQ4_XS: {
      const auto block = block_of(BlockIQ4_XS{});
      std::int8_t scales[8];
      unpack_iq4_xs_scales(block, scales);
      put_half(bundle, lane, block.d);
      for (std::size_t g = 0; g < 8; ++g) {
        bundle[64 + g * kRowGroup + lane] = static_cast<std::uint8_t>(scales[g]);
        for (std::size_t i = 0; i < 16; ++i) {
          q256[32 * g + i] = static_cast<std::int8_t>(block.qs[16 * g + i] & 15);
          q256[32 * g + 16 + i] = static_cast<std::int8_t>(block.qs[16 * g + i] >> 4);
        }
      }
      put_codes(layout, q256, lane, 0, bundle);
      return;
    }
    case BlockType::kF32:
    case BlockType::kF16:
    case BlockType::kBF16:
      return;
  }
  put_codes(layout, q32, lane, slot, bundle);
}

// [rows][cols] elements to [cols][16 lanes].
template <class T>
void pack_float_group(const std::byte* source, std::uint32_t lanes, std::uint32_t cols,
                      std::byte* out) {
  for (std::uint32_t lane = 0; lane < lanes; ++lane) {
    const std::byte* row = source + std::size_t{lane} * cols * sizeof(T);
    for (std::size_t c = 0; c < cols; ++c)
      std::memcpy(out + (c * kRowGroup + lane) * sizeof(T), row + c * sizeof(T), sizeof(T));
  }
}

}  // namespace

std::size_t packed_group_bytes(BlockType type, std::uint32_t cols) {
  if (is_float_type(type)) {
    const std::size_t element = type == BlockType::kF32 ? 4 : 2;
    return round_to_line(std::size_t{cols} * kRowGroup * element);
  }
  const PackLayout layout = pack_layout(type);
  const std::size_t blocks = cols / 32;
  return (blocks + layout.bundle_blocks - 1) / layout.bundle_blocks * layout.bundle_bytes();
}

std::size_t packed_bytes(BlockType type, std::uint32_t rows, std::uint32_t cols) {
  const std::size_t groups = (std::size_t{rows} + kRowGroup - 1) / kRowGroup;
  return groups * packed_group_bytes(type, cols);
}

void pack_groups(BlockType type, const std::byte* source, std::uint32_t rows, std::uint32_t cols,
                 std::uint32_t group_begin, std::uint32_t group_end, std::byte* out) {
  const BlockTypeInfo& info = block_type_info(type);
  const std::size_t group_bytes = packed_group_bytes(type, cols);
  const std::size_t row_blocks = cols / info.block_size;
  const std::size_t row_bytes = row_blocks * info.block_bytes;
  for (std::uint32_t group = group_begin; group < group_end; ++group) {
    std::byte* group_out = out + group * group_bytes;
    std::memset(group_out, 0, group_bytes);
    const std::uint32_t first_row = group * kRowGroup;
    const std::uint32_t lanes = rows - first_row < kRowGroup ? rows - first_row : kRowGroup;
    const std::byte* group_source = source + first_row * row_bytes;
    if (type == BlockType::kF32) {
      pack_float_group<std::uint32_t>(group_source, lanes, cols, group_out);
      continue;
    }
    if (is_float_type(type)) {
      pack_float_group<std::uint16_t>(group_source, lanes, cols, group_out);
      continue;
    }
    const PackLayout layout = pack_layout(type);
    const std::uint32_t bundle_blocks =
        info.block_size == 32 ? layout.bundle_blocks : std::uint32_t{1};
    for (std::uint32_t lane = 0; lane < lanes; ++lane) {
      for (std::size_t b = 0; b < row_blocks; ++b) {
        std::uint8_t* bundle = u8(group_out) + b / bundle_blocks * layout.bundle_bytes();
        pack_block(type, layout, group_source + lane * row_bytes + b * info.block_bytes, lane,
                   static_cast<std::uint32_t>(b % bundle_blocks), bundle);
      }
    }
  }
}

void unpack_packed_block(BlockType type, const std::byte* group, std::uint32_t block,
                         PackedBlock& out) {
  const PackLayout layout = pack_layout(type);
  const std::uint8_t* bundle = u8(group) + block / layout.bundle_blocks * layout.bundle_bytes();
  const std::uint32_t slot = block % layout.bundle_blocks;
  const std::uint8_t* codes = bundle + layout.header_bytes + slot * layout.code_bytes();
  for (std::uint32_t lane = 0; lane < kRowGroup; ++lane) {
    const Words words = get_block(layout, codes, lane);
    for (std::uint32_t c = 0; c < 32; ++c) {
      const unsigned code = (words[c / 4] >> (8 * (c % 4))) & 0xffu;
      if (type == BlockType::kIQ4_NL || type == BlockType::kIQ4_XS) {
        out.q[lane][c] = kIq4Codebook[code];
      } else if (type == BlockType::kMXFP4) {
        out.q[lane][c] = kMxfp4DoubledCodebook[code];
      } else {
        out.q[lane][c] = static_cast<std::int8_t>(static_cast<int>(code) - layout.offset);
      }
    }
    for (std::uint32_t half = 0; half < 2; ++half) {
      const std::size_t entry =
          (layout.block_scales == 2 ? slot * 2 + half : slot) * kRowGroup + lane;
      float scale = 0;
      float min = 0;
      switch (type) {
        case BlockType::kQ4_1:
        case BlockType::kQ5_1:
          scale = get_half(bundle, lane);
          min = get_half(bundle, kRowGroup + lane);
          break;
        case BlockType::kMXFP4:
          scale = mxfp4_half_scale(bundle[entry]);
          break;
        case BlockType::kQ4_K:
        case BlockType::kQ5_K:
          scale = get_half(bundle, lane) * static_cast<float>(bundle[64 + entry]);
          min = -(get_half(bundle, kRowGroup + lane) * static_cast<float>(bundle[192 + entry]));
          break;
        case BlockType::kQ2_K:
          scale = get_half(bundle, lane) * static_cast<float>(bundle[64 + entry] & 15);
          min = -(get_half(bundle, kRowGroup + lane) * static_cast<float>(bundle[64 + entry] >> 4));
          break;
        case BlockType::kQ3_K:
        case BlockType::kQ6_K:
        case BlockType::kIQ4_XS:
          scale = get_half(bundle, lane) *
                  static_cast<float>(static_cast<std::int8_t>(bundle[64 + entry]));
          break;
        default:
          scale = get_half(bundle, entry);
          break;
      }
      out.scale[half][lane] = scale;
      out.min[half][lane] = min;
    }
  }
}

}  // namespace sluice::cpu

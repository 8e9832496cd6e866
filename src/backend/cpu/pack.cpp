#include "src/backend/cpu/pack.h"

#include <array>
#include <concepts>
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

// -- Codes of 32 weights of a stored block, four at a time ---------------------------------------
// A code is the weight's unsigned integer as stored: see pack_layout.h for the offsets.

std::uint32_t word_at(const std::uint8_t* bytes, std::size_t i) {
  std::uint32_t word;
  std::memcpy(&word, bytes + 4 * i, 4);
  return word;
}

// 16 bytes: low nibbles are weights 0 to 15, high nibbles 16 to 31.
Words nibble_words(const std::uint8_t* qs) {
  Words w;
  for (std::size_t j = 0; j < 4; ++j) {
    w[j] = fields(word_at(qs, j), 0, 4);
    w[j + 4] = fields(word_at(qs, j), 4, 4);
  }
  return w;
}

// nibble_words with bit i of `qh` as the fifth bit of weight i.
Words five_bit_words(const std::uint8_t* qh, const std::uint8_t* qs) {
  Words w = nibble_words(qs);
  const std::uint32_t bits = word_at(qh, 0);
  for (std::size_t j = 0; j < 8; ++j) {
    const std::uint32_t four = (bits >> (4 * j)) & 15;
    // Bit k of the four goes to bit 0 of byte k: the factors are 2^(7 * k).
    w[j] |= ((four * 0x00204081u) & 0x01010101u) << 4;
  }
  return w;
}

// Group g of 32 of a block of 256.
Words words_of(const BlockQ2_K& block, std::size_t g) {
  Words w;
  for (std::size_t j = 0; j < 8; ++j)
    w[j] = fields(word_at(block.qs + g / 4 * 32, j), static_cast<unsigned>(2 * (g % 4)), 2);
  return w;
}
Words words_of(const BlockQ3_K& block, std::size_t g) {
  Words w;
  for (std::size_t j = 0; j < 8; ++j)
    w[j] = fields(word_at(block.qs + g / 4 * 32, j), static_cast<unsigned>(2 * (g % 4)), 2) |
           fields(word_at(block.hmask, j), static_cast<unsigned>(g), 1) << 2;
  return w;
}
Words words_of(const BlockQ4_K& block, std::size_t g) {
  Words w;
  for (std::size_t j = 0; j < 8; ++j)
    w[j] = fields(word_at(block.qs + g / 2 * 32, j), static_cast<unsigned>(4 * (g % 2)), 4);
  return w;
}
Words words_of(const BlockQ5_K& block, std::size_t g) {
  Words w;
  for (std::size_t j = 0; j < 8; ++j)
    w[j] = fields(word_at(block.qs + g / 2 * 32, j), static_cast<unsigned>(4 * (g % 2)), 4) |
           fields(word_at(block.qh, j), static_cast<unsigned>(g), 1) << 4;
  return w;
}
Words words_of(const BlockQ6_K& block, std::size_t g) {
  const std::uint8_t* low = block.ql + g / 4 * 64 + g % 2 * 32;
  const std::uint8_t* high = block.qh + g / 4 * 32;
  Words w;
  for (std::size_t j = 0; j < 8; ++j)
    w[j] = fields(word_at(low, j), static_cast<unsigned>(4 * (g % 4 / 2)), 4) |
           fields(word_at(high, j), static_cast<unsigned>(2 * (g % 4)), 2) << 4;
  return w;
}
Words words_of(const BlockIQ4_XS& block, std::size_t g) { return nibble_words(block.qs + 16 * g); }

// -- Stored blocks into lanes of a bundle --------------------------------------------------------

// Where a block's header entries and codes go.
struct Lane {
  const PackLayout& layout;
  std::uint8_t* bundle;
  std::uint32_t lane;

  void codes(std::size_t block, const Words& words) const {
    put_block(layout, words, lane, bundle + layout.header_bytes + block * layout.code_bytes());
  }
  // Entry `index` of a table of halves [index][16 lanes] or of bytes [index][16 lanes] at `offset`.
  void half(std::size_t index, StoredHalf value) const {
    put_half(bundle, index * kRowGroup + lane, value);
  }
  void byte(std::size_t offset, std::size_t index, int value) const {
    bundle[offset + index * kRowGroup + lane] = static_cast<std::uint8_t>(value);
  }
};

// Blocks of 32; `slot` is the index of the block in the bundle.
void pack_block(const Lane& to, const BlockQ4_0& block, std::size_t slot) {
  to.half(slot, block.d);
  to.codes(slot, nibble_words(block.qs));
}
void pack_block(const Lane& to, const BlockQ4_1& block, std::size_t slot) {
  to.half(0, block.d);
  to.half(1, block.m);
  to.codes(slot, nibble_words(block.qs));
}
void pack_block(const Lane& to, const BlockQ5_0& block, std::size_t slot) {
  to.half(slot, block.d);
  to.codes(slot, five_bit_words(block.qh, block.qs));
}
void pack_block(const Lane& to, const BlockQ5_1& block, std::size_t slot) {
  to.half(0, block.d);
  to.half(1, block.m);
  to.codes(slot, five_bit_words(block.qh, block.qs));
}
void pack_block(const Lane& to, const BlockQ8_0& block, std::size_t slot) {
  Words words;
  std::memcpy(words.data(), block.qs, 32);
  to.half(slot, block.d);
  to.codes(slot, words);
}
void pack_block(const Lane& to, const BlockIQ4_NL& block, std::size_t slot) {
  to.half(slot, block.d);
  to.codes(slot, nibble_words(block.qs));
}
void pack_block(const Lane& to, const BlockMXFP4& block, std::size_t slot) {
  to.byte(0, slot, block.e);
  to.codes(slot, nibble_words(block.qs));
}

// Blocks of 256 are bundles of their own.
template <class Block>
void pack_codes(const Lane& to, const Block& block) {
  for (std::size_t g = 0; g < 8; ++g) to.codes(g, words_of(block, g));
}
void pack_block(const Lane& to, const BlockQ2_K& block, std::size_t) {
  to.half(0, block.d);
  to.half(1, block.dmin);
  for (std::size_t g = 0; g < 16; ++g) to.byte(64, g, block.scales[g]);
  pack_codes(to, block);
}
void pack_block(const Lane& to, const BlockQ3_K& block, std::size_t) {
  std::int8_t scales[16];
  unpack_q3_k_scales(block.scales, scales);
  to.half(0, block.d);
  for (std::size_t g = 0; g < 16; ++g) to.byte(64, g, scales[g]);
  pack_codes(to, block);
}
template <class Block>
requires std::same_as<Block, BlockQ4_K> || std::same_as<Block, BlockQ5_K>
void pack_block(const Lane& to, const Block& block, std::size_t) {
  std::uint8_t scales[8];
  std::uint8_t mins[8];
  unpack_q4_k_scales(block.scales, scales, mins);
  to.half(0, block.d);
  to.half(1, block.dmin);
  for (std::size_t g = 0; g < 8; ++g) {
    to.byte(64, g, scales[g]);
    to.byte(192, g, mins[g]);
  }
  pack_codes(to, block);
}
void pack_block(const Lane& to, const BlockQ6_K& block, std::size_t) {
  to.half(0, block.d);
  for (std::size_t g = 0; g < 16; ++g) to.byte(64, g, block.scales[g]);
  pack_codes(to, block);
}
void pack_block(const Lane& to, const BlockIQ4_XS& block, std::size_t) {
  std::int8_t scales[8];
  unpack_iq4_xs_scales(block, scales);
  to.half(0, block.d);
  for (std::size_t g = 0; g < 8; ++g) to.byte(64, g, scales[g]);
  pack_codes(to, block);
}

// Up to 16 rows of stored blocks, of `cols` weights each, into a zeroed group.
template <class Block>
void pack_group(BlockType type, const std::byte* source, std::uint32_t lanes, std::uint32_t cols,
                std::byte* out) {
  const PackLayout layout = pack_layout(type);
  const std::size_t block_size = block_type_info(type).block_size;
  const std::size_t blocks = cols / block_size;
  const std::size_t in_bundle = 32 * layout.bundle_blocks / block_size;
  for (std::uint32_t lane = 0; lane < lanes; ++lane) {
    for (std::size_t b = 0; b < blocks; ++b) {
      Block block;
      std::memcpy(&block, source + (lane * blocks + b) * sizeof block, sizeof block);
      pack_block(Lane{layout, u8(out) + b / in_bundle * layout.bundle_bytes(), lane}, block,
                 b % in_bundle);
    }
  }
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
    const auto pack = [&]<class Block>() {
      pack_group<Block>(type, group_source, lanes, cols, group_out);
    };
    switch (type) {
      case BlockType::kF32:
        pack_float_group<std::uint32_t>(group_source, lanes, cols, group_out);
        break;
      case BlockType::kF16:
      case BlockType::kBF16:
        pack_float_group<std::uint16_t>(group_source, lanes, cols, group_out);
        break;
      case BlockType::kQ4_0:
        pack.template operator()<BlockQ4_0>();
        break;
      case BlockType::kQ4_1:
        pack.template operator()<BlockQ4_1>();
        break;
      case BlockType::kQ5_0:
        pack.template operator()<BlockQ5_0>();
        break;
      case BlockType::kQ5_1:
        pack.template operator()<BlockQ5_1>();
        break;
      case BlockType::kQ8_0:
        pack.template operator()<BlockQ8_0>();
        break;
      case BlockType::kQ2_K:
        pack.template operator()<BlockQ2_K>();
        break;
      case BlockType::kQ3_K:
        pack.template operator()<BlockQ3_K>();
        break;
      case BlockType::kQ4_K:
        pack.template operator()<BlockQ4_K>();
        break;
      case BlockType::kQ5_K:
        pack.template operator()<BlockQ5_K>();
        break;
      case BlockType::kQ6_K:
        pack.template operator()<BlockQ6_K>();
        break;
      case BlockType::kIQ4_NL:
        pack.template operator()<BlockIQ4_NL>();
        break;
      case BlockType::kIQ4_XS:
        pack.template operator()<BlockIQ4_XS>();
        break;
      case BlockType::kMXFP4:
        pack.template operator()<BlockMXFP4>();
        break;
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

#include "src/backend/cpu/pack.h"

#include <algorithm>
#include <concepts>
#include <cstring>

#include "src/backend/cpu/pack_layout.h"
#include "src/quant/layout.h"

namespace sluice::cpu {
namespace {

constexpr std::size_t kLine = 64;

std::size_t round_to_line(std::size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

std::uint8_t* u8(std::byte* p) { return reinterpret_cast<std::uint8_t*>(p); }

// Words and halves in vectors of the compiler's own, so that every target gets its instructions.
using Four = std::uint32_t __attribute__((vector_size(16)));
using Eight = std::uint16_t __attribute__((vector_size(16)));

Four load_four(const void* p) {
  Four v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

Four low_pairs(Four a, Four b) { return __builtin_shufflevector(a, b, 0, 4, 1, 5); }
Four high_pairs(Four a, Four b) { return __builtin_shufflevector(a, b, 2, 6, 3, 7); }
Eight low_pairs(Eight a, Eight b) {
  return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
}
Eight high_pairs(Eight a, Eight b) {
  return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}

// Transposes N vectors of N elements: each round interleaves the first half with the second.
template <class Vector, std::size_t N>
void transpose(Vector (&v)[N]) {
  for (std::size_t round = 1; round < N; round *= 2) {
    Vector next[N];
    for (std::size_t i = 0; i < N / 2; ++i) {
      next[2 * i] = low_pairs(v[i], v[i + N / 2]);
      next[2 * i + 1] = high_pairs(v[i], v[i + N / 2]);
    }
    std::memcpy(v, next, sizeof next);
  }
}

// Each byte's bit field of `width` bits at `shift`.
Four fields(Four words, unsigned shift, unsigned width) {
  return (words >> shift) & (0x01010101u * ((1u << width) - 1));
}

// The codes of 32 columns: byte k of word j is the code of column 4 * j + k, which is also how a
// line holds them. Words 0 to 3 and 4 to 7.
struct Words {
  Four first;
  Four second;
};

// What a block puts into each line of its planes: `low` words into the lines of the low plane (the
// second four for bytes only), `high` into those of the high plane.
struct LineWords {
  Four low[2];
  std::uint32_t high[2];
};

template <PackLayout kLayout>
LineWords line_words(const Words& w) {
  LineWords lines{};
  unsigned low_bits = 8;
  if constexpr (kLayout.low == LowPlane::kBytes) {
    lines.low[0] = w.first;
    lines.low[1] = w.second;
  } else if constexpr (kLayout.low == LowPlane::kNibbles) {
    low_bits = 4;
    lines.low[0] = fields(w.first, 0, 4) | fields(w.second, 0, 4) << 4;
  } else {
    low_bits = 2;
    const Four pairs = fields(w.first, 0, 2) | fields(w.second, 0, 2) << 4;
    lines.low[0][0] = pairs[0] | pairs[2] << 2;
    lines.low[0][1] = pairs[1] | pairs[3] << 2;
  }
  if constexpr (kLayout.high == HighPlane::kPairs) {
    const Four pairs = fields(w.first, low_bits, 2) | fields(w.second, low_bits, 2) << 4;
    lines.high[0] = pairs[0] | pairs[2] << 2;
    lines.high[1] = pairs[1] | pairs[3] << 2;
  } else if constexpr (kLayout.high == HighPlane::kBits) {
    const Four bits = fields(w.first, low_bits, 1) | fields(w.second, low_bits, 1) << 4;
    lines.high[0] = bits[0] | bits[1] << 1 | bits[2] << 2 | bits[3] << 3;
  }
  return lines;
}

void store_word(std::uint8_t* line, std::size_t lane, std::uint32_t word) {
  std::memcpy(line + 4 * lane, &word, 4);
}

// Words i of 16 lanes become line i, for four i.
void store_four_lines(const Four (&lanes)[kRowGroup], std::uint8_t* lines) {
  for (std::size_t l = 0; l < kRowGroup; l += 4) {
    Four v[4] = {lanes[l], lanes[l + 1], lanes[l + 2], lanes[l + 3]};
    transpose(v);
    for (std::size_t i = 0; i < 4; ++i) std::memcpy(lines + kLine * i + 4 * l, &v[i], 16);
  }
}

// The planes of one block of 32 columns: words_of(lane) for the lanes there are, zeros for others.
template <PackLayout kLayout, class WordsOf>
void put_block(std::uint32_t lanes, const WordsOf& words_of, std::uint8_t* codes) {
  constexpr std::size_t kLowLines = kLayout.low_bytes() / kLine;
  constexpr std::size_t kHighLines = kLayout.code_bytes() / kLine - kLowLines;
  Four low[2][kRowGroup];
  for (std::uint32_t lane = 0; lane < kRowGroup; ++lane) {
    const LineWords lines = lane < lanes ? line_words<kLayout>(words_of(lane)) : LineWords{};
    low[0][lane] = lines.low[0];
    low[1][lane] = lines.low[1];
    if constexpr (kLowLines == 2) {
      store_word(codes, lane, lines.low[0][0]);
      store_word(codes + kLine, lane, lines.low[0][1]);
    }
    for (std::size_t i = 0; i < kHighLines; ++i)
      store_word(codes + kLine * (kLowLines + i), lane, lines.high[i]);
  }
  if constexpr (kLowLines >= 4) store_four_lines(low[0], codes);
  if constexpr (kLowLines == 8) store_four_lines(low[1], codes + 4 * kLine);
}

// -- Codes of 32 weights of a stored block, four at a time ---------------------------------------
// A code is the weight's unsigned integer as stored: see pack_layout.h for the offsets.

// 16 bytes: low nibbles are weights 0 to 15, high nibbles 16 to 31.
Words nibble_words(const std::uint8_t* qs) {
  const Four q = load_four(qs);
  return {fields(q, 0, 4), fields(q, 4, 4)};
}

// nibble_words with bit i of `qh` as the fifth bit of weight i.
Words five_bit_words(const std::uint8_t* qh, const std::uint8_t* qs) {
  std::uint32_t bits;
  std::memcpy(&bits, qh, 4);
  // Bit k of four goes to bit 4 of byte k: the factors are 2^(7 * k).
  const auto spread = [&](unsigned j) {
    return (((bits >> (4 * j)) & 15) * 0x00204081u & 0x01010101u) << 4;
  };
  Words w = nibble_words(qs);
  w.first |= Four{spread(0), spread(1), spread(2), spread(3)};
  w.second |= Four{spread(4), spread(5), spread(6), spread(7)};
  return w;
}

// A field of 32 bytes.
Words field_words(const std::uint8_t* bytes, std::size_t shift, unsigned width) {
  const auto s = static_cast<unsigned>(shift);
  return {fields(load_four(bytes), s, width), fields(load_four(bytes + 16), s, width)};
}
Words with_high(Words low, Words high, unsigned shift) {
  return {low.first | high.first << shift, low.second | high.second << shift};
}

// Group g of 32 of a block.
Words words_of(const BlockQ4_0& block, std::size_t) { return nibble_words(block.qs); }
Words words_of(const BlockQ4_1& block, std::size_t) { return nibble_words(block.qs); }
Words words_of(const BlockQ5_0& block, std::size_t) { return five_bit_words(block.qh, block.qs); }
Words words_of(const BlockQ5_1& block, std::size_t) { return five_bit_words(block.qh, block.qs); }
Words words_of(const BlockIQ4_NL& block, std::size_t) { return nibble_words(block.qs); }
Words words_of(const BlockMXFP4& block, std::size_t) { return nibble_words(block.qs); }
Words words_of(const BlockQ8_0& block, std::size_t) {
  Words w;
  std::memcpy(&w, block.qs, 32);
  return w;
}
Words words_of(const BlockQ2_K& block, std::size_t g) {
  return field_words(block.qs + g / 4 * 32, 2 * (g % 4), 2);
}
Words words_of(const BlockQ3_K& block, std::size_t g) {
  return with_high(field_words(block.qs + g / 4 * 32, 2 * (g % 4), 2),
                   field_words(block.hmask, g, 1), 2);
}
Words words_of(const BlockQ4_K& block, std::size_t g) {
  return field_words(block.qs + g / 2 * 32, 4 * (g % 2), 4);
}
Words words_of(const BlockQ5_K& block, std::size_t g) {
  return with_high(field_words(block.qs + g / 2 * 32, 4 * (g % 2), 4), field_words(block.qh, g, 1),
                   4);
}
Words words_of(const BlockQ6_K& block, std::size_t g) {
  return with_high(field_words(block.ql + g / 4 * 64 + g % 2 * 32, 4 * (g % 4 / 2), 4),
                   field_words(block.qh + g / 4 * 32, 2 * (g % 4), 2), 4);
}
Words words_of(const BlockIQ4_XS& block, std::size_t g) { return nibble_words(block.qs + 16 * g); }

// -- Scales of stored blocks into the header of a bundle -----------------------------------------

// Where a lane's entries of a header go.
struct Lane {
  std::uint8_t* header;
  std::size_t lane;

  // Entry `index` of a table of halves [index][16 lanes], or of bytes [index][16 lanes] at
  // `offset`.
  void half(std::size_t index, StoredHalf value) const {
    const std::uint16_t bits = value.bits();
    std::memcpy(header + 2 * (index * kRowGroup + lane), &bits, 2);
  }
  void byte(std::size_t offset, std::size_t index, int value) const {
    header[offset + index * kRowGroup + lane] = static_cast<std::uint8_t>(value);
  }
};

// Types with a scale for each block of 32; `slot` is the index of the block in the bundle.
template <class Block>
requires std::same_as<Block, BlockQ4_0> || std::same_as<Block, BlockQ5_0> ||
    std::same_as<Block, BlockQ8_0> || std::same_as<Block, BlockIQ4_NL>
void put_scales(const Lane& to, const Block& block, std::size_t slot) { to.half(slot, block.d); }
template <class Block>
requires std::same_as<Block, BlockQ4_1> || std::same_as<Block, BlockQ5_1>
void put_scales(const Lane& to, const Block& block, std::size_t) {
  to.half(0, block.d);
  to.half(1, block.m);
}
void put_scales(const Lane& to, const BlockMXFP4& block, std::size_t slot) {
  to.byte(0, slot, block.e);
}

// Blocks of 256 are bundles of their own.
void put_scales(const Lane& to, const BlockQ2_K& block, std::size_t) {
  to.half(0, block.d);
  to.half(1, block.dmin);
  for (std::size_t g = 0; g < 16; ++g) to.byte(64, g, block.scales[g]);
}
void put_scales(const Lane& to, const BlockQ3_K& block, std::size_t) {
  std::int8_t scales[16];
  unpack_q3_k_scales(block.scales, scales);
  to.half(0, block.d);
  for (std::size_t g = 0; g < 16; ++g) to.byte(64, g, scales[g]);
}
template <class Block>
requires std::same_as<Block, BlockQ4_K> || std::same_as<Block, BlockQ5_K>
void put_scales(const Lane& to, const Block& block, std::size_t) {
  std::uint8_t scales[8];
  std::uint8_t mins[8];
  unpack_q4_k_scales(block.scales, scales, mins);
  to.half(0, block.d);
  to.half(1, block.dmin);
  for (std::size_t g = 0; g < 8; ++g) {
    to.byte(64, g, scales[g]);
    to.byte(192, g, mins[g]);
  }
}
void put_scales(const Lane& to, const BlockQ6_K& block, std::size_t) {
  to.half(0, block.d);
  for (std::size_t g = 0; g < 16; ++g) to.byte(64, g, block.scales[g]);
}
void put_scales(const Lane& to, const BlockIQ4_XS& block, std::size_t) {
  std::int8_t scales[8];
  unpack_iq4_xs_scales(block, scales);
  to.half(0, block.d);
  for (std::size_t g = 0; g < 8; ++g) to.byte(64, g, scales[g]);
}

// Up to 16 rows of stored blocks, of `cols` weights each, into a group.
template <BlockType kType, class Block>
void pack_group(const std::byte* source, std::uint32_t lanes, std::uint32_t cols, std::byte* out) {
  constexpr PackLayout kLayout = pack_layout(kType);
  constexpr std::size_t kParts = kLayout.bundle_blocks == 8 ? 8 : 1;  // 32 columns each, in a block
  constexpr std::size_t kInBundle = kLayout.bundle_blocks / kParts;
  const std::size_t blocks = cols / (32 * kParts);
  for (std::size_t b = 0; b < blocks; ++b) {
    const std::size_t slot = b % kInBundle;
    std::uint8_t* bundle = u8(out) + b / kInBundle * kLayout.bundle_bytes();
    // Entries of no lane or block are zeros, and so are the codes of blocks past the last.
    if (slot == 0) std::memset(bundle, 0, kLayout.header_bytes);
    if (b + 1 == blocks) {
      const std::size_t end = kLayout.header_bytes + (slot + 1) * kParts * kLayout.code_bytes();
      std::memset(bundle + end, 0, kLayout.bundle_bytes() - end);
    }
    Block block[kRowGroup];
    for (std::uint32_t lane = 0; lane < lanes; ++lane) {
      std::memcpy(&block[lane], source + (lane * blocks + b) * sizeof(Block), sizeof(Block));
      put_scales(Lane{bundle, lane}, block[lane], slot);
    }
    for (std::size_t g = 0; g < kParts; ++g) {
      put_block<kLayout>(
          lanes, [&](std::uint32_t lane) { return words_of(block[lane], g); },
          bundle + kLayout.header_bytes + (slot * kParts + g) * kLayout.code_bytes());
    }
  }
}

// [rows][cols] elements to [cols][16 lanes], squares of a vector's width at a time.
template <class Vector>
void pack_float_group(const std::byte* source, std::uint32_t lanes, std::uint32_t cols,
                      std::byte* out) {
  constexpr std::size_t kElement = sizeof(Vector{}[0]);
  constexpr std::size_t kSide = sizeof(Vector) / kElement;
  const std::size_t row_bytes = std::size_t{cols} * kElement;
  std::memset(out + row_bytes * kRowGroup, 0,
              round_to_line(row_bytes * kRowGroup) - row_bytes * kRowGroup);
  const auto square = [&](std::size_t c, std::size_t width) __attribute__((always_inline)) {
    for (std::size_t l = 0; l < kRowGroup; l += kSide) {
      Vector v[kSide] = {};
      for (std::size_t i = 0; i < kSide && l + i < lanes; ++i)
        std::memcpy(&v[i], source + (l + i) * row_bytes + c * kElement, width * kElement);
      transpose(v);
      for (std::size_t i = 0; i < width; ++i)
        std::memcpy(out + ((c + i) * kRowGroup + l) * kElement, &v[i], sizeof(Vector));
    }
  };
  const std::size_t whole = cols / kSide * kSide;
  for (std::size_t c = 0; c < whole; c += kSide) square(c, kSide);
  if (whole < cols) square(whole, cols - whole);
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
    const std::uint32_t first_row = group * kRowGroup;
    const std::uint32_t lanes = rows - first_row < kRowGroup ? rows - first_row : kRowGroup;
    const std::byte* group_source = source + first_row * row_bytes;
    const auto pack = [&]<BlockType kType, class Block>() {
      pack_group<kType, Block>(group_source, lanes, cols, group_out);
    };
    switch (type) {
      case BlockType::kF32:
        pack_float_group<Four>(group_source, lanes, cols, group_out);
        break;
      case BlockType::kF16:
      case BlockType::kBF16:
        pack_float_group<Eight>(group_source, lanes, cols, group_out);
        break;
      case BlockType::kQ4_0:
        pack.template operator()<BlockType::kQ4_0, BlockQ4_0>();
        break;
      case BlockType::kQ4_1:
        pack.template operator()<BlockType::kQ4_1, BlockQ4_1>();
        break;
      case BlockType::kQ5_0:
        pack.template operator()<BlockType::kQ5_0, BlockQ5_0>();
        break;
      case BlockType::kQ5_1:
        pack.template operator()<BlockType::kQ5_1, BlockQ5_1>();
        break;
      case BlockType::kQ8_0:
        pack.template operator()<BlockType::kQ8_0, BlockQ8_0>();
        break;
      case BlockType::kQ2_K:
        pack.template operator()<BlockType::kQ2_K, BlockQ2_K>();
        break;
      case BlockType::kQ3_K:
        pack.template operator()<BlockType::kQ3_K, BlockQ3_K>();
        break;
      case BlockType::kQ4_K:
        pack.template operator()<BlockType::kQ4_K, BlockQ4_K>();
        break;
      case BlockType::kQ5_K:
        pack.template operator()<BlockType::kQ5_K, BlockQ5_K>();
        break;
      case BlockType::kQ6_K:
        pack.template operator()<BlockType::kQ6_K, BlockQ6_K>();
        break;
      case BlockType::kIQ4_NL:
        pack.template operator()<BlockType::kIQ4_NL, BlockIQ4_NL>();
        break;
      case BlockType::kIQ4_XS:
        pack.template operator()<BlockType::kIQ4_XS, BlockIQ4_XS>();
        break;
      case BlockType::kMXFP4:
        pack.template operator()<BlockType::kMXFP4, BlockMXFP4>();
        break;
    }
  }
}

}  // namespace sluice::cpu

#include "cuda/pack.h"

#include <array>
#include <cstring>

#include "src/quant/layout.h"

namespace sluice::cuda {
namespace {

// What has to be known of a type.
struct Packing {
  BlockType type;
  TileKind kind;
  // Puts a stored block of weights into row `row` of the records (and the header before them)
  // that begin at `out`.
  void (*pack)(const std::byte* block, std::uint32_t row, std::byte* out);
};

// -- Writing into records ------------------------------------------------------------------------

// Codes of 32 weights, byte k of word j: column 4 j + k.
using Codes = std::array<std::uint32_t, 8>;

std::uint32_t word_at(const void* bytes, std::size_t i) {
  std::uint32_t word;
  std::memcpy(&word, static_cast<const std::byte*>(bytes) + 4 * i, 4);
  return word;
}
void put_word(std::byte* out, std::uint32_t word) { std::memcpy(out, &word, 4); }

// Each byte's bit field of `width` bits at `shift`.
std::uint32_t fields(std::uint32_t word, unsigned shift, unsigned width) {
  return (word >> shift) & (0x01010101u * ((1u << width) - 1));
}

// The four low nibbles of a word, side by side.
std::uint32_t gather_nibbles(std::uint32_t word) {
  const std::uint32_t nibbles = fields(word, 0, 4);
  const std::uint32_t pairs = (nibbles | nibbles >> 4) & 0x00ff00ffu;
  return (pairs | pairs >> 8) & 0xffffu;
}

template <class Tiles>
void put_codes(const Codes& codes, std::uint32_t row, std::byte* record) {
  constexpr TileCodes kCodes = Tiles::kCodes;
  for (std::size_t t = 0; t < 4; ++t) {
    std::byte* word = record + 16 * row + 4 * t;
    if constexpr (kCodes == TileCodes::kBytes) {
      put_word(word, codes[t]);
      put_word(word + kPlaneBytes, codes[4 + t]);
    } else if constexpr (kCodes == TileCodes::kIq4 || kCodes == TileCodes::kMxfp4) {
      put_word(word, gather_nibbles(codes[t]) | gather_nibbles(codes[4 + t]) << 16);
    } else {
      put_word(word, fields(codes[t], 0, 4) | fields(codes[4 + t], 0, 4) << 4);
    }
    std::byte* high = record + Tiles::kHighAt + 16 * (row % 8) + 4 * t;
    const unsigned of_row = 2 * (row / 8);
    if constexpr (kCodes == TileCodes::kFiveBits) {
      const std::uint32_t bits = fields(codes[t], 4, 1) | fields(codes[4 + t], 4, 1) << 1;
      put_word(high, word_at(high, 0) | bits << of_row);
    } else if constexpr (kCodes == TileCodes::kSixBitsLess32) {
      for (std::size_t h = 0; h < 2; ++h) {
        std::byte* plane = high + h * kHighPlaneBytes;
        put_word(plane, word_at(plane, 0) | fields(codes[4 * h + t], 4, 2) << of_row);
      }
    }
  }
}

// Entry of a row in array number `array` of 32 values of T.
template <class T>
void put_entry(std::byte* arrays, std::size_t array, std::uint32_t row, T value) {
  const std::size_t index =
      array * kTileRows + static_cast<std::size_t>(row_place(static_cast<std::int32_t>(row)));
  std::memcpy(arrays + sizeof(T) * index, &value, sizeof(T));
}

// -- Layouts of their own ------------------------------------------------------------------------

Codes nibbles_of(const std::uint8_t (&qs)[16]) {
  Codes codes;
  for (std::size_t t = 0; t < 4; ++t) {
    codes[t] = fields(word_at(qs, t), 0, 4);
    codes[4 + t] = fields(word_at(qs, t), 4, 4);
  }
  return codes;
}
Codes codes_of(const BlockQ4_0& block) { return nibbles_of(block.qs); }
Codes codes_of(const BlockIQ4_NL& block) { return nibbles_of(block.qs); }
Codes codes_of(const BlockMXFP4& block) { return nibbles_of(block.qs); }
Codes codes_of(const BlockQ8_0& block) {
  Codes codes;
  std::memcpy(codes.data(), block.qs, 32);
  return codes;
}

void put_scale(const StoredHalf& d, std::uint32_t row, std::byte* scales) {
  put_entry(scales, 0, row, d.bits());
}

// Blocks of 32 weights.
template <class Block, class Tiles>
void pack_block(const std::byte* source, std::uint32_t row, std::byte* out) {
  Block block;
  std::memcpy(&block, source, sizeof block);
  put_codes<Tiles>(codes_of(block), row, out);
  if constexpr (Tiles::kScales == TileScales::kExponent) {
    put_entry(out + Tiles::kScalesAt, 0, row, block.e);
  } else {
    put_scale(block.d, row, out + Tiles::kScalesAt);
  }
}

// Group g of 32 of a block of 256.
Codes codes_of(const BlockQ4_K& block, std::size_t g) {
  Codes codes;
  for (std::size_t j = 0; j < 8; ++j) {
    codes[j] = fields(word_at(block.qs + g / 2 * 32, j), static_cast<unsigned>(4 * (g % 2)), 4);
  }
  return codes;
}
Codes codes_of(const BlockQ5_K& block, std::size_t g) {
  Codes codes;
  for (std::size_t j = 0; j < 8; ++j) {
    codes[j] = fields(word_at(block.qs + g / 2 * 32, j), static_cast<unsigned>(4 * (g % 2)), 4) |
               fields(word_at(block.qh, j), static_cast<unsigned>(g), 1) << 4;
  }
  return codes;
}
Codes codes_of(const BlockQ6_K& block, std::size_t g) {
  const std::uint8_t* low = block.ql + g / 4 * 64 + g % 2 * 32;
  const std::uint8_t* high = block.qh + g / 4 * 32;
  Codes codes;
  for (std::size_t j = 0; j < 8; ++j) {
    codes[j] = fields(word_at(low, j), static_cast<unsigned>(4 * (g % 4 / 2)), 4) |
               fields(word_at(high, j), static_cast<unsigned>(2 * (g % 4)), 2) << 4;
  }
  return codes;
}

template <class Block, class Tiles>
void pack_k_block(const std::byte* source, std::uint32_t row, std::byte* out) {
  Block block;
  std::memcpy(&block, source, sizeof block);
  put_entry(out, 0, row, block.d.bits());
  std::uint8_t scales[8];
  std::uint8_t mins[8];
  if constexpr (Tiles::kHasMin) {
    put_entry(out, 1, row, block.dmin.bits());
    unpack_q4_k_scales(block.scales, scales, mins);
  }
  for (std::size_t g = 0; g < 8; ++g) {
    std::byte* record = out + Tiles::kHeaderBytes + g * Tiles::kRecordBytes;
    put_codes<Tiles>(codes_of(block, g), row, record);
    if constexpr (Tiles::kHasMin) {
      put_entry(record + Tiles::kScalesAt, 0, row, scales[g]);
      put_entry(record + Tiles::kScalesAt, 1, row, mins[g]);
    } else {
      put_entry(record + Tiles::kScalesAt, 0, row, block.scales[2 * g]);
      put_entry(record + Tiles::kScalesAt, 1, row, block.scales[2 * g + 1]);
    }
  }
}

// -- Types that are unpacked ---------------------------------------------------------------------

// Scales and minima of the groups of weights that a stored block has, multiplied as
// src/quant/layout.h says.
template <std::size_t kGroups>
struct GroupScales {
  std::array<float, kGroups> scale = {};
  std::array<float, kGroups> min = {};
};

template <class Block>
GroupScales<1> one_scale(const Block& block) {
  return {{block.d.value()}, {}};
}
GroupScales<1> scales_of(const BlockQ5_0& block) { return one_scale(block); }
GroupScales<1> scales_of(const BlockQ4_1& block) { return {{block.d.value()}, {block.m.value()}}; }
GroupScales<1> scales_of(const BlockQ5_1& block) { return {{block.d.value()}, {block.m.value()}}; }
GroupScales<8> scales_of(const BlockIQ4_XS& block) {
  std::int8_t factors[8];
  unpack_iq4_xs_scales(block, factors);
  GroupScales<8> scales;
  for (std::size_t g = 0; g < 8; ++g) scales.scale[g] = block.d.value() * factors[g];
  return scales;
}
GroupScales<16> scales_of(const BlockQ2_K& block) {
  GroupScales<16> scales;
  for (std::size_t g = 0; g < 16; ++g) {
    scales.scale[g] = block.d.value() * static_cast<float>(block.scales[g] & 15);
    scales.min[g] = -(block.dmin.value() * static_cast<float>(block.scales[g] >> 4));
  }
  return scales;
}
GroupScales<16> scales_of(const BlockQ3_K& block) {
  std::int8_t factors[16];
  unpack_q3_k_scales(block.scales, factors);
  GroupScales<16> scales;
  for (std::size_t g = 0; g < 16; ++g) scales.scale[g] = block.d.value() * factors[g];
  return scales;
}

template <class Block, std::size_t kWeights, class Tiles>
void pack_wide(const std::byte* source, std::uint32_t row, std::byte* out) {
  constexpr std::size_t kParts = Tiles::kParts;
  Block block;
  std::memcpy(&block, source, sizeof block);
  std::int8_t q[kWeights];
  unpack(block, q);
  const GroupScales<kWeights / 32 * kParts> scales = scales_of(block);
  for (std::size_t g = 0; g < kWeights / 32; ++g, out += Tiles::kRecordBytes) {
    Codes codes;
    std::memcpy(codes.data(), q + 32 * g, 32);
    put_codes<Tiles>(codes, row, out);
    for (std::size_t part = 0; part < kParts; ++part) {
      put_entry(out + Tiles::kScalesAt, part, row, scales.scale[kParts * g + part]);
      put_entry(out + Tiles::kScalesAt, kParts + part, row, scales.min[kParts * g + part]);
    }
  }
}

// -- All types -----------------------------------------------------------------------------------

constexpr Packing kPackings[] = {
    {BlockType::kQ4_0, TileKind::kQ4_0, pack_block<BlockQ4_0, TilesQ4_0>},
    {BlockType::kQ8_0, TileKind::kQ8_0, pack_block<BlockQ8_0, TilesQ8_0>},
    {BlockType::kIQ4_NL, TileKind::kIQ4_NL, pack_block<BlockIQ4_NL, TilesIQ4_NL>},
    {BlockType::kMXFP4, TileKind::kMXFP4, pack_block<BlockMXFP4, TilesMXFP4>},
    {BlockType::kQ4_K, TileKind::kQ4_K, pack_k_block<BlockQ4_K, TilesQ4_K>},
    {BlockType::kQ5_K, TileKind::kQ5_K, pack_k_block<BlockQ5_K, TilesQ5_K>},
    {BlockType::kQ6_K, TileKind::kQ6_K, pack_k_block<BlockQ6_K, TilesQ6_K>},
    {BlockType::kQ4_1, TileKind::kWide, pack_wide<BlockQ4_1, 32, TilesWide>},
    {BlockType::kQ5_0, TileKind::kWide, pack_wide<BlockQ5_0, 32, TilesWide>},
    {BlockType::kQ5_1, TileKind::kWide, pack_wide<BlockQ5_1, 32, TilesWide>},
    {BlockType::kIQ4_XS, TileKind::kWide, pack_wide<BlockIQ4_XS, 256, TilesWide>},
    {BlockType::kQ2_K, TileKind::kWideHalves, pack_wide<BlockQ2_K, 256, TilesWideHalves>},
    {BlockType::kQ3_K, TileKind::kWideHalves, pack_wide<BlockQ3_K, 256, TilesWideHalves>},
};

const Packing* find_packing(BlockType type) {
  for (const Packing& packing : kPackings) {
    if (packing.type == type) return &packing;
  }
  return nullptr;
}

// Bytes that a tile has for `cols` columns.
std::size_t bytes_of_tile(TileKind kind, std::uint32_t cols) {
  return visit_tiles(kind, [&](auto tiles) {
    return static_cast<std::size_t>(
        tile_bytes<decltype(tiles)>(static_cast<std::int32_t>(cols / kBlockCols)));
  });
}

}  // namespace

std::optional<TileKind> tile_kind(BlockType type) {
  const Packing* packing = find_packing(type);
  return packing == nullptr ? std::nullopt : std::optional(packing->kind);
}

bool has_tiles(BlockType type) { return find_packing(type) != nullptr; }

std::uint32_t tile_count(std::uint32_t rows) {
  return rows / kTileRows + (rows % kTileRows != 0 ? 1 : 0);
}

std::size_t packed_bytes(BlockType type, std::uint32_t rows, std::uint32_t cols) {
  return tile_count(rows) * bytes_of_tile(find_packing(type)->kind, cols);
}

void pack_tiles(BlockType type, const std::byte* source, std::uint32_t rows, std::uint32_t cols,
                std::uint32_t tile_begin, std::uint32_t tile_end, std::byte* out) {
  const Packing& packing = *find_packing(type);
  const BlockTypeInfo& info = block_type_info(type);
  const std::size_t row_blocks = cols / info.block_size;
  const std::size_t row_bytes = row_blocks * info.block_bytes;
  const std::size_t tile_bytes = bytes_of_tile(packing.kind, cols);
  const std::size_t packed_block = bytes_of_tile(packing.kind, info.block_size);
  std::memset(out, 0, (tile_end - tile_begin) * tile_bytes);
  for (std::uint32_t tile = tile_begin; tile < tile_end; ++tile, out += tile_bytes) {
    const std::uint32_t first = tile * kTileRows;
    const std::uint32_t some = rows - first < kTileRows ? rows - first : kTileRows;
    for (std::size_t block = 0; block < row_blocks; ++block) {
      const std::byte* from = source + first * row_bytes + block * info.block_bytes;
      for (std::uint32_t row = 0; row < some; ++row, from += row_bytes) {
        packing.pack(from, row, out + block * packed_block);
      }
    }
  }
}

}  // namespace sluice::cuda

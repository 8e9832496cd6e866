// The codes of a record (cuda/weight_tiles.h) as signed bytes, four to a word, for dp4a and mma.
//
// Signs come by place: with zeros below it, at the top of a byte, and with the byte's sign bit
// turned over, a code c of four bits stands for 16 * (c - 8) and one of six for 4 * (c - 32). The
// dot product is then 2^kShift times too large, exactly, which costs nothing to take back (see
// tile_sums.cuh) where subtracting would cost an instruction for each word.
//
// Codebooks are looked up in registers: byte_permute chooses by three bits among eight bytes, once
// in either half of the codebook, and the fourth bits choose between the two. No table lies in
// memory, where the lanes would wait for each other.
#pragma once

#include "cuda/arguments.h"
#include "cuda/weight_tiles.h"

namespace sluice::cuda {

using SharedBytes = simt::Shared<std::uint8_t>;

// Codebooks as 16 bytes, the first in the low byte of the first word.
template <TileCodes kCodes>
SIMT_DEVICE std::uint32_t codebook_word(int i) {
  static_assert(kCodes == TileCodes::kIq4 || kCodes == TileCodes::kMxfp4);
  constexpr bool kIq4 = kCodes == TileCodes::kIq4;
  constexpr std::uint32_t kWords[4] = {
      kIq4 ? 0xbfad9881u : 0x03020100u,   // -127 -104 -83 -65     0  1  2  3
      kIq4 ? 0xf6eaddcfu : 0x0c080604u,   //  -49  -35 -22 -10     4  6  8 12
      kIq4 ? 0x26190d01u : 0xfdfeff00u,   //    1   13  25  38     0 -1 -2 -3
      kIq4 ? 0x71594535u : 0xf4f8fafcu};  //   53   69  89 113    -4 -6 -8 -12
  return kWords[i];
}

// The values of the four nibbles in the low half of a word.
template <TileCodes kCodes>
SIMT_DEVICE std::uint32_t codebook_values(std::uint32_t nibbles) {
  const std::uint32_t index = nibbles & 0x7777u;
  const std::uint32_t first =
      simt::byte_permute(codebook_word<kCodes>(0), codebook_word<kCodes>(1), index);
  const std::uint32_t second =
      simt::byte_permute(codebook_word<kCodes>(2), codebook_word<kCodes>(3), index);
  return simt::byte_permute(first, second, ((nibbles & 0x8888u) >> 1) | 0x3210u);
}

// Words of four columns each: `low` are columns 4t.. of a row, `high` columns 16 + 4t.. . `word` is
// word t of its plane; for codes with high bits, bits[h] are those of the row at the bottom of each
// byte.
template <class Tiles>
SIMT_DEVICE void decode_word(std::uint32_t word, const std::uint32_t (&bits)[2], std::uint32_t& low,
                             std::uint32_t& high) {
  constexpr TileCodes kCodes = Tiles::kCodes;
  static_assert(kCodes != TileCodes::kBytes);
  if constexpr (kCodes == TileCodes::kNibblesLess8) {
    low = ((word << 4) & 0xf0f0f0f0u) ^ 0x80808080u;
    high = (word & 0xf0f0f0f0u) ^ 0x80808080u;
  } else if constexpr (kCodes == TileCodes::kNibbles) {
    low = word & 0x0f0f0f0fu;
    high = (word >> 4) & 0x0f0f0f0fu;
  } else if constexpr (kCodes == TileCodes::kFiveBits) {
    low = (word & 0x0f0f0f0fu) | ((bits[0] << 4) & 0x10101010u);
    high = ((word >> 4) & 0x0f0f0f0fu) | ((bits[0] << 3) & 0x10101010u);
  } else if constexpr (kCodes == TileCodes::kSixBitsLess32) {
    low = (((word << 2) & 0x3c3c3c3cu) | ((bits[0] << 6) & 0xc0c0c0c0u)) ^ 0x80808080u;
    high = (((word >> 2) & 0x3c3c3c3cu) | ((bits[1] << 6) & 0xc0c0c0c0u)) ^ 0x80808080u;
  } else {
    low = codebook_values<kCodes>(word);
    high = codebook_values<kCodes>(word >> 16);
  }
}

// For dp4a: the codes of this lane's row, words 0-3: columns 0-15, words 4-7: columns 16-31.
template <class Tiles>
SIMT_DEVICE void load_row_codes(SharedBytes record, std::uint32_t (&codes)[8]) {
  const auto row = static_cast<std::int32_t>(simt::lane());
  const simt::Words plane = simt::load_words(record + 16 * row);
  if constexpr (Tiles::kCodes == TileCodes::kBytes) {
    const simt::Words second = simt::load_words(record + (kPlaneBytes + 16 * row));
    SIMT_UNROLL
    for (int t = 0; t < 4; ++t) {
      codes[t] = plane.word[t];
      codes[4 + t] = second.word[t];
    }
  } else {
    // High bits of four rows: those of this one are moved to the bottom.
    simt::Words bits[2] = {};
    SIMT_UNROLL
    for (int h = 0; h < Tiles::kHighPlanes; ++h) {
      bits[h] = simt::load_words(record + (Tiles::kHighAt + h * kHighPlaneBytes + 16 * (row % 8)));
    }
    SIMT_UNROLL
    for (int t = 0; t < 4; ++t) {
      const std::uint32_t of_row[2] = {bits[0].word[t] >> (2 * (row / 8)),
                                       bits[1].word[t] >> (2 * (row / 8))};
      decode_word<Tiles>(plane.word[t], of_row, codes[t], codes[4 + t]);
    }
  }
}

// For mma: codes of rows g + 8 i, low[i] columns 4t..4t+3, high[i] columns 16+4t..16+4t+3. Rows
// 16 m .. of the tile are a = { low[2 m], low[2 m + 1], high[2 m], high[2 m + 1] }.
template <class Tiles>
SIMT_DEVICE void load_fragments(SharedBytes record, std::uint32_t (&low)[4],
                                std::uint32_t (&high)[4]) {
  const auto lane = static_cast<std::int32_t>(simt::lane());
  const simt::Words plane = simt::load_matrices_x4(record + 16 * lane);
  if constexpr (Tiles::kCodes == TileCodes::kBytes) {
    const simt::Words second = simt::load_matrices_x4(record + (kPlaneBytes + 16 * lane));
    SIMT_UNROLL
    for (int i = 0; i < 4; ++i) {
      low[i] = plane.word[i];
      high[i] = second.word[i];
    }
  } else {
    std::uint32_t bits[2] = {};
    SIMT_UNROLL
    for (int h = 0; h < Tiles::kHighPlanes; ++h) {
      bits[h] = simt::load(
          simt::cast<std::uint32_t>(record + (Tiles::kHighAt + h * kHighPlaneBytes + 4 * lane)));
    }
    SIMT_UNROLL
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t of_row[2] = {bits[0] >> (2 * i), bits[1] >> (2 * i)};
      decode_word<Tiles>(plane.word[i], of_row, low[i], high[i]);
    }
  }
}

}  // namespace sluice::cuda

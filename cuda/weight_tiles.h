// How weights lie in GPU memory: read by the kernels, written by cuda/pack.h.
//
// A matrix is cut into tiles of 32 rows, a tile into blocks of 32 columns. Blocks come in bundles:
// of one block, or of eight that share a header. A tile's bundles follow each other, tiles follow
// each other; everything is a multiple of 16 bytes:
//
//   matrix = | tile 0: bundle 0, bundle 1, ... | tile 1: ... |
//   bundle = | header, where there is one | record of block 0 | record of block 1 | ...
//   record = | plane 0: 32 rows x 16 bytes | plane 1, where there is one | high bits | scales |
//
// Lane r of a warp loads row r's 16 bytes of a plane: 512 bytes side by side. Nothing else has to
// be arranged for either kind of arithmetic:
//
//   dp4a   lane r holds the codes of row r.
//   mma    ldmatrix on a plane gives lane (g, t) word t of rows g, g + 8, g + 16, g + 24, which is
//          what the fragments of two 16 x 32 tiles want.
//
// Codes (TileCodes), word t of a row, from the low bits up:
//
//   bytes      two planes: columns 0-15 and columns 16-31, signed
//   nibbles    byte k: low half column 4t + k, high half column 16 + 4t + k
//   codebooks  nibble k (k < 4): column 4t + k; nibble 4 + k: column 16 + 4t + k
//
// High bits of nibbles lie by lane (g, t) too, four rows together: bit 8k + 2i + h of word [g][t]
// is the fifth bit of row g + 8i, column 16h + 4t + k. Pairs of bits: the same in two planes of 128
// bytes, one for each h, the pair at bit 8k + 2i.
//
// Scales (TileScales) of the rows of a tile are arrays of 32, in headers and records alike. The
// entry of row r is number row_place(r), so that those of rows g, g + 8, g + 16, g + 24 are
// neighbours:
//
//             in a record                  in a header (of eight blocks)
//   half      f16 d
//   exponent  u8 e
//   k         u8 sc, u8 m                  f16 d, f16 dmin
//   k halves  i8 sc of columns 0-15, of    f16 d
//             columns 16-31
//   float     f32 scale, f32 min
//   float     f32 scale of columns 0-15,
//   halves    of 16-31, f32 min likewise
//
// Rows past the matrix's last one have zeros.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/simt.h"

namespace sluice::cuda {

inline constexpr std::int32_t kTileRows = 32;
inline constexpr std::int32_t kBlockCols = 32;
inline constexpr std::int32_t kPlaneBytes = kTileRows * 16;
inline constexpr std::int32_t kHighPlaneBytes = kTileRows * 4;

// What a code c stands for.
enum class TileCodes : std::uint8_t {
  kBytes,         // c
  kNibblesLess8,  // c - 8
  kNibbles,       // c
  kIq4,           // kIq4Codebook[c], src/quant/layout.h
  kMxfp4,         // kMxfp4DoubledCodebook[c]
  kFiveBits,      // c
  kSixBitsLess32  // c - 32
};

// A weight is scale * code + min; a block has one scale, or two where one covers 16 columns.
enum class TileScales : std::uint8_t {
  kHalf,         // scale = d
  kExponent,     // scale = half of 2^(e - 127)
  kK,            // scale = d * sc, min = -(dmin * m)
  kKHalves,      // scale = d * sc, two a block
  kFloat,        // scale, min
  kFloatHalves,  // scale, min, two each a block
};

template <TileCodes codes, TileScales scales>
struct TileLayout {
  static constexpr TileCodes kCodes = codes;
  static constexpr TileScales kScales = scales;
  static constexpr bool kHasMin = scales == TileScales::kK || scales == TileScales::kFloat ||
                                  scales == TileScales::kFloatHalves;
  // Scales in a block: its dot product is taken in that many parts.
  static constexpr std::int32_t kParts =
      scales == TileScales::kKHalves || scales == TileScales::kFloatHalves ? 2 : 1;
  // The kernels' codes are 2^kShift times what a code stands for, see kernels/tile_codes.cuh.
  static constexpr std::int32_t kShift = codes == TileCodes::kNibblesLess8    ? 4
                                         : codes == TileCodes::kSixBitsLess32 ? 2
                                                                              : 0;

  static constexpr std::int32_t kPlanes = codes == TileCodes::kBytes ? 2 : 1;
  static constexpr std::int32_t kHighPlanes = codes == TileCodes::kSixBitsLess32 ? 2
                                              : codes == TileCodes::kFiveBits    ? 1
                                                                                 : 0;
  static constexpr std::int32_t kScaleBytes =
      kTileRows * (scales == TileScales::kExponent      ? 1
                   : scales == TileScales::kFloat       ? 8
                   : scales == TileScales::kFloatHalves ? 16
                                                        : 2);  // a half, or two bytes
  static constexpr std::int32_t kHeaderBytes = kTileRows * (scales == TileScales::kK         ? 4
                                                            : scales == TileScales::kKHalves ? 2
                                                                                             : 0);
  static constexpr std::int32_t kBundleBlocks = kHeaderBytes > 0 ? 8 : 1;

  // Offsets in a record.
  static constexpr std::int32_t kHighAt = kPlanes * kPlaneBytes;
  static constexpr std::int32_t kScalesAt = kHighAt + kHighPlanes * kHighPlaneBytes;
  static constexpr std::int32_t kRecordBytes = kScalesAt + kScaleBytes;
  static constexpr std::int32_t kBundleBytes = kHeaderBytes + kBundleBlocks * kRecordBytes;
};

struct TilesQ4_0 : TileLayout<TileCodes::kNibblesLess8, TileScales::kHalf> {};
struct TilesQ8_0 : TileLayout<TileCodes::kBytes, TileScales::kHalf> {};
struct TilesIQ4_NL : TileLayout<TileCodes::kIq4, TileScales::kHalf> {};
struct TilesMXFP4 : TileLayout<TileCodes::kMxfp4, TileScales::kExponent> {};
struct TilesQ4_K : TileLayout<TileCodes::kNibbles, TileScales::kK> {};
struct TilesQ5_K : TileLayout<TileCodes::kFiveBits, TileScales::kK> {};
struct TilesQ6_K : TileLayout<TileCodes::kSixBitsLess32, TileScales::kKHalves> {};
// What has no layout of its own, unpacked: types with one scale for 32 columns (Q4_1, Q5_0, Q5_1,
// IQ4_XS) and with one for 16 (Q2_K, Q3_K).
struct TilesWide : TileLayout<TileCodes::kBytes, TileScales::kFloat> {};
struct TilesWideHalves : TileLayout<TileCodes::kBytes, TileScales::kFloatHalves> {};

// The layouts as numbers, for host code; cuda/pack.h knows that of each type of weights.
enum class TileKind : std::uint8_t {
  kQ4_0,
  kQ8_0,
  kIQ4_NL,
  kMXFP4,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kWide,
  kWideHalves
};
inline constexpr std::size_t kTileKinds =
    std::size_t{static_cast<std::uint8_t>(TileKind::kWideHalves)} + 1;
// Calls visit(TilesQ4_0()) or whichever it is, and returns what it returns.
template <class Visit>
decltype(auto) visit_tiles(TileKind kind, Visit&& visit) {
  switch (kind) {
    case TileKind::kQ4_0:
      break;
    case TileKind::kQ8_0:
      return visit(TilesQ8_0());
    case TileKind::kIQ4_NL:
      return visit(TilesIQ4_NL());
    case TileKind::kMXFP4:
      return visit(TilesMXFP4());
    case TileKind::kQ4_K:
      return visit(TilesQ4_K());
    case TileKind::kQ5_K:
      return visit(TilesQ5_K());
    case TileKind::kQ6_K:
      return visit(TilesQ6_K());
    case TileKind::kWide:
      return visit(TilesWide());
    case TileKind::kWideHalves:
      return visit(TilesWideHalves());
  }
  return visit(TilesQ4_0());
}

// Number of a row's entry in an array of scales.
SIMT_ANYWHERE std::int32_t row_place(std::int32_t row) { return 4 * (row % 8) + row / 8; }

SIMT_ANYWHERE std::int32_t tiles_of(std::int32_t rows) {
  return rows / kTileRows + (rows % kTileRows != 0 ? 1 : 0);
}
// Bytes of a tile. `blocks` is what its rows have, a multiple of the bundle's.
template <class Tiles>
SIMT_ANYWHERE std::int64_t tile_bytes(std::int32_t blocks) {
  return std::int64_t{blocks / Tiles::kBundleBlocks} * Tiles::kBundleBytes;
}
// Offsets of a block's header and record in its tile.
template <class Tiles>
SIMT_ANYWHERE std::int64_t header_offset(std::int32_t block) {
  return tile_bytes<Tiles>(block);
}
template <class Tiles>
SIMT_ANYWHERE std::int64_t record_offset(std::int32_t block) {
  return header_offset<Tiles>(block) + Tiles::kHeaderBytes +
         block % Tiles::kBundleBlocks * Tiles::kRecordBytes;
}

}  // namespace sluice::cuda

// How weights lie in GPU memory: read by the kernels, written by cuda/pack.h.
//
// A matrix is cut into tiles of 32 rows, a tile into blocks of 32 columns. A tile's blocks follow
// each other, tiles follow each other:
//
//   matrix = | tile 0: record of block 0, block 1, ... | tile 1: ... |
//   record = | plane 0: 32 rows x 16 bytes | plane 1, where there is one | 32 scales, f16 |
//
// Lane r of a warp loads row r's 16 bytes: 512 bytes side by side, the scales behind them. Nothing
// else has to be arranged for either kind of arithmetic:
//
//   dp4a   lane r holds the codes of row r.
//   mma    ldmatrix on a plane gives lane (g, t) word t of rows g, g + 8, g + 16, g + 24, which is
//          what the fragments of two 16 x 32 tiles want.
//
//   Q4_0   one plane, byte i of a row = low 4 bits: column i, high 4 bits: column i + 16
//   Q8_0   two planes of signed bytes: columns 0-15, columns 16-31
//
// Rows past the matrix's last one have zeros. A weight is scale * code, code signed (Q4_0: n - 8).
#pragma once

#include <cstdint>

namespace sluice::cuda {

inline constexpr std::int32_t kTileRows = 32;
inline constexpr std::int32_t kBlockCols = 32;
inline constexpr std::int32_t kPlaneBytes = kTileRows * 16;
inline constexpr std::int32_t kScaleBytes = kTileRows * 2;

// kPlanes as above. kShift: the kernels' codes are 2^kShift times the weight's, see matvec.cuh.
// kStages: records of a warp that are on their way or in use; with eight warps a block that is at
// least 23 KB under way on a multiprocessor, what bandwidth times latency of an H200 asks for
// (4.8 TB/s * 600 ns / 132).
struct TilesQ4_0 {
  static constexpr std::int32_t kPlanes = 1;
  static constexpr std::int32_t kShift = 4;
  static constexpr std::int32_t kStages = 6;
  static constexpr std::int32_t kRecordBytes = kPlanes * kPlaneBytes + kScaleBytes;
};
struct TilesQ8_0 {
  static constexpr std::int32_t kPlanes = 2;
  static constexpr std::int32_t kShift = 0;
  static constexpr std::int32_t kStages = 4;
  static constexpr std::int32_t kRecordBytes = kPlanes * kPlaneBytes + kScaleBytes;
};

}  // namespace sluice::cuda

// What the two kernels of a quantized matrix times a few rows of activations have in common: how
// the contraction is cut, how weights and activations stream through shared memory, and how the
// parts are summed. The kernels differ in the arithmetic of a block only (matvec_dp4a.cuh,
// matvec_mma.cuh) and give the same bits.
//
// Order of accumulation, which depends on the matrix's columns alone:
//  - the dot product of a block of 32 columns is an exact int32;
//  - the blocks of a row are cut into at most eight segments of equally many blocks (the last one
//    may have fewer); within a segment acc = fma(w_scale * x_scale, float(dot), acc) in sequence;
//  - the segments' sums are added in sequence, starting with the first.
//
// A block of threads makes 32 weight rows (a tile, see cuda/weight_tiles.h) for all activation
// rows; warp s does segment s. So weights are read once whatever the number of activation rows.
//
//   warp's share of shared memory = | stage 0 | stage 1 | ... | kStages of them, a ring
//   stage = | record: planes, scales | x columns 0-15: kXRows x 16 | x columns 16-31 | x scales |
//
// Each lane copies its pieces of a stage asynchronously and waits for them kStages - 1 blocks
// later; sync_warp makes them visible to the other lanes, and another one says that all have read
// the stage before it is filled anew. In the end the ring's memory takes the partial sums:
//
//   partial = [segment][x row][32 weight rows] float
#pragma once

#include "cuda/arguments.h"
#include "cuda/weight_tiles.h"

namespace sluice::cuda {

inline constexpr std::int32_t kSegments = 8;  // and warps
inline constexpr std::int32_t kMatvecThreads = 32 * kSegments;

template <class Tiles, int kXRows>
struct Stage {
  static constexpr std::int32_t kScales = Tiles::kPlanes * kPlaneBytes;
  static constexpr std::int32_t kX = Tiles::kRecordBytes;
  static constexpr std::int32_t kXPlane = kXRows * 16;
  static constexpr std::int32_t kXScales = kX + 2 * kXPlane;
  static constexpr std::int32_t kBytes = (kXScales + 4 * kXRows + 15) / 16 * 16;
};

// Shared memory of a block of threads.
template <class Tiles, int kXRows>
SIMT_ANYWHERE std::int32_t matvec_shared_bytes() {
  const std::int32_t rings = kSegments * Tiles::kStages * Stage<Tiles, kXRows>::kBytes;
  const std::int32_t partial = kSegments * kXRows * kTileRows * 4;
  return rings > partial ? rings : partial;
}

// Blocks of 32 columns in a segment.
SIMT_ANYWHERE std::int32_t segment_blocks(std::int32_t blocks) {
  return (blocks + kSegments - 1) / kSegments;
}

using SharedBytes = simt::Shared<std::uint8_t>;

// Starts the copies of one block into a stage. Activation rows past x_rows become zeros.
template <class Tiles, int kXRows>
SIMT_DEVICE void fill_stage(const MatvecArgs& args, std::int64_t block, SharedBytes stage) {
  using Layout = Stage<Tiles, kXRows>;
  const std::int64_t blocks = args.cols / kBlockCols;
  const auto lane = static_cast<std::int32_t>(simt::lane());
  const std::int64_t record = simt::block_index() * blocks + block;
  SIMT_UNROLL
  for (std::int32_t i = 0; i < Tiles::kRecordBytes / 16; i += 32) {
    if (i + lane < Tiles::kRecordBytes / 16) {
      const std::int64_t at = record * Tiles::kRecordBytes + 16 * (i + lane);
      simt::copy_async_16(stage + 16 * (i + lane), args.weights + at, 16);
    }
  }
  if (lane < 2 * kXRows) {
    const std::int64_t row = lane % kXRows;
    const std::int64_t at = row * args.cols + block * kBlockCols + 16 * (lane / kXRows);
    simt::copy_async_16(stage + (Layout::kX + 16 * lane), args.x.q + at,
                        row < args.x_rows ? 16 : 0);
  }
  if (lane < kXRows) {
    const std::int64_t at = lane * blocks + block;
    simt::copy_async_4(stage + (Layout::kXScales + 4 * lane), args.x.scale + at,
                       lane < args.x_rows ? 4 : 0);
  }
}

// Calls consume(stage) for the blocks of this warp's segment, in sequence.
template <class Tiles, int kXRows, class Consume>
SIMT_DEVICE void stream_segment(const MatvecArgs& args, Consume&& consume) {
  constexpr std::int32_t kStageBytes = Stage<Tiles, kXRows>::kBytes;
  const std::int32_t blocks = args.cols / kBlockCols;
  const std::int32_t some = segment_blocks(blocks);
  const auto warp = static_cast<std::int32_t>(simt::warp());
  const std::int32_t first = warp * some;
  const std::int32_t end = first + some < blocks ? first + some : blocks;
  const SharedBytes ring = simt::dynamic_shared() + warp * Tiles::kStages * kStageBytes;

  // A group of copies a stage, empty past the end, so that the number to wait for stays the same.
  for (std::int32_t i = 0; i < Tiles::kStages; ++i) {
    if (first + i < end) fill_stage<Tiles, kXRows>(args, first + i, ring + i * kStageBytes);
    simt::commit_async();
  }
  std::int32_t slot = 0;
  for (std::int32_t block = first; block < end; ++block) {
    const SharedBytes stage = ring + slot * kStageBytes;
    simt::wait_async<Tiles::kStages - 1>();
    simt::sync_warp();  // everyone's copies are there
    consume(stage);
    simt::sync_warp();  // everyone has read the stage
    const std::int32_t next = block + Tiles::kStages;
    if (next < end) fill_stage<Tiles, kXRows>(args, next, stage);
    simt::commit_async();
    slot = slot + 1 < Tiles::kStages ? slot + 1 : 0;
  }
  simt::sync_threads();  // all rings are through: their memory takes the partial sums
}

// Where this warp puts its sum of a weight row (of the tile) and an activation row.
template <int kXRows>
SIMT_DEVICE simt::Shared<float> partial_sum(std::int32_t segment, std::int32_t x_row,
                                            std::int32_t tile_row) {
  return simt::cast<float>(simt::dynamic_shared()) +
         ((segment * kXRows + x_row) * kTileRows + tile_row);
}

// Adds the segments' sums and writes the results.
template <int kXRows>
SIMT_DEVICE void finish_tile(const MatvecArgs& args) {
  simt::sync_threads();  // all partial sums are there
  const std::int32_t blocks = args.cols / kBlockCols;
  const std::int32_t some = segment_blocks(blocks);
  const std::int32_t segments = (blocks + some - 1) / some;
  const std::int64_t first_row = static_cast<std::int64_t>(simt::block_index()) * kTileRows;
  for (auto i = static_cast<std::int32_t>(simt::thread_index()); i < kXRows * kTileRows;
       i += kMatvecThreads) {
    const std::int32_t tile_row = i % kTileRows;
    const std::int32_t x_row = i / kTileRows;
    if (first_row + tile_row >= args.rows || x_row >= args.x_rows) continue;
    float sum = simt::load(partial_sum<kXRows>(0, x_row, tile_row));
    for (std::int32_t s = 1; s < segments; ++s) {
      sum += simt::load(partial_sum<kXRows>(s, x_row, tile_row));
    }
    simt::store(args.out + x_row * args.out_stride + first_row + tile_row, sum);
  }
}

// -- Codes of a 32-bit word of a row -------------------------------------------------------------
//
// Nibbles become signed bytes by their place: in the high half of a byte, with the sign bit turned
// over, a nibble n stands for 16 * (n - 8). The dot product is then 16 times too large, exactly,
// which a shift takes back: no subtraction of 8 for each weight.

SIMT_DEVICE std::uint32_t low_nibbles(std::uint32_t word) {
  return ((word << 4) & 0xf0f0f0f0u) ^ 0x80808080u;
}
SIMT_DEVICE std::uint32_t high_nibbles(std::uint32_t word) {
  return (word & 0xf0f0f0f0u) ^ 0x80808080u;
}

// acc += a block's dot product, in the one order of operations.
template <class Tiles>
SIMT_DEVICE float accumulate(float w_scale, float x_scale, std::int32_t dot, float acc) {
  return simt::fma(w_scale * x_scale, static_cast<float>(dot >> Tiles::kShift), acc);
}

}  // namespace sluice::cuda

// What the two kernels of a quantized matrix times a few rows of activations have in common: how
// the contraction is cut, how weights and activations stream through shared memory, and how the
// parts are summed. The kernels differ in the arithmetic of a block only (matvec_dp4a.cuh,
// matvec_mma.cuh) and give the same bits.
//
// Order of accumulation, which depends on the matrix's columns alone:
//  - the blocks of a row are cut into at most eight segments of equally many blocks (the last one
//    may have fewer); within a segment the blocks follow in sequence, as tile_sums.cuh says;
//  - the segments' sums are added in sequence, starting with the first.
//
// A block of threads makes 32 weight rows (a tile, see cuda/weight_tiles.h) for all activation
// rows, or for those of an item where there are experts: block i does tile i % tiles of item
// i / tiles. Warp s does segment s. So weights are read once whatever the number of activation
// rows. Where kTiles is 2 (gated.cuh) it makes two tiles that lie one behind the other.
//
//   warp's share of shared memory = | stage 0 | stage 1 | ... | kStages of them, a ring
//   stage = | header | record | activations of the block |
//
// Each lane copies its pieces of a stage asynchronously and waits for them kStages - 1 blocks
// later; sync_warp makes them visible to the other lanes, and another one says that all have read
// the stage before it is filled anew. A header comes with the first block of its bundle and of a
// segment, and lanes keep what they need of it. In the end the ring's memory takes the partial
// sums:
//
//   partial = [segment][x row][32 kTiles weight rows] float
#pragma once

#include "cuda/kernels/tile_sums.cuh"

namespace sluice::cuda {

inline constexpr std::int32_t kSegments = 8;  // and warps
inline constexpr std::int32_t kMatvecThreads = 32 * kSegments;
inline constexpr std::int32_t kMatvecSharedLimit = 48 * 1024;  // what a launch gets unasked

// Blocks of the grid; `items` is 0 without experts.
SIMT_ANYWHERE std::int32_t matvec_blocks(std::int32_t rows, std::int32_t items) {
  return tiles_of(rows) * (items > 0 ? items : 1);
}

template <class Tiles, int kXRows>
struct Stage {
  static constexpr std::int32_t kRecord = Tiles::kHeaderBytes;
  static constexpr std::int32_t kX = kRecord + Tiles::kRecordBytes;
  static constexpr std::int32_t kBytes = kX + XStage<Tiles, kXRows>::kBytes;
};

// Stages of a ring: enough that 23 KB of weights are under way for a block of threads, what
// bandwidth times latency of an H200 asks for (4.8 TB/s * 600 ns / 132), as far as they fit.
template <class Tiles, int kXRows>
SIMT_ANYWHERE std::int32_t matvec_stages() {
  constexpr std::int32_t kRecords = kSegments * Tiles::kRecordBytes;
  constexpr std::int32_t kWanted = 1 + (23040 + kRecords - 1) / kRecords;
  constexpr std::int32_t kFit = kMatvecSharedLimit / (kSegments * Stage<Tiles, kXRows>::kBytes);
  static_assert(kFit >= 2);
  return kWanted < kFit ? kWanted : kFit;
}

// Shared memory of a block of threads.
template <class Tiles, int kXRows, int kTiles = 1>
SIMT_ANYWHERE std::int32_t matvec_shared_bytes() {
  constexpr std::int32_t kRings =
      kSegments * matvec_stages<Tiles, kXRows>() * Stage<Tiles, kXRows>::kBytes;
  constexpr std::int32_t kPartial = kSegments * kXRows * kTiles * kTileRows * 4;
  static_assert(kRings <= kMatvecSharedLimit && kPartial <= kMatvecSharedLimit);
  return kRings > kPartial ? kRings : kPartial;
}

// Blocks of 32 columns in a segment.
SIMT_ANYWHERE std::int32_t segment_blocks(std::int32_t blocks) {
  return (blocks + kSegments - 1) / kSegments;
}
// Segments that have any.
SIMT_ANYWHERE std::int32_t segments_of(std::int32_t blocks) {
  const std::int32_t some = segment_blocks(blocks);
  return (blocks + some - 1) / some;
}

// What a block of threads has to do.
struct MatvecWork {
  simt::Global<const std::uint8_t> tile;  // of the weights, the first one
  std::int32_t first_row;                 // the tile's, of args.rows
  std::int32_t first;                     // row of `out`
  std::int32_t count;                     // of such rows; 0: nothing
};

template <class Tiles, int kTiles = 1>
SIMT_DEVICE MatvecWork matvec_work(const MatvecArgs& args) {
  const auto block = static_cast<std::int32_t>(simt::block_index());
  const std::int32_t tiles = tiles_of(args.rows);
  const std::int32_t tile = block % tiles;
  const std::int64_t offset = kTiles * tile * tile_bytes<Tiles>(args.cols / kBlockCols);
  MatvecWork work = {args.weights + offset, tile * kTileRows, 0, args.x_rows};
  if (!simt::is_null(args.items)) {
    simt::wait_for_previous();  // items are a kernel's work
    const auto item = simt::cast<const std::int32_t>(args.items + block / tiles);
    work.count = simt::load(item + 2);
    if (work.count > 0) {
      work.tile = work.tile + simt::load(item) * args.expert_bytes;
      work.first = simt::load(item + 1);
    }
  }
  return work;
}

// Starts the copies of 16-byte pieces by the lanes of a warp.
template <int kBytes>
SIMT_DEVICE void copy_pieces(SharedBytes to, simt::Global<const std::uint8_t> from) {
  const auto lane = static_cast<std::int32_t>(simt::lane());
  SIMT_UNROLL
  for (std::int32_t i = 0; i < kBytes / 16; i += 32) {
    if (i + lane < kBytes / 16) {
      simt::copy_async_16(to + 16 * (i + lane), from + 16 * (i + lane), 16);
    }
  }
}

// Whether a block comes with its header, if it is the first of a sequence that begins with `first`.
template <class Tiles>
SIMT_DEVICE bool has_header(std::int32_t block, std::int32_t first) {
  if constexpr (Tiles::kHeaderBytes == 0) {
    return false;
  } else {
    return block == first || block % Tiles::kBundleBlocks == 0;
  }
}

// Starts a warp's copies of one block's weights to where `to` has the header, then the record.
template <class Tiles>
SIMT_DEVICE void copy_weights(simt::Global<const std::uint8_t> tile, std::int32_t block,
                              std::int32_t first, SharedBytes to) {
  if (has_header<Tiles>(block, first)) {
    copy_pieces<Tiles::kHeaderBytes>(to, tile + header_offset<Tiles>(block));
  }
  copy_pieces<Tiles::kRecordBytes>(to + Tiles::kHeaderBytes, tile + record_offset<Tiles>(block));
}

// Calls consume(tile, stage, new_header) for the blocks of this warp's segment, in sequence: those
// of the first tile, then those of the second one.
template <class Tiles, int kXRows, int kTiles = 1, class Consume>
SIMT_DEVICE void stream_segment(const MatvecArgs& args, const MatvecWork& work, Consume&& consume) {
  using Layout = Stage<Tiles, kXRows>;
  constexpr std::int32_t kStages = matvec_stages<Tiles, kXRows>();
  const std::int32_t blocks = args.cols / kBlockCols;
  const std::int32_t some = segment_blocks(blocks);
  const auto warp = static_cast<std::int32_t>(simt::warp());
  const auto lane = static_cast<std::int32_t>(simt::lane());
  const std::int32_t first = warp * some;
  const std::int32_t end = first + some < blocks ? first + some : blocks;
  const std::int32_t each = end > first ? end - first : 0;  // blocks of a tile
  const SharedBytes ring = simt::dynamic_shared() + warp * kStages * Layout::kBytes;

  // The activation row that this lane copies from.
  const bool copies_x = lane < 2 * kXRows;
  const bool inside = lane / 2 < work.count;
  std::int32_t source = work.first + lane / 2;
  // Number i of the sequence.
  const auto fill_weights = [&](std::int32_t i, SharedBytes stage) {
    const bool second = kTiles > 1 && i >= each;
    const auto tile = second ? work.tile + tile_bytes<Tiles>(blocks) : work.tile;
    copy_weights<Tiles>(tile, first + (second ? i - each : i), first, stage);
  };
  const auto fill_x = [&](std::int32_t i, SharedBytes stage) {
    const bool second = kTiles > 1 && i >= each;
    const std::int32_t block = first + (second ? i - each : i);
    if (copies_x) copy_x<Tiles, kXRows>(args, source, inside, block, stage + Layout::kX, lane);
  };

  // Weights are no kernel's work: their copies begin while the kernel before still runs.
  for (std::int32_t i = 0; i < kStages && i < kTiles * each; ++i) {
    fill_weights(i, ring + i * Layout::kBytes);
  }
  simt::wait_for_previous();
  if (!simt::is_null(args.x_row) && copies_x && inside) source = simt::load(args.x_row + source);
  // A group of copies a stage, empty past the end, so that the number to wait for stays the same.
  for (std::int32_t i = 0; i < kStages; ++i) {
    if (i < kTiles * each) fill_x(i, ring + i * Layout::kBytes);
    simt::commit_async();
  }
  std::int32_t slot = 0;
  std::int32_t next = kStages;
  SIMT_UNROLL
  for (int tile = 0; tile < kTiles; ++tile) {
    SIMT_NO_UNROLL
    for (std::int32_t block = first; block < end; ++block, ++next) {
      const SharedBytes stage = ring + slot * Layout::kBytes;
      simt::wait_async<kStages - 1>();
      simt::sync_warp();  // everyone's copies are there
      consume(tile, stage, has_header<Tiles>(block, first));
      simt::sync_warp();  // everyone has read the stage
      if (next < kTiles * each) {
        fill_weights(next, stage);
        fill_x(next, stage);
      }
      simt::commit_async();
      slot = slot + 1 < kStages ? slot + 1 : 0;
    }
  }
  simt::sync_threads();  // all rings are through: their memory takes the partial sums
}

// Where this warp puts its sum of a weight row (counted through the tiles) and an activation row.
template <int kXRows, int kTiles = 1>
SIMT_DEVICE simt::Shared<float> partial_sum(std::int32_t segment, std::int32_t x_row,
                                            std::int32_t tile_row) {
  return simt::cast<float>(simt::dynamic_shared()) +
         ((segment * kXRows + x_row) * kTiles * kTileRows + tile_row);
}

// Adds the segments' sums.
template <int kXRows, int kTiles = 1>
SIMT_DEVICE float sum_segments(std::int32_t segments, std::int32_t x_row, std::int32_t tile_row) {
  float sum = simt::load(partial_sum<kXRows, kTiles>(0, x_row, tile_row));
  for (std::int32_t s = 1; s < segments; ++s) {
    sum += simt::load(partial_sum<kXRows, kTiles>(s, x_row, tile_row));
  }
  return sum;
}

// Writes the results of a tile.
template <int kXRows>
SIMT_DEVICE void finish_tile(const MatvecArgs& args, const MatvecWork& work) {
  simt::sync_threads();  // all partial sums are there
  const std::int32_t segments = segments_of(args.cols / kBlockCols);
  for (auto i = static_cast<std::int32_t>(simt::thread_index()); i < kXRows * kTileRows;
       i += kMatvecThreads) {
    const std::int32_t tile_row = i % kTileRows;
    const std::int32_t x_row = i / kTileRows;
    if (work.first_row + tile_row >= args.rows || x_row >= work.count) continue;
    const std::int64_t at = (work.first + x_row) * args.out_stride + work.first_row + tile_row;
    simt::store(args.out + at, sum_segments<kXRows>(segments, x_row, tile_row));
  }
}

}  // namespace sluice::cuda

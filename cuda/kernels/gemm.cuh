// Quantized matrix times any number of rows of activations by int8 tensor cores: for prompts.
//
// A block of threads makes 128 weight rows (four tiles) times 64 activation rows. Each of its four
// warps has a tile, decodes it once and multiplies it with all 64 rows; the warps share the
// activations:
//
//              64 activation rows            block i of the grid does activation rows
//   warp 0   | tile 4 w     : 32 x 64 |      64 (i % x_groups) .. and tiles 4 (i / x_groups) .. :
//   warp 1   | tile 4 w + 1 : 32 x 64 |      blocks that run at the same time read the same
//   warp 2   | ...                    |      weights
//   warp 3   |                        |
//
// With experts an item takes the place of 64 activation rows: block i does those of item
// i / row groups and tiles 4 (i % row groups) ..
//
// All go through the columns together, 32 at a time, by a ring of stages in shared memory:
//
//   stage = | header, record of warp 0 | ... of warp 3 | activations of the block, 64 rows |
//
// One barrier a stage: it says that everyone's copies of the stage have arrived and that all have
// read the one before, which is then filled anew.
//
// The order of accumulation is that of matvec.cuh, and so are the bits: a lane keeps its sum within
// the segment, and the sum of the segments before. That of none is 0, and 0 + acc = acc, for acc is
// never -0 (tile_sums.cuh).
#pragma once

#include "cuda/kernels/matvec.cuh"

namespace sluice::cuda {

inline constexpr std::int32_t kGemmTiles = 4;  // and warps
inline constexpr std::int32_t kGemmThreads = 32 * kGemmTiles;
inline constexpr std::int32_t kGemmRows = kGemmTiles * kTileRows;
inline constexpr std::int32_t kGemmXRows = kGemmThreads / 2;  // two threads copy a row

SIMT_ANYWHERE std::int32_t gemm_x_groups(std::int32_t x_rows) {
  return (x_rows + kGemmXRows - 1) / kGemmXRows;
}
SIMT_ANYWHERE std::int32_t gemm_row_groups(std::int32_t rows) {
  return (tiles_of(rows) + kGemmTiles - 1) / kGemmTiles;
}
// Blocks of the grid; `items` is 0 without experts.
SIMT_ANYWHERE std::int32_t gemm_blocks(std::int32_t rows, std::int32_t x_rows, std::int32_t items) {
  return gemm_row_groups(rows) * (items > 0 ? items : gemm_x_groups(x_rows));
}

template <class Tiles>
struct GemmStage {
  static constexpr std::int32_t kWeights = Tiles::kHeaderBytes + Tiles::kRecordBytes;  // a warp's
  static constexpr std::int32_t kX = kGemmTiles * kWeights;
  static constexpr std::int32_t kBytes = kX + XStage<Tiles, kGemmXRows>::kBytes;
  // Two blocks of threads on a multiprocessor compute for some 500 cycles a stage; three stages
  // under way outlast memory.
  static constexpr std::int32_t kStages = 4;
};

// Shared memory of a block of threads.
template <class Tiles>
SIMT_ANYWHERE std::int32_t gemm_shared_bytes() {
  constexpr std::int32_t kBytes = GemmStage<Tiles>::kStages * GemmStage<Tiles>::kBytes;
  static_assert(kBytes <= 48 * 1024, "more than a launch gets unasked");
  return kBytes;
}

// The sums of a lane: [group of 8 x rows][tile half][of the fragment].
using GemmSums = float[kGemmXRows / 8][2][4];

// acc += one block: this warp's tile times the activations of a stage, of which `count` are there.
template <class Tiles>
SIMT_DEVICE void gemm_block(SharedBytes weights, SharedBytes x, bool new_header, std::int32_t count,
                            HeaderScales<4>& header, GemmSums& acc) {
  const auto place = static_cast<std::int32_t>(4 * (simt::lane() / 4));
  if (new_header) load_header<Tiles>(weights, place, header);
  const SharedBytes record = weights + Tiles::kHeaderBytes;
  std::uint32_t low[4];
  std::uint32_t high[4];
  load_fragments<Tiles>(record, low, high);
  const auto scales = load_scales<Tiles>(record, place, header);
  SIMT_UNROLL
  for (int p = 0; p < kGemmXRows / 16; ++p) {
    if (16 * p >= count) continue;
    XFragment fragments[2];
    load_x_fragments<Tiles, kGemmXRows>(x, p, fragments);
    SIMT_UNROLL
    for (int n = 0; n < 2; ++n) {
      XGroup<Tiles::kParts> groups[2];
      load_x_groups<Tiles, kGemmXRows>(x, 2 * p + n, groups);
      multiply_block<Tiles>(low, high, scales, fragments[n], groups, acc[2 * p + n]);
    }
  }
}

// What a block of threads has to do.
struct GemmWork {
  std::int64_t expert;   // offset of the weights
  std::int32_t first_x;  // row of `out`
  std::int32_t count;    // of such rows, may be more than 64; 0: nothing
  std::int32_t row_group;
};

SIMT_DEVICE GemmWork gemm_work(const MatvecArgs& args) {
  const auto block = static_cast<std::int32_t>(simt::block_index());
  if (simt::is_null(args.items)) {
    const std::int32_t x_groups = gemm_x_groups(args.x_rows);
    const std::int32_t first_x = block % x_groups * kGemmXRows;
    return {0, first_x, args.x_rows - first_x, block / x_groups};
  }
  const std::int32_t row_groups = gemm_row_groups(args.rows);
  const auto item = simt::cast<const std::int32_t>(args.items + block / row_groups);
  return {simt::load(item) * args.expert_bytes, simt::load(item + 1), simt::load(item + 2),
          block % row_groups};
}

template <class Tiles>
SIMT_KERNEL(kGemmThreads, 2)
gemm(MatvecArgs args) {
  using Layout = GemmStage<Tiles>;
  constexpr std::int32_t kStages = Layout::kStages;
  simt::wait_for_previous();
  const GemmWork work = gemm_work(args);
  if (work.count == 0) return;
  const auto thread = static_cast<std::int32_t>(simt::thread_index());
  const auto warp = static_cast<std::int32_t>(simt::warp());
  const std::int32_t tile = work.row_group * kGemmTiles + warp;
  const bool has_tile = tile < tiles_of(args.rows);

  const std::int32_t blocks = args.cols / kBlockCols;
  const std::int32_t some = segment_blocks(blocks);
  const SharedBytes ring = simt::dynamic_shared();
  const auto weights = args.weights + (work.expert + tile * tile_bytes<Tiles>(blocks));
  // The activation row that this thread copies from.
  const bool inside = thread / 2 < work.count;
  std::int32_t source = work.first_x + thread / 2;
  if (inside && !simt::is_null(args.x_row)) source = simt::load(args.x_row + source);
  const auto fill = [&](std::int32_t block, SharedBytes stage) {
    if (has_tile) copy_weights<Tiles>(weights, block, 0, stage + warp * Layout::kWeights);
    copy_x<Tiles, kGemmXRows>(args, source, inside, block, stage + Layout::kX, thread);
  };

  GemmSums acc = {};
  GemmSums total = {};
  HeaderScales<4> header = {};
  for (std::int32_t i = 0; i < kStages - 1; ++i) {
    if (i < blocks) fill(i, ring + i * Layout::kBytes);
    simt::commit_async();
  }
  std::int32_t slot = 0;
  std::int32_t left = some;  // blocks of the segment
  for (std::int32_t block = 0; block < blocks; ++block) {
    simt::wait_async<kStages - 2>();
    simt::sync_threads();  // everyone's copies are there, and the stage before has been read
    const std::int32_t next = block + kStages - 1;
    if (next < blocks) fill(next, ring + (slot > 0 ? slot - 1 : kStages - 1) * Layout::kBytes);
    simt::commit_async();
    if (has_tile) {
      const SharedBytes stage = ring + slot * Layout::kBytes;
      gemm_block<Tiles>(stage + warp * Layout::kWeights, stage + Layout::kX,
                        has_header<Tiles>(block, 0), work.count, header, acc);
    }
    slot = slot + 1 < kStages ? slot + 1 : 0;
    if (--left == 0 || block == blocks - 1) {  // the end of a segment
      left = some;
      SIMT_UNROLL
      for (int n = 0; n < kGemmXRows / 8; ++n) {
        SIMT_UNROLL
        for (int i = 0; i < 8; ++i) {
          total[n][i / 4][i % 4] += acc[n][i / 4][i % 4];
          acc[n][i / 4][i % 4] = 0.0f;
        }
      }
    }
  }

  // Eight lanes have neighbouring weight rows: 32 bytes side by side.
  const std::int32_t row = tile * kTileRows + static_cast<std::int32_t>(simt::lane() / 4);
  const auto x_row = static_cast<std::int32_t>(2 * (simt::lane() % 4));
  SIMT_UNROLL
  for (int n = 0; n < kGemmXRows / 8; ++n) {
    SIMT_UNROLL
    for (int i = 0; i < 8; ++i) {
      const std::int32_t r = row + 8 * (i / 2);
      const std::int32_t c = 8 * n + x_row + i % 2;
      if (r < args.rows && c < work.count) {
        simt::store(args.out + ((work.first_x + c) * args.out_stride + r), total[n][i / 4][i % 4]);
      }
    }
  }
}

}  // namespace sluice::cuda

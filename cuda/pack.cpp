#include "cuda/pack.h"

#include <cstring>

#include "cuda/weight_tiles.h"
#include "src/quant/layout.h"

namespace sluice::cuda {
namespace {

std::size_t record_bytes(BlockType type) {
  return type == BlockType::kQ4_0 ? TilesQ4_0::kRecordBytes : TilesQ8_0::kRecordBytes;
}

// One record. Blocks of a row are `block_bytes` apart in the file, rows `row_bytes`.
// Block is { StoredHalf d; 16 bytes of codes a plane }.
template <class Block, class Tiles>
void pack_record(const std::byte* source, std::size_t row_bytes, std::uint32_t rows,
                 std::byte* record) {
  std::memset(record, 0, Tiles::kRecordBytes);
  for (std::uint32_t r = 0; r < rows; ++r) {
    Block block;
    std::memcpy(&block, source + r * row_bytes, sizeof block);
    for (std::size_t plane = 0; plane < Tiles::kPlanes; ++plane) {
      std::memcpy(record + plane * kPlaneBytes + 16 * r, block.qs + 16 * plane, 16);
    }
    std::memcpy(record + Tiles::kPlanes * kPlaneBytes + 2 * r, &block.d, 2);
  }
}

}  // namespace

bool has_tiles(BlockType type) { return type == BlockType::kQ4_0 || type == BlockType::kQ8_0; }

std::uint32_t tile_count(std::uint32_t rows) {
  return rows / kTileRows + (rows % kTileRows != 0 ? 1 : 0);
}

std::size_t packed_bytes(BlockType type, std::uint32_t rows, std::uint32_t cols) {
  return std::size_t{tile_count(rows)} * (cols / kBlockCols) * record_bytes(type);
}

void pack_tiles(BlockType type, const std::byte* source, std::uint32_t rows, std::uint32_t cols,
                std::uint32_t tile_begin, std::uint32_t tile_end, std::byte* out) {
  const std::uint32_t blocks = cols / kBlockCols;
  const std::size_t block_bytes = block_type_info(type).block_bytes;
  const std::size_t row_bytes = blocks * block_bytes;
  for (std::uint32_t tile = tile_begin; tile < tile_end; ++tile) {
    const std::uint32_t first = tile * kTileRows;
    const std::uint32_t some = rows - first < kTileRows ? rows - first : kTileRows;
    for (std::uint32_t block = 0; block < blocks; ++block, out += record_bytes(type)) {
      const std::byte* from = source + first * row_bytes + block * block_bytes;
      if (type == BlockType::kQ4_0) {
        pack_record<BlockQ4_0, TilesQ4_0>(from, row_bytes, some, out);
      } else {
        pack_record<BlockQ8_0, TilesQ8_0>(from, row_bytes, some, out);
      }
    }
  }
}

}  // namespace sluice::cuda

// Weights rearranged at upload for the GPU's kernels (layout: cuda/weight_tiles.h). Host code that
// needs no CUDA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "cuda/weight_tiles.h"
#include "src/quant/block_type.h"

namespace sluice::cuda {

// The layout of a type: each type of quantized weights has one, F32, F16 and BF16 have none.
std::optional<TileKind> tile_kind(BlockType type);

// Whether there is a layout, and so kernels, for a type.
bool has_tiles(BlockType type);

// Bytes of a packed matrix, a multiple of 16. `type` has tiles; cols is a multiple of its blocks'.
std::size_t packed_bytes(BlockType type, std::uint32_t rows, std::uint32_t cols);

// Tiles of 32 rows that a matrix has, the last one possibly padded.
std::uint32_t tile_count(std::uint32_t rows);

// Packs tiles [tile_begin, tile_end). `source` holds all rows as stored in the file, `out` begins
// with tile `tile_begin`, so that an upload can go through a buffer of a few tiles. Integers and
// scales are kept exactly.
void pack_tiles(BlockType type, const std::byte* source, std::uint32_t rows, std::uint32_t cols,
                std::uint32_t tile_begin, std::uint32_t tile_end, std::byte* out);

}  // namespace sluice::cuda

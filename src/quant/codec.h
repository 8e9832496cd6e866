// Exact decoding of stored blocks to float, and simple encoding. This is the oracle: plain loops
// that follow the format; fast paths elsewhere are tested against it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "src/base/status.h"
#include "src/quant/block_type.h"

namespace sluice {

// Decodes out.size() weights (a multiple of the block size) from `data`, which holds exactly the
// bytes of that many weights. The values are bit-equal to those of the `gguf` Python package.
void decode_blocks(BlockType type, std::span<const std::byte> data, std::span<float> out);

// Encodes weights by rounding to nearest (no importance, no search beyond the block's own scale).
// `out` holds exactly the bytes of in.size() weights. A value that is not finite, or beyond what
// the block's scale can hold, is an error that names its index.
Status encode_blocks(BlockType type, std::span<const float> in, std::span<std::byte> out);

}  // namespace sluice

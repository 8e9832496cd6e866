// Weight blocks rearranged for the kernels: 16 rows interleaved, so that one vector instruction
// advances all of them and a block costs one convert and one fused multiply-add for the whole
// group.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "src/backend/cpu/kernels.h"
#include "src/base/status.h"

namespace sluice::cpu {

// Bytes of a packed matrix of that type and shape.
std::size_t packed_bytes(BlockType type, std::uint32_t rows, std::uint32_t cols);

// Bytes of one group of 16 rows; a group starts at group * packed_group_bytes.
std::size_t packed_group_bytes(BlockType type, std::uint32_t cols);

// Packs row groups [group_begin, group_end). `source` holds the rows as stored in the file, `out`
// is the start of the whole packed matrix. Values are kept exactly: unpacking gives the floats that
// decode_blocks gives (up to the order of the operations that use them).
void pack_groups(BlockType type, const std::byte* source, std::uint32_t rows, std::uint32_t cols,
                 std::uint32_t group_begin, std::uint32_t group_end, std::byte* out);

}  // namespace sluice::cpu

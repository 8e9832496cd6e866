// The element and block types of GGUF tensors, in one table. Numbers are those stored in files and
// never change (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace sluice {

enum class BlockType : std::uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kIQ4_NL = 20,
  kIQ4_XS = 23,
  kBF16 = 30,
  kMXFP4 = 39,
};

struct BlockTypeInfo {
  BlockType type;
  std::string_view name;      // as in file names and flags: "Q4_0"
  std::uint32_t block_size;   // weights in a block
  std::uint32_t block_bytes;  // bytes of a block
};

// Every type that sluice reads, in the order of their numbers.
std::span<const BlockTypeInfo> block_types();

// The row of a type.
const BlockTypeInfo& block_type_info(BlockType type);

// The type of a number in a file, if sluice reads it.
std::optional<BlockType> block_type_from_number(std::uint32_t number);

// The type of a name (any case), if sluice reads it.
std::optional<BlockType> block_type_from_name(std::string_view name);

// The name of any type number that GGUF files are known to hold, also of those that sluice does not
// read ("IQ3_S"), for error messages; empty for a number nobody uses.
std::string_view known_type_name(std::uint32_t number);

}  // namespace sluice

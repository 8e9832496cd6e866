#include "src/quant/block_type.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace sluice {
namespace {

constexpr std::array<BlockTypeInfo, 16> kTypes{{
    {BlockType::kF32, "F32", 1, 4},
    {BlockType::kF16, "F16", 1, 2},
    {BlockType::kQ4_0, "Q4_0", 32, 18},
    {BlockType::kQ4_1, "Q4_1", 32, 20},
    {BlockType::kQ5_0, "Q5_0", 32, 22},
    {BlockType::kQ5_1, "Q5_1", 32, 24},
    {BlockType::kQ8_0, "Q8_0", 32, 34},
    {BlockType::kQ2_K, "Q2_K", 256, 84},
    {BlockType::kQ3_K, "Q3_K", 256, 110},
    {BlockType::kQ4_K, "Q4_K", 256, 144},
    {BlockType::kQ5_K, "Q5_K", 256, 176},
    {BlockType::kQ6_K, "Q6_K", 256, 210},
    {BlockType::kIQ4_NL, "IQ4_NL", 32, 18},
    {BlockType::kIQ4_XS, "IQ4_XS", 256, 136},
    {BlockType::kBF16, "BF16", 1, 2},
    {BlockType::kMXFP4, "MXFP4", 32, 17},
}};

// By number; gaps are numbers that were withdrawn or are integer types' neighbours.
constexpr std::array<std::string_view, 42> kKnownNames{
    "F32",   "F16",        "Q4_0",       "Q4_1",       "Q4_2",     "Q4_3",     "Q5_0",
    "Q5_1",  "Q8_0",       "Q8_1",       "Q2_K",       "Q3_K",     "Q4_K",     "Q5_K",
    "Q6_K",  "Q8_K",       "IQ2_XXS",    "IQ2_XS",     "IQ3_XXS",  "IQ1_S",    "IQ4_NL",
    "IQ3_S", "IQ2_S",      "IQ4_XS",     "I8",         "I16",      "I32",      "I64",
    "F64",   "IQ1_M",      "BF16",       "Q4_0_4_4",   "Q4_0_4_8", "Q4_0_8_8", "TQ1_0",
    "TQ2_0", "IQ4_NL_4_4", "IQ4_NL_4_8", "IQ4_NL_8_8", "MXFP4",    "NVFP4",    "Q1_0"};

}  // namespace

std::span<const BlockTypeInfo> block_types() { return kTypes; }

const BlockTypeInfo& block_type_info(BlockType type) {
  return *std::find_if(kTypes.begin(), kTypes.end(),
                       [type](const BlockTypeInfo& row) { return row.type == type; });
}

std::optional<BlockType> block_type_from_number(std::uint32_t number) {
  for (const BlockTypeInfo& row : kTypes) {
    if (static_cast<std::uint32_t>(row.type) == number) return row.type;
  }
  return std::nullopt;
}

std::optional<BlockType> block_type_from_name(std::string_view name) {
  const auto same = [](char a, char b) {
    return std::toupper(static_cast<unsigned char>(a)) ==
           std::toupper(static_cast<unsigned char>(b));
  };
  for (const BlockTypeInfo& row : kTypes) {
    if (std::equal(row.name.begin(), row.name.end(), name.begin(), name.end(), same)) {
      return row.type;
    }
  }
  return std::nullopt;
}

std::string_view known_type_name(std::uint32_t number) {
  return number < kKnownNames.size() ? kKnownNames[number] : std::string_view{};
}

}  // namespace sluice

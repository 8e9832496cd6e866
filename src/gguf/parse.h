// Internal: one GGUF file's bytes to metadata and tensors. GgufFile puts parts together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "src/base/status.h"
#include "src/gguf/gguf.h"

namespace sluice {

struct ParsedGguf {
  std::uint32_t version = 0;
  std::uint64_t alignment = 0;
  std::vector<std::pair<std::string_view, GgufValue>> metadata;
  std::unordered_map<std::string_view, std::size_t> metadata_index;
  std::vector<GgufTensor> tensors;
  std::unordered_map<std::string_view, std::size_t> tensor_index;
};

// Everything in the result views into `bytes`. `name` is used in messages.
Result<ParsedGguf> parse_gguf(std::span<const std::byte> bytes, const std::string& name);

}  // namespace sluice

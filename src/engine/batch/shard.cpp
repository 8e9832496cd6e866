#include "src/engine/batch/shard.h"

#include <charconv>
#include <optional>

namespace sluice {
namespace {

constexpr std::uint32_t kMostShards = 1000000;

std::optional<std::uint32_t> number(std::string_view text) {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

std::uint64_t stable_hash(std::string_view id) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : id) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  hash = (hash ^ (hash >> 33)) * 0xff51afd7ed558ccd;
  hash = (hash ^ (hash >> 33)) * 0xc4ceb9fe1a85ec53;
  return hash ^ (hash >> 33);
}

Result<Shard> parse_shard(std::string_view text) {
  const std::size_t slash = text.find('/');
  if (slash != std::string_view::npos) {
    const auto index = number(text.substr(0, slash));
    const auto count = number(text.substr(slash + 1));
    if (index && count && *count >= 1 && *count <= kMostShards && *index < *count) {
      return Shard{*index, *count};
    }
  }
  return make_error(ErrorCode::kUsage, "'{}' is not K/N with K from 0 to N - 1, as in 0/3", text);
}

}  // namespace sluice

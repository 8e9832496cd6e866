#include "src/cli/numbers.h"

#include <array>
#include <charconv>
#include <cmath>
#include <limits>

namespace sluice::cli {
namespace {

template <class T>
std::optional<T> parse_whole(std::string_view text) {
  T value{};
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  if (result.ec != std::errc{} || result.ptr != end) return std::nullopt;
  return value;
}

}  // namespace

std::optional<std::int64_t> parse_integer(std::string_view text) {
  return parse_whole<std::int64_t>(text);
}

std::optional<std::uint64_t> parse_unsigned(std::string_view text) {
  return parse_whole<std::uint64_t>(text);
}

std::optional<double> parse_real(std::string_view text) {
  const std::optional<double> value = parse_whole<double>(text);
  if (!value || !std::isfinite(*value)) return std::nullopt;
  return value;
}

Result<std::vector<std::int32_t>> parse_number_list(std::string_view text, std::string_view what,
                                                    std::int32_t lowest, std::int32_t highest) {
  std::vector<std::int32_t> numbers;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view item = text.substr(begin, end - begin);
    const std::optional<std::int32_t> number = parse_whole<std::int32_t>(item);
    if (!number || *number < lowest || *number > highest) {
      const bool open = highest == std::numeric_limits<std::int32_t>::max();
      return make_error(ErrorCode::kUsage,
                        "'{}' is not {}; expected whole numbers from {}{} as in "
                        "1,2,3",
                        item, what, lowest, open ? "" : fmt::format(" to {}", highest));
    }
    numbers.push_back(*number);
    begin = end + 1;
  }
  return numbers;
}

Result<std::vector<std::int32_t>> parse_id_list(std::string_view text) {
  return parse_number_list(text, "a token id", 0, std::numeric_limits<std::int32_t>::max());
}

std::string format_bytes(std::uint64_t bytes) {
  constexpr std::array<std::string_view, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  if (unit == 0) return fmt::format("{} B", bytes);
  return fmt::format("{:.{}f} {}", value, value < 10 ? 2 : value < 100 ? 1 : 0, kUnits[unit]);
}

std::string format_count(double count) {
  constexpr std::array<std::string_view, 4> kUnits = {"", " K", " M", " B"};
  std::size_t unit = 0;
  while (count >= 1000 && unit + 1 < kUnits.size()) {
    count /= 1000;
    ++unit;
  }
  if (unit == 0) return fmt::format("{:.0f}", count);
  return fmt::format("{:.{}f}{}", count, count < 10 ? 2 : count < 100 ? 1 : 0, kUnits[unit]);
}

std::string format_seconds(double seconds) {
  if (seconds < 60) return fmt::format("{:.0f}s", seconds);
  const auto whole = static_cast<std::int64_t>(std::lround(std::min(seconds, 1e9)));
  if (whole < 3600) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  return fmt::format("{}h{:02}m", whole / 3600, whole % 3600 / 60);
}

}  // namespace sluice::cli

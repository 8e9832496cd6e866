// Numbers in arguments, whatever the user's locale is: a decimal point, never a comma.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"

namespace sluice::cli {

// The whole text must be a decimal number in range; nothing in front or behind, no hexadecimal, no
// octal, no infinity.
std::optional<std::int64_t> parse_integer(std::string_view text);
std::optional<std::uint64_t> parse_unsigned(std::string_view text);
std::optional<double> parse_real(std::string_view text);

// "1,2,3": at least one whole number, each in [lowest, highest]. The error says that an item is not
// `what`, such as "a token id".
Result<std::vector<std::int32_t>> parse_number_list(std::string_view text, std::string_view what,
                                                    std::int32_t lowest, std::int32_t highest);
// The same of token ids, from 0.
Result<std::vector<std::int32_t>> parse_id_list(std::string_view text);

// 1536 -> "1.5 KiB".
std::string format_bytes(std::uint64_t bytes);
// 1234567 -> "1.23 M".
std::string format_count(double count);
// 75.0 -> "1m15s".
std::string format_seconds(double seconds);

}  // namespace sluice::cli

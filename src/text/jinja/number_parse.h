// int() and float() of text, as Python reads it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "src/base/status.h"

namespace sluice::jinja {

// Nothing if the text is no number; an error if it is one beyond 64 bits. base is 0 or 2..36.
Result<std::optional<std::int64_t>> parse_python_int(std::string_view text, std::int64_t base);
std::optional<double> parse_python_float(std::string_view text);

}  // namespace sluice::jinja

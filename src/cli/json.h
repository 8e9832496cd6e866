// JSON for stdout.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "src/text/utf8.h"

namespace sluice::cli {

// Keeps keys in the order in which they were put in.
using Json = nlohmann::ordered_json;

// A string value of any bytes.
inline std::string json_text(std::string_view bytes) { return replace_invalid_utf8(bytes); }

// One line with its end. Strings must come from json_text().
inline std::string json_line(const Json& json) { return json.dump() + "\n"; }

}  // namespace sluice::cli

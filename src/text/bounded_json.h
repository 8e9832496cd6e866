// JSON from outside, within bounds that the JSON library does not have.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string_view>

#include "src/base/status.h"

namespace sluice {

struct JsonBounds {
  // Larger texts are refused, and so are those of more values: no prompt needs them.
  std::size_t bytes = std::size_t{64} << 20;
  std::size_t values = std::size_t{4} << 20;
  // Levels of lists and objects; a template's data may have as many.
  int depth = 200;
  // Of one object: the library looks a key up by going through all of them.
  std::size_t members = std::size_t{1} << 14;
};

// JSON within these bounds; an integer must fit in 64 bits. Errors: kBadInput; `name` says in them
// where the text is from, `expected` what should have been there.
Result<nlohmann::ordered_json> parse_bounded_json(std::string_view text, std::string_view name,
                                                  std::string_view expected,
                                                  const JsonBounds& bounds = {});

// "a list", "an object", "string", ...: for messages.
std::string_view json_type_name(const nlohmann::ordered_json& value);

}  // namespace sluice

#include "src/text/bounded_json.h"

#include <algorithm>
#include <string>
#include <vector>

#include "src/gguf/describe.h"

namespace sluice {
namespace {

using nlohmann::ordered_json;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// `number` as JSON writes it, "-12" or "1.5e3". Whether it is an integer that the JSON library
// would read as an inexact float.
bool is_huge_integer(std::string_view number) {
  if (number.find_first_of(".eE") != std::string_view::npos) return false;
  const bool negative = number.starts_with('-');
  if (negative) number.remove_prefix(1);
  const std::string_view most = negative ? "9223372036854775808" : "18446744073709551615";
  if (number.size() != most.size()) return number.size() > most.size();
  return number > most;
}

// Refuses what the JSON library does not bound: levels (copies and destructors may recurse), the
// number of values and of members of an object, and huge integers. Malformed text is left to it.
Status check_bounds(std::string_view json, std::string_view name, const JsonBounds& bounds) {
  struct Level {
    bool object = false;
    std::size_t commas = 0;
  };
  std::vector<Level> levels;
  std::size_t values = 0;
  for (std::size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (c == '"') {
      for (++i; i < json.size() && json[i] != '"'; ++i) {
        if (json[i] == '\\') ++i;
      }
    } else if (c == ']' || c == '}') {
      if (!levels.empty()) levels.pop_back();
    } else if (is_digit(c) || c == '-') {
      const std::size_t end = std::min(json.find_first_not_of("0123456789+-.eE", i), json.size());
      const std::string_view number = json.substr(i, end - i);
      if (is_huge_integer(number)) {
        return bad_input("{} holds the integer {}{}, which does not fit in 64 bits", name,
                         number.substr(0, 24), number.size() > 24 ? "..." : "");
      }
      i = end - 1;
    } else if (c == '[' || c == '{' || c == ',') {
      if (c != ',') {
        levels.push_back({c == '{', 0});
      } else if (!levels.empty() && ++levels.back().commas >= bounds.members &&
                 levels.back().object) {
        return bad_input("{} holds an object of more than {} members, the most that is read", name,
                         bounds.members);
      }
      if (levels.size() > static_cast<std::size_t>(bounds.depth)) {
        return bad_input("{} nests lists and objects more than {} levels deep", name, bounds.depth);
      }
      if (++values > bounds.values) {
        return bad_input("{} holds more than {} values, the most that is read", name,
                         bounds.values);
      }
    }
  }
  return {};
}

}  // namespace

Result<ordered_json> parse_bounded_json(std::string_view text, std::string_view name,
                                        std::string_view expected, const JsonBounds& bounds) {
  if (text.size() > bounds.bytes) {
    return bad_input("{} holds {} bytes; the most that is read are {} MiB", name, text.size(),
                     bounds.bytes >> 20);
  }
  SLUICE_RETURN_IF_ERROR(check_bounds(text, name, bounds));
  // Which of two values is meant cannot be known, and readers differ.
  std::vector<std::vector<std::string>> keys;  // of the objects that are open
  std::string twice;
  const auto watch = [&](int, ordered_json::parse_event_t event, ordered_json& parsed) {
    if (event == ordered_json::parse_event_t::object_start) {
      keys.emplace_back();
    } else if (event == ordered_json::parse_event_t::object_end) {
      keys.pop_back();
    } else if (event == ordered_json::parse_event_t::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      std::vector<std::string>& known = keys.back();
      if (std::find(known.begin(), known.end(), key) != known.end()) twice = key;
      known.push_back(key);
    }
    return true;
  };
  try {
    ordered_json json = ordered_json::parse(text, watch);
    if (twice.empty()) return json;
    return bad_input("{} has the key '{}' twice in one object", name, printable(twice, 60));
  } catch (const ordered_json::exception& error) {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: ..."
    std::string_view what = error.what();
    const std::size_t end = what.find("] ");
    if (end != std::string_view::npos) what.remove_prefix(end + 2);
    // Of a text of one line only the column tells something.
    constexpr std::string_view kPlace = "parse error at line 1, ";
    std::string only_column;
    if (what.starts_with(kPlace) && text.find('\n') == std::string_view::npos) {
      only_column = fmt::format("at {}", what.substr(kPlace.size()));
      what = only_column;
    }
    return bad_input("{} is not JSON: {}; expected {}", name, what, expected);
  }
}

std::string_view json_type_name(const ordered_json& value) {
  return value.is_array() ? "a list" : value.is_object() ? "an object" : value.type_name();
}

}  // namespace sluice

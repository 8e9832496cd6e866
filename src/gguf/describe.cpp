#include "src/gguf/describe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>

namespace sluice {
namespace {

struct Character {
  std::uint32_t code = 0;
  std::size_t length = 0;  // bytes; 0 where the text is not valid UTF-8
};

// The first character of `text`, which is not empty. Overlong forms, surrogates and codes above
// U+10FFFF are not valid.
Character first_character(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < length) return {};
  std::uint32_t code = lead & (0x7fu >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code = (code << 6) | (byte(i) & 0x3fu);
  }
  constexpr std::uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < kSmallest[length] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return {};
  return {code, length};
}

// Characters that print nothing but change how the terminal shows what follows.
bool is_hidden_control(std::uint32_t code) {
  return (code >= 0x80 && code <= 0x9f) ||      // C1 controls
         code == 0x061c || code == 0xfeff ||    // Arabic letter mark, byte order mark
         (code >= 0x200b && code <= 0x200f) ||  // zero width, direction marks
         (code >= 0x2028 && code <= 0x202e) ||  // line separators, direction overrides
         (code >= 0x2060 && code <= 0x206f) ||  // invisible operators, direction isolates
         (code >= 0xfff9 && code <= 0xfffb) ||  // interlinear marks
         (code >= 0xe0000 && code <= 0xe007f);  // tags
}

void append_escaped(std::string& out, unsigned char byte) { out += fmt::format("\\x{:02x}", byte); }

std::string number_to_string(const GgufArray& array, std::uint64_t i) {
  switch (array.element_type) {
    case GgufValueType::kFloat32:
      return fmt::format("{}", static_cast<float>(array.number_at(i)));
    case GgufValueType::kFloat64:
      return fmt::format("{}", array.number_at(i));
    case GgufValueType::kBool:
      return array.integer_at(i) != 0 ? "true" : "false";
    case GgufValueType::kUint64:
      return fmt::format("{}", static_cast<std::uint64_t>(array.integer_at(i)));
    default:
      return fmt::format("{}", array.integer_at(i));
  }
}

std::string_view plural_of(GgufValueType type) {
  if (type == GgufValueType::kString) return "strings";
  if (type == GgufValueType::kArray) return "arrays";
  return "values";
}

// Recursion follows the nesting, which the reader bounds.
std::string array_to_string(const GgufArray& array, std::size_t max_bytes) {
  std::string out = "[";
  for (std::uint64_t i = 0; i < array.count; ++i) {
    if (i != 0) out += ", ";
    if (out.size() >= max_bytes) {
      return out + fmt::format("... ({} {})]", array.count, plural_of(array.element_type));
    }
    const std::size_t left = max_bytes - out.size();
    if (array.element_type == GgufValueType::kString) {
      out += '"' + printable(array.strings[i], left) + '"';
    } else if (array.element_type == GgufValueType::kArray) {
      out += array_to_string(array.arrays[i], left);
    } else {
      out += number_to_string(array, i);
    }
  }
  return out + "]";
}

}  // namespace

namespace {

std::string escaped(std::string_view text, std::size_t max_bytes, bool backslashes) {
  std::string out;
  std::size_t at = 0;
  while (at < text.size()) {
    const Character next = first_character(text.substr(at));
    if (at + std::max<std::size_t>(next.length, 1) > max_bytes) {
      return out + fmt::format("... ({} bytes)", text.size());
    }
    const auto byte = static_cast<unsigned char>(text[at]);
    if (next.length == 0) {
      append_escaped(out, byte);
      ++at;
      continue;
    }
    if (byte == '\n') {
      out += "\\n";
    } else if (byte == '\r') {
      out += "\\r";
    } else if (byte == '\t') {
      out += "\\t";
    } else if (byte == '\\' && backslashes) {
      out += "\\\\";
    } else if (byte < 0x20 || byte == 0x7f) {
      append_escaped(out, byte);
    } else if (is_hidden_control(next.code)) {
      out += fmt::format("\\u{{{:x}}}", next.code);
    } else {
      out += text.substr(at, next.length);
    }
    at += next.length;
  }
  return out;
}

}  // namespace

std::string printable(std::string_view text, std::size_t max_bytes) {
  return escaped(text, max_bytes, true);
}

std::string printable_message(std::string_view text, std::size_t max_bytes) {
  return escaped(text, max_bytes, false);
}

std::string gguf_value_to_string(const GgufValue& value, std::size_t max_bytes) {
  switch (value.type) {
    case GgufValueType::kBool:
      return std::get<std::uint64_t>(value.data) != 0 ? "true" : "false";
    case GgufValueType::kUint8:
    case GgufValueType::kUint16:
    case GgufValueType::kUint32:
    case GgufValueType::kUint64:
      return fmt::format("{}", std::get<std::uint64_t>(value.data));
    case GgufValueType::kInt8:
    case GgufValueType::kInt16:
    case GgufValueType::kInt32:
    case GgufValueType::kInt64:
      return fmt::format("{}", std::get<std::int64_t>(value.data));
    case GgufValueType::kFloat32:
      // As a float, so that 1e-05 does not print with the digits of its nearest double.
      return fmt::format("{}", static_cast<float>(std::get<double>(value.data)));
    case GgufValueType::kFloat64:
      return fmt::format("{}", std::get<double>(value.data));
    case GgufValueType::kString:
      return '"' + printable(std::get<std::string_view>(value.data), max_bytes) + '"';
    case GgufValueType::kArray:
      return array_to_string(std::get<GgufArray>(value.data), max_bytes);
  }
  return {};
}

std::string gguf_dims_to_string(const GgufTensor& tensor) {
  return fmt::format("{}", fmt::join(tensor.dims, " x "));
}

}  // namespace sluice

// Cuts a template into tokens, with trim_blocks and lstrip_blocks on, as transformers sets it up.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/text/jinja/ast.h"

namespace sluice::jinja {

enum class TokenKind : std::uint8_t {
  kData,  // template text
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  Position position;
  std::string text;  // data, name, unescaped string, or operator
  std::int64_t integer = 0;
  double number = 0;
};

// An error with "line L, column C: " in front.
Error error_at(Position position, std::string_view message);

// The last token is kEnd.
Result<std::vector<Token>> tokenize(std::string_view source);

}  // namespace sluice::jinja

// Turns template text into a Program.
#pragma once

#include <memory>
#include <string_view>

#include "src/base/status.h"
#include "src/text/jinja/ast.h"

namespace sluice::jinja {

struct ParseLimits {
  std::size_t source_bytes = 1u << 20;
  int expression_depth = 200;   // parentheses, brackets, signs and nots inside each other
  int expression_height = 300;  // operations that stack up, such as a long chain of filters
  int statement_depth = 100;    // blocks inside each other
};

// Errors name line and column. What jinja2 has and this interpreter has not (include, import,
// extends, autoescape, self) is an error here as well.
Result<std::shared_ptr<const Program>> parse_template(std::string_view source,
                                                      const ParseLimits& limits = {});

}  // namespace sluice::jinja

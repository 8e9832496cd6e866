// Binding call arguments to parameter names, as Python does.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "src/text/jinja/runtime.h"

namespace sluice::jinja {

// One value a parameter; Kind::kMissing where it was not given. The first `required` must be given;
// the first `positional_only` cannot be given by keyword.
Result<std::vector<Value>> bind_args(std::string_view function, const Args& args,
                                     std::initializer_list<std::string_view> names,
                                     std::size_t required, std::size_t positional_only = 0);

// Conversions that name the function in their error. `fallback` is used for a missing value.
Result<std::int64_t> int_arg(std::string_view function, const Value& v);
Result<std::int64_t> int_arg(std::string_view function, const Value& v, std::int64_t fallback);
Status check_no_args(std::string_view function, const Args& args);
// The value must be a string.
Status check_string_arg(std::string_view function, const Value& v);

}  // namespace sluice::jinja

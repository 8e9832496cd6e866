#include "src/text/jinja/args.h"

#include <algorithm>

#include "src/text/jinja/ops.h"

namespace sluice::jinja {

Result<std::vector<Value>> bind_args(std::string_view function, const Args& args,
                                     std::initializer_list<std::string_view> names,
                                     std::size_t required, std::size_t positional_only) {
  if (args.positional.size() > names.size()) {
    return bad_input("{}() takes at most {} arguments ({} given)", function, names.size(),
                     args.positional.size());
  }
  std::vector<Value> bound(names.size());
  std::copy(args.positional.begin(), args.positional.end(), bound.begin());
  for (const auto& [name, value] : args.keyword) {
    const auto it =
        std::find(names.begin() + static_cast<std::ptrdiff_t>(positional_only), names.end(), name);
    if (it == names.end()) {
      return bad_input("{}() got an unexpected keyword argument '{}'", function, name);
    }
    Value& target = bound[static_cast<std::size_t>(it - names.begin())];
    if (!target.missing()) {
      return bad_input("{}() got multiple values for argument '{}'", function, name);
    }
    target = value;
  }
  for (std::size_t i = 0; i < required; ++i) {
    if (bound[i].missing()) {
      return bad_input("{}() is missing the argument '{}'", function, *(names.begin() + i));
    }
  }
  return bound;
}

Result<std::int64_t> int_arg(std::string_view function, const Value& v) {
  if (v.is(Kind::kUndefined)) return undefined_error(v);
  if (!v.is_integer()) {
    return bad_input("{}(): '{}' object cannot be interpreted as an integer", function,
                     type_name(v));
  }
  return v.as_int();
}

Result<std::int64_t> int_arg(std::string_view function, const Value& v, std::int64_t fallback) {
  if (v.missing()) return fallback;
  return int_arg(function, v);
}

Status check_no_args(std::string_view function, const Args& args) {
  if (args.positional.empty() && args.keyword.empty()) return {};
  return bad_input("{}() takes no arguments", function);
}

Status check_string_arg(std::string_view function, const Value& v) {
  if (v.is_string()) return {};
  return bad_input("{}() argument must be str, not {}", function, type_name(v));
}

}  // namespace sluice::jinja

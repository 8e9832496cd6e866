// JSON to template values.
#pragma once

#include <nlohmann/json.hpp>

#include "src/base/status.h"
#include "src/text/jinja/runtime.h"

namespace sluice::jinja {

// Every text, number and key of the result is content if `content` is set. Errors: more levels than
// limits().data_depth, an integer beyond 64 bits, too much data.
Result<Value> value_from_json(Runtime& rt, const nlohmann::ordered_json& json, bool content);

}  // namespace sluice::jinja

#include "src/engine/batch/item_result.h"

#include <cmath>

namespace sluice {

std::string batch_line(const BatchJson& json) {
  return json.dump(-1, ' ', false, BatchJson::error_handler_t::replace) + "\n";
}

BatchJson milliseconds(double value) {
  if (!std::isfinite(value)) return {};
  return std::round(value * 1000) / 1000;
}

BatchJson logprob_json(double value) {
  return std::isfinite(value) ? BatchJson(value) : BatchJson();
}

}  // namespace sluice

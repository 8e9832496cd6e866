// Looking up "a.b.0" in items, as the filters map, sort, groupby and others do.
#pragma once

#include <string_view>
#include <vector>

#include "src/text/jinja/runtime.h"

namespace sluice::jinja {

class AttributePath {
 public:
  // attribute is None or missing (the item itself), an index, or a text with dots.
  AttributePath(Runtime& rt, const Value& attribute);
  // With a fallback (not missing, not None), undefined values on the way become it.
  Result<Value> get(Runtime& rt, Value item, const Value& fallback = Value()) const;

 private:
  std::vector<Value> parts_;
};

// Text in lower case, other values as they are: what sorting compares unless case matters.
Value ignore_case(Runtime& rt, const Value& v);

}  // namespace sluice::jinja

// Our own lines: {"id": ..., "prompt": ..., "max_tokens": ...} and their answers
// (docs/FORMATS.md).
#pragma once

#include <string>

#include "src/base/status.h"
#include "src/engine/batch/item.h"
#include "src/engine/batch/item_result.h"

namespace sluice {

// Reads the keys of an object into `item`, whose id and line are set. Errors: kBadInput without the
// line's number.
Status read_native(const BatchJson& object, BatchItem& item);

// The answer as a line with its end; always valid UTF-8.
std::string native_line(const BatchItem& item, const ItemResult& result,
                        const ResultContext& context);
std::string native_error_line(const BatchItem& item, const std::string& message);

}  // namespace sluice

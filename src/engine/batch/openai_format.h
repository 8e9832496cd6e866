// The lines of OpenAI's batch files: {"custom_id": ..., "method": "POST", "url":
// "/v1/chat/completions", "body": {...}}, also with /v1/completions, and their answers. What a
// request asks for and can't be given is an error of that line, except where it does not change the
// answer.
#pragma once

#include <string>

#include "src/base/status.h"
#include "src/engine/batch/item.h"
#include "src/engine/batch/item_result.h"

namespace sluice {

// Whether an object is such a line (and not one of ours).
bool looks_like_openai(const BatchJson& object);

// Reads the keys of an object into `item`, whose id and line are set. Errors: kBadInput without the
// line's number.
Status read_openai(const BatchJson& object, BatchItem& item);

// The answer as a line with its end; always valid UTF-8.
std::string openai_line(const BatchItem& item, const ItemResult& result,
                        const ResultContext& context);
std::string openai_error_line(const BatchItem& item, const std::string& message);

}  // namespace sluice

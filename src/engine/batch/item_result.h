// What answers are made of.
#pragma once

#include <cstdint>
#include <string>

#include "src/engine/batch/item.h"
#include "src/engine/batch/latency_stats.h"
#include "src/engine/generate.h"
#include "src/text/tokenizer.h"

namespace sluice {

struct ItemResult {
  const GenerateResult& generated;
  ItemLatency latency;
};

// The same for all items of a batch.
struct ResultContext {
  const Tokenizer& tokenizer;
  std::string model;       // its name
  std::int64_t began = 0;  // Unix time at which the batch was begun
};

// Of valid UTF-8 by replacement, one line with its end.
std::string batch_line(const BatchJson& json);
// A finite number of milliseconds, rounded to microseconds; else null.
BatchJson milliseconds(double value);
// A finite number, else null.
BatchJson logprob_json(double value);

}  // namespace sluice

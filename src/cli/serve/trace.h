// Requests and the times they arrive at: made by chance, or read from a file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/base/status.h"

namespace sluice::cli {

struct Arrival {
  double at_s = 0;  // since the beginning
  std::uint32_t prompt_tokens = 1;
  std::uint32_t tokens = 1;  // to generate
};

struct TraceShape {
  std::uint32_t requests = 40;
  double rate = 1;           // arrivals per second on average, a Poisson process; 0: all at once
  std::uint32_t prefix = 0;  // tokens that all prompts begin with, in addition
  std::uint32_t most_prompt = 1;  // the context's share
  std::uint32_t most_tokens = 1;
  std::uint64_t seed = 0;
};

// Lengths are log-normal: prompts of 96 tokens at the median, answers of 32 with a long tail (a
// tenth are longer than 115). The same seed gives the same lengths at every rate.
std::vector<Arrival> make_trace(const TraceShape& shape);

// A file of lines {"at": seconds, "prompt_tokens": n, "tokens": n}, by ascending time. kBadInput
// with the line's number for anything else.
Result<std::vector<Arrival>> parse_trace(std::string_view text, const std::string& name);

}  // namespace sluice::cli

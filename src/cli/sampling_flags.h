// The sampling flags, with the names that users of llama.cpp know.
#pragma once

#include "src/cli/flags.h"
#include "src/engine/sampling/resolve.h"

namespace sluice::cli {

struct SamplingFlags {
  SamplingOverrides overrides;
  bool say_seed = false;  // -s -1: the seed that is picked must be said

  // Values are checked for type and range. `seed` is what help names as the default.
  void declare(Flags& flags, std::string_view seed = "-1");
  void declare_rare(Flags& flags);
};

// "15043+1", "15043-0.5", "2-inf" (never chosen).
Result<LogitBias> parse_logit_bias(std::string_view text);

}  // namespace sluice::cli

// `sluice bench --serve`: latency against throughput, policy by policy.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/cli/console.h"
#include "src/cli/flags.h"
#include "src/cli/model_flags.h"
#include "src/cli/serve/replay.h"

namespace sluice::cli {

class ServeBench {
 public:
  void declare(Flags& flags);
  bool wanted() const { return wanted_; }
  // Flags that were given and mean nothing without --serve: "--rate, --slots"; empty: none.
  std::string given() const;
  // Loads the model, replays, and prints the tables (or one JSON object) to stdout.
  Status run(const ModelFlags& model, bool json, Console& console) const;

 private:
  Status check() const;

  bool wanted_ = false;
  std::optional<std::int64_t> requests_, slots_, prefix_;
  std::vector<double> rates_;
  std::vector<const ServePolicy*> policies_;
  std::optional<std::string> arrivals_, report_;
};

}  // namespace sluice::cli

// Loading a model with a word to the user.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "src/cli/console.h"
#include "src/engine/engine.h"

namespace sluice::cli {

// Engine::load with a line of progress and the model's warnings and notes on stderr; notes that are
// among `said` are not said again.
Result<std::unique_ptr<Engine>> load_engine(const std::string& path, const EngineOptions& options,
                                            Console& console, Progress& progress,
                                            std::span<const std::string> said = {});

}  // namespace sluice::cli

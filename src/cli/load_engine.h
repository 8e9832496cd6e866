// Loading a model with a word to the user.
#pragma once

#include <memory>
#include <string>

#include "src/cli/console.h"
#include "src/engine/engine.h"

namespace sluice::cli {

// Engine::load with a line of progress and the model's warnings on stderr.
Result<std::unique_ptr<Engine>> load_engine(const std::string& path, const EngineOptions& options,
                                            Console& console, Progress& progress);

}  // namespace sluice::cli

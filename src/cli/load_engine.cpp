#include "src/cli/load_engine.h"

#include <algorithm>

#include "src/cli/interrupt.h"

namespace sluice::cli {

Result<std::unique_ptr<Engine>> load_engine(const std::string& path, const EngineOptions& options,
                                            Console& console, Progress& progress,
                                            std::span<const std::string> said) {
  const ExitOnInterrupt nothing_to_lose;
  progress.begin("loading");
  Result<std::unique_ptr<Engine>> engine = Engine::load(path, options);
  progress.clear();
  if (!engine.ok()) return engine;
  for (const std::string& line : (*engine)->info().warnings) console.warning(line);
  for (const std::string& line : (*engine)->info().notes) {
    if (std::find(said.begin(), said.end(), line) == said.end()) console.info(line);
  }
  return engine;
}

}  // namespace sluice::cli

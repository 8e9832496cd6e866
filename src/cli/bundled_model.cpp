#include "src/cli/bundled_model.h"

#include <filesystem>
#include <system_error>
#include <vector>

namespace sluice::cli {
namespace {

std::vector<std::string> candidates() {
  namespace fs = std::filesystem;
  constexpr const char* kName = "storyteller-q4_0.gguf";
  std::vector<std::string> paths;
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (!error) {
    const fs::path prefix = program.parent_path().parent_path();
    paths.push_back((prefix / "share" / "sluice" / "models" / kName).string());
  }
  paths.push_back((fs::path(SLUICE_SOURCE_DIR) / "models" / kName).string());
  return paths;
}

}  // namespace

std::string find_bundled_model() {
  for (const std::string& path : candidates()) {
    std::error_code error;
    if (std::filesystem::is_regular_file(path, error)) return path;
  }
  return "";
}

std::string bundled_model_places() {
  std::string places;
  for (const std::string& path : candidates()) places += (places.empty() ? "" : ", ") + path;
  return places;
}

}  // namespace sluice::cli

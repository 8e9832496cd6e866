#include "src/base/system_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

namespace sluice {
namespace {

constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();

std::optional<std::uint64_t> read_number(const std::string& path) {
  std::ifstream in(path);
  std::uint64_t value = 0;
  if (in >> value) return value;
  return std::nullopt;  // absent, or "max"
}

std::uint64_t kernel_estimate() {
  std::ifstream in("/proc/meminfo");
  std::string key, unit;
  std::uint64_t kib = 0;
  while (in >> key >> kib) {
    std::getline(in, unit);
    if (key == "MemAvailable:") return kib * 1024;
  }
  return kUnlimited;
}

std::uint64_t left_of(const std::string& limit_file, const std::string& usage_file) {
  const auto limit = read_number(limit_file);
  const auto usage = read_number(usage_file);
  if (!limit || !usage) return kUnlimited;
  return *limit > *usage ? *limit - *usage : 0;
}

// The tightest limit on the way from the process's group up to the root (cgroup v2), or v1's own.
std::uint64_t control_group_estimate() {
  std::uint64_t least = kUnlimited;
  std::ifstream in("/proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    const std::size_t colon = line.rfind(':');
    if (colon == std::string::npos) continue;
    std::string group = line.substr(colon + 1);
    if (line.starts_with("0::")) {
      for (;;) {
        const std::string folder = "/sys/fs/cgroup" + (group == "/" ? "" : group);
        least = std::min(least, left_of(folder + "/memory.max", folder + "/memory.current"));
        if (group.empty() || group == "/") break;
        group.resize(group.rfind('/'));
      }
    } else if (line.find(":memory:") != std::string::npos) {
      for (const std::string& folder :
           {"/sys/fs/cgroup/memory" + group, std::string("/sys/fs/cgroup/memory")}) {
        least = std::min(
            least, left_of(folder + "/memory.limit_in_bytes", folder + "/memory.usage_in_bytes"));
      }
    }
  }
  return least;
}

}  // namespace

std::uint64_t available_memory() {
  const std::uint64_t least = std::min(kernel_estimate(), control_group_estimate());
  return least == kUnlimited ? 0 : least;
}

}  // namespace sluice

#include "src/backend/cpu/thread_pool_topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <string_view>
#include <thread>

#include "src/backend/cpu/thread_pool.h"

#ifdef __linux__
#include <sched.h>
#endif

namespace sluice::cpu {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The leading number of `text`, which is advanced past it.
std::optional<long long> take_number(std::string_view& text) {
  long long value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{}) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

// Members of a list such as "0-3,8" that pass `wanted`; stops at what it can't read.
template <class Wanted>
std::vector<unsigned> parse_cpu_list(std::string_view text, const Wanted& wanted) {
  std::vector<unsigned> cpus;
  while (!text.empty()) {
    const auto low = take_number(text);
    if (!low || *low < 0) break;
    auto high = low;
    if (text.starts_with('-')) {
      text.remove_prefix(1);
      high = take_number(text);
      if (!high) break;
    }
    for (long long cpu = *low; cpu <= *high && cpu < 1 << 20; ++cpu) {
      if (wanted(static_cast<unsigned>(cpu))) cpus.push_back(static_cast<unsigned>(cpu));
    }
    if (!text.starts_with(',')) break;
    text.remove_prefix(1);
  }
  return cpus;
}

// quota / period in whole CPUs, at least 1; 0 for no limit or nonsense.
unsigned whole_cpus(long long quota, long long period) {
  if (quota <= 0 || period <= 0) return 0;
  return static_cast<unsigned>(std::clamp<long long>(quota / period, 1, 1 << 20));
}

unsigned quota_v2(const std::string& folder) {
  const std::string line = first_line(folder + "/cpu.max");  // "max 100000" or "150000 100000"
  std::string_view text = line;
  const auto quota = take_number(text);
  if (!quota || !text.starts_with(' ')) return 0;
  text.remove_prefix(1);
  return whole_cpus(*quota, take_number(text).value_or(0));
}

unsigned quota_v1(const std::string& folder) {
  const std::string quota_line = first_line(folder + "/cpu.cfs_quota_us");  // -1: no limit
  const std::string period_line = first_line(folder + "/cpu.cfs_period_us");
  std::string_view quota = quota_line;
  std::string_view period = period_line;
  return whole_cpus(take_number(quota).value_or(0), take_number(period).value_or(0));
}

// The smallest limit from `path` up to the mount point; 0 if there is none.
template <class Quota>
unsigned smallest_quota(const std::string& mount, std::string path, const Quota& quota_of) {
  unsigned smallest = 0;
  for (;;) {
    const unsigned quota = quota_of(mount + path);
    if (quota != 0 && (smallest == 0 || quota < smallest)) smallest = quota;
    if (path.empty()) return smallest;
    path.resize(path.find_last_of('/') == std::string::npos ? 0 : path.find_last_of('/'));
  }
}

unsigned smaller_limit(unsigned a, unsigned b) {
  if (a == 0 || b == 0) return std::max(a, b);
  return std::min(a, b);
}

}  // namespace

unsigned physical_cores(const std::string& root, const std::vector<unsigned>& cpus) {
  unsigned cores = 0;
  for (const unsigned cpu : cpus) {
    const std::string siblings = first_line(root + "/sys/devices/system/cpu/cpu" +
                                            std::to_string(cpu) + "/topology/thread_siblings_list");
    const auto allowed = parse_cpu_list(siblings, [&](unsigned other) {
      return std::find(cpus.begin(), cpus.end(), other) != cpus.end();
    });
    // Counted by its first sibling that the process may use.
    if (allowed.empty() || *std::min_element(allowed.begin(), allowed.end()) == cpu) ++cores;
  }
  return std::max(cores, 1u);
}

unsigned cpu_quota(const std::string& root) {
  // Inside a container the path may be that of the host; walking up from it ends at the mount
  // point, whose own limit is the container's.
  std::ifstream groups(root + "/proc/self/cgroup");
  unsigned limit = 0;
  for (std::string line; std::getline(groups, line);) {  // "0::/path" or "4:cpu,cpuacct:/path"
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string names = line.substr(first + 1, second - first - 1);
    const std::string controllers = fmt::format(",{},", names);
    const std::string path = line.substr(second + 1);
    const std::string mount = root + "/sys/fs/cgroup";
    if (controllers == ",,") {
      limit = smaller_limit(limit, smallest_quota(mount, path, quota_v2));
    } else if (controllers.find(",cpu,") != std::string::npos) {
      limit = smaller_limit(limit, smallest_quota(fmt::format("{}/cpu", mount), path, quota_v1));
      limit =
          smaller_limit(limit, smallest_quota(fmt::format("{}/{}", mount, names), path, quota_v1));
    }
  }
  return limit;
}

unsigned default_threads() {
  std::vector<unsigned> cpus;
#ifdef __linux__
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof mask, &mask) == 0) {
    for (unsigned cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &mask)) cpus.push_back(cpu);
    }
  }
#endif
  const unsigned cores =
      cpus.empty() ? std::max(std::thread::hardware_concurrency(), 1u) : physical_cores("", cpus);
  return std::max(smaller_limit(cores, cpu_quota("")), 1u);
}

}  // namespace sluice::cpu

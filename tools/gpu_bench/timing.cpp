#include <algorithm>
#include <chrono>
#include <vector>

#include "tools/gpu_bench/bench.h"

namespace sluice::cuda {

// Seconds of one run of `queue`, which is recorded once and repeated.
Result<double> seconds_of(Device& device, bool quick, const std::function<void()>& queue,
                          double run_s) {
  device.begin_graph();
  queue();
  SLUICE_ASSIGN_OR_RETURN(const Graph graph, device.end_graph());
  const auto time = [&](int repeats) -> Result<double> {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < repeats; ++i) device.run(graph);
    SLUICE_RETURN_IF_ERROR(device.synchronize());
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() /
           repeats;
  };
  SLUICE_ASSIGN_OR_RETURN(const double first, time(1));
  if (quick) return first;
  SLUICE_ASSIGN_OR_RETURN(const double warm, time(3));
  const int repeats = static_cast<int>(std::clamp(run_s / warm, 3.0, 1000.0));
  std::vector<double> runs;
  for (int i = 0; i < 5; ++i) {
    SLUICE_ASSIGN_OR_RETURN(const double run, time(repeats));
    runs.push_back(run);
  }
  std::sort(runs.begin(), runs.end());
  return runs[2];
}

// Bytes read and written a second.
Result<double> copy_bandwidth(Device& device, const Options& options) {
  const std::size_t bytes = options.quick ? 1 << 16 : std::size_t{1} << 30;
  SLUICE_ASSIGN_OR_RETURN(const Memory from, device.allocate("copy", bytes));
  SLUICE_ASSIGN_OR_RETURN(const Memory to, device.allocate("copy", bytes));
  device.zero(from.at<std::uint8_t>(), bytes);
  const auto time = [&](int repeats) -> Result<double> {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < repeats; ++i) {
      device.copy(to.at<std::uint8_t>(), from.at<const std::uint8_t>(), bytes);
    }
    SLUICE_RETURN_IF_ERROR(device.synchronize());
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() /
           repeats;
  };
  SLUICE_ASSIGN_OR_RETURN(const double warm, time(2));
  (void)warm;
  SLUICE_ASSIGN_OR_RETURN(const double seconds, time(options.quick ? 1 : 20));
  return 2.0 * static_cast<double>(bytes) / seconds;
}

}  // namespace sluice::cuda

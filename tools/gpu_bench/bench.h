// The parts of gpu_bench: each prints a table.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cuda/host/runtime.h"
#include "cuda/host/weights.h"
#include "cuda/kv_pages.h"
#include "src/base/status.h"

namespace sluice::cuda {

struct Options {
  bool quick = false;
  std::string only;
  bool wants(std::string_view part) const {
    return only.empty() || ("," + only + ",").find(fmt::format(",{},", part)) != std::string::npos;
  }
};

// Seconds of one run of `queue`, which is recorded once and repeated: the median of five runs of
// about `run_s` each, or one alone where it is to be quick.
Result<double> seconds_of(Device& device, bool quick, const std::function<void()>& queue,
                          double run_s = 0.05);

// What the figures should be on an H200, collected and printed at the end.
class Goals {
 public:
  void at_least(std::string what, double value, double goal) {
    add(std::move(what), value, goal, true);
  }
  void at_most(std::string what, double value, double goal) {
    add(std::move(what), value, goal, false);
  }
  void print() const;

 private:
  struct Goal {
    std::string what;
    double value, goal;
    bool at_least;
  };
  void add(std::string what, double value, double goal, bool at_least) {
    goals_.push_back({std::move(what), value, goal, at_least});
  }
  std::vector<Goal> goals_;
};

inline double giga(double per_second) { return per_second / 1e9; }

// So many matrices of one type, one after the other in memory, all bytes positive numbers below two
// where they are halves or floats.
Result<std::vector<DeviceMatrix>> made_up_matrices(Device& device, BlockType type,
                                                   std::uint32_t rows, std::uint32_t cols,
                                                   std::size_t count);
std::vector<const DeviceMatrix*> pointers(const std::vector<DeviceMatrix>& matrices);
Result<Memory> random_memory(Device& device, std::size_t bytes);

// Bytes read and written a second.
Result<double> copy_bandwidth(Device& device, const Options& options);

// `copy` is that bandwidth.
Status bench_matvec(Device& device, const Options& options, double copy, Goals& goals);
// dp4a against tensor cores as cuda/host/few_rows.h times them. kFailed where their results are not
// the same bits.
Status bench_crossover(Device& device, const Options& options);
Status bench_attention(Device& device, const Options& options, PageKind pages, double copy,
                       Goals& goals);
Status bench_models(const Options& options, double copy, Goals& goals);
// A decode step of one model with each kind of cache.
Status bench_caches(const Options& options);

}  // namespace sluice::cuda

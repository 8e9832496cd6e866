// What a GPU does with the backend's kernels and passes, as tables: bandwidth, matrices times rows
// and by which kernel, attention, whole models of made-up weights.
//
//   gpu_bench [--quick] [--only copy,matvec,crossover,attention,models,caches]
//
// Times are of many launches in sequence, warmed up. Matrices are taken in turn from enough memory
// that no cache holds them. --quick: sizes for the emulator, whose times mean nothing.
#include <fmt/format.h>

#include <cstdio>
#include <string>

#include "cuda/host/cuda_platform.h"
#include "tools/gpu_bench/bench.h"

namespace sluice::cuda {
namespace {

Status run(const Options& options) {
  if (platform() == nullptr) return failed("built without CUDA");
  SLUICE_ASSIGN_OR_RETURN(const auto device, Device::open(0));
  const DeviceInfo& info = device->info();
  fmt::print("{}: sm_{}{}, {} multiprocessors, {:.0f} GiB\n", info.name, info.major, info.minor,
             info.multiprocessors, static_cast<double>(info.total_bytes) / (1 << 30));
  Goals goals;
  SLUICE_ASSIGN_OR_RETURN(const double copy, copy_bandwidth(*device, options));
  fmt::print("copy: {:.0f} GB/s read and written\n", giga(copy));
  if (options.wants("matvec")) SLUICE_RETURN_IF_ERROR(bench_matvec(*device, options, copy, goals));
  if (options.wants("crossover")) SLUICE_RETURN_IF_ERROR(bench_crossover(*device, options));
  if (options.wants("attention")) {
    for (const PageKind pages : {PageKind::kInt8, PageKind::kF16, PageKind::kInt4}) {
      SLUICE_RETURN_IF_ERROR(bench_attention(*device, options, pages, copy, goals));
    }
  }
  if (options.wants("models")) SLUICE_RETURN_IF_ERROR(bench_models(options, copy, goals));
  if (options.wants("caches")) SLUICE_RETURN_IF_ERROR(bench_caches(options));
  goals.print();
  return {};
}

}  // namespace

void Goals::print() const {
  fmt::print("\ngoals for an H200\n");
  for (const Goal& goal : goals_) {
    const bool met = goal.at_least ? goal.value >= goal.goal : goal.value <= goal.goal;
    fmt::print("{:<6} {}: {:.2f}, goal {} {:.2f}\n", met ? "met" : "MISSED", goal.what, goal.value,
               goal.at_least ? ">=" : "<=", goal.goal);
  }
}

}  // namespace sluice::cuda

int main(int argc, char** argv) {
  sluice::cuda::Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--quick") {
      options.quick = true;
    } else if (arg == "--only" && i + 1 < argc) {
      options.only = argv[++i];
    } else {
      std::fputs(
          "usage: gpu_bench [--quick] [--only copy,matvec,crossover,attention,models,caches]\n",
          stderr);
      return 2;
    }
  }
  const sluice::Status status = sluice::cuda::run(options);
  if (status.ok()) return 0;
  fmt::print(stderr, "gpu_bench: {}\n", status.error().message);
  return static_cast<int>(status.error().code);
}

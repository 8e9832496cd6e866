#include <algorithm>
#include <cstdio>
#include <string_view>
#include <vector>

#include "cuda/host/few_rows.h"
#include "cuda/pack.h"
#include "tools/gpu_bench/bench.h"

namespace sluice::cuda {
namespace {

constexpr BlockType kMatvecTypes[] = {BlockType::kQ4_0,  BlockType::kQ4_K, BlockType::kIQ4_NL,
                                      BlockType::kMXFP4, BlockType::kQ5_K, BlockType::kQ6_K,
                                      BlockType::kQ8_0};

struct MatrixShape {
  const char* name;
  std::uint32_t rows, cols;
};

}  // namespace

Status bench_matvec(Device& device, const Options& options, double copy, Goals& goals) {
  const std::vector<MatrixShape> shapes =
      options.quick ? std::vector<MatrixShape>{{"small", 64, 256}}
                    : std::vector<MatrixShape>{{"qkv", 6144, 4096},
                                               {"output", 4096, 4096},
                                               {"gate and up", 28672, 4096},
                                               {"down", 4096, 14336}};
  const std::size_t pool_bytes = options.quick ? 1 << 16 : std::size_t{512} << 20;
  const std::vector<std::int32_t> rows = options.quick
                                             ? std::vector<std::int32_t>{1, 17}
                                             : std::vector<std::int32_t>{1, 2, 4, 8, 16, 512};
  fmt::print(
      "\nmatrix times rows: GB/s of weights (share of the copy bandwidth), time against one row\n");
  fmt::print("{:<8}{:<14}", "type", "shape");
  for (const std::int32_t r : rows) fmt::print("{:>22}", fmt::format("{} rows", r));
  fmt::print("\n");
  for (const BlockType type : kMatvecTypes) {
    double least_share = 1e9, most_of_eight = 0;  // of all shapes
    for (const MatrixShape& shape : shapes) {
      const std::size_t bytes = packed_bytes(type, shape.rows, shape.cols);
      const std::size_t count = std::max<std::size_t>(1, pool_bytes / bytes);
      SLUICE_ASSIGN_OR_RETURN(const auto matrices,
                              made_up_matrices(device, type, shape.rows, shape.cols, count));
      SLUICE_ASSIGN_OR_RETURN(const KernelTimes times, time_kernels(device, pointers(matrices)));
      const auto most = static_cast<std::size_t>(rows.back());
      SLUICE_ASSIGN_OR_RETURN(const Memory q, device.allocate("x", most * shape.cols));
      SLUICE_ASSIGN_OR_RETURN(const Memory scale, device.allocate("x", most * shape.cols / 8));
      SLUICE_ASSIGN_OR_RETURN(const Memory sum, device.allocate("x", most * shape.cols / 8));
      SLUICE_ASSIGN_OR_RETURN(const Memory out, device.allocate("out", most * shape.rows * 4));
      for (const Memory* m : {&q, &scale, &sum}) device.zero(m->at<std::uint8_t>(), m->size());
      fmt::print("{:<8}{:<14}", block_type_info(type).name, shape.name);
      double one = 0;
      for (const std::int32_t r : rows) {
        const Arithmetic few = r <= times.most_dp4a() ? Arithmetic::kDp4a : Arithmetic::kMma;
        SLUICE_ASSIGN_OR_RETURN(const double all, seconds_of(device, options.quick, [&] {
                                  for (const DeviceMatrix& matrix : matrices) {
                                    MatvecArgs args{};
                                    args.weights = matrix.memory.at<const std::uint8_t>();
                                    args.x = {q.at<const std::int8_t>(), scale.at<const float>(),
                                              sum.at<const std::uint32_t>()};
                                    args.out = out.at<float>();
                                    args.out_stride = shape.rows;
                                    args.rows = static_cast<std::int32_t>(shape.rows);
                                    args.cols = static_cast<std::int32_t>(shape.cols);
                                    args.x_rows = r;
                                    launch_matvec(device, few, *tile_kind(type), args);
                                  }
                                }));
        const double seconds = all / static_cast<double>(count);
        if (one == 0) one = seconds;
        if (r == 8) most_of_eight = std::max(most_of_eight, seconds / one);
        const double rate = static_cast<double>(bytes) / seconds;
        if (r == 1) least_share = std::min(least_share, rate / copy);
        if (r <= 16) {
          fmt::print("{:>22}", fmt::format("{:.0f} ({:.0f}%) {:.2f}x", giga(rate),
                                           100 * rate / copy, seconds / one));
        } else {
          const double operations = 2.0 * shape.rows * shape.cols * r / seconds;
          fmt::print("{:>22}", fmt::format("{:.0f} TOP/s", operations / 1e12));
        }
      }
      fmt::print("\n");
      std::fflush(stdout);
    }
    const std::string_view name = block_type_info(type).name;
    goals.at_least(fmt::format("{}, 1 row, share of the copy bandwidth, least", name), least_share,
                   0.85);
    if (most_of_eight > 0)
      goals.at_most(fmt::format("{}, 8 rows against 1, most", name), most_of_eight, 1.15);
  }
  return {};
}

}  // namespace sluice::cuda

#include <array>
#include <cstdio>
#include <vector>

#include "cuda/host/few_rows.h"
#include "cuda/pack.h"
#include "src/quant/block_type.h"
#include "tools/gpu_bench/bench.h"

namespace sluice::cuda {
namespace {

// A type for each kind of tiles.
constexpr BlockType kTypes[] = {BlockType::kQ4_0,  BlockType::kQ8_0, BlockType::kIQ4_NL,
                                BlockType::kMXFP4, BlockType::kQ4_K, BlockType::kQ5_K,
                                BlockType::kQ6_K,  BlockType::kQ4_1, BlockType::kQ2_K};
static_assert(std::size(kTypes) == kTileKinds);

// Activations and results for one matrix.
struct Rows {
  Memory codes, scales, sums, out;

  static Result<Rows> make(Device& device, const DeviceMatrix& matrix) {
    const std::size_t groups = std::size_t{kMostDp4aRows} * matrix.cols / 32;
    Rows r;
    SLUICE_ASSIGN_OR_RETURN(r.codes, random_memory(device, 32 * groups));
    SLUICE_ASSIGN_OR_RETURN(r.scales, random_memory(device, 4 * groups));
    SLUICE_ASSIGN_OR_RETURN(r.sums, random_memory(device, 4 * groups));
    SLUICE_ASSIGN_OR_RETURN(r.out,
                            device.allocate("out", std::size_t{4} * kMostDp4aRows * matrix.rows));
    return r;
  }
};

Result<std::vector<std::uint8_t>> product(Device& device, Arithmetic arithmetic,
                                          const DeviceMatrix& matrix, const Rows& rows,
                                          std::int32_t x_rows) {
  device.zero(rows.out.at<std::uint8_t>(), rows.out.size());  // nothing of the other kernel's
  MatvecArgs args{};
  args.weights = matrix.memory.at<const std::uint8_t>();
  args.x = {rows.codes.at<const std::int8_t>(), rows.scales.at<const float>(),
            rows.sums.at<const std::uint32_t>()};
  args.out = rows.out.at<float>();
  args.out_stride = matrix.rows;
  args.rows = static_cast<std::int32_t>(matrix.rows);
  args.cols = static_cast<std::int32_t>(matrix.cols);
  args.x_rows = x_rows;
  launch_matvec(device, arithmetic, *tile_kind(matrix.type), args);
  std::vector<std::uint8_t> bytes(rows.out.size());
  device.download(bytes.data(), rows.out.at<const std::uint8_t>(), bytes.size());
  SLUICE_RETURN_IF_ERROR(device.synchronize());
  return bytes;
}

Status check_same_bits(Device& device, const DeviceMatrix& matrix) {
  SLUICE_ASSIGN_OR_RETURN(const Rows rows, Rows::make(device, matrix));
  for (std::int32_t r = 1; r <= kMostDp4aRows; ++r) {
    SLUICE_ASSIGN_OR_RETURN(const auto dp4a, product(device, Arithmetic::kDp4a, matrix, rows, r));
    SLUICE_ASSIGN_OR_RETURN(const auto mma, product(device, Arithmetic::kMma, matrix, rows, r));
    if (dp4a != mma) {
      return failed("dp4a and tensor cores differ: {}, {} rows", block_type_info(matrix.type).name,
                    r);
    }
  }
  return {};
}

}  // namespace

Status bench_crossover(Device& device, const Options& options) {
  fmt::print(
      "\ndp4a/tensor cores by rows of activations, us for 14336 x 4096 weights, and the rows up to "
      "which dp4a is chosen\n");
  fmt::print("{:<8}", "type");
  for (std::int32_t r = 1; r <= kMostDp4aRows; ++r) fmt::print("{:>18}", r);
  fmt::print("{:>6}\n", "dp4a");
  const std::uint32_t rows = options.quick ? 64 : 14336;
  const std::uint32_t cols = options.quick ? 256 : 4096;
  for (const BlockType type : kTypes) {
    const std::size_t count =
        options.quick ? 1 : (std::size_t{256} << 20) / packed_bytes(type, rows, cols);
    SLUICE_ASSIGN_OR_RETURN(const auto matrices, made_up_matrices(device, type, rows, cols, count));
    SLUICE_RETURN_IF_ERROR(check_same_bits(device, matrices.front()));
    SLUICE_ASSIGN_OR_RETURN(const KernelTimes times, time_kernels(device, pointers(matrices)));
    fmt::print("{:<8}", block_type_info(type).name);
    for (std::size_t i = 0; i < times.dp4a.size(); ++i) {
      fmt::print("{:>18}", fmt::format("{:.1f}/{:.1f}", 1e6 * times.dp4a[i], 1e6 * times.mma[i]));
    }
    fmt::print("{:>6}\n", times.most_dp4a());
    std::fflush(stdout);
  }
  return {};
}

}  // namespace sluice::cuda

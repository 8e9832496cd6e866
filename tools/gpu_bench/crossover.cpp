#include <array>
#include <cstdio>
#include <vector>

#include "cuda/host/few_rows.h"
#include "cuda/host/launch_either.h"
#include "cuda/pack.h"
#include "src/quant/block_type.h"
#include "tools/gpu_bench/bench.h"

namespace sluice::cuda {
namespace {

// A type for each kind of tiles.
constexpr BlockType kTypes[] = {BlockType::kQ4_0,  BlockType::kQ8_0, BlockType::kIQ4_NL,
                                BlockType::kMXFP4, BlockType::kQ4_K, BlockType::kQ5_K,
                                BlockType::kQ6_K,  BlockType::kQ4_1, BlockType::kQ2_K};
constexpr std::int32_t kRows[] = {1, 2, 3, 4, 5, 6, 8};
constexpr double kAsGood = 1.03;  // closer times are no reason for either
constexpr double kRunSeconds = 0.02;

// Memory whose bytes are positive numbers below two as halves and floats, and codes of any type.
Result<Memory> random_memory(Device& device, std::size_t bytes) {
  SLUICE_ASSIGN_OR_RETURN(Memory memory, device.allocate("random numbers", bytes));
  std::vector<std::uint8_t> host(bytes);
  std::uint64_t state = 1;
  for (std::uint8_t& byte : host) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    byte = static_cast<std::uint8_t>(state & 0x3f);
  }
  device.upload(memory.at<std::uint8_t>(), host.data(), bytes);
  SLUICE_RETURN_IF_ERROR(device.synchronize());
  return memory;
}

// Copies of one matrix, more than caches hold, and eight rows of activations.
class Problem {
 public:
  static Result<Problem> make(Device& device, BlockType type, bool quick) {
    Problem p;
    p.rows_ = quick ? 64 : 14336;
    p.cols_ = quick ? 256 : 4096;
    p.kind_ = *tile_kind(type);
    p.bytes_ = packed_bytes(type, p.rows_, p.cols_);
    const std::size_t groups = std::size_t{kMostEitherRows} * p.cols_ / 32;
    SLUICE_ASSIGN_OR_RETURN(const Memory one, random_memory(device, p.bytes_));
    p.count_ = quick ? 1 : (std::size_t{256} << 20) / p.bytes_;
    SLUICE_ASSIGN_OR_RETURN(p.weights_, device.allocate("weights", p.count_ * p.bytes_));
    for (std::size_t i = 0; i < p.count_; ++i) {
      device.copy(p.matrix<std::uint8_t>(i), one.at<const std::uint8_t>(), p.bytes_);
    }
    SLUICE_ASSIGN_OR_RETURN(p.codes_, random_memory(device, 32 * groups));
    SLUICE_ASSIGN_OR_RETURN(p.scales_, random_memory(device, 4 * groups));
    SLUICE_ASSIGN_OR_RETURN(p.sums_, random_memory(device, 4 * groups));
    SLUICE_ASSIGN_OR_RETURN(p.out_,
                            device.allocate("out", std::size_t{4} * kMostEitherRows * p.rows_));
    SLUICE_RETURN_IF_ERROR(device.synchronize());
    return p;
  }
  TileKind kind() const { return kind_; }

  Result<double> seconds(Device& device, bool quick, Arithmetic arithmetic,
                         std::int32_t x_rows) const {
    device.zero(out_.at<std::uint8_t>(), out_.size());  // nothing of the other kernel's
    const auto queue = [&] {
      for (std::size_t i = 0; i < count_; ++i) launch(device, arithmetic, x_rows, i);
    };
    SLUICE_ASSIGN_OR_RETURN(const double all, seconds_of(device, quick, queue, kRunSeconds));
    return all / static_cast<double>(count_);
  }
  // What the last launch gave.
  Result<std::vector<std::uint8_t>> results(Device& device, std::int32_t x_rows) const {
    std::vector<std::uint8_t> bytes(std::size_t{4} * static_cast<std::uint32_t>(x_rows) * rows_);
    device.download(bytes.data(), out_.at<const std::uint8_t>(), bytes.size());
    SLUICE_RETURN_IF_ERROR(device.synchronize());
    return bytes;
  }

 private:
  template <class T>
  simt::Global<T> matrix(std::size_t i) const {
    return weights_.at<T>(static_cast<std::int64_t>(i * bytes_));
  }
  void launch(Device& device, Arithmetic arithmetic, std::int32_t x_rows, std::size_t i) const {
    MatvecArgs args{};
    args.weights = matrix<const std::uint8_t>(i);
    args.x = {codes_.at<const std::int8_t>(), scales_.at<const float>(),
              sums_.at<const std::uint32_t>()};
    args.out = out_.at<float>();
    args.out_stride = rows_;
    args.rows = static_cast<std::int32_t>(rows_);
    args.cols = static_cast<std::int32_t>(cols_);
    args.x_rows = x_rows;
    launch_matvec_by(arithmetic, device, kind_, args);
  }

  std::uint32_t rows_ = 0, cols_ = 0;
  TileKind kind_ = TileKind::kQ4_0;
  std::size_t bytes_ = 0;  // of a matrix
  std::size_t count_ = 0;
  Memory weights_, codes_, scales_, sums_, out_;
};

struct Times {
  double dp4a = 0;
  double mma = 0;
  bool dp4a_is_good() const { return dp4a <= kAsGood * mma; }
  bool mma_is_good() const { return mma <= kAsGood * dp4a; }
};

Result<Times> measure(Device& device, bool quick, const Problem& problem, std::int32_t x_rows) {
  Times times;
  SLUICE_ASSIGN_OR_RETURN(times.dp4a, problem.seconds(device, quick, Arithmetic::kDp4a, x_rows));
  SLUICE_ASSIGN_OR_RETURN(const auto by_dp4a, problem.results(device, x_rows));
  SLUICE_ASSIGN_OR_RETURN(times.mma, problem.seconds(device, quick, Arithmetic::kMma, x_rows));
  SLUICE_ASSIGN_OR_RETURN(const auto by_mma, problem.results(device, x_rows));
  if (by_dp4a != by_mma) return failed("dp4a and tensor cores differ at {} rows", x_rows);
  return times;
}

}  // namespace

Status bench_crossover(Device& device, const Options& options) {
  fmt::print(
      "\ndp4a/tensor cores by rows, us; d, t: which is faster, = where they are as good. Then: the "
      "rows up to which dp4a is, those of cuda/host/few_rows.h, and whether these are as good\n");
  fmt::print("{:<8}", "type");
  for (const std::int32_t r : kRows) fmt::print("{:>18}", r);
  fmt::print("{:>6}{:>7}\n", "dp4a", "table");
  for (const BlockType type : kTypes) {
    SLUICE_ASSIGN_OR_RETURN(const Problem problem, Problem::make(device, type, options.quick));
    const std::int32_t table = most_dp4a_rows(problem.kind(), device.info().major);
    std::int32_t most = 0;
    bool ahead = true;
    bool agrees = true;
    fmt::print("{:<8}", block_type_info(type).name);
    for (const std::int32_t r : kRows) {
      SLUICE_ASSIGN_OR_RETURN(const Times times, measure(device, options.quick, problem, r));
      const bool both = times.dp4a_is_good() && times.mma_is_good();
      fmt::print("{:>18}", fmt::format("{:.1f}/{:.1f} {}", 1e6 * times.dp4a, 1e6 * times.mma,
                                       both                   ? '='
                                       : times.dp4a_is_good() ? 'd'
                                                              : 't'));
      ahead = ahead && times.dp4a < times.mma;
      if (ahead) most = r;
      agrees = agrees && (r <= table ? times.dp4a_is_good() : times.mma_is_good());
    }
    fmt::print("{:>6}{:>7} {}\n", most, table, agrees ? "agrees" : "DIFFERS");
    std::fflush(stdout);
  }
  return {};
}

}  // namespace sluice::cuda

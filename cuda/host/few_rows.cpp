#include "cuda/host/few_rows.h"

#include <algorithm>
#include <vector>

#include "cuda/pack.h"

namespace sluice::cuda {
namespace {

// What is timed in one go: long against what starting it takes, short against a model's start.
constexpr std::size_t kMostTimedMatrices = 64;
constexpr std::uint64_t kMostTimedBytes = std::uint64_t{256} << 20;

constexpr const char* kKindNames[] = {"Q4_0",     "Q8_0", "IQ4_NL", "MXFP4",
                                      "Q4_K",     "Q5_K", "Q6_K",   "Q4_1/Q5_0/Q5_1/IQ4_XS",
                                      "Q2_K/Q3_K"};
static_assert(std::size(kKindNames) == kTileKinds);

// Activations and results that all matrices share.
struct Scratch {
  Memory codes, scales, sums, out;

  static Result<Scratch> make(Device& device, std::uint32_t rows, std::uint32_t cols) {
    const std::size_t groups = std::size_t{kMostDp4aRows} * ((cols + 31) / 32);
    Scratch s;
    SLUICE_ASSIGN_OR_RETURN(s.codes, zeros(device, 32 * groups));
    SLUICE_ASSIGN_OR_RETURN(s.scales, zeros(device, 4 * groups));
    SLUICE_ASSIGN_OR_RETURN(s.sums, zeros(device, 4 * groups));
    SLUICE_ASSIGN_OR_RETURN(s.out, zeros(device, std::size_t{4} * kMostDp4aRows * rows));
    return s;
  }

 private:
  static Result<Memory> zeros(Device& device, std::size_t bytes) {
    SLUICE_ASSIGN_OR_RETURN(Memory memory, device.allocate("timing the kernels", bytes));
    device.zero(memory.at<std::uint8_t>(), bytes);
    return memory;
  }
};

std::uint32_t timed_rows(const DeviceMatrix& matrix) {
  return std::min(matrix.rows, kMostTimedRows);
}

void launch_timed(Device& device, Arithmetic arithmetic, const DeviceMatrix& matrix,
                  const Scratch& scratch, std::int32_t x_rows) {
  MatvecArgs args{};
  args.weights = matrix.memory.at<const std::uint8_t>();
  args.x = {scratch.codes.at<const std::int8_t>(), scratch.scales.at<const float>(),
            scratch.sums.at<const std::uint32_t>()};
  args.out = scratch.out.at<float>();
  args.rows = static_cast<std::int32_t>(timed_rows(matrix));
  args.out_stride = args.rows;
  args.cols = static_cast<std::int32_t>(matrix.cols);
  args.x_rows = x_rows;
  launch_matvec(device, arithmetic, *tile_kind(matrix.type), args);
}

// The matrices of a model in the order in which a pass reads them.
template <class Visit>
void visit_matrices(const DeviceWeights& weights, Visit&& visit) {
  const auto each = [&](const DeviceProduct& product) {
    for (const DeviceProduct::Piece& piece : product.pieces) visit(piece.matrix);
  };
  for (const DeviceLayer& layer : weights.layer) {
    each(layer.qkv);
    each(layer.attention_output);
    each(layer.gate_up);
    each(layer.down);
    each(layer.router);
  }
  each(weights.output);
}

}  // namespace

std::int32_t KernelTimes::most_dp4a() const {
  std::size_t most = 0;
  while (most < dp4a.size() && dp4a[most] <= mma[most]) ++most;
  return static_cast<std::int32_t>(most);
}

Result<KernelTimes> time_kernels(Device& device, std::span<const DeviceMatrix* const> matrices) {
  std::uint32_t rows = 0;
  std::uint32_t cols = 0;
  for (const DeviceMatrix* matrix : matrices) {
    rows = std::max(rows, timed_rows(*matrix));
    cols = std::max(cols, matrix->cols);
  }
  SLUICE_ASSIGN_OR_RETURN(const Scratch scratch, Scratch::make(device, rows, cols));
  const auto seconds = [&](Arithmetic arithmetic, std::size_t i) -> Result<double> {
    device.begin_graph();
    for (const DeviceMatrix* matrix : matrices) {
      launch_timed(device, arithmetic, *matrix, scratch, static_cast<std::int32_t>(i) + 1);
    }
    SLUICE_ASSIGN_OR_RETURN(const Graph graph, device.end_graph());
    SLUICE_ASSIGN_OR_RETURN(const double all, device.seconds(graph));
    return all / static_cast<double>(matrices.size());
  };
  KernelTimes times;
  for (std::size_t i = 0; i < times.dp4a.size(); ++i) {
    SLUICE_ASSIGN_OR_RETURN(times.dp4a[i], seconds(Arithmetic::kDp4a, i));
    SLUICE_ASSIGN_OR_RETURN(times.mma[i], seconds(Arithmetic::kMma, i));
  }
  return times;
}

Result<FewRows> FewRows::measure(Device& device, const DeviceWeights& weights) {
  struct Timed {
    std::vector<const DeviceMatrix*> matrices;
    std::uint64_t bytes = 0;
  };
  std::array<Timed, kTileKinds> of_kind;
  visit_matrices(weights, [&](const DeviceMatrix& matrix) {
    const auto kind = tile_kind(matrix.type);
    if (!kind) return;  // a float type
    Timed& timed = of_kind[static_cast<std::size_t>(*kind)];
    if (timed.matrices.size() == kMostTimedMatrices || timed.bytes >= kMostTimedBytes) return;
    timed.matrices.push_back(&matrix);
    timed.bytes += packed_bytes(matrix.type, timed_rows(matrix), matrix.cols);
  });
  FewRows few;
  for (std::size_t kind = 0; kind < of_kind.size(); ++kind) {
    if (of_kind[kind].matrices.empty()) continue;
    SLUICE_ASSIGN_OR_RETURN(const KernelTimes times, time_kernels(device, of_kind[kind].matrices));
    few.most_dp4a_[kind] = times.most_dp4a();
    few.measured_[kind] = true;
  }
  return few;
}

std::string FewRows::text() const {
  std::string text;
  for (std::size_t kind = 0; kind < most_dp4a_.size(); ++kind) {
    if (!measured_[kind]) continue;
    text += fmt::format("{} {} {}", text.empty() ? "rows that dp4a takes:" : ",", kKindNames[kind],
                        most_dp4a_[kind]);
  }
  return text;
}

}  // namespace sluice::cuda

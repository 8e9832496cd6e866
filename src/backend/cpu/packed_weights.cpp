#include "src/backend/cpu/packed_weights.h"

#include <algorithm>

#include "src/backend/cpu/pack.h"
#include "src/base/mapped_file.h"

namespace sluice::cpu {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::uint64_t kSlabBytes = std::uint64_t{8} << 20;  // of a matrix, packed at a time

// Calls visit(source, place) for every matrix of the layers and the output, in the order in which a
// pass reads them.
template <class Visit>
void for_each_matrix(const Weights& weights, LayerRange layers, PackedWeights& packed,
                     Visit visit) {
  packed.layer.resize(weights.layer.size());
  for (std::size_t i = layers.first; i < layers.last; ++i) {
    const LayerWeights& from = weights.layer[i];
    PackedLayer& to = packed.layer[i];
    visit(from.query, to.query);
    visit(from.key, to.key);
    visit(from.value, to.value);
    visit(from.attention_output, to.attention_output);
    visit(from.gate, to.gate);
    visit(from.up, to.up);
    visit(from.down, to.down);
    visit(from.router, to.router);
    to.expert_gate.resize(from.expert_gate.size());
    to.expert_up.resize(from.expert_up.size());
    to.expert_down.resize(from.expert_down.size());
    for (std::size_t e = 0; e < from.expert_gate.size(); ++e) {
      visit(from.expert_gate[e], to.expert_gate[e]);
      visit(from.expert_up[e], to.expert_up[e]);
      visit(from.expert_down[e], to.expert_down[e]);
    }
  }
  if (layers.last == weights.layer.size()) visit(weights.output, packed.output);
}

std::uint64_t aligned(std::uint64_t bytes) { return (bytes + kAlignment - 1) & ~(kAlignment - 1); }

}  // namespace

std::uint64_t matrix_bytes(const PackedMatrix& matrix) {
  return packed_bytes(matrix.type, matrix.rows, matrix.cols);
}

std::uint64_t PackedWeights::bytes_needed(const Weights& weights, LayerRange layers) {
  std::uint64_t total = 0;
  PackedWeights unused;
  for_each_matrix(weights, layers, unused, [&](const MatrixRef& from, PackedMatrix&) {
    if (from) total += aligned(packed_bytes(from.type, from.rows, from.cols));
  });
  return total;
}

std::optional<PackedWeights> PackedWeights::kept(const Weights& weights, LayerRange layers,
                                                 const PackedFile& file, ThreadPool& pool) {
  PackedWeights packed;
  packed.file = KeptBytes::open(file, bytes_needed(weights, layers), pool);
  if (!packed.file) return std::nullopt;
  std::uint64_t offset = 0;
  for_each_matrix(weights, layers, packed, [&](const MatrixRef& from, PackedMatrix& to) {
    if (!from) return;
    to = PackedMatrix{from.type, from.rows, from.cols, packed.file->data() + offset};
    offset += aligned(matrix_bytes(to));
  });
  return packed;
}

Result<PackedWeights> PackedWeights::pack(const Weights& weights, LayerRange layers,
                                          ThreadPool& pool, const std::atomic<bool>* cancel,
                                          const std::function<void(double)>& on_progress) {
  const std::uint64_t total = bytes_needed(weights, layers);
  PackedWeights packed;
  SLUICE_ASSIGN_OR_RETURN(packed.memory, AlignedBuffer::allocate(total, "packed weights"));

  std::uint64_t offset = 0;
  for_each_matrix(weights, layers, packed, [&](const MatrixRef& from, PackedMatrix& to) {
    if (!from || (cancel != nullptr && cancel->load(std::memory_order_relaxed))) return;
    std::byte* out = packed.memory.data() + offset;
    to = PackedMatrix{from.type, from.rows, from.cols, out};
    // A slab at a time, whose mapped pages are then given back: the largest matrix is a quarter of
    // some models.
    const std::uint64_t row_bytes = from.bytes() / from.rows;
    const std::uint64_t groups = std::max<std::uint64_t>(16, kSlabBytes / (row_bytes * kRowGroup));
    for (std::uint64_t first = 0; first < to.groups(); first += groups) {
      const std::uint64_t last = std::min<std::uint64_t>(first + groups, to.groups());
      pool.parallel_for(
          last - first, 8,
          [&](std::uint64_t begin, std::uint64_t end) {
            pack_groups(from.type, from.data, from.rows, from.cols,
                        static_cast<std::uint32_t>(first + begin),
                        static_cast<std::uint32_t>(first + end), out);
          },
          cancel);
      if (weights.mapped) {
        const std::uint64_t begin = first * kRowGroup * row_bytes;
        const std::uint64_t end = std::min<std::uint64_t>(last * kRowGroup, from.rows) * row_bytes;
        release_mapped_pages(from.data + begin, end - begin);
      }
    }
    offset += aligned(matrix_bytes(to));
    if (on_progress) on_progress(static_cast<double>(offset) / static_cast<double>(total));
  });
  if (cancel != nullptr && cancel->load()) {
    return make_error(ErrorCode::kInterrupted, "interrupted while the weights were prepared");
  }
  return packed;
}

}  // namespace sluice::cpu

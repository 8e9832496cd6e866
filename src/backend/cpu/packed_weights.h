// All matrices of a model in kernel layout.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "src/backend/backend.h"
#include "src/backend/cpu/kernels.h"
#include "src/backend/cpu/packed_file.h"
#include "src/backend/cpu/thread_pool.h"
#include "src/base/aligned_buffer.h"
#include "src/base/status.h"
#include "src/model/model_spec.h"

namespace sluice::cpu {

struct PackedLayer {
  PackedMatrix query, key, value, attention_output;
  PackedMatrix gate, up, down;
  PackedMatrix router;
  std::vector<PackedMatrix> expert_gate, expert_up, expert_down;
};

struct PackedWeights {
  std::vector<PackedLayer> layer;
  PackedMatrix output;            // [vocabulary, embedding]
  AlignedBuffer memory;           // what pack() made,
  std::optional<KeptBytes> file;  // or where it was kept

  // Bytes that `memory` needs for some layers and, with the last one, the output.
  static std::uint64_t bytes_needed(const Weights& weights, LayerRange layers);

  // Packs these layers on the pool's threads; others stay empty. The file's pages that were read
  // are given back to the system afterwards (they stay in its cache). `on_progress` hears the share
  // done, 0 to 1.
  static Result<PackedWeights> pack(const Weights& weights, LayerRange layers, ThreadPool& pool,
                                    const std::atomic<bool>* cancel,
                                    const std::function<void(double)>& on_progress);
  // What pack() would make of these layers, from the file where it is kept; nothing where it isn't.
  static std::optional<PackedWeights> kept(const Weights& weights, LayerRange layers,
                                           const PackedFile& file, ThreadPool& pool);
};

// Bytes of a packed matrix that a pass reads.
std::uint64_t matrix_bytes(const PackedMatrix& matrix);

}  // namespace sluice::cpu

// A model's matrices and vectors in GPU memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "cuda/arguments.h"
#include "cuda/host/runtime.h"
#include "src/backend/backend.h"
#include "src/backend/cpu/thread_pool.h"
#include "src/model/model_spec.h"

namespace sluice::cuda {

// A matrix as the kernels want it: packed in tiles (cuda/weight_tiles.h), or as in the file for
// float types. With experts, their matrices one behind the other.
struct DeviceMatrix {
  BlockType type = BlockType::kF32;
  std::uint32_t rows = 0;
  std::uint32_t cols = 0;
  std::int64_t expert_bytes = 0;  // of one of several
  Memory memory;
};

// Matrices that take the same input; matrix i's results begin at `out` of a result row. Those of
// one type that follow each other are one matrix.
struct DeviceProduct {
  struct Piece {
    DeviceMatrix matrix;
    std::uint32_t out = 0;
  };
  std::vector<Piece> pieces;
  // Two matrices of one type whose tiles, and so 32 columns each of the results, alternate
  // (cuda/kernels/gated.cuh); they are one piece.
  bool pairs = false;
  bool any_quantized() const;
  bool any_float() const;
};

struct DeviceLayer {
  DeviceProduct qkv;  // query, key, value
  DeviceProduct attention_output;
  DeviceProduct gate_up;  // of all experts, where there are any
  DeviceProduct down;
  DeviceProduct router;
  // Vectors, null where the model has none.
  Memory attention_norm, query_key_value_bias, query_norm, key_norm, attention_output_bias,
      attention_post_norm, feed_forward_norm, feed_forward_post_norm;
  // Large key biases (src/backend/cpu/key_outliers.h).
  Memory outlier_pairs, outlier_table;
  std::int32_t most_outliers = 0;
};

struct DeviceWeights {
  std::vector<DeviceLayer> layer;  // of the whole model, empty outside the range
  DeviceProduct output;            // with the last layer
  Memory output_norm;
  std::int32_t most_outliers = 0;  // of any layer
};

// Bytes that upload() takes on the device. Here and below, large key biases go apart for the cache
// of type `kv`, as on the CPU.
std::uint64_t weight_bytes(const Model& model, LayerRange layers, KvCacheType kv,
                           std::uint32_t positions);

// Outlying pairs of the head that has most, in one layer.
std::int32_t most_outliers(const Model& model, std::uint32_t layer, KvCacheType kv);

// Bytes of a product that a pass reads (of one expert, where there are several).
std::uint64_t product_bytes(const DeviceProduct& product);

// Packs the layers' weights on the pool's threads and streams them to the device. kNoMemory,
// kInterrupted, kFailed.
Result<DeviceWeights> upload_weights(Device& device, const Model& model, LayerRange layers,
                                     KvCacheType kv, std::uint32_t positions, cpu::ThreadPool& pool,
                                     const std::atomic<bool>* cancel,
                                     const std::function<void(double)>& on_progress);

}  // namespace sluice::cuda

// State of the CPU backend and its forward pass.
#pragma once

#include <vector>

#include "src/backend/backend.h"
#include "src/backend/cpu/cpu_backend.h"
#include "src/backend/cpu/kernels.h"
#include "src/backend/cpu/key_outliers.h"
#include "src/backend/cpu/packed_weights.h"
#include "src/backend/cpu/thread_pool.h"
#include "src/backend/pass_rows.h"
#include "src/base/aligned_buffer.h"
#include "src/kv/recent_blocks.h"

namespace sluice::cpu {

// Activations of a pass, sized for max_rows once at load; R rows below.
struct WorkBuffers {
  float* hidden = nullptr;        // [R, embedding] the residual stream
  float* normed = nullptr;        // [R, embedding] input of the matrices
  float* qkv = nullptr;           // [R, (heads + 2 kv_heads) * head_dim]
  float* attention = nullptr;     // [R, heads * head_dim]
  float* result = nullptr;        // [R, embedding] of a block, before it joins the stream
  float* gate = nullptr;          // [E, feed_forward]; E = R, or R * experts_used
  float* up = nullptr;            // [E, feed_forward]
  float* expert_in = nullptr;     // [E, embedding] gathered rows, models with experts only
  float* expert_out = nullptr;    // [E, embedding]
  float* router = nullptr;        // [R, experts]
  float* cosine = nullptr;        // [ropes, R, rope_dims / 2]
  float* sine = nullptr;          // [ropes, R, rope_dims / 2]
  float* softmax_max = nullptr;   // [R, heads]
  float* softmax_sum = nullptr;   // [R, heads]
  float* coefficients = nullptr;  // [R, heads, outliers, 2]
  // Quantized activations: of the matrices' input, and of the gathered rows or the activation.
  QuantizedRows quantized;
  QuantizedRows quantized_wide;

  AlignedBuffer memory;
};

// Activations as a matrix wants them, whichever its type.
struct Activations {
  const float* x = nullptr;  // [rows, cols]
  std::size_t stride = 0;
  QuantizedRows quantized;  // of the same values; rows == 0 when no matrix needs it
  std::uint32_t rows = 0;
};

// out = x * matrix^T.
struct MatrixProduct {
  const PackedMatrix* matrix = nullptr;
  Activations x;
  float* out = nullptr;
  std::size_t out_stride = 0;
};

class CpuBackend final : public Backend {
 public:
  static Result<std::unique_ptr<Backend>> create(const Model& model, const CpuOptions& options);

  std::string description() const override;
  const ModelSpec& spec() const override { return model_.spec; }
  std::uint32_t block_tokens() const override { return kKvBlock; }
  std::uint32_t max_rows() const override { return options_.max_rows; }
  std::uint32_t max_logits() const override { return options_.max_logits; }
  Result<PassTraffic> forward(std::span<const BatchRow> rows, const KvCache& kv, LayerRange layers,
                              const ForwardIo& io) override;
  std::uint32_t resumable_length(const KvCache& kv, SequenceId sequence,
                                 std::uint32_t length) const override;
  std::uint32_t max_open_blocks() const override;
  Status copy_kv_block(const KvCache& kv, BlockCopy copy) override;
  std::string kv_format() const override;
  std::size_t kv_block_bytes() const override;
  Status export_kv_block(std::uint32_t block, std::span<std::byte> bytes) const override;
  void import_kv_block(std::uint32_t block, std::span<const std::byte> bytes) override;

 private:
  CpuBackend(const Model& model, const CpuOptions& options, const Kernels& kernels);

  // Maps the packed weights that an earlier start kept, or packs them and keeps them.
  Status prepare_weights();

  struct Pass;  // what the steps of one forward share
  void embed(const Pass& pass);
  void rotation_tables(const Pass& pass);
  PassTraffic attention_block(const Pass& pass, std::uint32_t layer);
  void store_keys_and_values(const Pass& pass, std::uint32_t layer);
  void quantize_full_blocks(const Pass& pass, std::uint32_t layer);
  void attend(const Pass& pass, std::uint32_t layer);
  void attend_tile(const Pass& pass, std::uint32_t layer, RowRun tile, std::uint32_t kv_head,
                   std::uint32_t first_head, std::uint32_t heads);
  PassTraffic feed_forward_block(const Pass& pass, std::uint32_t layer);
  PassTraffic experts_block(const Pass& pass, std::uint32_t layer);
  PassTraffic logits(const Pass& pass, std::span<float> out);

  // hidden + vector weights -> normed (and quantized when a consumer asks).
  void normalise(const Pass& pass, const Vector& norm, bool quantize);
  void add_result(const Pass& pass, const Vector& bias, const Vector& post_norm);
  void activate(float* gate, const float* up, std::uint32_t rows, std::uint32_t width,
                bool quantize, QuantizedRows out, const std::atomic<bool>* cancel);
  void multiply(std::span<const MatrixProduct> products, const std::atomic<bool>* cancel);
  void for_rows(std::uint32_t rows, std::size_t work_per_row,
                const std::function<void(std::uint32_t)>& body, const std::atomic<bool>* cancel);

  std::byte* kv_block(std::uint32_t layer, std::uint32_t block, std::uint32_t kv_head) const;
  // The f16 form of a block of an int4 cache; it must be held in `recent_`.
  std::byte* recent_block(std::uint32_t layer, std::uint32_t block, std::uint32_t kv_head) const;
  bool is_int4() const { return options_.kv == KvCacheType::kInt4; }
  // Bytes of keys and values that the rows of a run read in a layer.
  std::uint64_t kv_bytes_seen(const Pass& pass, RowRun run, std::uint32_t window) const;

  const Model& model_;
  CpuOptions options_;
  const Kernels& kernels_;
  std::shared_ptr<ThreadPool> pool_;
  PackedWeights weights_;
  std::unique_ptr<PackedFileWriter> writer_;        // of weights_, which it reads
  std::vector<std::vector<KeyOutliers>> outliers_;  // [layer][kv head]
  std::uint32_t most_outliers_ = 0;
  std::vector<Vector> key_bias_;  // of each layer, zero where a pair is outlying
  KvLayout kv_layout_;
  AlignedBuffer kv_memory_;
  // int4 only: blocks that are, or were lately, not full, in f16: slot by slot as kv_memory_.
  KvLayout recent_layout_;
  RecentBlocks recent_{0, kKvBlock, 0};
  AlignedBuffer recent_memory_;
  WorkBuffers work_;
};

// Sizes the buffers into `buffers` when `base` is not null; returns the bytes needed.
std::size_t lay_out_work(const ModelSpec& spec, std::uint32_t rows, std::uint32_t most_outliers,
                         std::byte* base, WorkBuffers& buffers);

}  // namespace sluice::cpu

// The CUDA backend: weights and KV cache in a GPU's memory, a pass as a sequence of launches.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cuda/arguments.h"
#include "cuda/host/few_rows.h"
#include "cuda/host/pass_inputs.h"
#include "cuda/host/runtime.h"
#include "cuda/host/weights.h"
#include "cuda/kv_pages.h"
#include "src/backend/gpu.h"
#include "src/backend/pass_rows.h"
#include "src/kv/recent_blocks.h"

namespace sluice::cuda {

// Activations of a pass, R rows; E rows go through feed-forward networks: R, or R * experts_used.
struct WorkMemory {
  Memory hidden;  // [R][embedding] the residual stream
  Memory normed;  // [R][embedding]
  Memory qkv;     // [R][(heads + 2 kv_heads) * head_dim]
  Memory query;   // [R][heads][padded_dim], int8 or float as the pages want it
  Memory query_scale;
  Memory attention;  // [R][heads * head_dim]
  Memory result;     // [R][embedding] of a block, before it joins the stream
  Memory gate_up;    // [E][2 * feed_forward]
  Memory activated;  // [E][feed_forward]
  // int8 activations of width embedding or heads * head_dim, and of width feed_forward.
  Memory x, x_scale, x_sum;
  Memory wide, wide_scale, wide_sum;
  Memory arrivals;                                      // [heads + 2 kv_heads], see QkvArgs
  Memory partial_out, partial_state;                    // of attention, see AttentionArgs
  Memory coefficients;                                  // [R][heads][most_outliers][2]
  Memory logits;                                        // [max_logits][vocabulary]
  Memory top_part_id, top_part_key, top_id, top_logit;  // see TopLogitsArgs
  // Mixture of experts.
  Memory router;                                          // [R][experts]
  Memory pair_weight, pair_expert, pair_place, pair_row;  // [R * experts_used]
  Memory items;
  Memory expert_out;  // [E][embedding]
};

class CudaBackend final : public Backend {
 public:
  static Result<std::unique_ptr<Backend>> create(const Model& model, const GpuOptions& options);
  static MemoryPlan plan_memory(const Model& model, const GpuOptions& options);

  std::string description() const override;
  std::string tuning() const override { return few_rows_.text(); }
  const ModelSpec& spec() const override { return model_.spec; }
  std::uint32_t block_tokens() const override;
  std::uint32_t max_rows() const override { return options_.max_rows; }
  std::uint32_t max_logits() const override { return options_.max_logits; }
  std::uint32_t most_top_logits() const override;
  std::uint32_t resumable_length(const KvCache& kv, SequenceId sequence,
                                 std::uint32_t length) const override;
  std::uint32_t max_open_blocks() const override;
  Result<PassTraffic> forward(std::span<const BatchRow> rows, const KvCache& kv, LayerRange layers,
                              const ForwardIo& io) override;
  Status copy_kv_block(const KvCache& kv, BlockCopy copy) override;
  std::string kv_format() const override;
  std::size_t kv_block_bytes() const override;
  Status export_kv_block(std::uint32_t block, std::span<std::byte> bytes) const override;
  void import_kv_block(std::uint32_t block, std::span<const std::byte> bytes) override;

 private:
  CudaBackend(const Model& model, const GpuOptions& options) : model_(model), options_(options) {}

  // What the launches of a pass share.
  struct Pass {
    PassShape shape;
    PassPointers in;
    const std::atomic<bool>* cancel = nullptr;
  };
  // Activations as a product may want them.
  struct Input {
    Global<const float> x;  // [rows][stride]
    std::int64_t stride = 0;
    QuantizedRows quantized;
    std::int32_t rows = 0;
  };
  // Rows by experts, for a product of experts.
  struct Experts {
    Global<const ExpertItem> items;
    std::int32_t count = 0;
    std::int32_t item_rows = 0;
    Global<const std::int32_t> x_row;  // null: row j of the input
  };
  // A block's result that has yet to join the residual stream.
  struct Pending {
    Global<const float> result;  // null: nothing
    Global<const float> bias;
    Global<const float> post_norm;
  };

  Status queue_pass(const Pass& pass);
  Status queue_layers(const Pass& pass);
  void queue_layer(const Pass& pass, std::uint32_t layer, Pending& pending);
  Pending queue_feed_forward(const Pass& pass, std::uint32_t layer, const Pending& before);
  Pending queue_experts(const Pass& pass, std::uint32_t layer, const Pending& before);
  // Queries to the pass's memory, keys and values to the cache.
  void queue_qkv(const Pass& pass, std::uint32_t layer, const Input& x);
  RopeArgs rope_args(const Pass& pass, std::uint32_t layer) const;
  // int4: the blocks that the pass has filled, in 4 bits; rows of later blocks see them so.
  void queue_full_blocks(const Pass& pass, std::uint32_t layer);
  OutlierArgs outlier_args(std::uint32_t layer) const;
  void queue_attention(const Pass& pass, std::uint32_t layer);
  void queue_logits(const Pass& pass);
  // hidden += pending; the sum's norm to `normed` and `x`, as the product wants it.
  Input queue_norm(const Pass& pass, const Pending& pending, const Memory& norm,
                   const DeviceProduct& product, const DeviceProduct* another);
  // activation(gate x) * (up x) of networks of this width, for `rows` rows of results, as the next
  // product wants them. `gate_up` and `down` are the layer's.
  Input queue_gate_up(const DeviceLayer& w, const Input& x, std::uint32_t width, std::int32_t rows,
                      const Experts* experts);
  Input queue_activation(const DeviceLayer& w, std::uint32_t width, std::int32_t rows);
  void queue_product(const DeviceProduct& product, const Input& input, Global<float> out,
                     std::int64_t stride, const Experts* experts);
  // What the arguments of all products have in common.
  template <class Args>
  static Args product_args(const DeviceMatrix& matrix, const Input& input, const Experts* experts);
  PassTraffic traffic(std::span<const BatchRow> rows, const PassShape& shape) const;
  std::uint64_t kv_bytes_seen(std::span<const BatchRow> rows, RowRun run,
                              std::uint32_t window) const;
  PageKind pages() const;
  bool is_int4() const { return options_.kv == KvCacheType::kInt4; }
  std::int64_t kv_layer_block_bytes() const;
  std::int64_t kv_layer_slot_bytes() const;

  const Model& model_;
  GpuOptions options_;
  std::unique_ptr<Device> device_;
  DeviceWeights weights_;
  std::vector<Memory> cache_;  // of each layer of the model, empty outside the range
  // int4: blocks that are, or were lately, not full, in f16, of each layer.
  RecentBlocks recent_{0, kPageTokens, 0};
  std::vector<Memory> recent_cache_;
  FewRows few_rows_;
  WorkMemory work_;
  PassInputs inputs_;
  HostMemory hidden_;               // [max_rows][embedding], on its way to or from the device
  std::int64_t partial_units_ = 0;  // (tile, chunk) pairs that there is room for
  std::map<PassShape, Graph> graphs_;
};

}  // namespace sluice::cuda

// The forward pass of the CPU backend, a function a step. R is the number of rows of the pass.
#include "src/backend/cpu/forward.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <limits>

#include "src/backend/pass_rows.h"

namespace sluice::cpu {
namespace {

constexpr std::uint32_t kTileRows = 8;
// Below this many values a step runs on the calling thread: waking others costs more.
constexpr std::size_t kParallelWork = 16384;

bool is_quantized(const PackedMatrix& matrix) {
  return block_type_info(matrix.type).block_size != 1;
}

QuantizedRows slice(const QuantizedRows& all, std::uint32_t first, std::uint32_t count,
                    std::uint32_t cols) {
  const std::size_t groups = cols / kQuantGroup;
  return QuantizedRows{count, cols, all.q + std::size_t{first} * cols, all.scale + first * groups,
                       all.sum + first * groups * 2};
}

// What multiplying by the matrices costs, `rows` rows by each.
PassTraffic cost_of(std::initializer_list<const PackedMatrix*> matrices, std::uint64_t rows) {
  PassTraffic traffic;
  for (const PackedMatrix* matrix : matrices) {
    traffic.weight_bytes += matrix_bytes(*matrix);
    traffic.multiply_adds += rows * matrix->rows * matrix->cols;
  }
  return traffic;
}

bool cancelled(const std::atomic<bool>* cancel) {
  return cancel != nullptr && cancel->load(std::memory_order_relaxed);
}

}  // namespace

struct CpuBackend::Pass {
  std::span<const BatchRow> rows;
  const KvCache* kv = nullptr;
  std::vector<RowRun> tiles;  // of at most kTileRows rows, int4: which lie in the same block
  std::vector<std::uint32_t> full_blocks;  // int4: those that the pass fills
  const std::atomic<bool>* cancel = nullptr;
  StageClock* clock = nullptr;
  std::uint32_t count() const { return static_cast<std::uint32_t>(rows.size()); }
};

std::byte* CpuBackend::kv_block(std::uint32_t layer, std::uint32_t block,
                                std::uint32_t kv_head) const {
  const std::size_t own = layer - options_.layers.first;
  const std::size_t index = (own * options_.kv_blocks + block) * model_.spec.kv_heads + kv_head;
  return kv_memory_.data() + index * kv_layout_.head_bytes();
}

std::byte* CpuBackend::recent_block(std::uint32_t layer, std::uint32_t block,
                                    std::uint32_t kv_head) const {
  const std::size_t own = layer - options_.layers.first;
  const std::size_t index =
      (own * recent_.slots() + recent_.slot(block)) * model_.spec.kv_heads + kv_head;
  return recent_memory_.data() + index * recent_layout_.head_bytes();
}

Result<PassTraffic> CpuBackend::forward(std::span<const BatchRow> rows, const KvCache& kv,
                                        LayerRange layers, const ForwardIo& io) {
  const ModelSpec& spec = model_.spec;
  const PassLimits limits{options_.layers, options_.positions, options_.max_rows,
                          options_.max_logits};
  SLUICE_RETURN_IF_ERROR(check_pass(spec, limits, kKvBlock, rows, kv, layers, io));
  StageClock clock(io.profile);
  Pass pass{rows, &kv, row_runs(rows, kTileRows, is_int4() ? kKvBlock : 0), {}, io.cancel, &clock};
  std::vector<BlockWrite> writes;
  if (is_int4()) {
    writes = block_writes(rows, kv);
    SLUICE_RETURN_IF_ERROR(recent_.open(writes, kv));
    for (const BlockWrite& write : writes) {
      if (write.end == kKvBlock) pass.full_blocks.push_back(write.block);
    }
  }

  if (layers.first == 0) {
    embed(pass);  // hidden [R, embedding]
  } else {
    std::copy_n(io.hidden.data(), rows.size() * spec.embedding, work_.hidden);
  }
  rotation_tables(pass);  // cosine, sine [ropes, R, rope_dims / 2]
  clock.done(Stage::kEmbed);

  PassTraffic traffic;
  for (std::uint32_t layer = layers.first; layer < layers.last; ++layer) {
    traffic.add(attention_block(pass, layer));  // hidden += attention(norm(hidden))
    traffic.add(spec.layer[layer].experts
                    ? experts_block(pass, layer)
                    : feed_forward_block(pass, layer));  // hidden += feed_forward(norm(hidden))
    if (cancelled(io.cancel)) return make_error(ErrorCode::kInterrupted, "interrupted");
  }
  recent_.written(writes);

  if (io.hidden.size() >= rows.size() * spec.embedding) {
    std::copy_n(work_.hidden, rows.size() * spec.embedding, io.hidden.data());
  }
  if (layers.last < spec.layers) return traffic;
  const bool any = std::any_of(rows.begin(), rows.end(), [](const auto& r) { return r.logits; });
  if (any) {
    traffic.add(logits(pass, io.logits.whole));  // [wanted, vocabulary]
  }
  if (cancelled(io.cancel)) return make_error(ErrorCode::kInterrupted, "interrupted");
  return traffic;
}

void CpuBackend::for_rows(std::uint32_t rows, std::size_t work_per_row,
                          const std::function<void(std::uint32_t)>& body,
                          const std::atomic<bool>* cancel) {
  if (rows * work_per_row < kParallelWork) {
    for (std::uint32_t i = 0; i < rows; ++i) body(i);
    return;
  }
  pool_->parallel_for(
      rows, 1,
      [&](std::uint64_t begin, std::uint64_t end) {
        for (std::uint64_t i = begin; i < end; ++i) body(static_cast<std::uint32_t>(i));
      },
      cancel);
}

void CpuBackend::embed(const Pass& pass) {
  const std::uint32_t width = model_.spec.embedding;
  for_rows(
      pass.count(), width,
      [&](std::uint32_t r) {
        embed_token(model_.spec, model_.weights.embedding, pass.rows[r].token,
                    {work_.hidden + std::size_t{r} * width, width});
      },
      pass.cancel);
}

void CpuBackend::rotation_tables(const Pass& pass) {
  const std::uint32_t pairs = model_.spec.rope_dims / 2;
  for (std::size_t k = 0; k < model_.spec.ropes.size(); ++k) {
    const Rope& rope = model_.spec.ropes[k];
    for_rows(
        pass.count(), pairs * 32,
        [&](std::uint32_t r) {
          const std::size_t at = (k * options_.max_rows + r) * pairs;
          rotation(rope, pass.rows[r].position, {work_.cosine + at, pairs},
                   {work_.sine + at, pairs});
        },
        pass.cancel);
  }
}

void CpuBackend::normalise(const Pass& pass, const Vector& norm, bool quantize) {
  const std::uint32_t width = model_.spec.embedding;
  const QuantizedRows out{pass.count(), width, work_.quantized.q, work_.quantized.scale,
                          work_.quantized.sum};
  for_rows(
      pass.count(), width,
      [&](std::uint32_t r) {
        float* row = work_.normed + std::size_t{r} * width;
        kernels_.rms_norm(work_.hidden + std::size_t{r} * width, norm.data(), width,
                          model_.spec.norm_epsilon, row);
        if (quantize) kernels_.quantize_rows(row, width, slice(out, r, 1, width));
      },
      pass.cancel);
}

void CpuBackend::multiply(std::span<const MatrixProduct> products,
                          const std::atomic<bool>* cancel) {
  std::uint64_t groups = 0;
  for (const MatrixProduct& product : products) groups += product.matrix->groups();
  // Ranges small enough to balance threads of different speed, large enough to stream.
  const std::uint64_t grain =
      std::max<std::uint64_t>(1, groups / (std::uint64_t{pool_->threads()} * 8));
  pool_->parallel_for(
      groups, grain,
      [&](std::uint64_t begin, std::uint64_t end) {
        std::uint64_t base = 0;  // of this product's groups
        for (const MatrixProduct& product : products) {
          const std::uint64_t count = product.matrix->groups();
          const std::uint64_t from = std::max(begin, base), to = std::min(end, base + count);
          if (from < to) {
            const auto g0 = static_cast<std::uint32_t>(from - base);
            const auto g1 = static_cast<std::uint32_t>(to - base);
            if (is_quantized(*product.matrix)) {
              kernels_.matmul(*product.matrix, g0, g1, product.x.quantized, product.out,
                              product.out_stride);
            } else {
              kernels_.matmul_float(*product.matrix, g0, g1, product.x.x, product.x.stride,
                                    product.x.rows, product.out, product.out_stride);
            }
          }
          base += count;
        }
      },
      cancel);
}

void CpuBackend::add_result(const Pass& pass, const Vector& bias, const Vector& post_norm) {
  const std::uint32_t width = model_.spec.embedding;
  for_rows(
      pass.count(), width,
      [&](std::uint32_t r) {
        float* result = work_.result + std::size_t{r} * width;
        if (!bias.empty()) kernels_.add(result, bias.data(), width);
        if (!post_norm.empty()) {
          kernels_.rms_norm(result, post_norm.data(), width, model_.spec.norm_epsilon, result);
        }
        kernels_.add(work_.hidden + std::size_t{r} * width, result, width);
      },
      pass.cancel);
}

PassTraffic CpuBackend::attention_block(const Pass& pass, std::uint32_t layer) {
  const ModelSpec& spec = model_.spec;
  const LayerWeights& w = model_.weights.layer[layer];
  const PackedLayer& packed = weights_.layer[layer];
  const std::uint32_t rows = pass.count();
  const std::size_t q_width = std::size_t{spec.heads} * spec.head_dim;
  const std::size_t kv_width = std::size_t{spec.kv_heads} * spec.head_dim;
  const std::size_t stride = q_width + 2 * kv_width;

  const bool quantize =
      is_quantized(packed.query) || is_quantized(packed.key) || is_quantized(packed.value);
  normalise(pass, w.attention_norm, quantize);  // normed [R, embedding]
  pass.clock->done(Stage::kNormalise);
  const Activations x{work_.normed, spec.embedding, slice(work_.quantized, 0, rows, spec.embedding),
                      rows};
  multiply(std::array{MatrixProduct{&packed.query, x, work_.qkv, stride},
                      MatrixProduct{&packed.key, x, work_.qkv + q_width, stride},
                      MatrixProduct{&packed.value, x, work_.qkv + q_width + kv_width, stride}},
           pass.cancel);  // qkv [R, (heads + 2 kv_heads) * head_dim]
  PassTraffic traffic = cost_of({&packed.query, &packed.key, &packed.value}, rows);
  pass.clock->done(Stage::kQueryKeyValue, traffic.weight_bytes);

  store_keys_and_values(pass, layer);  // biases, norms, rotation; keys and values to the cache
  quantize_full_blocks(pass, layer);   // int4: rows of later blocks see them so
  pass.clock->done(Stage::kStore);
  if (cancelled(pass.cancel)) return traffic;
  attend(pass, layer);  // attention [R, heads * head_dim]
  for (const RowRun& tile : pass.tiles) {
    traffic.kv_bytes += kv_bytes_seen(pass, tile, spec.layer[layer].window);
  }
  pass.clock->done(Stage::kAttention, traffic.kv_bytes);

  const bool quantize_output = is_quantized(packed.attention_output);
  const auto q_cols = static_cast<std::uint32_t>(q_width);
  if (quantize_output) {
    for_rows(
        rows, q_width,
        [&](std::uint32_t r) {
          kernels_.quantize_rows(work_.attention + r * q_width, q_width,
                                 slice(work_.quantized, r, 1, q_cols));
        },
        pass.cancel);
  }
  const Activations y{work_.attention, q_width,
                      quantize_output ? slice(work_.quantized, 0, rows, q_cols) : QuantizedRows{},
                      rows};
  multiply(std::array{MatrixProduct{&packed.attention_output, y, work_.result, spec.embedding}},
           pass.cancel);  // result [R, embedding]
  const PassTraffic output = cost_of({&packed.attention_output}, rows);
  traffic.add(output);
  pass.clock->done(Stage::kAttentionOutput, output.weight_bytes);
  add_result(pass, w.attention_output_bias, w.attention_post_norm);
  pass.clock->done(Stage::kNormalise);
  return traffic;
}

void CpuBackend::store_keys_and_values(const Pass& pass, std::uint32_t layer) {
  const ModelSpec& spec = model_.spec;
  const LayerWeights& w = model_.weights.layer[layer];
  const std::uint32_t dim = spec.head_dim;
  const std::size_t q_width = std::size_t{spec.heads} * dim;
  const std::size_t kv_width = std::size_t{spec.kv_heads} * dim;
  const std::size_t stride = q_width + 2 * kv_width;
  const std::uint32_t pairs = spec.rope_dims / 2;

  for_rows(
      pass.count(), stride,
      [&](std::uint32_t r) {
        const BatchRow& row = pass.rows[r];
        float* query = work_.qkv + r * stride;
        float* key = query + q_width;
        float* value = key + kv_width;
        const std::size_t at =
            (std::size_t{spec.layer[layer].rope} * options_.max_rows + r) * pairs;
        const float* cosine = work_.cosine + at;
        const float* sine = work_.sine + at;

        if (!w.query_bias.empty()) kernels_.add(query, w.query_bias.data(), q_width);
        if (!w.value_bias.empty()) kernels_.add(value, w.value_bias.data(), kv_width);
        if (!key_bias_[layer].empty()) kernels_.add(key, key_bias_[layer].data(), kv_width);
        for (std::uint32_t h = 0; h < spec.heads; ++h) {
          float* head = query + std::size_t{h} * dim;
          if (!w.query_norm.empty()) {
            kernels_.rms_norm(head, w.query_norm.data(), dim, spec.norm_epsilon, head);
          }
          kernels_.rope(head, spec.rope_dims, spec.rope_interleaved, cosine, sine);
        }
        const std::uint32_t block = pass.kv->blocks(row.sequence)[row.position / kKvBlock];
        for (std::uint32_t h = 0; h < spec.kv_heads; ++h) {
          float* head = key + std::size_t{h} * dim;
          if (!w.key_norm.empty()) {
            kernels_.rms_norm(head, w.key_norm.data(), dim, spec.norm_epsilon, head);
          }
          kernels_.rope(head, spec.rope_dims, spec.rope_interleaved, cosine, sine);
          kernels_.store_kv(is_int4() ? recent_layout_ : kv_layout_, head,
                            value + std::size_t{h} * dim, row.position % kKvBlock,
                            is_int4() ? recent_block(layer, block, h) : kv_block(layer, block, h));
        }
      },
      pass.cancel);
}

void CpuBackend::quantize_full_blocks(const Pass& pass, std::uint32_t layer) {
  const std::uint32_t heads = model_.spec.kv_heads;
  for_rows(
      static_cast<std::uint32_t>(pass.full_blocks.size()) * heads,
      std::size_t{8} * kKvBlock * model_.spec.head_dim,
      [&](std::uint32_t i) {
        const std::uint32_t block = pass.full_blocks[i / heads];
        kernels_.quantize_kv(model_.spec.head_dim, recent_block(layer, block, i % heads),
                             kv_block(layer, block, i % heads));
      },
      pass.cancel);
}

std::uint64_t CpuBackend::kv_bytes_seen(const Pass& pass, RowRun run, std::uint32_t window) const {
  const std::uint64_t seen = tokens_seen(pass.rows, run, window);
  if (!is_int4()) return seen * kv_layout_.head_bytes() / kKvBlock * model_.spec.kv_heads;
  const std::uint32_t last = pass.rows[run.first + run.count - 1].position;
  const std::uint64_t own = std::min<std::uint64_t>(seen, last % kKvBlock + 1);
  return (own * recent_layout_.head_bytes() + (seen - own) * kv_layout_.head_bytes()) / kKvBlock *
         model_.spec.kv_heads;
}

void CpuBackend::attend(const Pass& pass, std::uint32_t layer) {
  const ModelSpec& spec = model_.spec;
  const std::uint32_t group = spec.heads / spec.kv_heads;
  // Query heads of a group share key loads; a group is cut when there are too few tasks otherwise.
  std::uint32_t cuts = 1;
  while (pass.tiles.size() * spec.kv_heads * cuts < pool_->threads() && cuts < group) ++cuts;
  const std::uint32_t heads_each = (group + cuts - 1) / cuts;
  cuts = (group + heads_each - 1) / heads_each;
  const std::uint64_t per_tile = std::uint64_t{spec.kv_heads} * cuts;
  pool_->parallel_for(
      pass.tiles.size() * per_tile, 1,
      [&](std::uint64_t begin, std::uint64_t end) {
        for (std::uint64_t t = begin; t < end; ++t) {
          const RowRun tile = pass.tiles[t / per_tile];
          const auto kv_head = static_cast<std::uint32_t>(t % per_tile / cuts);
          const auto cut = static_cast<std::uint32_t>(t % cuts);
          const std::uint32_t first = kv_head * group + cut * heads_each;
          const std::uint32_t last = std::min((kv_head + 1) * group, first + heads_each);
          attend_tile(pass, layer, tile, kv_head, first, last - first);
        }
      },
      pass.cancel);
}

// Attention of query heads [first_head, first_head + heads), which share a KV head, for the rows of
// one tile.
void CpuBackend::attend_tile(const Pass& pass, std::uint32_t layer, RowRun tile,
                             std::uint32_t kv_head, std::uint32_t first_head, std::uint32_t heads) {
  const ModelSpec& spec = model_.spec;
  const std::uint32_t dim = spec.head_dim;
  const std::uint32_t window = spec.layer[layer].window;
  const std::size_t q_width = std::size_t{spec.heads} * dim;
  const std::size_t stride = q_width + 2 * std::size_t{spec.kv_heads} * dim;
  const std::span<const std::uint32_t> blocks = pass.kv->blocks(pass.rows[tile.first].sequence);

  std::array<std::uint32_t, kTileRows> first{}, last{};
  for (std::uint32_t r = 0; r < tile.count; ++r) {
    last[r] = pass.rows[tile.first + r].position;
    first[r] = window != 0 && last[r] >= window ? last[r] - window + 1 : 0;
  }
  // A slice of its own in the state arrays: the tile's rows times these heads.
  const std::size_t state =
      std::size_t{tile.first} * spec.heads + std::size_t{tile.count} * first_head;

  AttentionTask task;
  task.layout = kv_layout_;
  task.rows = tile.count;
  task.heads = heads;
  task.query = work_.qkv + tile.first * stride + std::size_t{first_head} * dim;
  task.query_stride = stride;
  task.first = first.data();
  task.last = last.data();
  task.scale = spec.attention_scale;
  task.softcap = spec.attention_softcap;
  task.maximum = work_.softmax_max + state;
  task.sum = work_.softmax_sum + state;
  task.output = work_.attention + tile.first * q_width + std::size_t{first_head} * dim;
  task.output_stride = q_width;

  if (!outliers_[layer].empty() && !outliers_[layer][kv_head].pairs.empty()) {
    const KeyOutliers& outliers = outliers_[layer][kv_head];
    float* coeff = work_.coefficients + state * most_outliers_ * 2;
    task.outliers = static_cast<std::uint32_t>(outliers.pairs.size());
    task.coeff = coeff;
    task.table = outliers.table.data();
    task.table_stride = outliers.positions;
    for (std::uint32_t r = 0; r < tile.count; ++r) {
      for (std::uint32_t h = 0; h < heads; ++h) {
        outlier_coefficients(outliers, task.query + r * stride + std::size_t{h} * dim,
                             coeff + (std::size_t{r} * heads + h) * task.outliers * 2);
      }
    }
  }

  std::fill_n(task.maximum, std::size_t{tile.count} * heads,
              -std::numeric_limits<float>::infinity());
  std::fill_n(task.sum, std::size_t{tile.count} * heads, 0.0f);
  for (std::uint32_t r = 0; r < tile.count; ++r) {
    std::fill_n(task.output + r * q_width, std::size_t{heads} * dim, 0.0f);
  }

  constexpr std::uint32_t kBlocks = kKvPiece / kKvBlock;
  std::array<const std::byte*, kBlocks> pointers{};
  task.blocks = pointers.data();
  const std::uint32_t begin = *std::min_element(first.begin(), first.begin() + tile.count);
  const std::uint32_t end = *std::max_element(last.begin(), last.begin() + tile.count);
  const std::uint32_t own_block = end / kKvBlock;  // of all rows, with an int4 cache
  for (std::uint32_t piece = begin / kKvPiece; piece <= end / kKvPiece; ++piece) {
    for (std::uint32_t i = 0; i < kBlocks; ++i) {
      const std::size_t index = std::size_t{piece} * kBlocks + i;
      pointers[i] = index < blocks.size() ? kv_block(layer, blocks[index], kv_head) : nullptr;
    }
    if (is_int4() && own_block / kBlocks == piece) {
      task.f16_block = own_block % kBlocks;
      pointers[task.f16_block] = recent_block(layer, blocks[own_block], kv_head);
    }
    task.piece_start = piece * kKvPiece;
    kernels_.attention(task);
  }

  for (std::uint32_t r = 0; r < tile.count; ++r) {
    for (std::uint32_t h = 0; h < heads; ++h) {
      float* out = task.output + r * q_width + std::size_t{h} * dim;
      const float inverse = 1.0f / task.sum[std::size_t{r} * heads + h];
      for (std::uint32_t i = 0; i < dim; ++i) out[i] *= inverse;
    }
  }
}

// gate[r] = activation(gate[r]) * up[r], quantized on the way out when asked.
void CpuBackend::activate(float* gate, const float* up, std::uint32_t rows, std::uint32_t width,
                          bool quantize, QuantizedRows out, const std::atomic<bool>* cancel) {
  for_rows(
      rows, std::size_t{width} * 4,
      [&](std::uint32_t r) {
        float* g = gate + std::size_t{r} * width;
        const float* u = up + std::size_t{r} * width;
        if (model_.spec.activation == Activation::kSilu) {
          kernels_.silu_mul(g, u, width, g);
        } else {
          kernels_.gelu_mul(g, u, width, g);
        }
        if (quantize) kernels_.quantize_rows(g, width, slice(out, r, 1, width));
      },
      cancel);
}

PassTraffic CpuBackend::feed_forward_block(const Pass& pass, std::uint32_t layer) {
  const ModelSpec& spec = model_.spec;
  const LayerWeights& w = model_.weights.layer[layer];
  const PackedLayer& packed = weights_.layer[layer];
  const std::uint32_t rows = pass.count();
  const std::uint32_t width = spec.feed_forward;

  normalise(pass, w.feed_forward_norm, is_quantized(packed.gate) || is_quantized(packed.up));
  pass.clock->done(Stage::kNormalise);
  const Activations x{work_.normed, spec.embedding, slice(work_.quantized, 0, rows, spec.embedding),
                      rows};
  multiply(std::array{MatrixProduct{&packed.gate, x, work_.gate, width},
                      MatrixProduct{&packed.up, x, work_.up, width}},
           pass.cancel);  // gate, up [R, feed_forward]
  PassTraffic traffic = cost_of({&packed.gate, &packed.up}, rows);
  pass.clock->done(Stage::kGateUp, traffic.weight_bytes);
  const bool quantize = is_quantized(packed.down);
  activate(work_.gate, work_.up, rows, width, quantize, work_.quantized_wide, pass.cancel);
  pass.clock->done(Stage::kActivate);
  const Activations y{work_.gate, width,
                      quantize ? slice(work_.quantized_wide, 0, rows, width) : QuantizedRows{},
                      rows};
  multiply(std::array{MatrixProduct{&packed.down, y, work_.result, spec.embedding}},
           pass.cancel);  // result [R, embedding]
  const PassTraffic down = cost_of({&packed.down}, rows);
  traffic.add(down);
  pass.clock->done(Stage::kDown, down.weight_bytes);
  add_result(pass, {}, w.feed_forward_post_norm);
  pass.clock->done(Stage::kNormalise);
  return traffic;
}

// Mixture of experts: softmax over all experts, the best few, their weights normalised to sum to
// one; rows are grouped by expert so that each expert's weights are read once.
PassTraffic CpuBackend::experts_block(const Pass& pass, std::uint32_t layer) {
  const ModelSpec& spec = model_.spec;
  const LayerWeights& w = model_.weights.layer[layer];
  const PackedLayer& packed = weights_.layer[layer];
  const std::uint32_t rows = pass.count();
  const std::uint32_t used = spec.experts_used;
  const std::uint32_t width = spec.expert_feed_forward;
  const std::uint32_t embedding = spec.embedding;

  normalise(pass, w.feed_forward_norm, is_quantized(packed.router));
  const Activations x{work_.normed, embedding, slice(work_.quantized, 0, rows, embedding), rows};
  multiply(std::array{MatrixProduct{&packed.router, x, work_.router, spec.experts}}, pass.cancel);
  PassTraffic traffic = cost_of({&packed.router}, rows);
  if (cancelled(pass.cancel)) return traffic;

  // slots[e]: the (row, rank) pairs that chose expert e, in row order.
  struct Choice {
    std::uint32_t row, rank;
    float weight;
  };
  std::vector<std::vector<Choice>> slots(spec.experts);
  std::vector<std::uint32_t> order(spec.experts);
  for (std::uint32_t r = 0; r < rows; ++r) {
    float* p = work_.router + std::size_t{r} * spec.experts;  // [experts]
    kernels_.softmax(p, spec.experts);
    for (std::uint32_t e = 0; e < spec.experts; ++e) {
      order[e] = e;
      if (std::isnan(p[e])) p[e] = 0;  // sorting needs an order; the logits will tell
    }
    std::partial_sort(
        order.begin(), order.begin() + used, order.end(),
        [p](std::uint32_t a, std::uint32_t b) { return p[a] > p[b] || (p[a] == p[b] && a < b); });
    float sum = 0;
    for (std::uint32_t k = 0; k < used; ++k) sum += p[order[k]];
    for (std::uint32_t k = 0; k < used; ++k) {
      slots[order[k]].push_back({r, k, p[order[k]] / sum});
    }
  }

  // Gather the rows expert by expert: expert_in [R * used, embedding].
  std::vector<MatrixProduct> inward, outward;
  std::vector<std::size_t> place(std::size_t{rows} * used);  // of (row, rank) in the gathered rows
  std::vector<float> weight(std::size_t{rows} * used);
  const bool quantize_in = is_quantized(packed.expert_gate[0]) || is_quantized(packed.expert_up[0]);
  const bool quantize_out = is_quantized(packed.expert_down[0]);
  std::uint32_t next = 0;
  for (std::uint32_t e = 0; e < spec.experts; ++e) {
    if (slots[e].empty()) continue;
    const std::uint32_t first = next;
    for (const Choice& choice : slots[e]) {
      std::memcpy(work_.expert_in + std::size_t{next} * embedding,
                  work_.normed + std::size_t{choice.row} * embedding, sizeof(float) * embedding);
      place[std::size_t{choice.row} * used + choice.rank] = next;
      weight[std::size_t{choice.row} * used + choice.rank] = choice.weight;
      ++next;
    }
    const std::uint32_t count = next - first;
    const Activations in{
        work_.expert_in + std::size_t{first} * embedding, embedding,
        quantize_in ? slice(work_.quantized_wide, first, count, embedding) : QuantizedRows{},
        count};
    const std::size_t at = std::size_t{first} * width;
    inward.push_back({&packed.expert_gate[e], in, work_.gate + at, width});
    inward.push_back({&packed.expert_up[e], in, work_.up + at, width});
    const Activations activated{
        work_.gate + at, width,
        quantize_out ? slice(work_.quantized_wide, first, count, width) : QuantizedRows{}, count};
    outward.push_back({&packed.expert_down[e], activated,
                       work_.expert_out + std::size_t{first} * embedding, embedding});
    traffic.add(
        cost_of({&packed.expert_gate[e], &packed.expert_up[e], &packed.expert_down[e]}, count));
  }
  if (quantize_in) {
    for_rows(
        next, embedding,
        [&](std::uint32_t i) {
          kernels_.quantize_rows(work_.expert_in + std::size_t{i} * embedding, embedding,
                                 slice(work_.quantized_wide, i, 1, embedding));
        },
        pass.cancel);
  }
  multiply(inward, pass.cancel);  // gate, up [R * used, expert_feed_forward]
  activate(work_.gate, work_.up, next, width, quantize_out, work_.quantized_wide, pass.cancel);
  multiply(outward, pass.cancel);  // expert_out [R * used, embedding]

  // Weighted sum in order of rank: result [R, embedding].
  for_rows(
      rows, std::size_t{embedding} * used,
      [&](std::uint32_t r) {
        float* out = work_.result + std::size_t{r} * embedding;
        std::fill_n(out, embedding, 0.0f);
        for (std::uint32_t k = 0; k < used; ++k) {
          const std::size_t slot = std::size_t{r} * used + k;
          const float* in = work_.expert_out + place[slot] * embedding;
          for (std::uint32_t i = 0; i < embedding; ++i) out[i] += weight[slot] * in[i];
        }
      },
      pass.cancel);
  add_result(pass, {}, w.feed_forward_post_norm);
  pass.clock->done(Stage::kExperts, traffic.weight_bytes);
  return traffic;
}

PassTraffic CpuBackend::logits(const Pass& pass, std::span<float> out) {
  const ModelSpec& spec = model_.spec;
  const std::uint32_t width = spec.embedding;
  const bool quantize = is_quantized(weights_.output);
  std::uint32_t wanted = 0;  // rows with logits move to the front of `normed`
  for (std::uint32_t r = 0; r < pass.count(); ++r) {
    if (!pass.rows[r].logits) continue;
    float* row = work_.normed + std::size_t{wanted} * width;
    kernels_.rms_norm(work_.hidden + std::size_t{r} * width, model_.weights.output_norm.data(),
                      width, spec.norm_epsilon, row);
    if (quantize) kernels_.quantize_rows(row, width, slice(work_.quantized, wanted, 1, width));
    ++wanted;
  }
  const Activations x{work_.normed, width,
                      quantize ? slice(work_.quantized, 0, wanted, width) : QuantizedRows{},
                      wanted};
  multiply(std::array{MatrixProduct{&weights_.output, x, out.data(), spec.vocabulary}},
           pass.cancel);
  if (spec.logit_softcap > 0) {
    const float cap = spec.logit_softcap;
    pool_->parallel_for(
        std::uint64_t{wanted} * spec.vocabulary, 8192,
        [&](std::uint64_t begin, std::uint64_t end) {
          for (std::uint64_t i = begin; i < end; ++i) out[i] = cap * std::tanh(out[i] / cap);
        },
        pass.cancel);
  }
  const PassTraffic traffic = cost_of({&weights_.output}, wanted);
  pass.clock->done(Stage::kLogits, traffic.weight_bytes);
  return traffic;
}

}  // namespace sluice::cpu

// The forward pass of the CUDA backend: what is queued for each step. R is the number of rows.
#include <algorithm>
#include <cstring>

#include "cuda/host/backend.h"
#include "cuda/host/launch.h"
#include "cuda/kv_pages.h"
#include "cuda/pack.h"
#include "src/backend/pass_rows.h"

namespace sluice::cuda {
namespace {

// Passes of up to so many rows repeat with the same shape, and their launches count: those are
// recorded once as a graph.
constexpr std::int32_t kGraphRows = 16;
constexpr std::size_t kMostGraphs = 64;
// Larger passes are waited for after each layer, so that Ctrl-C is heard soon.
constexpr std::int32_t kSlowRows = 64;
// Blocks of threads that keep a device busy; with more, attention is not cut any further.
constexpr std::int64_t kBusyBlocksEach = 4;  // a multiprocessor

bool is_float(BlockType type) { return block_type_info(type).block_size == 1; }

FloatType float_type(BlockType type) {
  switch (type) {
    case BlockType::kF16:
      return FloatType::kF16;
    case BlockType::kBF16:
      return FloatType::kBF16;
    default:
      return FloatType::kF32;
  }
}

bool cancelled(const std::atomic<bool>* cancel) {
  return cancel != nullptr && cancel->load(std::memory_order_relaxed);
}

std::int32_t i32(std::size_t value) { return static_cast<std::int32_t>(value); }

// A pointer to floats, or null where the model has no such vector.
Global<const float> floats(const Memory& memory) {
  return memory ? memory.at<const float>() : Global<const float>{};
}

}  // namespace

Result<PassTraffic> CudaBackend::forward(std::span<const BatchRow> rows, const KvCache& kv,
                                         LayerRange layers, const ForwardIo& io) {
  const ModelSpec& spec = model_.spec;
  const PassLimits limits{options_.layers, options_.positions, options_.max_rows,
                          options_.max_logits, most_top_logits()};
  SLUICE_RETURN_IF_ERROR(check_pass(spec, limits, kPageTokens, rows, kv, layers, io));
  if (cancelled(io.cancel)) return make_error(ErrorCode::kInterrupted, "interrupted");

  const std::vector<BlockWrite> writes =
      is_int4() ? block_writes(rows, kv) : std::vector<BlockWrite>();
  if (is_int4()) SLUICE_RETURN_IF_ERROR(recent_.open(writes, kv));

  const std::size_t width = spec.embedding;
  auto* hidden = hidden_.as<float>();
  if (layers.first == 0) {
    for (std::size_t r = 0; r < rows.size(); ++r) {
      embed_token(spec, model_.weights.embedding, rows[r].token, {hidden + r * width, width});
    }
  } else {
    std::copy_n(io.hidden.data(), rows.size() * width, hidden);
  }
  const std::size_t hidden_bytes = rows.size() * width * sizeof(float);
  device_->upload(work_.hidden.at<std::uint8_t>(), hidden, hidden_bytes);

  Pass pass;
  pass.shape = inputs_.set(*device_, spec, rows, kv, is_int4() ? &recent_ : nullptr, layers);
  pass.in = inputs_.pointers(spec, pass.shape);
  pass.cancel = io.cancel;
  const LogitsOut& out = io.logits;
  const bool ends = layers.last == spec.layers && pass.shape.wanted > 0;
  if (ends) {
    pass.shape.top = i32(out.top);
    pass.shape.candidates = i32(out.candidates);
  }
  SLUICE_RETURN_IF_ERROR(queue_pass(pass));

  const auto wanted = static_cast<std::size_t>(pass.shape.wanted);
  if (ends && out.top == 0) {
    device_->download(out.whole.data(), work_.logits.at<const std::uint8_t>(),
                      wanted * spec.vocabulary * sizeof(float));
  } else if (ends) {
    device_->download(out.top_ids.data(), work_.top_id.at<const std::uint8_t>(),
                      wanted * out.top * sizeof(std::int32_t));
    device_->download(out.top_logits.data(), work_.top_logit.at<const std::uint8_t>(),
                      wanted * out.top * sizeof(float));
  }
  const bool stream_wanted = io.hidden.size() >= rows.size() * width;
  if (stream_wanted) {
    device_->download(hidden, work_.hidden.at<const std::uint8_t>(), hidden_bytes);
  }
  SLUICE_RETURN_IF_ERROR(device_->synchronize());
  recent_.written(writes);
  if (stream_wanted) std::copy_n(hidden, rows.size() * width, io.hidden.data());
  return traffic(rows, pass.shape);
}

Status CudaBackend::queue_pass(const Pass& pass) {
  if (!options_.graphs || pass.shape.rows > kGraphRows) return queue_layers(pass);
  auto known = graphs_.find(pass.shape);
  if (known == graphs_.end()) {
    if (graphs_.size() >= kMostGraphs) graphs_.clear();
    device_->begin_graph();
    const Status queued = queue_layers(pass);
    SLUICE_ASSIGN_OR_RETURN(Graph graph, device_->end_graph());
    if (!queued.ok()) return queued.error();
    known = graphs_.emplace(pass.shape, std::move(graph)).first;
  }
  device_->run(known->second);
  return {};
}

Status CudaBackend::queue_layers(const Pass& pass) {
  const LayerRange layers = pass.shape.layers;
  Pending pending;
  for (std::uint32_t layer = layers.first; layer < layers.last; ++layer) {
    queue_layer(pass, layer, pending);
    if (pass.shape.rows >= kSlowRows) {
      SLUICE_RETURN_IF_ERROR(device_->synchronize());
      if (cancelled(pass.cancel)) return make_error(ErrorCode::kInterrupted, "interrupted");
    }
  }
  NormArgs last{};  // joins the last result, and no norm
  last.hidden = work_.hidden.at<float>();
  last.add = pending.result;
  last.add_bias = pending.bias;
  last.add_norm = pending.post_norm;
  last.epsilon = model_.spec.norm_epsilon;
  last.cols = i32(model_.spec.embedding);
  launch_norm(*device_, last, pass.shape.rows);
  if (layers.last == model_.spec.layers && pass.shape.wanted > 0) queue_logits(pass);
  return {};
}

void CudaBackend::queue_layer(const Pass& pass, std::uint32_t layer, Pending& pending) {
  const ModelSpec& spec = model_.spec;
  const DeviceLayer& w = weights_.layer[layer];
  const std::int64_t q_width = std::int64_t{spec.heads} * spec.head_dim;

  const Input x = queue_norm(pass, pending, w.attention_norm, w.qkv, nullptr);
  queue_qkv(pass, layer, x);
  if (pass.shape.full_blocks > 0) queue_full_blocks(pass, layer);
  queue_attention(pass, layer);
  const Input y = {work_.attention.at<const float>(),
                   q_width,
                   {work_.x.at<const std::int8_t>(), work_.x_scale.at<const float>(),
                    work_.x_sum.at<const std::uint32_t>()},
                   pass.shape.rows};
  queue_product(w.attention_output, y, work_.result.at<float>(), spec.embedding, nullptr);
  const Pending attention = {work_.result.at<const float>(), floats(w.attention_output_bias),
                             floats(w.attention_post_norm)};
  pending = spec.layer[layer].experts ? queue_experts(pass, layer, attention)
                                      : queue_feed_forward(pass, layer, attention);
}

CudaBackend::Input CudaBackend::queue_norm(const Pass& pass, const Pending& pending,
                                           const Memory& norm, const DeviceProduct& product,
                                           const DeviceProduct* another) {
  const ModelSpec& spec = model_.spec;
  const bool quantized =
      product.any_quantized() || (another != nullptr && another->any_quantized());
  const bool floating = product.any_float() || (another != nullptr && another->any_float());
  NormArgs args{};
  args.hidden = work_.hidden.at<float>();
  args.add = pending.result;
  args.add_bias = pending.bias;
  args.add_norm = pending.post_norm;
  args.norm = floats(norm);
  args.epsilon = spec.norm_epsilon;
  args.cols = i32(spec.embedding);
  if (floating) args.normed = work_.normed.at<float>();
  if (quantized) {
    args.quantized = {work_.x.at<std::int8_t>(), work_.x_scale.at<float>(),
                      work_.x_sum.at<std::uint32_t>()};
  }
  launch_norm(*device_, args, pass.shape.rows);
  return {work_.normed.at<const float>(),
          spec.embedding,
          {work_.x.at<const std::int8_t>(), work_.x_scale.at<const float>(),
           work_.x_sum.at<const std::uint32_t>()},
          pass.shape.rows};
}

template <class Args>
Args CudaBackend::product_args(const DeviceMatrix& matrix, const Input& input,
                               const Experts* experts) {
  Args args{};
  args.weights = matrix.memory.at<const std::uint8_t>();
  args.rows = i32(matrix.rows);
  args.cols = i32(matrix.cols);
  args.x_rows = experts != nullptr ? experts->item_rows : input.rows;
  if (experts != nullptr) {
    args.items = experts->items;
    args.x_row = experts->x_row;
    args.expert_bytes = matrix.expert_bytes;
  }
  return args;
}

void CudaBackend::queue_product(const DeviceProduct& product, const Input& input, Global<float> out,
                                std::int64_t stride, const Experts* experts) {
  for (const DeviceProduct::Piece& piece : product.pieces) {
    const DeviceMatrix& matrix = piece.matrix;
    const std::int32_t items = experts != nullptr ? experts->count : 1;
    if (is_float(matrix.type)) {
      auto args = product_args<MatvecFloatArgs>(matrix, input, experts);
      args.out = out + piece.out;
      args.out_stride = stride;
      args.x = input.x;
      args.x_stride = input.stride;
      args.type = float_type(matrix.type);
      launch_matvec_float(*device_, args, items);
    } else {
      auto args = product_args<MatvecArgs>(matrix, input, experts);
      args.out = out + piece.out;
      args.out_stride = stride;
      args.x = input.quantized;
      const TileKind kind = *tile_kind(matrix.type);
      launch_matvec(*device_, few_rows_.arithmetic(kind, args.x_rows), kind, args, items);
    }
  }
}

void CudaBackend::queue_qkv(const Pass& pass, std::uint32_t layer, const Input& x) {
  const ModelSpec& spec = model_.spec;
  const DeviceProduct& product = weights_.layer[layer].qkv;
  const std::int64_t width = (spec.heads + std::int64_t{2} * spec.kv_heads) * spec.head_dim;
  const RopeArgs rope = rope_args(pass, layer);
  // A tile of weight rows is to belong to one head.
  const bool whole_tiles = spec.head_dim % kTileRows == 0;
  const bool fused =
      std::all_of(product.pieces.begin(), product.pieces.end(), [&](const auto& piece) {
        const auto tiles = tile_kind(piece.matrix.type);
        return tiles.has_value() && is_fused(*tiles, pass.shape.rows);
      });
  if (!whole_tiles || !fused) {
    queue_product(product, x, work_.qkv.at<float>(), width, nullptr);
    launch_rope(*device_, pages(), rope);
    return;
  }
  for (const DeviceProduct::Piece& piece : product.pieces) {
    QkvArgs args{};
    args.product = product_args<MatvecArgs>(piece.matrix, x, nullptr);
    args.product.x = x.quantized;
    args.product.out = work_.qkv.at<float>() + std::int64_t{piece.out};
    args.product.out_stride = width;
    args.rope = rope;
    args.arrivals = work_.arrivals.at<std::uint32_t>();
    args.first_head = i32(piece.out / spec.head_dim);
    args.half_pages = written_pages(pages()) == PageKind::kF16;
    const TileKind kind = *tile_kind(piece.matrix.type);
    launch_qkv(*device_, few_rows_.arithmetic(kind, args.product.x_rows), kind, args);
  }
}

void CudaBackend::queue_full_blocks(const Pass& pass, std::uint32_t layer) {
  QuantizePagesArgs args{};
  args.blocks = pass.in.full_blocks;
  args.recent = recent_cache_[layer].at<const std::uint8_t>();
  args.cache = cache_[layer].at<std::uint8_t>();
  args.count = pass.shape.full_blocks;
  args.kv_heads = i32(model_.spec.kv_heads);
  args.head_dim = i32(model_.spec.head_dim);
  launch_quantize_pages(*device_, args);
}

OutlierArgs CudaBackend::outlier_args(std::uint32_t layer) const {
  const DeviceLayer& w = weights_.layer[layer];
  OutlierArgs outliers{};
  if (w.most_outliers > 0) {
    outliers.pairs = w.outlier_pairs.at<const OutlierPair>();
    outliers.table = w.outlier_table.at<const float>();
    outliers.coefficients = work_.coefficients.at<float>();
    outliers.positions = options_.positions;
    outliers.most = w.most_outliers;
  }
  return outliers;
}

RopeArgs CudaBackend::rope_args(const Pass& pass, std::uint32_t layer) const {
  const ModelSpec& spec = model_.spec;
  const DeviceLayer& w = weights_.layer[layer];
  const LayerSpec& kind = spec.layer[layer];
  RopeArgs rope{};
  rope.qkv = work_.qkv.at<const float>();
  rope.bias = floats(w.query_key_value_bias);
  rope.query_norm = floats(w.query_norm);
  rope.key_norm = floats(w.key_norm);
  rope.cosine = pass.in.cosine[kind.rope];
  rope.sine = pass.in.sine[kind.rope];
  rope.position = pass.in.position;
  rope.row_block = pass.in.row_block;
  if (pages() == PageKind::kInt8) {
    rope.q = work_.query.at<std::int8_t>();
    rope.q_scale = work_.query_scale.at<float>();
  } else {
    rope.q_floats = work_.query.at<float>();
  }
  rope.cache = (is_int4() ? recent_cache_ : cache_)[layer].at<std::uint8_t>();
  rope.outliers = outlier_args(layer);
  rope.rows = pass.shape.rows;
  rope.heads = i32(spec.heads);
  rope.kv_heads = i32(spec.kv_heads);
  rope.head_dim = i32(spec.head_dim);
  rope.rope_dims = i32(spec.rope_dims);
  rope.interleaved = spec.rope_interleaved;
  rope.epsilon = spec.norm_epsilon;
  return rope;
}

void CudaBackend::queue_attention(const Pass& pass, std::uint32_t layer) {
  const ModelSpec& spec = model_.spec;
  const DeviceLayer& w = weights_.layer[layer];
  const LayerSpec& kind = spec.layer[layer];
  const std::vector<std::uint32_t>& windows = inputs_.windows();
  const auto which = std::find(windows.begin(), windows.end(), kind.window) - windows.begin();
  const std::int32_t pieces = pass.shape.pieces[static_cast<std::size_t>(which)];
  // Cut into pieces where that makes work for an idle device and there is room for their results;
  // the bits are the same either way.
  const std::int64_t whole_blocks = std::int64_t{pass.shape.tiles} * spec.kv_heads;
  const bool cut = whole_blocks < kBusyBlocksEach * std::int64_t{device_->info().multiprocessors} &&
                   std::int64_t{pass.shape.tiles} * pieces <= partial_units_;

  AttentionArgs args{};
  if (pages() == PageKind::kInt8) {
    args.q = work_.query.at<const std::int8_t>();
    args.q_scale = work_.query_scale.at<const float>();
  } else {
    args.q_floats = work_.query.at<const float>();
  }
  args.cache = cache_[layer].at<const std::uint8_t>();
  if (is_int4()) {
    args.recent = recent_cache_[layer].at<const std::uint8_t>();
    args.row_slot = pass.in.row_block;
  }
  args.blocks = pass.in.blocks;
  args.tiles = pass.in.tiles;
  args.row = pass.in.row;
  args.position = pass.in.position;
  args.partial_out = work_.partial_out.at<float>();
  args.partial_state = work_.partial_state.at<float>();
  if (w.attention_output.any_float()) args.out = work_.attention.at<float>();
  if (w.attention_output.any_quantized()) {
    args.quantized = {work_.x.at<std::int8_t>(), work_.x_scale.at<float>(),
                      work_.x_sum.at<std::uint32_t>()};
  }
  args.outliers = outlier_args(layer);
  args.rows = pass.shape.rows;
  args.tile_count = pass.shape.tiles;
  args.chunks = cut ? pieces : 1;
  args.chunk_pieces = cut ? 1 : pieces;
  args.heads = i32(spec.heads);
  args.kv_heads = i32(spec.kv_heads);
  args.head_dim = i32(spec.head_dim);
  args.window = i32(kind.window);
  args.scale = spec.attention_scale;
  args.softcap = spec.attention_softcap;
  launch_attention(*device_, pages(), args, pass.shape.narrow);
}

CudaBackend::Input CudaBackend::queue_gate_up(const DeviceLayer& w, const Input& x,
                                              std::uint32_t width, std::int32_t rows,
                                              const Experts* experts) {
  const DeviceMatrix& matrix = w.gate_up.pieces.front().matrix;
  const std::int32_t at_a_time = experts != nullptr ? experts->item_rows : x.rows;
  const auto kind = tile_kind(matrix.type);
  if (!w.gate_up.pairs || w.down.any_float() || !kind || !is_fused(*kind, at_a_time)) {
    queue_product(w.gate_up, x, work_.gate_up.at<float>(), std::int64_t{2} * width, experts);
    return queue_activation(w, width, rows);
  }
  GatedArgs args{};
  args.product = product_args<MatvecArgs>(matrix, x, experts);
  args.product.rows = i32(width);
  args.product.x = x.quantized;
  args.out = {work_.wide.at<std::int8_t>(), work_.wide_scale.at<float>(),
              work_.wide_sum.at<std::uint32_t>()};
  args.gelu = model_.spec.activation == Activation::kGeluTanh;
  launch_gated(*device_, few_rows_.arithmetic(*kind, args.product.x_rows), *kind, args,
               experts != nullptr ? experts->count : 1);
  return {work_.activated.at<const float>(),
          width,
          {work_.wide.at<const std::int8_t>(), work_.wide_scale.at<const float>(),
           work_.wide_sum.at<const std::uint32_t>()},
          rows};
}

CudaBackend::Input CudaBackend::queue_activation(const DeviceLayer& w, std::uint32_t width,
                                                 std::int32_t rows) {
  ActivateArgs args{};
  args.pairs = w.gate_up.pairs;
  args.gate = work_.gate_up.at<const float>();
  args.up = work_.gate_up.at<const float>() + std::int64_t{args.pairs ? kTileRows : width};
  args.stride = std::int64_t{2} * width;
  args.rows = rows;
  args.cols = i32(width);
  args.gelu = model_.spec.activation == Activation::kGeluTanh;
  if (w.down.any_float()) args.out = work_.activated.at<float>();
  if (w.down.any_quantized()) {
    args.quantized = {work_.wide.at<std::int8_t>(), work_.wide_scale.at<float>(),
                      work_.wide_sum.at<std::uint32_t>()};
  }
  launch_activate(*device_, args);
  return {work_.activated.at<const float>(),
          width,
          {work_.wide.at<const std::int8_t>(), work_.wide_scale.at<const float>(),
           work_.wide_sum.at<const std::uint32_t>()},
          rows};
}

CudaBackend::Pending CudaBackend::queue_feed_forward(const Pass& pass, std::uint32_t layer,
                                                     const Pending& before) {
  const ModelSpec& spec = model_.spec;
  const DeviceLayer& w = weights_.layer[layer];
  const Input x = queue_norm(pass, before, w.feed_forward_norm, w.gate_up, nullptr);
  const Input y = queue_gate_up(w, x, spec.feed_forward, pass.shape.rows, nullptr);
  queue_product(w.down, y, work_.result.at<float>(), spec.embedding, nullptr);
  return {work_.result.at<const float>(), {}, floats(w.feed_forward_post_norm)};
}

CudaBackend::Pending CudaBackend::queue_experts(const Pass& pass, std::uint32_t layer,
                                                const Pending& before) {
  const ModelSpec& spec = model_.spec;
  const DeviceLayer& w = weights_.layer[layer];
  const Input x = queue_norm(pass, before, w.feed_forward_norm, w.router, &w.gate_up);
  queue_product(w.router, x, work_.router.at<float>(), spec.experts, nullptr);

  const std::int32_t pairs = pass.shape.rows * i32(spec.experts_used);
  ExpertArgs route{};
  route.router = work_.router.at<float>();
  route.weight = work_.pair_weight.at<float>();
  route.expert = work_.pair_expert.at<std::int32_t>();
  route.place = work_.pair_place.at<std::int32_t>();
  route.x_row = work_.pair_row.at<std::int32_t>();
  route.items = work_.items.at<ExpertItem>();
  // A row goes to an expert at most once.
  route.item_rows = expert_item_rows(pass.shape.rows, i32(spec.experts_used), i32(spec.experts));
  route.item_count = std::min(i32(spec.experts), pairs) + pairs / route.item_rows;
  route.rows = pass.shape.rows;
  route.experts = i32(spec.experts);
  route.used = i32(spec.experts_used);
  launch_experts(*device_, route);

  Experts experts = {work_.items.at<const ExpertItem>(), route.item_count, route.item_rows,
                     work_.pair_row.at<const std::int32_t>()};
  const Input y = queue_gate_up(w, x, spec.expert_feed_forward, pairs, &experts);
  experts.x_row = {};
  queue_product(w.down, y, work_.expert_out.at<float>(), spec.embedding, &experts);

  ExpertSumArgs sum{};
  sum.in = work_.expert_out.at<const float>();
  sum.weight = work_.pair_weight.at<const float>();
  sum.place = work_.pair_place.at<const std::int32_t>();
  sum.result = work_.result.at<float>();
  sum.rows = pass.shape.rows;
  sum.cols = i32(spec.embedding);
  sum.used = i32(spec.experts_used);
  launch_expert_sum(*device_, sum);
  return {work_.result.at<const float>(), {}, floats(w.feed_forward_post_norm)};
}

void CudaBackend::queue_logits(const Pass& pass) {
  const ModelSpec& spec = model_.spec;
  NormArgs norm{};
  norm.hidden = work_.hidden.at<float>();
  norm.norm = floats(weights_.output_norm);
  norm.row = pass.in.wanted_row;
  norm.epsilon = spec.norm_epsilon;
  norm.cols = i32(spec.embedding);
  if (weights_.output.any_float()) norm.normed = work_.normed.at<float>();
  if (weights_.output.any_quantized()) {
    norm.quantized = {work_.x.at<std::int8_t>(), work_.x_scale.at<float>(),
                      work_.x_sum.at<std::uint32_t>()};
  }
  launch_norm(*device_, norm, pass.shape.wanted);
  const Input x = {work_.normed.at<const float>(),
                   spec.embedding,
                   {work_.x.at<const std::int8_t>(), work_.x_scale.at<const float>(),
                    work_.x_sum.at<const std::uint32_t>()},
                   pass.shape.wanted};
  queue_product(weights_.output, x, work_.logits.at<float>(), spec.vocabulary, nullptr);
  if (spec.logit_softcap > 0) {
    launch_softcap(*device_,
                   {work_.logits.at<float>(), std::int64_t{pass.shape.wanted} * spec.vocabulary,
                    spec.logit_softcap});
  }
  if (pass.shape.top == 0) return;
  TopLogitsArgs top{};
  top.logits = work_.logits.at<const float>();
  top.part_id = work_.top_part_id.at<std::int32_t>();
  top.part_key = work_.top_part_key.at<std::uint32_t>();
  top.id = work_.top_id.at<std::int32_t>();
  top.logit = work_.top_logit.at<float>();
  top.stride = spec.vocabulary;
  top.cols = pass.shape.candidates;
  top.count = pass.shape.top;
  launch_top_logits(*device_, top, pass.shape.wanted);
}

std::uint64_t CudaBackend::kv_bytes_seen(std::span<const BatchRow> rows, RowRun run,
                                         std::uint32_t window) const {
  const std::uint64_t seen = tokens_seen(rows, run, window);
  const auto bytes = static_cast<std::uint64_t>(kv_layer_block_bytes());
  if (!is_int4()) return seen * bytes / kPageTokens;
  const std::uint32_t last = rows[run.first + run.count - 1].position;
  const std::uint64_t own = std::min<std::uint64_t>(seen, last % kPageTokens + 1);
  return (own * static_cast<std::uint64_t>(kv_layer_slot_bytes()) + (seen - own) * bytes) /
         kPageTokens;
}

PassTraffic CudaBackend::traffic(std::span<const BatchRow> rows, const PassShape& shape) const {
  const ModelSpec& spec = model_.spec;
  PassTraffic traffic;
  for (std::uint32_t layer = shape.layers.first; layer < shape.layers.last; ++layer) {
    const DeviceLayer& w = weights_.layer[layer];
    std::uint64_t feed_forward = product_bytes(w.gate_up) + product_bytes(w.down);
    if (spec.layer[layer].experts) {
      // Which experts the rows chose is known on the device only: the most that they can be.
      feed_forward *= std::min<std::uint64_t>(
          spec.experts, static_cast<std::uint64_t>(shape.rows) * spec.experts_used);
    }
    traffic.weight_bytes += product_bytes(w.qkv) + product_bytes(w.attention_output) +
                            product_bytes(w.router) + feed_forward;
    for (const RowRun& run : row_runs(rows, 0, is_int4() ? kPageTokens : 0)) {
      traffic.kv_bytes += kv_bytes_seen(rows, run, spec.layer[layer].window);
    }
  }
  if (shape.layers.last == spec.layers && shape.wanted > 0) {
    traffic.weight_bytes += product_bytes(weights_.output);
  }
  return traffic;
}

}  // namespace sluice::cuda

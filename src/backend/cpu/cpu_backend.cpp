#include "src/backend/cpu/cpu_backend.h"

#include <algorithm>
#include <cstring>

#include "src/backend/cpu/forward.h"
#include "src/base/checked.h"
#include "src/base/system_memory.h"

namespace sluice::cpu {
namespace {

KvType storage(KvCacheType type) {
  switch (type) {
    case KvCacheType::kInt8:
      return KvType::kInt8;
    case KvCacheType::kF16:
      return KvType::kF16;
    case KvCacheType::kF32:
      return KvType::kF32;
    case KvCacheType::kInt4:
      return KvType::kInt4;
  }
  return KvType::kF32;
}

// More than any machine has, where the product does not fit 64 bits (and sums with it still do).
constexpr std::uint64_t kTooManyBytes = std::uint64_t{1} << 62;

std::uint64_t kv_cache_bytes(const ModelSpec& spec, KvType type, std::uint32_t layers,
                             std::uint32_t blocks) {
  const KvLayout layout{type, spec.head_dim};
  std::uint64_t bytes = layout.head_bytes();
  for (const std::uint64_t factor : {spec.kv_heads, layers, blocks}) {
    bytes = checked_mul(bytes, factor).value_or(kTooManyBytes);
  }
  return std::min(bytes, kTooManyBytes);
}

// Blocks that an int4 cache holds in f16 beside it; 0 for others. One sequence more than there are:
// a path of a draft, or one that begins before another one ends.
std::uint32_t recent_slots(const CpuOptions& options) {
  if (options.kv != KvCacheType::kInt4) return 0;
  return RecentBlocks::slots_for(options.kv_blocks, kKvBlock, options.sequences + 1,
                                 options.max_rows);
}

// Key outliers of the layers; only the caches of few bits need them.
std::vector<std::vector<KeyOutliers>> all_outliers(const Model& model, LayerRange layers,
                                                   KvCacheType type, std::uint32_t positions) {
  std::vector<std::vector<KeyOutliers>> all(model.spec.layers);
  if (type != KvCacheType::kInt8 && type != KvCacheType::kInt4) return all;
  for (std::uint32_t i = layers.first; i < layers.last; ++i) {
    all[i] = find_key_outliers(model.spec, model.weights.layer[i], model.spec.layer[i], positions);
  }
  return all;
}

LayerRange own_layers(const Model& model, const CpuOptions& options) {
  return options.layers.last != 0 ? options.layers : LayerRange{0, model.spec.layers};
}

std::uint32_t most_pairs(const std::vector<std::vector<KeyOutliers>>& outliers) {
  std::size_t most = 0;
  for (const auto& layer : outliers) {
    for (const KeyOutliers& head : layer) most = std::max(most, head.pairs.size());
  }
  return static_cast<std::uint32_t>(most);
}

}  // namespace

std::uint64_t kv_bytes_per_token(const ModelSpec& spec, KvCacheType type, std::uint32_t layers) {
  return kv_cache_bytes(spec, storage(type), layers, 1) / kKvBlock;
}

std::size_t lay_out_work(const ModelSpec& spec, std::uint32_t rows, std::uint32_t most_outliers,
                         std::byte* base, WorkBuffers& buffers) {
  std::size_t offset = 0;
  const auto take = [&](auto*& pointer, std::size_t count) {
    using T = std::remove_reference_t<decltype(*pointer)>;
    if (base != nullptr) pointer = reinterpret_cast<T*>(base + offset);
    offset += (count * sizeof(T) + 63) / 64 * 64;
  };
  const auto take_quantized = [&](QuantizedRows& out, std::size_t most_rows, std::size_t cols) {
    const std::size_t padded = (cols + 31) / 32 * 32;
    take(out.q, most_rows * padded);
    take(out.scale, most_rows * (padded / kQuantGroup));
    take(out.sum, most_rows * (padded / kQuantGroup) * 2);
  };
  const std::size_t r = rows;
  const std::size_t q_width = std::size_t{spec.heads} * spec.head_dim;
  const std::size_t kv_width = std::size_t{spec.kv_heads} * spec.head_dim;
  const std::size_t expert_rows = spec.experts != 0 ? r * spec.experts_used : r;
  const std::size_t ff_width =
      spec.experts != 0 ? std::max(spec.feed_forward, spec.expert_feed_forward) : spec.feed_forward;
  take(buffers.hidden, r * spec.embedding);
  take(buffers.normed, r * spec.embedding);
  take(buffers.qkv, r * (q_width + 2 * kv_width));
  take(buffers.attention, r * q_width);
  take(buffers.result, r * spec.embedding);
  take(buffers.gate, expert_rows * ff_width);
  take(buffers.up, expert_rows * ff_width);
  if (spec.experts != 0) {
    take(buffers.expert_in, expert_rows * spec.embedding);
    take(buffers.expert_out, expert_rows * spec.embedding);
    take(buffers.router, r * spec.experts);
  }
  take(buffers.cosine, spec.ropes.size() * r * (spec.rope_dims / 2));
  take(buffers.sine, spec.ropes.size() * r * (spec.rope_dims / 2));
  take(buffers.softmax_max, r * spec.heads);
  take(buffers.softmax_sum, r * spec.heads);
  take(buffers.coefficients, r * spec.heads * most_outliers * 2);
  take_quantized(buffers.quantized, r, std::max<std::size_t>(spec.embedding, q_width));
  take_quantized(buffers.quantized_wide, expert_rows,
                 std::max<std::size_t>(spec.embedding, ff_width));
  return offset;
}

MemoryPlan plan_memory(const Model& model, const CpuOptions& options) {
  MemoryPlan plan;
  const LayerRange layers = own_layers(model, options);
  plan.weights = PackedWeights::bytes_needed(model.weights, layers);
  const std::uint32_t own = layers.last - layers.first;
  plan.kv_cache = kv_cache_bytes(model.spec, storage(options.kv), own, options.kv_blocks) +
                  kv_cache_bytes(model.spec, KvType::kF16, own, recent_slots(options));
  const auto outliers = all_outliers(model, layers, options.kv, 0);
  WorkBuffers unused;
  plan.work = lay_out_work(model.spec, options.max_rows, most_pairs(outliers), nullptr, unused);
  for (const auto& layer : outliers) {
    for (const KeyOutliers& head : layer) {
      plan.work += head.pairs.size() * 2 * sizeof(float) * options.positions;
    }
  }
  plan.work += sizeof(float) * std::uint64_t{options.max_logits} * model.spec.vocabulary;
  plan.available = available_memory();
  return plan;
}

CpuBackend::CpuBackend(const Model& model, const CpuOptions& options, const Kernels& kernels)
    : model_(model), options_(options), kernels_(kernels), pool_(options.pool) {}

Result<std::unique_ptr<Backend>> CpuBackend::create(const Model& model, const CpuOptions& options) {
  const Kernels* kernels = options.isa.empty() ? &best_kernels() : find_kernels(options.isa);
  if (kernels == nullptr || !kernels->supported()) {
    std::string usable;
    for (const Kernels* each : all_kernels()) {
      if (each->supported()) usable += (usable.empty() ? "" : ", ") + std::string(each->name);
    }
    return make_error(ErrorCode::kUsage,
                      "instruction set '{}' {}; this machine can use {} (--cpu-isa)", options.isa,
                      kernels == nullptr ? "is not known" : "is not supported by this machine",
                      usable);
  }
  CpuOptions resolved = options;
  resolved.layers = own_layers(model, options);
  const LayerRange layers = resolved.layers;
  if (resolved.threads == 0) resolved.threads = default_threads();
  if (resolved.pool == nullptr) resolved.pool = std::make_shared<ThreadPool>(resolved.threads);
  std::unique_ptr<CpuBackend> backend(new CpuBackend(model, resolved, *kernels));

  SLUICE_RETURN_IF_ERROR(backend->prepare_weights());
  backend->kv_layout_ = KvLayout{storage(options.kv), model.spec.head_dim};
  SLUICE_ASSIGN_OR_RETURN(
      backend->kv_memory_,
      AlignedBuffer::allocate(kv_cache_bytes(model.spec, storage(options.kv),
                                             layers.last - layers.first, options.kv_blocks),
                              "KV cache"));
  if (const std::uint32_t slots = recent_slots(options); slots > 0) {
    backend->recent_layout_ = KvLayout{KvType::kF16, model.spec.head_dim};
    backend->recent_ = RecentBlocks(options.kv_blocks, kKvBlock, slots);
    SLUICE_ASSIGN_OR_RETURN(
        backend->recent_memory_,
        AlignedBuffer::allocate(
            kv_cache_bytes(model.spec, KvType::kF16, layers.last - layers.first, slots),
            "KV cache's newest blocks"));
  }
  backend->outliers_ = all_outliers(model, layers, options.kv, options.positions);
  backend->most_outliers_ = most_pairs(backend->outliers_);
  for (std::uint32_t i = 0; i < model.spec.layers; ++i) {
    Vector bias = model.weights.layer[i].key_bias;
    for (std::size_t h = 0; h < backend->outliers_[i].size(); ++h) {
      for (const KeyOutliers::Pair& pair : backend->outliers_[i][h].pairs) {
        bias[h * model.spec.head_dim + pair.first] = 0;
        bias[h * model.spec.head_dim + pair.second] = 0;
      }
    }
    backend->key_bias_.push_back(std::move(bias));
  }
  const std::size_t bytes =
      lay_out_work(model.spec, options.max_rows, backend->most_outliers_, nullptr, backend->work_);
  SLUICE_ASSIGN_OR_RETURN(backend->work_.memory, AlignedBuffer::allocate(bytes, "work buffers"));
  lay_out_work(model.spec, options.max_rows, backend->most_outliers_, backend->work_.memory.data(),
               backend->work_);
  return std::unique_ptr<Backend>(std::move(backend));
}

Status CpuBackend::prepare_weights() {
  PackedFile file = options_.packed_file;
  const LayerRange layers = options_.layers;
  file.name += fmt::format("-{}-{}", layers.first, layers.last);
  if (auto kept = PackedWeights::kept(model_.weights, layers, file, *pool_)) {
    weights_ = std::move(*kept);
    return {};
  }
  SLUICE_ASSIGN_OR_RETURN(weights_, PackedWeights::pack(model_.weights, layers, *pool_,
                                                        options_.cancel, options_.on_progress));
  const std::uint64_t bytes = PackedWeights::bytes_needed(model_.weights, layers);
  if (file.directory.empty()) return {};
  const Status usable = bytes < file.least_bytes
                            ? failed("{} MB are packed as fast as they are found", bytes / 1000000)
                            : PackedFileWriter::check(file, bytes);
  if (options_.on_note && usable.ok()) {
    options_.on_note(fmt::format("packed weights are written for later starts: {} MB to {}",
                                 bytes / 1000000, file.directory));
  } else if (options_.on_note) {
    options_.on_note(
        fmt::format("packed weights are not kept for later starts: {}", usable.error().message));
  }
  if (!usable.ok()) return {};
  writer_ = std::make_unique<PackedFileWriter>(
      file, std::span<const std::byte>(weights_.memory.data(), bytes), options_.cancel,
      options_.on_late_note);
  return {};
}

std::string CpuBackend::description() const {
  return fmt::format("cpu ({}, {} thread{})", kernels_.name, pool_->threads(),
                     pool_->threads() == 1 ? "" : "s");
}

std::uint32_t CpuBackend::resumable_length(const KvCache& kv, SequenceId sequence,
                                           std::uint32_t length) const {
  const std::uint32_t rest = length % kKvBlock;
  if (!is_int4() || rest == 0) return length;
  const std::uint32_t block = kv.blocks(sequence)[length / kKvBlock];
  return recent_.tokens(block) >= rest ? length : length - rest;
}

std::uint32_t CpuBackend::max_open_blocks() const {
  // As many as there are blocks are never too few.
  return recent_.slots() == 0 || recent_.slots() == options_.kv_blocks ? Backend::max_open_blocks()
                                                                       : recent_.slots();
}

Status CpuBackend::copy_kv_block(const KvCache& kv, BlockCopy copy) {
  const std::size_t layer_bytes = kv_layout_.head_bytes() * model_.spec.kv_heads;
  const auto [first, last] = options_.layers;
  for (std::uint32_t layer = first; layer < last; ++layer) {
    std::memcpy(kv_block(layer, copy.to, 0), kv_block(layer, copy.from, 0), layer_bytes);
  }
  if (!is_int4()) return {};
  SLUICE_ASSIGN_OR_RETURN(const auto slots, recent_.copy(copy, kv));
  if (!slots) return {};
  const std::size_t recent_bytes = recent_layout_.head_bytes() * model_.spec.kv_heads;
  for (std::uint32_t layer = first; layer < last; ++layer) {
    std::memcpy(recent_block(layer, copy.to, 0), recent_block(layer, copy.from, 0), recent_bytes);
  }
  return {};
}

// Block bytes of a layer are [kv_heads][head_bytes] in one piece; a snapshot has the layers one
// after another. The number in "cpu-2" changes with kv_layout.h and key_outliers.cpp.
std::string CpuBackend::kv_format() const {
  constexpr const char* kNames[] = {"int8", "f16", "f32", "int4"};  // in the order of KvCacheType
  return fmt::format("cpu-2 {} layers {} heads {} dim {} block {}",
                     kNames[static_cast<int>(options_.kv)],
                     options_.layers.last - options_.layers.first, model_.spec.kv_heads,
                     model_.spec.head_dim, kKvBlock);
}

std::size_t CpuBackend::kv_block_bytes() const {
  return kv_layout_.head_bytes() * model_.spec.kv_heads *
         (options_.layers.last - options_.layers.first);
}

Status CpuBackend::export_kv_block(std::uint32_t block, std::span<std::byte> bytes) const {
  const std::size_t layer_bytes = kv_layout_.head_bytes() * model_.spec.kv_heads;
  const auto [first, last] = options_.layers;
  for (std::uint32_t layer = first; layer < last; ++layer) {
    std::memcpy(bytes.data() + (layer - first) * layer_bytes, kv_block(layer, block, 0),
                layer_bytes);
  }
  return {};
}

void CpuBackend::import_kv_block(std::uint32_t block, std::span<const std::byte> bytes) {
  if (is_int4()) recent_.forget(block);
  const std::size_t layer_bytes = kv_layout_.head_bytes() * model_.spec.kv_heads;
  const auto [first, last] = options_.layers;
  for (std::uint32_t layer = first; layer < last; ++layer) {
    std::memcpy(kv_block(layer, block, 0), bytes.data() + (layer - first) * layer_bytes,
                layer_bytes);
  }
}

Result<std::unique_ptr<Backend>> create_cpu_backend(const Model& model, const CpuOptions& options) {
  return CpuBackend::create(model, options);
}

}  // namespace sluice::cpu

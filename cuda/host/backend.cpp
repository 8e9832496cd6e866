#include "cuda/host/backend.h"

#include <algorithm>
#include <cstring>

#include "cuda/host/cuda_platform.h"
#include "cuda/host/launch.h"
#include "cuda/kv_pages.h"
#include "src/backend/cpu/kernels.h"
#include "src/backend/pass_rows.h"
#include "src/base/checked.h"

namespace sluice::cuda {
namespace {

// More than any device has.
constexpr std::uint64_t kTooManyBytes = std::uint64_t{1} << 62;
// A device gives out memory in pieces of this size.
constexpr std::uint64_t kGranule = std::uint64_t{2} << 20;
constexpr std::int64_t kColumns = 16;  // of an attention tile
// Layers on the CPU and on a GPU share block tables.
static_assert(kPageTokens == cpu::kKvBlock);

std::uint64_t padded_dim(const ModelSpec& spec) { return (spec.head_dim + 31) / 32 * 32; }

// supports() lets no other type pass.
PageKind page_kind(KvCacheType type) {
  if (type == KvCacheType::kInt4) return PageKind::kInt4;
  return type == KvCacheType::kF16 ? PageKind::kF16 : PageKind::kInt8;
}
const char* page_name(KvCacheType type) {
  constexpr const char* kNames[] = {"int8", "f16", "int4"};  // in the order of PageKind
  return kNames[static_cast<int>(page_kind(type))];
}

// Bytes of a layer's block.
std::int64_t block_bytes(const ModelSpec& spec, PageKind kind) {
  return visit_pages(kind, [&](auto pages) {
    return page_bytes<decltype(pages)>(static_cast<std::int32_t>(spec.kv_heads),
                                       static_cast<std::int32_t>(spec.head_dim));
  });
}

// Blocks that an int4 cache holds in f16 beside it; 0 for others. One sequence more than there are,
// as on the CPU: a path of a draft, or one that begins before another one ends.
std::uint32_t recent_slots(const GpuOptions& options) {
  if (options.kv != KvCacheType::kInt4) return 0;
  return RecentBlocks::slots_for(options.kv_blocks, kPageTokens, options.sequences + 1,
                                 options.max_rows);
}

std::uint64_t blocks_bytes(const ModelSpec& spec, PageKind kind, std::uint32_t blocks) {
  const auto page = static_cast<std::uint64_t>(block_bytes(spec, kind));
  return std::min(checked_mul(page, std::uint64_t{blocks}).value_or(kTooManyBytes), kTooManyBytes);
}
std::uint64_t cache_layer_bytes(const ModelSpec& spec, const GpuOptions& options) {
  return blocks_bytes(spec, page_kind(options.kv), options.kv_blocks);
}
std::uint64_t recent_layer_bytes(const ModelSpec& spec, const GpuOptions& options) {
  return blocks_bytes(spec, PageKind::kF16, recent_slots(options));
}

// Room for attention's partial results: every tile of the largest pass with one chunk, or sixteen
// tiles cut into pieces over a full context.
std::int64_t partial_units(const ModelSpec& spec, const GpuOptions& options) {
  const std::int64_t group = spec.heads / spec.kv_heads;
  const std::int64_t tiles = options.max_rows * ((group + kColumns - 1) / kColumns);
  const std::int64_t pieces = options.positions / kPieceTokens + 1;
  return std::max(tiles, 16 * pieces);
}

struct Size {
  Memory WorkMemory::*place;
  std::uint64_t bytes;
};

std::vector<Size> work_sizes(const ModelSpec& spec, const GpuOptions& options,
                             std::int32_t most_outliers) {
  const std::uint64_t r = options.max_rows;
  const std::uint64_t pairs = spec.experts != 0 ? r * spec.experts_used : 0;
  const std::uint64_t e = std::max(r, pairs);
  const std::uint64_t q_width = std::uint64_t{spec.heads} * spec.head_dim;
  const std::uint64_t kv_width = std::uint64_t{spec.kv_heads} * spec.head_dim;
  const std::uint64_t ff = std::max(spec.feed_forward, spec.expert_feed_forward);
  const std::uint64_t x = std::max<std::uint64_t>(spec.embedding, q_width);
  const std::uint64_t query = r * spec.heads * padded_dim(spec);
  const auto units = static_cast<std::uint64_t>(partial_units(spec, options)) * spec.kv_heads *
                     static_cast<std::uint64_t>(kColumns);
  const auto groups = [](std::uint64_t values) { return (values + 31) / 32 * 4; };
  using W = WorkMemory;
  std::vector<Size> sizes = {
      {&W::hidden, r * spec.embedding * 4},
      {&W::normed, r * spec.embedding * 4},
      {&W::qkv, r * (q_width + 2 * kv_width) * 4},
      {&W::query, options.kv == KvCacheType::kInt8 ? query : query * sizeof(float)},
      {&W::query_scale, options.kv == KvCacheType::kInt8 ? groups(query) : 0},
      {&W::attention, r * q_width * 4},
      {&W::result, r * spec.embedding * 4},
      {&W::gate_up, e * 2 * ff * 4},
      {&W::activated, e * ff * 4},
      {&W::x, r * x},
      {&W::x_scale, groups(r * x)},
      {&W::x_sum, groups(r * x)},
      {&W::wide, e * ff},
      {&W::wide_scale, groups(e * ff)},
      {&W::wide_sum, groups(e * ff)},
      {&W::arrivals, (spec.heads + std::uint64_t{2} * spec.kv_heads) * 4},
      {&W::partial_out, units * padded_dim(spec) * 4},
      {&W::partial_state, units * 2 * 4},
      {&W::coefficients,
       r * spec.heads * static_cast<std::uint64_t>(most_outliers) * 2 * sizeof(float)},
  };
  if (options.layers.last == spec.layers) {
    const std::uint64_t logits = options.max_logits;
    const auto cols = static_cast<std::int32_t>(spec.vocabulary);
    const auto parts = logits * static_cast<std::uint64_t>(top_logit_parts(cols));
    const auto top = logits * static_cast<std::uint64_t>(cuda::most_top_logits(cols));
    sizes.insert(sizes.end(), {{&W::logits, logits * spec.vocabulary * 4},
                               {&W::top_part_id, parts * 4},
                               {&W::top_part_key, parts * 4},
                               {&W::top_id, top * 4},
                               {&W::top_logit, top * 4}});
  }
  if (pairs != 0) {
    sizes.insert(sizes.end(), {{&W::router, r * spec.experts * 4},
                               {&W::pair_weight, pairs * 4},
                               {&W::pair_expert, pairs * 4},
                               {&W::pair_place, pairs * 4},
                               {&W::pair_row, pairs * 4},
                               {&W::items, (std::min<std::uint64_t>(spec.experts, pairs) + pairs) *
                                               sizeof(ExpertItem)},
                               {&W::expert_out, pairs * spec.embedding * 4}});
  }
  return sizes;
}

// Devices of compute capability 7.5 give a block of threads 64 KiB of shared memory, all later ones
// 99 KiB at least ("Technical Specifications per Compute Capability").
GpuInfo gpu_info(const DeviceInfo& device) {
  return {device.name, device.total_bytes, device.free_bytes,
          std::uint64_t{device.major < 8 ? 64u : 99u} * 1024, device.bandwidth};
}

// Whether attention over such a cache has the shared memory that it takes.
Status check_shared_memory(const GpuInfo& device, const ModelSpec& spec, KvCacheType kv) {
  const auto wanted = static_cast<std::uint64_t>(
      attention_shared_bytes(page_kind(kv), static_cast<std::int32_t>(spec.head_dim)));
  if (wanted <= device.shared_bytes) return {};
  return make_error(ErrorCode::kUsage,
                    "attention over an {} cache with heads of {} values takes {} bytes of shared "
                    "memory, {} has {} (--kv int8 takes less)",
                    page_name(kv), spec.head_dim, wanted, device.name, device.shared_bytes);
}

}  // namespace

std::uint32_t CudaBackend::most_top_logits() const {
  if (options_.layers.last < model_.spec.layers) return 0;
  return static_cast<std::uint32_t>(
      cuda::most_top_logits(static_cast<std::int32_t>(model_.spec.vocabulary)));
}

MemoryPlan CudaBackend::plan_memory(const Model& model, const GpuOptions& options) {
  const ModelSpec& spec = model.spec;
  const std::uint64_t layers = options.layers.last - options.layers.first;
  MemoryPlan plan;
  plan.weights = weight_bytes(model, options.layers, options.kv, options.positions);
  plan.kv_cache = std::min(
      checked_mul(cache_layer_bytes(spec, options) + recent_layer_bytes(spec, options), layers)
          .value_or(kTooManyBytes),
      kTooManyBytes);
  std::int32_t outliers = 0;
  for (std::uint32_t i = options.layers.first; i < options.layers.last; ++i) {
    outliers = std::max(outliers, most_outliers(model, i, options.kv));
  }
  for (const Size& size : work_sizes(spec, options, outliers)) plan.work += size.bytes;
  plan.work += layers * (options.kv == KvCacheType::kInt4 ? 5 : 4) *
               kGranule;  // what rounding up takes, at most
  plan.work += PassInputs::bytes_needed(spec, options.max_rows, options.positions);
  return plan;
}

Result<std::unique_ptr<Backend>> CudaBackend::create(const Model& model,
                                                     const GpuOptions& options) {
  std::unique_ptr<CudaBackend> backend(new CudaBackend(model, options));
  const ModelSpec& spec = model.spec;
  SLUICE_ASSIGN_OR_RETURN(backend->device_, Device::open(options.device));
  Device& device = *backend->device_;
  SLUICE_RETURN_IF_ERROR(check_shared_memory(gpu_info(device.info()), spec, options.kv));
  SLUICE_ASSIGN_OR_RETURN(
      backend->weights_,
      upload_weights(device, model, options.layers, options.kv, options.positions, *options.pool,
                     options.cancel, options.on_progress));
  SLUICE_ASSIGN_OR_RETURN(backend->few_rows_, FewRows::measure(device, backend->weights_));
  backend->cache_.resize(spec.layers);
  for (std::uint32_t i = options.layers.first; i < options.layers.last; ++i) {
    const std::uint64_t bytes = cache_layer_bytes(spec, options);
    SLUICE_ASSIGN_OR_RETURN(backend->cache_[i], device.allocate("the KV cache", bytes));
    // Kernels read whole blocks; what stands past a sequence's end is masked, whatever it is.
    device.zero(backend->cache_[i].at<std::uint8_t>(), bytes);
  }
  if (const std::uint32_t slots = recent_slots(options); slots > 0) {
    backend->recent_ = RecentBlocks(options.kv_blocks, kPageTokens, slots);
    backend->recent_cache_.resize(spec.layers);
    for (std::uint32_t i = options.layers.first; i < options.layers.last; ++i) {
      const std::uint64_t bytes = recent_layer_bytes(spec, options);
      SLUICE_ASSIGN_OR_RETURN(backend->recent_cache_[i],
                              device.allocate("the KV cache's newest blocks", bytes));
      device.zero(backend->recent_cache_[i].at<std::uint8_t>(), bytes);
    }
  }
  backend->partial_units_ = partial_units(spec, options);
  for (const Size& size : work_sizes(spec, options, backend->weights_.most_outliers)) {
    SLUICE_ASSIGN_OR_RETURN(backend->work_.*size.place,
                            device.allocate("work buffers", size.bytes));
  }
  device.zero(backend->work_.arrivals.at<std::uint8_t>(), backend->work_.arrivals.size());
  SLUICE_ASSIGN_OR_RETURN(backend->inputs_,
                          PassInputs::create(device, spec, options.max_rows, options.positions));
  SLUICE_ASSIGN_OR_RETURN(
      backend->hidden_,
      device.allocate_host("the residual stream",
                           sizeof(float) * std::size_t{options.max_rows} * spec.embedding));
  SLUICE_RETURN_IF_ERROR(device.synchronize());
  return std::unique_ptr<Backend>(std::move(backend));
}

std::string CudaBackend::description() const {
  return fmt::format("cuda:{} ({})", options_.device, device_->info().name);
}

std::uint32_t CudaBackend::block_tokens() const { return kPageTokens; }

PageKind CudaBackend::pages() const { return page_kind(options_.kv); }

std::int64_t CudaBackend::kv_layer_block_bytes() const { return block_bytes(model_.spec, pages()); }
std::int64_t CudaBackend::kv_layer_slot_bytes() const {
  return block_bytes(model_.spec, PageKind::kF16);
}

std::uint32_t CudaBackend::resumable_length(const KvCache& kv, SequenceId sequence,
                                            std::uint32_t length) const {
  const std::uint32_t rest = length % kPageTokens;
  if (!is_int4() || rest == 0) return length;
  const std::uint32_t block = kv.blocks(sequence)[length / kPageTokens];
  return recent_.tokens(block) >= rest ? length : length - rest;
}

std::uint32_t CudaBackend::max_open_blocks() const {
  // As many as there are blocks are never too few.
  return recent_.slots() == 0 || recent_.slots() == options_.kv_blocks ? Backend::max_open_blocks()
                                                                       : recent_.slots();
}

Status CudaBackend::copy_kv_block(const KvCache& kv, BlockCopy copy) {
  const auto copy_in = [this](const std::vector<Memory>& layers, BlockCopy numbers,
                              std::int64_t bytes) {
    for (const Memory& layer : layers) {
      if (!layer) continue;
      device_->copy(layer.at<std::uint8_t>(numbers.to * bytes),
                    layer.at<const std::uint8_t>(numbers.from * bytes),
                    static_cast<std::size_t>(bytes));
    }
  };
  copy_in(cache_, copy, kv_layer_block_bytes());
  if (!is_int4()) return {};
  SLUICE_ASSIGN_OR_RETURN(const auto slots, recent_.copy(copy, kv));
  if (slots) copy_in(recent_cache_, {slots->from, slots->to}, kv_layer_slot_bytes());
  return {};
}

// The number in "cuda-3" changes with cuda/kv_pages.h and key_outliers.cpp.
std::string CudaBackend::kv_format() const {
  return fmt::format("cuda-3 {} layers {} heads {} dim {} block {}", page_name(options_.kv),
                     options_.layers.last - options_.layers.first, model_.spec.kv_heads,
                     model_.spec.head_dim, kPageTokens);
}

std::size_t CudaBackend::kv_block_bytes() const {
  return static_cast<std::size_t>(kv_layer_block_bytes()) *
         (options_.layers.last - options_.layers.first);
}

Status CudaBackend::export_kv_block(std::uint32_t block, std::span<std::byte> bytes) const {
  const std::int64_t own = kv_layer_block_bytes();
  std::byte* out = bytes.data();
  for (const Memory& layer : cache_) {
    if (!layer) continue;
    device_->download(out, layer.at<const std::uint8_t>(block * own),
                      static_cast<std::size_t>(own));
    out += own;
  }
  return device_->synchronize();
}

void CudaBackend::import_kv_block(std::uint32_t block, std::span<const std::byte> bytes) {
  if (is_int4()) recent_.forget(block);
  const std::int64_t own = kv_layer_block_bytes();
  const std::byte* in = bytes.data();
  for (const Memory& layer : cache_) {
    if (!layer) continue;
    device_->upload(layer.at<std::uint8_t>(block * own), in, static_cast<std::size_t>(own));
    in += own;
  }
  (void)device_->synchronize();  // the bytes may go; an error stays for the next pass
}

namespace {

class CudaPlatform final : public GpuPlatform {
 public:
  std::string name() const override { return "cuda"; }
  Result<std::vector<GpuInfo>> devices() const override {
    SLUICE_ASSIGN_OR_RETURN(const std::vector<DeviceInfo> found, list_devices());
    std::vector<GpuInfo> devices;
    for (const DeviceInfo& device : found) devices.push_back(gpu_info(device));
    return devices;
  }

  Status supports(const GpuInfo& device, const ModelSpec& spec, KvCacheType kv) const override {
    if (spec.head_dim > static_cast<std::uint32_t>(kMaxHeadDim)) {
      return make_error(ErrorCode::kUsage,
                        "the GPU's attention has heads of up to {} values, this model's have {}",
                        kMaxHeadDim, spec.head_dim);
    }
    if (spec.experts > static_cast<std::uint32_t>(kMostExperts)) {
      return make_error(ErrorCode::kUsage,
                        "the GPU's routing knows up to {} experts, this model has {}", kMostExperts,
                        spec.experts);
    }
    if (kv == KvCacheType::kF32) {
      return make_error(ErrorCode::kUsage,
                        "on the GPU the KV cache is int4, int8 or f16 (--kv int8, say); f32 needs "
                        "--device cpu");
    }
    return check_shared_memory(device, spec, kv);
  }

  MemoryPlan plan_memory(const Model& model, const GpuOptions& options) const override {
    return CudaBackend::plan_memory(model, options);
  }
  Result<std::unique_ptr<Backend>> create(const Model& model,
                                          const GpuOptions& options) const override {
    return CudaBackend::create(model, options);
  }
};

}  // namespace

const GpuPlatform* platform() {
  static const CudaPlatform the_platform;  // has no state
  return &the_platform;
}

}  // namespace sluice::cuda

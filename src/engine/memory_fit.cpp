#include "src/engine/memory_fit.h"

#include <algorithm>
#include <limits>

#include "src/backend/cpu/kernels.h"

namespace sluice {
namespace {

double mib(std::uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

// What one block of the cache takes on each device of a placement.
std::vector<std::uint64_t> block_bytes(const PlacementRequest& request,
                                       const Placement& placement) {
  // Of one more where there are many: an int4 cache has some blocks in f16 too.
  constexpr std::uint32_t kMany = 1u << 16;
  const Placement many = replan(request, placement, kMany);
  const Placement more = replan(request, placement, kMany + 1);
  std::vector<std::uint64_t> bytes;
  for (std::size_t i = 0; i < many.parts.size(); ++i) {
    bytes.push_back(more.parts[i].memory.kv_cache - many.parts[i].memory.kv_cache);
  }
  return bytes;
}

// The largest context, a multiple of 64, with which `part` fits in cache type `type`; 0: none.
std::uint64_t context_that_fits(PlacementRequest request, const Placement& placement,
                                std::size_t part, KvCacheType type) {
  request.cpu.kv = type;
  const auto fits = [&](std::uint64_t tokens) {
    request.cpu.positions = static_cast<std::uint32_t>(tokens);
    return replan(request, placement, blocks_for_tokens(tokens)).parts[part].fits();
  };
  std::uint64_t fit = 0, too_many = std::uint64_t{1} << 32;
  while (too_many - fit > 64) {
    const std::uint64_t middle = (fit + (too_many - fit) / 2) / 64 * 64;
    (fits(middle) ? fit : too_many) = middle;
  }
  return fit;
}

}  // namespace

std::uint32_t blocks_for_tokens(std::uint64_t tokens) {
  const std::uint64_t blocks = tokens / cpu::kKvBlock + (tokens % cpu::kKvBlock != 0 ? 1 : 0);
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(blocks, std::numeric_limits<std::uint32_t>::max()));
}

std::uint32_t choose_kv_blocks(const PlacementRequest& request, const Placement& placement,
                               std::uint32_t kv_tokens, std::uint32_t sequences) {
  const std::uint32_t context = request.cpu.positions;
  if (kv_tokens > context) return blocks_for_tokens(kv_tokens);
  const Placement one = replan(request, placement, blocks_for_tokens(context));
  const std::vector<std::uint64_t> block = block_bytes(request, placement);
  std::uint64_t tokens = std::uint64_t{context} * std::max(sequences, 1u);
  for (std::size_t i = 0; i < one.parts.size(); ++i) {
    const MemoryPlan& memory = one.parts[i].memory;
    if (memory.available == 0 || block[i] == 0) continue;
    const std::uint64_t left =
        memory.available > memory.total() ? memory.available - memory.total() : 0;
    tokens = std::min(tokens, context + left / 2 / block[i] * cpu::kKvBlock);
  }
  return blocks_for_tokens(tokens);
}

Error too_large(const PlacementRequest& request, const Placement& placement) {
  const auto part =
      static_cast<std::size_t>(std::find_if(placement.parts.begin(), placement.parts.end(),
                                            [](const Part& p) { return !p.fits(); }) -
                               placement.parts.begin());
  const Part& over = placement.parts[part];
  const MemoryPlan& plan = over.memory;
  std::string advice;
  const KvCacheType own = request.cpu.kv;
  std::uint64_t tokens = context_that_fits(request, placement, part, own);
  if (tokens >= 64) advice = fmt::format("-c {} would fit", tokens);
  struct Smaller {
    KvCacheType type;
    const char* name;
    bool possible;
  };
  const bool is_int4 = own == KvCacheType::kInt4;
  for (const Smaller& other :
       {Smaller{KvCacheType::kInt8, "int8", own != KvCacheType::kInt8 && !is_int4},
        Smaller{KvCacheType::kInt4, "int4", !is_int4}}) {
    if (!other.possible) continue;
    const std::uint64_t more = context_that_fits(request, placement, part, other.type);
    if (more <= tokens) continue;
    tokens = more;
    advice +=
        fmt::format("{}--kv {} would fit {} tokens", advice.empty() ? "" : ", ", other.name, more);
  }
  if (over.gpu) {
    advice += fmt::format("{}--gpu-layers auto puts as many layers there as fit",
                          advice.empty() ? "" : ", ");
  } else if (advice.empty()) {
    advice = "a smaller model or a smaller quantization is needed";
  }
  return make_error(
      ErrorCode::kNoMemory,
      "not enough memory{}: weights {:.0f} MiB + KV cache {:.0f} MiB + work buffers "
      "{:.0f} MiB = {:.0f} MiB are needed, {:.0f} MiB are available; {}",
      over.gpu ? fmt::format(" on the GPU for {} layers", over.layers.last - over.layers.first)
               : "",
      mib(plan.weights), mib(plan.kv_cache), mib(plan.work), mib(plan.total()), mib(plan.available),
      advice);
}

}  // namespace sluice

#include "src/backend/placement.h"

#include <algorithm>

#include "src/backend/split_backend.h"

namespace sluice {
namespace {

GpuOptions gpu_options(const PlacementRequest& request, const Part& part) {
  const cpu::CpuOptions& cpu = request.cpu;
  GpuOptions options;
  options.device = part.device;
  options.layers = part.layers;
  options.kv = cpu.kv;
  options.kv_blocks = cpu.kv_blocks;
  options.positions = cpu.positions;
  options.sequences = cpu.sequences;
  options.max_rows = cpu.max_rows;
  options.max_logits = cpu.max_logits;
  options.pool = cpu.pool;
  options.cancel = cpu.cancel;
  return options;
}

cpu::CpuOptions cpu_options(const PlacementRequest& request, const Part& part) {
  cpu::CpuOptions options = request.cpu;
  options.layers = part.layers;
  return options;
}

void plan(const PlacementRequest& request, Part& part) {
  const std::uint64_t available = part.memory.available;
  if (part.gpu) {
    part.memory = request.gpu->plan_memory(*request.model, gpu_options(request, part));
    part.memory.available = available;
  } else {
    part.memory = cpu::plan_memory(*request.model, cpu_options(request, part));
  }
}

Part cpu_part(const PlacementRequest& request, LayerRange layers) {
  Part part;
  part.name = "cpu";
  part.layers = layers;
  plan(request, part);
  return part;
}

Part gpu_part(const PlacementRequest& request, const GpuInfo& info, std::uint32_t device,
              LayerRange layers) {
  Part part;
  part.gpu = true;
  part.device = device;
  part.name = info.name;
  part.layers = layers;
  part.memory.available = std::max<std::uint64_t>(info.free_bytes, 1);  // 0 is "unknown"
  plan(request, part);
  return part;
}

// The most layers before `last` that fit on a device, at most `most`.
std::uint32_t layers_that_fit(const PlacementRequest& request, const GpuInfo& info,
                              std::uint32_t device, std::uint32_t last, std::uint32_t most) {
  std::uint32_t fit = 0, too_many = most + 1;
  while (fit + 1 < too_many) {
    const std::uint32_t count = fit + (too_many - fit) / 2;
    const Part part = gpu_part(request, info, device, {last - count, last});
    (part.fits() ? fit : too_many) = count;
  }
  return fit;
}

// GPUs take the last layers: all of them where they fit on one, else as many as fit on each, from
// the last device of `order` to the first, which may be fewer than wanted.
void place_on_gpus(const PlacementRequest& request, const std::vector<GpuInfo>& devices,
                   const std::vector<std::uint32_t>& order, std::vector<Part>& parts) {
  const DeviceChoice& choice = request.choice;
  const std::uint32_t layers = request.model->spec.layers;
  const std::uint32_t wanted = std::min(choice.gpu_layers.value_or(layers), layers);
  for (const std::uint32_t i : order) {  // one device is faster than two
    Part whole = gpu_part(request, devices[i], i, {layers - wanted, layers});
    if (whole.fits()) {
      parts.push_back(std::move(whole));
      return;
    }
  }
  std::uint32_t last = layers;
  for (auto it = order.rbegin(); it != order.rend() && last > layers - wanted; ++it) {
    std::uint32_t count =
        layers_that_fit(request, devices[*it], *it, last, last - (layers - wanted));
    // A number that the user gave is kept; the plan then says what is missing.
    if (choice.gpu_layers && std::next(it) == order.rend()) count = last - (layers - wanted);
    if (count == 0) continue;
    parts.insert(parts.begin(), gpu_part(request, devices[*it], *it, {last - count, last}));
    last -= count;
  }
}

}  // namespace

bool Placement::fits() const {
  return std::all_of(parts.begin(), parts.end(), [](const Part& part) { return part.fits(); });
}

std::string Placement::description() const {
  std::string all;
  for (const Part& part : parts) {
    all += fmt::format("{}{} layers {} to {}", all.empty() ? "" : ", ",
                       part.gpu ? fmt::format("{} ({})", part.name, part.device) : part.name,
                       part.layers.first, part.layers.last - 1);
  }
  return all;
}

MemoryPlan Placement::total() const {
  MemoryPlan sum;
  for (const Part& part : parts) {
    sum.weights += part.memory.weights;
    sum.kv_cache += part.memory.kv_cache;
    sum.work += part.memory.work;
    if (!part.gpu) sum.available = part.memory.available;
  }
  return sum;
}

Result<Placement> place(const PlacementRequest& request) {
  using Kind = DeviceChoice::Kind;
  const DeviceChoice& choice = request.choice;
  const std::uint32_t layers = request.model->spec.layers;
  Placement placement;
  const auto on_cpu = [&] {
    placement.parts = {cpu_part(request, {0, layers})};
    return placement;
  };
  const bool demanded = choice.kind == Kind::kGpu;
  if (demanded && choice.gpu_layers == 0u) {
    return make_error(
        ErrorCode::kUsage,
        "a GPU was asked for, and no layers on it; leave --device or --gpu-layers away");
  }
  if (choice.kind == Kind::kCpu && choice.gpu_layers.value_or(0) > 0 && request.gpu != nullptr) {
    placement.notes.push_back("--device cpu: --gpu-layers is not followed");
  }
  if (choice.kind == Kind::kCpu || choice.gpu_layers == 0u) return on_cpu();
  if (request.gpu == nullptr) {
    if (demanded) {
      return make_error(ErrorCode::kUsage,
                        "a GPU was asked for, and this program was built without a GPU backend");
    }
    return on_cpu();
  }
  const Result<std::vector<GpuInfo>> devices = request.gpu->devices();
  if (!devices.ok()) {
    if (demanded) {
      return make_error(ErrorCode::kUsage, "a GPU was asked for: {}; --device cpu runs without one",
                        devices.error().message);
    }
    placement.notes.push_back(devices.error().message + ": running on the CPU");
    return on_cpu();
  }
  if (choice.device && *choice.device >= devices->size()) {
    return make_error(ErrorCode::kUsage, "there is no device {}:{}; this machine has {} ({}:0{})",
                      request.gpu->name(), *choice.device, devices->size(), request.gpu->name(),
                      devices->size() > 1 ? " and so on" : "");
  }
  std::vector<std::uint32_t> usable;
  Status unusable;
  for (std::uint32_t i = 0; i < devices->size(); ++i) {
    if (choice.device && *choice.device != i) continue;
    const Status able = request.gpu->supports((*devices)[i], request.model->spec, request.cpu.kv);
    if (able.ok()) usable.push_back(i);
    if (!able.ok()) unusable = able;
  }
  if (usable.empty()) {
    if (demanded) return unusable.error();
    placement.notes.push_back(unusable.error().message + ": running on the CPU");
    return on_cpu();
  }
  if (!unusable.ok()) {
    placement.notes.push_back(unusable.error().message + ": running on the other GPUs");
  }

  place_on_gpus(request, *devices, usable, placement.parts);
  if (placement.parts.empty()) {
    const std::uint32_t roomiest =
        *std::max_element(usable.begin(), usable.end(), [&](std::uint32_t a, std::uint32_t b) {
          return (*devices)[a].free_bytes < (*devices)[b].free_bytes;
        });
    const Part last = gpu_part(request, (*devices)[roomiest], roomiest, {layers - 1, layers});
    const auto mib = [](std::uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
    const std::string why = fmt::format(
        "not one layer fits into the GPU's memory: weights {:.0f} MiB + KV cache {:.0f} MiB + work "
        "buffers {:.0f} MiB are needed, {:.0f} MiB are free",
        mib(last.memory.weights), mib(last.memory.kv_cache), mib(last.memory.work),
        mib(last.memory.available));
    if (demanded) {
      return make_error(ErrorCode::kNoMemory,
                        "{}; use a smaller context (-c), {}a smaller model, or --device cpu", why,
                        request.cpu.kv == KvCacheType::kInt4 ? "" : "--kv int4, ");
    }
    placement.notes.push_back(why + ": running on the CPU");
    return on_cpu();
  }
  if (const std::uint32_t first = placement.parts.front().layers.first; first > 0) {
    placement.parts.insert(placement.parts.begin(), cpu_part(request, {0, first}));
    placement.notes.push_back(fmt::format("{} of {} layers are on the GPU, {} on the CPU",
                                          layers - first, layers, first));
  } else if (!request.cpu.packed_file.directory.empty()) {
    placement.notes.push_back(
        "packed weights are not kept for later starts: all layers are on the GPU");
  }
  return placement;
}

Placement replan(const PlacementRequest& request, Placement placement, std::uint32_t kv_blocks) {
  PlacementRequest changed = request;
  changed.cpu.kv_blocks = kv_blocks;
  for (Part& part : placement.parts) plan(changed, part);
  return placement;
}

Result<std::unique_ptr<Backend>> create_backend(const PlacementRequest& request,
                                                const Placement& placement) {
  std::uint64_t weights = 0;
  for (const Part& part : placement.parts) weights += part.memory.weights;
  std::vector<BackendPart> backends;
  std::uint64_t before = 0;  // bytes of weights in the parts that are done
  for (const Part& part : placement.parts) {
    std::function<void(double)> progress;
    if (request.cpu.on_progress) {
      progress = [&request, weights, before, own = part.memory.weights](double share) {
        const auto done = static_cast<double>(before) + share * static_cast<double>(own);
        request.cpu.on_progress(weights == 0 ? 1.0 : done / static_cast<double>(weights));
      };
    }
    BackendPart made;
    made.layers = part.layers;
    if (part.gpu) {
      GpuOptions options = gpu_options(request, part);
      options.on_progress = progress;
      SLUICE_ASSIGN_OR_RETURN(made.backend, request.gpu->create(*request.model, options));
    } else {
      cpu::CpuOptions options = cpu_options(request, part);
      options.on_progress = progress;
      SLUICE_ASSIGN_OR_RETURN(made.backend, cpu::create_cpu_backend(*request.model, options));
    }
    before += part.memory.weights;
    backends.push_back(std::move(made));
  }
  if (backends.size() == 1) return std::move(backends.front().backend);
  return make_split_backend(std::move(backends));
}

}  // namespace sluice

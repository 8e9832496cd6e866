// Which device runs which layers, and whether it all fits: decided before anything is allocated.
// The first layers stay on the CPU, the last ones and the output go to GPUs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/backend/backend.h"
#include "src/backend/cpu/cpu_backend.h"
#include "src/backend/gpu.h"

namespace sluice {

// What the user asked for.
struct DeviceChoice {
  enum class Kind : std::uint8_t {
    kAuto,  // GPUs where there are any, as far as they reach
    kCpu,
    kGpu,  // an error where there is none
  };
  Kind kind = Kind::kAuto;
  std::optional<std::uint32_t> device;      // this GPU only
  std::optional<std::uint32_t> gpu_layers;  // this many on GPUs, or all there are, where there are
                                            // GPUs; none: as many as fit
};

// One device's share.
struct Part {
  bool gpu = false;
  std::uint32_t device = 0;  // of GPUs
  std::string name;          // for people: "cpu", "NVIDIA H200"
  LayerRange layers;
  MemoryPlan memory;  // available 0: unknown
  bool fits() const { return memory.available == 0 || memory.total() <= memory.available; }
};

struct Placement {
  std::vector<Part> parts;         // in the order of layers, at least one
  std::vector<std::string> notes;  // for the user: "no NVIDIA driver found: running on the CPU"

  bool fits() const;
  // Which layers are where: "cpu layers 0 to 3, NVIDIA H200 (0) layers 4 to 31".
  std::string description() const;
  MemoryPlan total() const;  // all parts; `available` is the CPU's
};

// Sizes as in CpuOptions; its `layers` are not read.
struct PlacementRequest {
  const Model* model = nullptr;
  const GpuPlatform* gpu = nullptr;  // null: none in this build
  DeviceChoice choice;
  cpu::CpuOptions cpu;
};

// Chooses the parts. kUsage for a device that is not there or a model that it cannot run; a plan
// that does not fit is no error here.
Result<Placement> place(const PlacementRequest& request);
// The same parts with the memory for another number of KV blocks.
Placement replan(const PlacementRequest& request, Placement placement, std::uint32_t kv_blocks);

// Backends for the parts, as one. Errors as those of create_cpu_backend and GpuPlatform::create.
Result<std::unique_ptr<Backend>> create_backend(const PlacementRequest& request,
                                                const Placement& placement);

}  // namespace sluice

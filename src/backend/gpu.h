// What the program needs of GPUs: which there are, what a model would take there, and a backend.
// Implemented outside src/ (cuda/host/), and handed in by main; null where a build has none.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/backend/backend.h"

namespace sluice {

namespace cpu {
class ThreadPool;
}

struct GpuInfo {
  std::string name;
  std::uint64_t total_bytes = 0;
  std::uint64_t free_bytes = 0;
  std::uint64_t shared_bytes = 0;  // on-chip memory that a block of threads can have
  double bandwidth = 0;            // of its memory by data sheet, bytes a second; 0: unknown
};

struct GpuOptions {
  std::uint32_t device = 0;
  LayerRange layers;  // that it runs; the output goes with the last one
  KvCacheType kv = KvCacheType::kInt8;
  std::uint32_t kv_blocks = 0;  // of the CPU's size (kKvBlock) each, all its layers
  std::uint32_t positions = 0;  // positions are below this
  std::uint32_t sequences = 1;  // at a time: how many blocks an int4 cache holds in f16 beside it
  std::uint32_t max_rows = 256;
  std::uint32_t max_logits = 16;
  bool graphs = true;  // passes are recorded and repeated; off to measure what that gives
  std::shared_ptr<cpu::ThreadPool> pool;  // prepares weights for upload
  const std::atomic<bool>* cancel = nullptr;
  std::function<void(double)> on_progress;  // may be empty
};

class GpuPlatform {
 public:
  virtual ~GpuPlatform() = default;

  // Flags and messages: "cuda".
  virtual std::string name() const = 0;
  // kFailed with the reason where there is none that can be used.
  virtual Result<std::vector<GpuInfo>> devices() const = 0;
  // Why this model cannot run on a device whatever its memory (kUsage, kBadInput); ok where it can.
  virtual Status supports(const GpuInfo& device, const ModelSpec& spec, KvCacheType kv) const = 0;
  // Bytes on the device; `available` is left 0, devices() tells it.
  virtual MemoryPlan plan_memory(const Model& model, const GpuOptions& options) const = 0;
  // `model` and its file must outlive the backend.
  virtual Result<std::unique_ptr<Backend>> create(const Model& model,
                                                  const GpuOptions& options) const = 0;
};

}  // namespace sluice

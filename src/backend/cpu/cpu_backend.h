// The CPU backend: weights packed for the kernels, a paged KV cache, one thread pool.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "src/backend/backend.h"
#include "src/backend/cpu/packed_file.h"

namespace sluice::cpu {

class ThreadPool;

struct CpuOptions {
  LayerRange layers;          // that it runs; last 0: all
  std::uint32_t threads = 0;  // 0: default_threads()
  // Threads of another backend, whose passes never run at the same time; null: its own. Two pools
  // would take the cores from each other while their workers wait for the next region.
  std::shared_ptr<ThreadPool> pool;
  std::string isa;  // "": the best this machine supports
  KvCacheType kv = KvCacheType::kInt8;
  std::uint32_t kv_blocks = 0;  // of kKvBlock tokens each, all layers
  std::uint32_t sequences = 1;  // at a time: how many blocks an int4 cache holds in f16 beside it
  std::uint32_t positions = 0;  // positions are below this
  std::uint32_t max_rows = 256;
  std::uint32_t max_logits = 16;
  PackedFile packed_file;  // where packed weights are kept between starts
  const std::atomic<bool>* cancel = nullptr;
  std::function<void(double)> on_progress;  // may be empty
  // What the user may want to know, while the backend is made, and when it goes; may be empty.
  std::function<void(const std::string&line)> on_note, on_late_note;
};

// What create() would allocate.
MemoryPlan plan_memory(const Model& model, const CpuOptions& options);

// Bytes of keys and values that one token takes in so many layers.
std::uint64_t kv_bytes_per_token(const ModelSpec& spec, KvCacheType type, std::uint32_t layers);

// `model` and the file it refers to must outlive the backend. Fails with kUsage for an instruction
// set that is unknown or missing here, kNoMemory, or kInterrupted.
Result<std::unique_ptr<Backend>> create_cpu_backend(const Model& model, const CpuOptions& options);

}  // namespace sluice::cpu

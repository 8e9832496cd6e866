// A GPU as the backend sees it: memory, one queue of work, graphs. Two implementations:
// cuda/host/runtime_cuda.cpp on CUDA's runtime library, tests/simt/runtime_emulated.cpp on the
// emulator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cuda/simt.h"
#include "src/base/status.h"

namespace sluice::cuda {

struct DeviceInfo {
  std::string name;  // "NVIDIA H200"
  std::uint32_t index = 0;
  std::uint32_t major = 0;  // compute capability
  std::uint32_t minor = 0;
  std::uint32_t multiprocessors = 0;
  std::uint64_t total_bytes = 0;
  std::uint64_t free_bytes = 0;
  double bandwidth = 0;  // by data sheet, bytes a second; 0: unknown
};

// The devices of this machine. kFailed where there is none, no driver, or one too old for this
// program; the message says which.
Result<std::vector<DeviceInfo>> list_devices();

// A piece of device memory and its owner; copies share it.
class Memory {
 public:
  Memory() = default;
  Memory(simt::Global<std::uint8_t> base, std::size_t bytes, std::shared_ptr<void> owner)
      : base_(base), bytes_(bytes), owner_(std::move(owner)) {}

  std::size_t size() const { return bytes_; }
  // A pointer `offset` bytes on.
  template <class T>
  simt::Global<T> at(std::int64_t offset = 0) const {
    return simt::cast<T>(base_ + offset);
  }
  explicit operator bool() const { return owner_ != nullptr; }

 private:
  simt::Global<std::uint8_t> base_ = {};
  std::size_t bytes_ = 0;
  std::shared_ptr<void> owner_;
};

// Memory of the host that the device reads and writes at full speed (pinned).
class HostMemory {
 public:
  HostMemory() = default;
  HostMemory(std::byte* data, std::size_t bytes, std::shared_ptr<void> owner)
      : data_(data), bytes_(bytes), owner_(std::move(owner)) {}
  std::byte* data() const { return data_; }
  template <class T>
  T* as(std::size_t offset = 0) const {
    return reinterpret_cast<T*>(data_ + offset);
  }
  std::size_t size() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::shared_ptr<void> owner_;
};

// Launches that were recorded once and are repeated with the same arguments.
class Graph {
 public:
  Graph() = default;
  explicit Graph(std::shared_ptr<void> handle) : handle_(std::move(handle)) {}
  void* handle() const { return handle_.get(); }

 private:
  std::shared_ptr<void> handle_;
};

// A device in use. What is queued runs in sequence; the functions that queue return at once. The
// first error stays: every later synchronize() reports it. Not thread-safe.
class Device {
 public:
  static Result<std::unique_ptr<Device>> open(std::uint32_t index);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const DeviceInfo& info() const { return info_; }

  // kNoMemory with the numbers. `what` is for messages: "weights of layer 3".
  Result<Memory> allocate(const std::string& what, std::size_t bytes);
  Result<HostMemory> allocate_host(const std::string& what, std::size_t bytes);

  // Queue copies. Host memory must stay as it is until the next synchronize().
  void upload(simt::Global<std::uint8_t> to, const void* from, std::size_t bytes);
  void download(void* to, simt::Global<const std::uint8_t> from, std::size_t bytes);
  void copy(simt::Global<std::uint8_t> to, simt::Global<const std::uint8_t> from,
            std::size_t bytes);
  void zero(simt::Global<std::uint8_t> to, std::size_t bytes);

  // Waits until all that was queued is done. kFailed with what went wrong first.
  Status synchronize();

  // Between the two, launches are recorded instead of run.
  void begin_graph();
  Result<Graph> end_graph();
  void run(const Graph& graph);
  // Seconds that the device takes for a graph: the shortest of a few runs, which have been waited
  // for. The graph's work is to be the same when repeated.
  Result<double> seconds(const Graph& graph);

  struct State;
  State& state() { return *state_; }  // for cuda/host/launch.cu

 private:
  Device(DeviceInfo info, std::unique_ptr<State> state);
  DeviceInfo info_;
  std::unique_ptr<State> state_;
};

}  // namespace sluice::cuda

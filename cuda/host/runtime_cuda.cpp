// The device on CUDA's runtime library, which is linked statically; the driver is looked for at run
// time.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "cuda/host/queue.h"
#include "cuda/host/runtime.h"

namespace sluice::cuda {

struct Device::State {
  int index = 0;
  cudaStream_t stream = nullptr;
  cudaError_t error = cudaSuccess;
  std::string doing;  // what failed

  void note(cudaError_t result, const char* what) {
    if (result == cudaSuccess || error != cudaSuccess) return;
    error = result;
    doing = what;
  }
  // Work goes to the calling thread's current device, which another Device may have changed.
  void make_current() { note(cudaSetDevice(index), "choosing the device"); }
};

namespace {

constexpr std::int64_t kMostBlocks = 2147483647;  // of a grid's first dimension
constexpr std::int32_t kUnaskedShared = 48 * 1024;

constexpr int kTimedRuns = 5;

// A moment in the queue. Cannot be copied, as it owns the handle.
class Event {
 public:
  explicit Event(Device::State& state) { state.note(cudaEventCreate(&event_), "timing a graph"); }
  ~Event() {
    if (event_ != nullptr) cudaEventDestroy(event_);
  }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record(Device::State& state) const {
    state.note(cudaEventRecord(event_, state.stream), "timing a graph");
  }
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

std::string reason(cudaError_t error) {
  return fmt::format("{} ({})", cudaGetErrorString(error), cudaGetErrorName(error));
}

// Two transfers a clock on each wire of the memory's bus; 0 where the driver does not tell.
double bandwidth_of(int index) {
  int clock_khz = 0, bits = 0;
  cudaError_t e = cudaDeviceGetAttribute(&clock_khz, cudaDevAttrMemoryClockRate, index);
  if (e == cudaSuccess) {
    e = cudaDeviceGetAttribute(&bits, cudaDevAttrGlobalMemoryBusWidth, index);
  }
  if (e != cudaSuccess) {
    cudaGetLastError();
    return 0;
  }
  return 2.0 * 1e3 * clock_khz * bits / 8;
}

Result<DeviceInfo> describe(int index) {
  cudaDeviceProp properties{};
  if (const cudaError_t e = cudaGetDeviceProperties(&properties, index); e != cudaSuccess) {
    return failed("CUDA device {} does not answer: {}", index, reason(e));
  }
  DeviceInfo info;
  info.name = properties.name;
  info.index = static_cast<std::uint32_t>(index);
  info.major = static_cast<std::uint32_t>(properties.major);
  info.minor = static_cast<std::uint32_t>(properties.minor);
  info.multiprocessors = static_cast<std::uint32_t>(properties.multiProcessorCount);
  info.bandwidth = bandwidth_of(index);
  std::size_t free = 0, total = 0;
  cudaError_t e = cudaSetDevice(index);
  if (e == cudaSuccess) e = cudaMemGetInfo(&free, &total);
  if (e != cudaSuccess) return failed("CUDA device {} ({}): {}", index, info.name, reason(e));
  info.free_bytes = free;
  info.total_bytes = total;
  return info;
}

}  // namespace

Result<std::vector<DeviceInfo>> list_devices() {
  int count = 0;
  const cudaError_t e = cudaGetDeviceCount(&count);
  if (e == cudaErrorInsufficientDriver) {
    int driver = 0;
    if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
      return failed("no NVIDIA driver found");
    }
    return failed("the NVIDIA driver supports CUDA {}.{}, this program needs {}.{} or a newer one",
                  driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000,
                  CUDART_VERSION % 1000 / 10);
  }
  if (e == cudaErrorNoDevice || (e == cudaSuccess && count == 0))
    return failed("no CUDA device found");
  if (e != cudaSuccess) return failed("CUDA cannot be used: {}", reason(e));
  std::vector<DeviceInfo> devices;
  for (int i = 0; i < count; ++i) {
    SLUICE_ASSIGN_OR_RETURN(DeviceInfo info, describe(i));
    devices.push_back(std::move(info));
  }
  return devices;
}

Device::Device(DeviceInfo info, std::unique_ptr<State> state)
    : info_(std::move(info)), state_(std::move(state)) {}

Device::~Device() {
  if (state_->stream != nullptr) cudaStreamDestroy(state_->stream);
}

Result<std::unique_ptr<Device>> Device::open(std::uint32_t index) {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<DeviceInfo> devices, list_devices());
  if (index >= devices.size()) {
    return make_error(ErrorCode::kUsage, "CUDA device {} does not exist; this machine has {}",
                      index, devices.size());
  }
  auto state = std::make_unique<State>();
  state->index = static_cast<int>(index);
  cudaError_t e = cudaSetDevice(state->index);
  if (e == cudaSuccess) e = cudaStreamCreateWithFlags(&state->stream, cudaStreamNonBlocking);
  if (e != cudaSuccess) {
    return failed("CUDA device {} ({}) cannot be used: {}", index, devices[index].name, reason(e));
  }
  return std::unique_ptr<Device>(new Device(devices[index], std::move(state)));
}

Result<Memory> Device::allocate(const std::string& what, std::size_t bytes) {
  void* data = nullptr;
  cudaError_t e = cudaSetDevice(state_->index);
  if (e == cudaSuccess) e = cudaMalloc(&data, bytes == 0 ? 1 : bytes);
  if (e != cudaSuccess) {
    cudaGetLastError();  // an allocation that failed leaves no lasting error behind
    std::size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    return make_error(
        ErrorCode::kNoMemory,
        "the GPU has no room for {}: {:.0f} MiB are needed, {:.0f} MiB are free: {}; "
        "use fewer layers there (--gpu-layers), a smaller context (-c), or --device cpu",
        what, static_cast<double>(bytes) / (1 << 20), static_cast<double>(free) / (1 << 20),
        reason(e));
  }
  return Memory(static_cast<std::uint8_t*>(data), bytes,
                std::shared_ptr<void>(data, [](void* p) { cudaFree(p); }));
}

Result<HostMemory> Device::allocate_host(const std::string& what, std::size_t bytes) {
  void* data = nullptr;
  const cudaError_t e = cudaMallocHost(&data, bytes == 0 ? 1 : bytes);
  if (e != cudaSuccess) {
    cudaGetLastError();
    return make_error(ErrorCode::kNoMemory, "no pinned memory for {} ({:.0f} MiB): {}", what,
                      static_cast<double>(bytes) / (1 << 20), reason(e));
  }
  return HostMemory(static_cast<std::byte*>(data), bytes,
                    std::shared_ptr<void>(data, [](void* p) { cudaFreeHost(p); }));
}

void Device::upload(simt::Global<std::uint8_t> to, const void* from, std::size_t bytes) {
  state_->make_current();
  state_->note(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, state_->stream),
               "a copy to the GPU");
}

void Device::download(void* to, simt::Global<const std::uint8_t> from, std::size_t bytes) {
  state_->make_current();
  state_->note(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, state_->stream),
               "a copy from the GPU");
}

void Device::copy(simt::Global<std::uint8_t> to, simt::Global<const std::uint8_t> from,
                  std::size_t bytes) {
  state_->make_current();
  state_->note(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, state_->stream),
               "a copy within the GPU");
}

void Device::zero(simt::Global<std::uint8_t> to, std::size_t bytes) {
  state_->make_current();
  state_->note(cudaMemsetAsync(to, 0, bytes, state_->stream), "clearing memory");
}

Status Device::synchronize() {
  state_->make_current();
  state_->note(cudaStreamSynchronize(state_->stream), "a pass");
  if (state_->error == cudaSuccess) return {};
  return failed(
      "the GPU {} failed at {}: {}; what was written so far is kept. Start again, or use "
      "--device cpu",
      info_.name, state_->doing, reason(state_->error));
}

void Device::begin_graph() {
  state_->make_current();
  // Relaxed: a kernel's code may be loaded when it is first launched, here too.
  state_->note(cudaStreamBeginCapture(state_->stream, cudaStreamCaptureModeRelaxed),
               "recording a graph");
}

Result<Graph> Device::end_graph() {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t ready = nullptr;
  cudaError_t e = cudaStreamEndCapture(state_->stream, &graph);
  if (e == cudaSuccess) e = cudaGraphInstantiate(&ready, graph, 0);
  if (graph != nullptr) cudaGraphDestroy(graph);
  Graph result(std::shared_ptr<void>(ready, [](void* p) {
    if (p != nullptr) cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(p));
  }));
  state_->note(e, "recording a graph");
  if (state_->error != cudaSuccess) return synchronize().error();
  return result;
}

void Device::run(const Graph& graph) {
  state_->make_current();
  state_->note(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph.handle()), state_->stream),
               "launching a graph");
}

Result<double> Device::seconds(const Graph& graph) {
  state_->make_current();
  Event begin(*state_);
  Event end(*state_);
  run(graph);  // brings code and clocks to where they will be
  float best_ms = std::numeric_limits<float>::infinity();
  for (int i = 0; i < kTimedRuns; ++i) {
    begin.record(*state_);
    run(graph);
    end.record(*state_);
    SLUICE_RETURN_IF_ERROR(synchronize());
    float ms = 0;
    state_->note(cudaEventElapsedTime(&ms, begin.get(), end.get()), "timing a graph");
    best_ms = std::min(best_ms, ms);
  }
  SLUICE_RETURN_IF_ERROR(synchronize());
  return best_ms / 1e3;
}

void queue_kernel(Device& device, const void* kernel, const LaunchShape& shape, void* args) {
  if (shape.blocks == 0) return;
  Device::State& state = device.state();
  if (shape.blocks > kMostBlocks) {
    state.note(cudaErrorInvalidConfiguration, "a grid beyond the limit");
    return;
  }
  state.make_current();
  if (shape.shared_bytes > kUnaskedShared) {
    state.note(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    shape.shared_bytes),
               "asking for shared memory");
  }
  // Kernels wait for the one before by themselves, where the chip can do that (sm_90 and later).
  cudaLaunchAttribute overlap{};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(shape.blocks));
  config.blockDim = dim3(static_cast<unsigned>(shape.threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(shape.shared_bytes);
  config.stream = state.stream;
  config.attrs = &overlap;
  config.numAttrs = device.info().major >= 9 ? 1 : 0;
  void* list[] = {args};
  state.note(cudaLaunchKernelExC(&config, kernel, list), "launching a kernel");
}

}  // namespace sluice::cuda

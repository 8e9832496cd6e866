// The device of cuda/host/runtime.h as the emulator: what is queued runs at once, block after
// block; memory knows its bounds and what has been written.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include "cuda/host/queue.h"
#include "cuda/host/runtime.h"
#include "tests/simt/block.h"
#include "tests/simt/runtime_emulated.h"

namespace sluice::cuda {

struct Device::State {
  std::string error;
  bool recording = false;
  std::vector<std::function<void()>> recorded;
  std::size_t launches = 0;

  void note(const std::string& text) {
    if (error.empty()) error = text;
  }
};

namespace {
EmulatedMachine machine_of_environment() {
  EmulatedMachine machine;
  if (const char* launch = std::getenv("SLUICE_EMULATED_FAIL_AT_LAUNCH")) {
    machine.fail_at_launch = std::strtoull(launch, nullptr, 10);
  }
  return machine;
}
EmulatedMachine machine = machine_of_environment();  // tests change it

// Bytes taken on each device, by all who have it open; kept alive by what was taken.
std::shared_ptr<std::uint64_t> taken_on(std::uint32_t device) {
  static std::map<std::uint32_t, std::shared_ptr<std::uint64_t>> taken;
  std::shared_ptr<std::uint64_t>& entry = taken[device];
  if (!entry) entry = std::make_shared<std::uint64_t>(0);
  return entry;
}
}  // namespace

EmulatedMachine& emulated_machine() { return machine; }

Result<std::vector<DeviceInfo>> list_devices() {
  if (machine.devices == 0) return failed("{}", machine.why_none);
  std::vector<DeviceInfo> devices;
  for (std::uint32_t i = 0; i < machine.devices; ++i) {
    devices.push_back({.name = "emulated GPU",
                       .index = i,
                       .major = machine.major,
                       .minor = 0,
                       .multiprocessors = 4,
                       .total_bytes = machine.bytes,
                       .free_bytes = machine.bytes - std::min(machine.bytes, *taken_on(i)),
                       .bandwidth = machine.bandwidth});
  }
  return devices;
}

Device::Device(DeviceInfo info, std::unique_ptr<State> state)
    : info_(std::move(info)), state_(std::move(state)) {}
Device::~Device() = default;

Result<std::unique_ptr<Device>> Device::open(std::uint32_t index) {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<DeviceInfo> devices, list_devices());
  if (index >= devices.size()) {
    return make_error(ErrorCode::kUsage, "CUDA device {} does not exist; this machine has {}",
                      index, devices.size());
  }
  return std::unique_ptr<Device>(new Device(devices[index], std::make_unique<State>()));
}

Result<Memory> Device::allocate(const std::string& what, std::size_t bytes) {
  const auto taken = taken_on(info_.index);
  if (*taken + bytes > info_.total_bytes) {
    return make_error(ErrorCode::kNoMemory, "the GPU has no room for {}: {} bytes are needed", what,
                      bytes);
  }
  *taken += bytes;
  const std::shared_ptr<simt::Buffer> buffer(new simt::Buffer(what, bytes == 0 ? 1 : bytes),
                                             [taken, bytes](simt::Buffer* gone) {
                                               *taken -= bytes;
                                               delete gone;
                                             });
  return Memory(buffer->pointer<std::uint8_t>(), bytes, buffer);
}

Result<HostMemory> Device::allocate_host(const std::string&, std::size_t bytes) {
  auto data = std::make_shared<std::vector<std::byte>>(bytes);
  return HostMemory(data->data(), bytes, data);
}

void Device::upload(simt::Global<std::uint8_t> to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  to.buffer()->write(static_cast<std::size_t>(to.offset()), from, bytes);
}

void Device::download(void* to, simt::Global<const std::uint8_t> from, std::size_t bytes) {
  const auto begin = static_cast<std::size_t>(from.offset());
  if (bytes == 0 || !state_->error.empty()) return;
  if (const auto at = from.buffer()->first_unwritten(begin, begin + bytes)) {
    state_->note(fmt::format("byte {} of {} is read by the host and was never written", *at,
                             from.buffer()->name()));
    return;
  }
  from.buffer()->read_bytes(begin, to, bytes);
}

void Device::copy(simt::Global<std::uint8_t> to, simt::Global<const std::uint8_t> from,
                  std::size_t bytes) {
  std::vector<std::byte> data(bytes);
  download(data.data(), from, bytes);
  upload(to, data.data(), bytes);
}

void Device::zero(simt::Global<std::uint8_t> to, std::size_t bytes) {
  const std::vector<std::byte> zeros(bytes);
  upload(to, zeros.data(), bytes);
}

Status Device::synchronize() {
  if (state_->error.empty()) return {};
  return failed(
      "the GPU {} failed: {}; what was written so far is kept. Start again, or use "
      "--device cpu",
      info_.name, state_->error);
}

void Device::begin_graph() {
  state_->recording = true;
  state_->recorded.clear();
}

Result<Graph> Device::end_graph() {
  state_->recording = false;
  return Graph(
      std::make_shared<std::vector<std::function<void()>>>(std::exchange(state_->recorded, {})));
}

void Device::run(const Graph& graph) {
  for (const auto& step : *static_cast<std::vector<std::function<void()>>*>(graph.handle())) step();
}

Result<double> Device::seconds(const Graph& graph) {
  if (machine.runs_what_it_times) run(graph);
  SLUICE_RETURN_IF_ERROR(synchronize());
  if (machine.time_of) return machine.time_of();
  machine.clock += 0x9e3779b97f4a7c15u;  // SplitMix64
  std::uint64_t mixed = machine.clock;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
  return 1e-6 * static_cast<double>(mixed >> 60);
}

void queue_emulated(Device& device, const LaunchShape& shape, std::function<void()> body) {
  Device::State& state = device.state();
  const auto step = [&state, shape, body = std::move(body)] {
    if (shape.blocks == 0 || !state.error.empty()) return;
    if (machine.fail_at_launch != 0 && ++state.launches >= machine.fail_at_launch) {
      state.note("it was lost");
      return;
    }
    const simt::Shape grid = {.blocks = static_cast<std::uint32_t>(shape.blocks),
                              .threads = static_cast<std::uint32_t>(shape.threads),
                              .shared_bytes = static_cast<std::size_t>(shape.shared_bytes),
                              .overlaps = true};
    state.note(simt::run(grid, body));
  };
  if (state.recording) {
    state.recorded.push_back(step);
  } else {
    step();
  }
}

}  // namespace sluice::cuda

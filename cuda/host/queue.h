// How a kernel gets into a device's queue; behind it is CUDA or the emulator.
#pragma once

#include <cstdint>
#include <functional>

namespace sluice::cuda {

class Device;

struct LaunchShape {
  std::int64_t blocks = 1;  // nothing is launched where it is 0
  std::int32_t threads = 32;
  std::int32_t shared_bytes = 0;  // dynamic; kernels call simt::wait_for_previous()
};

// CUDA: `kernel` is the kernel's address, `args` that of its one argument.
void queue_kernel(Device& device, const void* kernel, const LaunchShape& shape, void* args);
// The emulator: `body` is what each thread does.
void queue_emulated(Device& device, const LaunchShape& shape, std::function<void()> body);

}  // namespace sluice::cuda

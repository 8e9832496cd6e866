#include "cuda/pack.h"
#include "tools/gpu_bench/bench.h"

namespace sluice::cuda {

Result<Memory> random_memory(Device& device, std::size_t bytes) {
  SLUICE_ASSIGN_OR_RETURN(Memory memory, device.allocate("random numbers", bytes));
  std::vector<std::uint8_t> host(bytes);
  std::uint64_t state = 1;
  for (std::uint8_t& byte : host) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    byte = static_cast<std::uint8_t>(state & 0x3f);
  }
  device.upload(memory.at<std::uint8_t>(), host.data(), bytes);
  SLUICE_RETURN_IF_ERROR(device.synchronize());
  return memory;
}

Result<std::vector<DeviceMatrix>> made_up_matrices(Device& device, BlockType type,
                                                   std::uint32_t rows, std::uint32_t cols,
                                                   std::size_t count) {
  const std::size_t bytes = packed_bytes(type, rows, cols);
  std::vector<DeviceMatrix> matrices;
  for (std::size_t i = 0; i < count; ++i) {
    DeviceMatrix matrix{type, rows, cols, 0, {}};
    if (i == 0) {
      SLUICE_ASSIGN_OR_RETURN(matrix.memory, random_memory(device, bytes));
    } else {
      SLUICE_ASSIGN_OR_RETURN(matrix.memory, device.allocate("weights", bytes));
      device.copy(matrix.memory.at<std::uint8_t>(),
                  matrices.front().memory.at<const std::uint8_t>(), bytes);
    }
    matrices.push_back(std::move(matrix));
  }
  SLUICE_RETURN_IF_ERROR(device.synchronize());
  return matrices;
}

std::vector<const DeviceMatrix*> pointers(const std::vector<DeviceMatrix>& matrices) {
  std::vector<const DeviceMatrix*> all;
  for (const DeviceMatrix& matrix : matrices) all.push_back(&matrix);
  return all;
}

}  // namespace sluice::cuda

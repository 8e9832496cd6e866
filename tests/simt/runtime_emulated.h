// The machine that the emulated runtime pretends to be.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace sluice::cuda {

struct EmulatedMachine {
  std::uint32_t devices = 1;
  std::uint64_t bytes = std::uint64_t{1} << 32;  // of each device
  std::string why_none = "no NVIDIA driver found";
  std::uint64_t fail_at_launch = 0;  // the device is lost at its n-th launch; 0: never
  std::uint32_t major = 8;           // compute capability
  double bandwidth = 1e12;           // bytes a second
  // Nothing takes time here. What Device::seconds() says are random numbers, the same in each run
  // of a program, so that tests meet all choices that depend on times; tokens must not.
  std::uint64_t clock = 1;
  bool runs_what_it_times = false;
  // In place of random numbers: the time of the next graph.
  std::function<double()> time_of;
};

// The program's own has, where SLUICE_EMULATED_FAIL_AT_LAUNCH is set, that number for
// fail_at_launch.
EmulatedMachine& emulated_machine();

}  // namespace sluice::cuda

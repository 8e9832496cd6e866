#include "tests/simt/fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <stdexcept>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace sluice::simt {
namespace {

// AddressSanitizer must hear of every change of stack.
void announce_switch([[maybe_unused]] void** save, [[maybe_unused]] const void* bottom,
                     [[maybe_unused]] std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(save, bottom, bytes);
#endif
}
void announce_arrival([[maybe_unused]] void* saved, [[maybe_unused]] const void** bottom,
                      [[maybe_unused]] std::size_t* bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(saved, bottom, bytes);
#endif
}

}  // namespace

FiberStacks::FiberStacks(std::size_t count)
    : count_(count),
      base_(static_cast<std::byte*>(mmap(nullptr, count * kBytes, PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {
  if (base_ == MAP_FAILED) throw std::runtime_error("no memory for the stacks of fibers");
}

FiberStacks::~FiberStacks() { munmap(base_, count_ * kBytes); }

// makecontext passes ints only: the pointer travels in two halves.
void Fiber::begin(unsigned low, unsigned high) {
  const auto address = static_cast<std::uintptr_t>(low) | (static_cast<std::uintptr_t>(high) << 32);
  auto* fiber = reinterpret_cast<Fiber*>(address);  // NOLINT(performance-no-int-to-ptr)
  announce_arrival(nullptr, &fiber->outside_stack_, &fiber->outside_bytes_);
  fiber->entry_(fiber->argument_);
  std::abort();  // entry came back
}

void Fiber::prepare(std::byte* stack, void (*entry)(void*), void* argument) {
  entry_ = entry;
  argument_ = argument;
  stack_ = stack;
  fake_stack_ = nullptr;
  getcontext(&inside_);
  inside_.uc_stack.ss_sp = stack;
  inside_.uc_stack.ss_size = FiberStacks::kBytes;
  inside_.uc_link = nullptr;
  const auto address = reinterpret_cast<std::uintptr_t>(this);
  makecontext(&inside_, reinterpret_cast<void (*)()>(&Fiber::begin), 2,
              static_cast<unsigned>(address), static_cast<unsigned>(address >> 32));
}

void Fiber::enter() {
  void* fake_stack = nullptr;
  announce_switch(&fake_stack, stack_, FiberStacks::kBytes);
  swapcontext(&outside_, &inside_);
  announce_arrival(fake_stack, nullptr, nullptr);
}

void Fiber::switch_back(bool for_good) {
  announce_switch(for_good ? nullptr : &fake_stack_, outside_stack_, outside_bytes_);
  swapcontext(&inside_, &outside_);
  announce_arrival(fake_stack_, &outside_stack_, &outside_bytes_);
}

void Fiber::leave() { switch_back(false); }

void Fiber::leave_for_good() {
  switch_back(true);
  std::abort();  // entered again
}

}  // namespace sluice::simt

// A fiber: a function with a stack of its own that gives up control where it wants to and goes on
// from there when it is entered again. One fiber runs at a time, all on the caller's thread.
//
// Tests of kernels change fibers millions of times. ucontext asks the kernel for the signal mask
// each time, so on x86-64 and AArch64 a few instructions of our own do it; other machines have
// ucontext.
#pragma once

#include <cstddef>

#if defined(__x86_64__) || defined(__aarch64__)
#define SLUICE_FIBER_SWITCH
#else
#include <ucontext.h>
#endif

namespace sluice::simt {

// Memory for the stacks of some fibers.
class FiberStacks {
 public:
  static constexpr std::size_t kBytes = 128 * 1024;
  explicit FiberStacks(std::size_t count);
  FiberStacks(const FiberStacks&) = delete;
  FiberStacks& operator=(const FiberStacks&) = delete;
  ~FiberStacks();
  std::byte* stack(std::size_t i) const { return base_ + i * kBytes; }

 private:
  std::size_t count_;
  std::byte* base_;
};

class Fiber {
 public:
  Fiber() = default;
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  ~Fiber();

  // Makes `entry(argument)` what the next enter() begins. `stack` has FiberStacks::kBytes, begins
  // at a multiple of 16 and outlives the fiber, which may be given up at any time by never entering
  // it again. `entry` must not return; its last act is leave_for_good().
  void prepare(std::byte* stack, void (*entry)(void*), void* argument);

  void enter();  // runs the fiber until it leaves
  void leave();  // inside the fiber: back to who entered
  [[noreturn]] void leave_for_good();

 private:
#if defined(SLUICE_FIBER_SWITCH)
  using Context = void*;  // where the stack ends on which the registers are saved
#else
  using Context = ucontext_t;
  static void begin_halves(unsigned low, unsigned high);
#endif

  static void begin(Fiber* fiber);
  void prepare_context();
  void switch_contexts(Context& from, Context& to);
  void switch_back(bool for_good);

  Context inside_ = {};
  Context outside_ = {};
  void (*entry_)(void*) = nullptr;
  void* argument_ = nullptr;
  std::byte* stack_ = nullptr;
  // What AddressSanitizer wants to know about the stacks, and ThreadSanitizer's names for them.
  void* fake_stack_ = nullptr;
  const void* outside_stack_ = nullptr;
  std::size_t outside_bytes_ = 0;
  void* tsan_inside_ = nullptr;
  void* tsan_outside_ = nullptr;
};

}  // namespace sluice::simt

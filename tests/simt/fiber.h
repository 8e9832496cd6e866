// A fiber: a function with a stack of its own that gives up control where it wants to and goes on
// from there when it is entered again. One fiber runs at a time, all on the caller's thread.
#pragma once

#include <ucontext.h>

#include <cstddef>

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
  // Makes `entry(argument)` what the next enter() begins. `stack` has FiberStacks::kBytes and
  // outlives the fiber, which may be given up at any time by never entering it again. `entry` must
  // not return; its last act is leave_for_good().
  void prepare(std::byte* stack, void (*entry)(void*), void* argument);

  void enter();  // runs the fiber until it leaves
  void leave();  // inside the fiber: back to who entered
  [[noreturn]] void leave_for_good();

 private:
  static void begin(unsigned low, unsigned high);
  void switch_back(bool for_good);

  ucontext_t inside_;
  ucontext_t outside_;
  void (*entry_)(void*) = nullptr;
  void* argument_ = nullptr;
  std::byte* stack_ = nullptr;
  // What AddressSanitizer wants to know about the stacks.
  void* fake_stack_ = nullptr;
  const void* outside_stack_ = nullptr;
  std::size_t outside_bytes_ = 0;
};

}  // namespace sluice::simt

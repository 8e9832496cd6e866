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

class Fiber {
 public:
  Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  ~Fiber();

  // Makes `entry(argument)` what the next enter() begins. What a fiber was doing that has not
  // returned is given up, without any destructors. When `entry` returns, the fiber has left and
  // must be prepared again.
  void prepare(void (*entry)(void*), void* argument);

  void enter();  // runs the fiber until it leaves
  void leave();  // inside the fiber: back to who entered

 private:
#if defined(SLUICE_FIBER_SWITCH)
  using Context = void*;  // where the stack ends on which the registers are saved
#else
  using Context = ucontext_t;
  static void begin_halves(unsigned low, unsigned high);
#endif

  static void begin(Fiber* fiber);
  [[noreturn]] void run_entries();
  void prepare_context();
  void switch_contexts(Context& from, Context& to);

  Context inside_ = {};
  Context outside_ = {};
  void (*entry_)(void*) = nullptr;
  void* argument_ = nullptr;
  std::byte* stack_;
  bool waits_for_entry_ = false;  // inside: entering it runs entry_
  // What AddressSanitizer wants to know about the stacks, and ThreadSanitizer's names for them.
  void* fake_stack_ = nullptr;
  const void* outside_stack_ = nullptr;
  std::size_t outside_bytes_ = 0;
  void* tsan_inside_ = nullptr;
  void* tsan_outside_ = nullptr;
};

}  // namespace sluice::simt

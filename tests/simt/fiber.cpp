#include "tests/simt/fiber.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <stdexcept>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

#if defined(SLUICE_FIBER_SWITCH)

// Saves on the stack what a function must keep for its caller, and the stack pointer in *save; then
// goes on with what was saved at `load`. A new fiber's stack looks as if it had been saved: see
// prepare_context(). `argument` arrives as the first argument of what begins there.
//
// The modes of floating point are not saved: nobody changes them.
extern "C" void sluice_switch_stack(void** save, void* load, void* argument);

#if defined(__x86_64__)
// saved = | r15 | r14 | r13 | r12 | rbx | rbp | where to go on |
asm(R"(
  .pushsection .text
  .balign 16
  .hidden sluice_switch_stack
  .globl sluice_switch_stack
  .type sluice_switch_stack, @function
sluice_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  movq %rdx, %rdi
  retq
  .size sluice_switch_stack, .-sluice_switch_stack
  .popsection
)");
#else
// saved = | x19 to x28 | x29 | x30: where to go on | d8 to d15 |
asm(R"(
  .pushsection .text
  .balign 16
  .hidden sluice_switch_stack
  .globl sluice_switch_stack
  .type sluice_switch_stack, %function
sluice_switch_stack:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  mov x0, x2
  ret
  .size sluice_switch_stack, .-sluice_switch_stack

  // A new fiber begins what is in x19, which has nowhere to return to.
  .hidden sluice_begin_stack
  .globl sluice_begin_stack
  .type sluice_begin_stack, %function
sluice_begin_stack:
  mov x16, x19
  mov x29, xzr
  mov x30, xzr
  br x16
  .size sluice_begin_stack, .-sluice_begin_stack
  .popsection
)");
extern "C" void sluice_begin_stack();
#endif
#endif

namespace sluice::simt {
namespace {

constexpr std::size_t kStackBytes = 128 * 1024;

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

// And ThreadSanitizer, which keeps a stack of calls for each.
void* tsan_current() {
#if defined(__SANITIZE_THREAD__)
  return __tsan_get_current_fiber();
#else
  return nullptr;
#endif
}
void tsan_switch([[maybe_unused]] void* to) {
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(to, 0);
#endif
}
void* tsan_replace([[maybe_unused]] void* old, [[maybe_unused]] bool make) {
#if defined(__SANITIZE_THREAD__)
  if (old != nullptr) __tsan_destroy_fiber(old);
  if (make) return __tsan_create_fiber(0);
#endif
  return nullptr;
}
// Frames that were given up in the middle leave marks that nobody must find there.
void forget_frames([[maybe_unused]] std::byte* stack) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(stack, kStackBytes);
#endif
}

}  // namespace

Fiber::Fiber()
    : stack_(static_cast<std::byte*>(mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {
  if (stack_ == MAP_FAILED) throw std::runtime_error("no memory for the stack of a fiber");
}

Fiber::~Fiber() {
  forget_frames(stack_);
  tsan_replace(tsan_inside_, false);
  munmap(stack_, kStackBytes);
}

void Fiber::begin(Fiber* fiber) { fiber->run_entries(); }

void Fiber::run_entries() {
  announce_arrival(nullptr, &outside_stack_, &outside_bytes_);
  for (;;) {
    waits_for_entry_ = false;
    entry_(argument_);
    waits_for_entry_ = true;
    leave();
  }
}

#if defined(SLUICE_FIBER_SWITCH)

void Fiber::prepare_context() {
  auto* top = reinterpret_cast<void**>(stack_ + kStackBytes);
  auto* first = reinterpret_cast<void*>(&Fiber::begin);
#if defined(__x86_64__)
  // Above what is saved lies the address to which begin() would return, and there is none. With it
  // the stack is aligned as after a call.
  void** saved = top - 8;
  std::fill(saved, top, nullptr);
  saved[6] = first;
#else
  void** saved = top - 20;
  std::fill(saved, top, nullptr);
  saved[0] = first;
  saved[11] = reinterpret_cast<void*>(&sluice_begin_stack);
#endif
  inside_ = saved;
}

void Fiber::switch_contexts(Context& from, Context& to) { sluice_switch_stack(&from, to, this); }

#else

// makecontext passes ints only: the pointer travels in two halves.
void Fiber::begin_halves(unsigned low, unsigned high) {
  const auto address = static_cast<std::uintptr_t>(low) |
                       static_cast<std::uintptr_t>(static_cast<std::uint64_t>(high) << 32);
  begin(reinterpret_cast<Fiber*>(address));  // NOLINT(performance-no-int-to-ptr)
}

void Fiber::prepare_context() {
  getcontext(&inside_);
  inside_.uc_stack.ss_sp = stack_;
  inside_.uc_stack.ss_size = kStackBytes;
  inside_.uc_link = nullptr;
  const std::uint64_t address = reinterpret_cast<std::uintptr_t>(this);
  makecontext(&inside_, reinterpret_cast<void (*)()>(&Fiber::begin_halves), 2,
              static_cast<unsigned>(address), static_cast<unsigned>(address >> 32));
}

void Fiber::switch_contexts(Context& from, Context& to) { swapcontext(&from, &to); }

#endif

void Fiber::prepare(void (*entry)(void*), void* argument) {
  entry_ = entry;
  argument_ = argument;
  if (waits_for_entry_) return;
  forget_frames(stack_);
  fake_stack_ = nullptr;
  tsan_inside_ = tsan_replace(tsan_inside_, true);
  prepare_context();
}

void Fiber::enter() {
  void* fake_stack = nullptr;
  announce_switch(&fake_stack, stack_, kStackBytes);
  tsan_outside_ = tsan_current();
  tsan_switch(tsan_inside_);
  switch_contexts(outside_, inside_);
  announce_arrival(fake_stack, nullptr, nullptr);
}

void Fiber::leave() {
  announce_switch(&fake_stack_, outside_stack_, outside_bytes_);
  tsan_switch(tsan_outside_);
  switch_contexts(inside_, outside_);
  announce_arrival(fake_stack_, &outside_stack_, &outside_bytes_);
}

}  // namespace sluice::simt

// What is special about device code, behind names of our own, so that one kernel source serves two
// compilers: nvcc makes GPU code of it (cuda/simt_device.h: intrinsics and PTX), and the host's
// compiler makes ordinary C++ of it that the emulator runs and checks (tests/simt/host.h, where
// SLUICE_SIMT_EMULATED is defined). Host code that only hands pointers on to a real GPU gets
// Global<T>, cast and is_null, and no more.
//
// A kernel touches memory through these functions alone; that is what lets the emulator see every
// access. The first two headers provide, in namespace sluice::simt:
//
//   Global<T>, Shared<T>      pointers; p + n counts in T, cast<U>(p) reinterprets
//   is_null(p)                of a Global
//   dynamic_shared()          the block's shared memory, 16-byte aligned
//   load(p), store(p, v)      one scalar, at its natural alignment
//   load_words(p)             16 bytes at a multiple of 16 as four 32-bit words
//   store_words(p, w)         the reverse
//   block_index(), thread_index(), lane(), warp()
//   wait_for_previous()       a kernel may begin while the one before it in the queue still
//                             runs (programmatic dependent launch); until this has returned it
//                             may only read what no kernel writes. Lets the next one begin.
//   sync_threads(), sync_warp(mask)
//   arrive_last(counter, n)   for all threads of a block: whether it is the last of n blocks of the
//                             grid to come here with this counter, a word that is 0 before and
//                             after. It sees what the other blocks wrote before they came; nothing
//                             else orders blocks of a grid.
//   shuffle_xor(mask, v, lanes), shuffle(mask, v, lane), ballot(mask, condition)
//   dp4a(a, b, c)             c + the four products of signed bytes
//   byte_permute(a, b, s)     byte i is number n of the eight bytes of a (0-3) and b (4-7), where
//                             n is the low three bits of nibble i of s; if the nibble's fourth
//                             bit is set, that byte's sign eight times (PTX ISA, prmt)
//   load_matrices_x4(p)       ldmatrix: lane L names row L % 8 (16 bytes) of matrix L / 8;
//                             word i of lane (g, t) is word t of row g of matrix i
//   load_matrices_x2(p)       the same with lanes 0-15 and two words
//   mma_s8(c, a, b)           mma.sync m16n8k32, signed bytes, c += a * b
//   mma_s8_k16(c, a, b)       mma.sync m16n8k16: the same with a[0], a[1] and b[0] alone
//   copy_async_16(to, p, n)   cp.async of 16 bytes to shared memory; n says how many are
//                             read: 16, or 0, and then zeros arrive
//   copy_async_4(to, p, n)    the same with 4 bytes
//   commit_async()            closes a group of this thread's copies
//   wait_async<N>()           waits for all but the N latest groups of this thread. Others
//                             may look only after a barrier that follows the wait.
//   fma(a, b, c), half_to_float(bits), float_bits(f), float_of_bits(bits)
//   float_to_half(f)          bits, rounded to nearest even
//   square_root(x)            correctly rounded
//
// Lane numbers in fragments: g = lane / 4, t = lane % 4. Of mma_s8 (PTX ISA, "Matrix Fragments for
// mma.m16n8k32", .s8): a word holds four consecutive k, the first in the low byte.
//
//   a[0]: row g,     k 4t..        b[0]: k 4t..,    column g
//   a[1]: row g + 8, k 4t..        b[1]: k 16+4t.., column g
//   a[2]: row g,     k 16+4t..     c[0], c[1]: row g,     columns 2t, 2t + 1
//   a[3]: row g + 8, k 16+4t..     c[2], c[3]: row g + 8, columns 2t, 2t + 1
//
// Floating point: kernels are compiled without fused operations and without flushing of denormals,
// so that an expression means the same on both sides; fma is written where it is meant.
#pragma once

#include <cstdint>

// SIMT_KERNEL(threads of a block) or SIMT_KERNEL(threads, blocks on a multiprocessor at least).
#if defined(__CUDACC__)
#define SIMT_DEVICE __device__ __forceinline__
#define SIMT_ANYWHERE __host__ __device__ constexpr
#define SIMT_KERNEL(...) __global__ void __launch_bounds__(__VA_ARGS__)
#define SIMT_UNROLL _Pragma("unroll")
#define SIMT_NO_UNROLL _Pragma("unroll 1")
#else
#define SIMT_DEVICE inline
#define SIMT_ANYWHERE constexpr
#define SIMT_KERNEL(...) inline void
#define SIMT_UNROLL
#define SIMT_NO_UNROLL
#endif

namespace sluice::simt {

inline constexpr std::uint32_t kAllLanes = 0xffffffffu;

// Four 32-bit words that travel together: one 16-byte load, or a fragment.
struct alignas(16) Words {
  std::uint32_t word[4];
};

}  // namespace sluice::simt

#if defined(__CUDACC__)
#include "cuda/simt_device.h"
#elif defined(SLUICE_SIMT_EMULATED)
#include "tests/simt/host.h"
#else
namespace sluice::simt {
template <class T>
using Global = T*;
template <class U, class T>
U* cast(T* p) {
  return reinterpret_cast<U*>(p);
}
template <class T>
bool is_null(const T* p) {
  return p == nullptr;
}
}  // namespace sluice::simt
#endif

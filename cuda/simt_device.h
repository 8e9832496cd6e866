// The primitives of cuda/simt.h for nvcc. Include that header, not this one.
// Section names are those of the PTX ISA manual.
#pragma once

#include <cstdint>

namespace sluice::simt {

template <class T>
using Global = T*;
template <class T>
using Shared = T*;

template <class U, class T>
SIMT_DEVICE U* cast(T* p) {
  return reinterpret_cast<U*>(p);
}

template <class T>
SIMT_ANYWHERE bool is_null(const T* p) {
  return p == nullptr;
}

SIMT_DEVICE std::uint8_t* dynamic_shared() {
  extern __shared__ __align__(16) std::uint8_t sluice_dynamic_shared[];
  return sluice_dynamic_shared;
}

template <class T>
SIMT_DEVICE T load(const T* p) {
  return *p;
}
template <class T>
SIMT_DEVICE void store(T* p, T value) {
  *p = value;
}
template <class T>
SIMT_DEVICE Words load_words(const T* p) {
  const uint4 v = *reinterpret_cast<const uint4*>(p);
  return {{v.x, v.y, v.z, v.w}};
}
template <class T>
SIMT_DEVICE void store_words(T* p, const Words& w) {
  *reinterpret_cast<uint4*>(p) = make_uint4(w.word[0], w.word[1], w.word[2], w.word[3]);
}

SIMT_DEVICE std::uint32_t block_index() { return blockIdx.x; }
SIMT_DEVICE std::uint32_t thread_index() { return threadIdx.x; }
SIMT_DEVICE std::uint32_t lane() { return threadIdx.x % 32; }
SIMT_DEVICE std::uint32_t warp() { return threadIdx.x / 32; }

// "Parallel Synchronization and Communication Instructions: griddepcontrol" (sm_90 and up).
SIMT_DEVICE void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

SIMT_DEVICE void sync_threads() { __syncthreads(); }
// What the block's threads wrote comes before the first thread's fence by the barrier, and so
// before its addition; what the last block reads comes after its fence in the same way ("Memory
// Consistency Model", causality order).
SIMT_DEVICE bool arrive_last(Global<std::uint32_t> counter, std::uint32_t count) {
  __syncthreads();
  bool last = false;
  if (threadIdx.x == 0) {
    __threadfence();
    last = atomicAdd(counter, 1u) == count - 1;
    if (last) *counter = 0;
    __threadfence();
  }
  return __syncthreads_or(last ? 1 : 0) != 0;
}
SIMT_DEVICE void sync_warp(std::uint32_t mask = kAllLanes) { __syncwarp(mask); }
SIMT_DEVICE std::uint32_t shuffle_xor(std::uint32_t mask, std::uint32_t value,
                                      std::uint32_t lanes) {
  return __shfl_xor_sync(mask, value, static_cast<int>(lanes));
}
SIMT_DEVICE std::uint32_t shuffle(std::uint32_t mask, std::uint32_t value, std::uint32_t from) {
  return __shfl_sync(mask, value, static_cast<int>(from));
}
SIMT_DEVICE std::uint32_t ballot(std::uint32_t mask, bool condition) {
  return __ballot_sync(mask, condition);
}

SIMT_DEVICE std::int32_t dp4a(std::uint32_t a, std::uint32_t b, std::int32_t c) {
  return __dp4a(static_cast<int>(a), static_cast<int>(b), c);
}

// "Data Movement and Conversion Instructions: prmt", in its default mode.
SIMT_DEVICE std::uint32_t byte_permute(std::uint32_t a, std::uint32_t b, std::uint32_t selector) {
  std::uint32_t d;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(selector));
  return d;
}

SIMT_DEVICE std::uint32_t shared_address(const void* p) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}

// "Warp-level Matrix Load Instruction: ldmatrix" (sm_75 and up).
template <class T>
SIMT_DEVICE Words load_matrices_x4(const T* row) {
  Words w;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(w.word[0]), "=r"(w.word[1]), "=r"(w.word[2]), "=r"(w.word[3])
               : "r"(shared_address(row))
               : "memory");
  return w;
}
template <class T>
SIMT_DEVICE Words load_matrices_x2(const T* row) {
  Words w = {};
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(w.word[0]), "=r"(w.word[1])
               : "r"(shared_address(row))
               : "memory");
  return w;
}

// "Multiply-and-Accumulate Instruction: mma".
SIMT_DEVICE void mma_s8(std::int32_t (&c)[4], const std::uint32_t (&a)[4],
                        const std::uint32_t (&b)[2]) {
#if __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  // sm_75 has m8n8k16 only, whose fragments are the quarters of the larger one ("Matrix Fragments
  // for mma.m8n8k16"): two row halves times two halves of k.
  for (int half = 0; half < 2; ++half) {
    for (int k = 0; k < 2; ++k) {
      asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};"
                   : "+r"(c[2 * half]), "+r"(c[2 * half + 1])
                   : "r"(a[half + 2 * k]), "r"(b[k]));
    }
  }
#endif
}

// "Matrix Fragments for mma.m16n8k16 with integer type".
SIMT_DEVICE void mma_s8_k16(std::int32_t (&c)[4], const std::uint32_t (&a)[2], std::uint32_t b) {
#if __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
      "{%0, %1, %2, %3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(b));
#else
  for (int half = 0; half < 2; ++half) {
    asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};"
                 : "+r"(c[2 * half]), "+r"(c[2 * half + 1])
                 : "r"(a[half]), "r"(b));
  }
#endif
}

// "Data Movement and Conversion Instructions: cp.async". sm_75 has no asynchronous copy: there the
// thread copies at once, and waiting has nothing to do.
template <class T, class U>
SIMT_DEVICE void copy_async_16(T* to, const U* from, std::uint32_t bytes) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
               "l"(__cvta_generic_to_global(from)), "r"(bytes)
               : "memory");
#else
  store_words(to, bytes == 0 ? Words{} : load_words(from));
#endif
}
template <class T, class U>
SIMT_DEVICE void copy_async_4(T* to, const U* from, std::uint32_t bytes) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)),
               "l"(__cvta_generic_to_global(from)), "r"(bytes)
               : "memory");
#else
  *cast<std::uint32_t>(to) = bytes == 0 ? 0u : *cast<const std::uint32_t>(from);
#endif
}
SIMT_DEVICE void commit_async() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
template <int kLatest>
SIMT_DEVICE void wait_async() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(kLatest) : "memory");
#endif
}

SIMT_DEVICE float fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
SIMT_DEVICE float square_root(float x) { return __fsqrt_rn(x); }
SIMT_DEVICE std::uint32_t float_bits(float f) { return __float_as_uint(f); }
SIMT_DEVICE float float_of_bits(std::uint32_t bits) { return __uint_as_float(bits); }
SIMT_DEVICE float half_to_float(std::uint16_t bits) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(bits));
  return f;
}
SIMT_DEVICE std::uint16_t float_to_half(float f) {
  std::uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(f));
  return bits;
}

}  // namespace sluice::simt

// The table for machines with AVX-512 F, BW, VL, DQ and VNNI; matrices and attention use the wide
// vectors, the rest is as for AVX2. The test of emulated kernels compiles this unit against SIMDe.
#include "src/backend/cpu/avx2_isa.h"
#include "src/backend/cpu/avx512_isa.h"
#include "src/backend/cpu/simd_attention.h"
#include "src/backend/cpu/simd_matmul.h"
#include "src/backend/cpu/simd_tables.h"
#include "src/backend/cpu/simd_vectors.h"

namespace sluice::cpu {
namespace {

bool avx512_supported() {
  const bool narrow = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                      __builtin_cpu_supports("f16c");
#ifdef SLUICE_EMULATE_SIMD
  return narrow;
#else
  return narrow && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vnni");
#endif
}

}  // namespace

#ifdef SLUICE_EMULATE_SIMD
const Kernels kEmulatedAvx512Kernels = {
#else
const Kernels kAvx512Kernels = {
#endif
    .name = "avx512",
    .supported = avx512_supported,
    .quantize_rows = quantize_rows,
    .matmul = matmul<Avx512>,
    .matmul_float = matmul_float<Avx512>,
    .rms_norm = rms_norm,
    .silu_mul = silu_mul,
    .gelu_mul = gelu_mul,
    .add = add,
    .rope = rope,
    .store_kv = store_kv,
    .attention = attention<Avx512>,
    .softmax = softmax,
};

}  // namespace sluice::cpu

// The table for machines with AVX-512 F, BW, VL, DQ and VNNI; matrices and attention use the wide
// vectors, the rest is as for AVX2. The test of emulated kernels compiles this unit against SIMDe.
#include "src/backend/cpu/avx2_isa.h"
#include "src/backend/cpu/avx512_isa.h"
#include "src/backend/cpu/cpu_features.h"
#include "src/backend/cpu/simd_attention.h"
#include "src/backend/cpu/simd_matmul.h"
#include "src/backend/cpu/simd_peak.h"
#include "src/backend/cpu/simd_tables.h"
#include "src/backend/cpu/simd_vectors.h"

namespace sluice::cpu {

#ifdef SLUICE_EMULATE_SIMD
const Kernels kEmulatedAvx512Kernels = {
#else
const Kernels kAvx512Kernels = {
#endif
    .name = "avx512",
#ifdef SLUICE_EMULATE_SIMD
    .supported = avx2_supported,
#else
    .supported = avx512_supported,
#endif
    .quantize_rows = quantize_rows,
    .matmul = matmul<Avx512>,
    .matmul_float = matmul_float<Avx512>,
    .rms_norm = rms_norm,
    .silu_mul = silu_mul,
    .gelu_mul = gelu_mul,
    .add = add,
    .rope = rope,
    .store_kv = store_kv,
    .quantize_kv = quantize_kv,
    .attention = attention<Avx512>,
    .byte_products = byte_products<Avx512>,
    .softmax = softmax,
};

}  // namespace sluice::cpu

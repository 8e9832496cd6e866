// The table for machines with AVX2, FMA and F16C. Compiled for them: nothing here may run before
// `supported` says yes.
#include "src/backend/cpu/avx2_isa.h"
#include "src/backend/cpu/cpu_features.h"
#include "src/backend/cpu/simd_attention.h"
#include "src/backend/cpu/simd_matmul.h"
#include "src/backend/cpu/simd_peak.h"
#include "src/backend/cpu/simd_tables.h"
#include "src/backend/cpu/simd_vectors.h"

namespace sluice::cpu {

const Kernels kAvx2Kernels = {
    .name = "avx2",
    .supported = avx2_supported,
    .quantize_rows = quantize_rows,
    .matmul = matmul<Avx2>,
    .matmul_float = matmul_float<Avx2>,
    .rms_norm = rms_norm,
    .silu_mul = silu_mul,
    .gelu_mul = gelu_mul,
    .add = add,
    .rope = rope,
    .store_kv = store_kv,
    .quantize_kv = quantize_kv,
    .attention = attention<Avx2>,
    .byte_products = byte_products<Avx2>,
    .softmax = softmax,
};

}  // namespace sluice::cpu

// The table for machines with AVX2 and AVX-VNNI but no AVX-512: most processors of desktops and
// laptops since 2021. The test of emulated kernels compiles this unit against SIMDe.
#include "src/backend/cpu/avxvnni_isa.h"
#include "src/backend/cpu/cpu_features.h"
#include "src/backend/cpu/simd_attention.h"
#include "src/backend/cpu/simd_matmul.h"
#include "src/backend/cpu/simd_peak.h"
#include "src/backend/cpu/simd_tables.h"
#include "src/backend/cpu/simd_vectors.h"

namespace sluice::cpu {

#ifdef SLUICE_EMULATE_SIMD
const Kernels kEmulatedAvxVnniKernels = {
#else
const Kernels kAvxVnniKernels = {
#endif
    .name = "avxvnni",
#ifdef SLUICE_EMULATE_SIMD
    .supported = avx2_supported,
#else
    .supported = avxvnni_supported,
#endif
    .quantize_rows = quantize_rows,
    .matmul = matmul<AvxVnni>,
    .matmul_float = matmul_float<AvxVnni>,
    .rms_norm = rms_norm,
    .silu_mul = silu_mul,
    .gelu_mul = gelu_mul,
    .add = add,
    .rope = rope,
    .store_kv = store_kv,
    .quantize_kv = quantize_kv,
    .attention = attention<AvxVnni>,
    .byte_products = byte_products<AvxVnni>,
    .softmax = softmax,
};

}  // namespace sluice::cpu

// The scalar table and the functions that other tables take from it.
#pragma once

#include "src/backend/cpu/kernels.h"

namespace sluice::cpu {

extern const Kernels kGenericKernels;

void generic_attention(const AttentionTask& task);
void generic_store_kv(const KvLayout& layout, const float* key, const float* value,
                      std::uint32_t slot, std::byte* block);
void generic_quantize_kv(std::uint32_t head_dim, const std::byte* f16_block, std::byte* block);
// Quantizes `count` (<= 32) values, the rest of the group of 32 is zero. Returns the scale.
float generic_quantize_group(const float* x, std::uint32_t count, std::int8_t* q);

}  // namespace sluice::cpu

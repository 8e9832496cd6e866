// One function a kernel: chooses its grid, and where there are several kernels for the same work,
// the one that is fastest. All of them give the same bits. They queue and return at once; what goes
// wrong is reported by Device::synchronize().
#pragma once

#include <cstdint>

#include "cuda/arguments.h"
#include "cuda/kv_pages.h"
#include "cuda/weight_tiles.h"

namespace sluice::cuda {

class Device;

void launch_quantize(Device& device, const QuantizeArgs& args, std::int32_t rows);
void launch_norm(Device& device, const NormArgs& args, std::int32_t rows);
void launch_activate(Device& device, const ActivateArgs& args);
void launch_softcap(Device& device, const SoftcapArgs& args);

// Matrix of a quantized type times any number of rows. With experts, `items` is their number.
void launch_matvec(Device& device, TileKind tiles, const MatvecArgs& args, std::int32_t items = 1);
void launch_matvec_float(Device& device, const MatvecFloatArgs& args, std::int32_t items = 1);
// Rows that an expert's item may have for launch_matvec.
inline constexpr std::int32_t kMostItemRows = 16;
// Experts that launch_experts can tell apart.
inline constexpr std::int32_t kMostExperts = 1024;

void launch_experts(Device& device, const ExpertArgs& args);
void launch_expert_sum(Device& device, const ExpertSumArgs& args);

void launch_rope(Device& device, PageKind pages, const RopeArgs& args);
// `narrow`: no tile has more than eight columns.
void launch_attention(Device& device, PageKind pages, const AttentionArgs& args, bool narrow);
// Shared memory that launch_attention asks for at most.
std::int32_t attention_shared_bytes(PageKind pages, std::int32_t head_dim);

}  // namespace sluice::cuda

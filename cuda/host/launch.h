// One function a kernel: chooses its grid, and where there are several kernels for the same work,
// the one that is fastest, or that the caller says is. All of them give the same bits. They queue
// and return at once; what goes wrong is reported by Device::synchronize().
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

// The largest logits of rows; how many of a row of `cols` can be asked for, and the room that a row
// needs for parts (TopLogitsArgs).
void launch_top_logits(Device& device, const TopLogitsArgs& args, std::int32_t rows);
std::int32_t most_top_logits(std::int32_t cols);
std::int64_t top_logit_parts(std::int32_t cols);

// The arithmetic of a product with a few rows of activations (few_rows.h tells which is faster).
enum class Arithmetic : std::uint8_t { kDp4a, kMma };
// Rows that kernels of dp4a are made for at most; with more, kMma is meant.
inline constexpr std::int32_t kMostDp4aRows = 4;

// Matrix of a quantized type times any number of rows. With experts, `items` is their number.
void launch_matvec(Device& device, Arithmetic few, TileKind tiles, const MatvecArgs& args,
                   std::int32_t items = 1);
void launch_matvec_float(Device& device, const MatvecFloatArgs& args, std::int32_t items = 1);
// Whether there are kernels that do this product and what follows it in one, for so many rows: the
// types that models are made of, and passes that are short enough for launches to count. (For all
// types and numbers of rows compiling takes too long.)
bool is_fused(TileKind tiles, std::int32_t x_rows);
// Gate, up and their activation in one. Requires is_fused(); x_rows is of an item, with experts.
void launch_gated(Device& device, Arithmetic few, TileKind tiles, const GatedArgs& args,
                  std::int32_t items = 1);
// Query, key and value, and their way into the cache, in one. Requires is_fused().
void launch_qkv(Device& device, Arithmetic few, TileKind tiles, const QkvArgs& args);
// Rows that an expert's item may have for launch_matvec at most, and how many it should have where
// each of `rows` rows goes through `used` of so many experts.
inline constexpr std::int32_t kMostItemRows = 64;
std::int32_t expert_item_rows(std::int32_t rows, std::int32_t used, std::int32_t experts);
// Experts that launch_experts can tell apart.
inline constexpr std::int32_t kMostExperts = 1024;

void launch_experts(Device& device, const ExpertArgs& args);
void launch_expert_sum(Device& device, const ExpertSumArgs& args);

void launch_rope(Device& device, PageKind pages, const RopeArgs& args);
// Blocks of an int4 cache that are full now, in 4 bits.
void launch_quantize_pages(Device& device, const QuantizePagesArgs& args);
// `narrow`: no tile has more than eight columns.
void launch_attention(Device& device, PageKind pages, const AttentionArgs& args, bool narrow);
// Shared memory that launch_attention asks for at most.
std::int32_t attention_shared_bytes(PageKind pages, std::int32_t head_dim);

}  // namespace sluice::cuda

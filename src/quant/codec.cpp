#include "src/quant/codec.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "src/quant/families.h"

namespace sluice {
namespace {

struct Codec {
  BlockType type;
  void (*decode)(const std::byte* data, std::size_t blocks, float* out);
  std::size_t (*encode)(const float* in, std::size_t blocks, std::byte* out);
};

// The one place that lists every type with its code.
constexpr std::array<Codec, 16> kCodecs{{
    {BlockType::kF32, decode_f32, encode_f32},
    {BlockType::kF16, decode_f16, encode_f16},
    {BlockType::kQ4_0, decode_q4_0, encode_q4_0},
    {BlockType::kQ4_1, decode_q4_1, encode_q4_1},
    {BlockType::kQ5_0, decode_q5_0, encode_q5_0},
    {BlockType::kQ5_1, decode_q5_1, encode_q5_1},
    {BlockType::kQ8_0, decode_q8_0, encode_q8_0},
    {BlockType::kQ2_K, decode_q2_k, encode_q2_k},
    {BlockType::kQ3_K, decode_q3_k, encode_q3_k},
    {BlockType::kQ4_K, decode_q4_k, encode_q4_k},
    {BlockType::kQ5_K, decode_q5_k, encode_q5_k},
    {BlockType::kQ6_K, decode_q6_k, encode_q6_k},
    {BlockType::kIQ4_NL, decode_iq4_nl, encode_iq4_nl},
    {BlockType::kIQ4_XS, decode_iq4_xs, encode_iq4_xs},
    {BlockType::kBF16, decode_bf16, encode_bf16},
    {BlockType::kMXFP4, decode_mxfp4, encode_mxfp4},
}};

const Codec& codec_of(BlockType type) {
  return *std::find_if(kCodecs.begin(), kCodecs.end(),
                       [type](const Codec& row) { return row.type == type; });
}

}  // namespace

void decode_blocks(BlockType type, std::span<const std::byte> data, std::span<float> out) {
  if (out.empty()) return;
  codec_of(type).decode(data.data(), out.size() / block_type_info(type).block_size, out.data());
}

Status encode_blocks(BlockType type, std::span<const float> in, std::span<std::byte> out) {
  const BlockTypeInfo& info = block_type_info(type);
  if (in.size() % info.block_size != 0 ||
      out.size() != in.size() / info.block_size * info.block_bytes) {
    return failed("cannot encode {} weights into {} bytes of type {} (blocks of {} in {} bytes)",
                  in.size(), out.size(), info.name, info.block_size, info.block_bytes);
  }
  if (in.empty()) return {};
  const auto bad = std::find_if(in.begin(), in.end(), [](float x) { return !std::isfinite(x); });
  if (bad != in.end()) {
    return bad_input("weight {} is {}, expected a finite number", bad - in.begin(), *bad);
  }
  const std::size_t too_large =
      codec_of(type).encode(in.data(), in.size() / info.block_size, out.data());
  if (too_large != kEncoded) {
    return bad_input("weight {} is {}, too large for the scale of type {}; use F32 for this tensor",
                     too_large, in[too_large], info.name);
  }
  return {};
}

}  // namespace sluice

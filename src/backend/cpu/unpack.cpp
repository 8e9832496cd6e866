// Takes packed blocks apart again, one number at a time: what the kernels are checked against.
#include <array>
#include <cstring>

#include "src/backend/cpu/pack.h"
#include "src/backend/cpu/pack_layout.h"
#include "src/base/half.h"
#include "src/quant/layout.h"

namespace sluice::cpu {
namespace {

constexpr std::size_t kLine = 64;

const std::uint8_t* u8(const std::byte* p) { return reinterpret_cast<const std::uint8_t*>(p); }

// Four codes at once: byte k of word j is the code of column 4 * j + k.
using Words = std::array<std::uint32_t, 8>;

std::uint32_t load_word(const std::uint8_t* line, std::uint32_t lane) {
  std::uint32_t word;
  std::memcpy(&word, line + 4 * lane, 4);
  return word;
}

// Each byte's bit field of `width` bits at `shift`.
std::uint32_t fields(std::uint32_t word, unsigned shift, unsigned width) {
  return (word >> shift) & (0x01010101u * ((1u << width) - 1));
}

Words get_block(const PackLayout& layout, const std::uint8_t* codes, std::uint32_t lane) {
  Words w{};
  const std::uint8_t* plane = codes + layout.low_bytes();
  for (std::uint32_t j = 0; j < 8; ++j) {
    unsigned low_bits = 8;
    switch (layout.low) {
      case LowPlane::kBytes:
        w[j] = load_word(codes + kLine * j, lane);
        break;
      case LowPlane::kNibbles:
        low_bits = 4;
        w[j] = fields(load_word(codes + kLine * (j % 4), lane), 4 * (j / 4), 4);
        break;
      case LowPlane::kPairs:
        low_bits = 2;
        w[j] = fields(load_word(codes + kLine * (j % 2), lane), 2 * (j / 2), 2);
        break;
    }
    if (layout.high == HighPlane::kPairs) {
      w[j] |= fields(load_word(plane + kLine * (j % 2), lane), 2 * (j / 2), 2) << low_bits;
    } else if (layout.high == HighPlane::kBits) {
      w[j] |= fields(load_word(plane, lane), j, 1) << low_bits;
    }
  }
  return w;
}

float get_half(const std::uint8_t* header, std::size_t index) {
  std::uint16_t bits;
  std::memcpy(&bits, header + 2 * index, 2);
  return half_to_float(bits);
}

}  // namespace

void unpack_packed_block(BlockType type, const std::byte* group, std::uint32_t block,
                         PackedBlock& out) {
  const PackLayout layout = pack_layout(type);
  const std::uint8_t* bundle = u8(group) + block / layout.bundle_blocks * layout.bundle_bytes();
  const std::uint32_t slot = block % layout.bundle_blocks;
  const std::uint8_t* codes = bundle + layout.header_bytes + slot * layout.code_bytes();
  for (std::uint32_t lane = 0; lane < kRowGroup; ++lane) {
    const Words words = get_block(layout, codes, lane);
    for (std::uint32_t c = 0; c < 32; ++c) {
      const unsigned code = (words[c / 4] >> (8 * (c % 4))) & 0xffu;
      if (type == BlockType::kIQ4_NL || type == BlockType::kIQ4_XS) {
        out.q[lane][c] = kIq4Codebook[code];
      } else if (type == BlockType::kMXFP4) {
        out.q[lane][c] = kMxfp4DoubledCodebook[code];
      } else {
        out.q[lane][c] = static_cast<std::int8_t>(static_cast<int>(code) - layout.offset);
      }
    }
    for (std::uint32_t half = 0; half < 2; ++half) {
      const std::size_t entry =
          (layout.block_scales == 2 ? slot * 2 + half : slot) * kRowGroup + lane;
      float scale = 0;
      float min = 0;
      switch (type) {
        case BlockType::kQ4_1:
        case BlockType::kQ5_1:
          scale = get_half(bundle, lane);
          min = get_half(bundle, kRowGroup + lane);
          break;
        case BlockType::kMXFP4:
          scale = mxfp4_half_scale(bundle[entry]);
          break;
        case BlockType::kQ4_K:
        case BlockType::kQ5_K:
          scale = get_half(bundle, lane) * static_cast<float>(bundle[64 + entry]);
          min = -(get_half(bundle, kRowGroup + lane) * static_cast<float>(bundle[192 + entry]));
          break;
        case BlockType::kQ2_K:
          scale = get_half(bundle, lane) * static_cast<float>(bundle[64 + entry] & 15);
          min = -(get_half(bundle, kRowGroup + lane) * static_cast<float>(bundle[64 + entry] >> 4));
          break;
        case BlockType::kQ3_K:
        case BlockType::kQ6_K:
        case BlockType::kIQ4_XS:
          scale = get_half(bundle, lane) *
                  static_cast<float>(static_cast<std::int8_t>(bundle[64 + entry]));
          break;
        default:
          scale = get_half(bundle, entry);
          break;
      }
      out.scale[half][lane] = scale;
      out.min[half][lane] = min;
    }
  }
}

}  // namespace sluice::cpu

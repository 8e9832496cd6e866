// Full blocks of f16 on their way to 4 bits: buffers for quantize_pages, and what it must leave to
// the bit, from the CPU's function.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "cuda/kernels/quantize_pages.cuh"
#include "tests/kernels_testing.h"
#include "tests/simt/int4_block.h"

namespace sluice::simt {

struct QuantizePagesShape {
  std::uint32_t blocks = 1;
  std::uint32_t kv_heads = 1;
  std::uint32_t head_dim = 64;
  float magnitude = 3.0f;
  std::uint32_t first_block = 0;  // of cache and slots that is used
  std::string text() const {
    return fmt::format("{} blocks of {} heads of {}, up to {}", blocks, kv_heads, head_dim,
                       magnitude);
  }
};

class QuantizePagesProblem {
 public:
  QuantizePagesProblem(const QuantizePagesShape& shape, std::uint64_t seed)
      : QuantizePagesProblem(shape, seed, [](HalfBlock&, HalfBlock&) {}) {}
  // `change(keys, values)` may change each head of each block.
  template <class Change>
  QuantizePagesProblem(const QuantizePagesShape& shape, std::uint64_t seed, const Change& change)
      : shape_(shape), groups_((shape.head_dim + 31) / 32), random_(seed) {
    for (std::uint32_t i = 0; i < shape.blocks * shape.kv_heads; ++i) {
      HalfBlock keys = {}, values = {};
      for (HalfBlock* block : {&keys, &values}) {
        for (auto& token : *block) {
          for (std::uint32_t d = 0; d < shape.head_dim; ++d) {
            token[d] =
                float_to_half(cpu::testing::uniform(random_, -shape.magnitude, shape.magnitude));
          }
        }
      }
      change(keys, values);
      keys_.push_back(keys);
      values_.push_back(values);
    }
  }

  const QuantizePagesShape& shape() const { return shape_; }

  // Runs the kernel and says what was wrong first, or nothing.
  template <class Kernel>
  std::string check(const Kernel& kernel, bool reversed = false) {
    const std::uint32_t heads = shape_.kv_heads;
    const std::size_t half_bytes = 2 * groups_ * 2048;  // of a head
    const std::size_t int4_bytes = 2 * groups_ * 640;
    const std::size_t end = shape_.first_block + std::size_t{shape_.blocks} + 2;
    Buffer list("blocks", 8 * std::size_t{shape_.blocks});
    Buffer recent("slots", end * heads * half_bytes);
    Buffer cache("cache", end * heads * int4_bytes);
    std::vector<std::uint32_t> numbers;  // blocks, and slots in the opposite order
    for (std::uint32_t i = 0; i < shape_.blocks; ++i) numbers.push_back(shape_.first_block + i + 1);
    std::shuffle(numbers.begin(), numbers.end(), random_);
    std::vector<cuda::FullBlock> full;
    for (std::uint32_t i = 0; i < shape_.blocks; ++i) {
      full.push_back({numbers[i], numbers[shape_.blocks - 1 - i]});
      for (std::uint32_t h = 0; h < heads; ++h) {
        std::vector<std::byte> head(half_bytes);
        put_halves(keys_[i * heads + h], values_[i * heads + h], shape_.head_dim, head.data());
        recent.write((std::size_t{full[i].slot} * heads + h) * half_bytes, head.data(), half_bytes);
      }
    }
    list.write(std::span<const cuda::FullBlock>(full));
    cuda::QuantizePagesArgs args = {};
    args.blocks = list.pointer<const cuda::FullBlock>();
    args.recent = recent.pointer<const std::uint8_t>();
    args.cache = cache.pointer<std::uint8_t>();
    args.count = static_cast<std::int32_t>(shape_.blocks);
    args.kv_heads = static_cast<std::int32_t>(heads);
    args.head_dim = static_cast<std::int32_t>(shape_.head_dim);
    const Shape grid = {.blocks = static_cast<std::uint32_t>(
                            cuda::quantize_page_blocks(args.count, args.kv_heads, args.head_dim)),
                        .threads = cuda::kQuantizePageThreads,
                        .shared_bytes = cuda::kQuantizePageShared,
                        .reversed = reversed};
    if (std::string fault = run(grid, [&] { kernel(args); }); !fault.empty()) return fault;
    for (std::uint32_t i = 0; i < shape_.blocks; ++i) {
      for (std::uint32_t h = 0; h < heads; ++h) {
        const std::size_t at = (std::size_t{full[i].block} * heads + h) * int4_bytes;
        if (cache.first_unwritten(at, at + int4_bytes)) {
          return fmt::format("head {} of block {} is left unwritten in part", h, i);
        }
        std::vector<std::byte> wanted(int4_bytes), found(int4_bytes);
        put_int4(quantize_block(shape_.head_dim, keys_[i * heads + h], values_[i * heads + h]),
                 groups_, wanted.data());
        cache.read_bytes(at, found.data(), int4_bytes);
        for (std::size_t b = 0; b < int4_bytes; ++b) {
          if (found[b] == wanted[b]) continue;
          return fmt::format("byte {} of record {} of head {} of block {} is {:#x}, not {:#x}",
                             b % 640, b / 640, h, i, std::to_integer<int>(found[b]),
                             std::to_integer<int>(wanted[b]));
        }
      }
    }
    if (shape_.first_block == 0 && cache.written_bytes() != shape_.blocks * heads * int4_bytes) {
      return fmt::format("{} bytes of the cache are written", cache.written_bytes());
    }
    return {};
  }

 private:
  QuantizePagesShape shape_;
  std::size_t groups_;
  cpu::testing::Random random_;
  std::vector<HalfBlock> keys_, values_;  // [blocks][kv_heads]
};

}  // namespace sluice::simt

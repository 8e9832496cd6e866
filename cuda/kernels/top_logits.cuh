// The n largest logits of each row, so that only they cross the bus. Two kernels:
//
//   select_in_chunks   a block of threads finds the n best of 4096 neighbouring logits
//   select_of_chunks   a block of threads finds the n best of what the chunks of a row have left
//
//   row    = | chunk 0: 256 threads x 16 neighbouring logits | chunk 1 | ...
//   parts  = | the n best of chunk 0, by index | of chunk 1 | ...       those without one: index -1
//   result = | the n best of the row, by index |
//
// Both do the same with up to 4096 keys, 16 neighbouring ones a thread. A key is a logit's bits, so
// turned that unsigned numbers order as floats do; 0 is none. The n-th largest key is found bit by
// bit from the highest: a bit belongs to it if at least n keys are not below. Then everything above
// it is taken, and of its equals the first ones. So equal logits go by their index, as on the CPU.
//
// NaN counts as the largest of all, whatever its sign: the sampler finds it and says so.
#pragma once

#include "cuda/arguments.h"
#include "cuda/kernels/rows.cuh"

namespace sluice::cuda {

inline constexpr std::int32_t kSelectThreads = kRowThreads;
inline constexpr int kSelectEach = 16;
inline constexpr std::int32_t kSelectKeys = kSelectThreads * kSelectEach;
// Sums of warps: two sets in turn, so that one barrier is enough for each sum.
inline constexpr std::int32_t kSelectSharedBytes = 2 * kRowWarps * 4;

// Chunks of a row.
SIMT_ANYWHERE std::int32_t select_chunks(std::int32_t cols) {
  return (cols + kSelectKeys - 1) / kSelectKeys;
}
// The most of a row that can be asked for; 0: rows are too long.
SIMT_ANYWHERE std::int32_t most_selected(std::int32_t cols) {
  const std::int32_t each = kSelectKeys / select_chunks(cols);
  const std::int32_t most = each < cols ? each : cols;
  return most < kMostTopLogits ? most : kMostTopLogits;
}

SIMT_DEVICE std::uint32_t key_of(float x) {
  if (x != x) return 0xffffffffu;
  const std::uint32_t bits = simt::float_bits(x + 0.0f);  // one zero
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}
SIMT_DEVICE float logit_of_key(std::uint32_t key) {
  return simt::float_of_bits(key >> 31 != 0 ? key & 0x7fffffffu : ~key);
}

struct Keys {
  std::uint32_t x[kSelectEach];
};

// Adds what the threads of a block have. `turn` alternates between calls.
SIMT_DEVICE std::int32_t count_threads(std::int32_t value, std::int32_t turn) {
  auto sum = static_cast<std::uint32_t>(value);
  SIMT_UNROLL
  for (std::uint32_t lanes = 16; lanes > 0; lanes /= 2) {
    sum += simt::shuffle_xor(simt::kAllLanes, sum, lanes);
  }
  const simt::Shared<std::uint32_t> sums =
      simt::cast<std::uint32_t>(simt::dynamic_shared()) + turn % 2 * kRowWarps;
  if (simt::lane() == 0) simt::store(sums + simt::warp(), sum);
  simt::sync_threads();  // all warps have counted
  std::uint32_t all = 0;
  SIMT_UNROLL
  for (int w = 0; w < kRowWarps; ++w) all += simt::load(sums + w);
  return static_cast<std::int32_t>(all);
}

// Which of a thread's keys are among the n best of the block (a bit each), and how many of them
// threads of lower index have. Requires n > 0 and at least n keys that are not 0.
struct Selected {
  std::uint32_t bits;
  std::int32_t lower;
};
SIMT_DEVICE Selected select_best(const Keys& keys, std::int32_t n) {
  std::uint32_t last = 0;  // the n-th largest key, as far as it is known
  SIMT_NO_UNROLL
  for (std::int32_t bit = 31; bit >= 0; --bit) {
    const std::uint32_t trial = last | 1u << bit;
    std::int32_t not_below = 0;
    SIMT_UNROLL
    for (const std::uint32_t key : keys.x) not_below += key >= trial ? 1 : 0;
    if (count_threads(not_below, bit) >= n) last = trial;
  }
  std::int32_t above = 0;
  std::uint32_t equal = 0;
  SIMT_UNROLL
  for (const std::uint32_t key : keys.x) {
    above += key > last ? 1 : 0;
    equal += key == last ? 1 : 0;
  }
  const simt::Shared<std::uint32_t> sums = simt::cast<std::uint32_t>(simt::dynamic_shared());
  const std::int32_t room = n - count_threads(above, 1);  // for equals
  const auto equal_before = static_cast<std::int32_t>(sum_before(equal, sums).lower);
  std::int32_t left = room > equal_before ? room - equal_before : 0;
  Selected selected = {0, 0};
  std::uint32_t taken = 0;
  SIMT_UNROLL
  for (int i = 0; i < kSelectEach; ++i) {
    const bool is_equal = keys.x[i] == last && left > 0;
    if (is_equal) --left;
    if (keys.x[i] > last || is_equal) {
      selected.bits |= 1u << i;
      ++taken;
    }
  }
  selected.lower = static_cast<std::int32_t>(sum_before(taken, sums + kRowWarps).lower);
  return selected;
}

SIMT_KERNEL(kSelectThreads) select_in_chunks(TopLogitsArgs args) {
  simt::wait_for_previous();
  const std::int32_t chunks = select_chunks(args.cols);
  const auto block = static_cast<std::int32_t>(simt::block_index());
  const std::int32_t first = block % chunks * kSelectKeys;
  const std::int32_t own = first + kSelectEach * static_cast<std::int32_t>(simt::thread_index());
  const simt::Global<const float> row = args.logits + block / chunks * args.stride;
  const bool vectors = args.stride % 4 == 0;
  Keys keys;
  SIMT_UNROLL
  for (int i = 0; i < kSelectEach; i += 4) {
    if (vectors && own + i + 4 <= args.cols) {
      const simt::Words words = simt::load_words(row + (own + i));
      SIMT_UNROLL
      for (int j = 0; j < 4; ++j) keys.x[i + j] = key_of(simt::float_of_bits(words.word[j]));
    } else {
      SIMT_UNROLL
      for (int j = 0; j < 4; ++j) {
        keys.x[i + j] = own + i + j < args.cols ? key_of(simt::load(row + (own + i + j))) : 0u;
      }
    }
  }
  const std::int32_t there = args.cols - first < kSelectKeys ? args.cols - first : kSelectKeys;
  const std::int32_t n = args.count < there ? args.count : there;
  const Selected selected = select_best(keys, n);
  std::int64_t at = std::int64_t{block} * args.count + selected.lower;
  SIMT_UNROLL
  for (int i = 0; i < kSelectEach; ++i) {
    if ((selected.bits >> i & 1u) == 0) continue;
    simt::store(args.part_id + at, own + i);
    simt::store(args.part_key + at, keys.x[i]);
    ++at;
  }
  const auto thread = static_cast<std::int32_t>(simt::thread_index());
  for (std::int32_t i = n + thread; i < args.count; i += kSelectThreads) {
    simt::store(args.part_id + (std::int64_t{block} * args.count + i), -1);
    simt::store(args.part_key + (std::int64_t{block} * args.count + i), 0u);
  }
}

SIMT_KERNEL(kSelectThreads) select_of_chunks(TopLogitsArgs args) {
  simt::wait_for_previous();
  const auto row = static_cast<std::int64_t>(simt::block_index());
  const std::int32_t there = select_chunks(args.cols) * args.count;
  const std::int32_t own = kSelectEach * static_cast<std::int32_t>(simt::thread_index());
  Keys keys;
  SIMT_UNROLL
  for (int i = 0; i < kSelectEach; ++i) {
    keys.x[i] = own + i < there ? simt::load(args.part_key + (row * there + own + i)) : 0u;
  }
  const Selected selected = select_best(keys, args.count);
  std::int64_t at = row * args.count + selected.lower;
  SIMT_UNROLL
  for (int i = 0; i < kSelectEach; ++i) {
    if ((selected.bits >> i & 1u) == 0) continue;
    simt::store(args.id + at, simt::load(args.part_id + (row * there + own + i)));
    simt::store(args.logit + at, logit_of_key(keys.x[i]));
    ++at;
  }
}

}  // namespace sluice::cuda

// Soft cap of logits, in place: x = cap * tanh(x / cap), tanh by the polynomial of math.cuh.
//
// A thread takes four neighbouring values, a block 1024:
//
//   x [count]   | block 0: 256 threads x 4 | block 1 | ... | last: 1 to 1024 |
#pragma once

#include "cuda/arguments.h"
#include "cuda/kernels/rows.cuh"

namespace sluice::cuda {

inline constexpr std::int32_t kSoftcapThreads = kRowThreads;

// The grid, at most 2^31 - 1 up to a count of 2^41 - 1024.
SIMT_ANYWHERE std::int64_t softcap_blocks(std::int64_t count) {
  return (count + kRowStep - 1) / kRowStep;
}

SIMT_KERNEL(kSoftcapThreads) softcap_logits(SoftcapArgs args) {
  simt::wait_for_previous();
  const std::int64_t first = static_cast<std::int64_t>(simt::block_index()) * kRowStep;
  const std::int64_t left = args.count - first;
  const std::int32_t some = left < kRowStep ? static_cast<std::int32_t>(left) : kRowStep;
  const std::int32_t at = 4 * static_cast<std::int32_t>(simt::thread_index());
  const bool vectors = at + 4 <= some;
  Four four = load_four(args.x + first, at, some, vectors);
  SIMT_UNROLL
  for (int i = 0; i < 4; ++i) four.x[i] = args.cap * tanh_of(four.x[i] / args.cap);
  store_four(args.x + first, at, some, vectors, four);
}

}  // namespace sluice::cuda

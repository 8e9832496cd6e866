// The activation of a feed-forward block: out = silu(gate) * up, or gelu(gate) * up, as floats, as
// int8 codes, or both. The operations and so the bits of silu_mul and gelu_mul in
// src/backend/cpu/generic.cpp.
//
// A thread takes four neighbouring columns of a row, a block 1024 of one row, as in quantize.cuh:
//
//   gate, up  [rows][stride]   | block 0: 256 threads x 4 | block 1 | ...    one behind the other,
//   or
//                              both in turn, 32 columns each
//   out, q    [rows][cols]     same order; `out` may be `gate` itself where stride is cols
#pragma once

#include "cuda/arguments.h"
#include "cuda/kernels/quantize.cuh"
#include "cuda/kernels/rows.cuh"

namespace sluice::cuda {

inline constexpr std::int32_t kActivateThreads = kRowThreads;

// Blocks for a row; the grid has rows times as many.
SIMT_ANYWHERE std::int32_t activate_row_blocks(std::int32_t cols) {
  return (cols + kRowStep - 1) / kRowStep;
}

SIMT_KERNEL(kActivateThreads) activate(ActivateArgs args) {
  simt::wait_for_previous();
  const auto blocks = static_cast<std::uint32_t>(activate_row_blocks(args.cols));
  const std::int64_t row = simt::block_index() / blocks;
  const auto chunk = static_cast<std::int32_t>(simt::block_index() % blocks);
  const std::int32_t col = chunk * kRowStep + 4 * static_cast<std::int32_t>(simt::thread_index());
  const bool whole = args.cols % 4 == 0;
  const bool vectors = whole && args.stride % 4 == 0;
  const std::int64_t begin = row * args.stride + (args.pairs ? col / 32 * 32 : 0);
  const Four gate = load_four(args.gate + begin, col, args.cols, vectors);
  const Four up = load_four(args.up + begin, col, args.cols, vectors);
  Four out;
  SIMT_UNROLL
  for (int i = 0; i < 4; ++i) {
    out.x[i] = (args.gelu ? gelu_of(gate.x[i]) : silu_of(gate.x[i])) * up.x[i];
  }
  if (!simt::is_null(args.out)) {
    store_four(args.out + row * args.cols, col, args.cols, whole, out);
  }
  if (!simt::is_null(args.quantized.q)) {
    quantize_four(bits_of_four(out), col < args.cols, row * args.cols + col, args.quantized);
  }
}

}  // namespace sluice::cuda

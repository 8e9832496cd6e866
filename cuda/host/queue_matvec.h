// The kernels of a quantized matrix times up to 16 rows of activations, as launches; for the files
// that instantiate them.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/host/queue.h"
#include "cuda/kernels/matvec_dp4a.cuh"
#include "cuda/kernels/matvec_mma.cuh"

namespace sluice::cuda {

template <class Args>
void queue(Device& device, void (*kernel)(Args), const LaunchShape& shape, const Args& args) {
#if defined(__CUDACC__)
  Args copy = args;
  queue_kernel(device, reinterpret_cast<const void*>(kernel), shape, &copy);
#else
  queue_emulated(device, shape, [kernel, args] { kernel(args); });
#endif
}

// With more rows weights would be read again, so a block of threads takes more of them together
// (gemm.cuh).
inline constexpr std::int32_t kMostMatvecRows = 16;

// Calls visit(std::integral_constant) with the number of rows that a kernel of dp4a is made for, at
// least x_rows: 1, 2, 3, 4, 6 or 8, at most kMost.
template <int kMost, int kRows = 1, class Visit>
void visit_dp4a_rows(std::int32_t x_rows, Visit&& visit) {
  if (x_rows <= kRows) {
    visit(std::integral_constant<int, kRows>());
  } else if constexpr (kRows < kMost) {
    visit_dp4a_rows<kMost, (kRows < 4 ? kRows + 1 : kRows + 2)>(x_rows, visit);
  }
}

// The same for tensor cores.
template <class Visit>
void visit_mma_rows(std::int32_t x_rows, Visit&& visit) {
  if (x_rows <= 8) {
    visit(std::integral_constant<int, 8>());
  } else {
    visit(std::integral_constant<int, kMostMatvecRows>());
  }
}

template <class Tiles, int kXRows>
LaunchShape matvec_launch(const MatvecArgs& args, std::int32_t items) {
  return {matvec_blocks(args.rows, items), kMatvecThreads, matvec_shared_bytes<Tiles, kXRows>()};
}

// args.x_rows is at most kMost.
template <class Tiles, int kMost>
void queue_matvec_dp4a(Device& device, const MatvecArgs& args, std::int32_t items) {
  visit_dp4a_rows<kMost>(args.x_rows, [&](auto rows) {
    constexpr int kXRows = decltype(rows)::value;
    queue(device, &matvec_dp4a<Tiles, kXRows>, matvec_launch<Tiles, kXRows>(args, items), args);
  });
}

template <class Tiles>
void queue_matvec_mma(Device& device, const MatvecArgs& args, std::int32_t items) {
  visit_mma_rows(args.x_rows, [&](auto rows) {
    constexpr int kXRows = decltype(rows)::value;
    queue(device, &matvec_mma<Tiles, kXRows>, matvec_launch<Tiles, kXRows>(args, items), args);
  });
}

}  // namespace sluice::cuda

// Kernels and their launches: the one file that instantiates them. nvcc makes GPU code of it, the
// host's compiler the emulator's.
#include "cuda/host/launch.h"

#include <algorithm>
#include <type_traits>

#include "cuda/host/queue.h"
#include "cuda/kernels/activate.cuh"
#include "cuda/kernels/attention.cuh"
#include "cuda/kernels/attention_merge.cuh"
#include "cuda/kernels/experts.cuh"
#include "cuda/kernels/gated.cuh"
#include "cuda/kernels/gemm.cuh"
#include "cuda/kernels/matvec_dp4a.cuh"
#include "cuda/kernels/matvec_float.cuh"
#include "cuda/kernels/matvec_mma.cuh"
#include "cuda/kernels/norm.cuh"
#include "cuda/kernels/qkv.cuh"
#include "cuda/kernels/quantize.cuh"
#include "cuda/kernels/quantize_pages.cuh"
#include "cuda/kernels/rope.cuh"
#include "cuda/kernels/softcap.cuh"
#include "cuda/kernels/top_logits.cuh"

namespace sluice::cuda {
namespace {

template <class Args>
void queue(Device& device, void (*kernel)(Args), const LaunchShape& shape, const Args& args) {
#if defined(__CUDACC__)
  Args copy = args;
  queue_kernel(device, reinterpret_cast<const void*>(kernel), shape, &copy);
#else
  queue_emulated(device, shape, [kernel, args] { kernel(args); });
#endif
}

template <int kRows>
using Rows = std::integral_constant<int, kRows>;

// Calls visit(Rows) with the number of rows that a kernel of dp4a is made for, at least x_rows.
template <class Visit>
void visit_dp4a_rows(std::int32_t x_rows, Visit&& visit) {
  static_assert(kMostDp4aRows == 4);
  if (x_rows <= 1) {
    visit(Rows<1>());
  } else if (x_rows <= 2) {
    visit(Rows<2>());
  } else {
    visit(Rows<4>());
  }
}

// With more rows weights would be read again, so a block of threads takes more of them together
// (gemm.cuh).
constexpr std::int32_t kMostMatvecRows = 16;

bool by_dp4a(Arithmetic few, std::int32_t x_rows) {
  return few == Arithmetic::kDp4a && x_rows <= kMostDp4aRows;
}

}  // namespace

std::int32_t expert_item_rows(std::int32_t rows, std::int32_t used, std::int32_t experts) {
  static_assert(kMostItemRows == kGemmXRows);
  // With eight rows an expert on average, some have more than a few-row kernel does at a time.
  const bool many = std::int64_t{rows} * used >= std::int64_t{8} * experts;
  return std::min(rows, many ? kMostItemRows : kMostMatvecRows);
}

void launch_quantize(Device& device, const QuantizeArgs& args, std::int32_t rows) {
  queue(device, &quantize_rows,
        {std::int64_t{rows} * quantize_row_blocks(args.cols), kQuantizeThreads}, args);
}

void launch_norm(Device& device, const NormArgs& args, std::int32_t rows) {
  queue(device, &add_and_normalise, {norm_blocks(rows), kNormThreads, kNormSharedBytes}, args);
}

void launch_activate(Device& device, const ActivateArgs& args) {
  queue(device, &activate,
        {std::int64_t{args.rows} * activate_row_blocks(args.cols), kActivateThreads}, args);
}

void launch_softcap(Device& device, const SoftcapArgs& args) {
  queue(device, &softcap_logits, {softcap_blocks(args.count), kSoftcapThreads}, args);
}

void launch_top_logits(Device& device, const TopLogitsArgs& args, std::int32_t rows) {
  queue(device, &select_in_chunks,
        {std::int64_t{rows} * select_chunks(args.cols), kSelectThreads, kSelectSharedBytes}, args);
  queue(device, &select_of_chunks, {rows, kSelectThreads, kSelectSharedBytes}, args);
}
std::int32_t most_top_logits(std::int32_t cols) { return most_selected(cols); }
std::int64_t top_logit_parts(std::int32_t cols) {
  return std::int64_t{select_chunks(cols)} * most_selected(cols);
}

void launch_matvec(Device& device, Arithmetic few, TileKind kind, const MatvecArgs& args,
                   std::int32_t items) {
  visit_tiles(kind, [&](auto tiles) {
    using Tiles = decltype(tiles);
    const auto launch = [&](auto rows, auto* kernel) {
      queue(device, kernel,
            {matvec_blocks(args.rows, items), kMatvecThreads,
             matvec_shared_bytes<Tiles, decltype(rows)::value>()},
            args);
    };
    if (args.x_rows > kMostMatvecRows) {
      queue(device, &gemm<Tiles>,
            {gemm_blocks(args.rows, args.x_rows, simt::is_null(args.items) ? 0 : items),
             kGemmThreads, gemm_shared_bytes<Tiles>()},
            args);
      return;
    }
    if (by_dp4a(few, args.x_rows)) {
      visit_dp4a_rows(args.x_rows,
                      [&](auto rows) { launch(rows, &matvec_dp4a<Tiles, decltype(rows)::value>); });
    } else if (args.x_rows <= 8) {
      launch(Rows<8>(), &matvec_mma<Tiles, 8>);
    } else {
      launch(Rows<kMostMatvecRows>(), &matvec_mma<Tiles, kMostMatvecRows>);
    }
  });
}

namespace {

constexpr std::int32_t kMostFusedRows = 8;
constexpr TileKind kFirstUnfused = TileKind::kWide;

// Calls visit(tiles) where is_fused().
template <class Visit>
void visit_fused(TileKind kind, Visit&& visit) {
  visit_tiles(kind, [&](auto tiles) {
    using Tiles = decltype(tiles);
    if constexpr (!std::is_same_v<Tiles, TilesWide> && !std::is_same_v<Tiles, TilesWideHalves>) {
      visit(tiles);
    }
  });
}

}  // namespace

bool is_fused(TileKind tiles, std::int32_t x_rows) {
  return x_rows <= kMostFusedRows && tiles < kFirstUnfused;
}

void launch_gated(Device& device, Arithmetic few, TileKind kind, const GatedArgs& args,
                  std::int32_t items) {
  const std::int32_t x_rows = args.product.x_rows;
  visit_fused(kind, [&](auto tiles) {
    using Tiles = decltype(tiles);
    const auto launch = [&](auto rows, auto* kernel) {
      queue(device, kernel,
            {matvec_blocks(args.product.rows, items), kMatvecThreads,
             matvec_shared_bytes<Tiles, decltype(rows)::value, 2>()},
            args);
    };
    if (by_dp4a(few, x_rows)) {
      visit_dp4a_rows(x_rows,
                      [&](auto rows) { launch(rows, &gated_dp4a<Tiles, decltype(rows)::value>); });
    } else {
      launch(Rows<kMostFusedRows>(), &gated_mma<Tiles, kMostFusedRows>);
    }
  });
}

void launch_qkv(Device& device, Arithmetic few, TileKind kind, const QkvArgs& args) {
  const std::int32_t x_rows = args.product.x_rows;
  visit_fused(kind, [&](auto tiles) {
    using Tiles = decltype(tiles);
    const auto launch = [&](auto rows, auto* kernel) {
      queue(device, kernel,
            {matvec_blocks(args.product.rows, 0), kMatvecThreads,
             qkv_shared_bytes<Tiles, decltype(rows)::value>()},
            args);
    };
    if (by_dp4a(few, x_rows)) {
      visit_dp4a_rows(x_rows,
                      [&](auto rows) { launch(rows, &qkv_dp4a<Tiles, decltype(rows)::value>); });
    } else {
      launch(Rows<kMostFusedRows>(), &qkv_mma<Tiles, kMostFusedRows>);
    }
  });
}

void launch_matvec_float(Device& device, const MatvecFloatArgs& args, std::int32_t items) {
  queue(device, &matvec_float, {matvec_float_blocks(args.rows, items), kMatvecFloatThreads}, args);
}

static_assert(kMostExperts <= kMaxExperts);
void launch_experts(Device& device, const ExpertArgs& args) {
  queue(device, &route_experts, {route_blocks(args.rows), kRouteThreads}, args);
  queue(device, &order_experts, {1, kOrderThreads, order_shared_bytes(args.experts)}, args);
}

void launch_expert_sum(Device& device, const ExpertSumArgs& args) {
  queue(device, &sum_experts,
        {std::int64_t{args.rows} * expert_sum_row_blocks(args.cols), kExpertSumThreads}, args);
}

void launch_rope(Device& device, PageKind kind, const RopeArgs& args) {
  const LaunchShape shape = {rope_blocks(args.rows, args.heads, args.kv_heads), kRopeThreads,
                             kRopeSharedBytes};
  visit_written_pages(
      kind, [&](auto pages) { queue(device, &rope_and_store<decltype(pages)>, shape, args); });
}

void launch_quantize_pages(Device& device, const QuantizePagesArgs& args) {
  queue(device, &quantize_pages,
        {quantize_page_blocks(args.count, args.kv_heads, args.head_dim), kQuantizePageThreads,
         kQuantizePageShared},
        args);
}

void launch_attention(Device& device, PageKind kind, const AttentionArgs& args, bool narrow) {
  static_assert(kNarrowColumns == 8);
  visit_pages(kind, [&](auto pages) {
    using Pages = decltype(pages);
    queue(device, narrow ? &attend_narrow_chunk<Pages> : &attend_chunk<Pages>,
          {attend_blocks(args.tile_count, args.kv_heads, args.chunks), kAttendThreads,
           attend_shared_bytes<Pages>(args.head_dim, args.chunk_pieces)},
          args);
  });
  queue(device, &merge_chunks, {merge_blocks(args.rows, args.heads, args.head_dim), kMergeThreads},
        args);
}

std::int32_t attention_shared_bytes(PageKind kind, std::int32_t head_dim) {
  return visit_pages(kind, [&](auto pages) {
    return attend_shared_bytes<decltype(pages)>(head_dim, 2);  // more pieces take no more
  });
}

}  // namespace sluice::cuda

// Mixture of experts: which experts a row goes through, the rows in the order of their experts, and
// the sum of what the experts make of a row. See ExpertArgs and ExpertSumArgs.
//
//   route_experts   a warp a row: softmax of the router's logits, the best `used`, their weights
//   order_experts   one block: pairs (row, rank) sorted by expert, and the items of the matrices
//   sum_experts     1024 columns of a row a block
//
// Example with used = 2, experts of three rows {2, 0}, {1, 2}, {2, 1}, and item_rows = 2:
//
//   pair       0   1   2   3   4   5         place of a pair: 3 0 1 4 5 2
//   expert     2   0   1   2   2   1
//   sorted     0 | 1   1 | 2   2   2         pairs 1 | 2 5 | 0 3 4; x_row 0 | 1 2 | 0 1 2
//   items      {0, 0, 1} {1, 1, 2} {2, 3, 2} {2, 5, 1}, then {0, 0, 0} up to item_count
#pragma once

#include "cuda/arguments.h"
#include "cuda/kernels/rows.cuh"

namespace sluice::cuda {

// -- Choice --------------------------------------------------------------------------------------

inline constexpr std::int32_t kRouteThreads = 128;
inline constexpr std::int32_t kRouteRows = kRouteThreads / 32;

// The grid.
SIMT_ANYWHERE std::int32_t route_blocks(std::int32_t rows) {
  return (rows + kRouteRows - 1) / kRouteRows;
}

// The softmax of a row of logits, in place, with the operations and the order of `softmax` in
// src/backend/cpu/generic.cpp: element e belongs to partial sum e % 16, which lanes 0 to 15 keep,
// and these are added in pairs at a distance of 8, 4, 2, 1. A lane works on elements e with
// e % 32 == lane, also afterwards.
SIMT_DEVICE void softmax_row(simt::Global<float> row, std::int32_t experts) {
  const auto lane = static_cast<std::int32_t>(simt::lane());
  float max = simt::float_of_bits(0xff800000u);
  for (std::int32_t e = lane; e < experts; e += 32) {
    const float x = simt::load(row + e);
    max = x > max ? x : max;  // NaN is none
  }
  SIMT_UNROLL
  for (std::uint32_t lanes = 16; lanes > 0; lanes /= 2) {
    const float other =
        simt::float_of_bits(simt::shuffle_xor(simt::kAllLanes, simt::float_bits(max), lanes));
    max = other > max ? other : max;
  }
  max += 0.0f;  // one zero: the order of comparisons must not show

  float sum = 0.0f;
  for (std::int32_t first = 0; first < experts; first += 32) {
    const std::int32_t e = first + lane;
    float x = 0.0f;  // changes no sum
    if (e < experts) {
      x = exp_of(simt::load(row + e) - max);
      simt::store(row + e, x);
    }
    const std::uint32_t other = simt::shuffle_xor(simt::kAllLanes, simt::float_bits(x), 16);
    sum += x;
    sum += simt::float_of_bits(other);  // of lane + 16, whose own sum is of no use
  }
  SIMT_UNROLL
  for (std::uint32_t lanes = 8; lanes > 0; lanes /= 2) {
    sum += simt::float_of_bits(simt::shuffle_xor(simt::kAllLanes, simt::float_bits(sum), lanes));
  }
  const float inverse =
      1.0f / simt::float_of_bits(simt::shuffle(simt::kAllLanes, simt::float_bits(sum), 0));
  for (std::int32_t e = lane; e < experts; e += 32) {
    simt::store(row + e, simt::load(row + e) * inverse);
  }
}

// An expert by its probability, whose bits order like it: none is negative. NaN counts as 0.
struct Choice {
  std::uint32_t bits;
  std::int32_t expert;
};

// Whether a comes before b: the more probable one, and of equals the lower index.
SIMT_DEVICE bool is_better(const Choice& a, const Choice& b) {
  return a.bits > b.bits || (a.bits == b.bits && a.expert < b.expert);
}

// The best expert of a row that comes after `last`, for all lanes.
SIMT_DEVICE Choice next_choice(simt::Global<const float> row, std::int32_t experts,
                               const Choice& last) {
  Choice best = {0, 0x7fffffff};  // worse than any
  for (auto e = static_cast<std::int32_t>(simt::lane()); e < experts; e += 32) {
    const std::uint32_t bits = simt::float_bits(simt::load(row + e));
    const Choice choice = {bits <= 0x7f800000u ? bits : 0u, e};
    if (is_better(last, choice) && is_better(choice, best)) best = choice;
  }
  SIMT_UNROLL
  for (std::uint32_t lanes = 16; lanes > 0; lanes /= 2) {
    const std::uint32_t bits = simt::shuffle_xor(simt::kAllLanes, best.bits, lanes);
    const std::uint32_t expert =
        simt::shuffle_xor(simt::kAllLanes, static_cast<std::uint32_t>(best.expert), lanes);
    const Choice other = {bits, static_cast<std::int32_t>(expert)};
    if (is_better(other, best)) best = other;
  }
  return best;
}

// The weights of a row are the chosen probabilities, divided by their sum in the order of rank.
SIMT_KERNEL(kRouteThreads) route_experts(ExpertArgs args) {
  simt::wait_for_previous();
  const std::int64_t row =
      static_cast<std::int64_t>(simt::block_index()) * kRouteRows + simt::warp();
  if (row >= args.rows) return;  // the whole warp
  const simt::Global<float> router = args.router + row * args.experts;
  softmax_row(router, args.experts);

  const auto lane = static_cast<std::int32_t>(simt::lane());
  const std::int64_t first = row * args.used;
  float sum = 0.0f;
  Choice choice = {0xffffffffu, -1};  // better than any
  for (std::int32_t rank = 0; rank < args.used; ++rank) {
    choice = next_choice(router, args.experts, choice);
    const float probability = simt::float_of_bits(choice.bits);
    sum += probability;
    if (lane == rank % 32) {
      simt::store(args.expert + (first + rank), choice.expert);
      simt::store(args.weight + (first + rank), probability);
    }
  }
  for (std::int32_t rank = lane; rank < args.used; rank += 32) {  // what the lane itself stored
    const simt::Global<float> weight = args.weight + (first + rank);
    simt::store(weight, simt::load(weight) / sum);
  }
}

// -- Order ---------------------------------------------------------------------------------------
//
// A counting sort that keeps the order of equals. Each of eight warps has an eighth of the pairs,
// which it goes through twice, 32 at a time: first it counts its pairs of each expert, then, when
// all counts have been added up, it takes places from there on.
//
//   shared = | counts: 8 warps x experts | sums of warps: 8 of pairs, 8 of items |    32 bits each
//
// A count becomes the place of the warp's next pair of that expert:
//
//   place(warp, expert) = pairs of lower experts + pairs of this one in lower warps

inline constexpr std::int32_t kOrderThreads = kRowThreads;  // of the only block
inline constexpr std::int32_t kOrderWarps = kOrderThreads / 32;
inline constexpr std::int32_t kMaxExperts = 1024;  // for 48 KB of shared memory; uses 32.06 KB

SIMT_ANYWHERE std::int32_t order_shared_bytes(std::int32_t experts) {
  return 4 * (kOrderWarps * experts + 2 * kOrderWarps);
}
// Items that are enough for any choice of experts.
SIMT_ANYWHERE std::int32_t most_items(std::int32_t pairs, std::int32_t experts,
                                      std::int32_t item_rows) {
  return (pairs < experts ? pairs : experts) + pairs / item_rows;
}

SIMT_DEVICE std::uint32_t count_ones(std::uint32_t x) {
  x -= (x >> 1) & 0x55555555u;
  x = (x & 0x33333333u) + ((x >> 2) & 0x33333333u);
  x = (x + (x >> 4)) & 0x0f0f0f0fu;
  return (x * 0x01010101u) >> 24;
}

// The lanes of those `inside` that have the same number as this lane; numbers are below 2^bits.
SIMT_DEVICE std::uint32_t lanes_with_same(std::uint32_t number, std::int32_t bits, bool inside) {
  std::uint32_t same = simt::ballot(simt::kAllLanes, inside);
  for (std::int32_t bit = 0; bit < bits; ++bit) {
    const bool one = (number >> bit & 1) != 0;
    const std::uint32_t ones = simt::ballot(simt::kAllLanes, one);
    same &= one ? ones : ~ones;
  }
  return same;
}

// Calls visit(pair, expert, same, inside) for the pairs of this warp, 32 at a time in ascending
// order, for all lanes of the warp. same: lanes_with_same of the expert.
template <class Visit>
SIMT_DEVICE void visit_pairs(const ExpertArgs& args, Visit&& visit) {
  const std::int32_t pairs = args.rows * args.used;
  const std::int32_t some = (pairs + kOrderThreads - 1) / kOrderThreads * 32;  // of a warp
  const std::int32_t first = some * static_cast<std::int32_t>(simt::warp());
  const std::int32_t end = first + some < pairs ? first + some : pairs;
  std::int32_t bits = 0;
  while (1 << bits < args.experts) ++bits;
  for (std::int32_t start = first; start < end; start += 32) {
    const std::int32_t pair = start + static_cast<std::int32_t>(simt::lane());
    const bool inside = pair < end;
    const std::int32_t expert = inside ? simt::load(args.expert + pair) : 0;
    visit(pair, expert, lanes_with_same(static_cast<std::uint32_t>(expert), bits, inside), inside);
  }
}

SIMT_KERNEL(kOrderThreads) order_experts(ExpertArgs args) {
  simt::wait_for_previous();
  const auto thread = static_cast<std::int32_t>(simt::thread_index());
  const auto lane = static_cast<std::int32_t>(simt::lane());
  const simt::Shared<std::uint32_t> counts = simt::cast<std::uint32_t>(simt::dynamic_shared());
  const simt::Shared<std::uint32_t> sums = counts + kOrderWarps * args.experts;
  const simt::Shared<std::uint32_t> own =
      counts + static_cast<std::int32_t>(simt::warp()) * args.experts;
  const std::uint32_t lower_lanes = (1u << lane) - 1;

  for (std::int32_t e = lane; e < args.experts; e += 32) simt::store(own + e, 0u);
  simt::sync_warp();  // this warp's counts are zeros
  visit_pairs(args, [&](std::int32_t, std::int32_t expert, std::uint32_t same, bool inside) {
    if (inside && (same & lower_lanes) == 0) {  // one lane for each expert
      simt::store(own + expert, simt::load(own + expert) + count_ones(same));
    }
    simt::sync_warp();  // the next 32 pairs may count on another lane
  });
  simt::sync_threads();  // the counts of all warps are there

  // A thread adds up a few neighbouring experts.
  const std::int32_t some = (args.experts + kOrderThreads - 1) / kOrderThreads;
  const std::int32_t first = some * thread;
  const std::int32_t end = first + some < args.experts ? first + some : args.experts;
  const auto item_rows = static_cast<std::uint32_t>(args.item_rows);
  std::uint32_t pairs = 0;
  std::uint32_t items = 0;
  for (std::int32_t e = first; e < end; ++e) {
    std::uint32_t count = 0;
    for (std::int32_t w = 0; w < kOrderWarps; ++w) {
      count += simt::load(counts + (w * args.experts + e));
    }
    pairs += count;
    items += (count + item_rows - 1) / item_rows;
  }
  std::uint32_t place = sum_before(pairs, sums).lower;
  const Before items_before = sum_before(items, sums + kOrderWarps);
  std::int64_t item = items_before.lower;
  for (std::int32_t e = first; e < end; ++e) {
    const std::uint32_t begin = place;
    for (std::int32_t w = 0; w < kOrderWarps; ++w) {
      const simt::Shared<std::uint32_t> count = counts + (w * args.experts + e);
      const std::uint32_t of_warp = simt::load(count);
      simt::store(count, place);
      place += of_warp;
    }
    for (std::uint32_t at = begin; at < place; at += item_rows, ++item) {
      const std::uint32_t left = place - at;
      simt::store(args.items + item,
                  ExpertItem{e, static_cast<std::int32_t>(at),
                             static_cast<std::int32_t>(left < item_rows ? left : item_rows)});
    }
  }
  for (std::int64_t i = std::int64_t{items_before.all} + thread; i < args.item_count;
       i += kOrderThreads) {
    simt::store(args.items + i, ExpertItem{0, 0, 0});
  }
  simt::sync_threads();  // all counts have become places

  visit_pairs(args, [&](std::int32_t pair, std::int32_t expert, std::uint32_t same, bool inside) {
    const std::uint32_t next = inside ? simt::load(own + expert) : 0u;
    simt::sync_warp();  // all have read
    if (inside) {
      const std::uint32_t at = next + count_ones(same & lower_lanes);
      if ((same & lower_lanes) == 0) simt::store(own + expert, next + count_ones(same));
      simt::store(args.place + pair, static_cast<std::int32_t>(at));
      simt::store(args.x_row + at, pair / args.used);
    }
    simt::sync_warp();  // the next places are there
  });
}

// -- Sum -----------------------------------------------------------------------------------------
//
// result[r][c] = 0 + weight[r][0] * in[place[r][0]][c] + weight[r][1] * in[place[r][1]][c] + ...,
// a rounded product and a rounded sum each, as experts_block in src/backend/cpu/forward.cpp does.
//
//   result [rows][cols]   | block 0: 256 threads x 4 columns | block 1 | ... of a row

inline constexpr std::int32_t kExpertSumThreads = kRowThreads;

// Blocks for a row; the grid has rows times as many.
SIMT_ANYWHERE std::int32_t expert_sum_row_blocks(std::int32_t cols) {
  return (cols + kRowStep - 1) / kRowStep;
}

SIMT_KERNEL(kExpertSumThreads) sum_experts(ExpertSumArgs args) {
  simt::wait_for_previous();
  const auto blocks = static_cast<std::uint32_t>(expert_sum_row_blocks(args.cols));
  const std::int64_t row = simt::block_index() / blocks;
  const auto chunk = static_cast<std::int32_t>(simt::block_index() % blocks);
  const std::int32_t col = chunk * kRowStep + 4 * static_cast<std::int32_t>(simt::thread_index());
  const bool vectors = args.cols % 4 == 0;
  Four sum = {};
  for (std::int32_t k = 0; k < args.used; ++k) {
    const std::int64_t pair = row * args.used + k;
    const std::int64_t place = simt::load(args.place + pair);
    const float weight = simt::load(args.weight + pair);
    const Four x = load_four(args.in + place * args.cols, col, args.cols, vectors);
    SIMT_UNROLL
    for (int i = 0; i < 4; ++i) sum.x[i] += weight * x.x[i];
  }
  store_four(args.result + row * args.cols, col, args.cols, vectors, sum);
}

}  // namespace sluice::cuda

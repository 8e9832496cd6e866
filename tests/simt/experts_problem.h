// Rows that choose their experts, and what must come out of it: the choice as the CPU makes it
// (experts_block in src/backend/cpu/forward.cpp), to the bit, and a stable sort of the pairs.
#pragma once

#include <algorithm>
#include <numeric>

#include "cuda/kernels/experts.cuh"
#include "tests/simt/row_checks.h"

namespace sluice::simt {

struct ExpertShape {
  std::uint32_t rows = 1;
  std::uint32_t experts = 8;
  std::uint32_t used = 2;
  std::uint32_t item_rows = 4;
  std::uint32_t more_items = 0;  // than are needed at most

  std::uint32_t pairs() const { return rows * used; }
  std::string text() const {
    return fmt::format("{} rows, {} of {} experts, items of {} rows", rows, used, experts,
                       item_rows);
  }
};

inline void set_shape(cuda::ExpertArgs& args, const ExpertShape& shape) {
  args.rows = static_cast<std::int32_t>(shape.rows);
  args.experts = static_cast<std::int32_t>(shape.experts);
  args.used = static_cast<std::int32_t>(shape.used);
  args.item_rows = static_cast<std::int32_t>(shape.item_rows);
  args.item_count =
      cuda::most_items(static_cast<std::int32_t>(shape.pairs()), args.experts, args.item_rows) +
      static_cast<std::int32_t>(shape.more_items);
}

// The softmax, the choice and its weights of `logits`, [rows][experts]. Says what was wrong first,
// or nothing.
inline std::string check_route(void (*kernel)(cuda::ExpertArgs), const ExpertShape& shape,
                               std::vector<float> logits, bool reversed = false) {
  Filled<float> router("router", logits);
  Buffer weight("weight", shape.pairs() * 4);
  Buffer expert("expert", shape.pairs() * 4);
  cuda::ExpertArgs args = {};
  args.router = router.begin();
  args.weight = weight.pointer<float>();
  args.expert = expert.pointer<std::int32_t>();
  set_shape(args, shape);
  const Shape grid = {
      .blocks = static_cast<std::uint32_t>(cuda::route_blocks(static_cast<int>(shape.rows))),
      .threads = cuda::kRouteThreads,
      .reversed = reversed};
  if (std::string fault = run(grid, [&] { kernel(args); }); !fault.empty()) return fault;

  std::vector<float> wanted_weight;
  std::vector<std::int32_t> wanted_expert;
  std::vector<float> p = std::move(logits);
  for (std::size_t r = 0; r < shape.rows; ++r) {
    float* row = &p[r * shape.experts];
    cpu::find_kernels("generic")->softmax(row, shape.experts);
    std::vector<std::int32_t> order(shape.experts);
    std::iota(order.begin(), order.end(), 0);
    const auto chance = [row](std::int32_t e) { return std::isnan(row[e]) ? 0.0f : row[e]; };
    std::stable_sort(order.begin(), order.end(),
                     [&](std::int32_t a, std::int32_t b) { return chance(a) > chance(b); });
    float sum = 0;
    for (std::size_t k = 0; k < shape.used; ++k) sum += chance(order[k]);
    for (std::size_t k = 0; k < shape.used; ++k) {
      wanted_expert.push_back(order[k]);
      wanted_weight.push_back(chance(order[k]) / sum);
    }
  }
  return first_of(
      {compare(router, p), compare(expert, wanted_expert), compare(weight, wanted_weight)});
}

// The order of pairs with these experts, [rows][used].
inline std::string check_order(void (*kernel)(cuda::ExpertArgs), const ExpertShape& shape,
                               const std::vector<std::int32_t>& experts, bool reversed = false) {
  Filled<std::int32_t> expert("expert", experts);
  Buffer place("place", shape.pairs() * 4);
  Buffer x_row("x_row", shape.pairs() * 4);
  cuda::ExpertArgs args = {};
  args.expert = expert.begin();
  args.place = place.pointer<std::int32_t>();
  args.x_row = x_row.pointer<std::int32_t>();
  set_shape(args, shape);
  const auto item_count = static_cast<std::size_t>(args.item_count);
  Buffer items("items", item_count * sizeof(cuda::ExpertItem));
  args.items = items.pointer<cuda::ExpertItem>();
  const Shape grid = {
      .threads = cuda::kOrderThreads,
      .shared_bytes = static_cast<std::size_t>(cuda::order_shared_bytes(args.experts)),
      .reversed = reversed};
  if (std::string fault = run(grid, [&] { kernel(args); }); !fault.empty()) return fault;

  std::vector<std::int32_t> sorted(shape.pairs());
  std::iota(sorted.begin(), sorted.end(), 0);
  const auto expert_of = [&](std::int32_t pair) { return experts[static_cast<std::size_t>(pair)]; };
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](std::int32_t a, std::int32_t b) { return expert_of(a) < expert_of(b); });
  std::vector<std::int32_t> wanted_place(shape.pairs());
  std::vector<std::int32_t> wanted_row;
  std::vector<std::int32_t> wanted_items;  // three numbers each
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    const std::int32_t e = expert_of(sorted[i]);
    wanted_place[static_cast<std::size_t>(sorted[i])] = static_cast<std::int32_t>(i);
    wanted_row.push_back(sorted[i] / args.used);
    const bool joins =
        i > 0 && wanted_items[wanted_items.size() - 3] == e && wanted_items.back() < args.item_rows;
    if (joins) {
      ++wanted_items.back();
    } else {
      wanted_items.insert(wanted_items.end(), {e, static_cast<std::int32_t>(i), 1});
    }
  }
  wanted_items.resize(3 * item_count);
  return first_of(
      {compare(place, wanted_place), compare(x_row, wanted_row), compare(items, wanted_items)});
}

struct ExpertSumShape {
  std::uint32_t rows = 1;
  std::uint32_t cols = 1;
  std::uint32_t used = 1;
};

inline std::string check_expert_sum(void (*kernel)(cuda::ExpertSumArgs),
                                    const ExpertSumShape& shape, std::uint64_t seed,
                                    bool reversed = false) {
  cpu::testing::Random random(seed);
  const std::size_t pairs = std::size_t{shape.rows} * shape.used;
  const std::vector<float> in = random_floats(pairs * shape.cols, 3.0f, random);
  const std::vector<float> weight = random_floats(pairs, 1.0f, random);
  std::vector<std::int32_t> place(pairs);
  std::iota(place.begin(), place.end(), 0);
  std::shuffle(place.begin(), place.end(), random);
  std::vector<float> wanted(std::size_t{shape.rows} * shape.cols);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    for (std::size_t k = 0; k < shape.used; ++k) {
      const std::size_t pair = i / shape.cols * shape.used + k;
      const float product =
          weight[pair] * in[static_cast<std::size_t>(place[pair]) * shape.cols + i % shape.cols];
      wanted[i] += product;
    }
  }

  Filled<float> in_buffer("in", in);
  Filled<float> weight_buffer("weight", weight);
  Filled<std::int32_t> place_buffer("place", place);
  Buffer result("result", wanted.size() * 4);
  cuda::ExpertSumArgs args = {};
  args.in = in_buffer.begin();
  args.weight = weight_buffer.begin();
  args.place = place_buffer.begin();
  args.result = result.pointer<float>();
  args.rows = static_cast<std::int32_t>(shape.rows);
  args.cols = static_cast<std::int32_t>(shape.cols);
  args.used = static_cast<std::int32_t>(shape.used);
  const auto blocks = static_cast<std::uint32_t>(cuda::expert_sum_row_blocks(args.cols));
  if (std::string fault = run(
          {.blocks = shape.rows * blocks, .threads = cuda::kExpertSumThreads, .reversed = reversed},
          [&] { kernel(args); });
      !fault.empty()) {
    return fault;
  }
  return compare(result, wanted);
}

}  // namespace sluice::simt

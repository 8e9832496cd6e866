// Rows of logits and the largest of each, by sorting them.
#pragma once

#include <algorithm>
#include <numeric>

#include "cuda/kernels/top_logits.cuh"
#include "tests/simt/row_checks.h"

namespace sluice::simt {

struct TopLogitsShape {
  std::uint32_t rows = 1;
  std::uint32_t cols = 1;
  std::uint32_t stride = 1;
  std::uint32_t count = 1;

  std::string text() const {
    return fmt::format("{} of {} in {} rows of {}", count, cols, rows, stride);
  }
};

// Runs both kernels and says what was wrong first, or nothing. `logits` is [rows][stride].
inline std::string check_top_logits(void (*in_chunks)(cuda::TopLogitsArgs),
                                    void (*of_chunks)(cuda::TopLogitsArgs),
                                    const TopLogitsShape& shape, const std::vector<float>& logits,
                                    bool reversed = false) {
  const auto cols = static_cast<std::int32_t>(shape.cols);
  const auto chunks = static_cast<std::uint32_t>(cuda::select_chunks(cols));
  const std::size_t parts = std::size_t{shape.rows} * chunks * shape.count;
  Filled<float> in("logits", logits);
  Buffer part_id("part_id", parts * 4);
  Buffer part_key("part_key", parts * 4);
  Buffer id("id", std::size_t{shape.rows} * shape.count * 4);
  Buffer logit("logit", std::size_t{shape.rows} * shape.count * 4);
  cuda::TopLogitsArgs args = {};
  args.logits = in.begin();
  args.part_id = part_id.pointer<std::int32_t>();
  args.part_key = part_key.pointer<std::uint32_t>();
  args.id = id.pointer<std::int32_t>();
  args.logit = logit.pointer<float>();
  args.stride = shape.stride;
  args.cols = cols;
  args.count = static_cast<std::int32_t>(shape.count);
  const Shape grid = {.blocks = shape.rows * chunks,
                      .threads = cuda::kSelectThreads,
                      .shared_bytes = cuda::kSelectSharedBytes,
                      .reversed = reversed};
  if (std::string fault = run(grid, [&] { in_chunks(args); }); !fault.empty()) return fault;
  const Shape second = {.blocks = shape.rows,
                        .threads = cuda::kSelectThreads,
                        .shared_bytes = cuda::kSelectSharedBytes,
                        .reversed = reversed};
  if (std::string fault = run(second, [&] { of_chunks(args); }); !fault.empty()) return fault;

  std::vector<std::int32_t> wanted_id;
  std::vector<float> wanted_logit;
  for (std::size_t r = 0; r < shape.rows; ++r) {
    const float* row = &logits[r * shape.stride];
    const auto better = [row](std::int32_t a, std::int32_t b) {
      if (std::isnan(row[a]) || std::isnan(row[b]))
        return std::isnan(row[a]) && !std::isnan(row[b]);
      return row[a] > row[b];
    };
    std::vector<std::int32_t> order(shape.cols);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), better);
    order.resize(shape.count);
    std::sort(order.begin(), order.end());
    for (const std::int32_t i : order) {
      wanted_id.push_back(i);
      wanted_logit.push_back(row[i] + 0.0f);  // one zero
    }
  }
  return first_of({compare(id, wanted_id), compare(logit, wanted_logit)});
}

}  // namespace sluice::simt

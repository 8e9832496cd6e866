// Attention over a cache: buffers for the kernels, and the results that they must give to the bit,
// from plain loops in the order that cuda/kernels/attention.cuh documents.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "cuda/kernels/attention.cuh"
#include "cuda/kernels/attention_merge.cuh"
#include "src/backend/cpu/generic.h"
#include "src/backend/cpu/kv_layout.h"
#include "src/backend/cpu/math.h"
#include "src/base/half.h"
#include "tests/kernels_testing.h"
#include "tests/simt/cached_vector.h"
#include "tests/simt/int4_block.h"

namespace sluice::simt {

// The last `rows` positions of a sequence of `context` tokens.
struct Run {
  std::uint32_t rows = 1;
  std::uint32_t context = 1;
};

struct AttentionShape {
  cuda::PageKind pages = cuda::PageKind::kInt8;
  std::uint32_t head_dim = 64;
  std::uint32_t group = 1;  // query heads of a KV head
  std::uint32_t kv_heads = 1;
  std::vector<Run> runs = {{}};
  std::uint32_t window = 0;
  float softcap = 0;
  std::uint32_t outliers = 0;    // the most of a KV head
  float query_magnitude = 3.0f;  // with keys up to 1
  float value_magnitude = 1.0f;
  std::uint32_t first_block = 0;  // of the cache that is used

  std::uint32_t heads() const { return group * kv_heads; }
  std::string text() const {
    std::string s =
        fmt::format("{} pages, head_dim {}, {} KV heads of {}, window {}, softcap {}, outliers {}",
                    pages_name(pages), head_dim, kv_heads, group, window, softcap, outliers);
    for (const Run& run : runs) s += fmt::format(", {} rows of {}", run.rows, run.context);
    return s;
  }
};

class AttentionProblem {
 public:
  // May change a token's key and value before they are quantized.
  struct Token {
    std::size_t run;
    std::uint32_t position;
    std::uint32_t kv_head;
    float* key;
    float* value;
  };
  AttentionProblem(const AttentionShape& shape, std::uint64_t seed)
      : AttentionProblem(shape, seed, [](const Token&) {}) {}
  template <class Change>
  AttentionProblem(const AttentionShape& shape, std::uint64_t seed, const Change& change)
      : shape_(shape), groups_((shape.head_dim + 31) / 32) {
    make_tokens(seed, change);
    make_int4_blocks();
    make_queries(seed);
    make_outliers(seed);
    make_tiles();
    make_buffers(seed);
    for (std::size_t r = 0; r < row_run_.size(); ++r) {
      for (std::uint32_t h = 0; h < shape_.heads(); ++h) attend(r, h);
    }
  }

  const AttentionShape& shape() const { return shape_; }
  std::size_t rows() const { return row_run_.size(); }
  // [rows][heads * head_dim]
  const std::vector<float>& expected() const { return expected_; }
  // The largest difference between the expected results and a softmax attention over the values of
  // codes in double precision, relative to what a head's largest output could be: the largest sum
  // of p |v| of a dimension.
  double largest_error() const {
    double worst = 0;
    for (std::size_t r = 0; r < rows(); ++r) {
      for (std::uint32_t h = 0; h < shape_.heads(); ++h) worst = std::max(worst, error_of(r, h));
    }
    return worst;
  }

  // The most columns of a tile.
  std::int32_t most_columns() const {
    std::int32_t most = 0;
    for (const cuda::AttentionTile& tile : tiles_) most = std::max(most, tile.columns);
    return most;
  }

  // Runs the kernels with chunks of one piece or with one chunk, and says what was wrong first, or
  // nothing.
  template <class Attend, class Merge>
  std::string check(const Attend& attend_kernel, const Merge& merge_kernel, bool one_piece_chunks,
                    bool reversed = false) {
    const std::uint32_t cols = shape_.heads() * shape_.head_dim;
    const std::size_t count = rows() * cols;
    const bool quantizes = cols % 32 == 0;
    cuda::AttentionArgs args = arguments();
    args.chunks = one_piece_chunks ? static_cast<std::int32_t>(most_pieces_) + 1 : 1;
    args.chunk_pieces = one_piece_chunks ? 1 : std::numeric_limits<std::int32_t>::max();
    const std::size_t slots = tiles_.size() * shape_.kv_heads * args.chunks * 16;
    Buffer partial_out("partial_out", slots * groups_ * 32 * 4);
    Buffer partial_state("partial_state", slots * 2 * 4);
    Buffer out("out", count * 4);
    Buffer q("quantized", count);
    Buffer q_scale("quantized_scale", count / 8 + 4);
    Buffer q_sum("quantized_sum", count / 8 + 4);
    args.partial_out = partial_out.pointer<float>();
    args.partial_state = partial_state.pointer<float>();
    args.out = out.pointer<float>();
    if (quantizes) {
      args.quantized = {q.pointer<std::int8_t>(), q_scale.pointer<float>(),
                        q_sum.pointer<std::uint32_t>()};
    }
    const auto tiles = static_cast<std::int32_t>(tiles_.size());
    const Shape grid = {
        .blocks =
            static_cast<std::uint32_t>(cuda::attend_blocks(tiles, args.kv_heads, args.chunks)),
        .threads = cuda::kAttendThreads,
        .shared_bytes = static_cast<std::size_t>(visit_pages(
            shape_.pages,
            [&](auto pages) {
              return cuda::attend_shared_bytes<decltype(pages)>(args.head_dim, args.chunk_pieces);
            })),
        .reversed = reversed};
    if (std::string fault = run(grid, [&] { attend_kernel(args); }); !fault.empty()) return fault;
    if (one_piece_chunks && partial_state.written_bytes() != expected_state_bytes_) {
      return fmt::format("{} bytes of states are written, not {}", partial_state.written_bytes(),
                         expected_state_bytes_);
    }
    const Shape merge_grid = {.blocks = static_cast<std::uint32_t>(
                                  cuda::merge_blocks(args.rows, args.heads, args.head_dim)),
                              .threads = cuda::kMergeThreads,
                              .reversed = reversed};
    if (std::string fault = run(merge_grid, [&] { merge_kernel(args); }); !fault.empty()) {
      return fault;
    }
    if (std::string wrong = compare(out); !wrong.empty()) return wrong;
    return quantizes ? compare_quantized(q, q_scale, q_sum) : "";
  }

 private:
  struct Range {
    std::uint32_t first;
    std::uint32_t last;
  };

  Range sight(std::size_t row) const {
    const std::uint32_t last = row_position_[row];
    const bool cut = shape_.window != 0 && last >= shape_.window;
    return {cut ? last - shape_.window + 1 : 0, last};
  }
  std::size_t token_index(std::size_t run, std::uint32_t position, std::uint32_t kv_head) const {
    return run_tokens_[run] + std::size_t{position} * shape_.kv_heads + kv_head;
  }

  // -- Data --------------------------------------------------------------------------------------

  template <class Change>
  void make_tokens(std::uint64_t seed, const Change& change) {
    for (std::size_t run = 0; run < shape_.runs.size(); ++run) {
      run_tokens_.push_back(keys_.size());
      // A sequence's tokens do not depend on how many there are.
      cpu::testing::Random random(1000 * seed + run);
      std::vector<float> key(shape_.head_dim);
      std::vector<float> value(shape_.head_dim);
      for (std::uint32_t position = 0; position < shape_.runs[run].context; ++position) {
        for (std::uint32_t h = 0; h < shape_.kv_heads; ++h) {
          for (float& x : key) x = cpu::testing::uniform(random, -1.0f, 1.0f);
          for (float& x : value) {
            x = cpu::testing::uniform(random, -shape_.value_magnitude, shape_.value_magnitude);
          }
          change(Token{run, position, h, key.data(), value.data()});
          keys_.emplace_back();
          values_.emplace_back();
          store_token(shape_.pages, shape_.head_dim, key.data(), value.data(), keys_.back(),
                      values_.back());
        }
      }
    }
  }

  // Of all blocks that are full.
  void make_int4_blocks() {
    if (shape_.pages != cuda::PageKind::kInt4) return;
    for (std::size_t run = 0; run < shape_.runs.size(); ++run) {
      run_int4_.push_back(int4_.size());
      for (std::uint32_t block = 0; block < shape_.runs[run].context / 32; ++block) {
        for (std::uint32_t h = 0; h < shape_.kv_heads; ++h) {
          HalfBlock keys, values;
          for (std::uint32_t i = 0; i < 32; ++i) {
            keys[i] = keys_[token_index(run, 32 * block + i, h)].half;
            values[i] = values_[token_index(run, 32 * block + i, h)].half;
          }
          int4_.push_back(quantize_block(shape_.head_dim, keys, values));
        }
      }
    }
  }
  // The block of a position, where a row sees it in 4 bits.
  const Int4Block* int4_block(std::size_t row, std::uint32_t position,
                              std::uint32_t kv_head) const {
    if (shape_.pages != cuda::PageKind::kInt4 || position / 32 == row_position_[row] / 32) {
      return nullptr;
    }
    return &int4_[run_int4_[row_run_[row]] + std::size_t{position / 32} * shape_.kv_heads +
                  kv_head];
  }

  void make_queries(std::uint64_t seed) {
    for (std::size_t run = 0; run < shape_.runs.size(); ++run) {
      const Run& one = shape_.runs[run];
      for (std::uint32_t r = 0; r < one.rows; ++r) {
        row_run_.push_back(run);
        row_position_.push_back(one.context - one.rows + r);
        // Queries of a position are the same whatever run it is in.
        cpu::testing::Random random(7777 * seed + 1000003 * row_position_.back() + run);
        std::vector<float> query(groups_ * 32);
        for (std::uint32_t h = 0; h < shape_.heads(); ++h) {
          for (std::uint32_t d = 0; d < shape_.head_dim; ++d) {
            query[d] =
                cpu::testing::uniform(random, -shape_.query_magnitude, shape_.query_magnitude);
          }
          q_floats_.insert(q_floats_.end(), query.begin(), query.end());
          for (std::size_t g = 0; g < groups_; ++g) {
            std::int8_t codes[32];
            q_scale_.push_back(cpu::generic_quantize_group(&query[32 * g], 32, codes));
            q_.insert(q_.end(), codes, codes + 32);
          }
        }
      }
    }
    expected_.resize(rows() * shape_.heads() * shape_.head_dim);
  }

  // KV head h has outliers - h of them; the table ends with the last position.
  void make_outliers(std::uint64_t seed) {
    cpu::testing::Random random(seed + 5);
    const std::uint32_t most = shape_.outliers;
    for (const Run& run : shape_.runs) positions_ = std::max(positions_, run.context);
    for (std::uint32_t h = 0; h < shape_.kv_heads; ++h) {
      for (std::uint32_t i = 0; i < most; ++i) {
        const bool there = i + h < most;
        pairs_.push_back({.first = there ? static_cast<std::int32_t>(2 * i) : -1,
                          .second = static_cast<std::int32_t>(2 * i + 1),
                          .bias_first = 50.0f,
                          .bias_second = -20.0f});
      }
    }
    for (std::size_t i = 0; i < std::size_t{shape_.kv_heads} * most * 2 * positions_; ++i) {
      table_.push_back(cpu::testing::uniform(random, -1.0f, 1.0f));
    }
    for (std::size_t i = 0; i < rows() * shape_.heads() * most * 2; ++i) {
      coefficients_.push_back(cpu::testing::uniform(random, -5.0f, 5.0f));
    }
  }

  void make_tiles() {
    std::uint32_t row = 0;
    for (const Run& run : shape_.runs) {
      // With int4, rows of a tile have the same block.
      for (const std::uint32_t end = row + run.rows; row < end;) {
        std::uint32_t rows = end - row;
        if (shape_.pages == cuda::PageKind::kInt4) {
          rows = std::min(rows, 32 - row_position_[row] % 32);
        }
        add_tiles(row, rows);
        row += rows;
      }
      run_table_.push_back(table_size_);
      table_size_ += (run.context + 31) / 32 + 3;  // entries past the end are there, but unwritten
    }
  }
  void add_tiles(std::uint32_t row, std::uint32_t rows) {
    const std::uint32_t columns = rows * shape_.group;
    for (std::uint32_t r = 0; r < rows; ++r) {
      places_.push_back({.tile = static_cast<std::int32_t>(tiles_.size() + r * shape_.group / 16),
                         .column = static_cast<std::int32_t>(r * shape_.group % 16)});
    }
    for (std::uint32_t c = 0; c < columns; c += 16) {
      const std::uint32_t count = std::min(16u, columns - c);
      tiles_.push_back({.first_row = static_cast<std::int32_t>(row),
                        .column = static_cast<std::int32_t>(c),
                        .columns = static_cast<std::int32_t>(count),
                        .table = static_cast<std::int32_t>(table_size_)});
      const std::uint32_t first = sight(row + c / shape_.group).first / 256;
      const std::uint32_t last = sight(row + (c + count - 1) / shape_.group).last / 256;
      most_pieces_ = std::max(most_pieces_, last - first + 1);
      expected_state_bytes_ += std::size_t{last - first + 1} * shape_.kv_heads * count * 8;
    }
  }

  void make_buffers(std::uint64_t seed) {
    if (shape_.pages != cuda::PageKind::kInt8) {
      write(q_buffer_, q_floats_);
    } else {
      write(q_buffer_, q_);
      write(q_scale_buffer_, q_scale_);
    }
    write(tiles_buffer_, tiles_);
    write(places_buffer_, places_);
    std::vector<std::int32_t> positions(row_position_.begin(), row_position_.end());
    write(position_buffer_, positions);
    write(pairs_buffer_, pairs_);
    write(table_buffer_, table_);
    write(coefficients_buffer_, coefficients_);
    fill_cache(seed);
  }
  // A new buffer with these values.
  template <class T>
  static void write(std::unique_ptr<Buffer>& buffer, const std::vector<T>& values) {
    buffer =
        std::make_unique<Buffer>("input", std::max<std::size_t>(16, values.size() * sizeof(T)));
    buffer->write(std::span<const T>(values));
  }

  // Blocks in random order, with garbage where there is no token (some of the halves in it are not
  // finite), and NaN for scales. Blocks that are not in a table stay unwritten.
  void fill_cache(std::uint64_t seed) {
    cpu::testing::Random random(seed + 9);
    std::vector<std::uint32_t> numbers(table_size_);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      numbers[i] = shape_.first_block + static_cast<std::uint32_t>(i);
    }
    std::shuffle(numbers.begin(), numbers.end(), random);
    const auto kv_heads = static_cast<std::int32_t>(shape_.kv_heads);
    const auto head_dim = static_cast<std::int32_t>(shape_.head_dim);
    const auto page_bytes = static_cast<std::size_t>(visit_pages(shape_.pages, [&](auto pages) {
      return cuda::page_bytes<decltype(pages)>(kv_heads, head_dim);
    }));
    cache_ = std::make_unique<Buffer>("cache", (shape_.first_block + table_size_) * page_bytes);
    blocks_ = std::make_unique<Buffer>("blocks", 4 * table_size_);
    for (std::size_t run = 0; run < shape_.runs.size(); ++run) {
      for (std::uint32_t start = 0; start < shape_.runs[run].context; start += 32) {
        const std::size_t entry = run_table_[run] + start / 32;
        const std::uint32_t block = numbers[entry];
        blocks_->write(4 * entry, &block, 4);
        std::vector<std::byte> page(page_bytes);
        if (shape_.pages == cuda::PageKind::kInt4) {  // what is not full stays unwritten
          if (start + 32 > shape_.runs[run].context) continue;
          for (std::uint32_t h = 0; h < shape_.kv_heads; ++h) {
            put_int4(int4_[run_int4_[run] + start / 32 * shape_.kv_heads + h], groups_,
                     &page[2 * groups_ * 640 * h]);
          }
          cache_->write(block * page_bytes, page.data(), page_bytes);
          continue;
        }
        for (std::size_t i = 0; i < page.size(); ++i) {
          const bool is_scale = shape_.pages == cuda::PageKind::kInt8 &&
                                i % cuda::Int8Pages::kRecord >= cuda::Int8Pages::kScales;
          page[i] = static_cast<std::byte>(is_scale ? 0xff : random() & 0xff);
        }
        for (std::uint32_t slot = 0; slot < 32 && start + slot < shape_.runs[run].context; ++slot) {
          for (std::uint32_t h = 0; h < shape_.kv_heads; ++h) {
            const std::size_t token = token_index(run, start + slot, h);
            visit_written_pages(shape_.pages, [&](auto pages) {
              put(pages, page, h, slot, false, keys_[token]);
              put(pages, page, h, slot, true, values_[token]);
            });
          }
        }
        cache_->write(block * page_bytes, page.data(), page_bytes);
      }
    }
    if (shape_.pages == cuda::PageKind::kInt4) fill_slots(random);
  }

  // Slots of the blocks that rows are in, with garbage past the context.
  void fill_slots(cpu::testing::Random& random) {
    const std::size_t page_bytes = shape_.kv_heads * 2 * groups_ * 2048;
    std::vector<std::uint32_t> row_slot;
    std::vector<std::vector<std::byte>> slots;
    for (std::size_t row = 0; row < rows(); ++row) {
      const bool joins = row > 0 && row_run_[row] == row_run_[row - 1] &&
                         row_position_[row] / 32 == row_position_[row - 1] / 32;
      if (joins) {
        row_slot.push_back(row_slot.back());
        continue;
      }
      row_slot.push_back(shape_.first_block + 3 * static_cast<std::uint32_t>(slots.size()) + 1);
      std::vector<std::byte>& page = slots.emplace_back(page_bytes);
      for (std::byte& byte : page) byte = static_cast<std::byte>(random() & 0xff);
      const std::uint32_t start = row_position_[row] / 32 * 32;
      const std::size_t run = row_run_[row];
      for (std::uint32_t i = 0; i < 32 && start + i < shape_.runs[run].context; ++i) {
        for (std::uint32_t h = 0; h < shape_.kv_heads; ++h) {
          const std::size_t token = token_index(run, start + i, h);
          put(cuda::HalfPages(), page, h, i, false, keys_[token]);
          put(cuda::HalfPages(), page, h, i, true, values_[token]);
        }
      }
    }
    recent_ =
        std::make_unique<Buffer>("slots", (shape_.first_block + 3 * slots.size()) * page_bytes);
    for (std::size_t i = 0; i < slots.size(); ++i) {
      recent_->write((shape_.first_block + 3 * i + 1) * page_bytes, slots[i].data(), page_bytes);
    }
    write(row_slot_buffer_, row_slot);
  }

  template <class Pages>
  void put(Pages pages, std::vector<std::byte>& page, std::uint32_t kv_head, std::uint32_t slot,
           bool is_value, const CachedVector& vector) const {
    const auto token = static_cast<std::int32_t>(slot);
    for (std::size_t g = 0; g < groups_; ++g) {
      std::byte* record = &page[static_cast<std::size_t>(cuda::page_record<Pages>(
          0, static_cast<std::int32_t>(shape_.kv_heads), static_cast<std::int32_t>(shape_.head_dim),
          static_cast<std::int32_t>(kv_head), is_value, static_cast<std::int32_t>(g)))];
      for (std::int32_t d = 0; d < 32; ++d) {
        const std::int32_t at =
            is_value ? value_place(pages, token, d) : key_place(pages, token, d);
        const std::size_t dim = 32 * g + static_cast<std::size_t>(d);
        if constexpr (std::is_same_v<Pages, cuda::HalfPages>) {
          std::memcpy(record + at, &vector.half[dim], 2);
        } else {
          std::memcpy(record + at, &vector.code[dim], 1);
        }
      }
      if constexpr (std::is_same_v<Pages, cuda::Int8Pages>) {
        std::memcpy(record + cuda::page_scale(token), &vector.scale[g], 2);
      }
    }
  }

  cuda::AttentionArgs arguments() {
    cuda::AttentionArgs args = {};
    if (shape_.pages != cuda::PageKind::kInt8) {
      args.q_floats = q_buffer_->pointer<const float>();
    } else {
      args.q = q_buffer_->pointer<const std::int8_t>();
      args.q_scale = q_scale_buffer_->pointer<const float>();
    }
    args.cache = cache_->pointer<const std::uint8_t>();
    if (shape_.pages == cuda::PageKind::kInt4) {
      args.recent = recent_->pointer<const std::uint8_t>();
      args.row_slot = row_slot_buffer_->pointer<const std::uint32_t>();
    }
    args.blocks = blocks_->pointer<const std::uint32_t>();
    args.tiles = tiles_buffer_->pointer<const cuda::AttentionTile>();
    args.row = places_buffer_->pointer<const cuda::AttentionRow>();
    args.position = position_buffer_->pointer<const std::int32_t>();
    if (shape_.outliers > 0) {
      args.outliers = {.pairs = pairs_buffer_->pointer<const cuda::OutlierPair>(),
                       .table = table_buffer_->pointer<const float>(),
                       .coefficients = coefficients_buffer_->pointer<float>(),
                       .positions = positions_,
                       .most = static_cast<std::int32_t>(shape_.outliers)};
    }
    args.rows = static_cast<std::int32_t>(rows());
    args.tile_count = static_cast<std::int32_t>(tiles_.size());
    args.heads = static_cast<std::int32_t>(shape_.heads());
    args.kv_heads = static_cast<std::int32_t>(shape_.kv_heads);
    args.head_dim = static_cast<std::int32_t>(shape_.head_dim);
    args.window = static_cast<std::int32_t>(shape_.window);
    args.scale = scale();
    args.softcap = shape_.softcap;
    return args;
  }

  // -- Plain loops -------------------------------------------------------------------------------

  float scale() const { return 1.0f / std::sqrt(static_cast<float>(shape_.head_dim)); }

  // The outlier's factors for a token: {coefficient, table value} of cosine and sine.
  template <class Add>
  void for_outliers(std::size_t row, std::uint32_t head, std::uint32_t position,
                    const Add& add) const {
    const std::uint32_t kv_head = head / shape_.group;
    for (std::uint32_t i = 0; i < shape_.outliers; ++i) {
      const std::size_t pair = std::size_t{kv_head} * shape_.outliers + i;
      if (pairs_[pair].first < 0) continue;
      const float* c = &coefficients_[((row * shape_.heads() + head) * shape_.outliers + i) * 2];
      const float* cosine = &table_[pair * 2 * positions_];
      add(c[0], cosine[position]);
      add(c[1], cosine[positions_ + position]);
    }
  }

  // Of four slices, eight of each 32 numbers each, in sequence.
  template <class Product>
  static float add_slices(std::size_t count, const Product& product) {
    float slice[4] = {};
    for (std::size_t i = 0; i < count; ++i) slice[i % 32 / 8] = product(i, slice[i % 32 / 8]);
    return (slice[0] + slice[1]) + (slice[2] + slice[3]);
  }

  // Of a key in 4 bits: token `slot` of its block.
  float raw_score(std::size_t query, const Int4Block& block, std::size_t slot) const {
    float lane[4] = {};
    float s = 0;
    for (std::size_t g = 0; g < groups_; ++g) {
      float x[32];
      float max = 0;
      bool is_finite = true;
      for (std::size_t i = 0; i < 32; ++i) {
        const std::size_t d = 32 * g + i;
        const float q = q_floats_[query * groups_ * 32 + d];
        float& base = lane[i % 16 / 4];
        base = std::fmaf(q, half_to_float(block.key_middle[d]), base);
        x[i] = q * half_to_float(block.key_scale[d]);
        is_finite = is_finite && std::isfinite(x[i]);
        max = std::max(max, std::abs(x[i]));
      }
      if (!is_finite) return std::numeric_limits<float>::quiet_NaN();
      std::int32_t dot = 0;
      for (std::size_t i = 0; i < 32 && max >= 1e-30f; ++i) {
        const auto code =
            static_cast<std::int32_t>(std::nearbyint(double{x[i]} * double{127.0f / max}));
        dot += code * 16 * (block.key_code[slot][32 * g + i] - 8);
      }
      s = std::fmaf(max >= 1e-30f ? max * (1.0f / 2032.0f) : 0.0f, static_cast<float>(dot), s);
    }
    return s + ((lane[0] + lane[1]) + (lane[2] + lane[3]));
  }

  float raw_score(std::size_t query, const CachedVector& key) const {
    if (key.pages == cuda::PageKind::kF16) {
      return add_slices(32 * groups_, [&](std::size_t d, float sum) {
        return std::fmaf(half_to_float(key.half[d]), q_floats_[query * groups_ * 32 + d], sum);
      });
    }
    float s = 0;
    for (std::size_t g = 0; g < groups_; ++g) {
      std::int32_t dot = 0;
      for (std::size_t d = 0; d < 32; ++d) {
        dot += q_[(query * groups_ + g) * 32 + d] * key.code[32 * g + d];
      }
      s = std::fmaf(q_scale_[query * groups_ + g] * half_to_float(key.scale[g]),
                    static_cast<float>(dot), s);
    }
    return s;
  }

  float score(std::size_t row, std::uint32_t head, std::uint32_t position) const {
    const CachedVector& key = keys_[token_index(row_run_[row], position, head / shape_.group)];
    const Int4Block* block = int4_block(row, position, head / shape_.group);
    const std::size_t query = row * shape_.heads() + head;
    float s = block != nullptr ? raw_score(query, *block, position % 32) : raw_score(query, key);
    for_outliers(row, head, position, [&](float c, float t) { s = std::fmaf(c, t, s); });
    s *= scale();
    if (shape_.softcap > 0) s = shape_.softcap * cpu::scalar_tanh(s * (1.0f / shape_.softcap));
    return s;
  }

  // The share of a page (from token `start` of the piece) in the output of a dimension.
  float page_share(std::size_t row, std::uint32_t head, std::uint32_t piece, std::uint32_t start,
                   Range seen, const float* p, std::size_t dim) const {
    const Int4Block* block = int4_block(row, 256 * piece + start, head / shape_.group);
    if (shape_.pages != cuda::PageKind::kInt8 && block == nullptr) {
      return add_slices(32, [&](std::size_t i, float sum) {
        const std::uint32_t position = 256 * piece + start + static_cast<std::uint32_t>(i);
        if (position < seen.first || position > seen.last) return std::fmaf(0.0f, 0.0f, sum);
        const CachedVector& value =
            values_[token_index(row_run_[row], position, head / shape_.group)];
        return std::fmaf(half_to_float(value.half[dim]), p[start + i], sum);
      });
    }
    const std::size_t g = dim / 32;
    float w[32] = {};
    std::int8_t v[32] = {};
    float base[4] = {};  // of the middles
    float max = 0;
    for (std::uint32_t i = 0; i < 32; ++i) {
      const std::uint32_t position = 256 * piece + start + i;
      if (position < seen.first || position > seen.last) continue;
      const CachedVector& value =
          values_[token_index(row_run_[row], position, head / shape_.group)];
      w[i] = p[start + i] *
             half_to_float(block != nullptr ? block->value_scale[i][g] : value.scale[g]);
      v[i] = block != nullptr ? static_cast<std::int8_t>(block->value_code[i][dim] - 8)
                              : value.code[dim];
      if (block != nullptr) {
        float& lane = base[i % 8 / 2];
        lane = std::fmaf(p[start + i], half_to_float(block->value_middle[i][g]), lane);
      }
      if (!std::isfinite(w[i])) return std::numeric_limits<float>::quiet_NaN();
      max = std::max(max, w[i]);
    }
    const float middles = (base[0] + base[1]) + (base[2] + base[3]);
    if (max < 1e-30f) return middles;
    const float inverse = 32639.0f / max;
    std::int32_t dot = 0;
    for (std::uint32_t i = 0; i < 32; ++i) {
      // The product of two floats is exact in double precision.
      const auto code = static_cast<std::int32_t>(std::nearbyint(double{w[i]} * double{inverse}));
      dot += code * v[i];
    }
    const float of_dot = max * (1.0f / 32639.0f);
    return block != nullptr ? std::fmaf(of_dot, static_cast<float>(dot), middles)
                            : of_dot * static_cast<float>(dot);
  }

  void attend(std::size_t row, std::uint32_t head) {
    const Range seen = sight(row);
    float* out = &expected_[(row * shape_.heads() + head) * shape_.head_dim];
    float state_max = -std::numeric_limits<float>::infinity();
    float state_sum = 0;
    for (std::uint32_t piece = seen.first / 256; piece <= seen.last / 256; ++piece) {
      const auto sees = [&](std::uint32_t i) {
        return 256 * piece + i >= seen.first && 256 * piece + i <= seen.last;
      };
      float p[256] = {};
      float max = -std::numeric_limits<float>::infinity();
      for (std::uint32_t i = 0; i < 256; ++i) {
        if (!sees(i)) continue;
        p[i] = score(row, head, 256 * piece + i);
        max = p[i] > max ? p[i] : max;
      }
      max += 0.0f;
      float sum = 0;
      for (std::uint32_t start = 0; start < 256; start += 32) {
        float lane[4] = {};
        for (std::uint32_t i = 0; i < 32; ++i) {
          if (!sees(start + i)) continue;
          p[start + i] = cpu::scalar_exp(p[start + i] - max);
          lane[i % 8 / 2] += p[start + i];
        }
        sum += (lane[0] + lane[1]) + (lane[2] + lane[3]);
      }
      const float new_max = state_max > max ? state_max : max;
      const float old_factor = cpu::scalar_exp(state_max - new_max);
      const float new_factor = cpu::scalar_exp(max - new_max);
      state_max = new_max;
      state_sum = std::fmaf(sum, new_factor, state_sum * old_factor);
      for (std::size_t d = 0; d < shape_.head_dim; ++d) {
        float acc = 0;
        for (std::uint32_t start = 0; start < 256; start += 32) {
          acc += page_share(row, head, piece, start, seen, p, d);
        }
        out[d] = std::fmaf(acc, new_factor, out[d] * old_factor);
      }
    }
    const float inverse = 1.0f / state_sum;
    for (std::size_t d = 0; d < shape_.head_dim; ++d) out[d] *= inverse;
  }

  double error_of(std::size_t row, std::uint32_t head) const {
    const Range seen = sight(row);
    const std::size_t query = row * shape_.heads() + head;
    const std::uint32_t kv_head = head / shape_.group;
    std::vector<double> s;
    double max = -1e300;
    for (std::uint32_t position = seen.first; position <= seen.last; ++position) {
      const CachedVector& key = keys_[token_index(row_run_[row], position, kv_head)];
      double x = 0;
      for (std::size_t d = 0; d < shape_.head_dim; ++d) {
        const std::size_t at = query * groups_ * 32 + d;
        const double q = shape_.pages == cuda::PageKind::kInt8 ? double{q_scale_[at / 32]} * q_[at]
                                                               : double{q_floats_[at]};
        const Int4Block* block = int4_block(row, position, kv_head);
        x += q * (block != nullptr ? block->key(position % 32, d) : key.value(d));
      }
      for_outliers(row, head, position, [&](float c, float t) { x += double{c} * double{t}; });
      x *= double{scale()};
      if (shape_.softcap > 0) x = double{shape_.softcap} * std::tanh(x / double{shape_.softcap});
      s.push_back(x);
      max = std::max(max, x);
    }
    double sum = 0;
    for (double& x : s) sum += x = std::exp(x - max);
    double difference = 0;
    double magnitude = 0;
    for (std::size_t d = 0; d < shape_.head_dim; ++d) {
      double out = 0;
      double of_magnitudes = 0;
      for (std::size_t i = 0; i < s.size(); ++i) {
        const std::uint32_t position = seen.first + static_cast<std::uint32_t>(i);
        const Int4Block* block = int4_block(row, position, kv_head);
        const double v = block != nullptr
                             ? block->value(position % 32, d)
                             : values_[token_index(row_run_[row], position, kv_head)].value(d);
        out += s[i] / sum * v;
        of_magnitudes += s[i] / sum * std::abs(v);
      }
      const double found = expected_[query * shape_.head_dim + d];
      difference = std::max(difference, std::abs(found - out));
      magnitude = std::max(magnitude, of_magnitudes);
    }
    return difference / magnitude;
  }

  // -- Comparison --------------------------------------------------------------------------------

  std::string compare(const Buffer& out) const {
    if (const auto at = out.first_unwritten(0, out.size())) {
      return fmt::format("byte {} of the results is left unwritten", *at);
    }
    for (std::size_t i = 0; i < expected_.size(); ++i) {
      const auto value = out.read<float>(i);
      const bool both_nan = std::isnan(value) && std::isnan(expected_[i]);  // its bits may differ
      if (float_bits(value) != float_bits(expected_[i]) && !both_nan) {
        const std::size_t query = i / shape_.head_dim;
        return fmt::format("result of row {}, head {}, dimension {} is {}, not {}",
                           query / shape_.heads(), query % shape_.heads(), i % shape_.head_dim,
                           value, expected_[i]);
      }
    }
    return {};
  }

  std::string compare_quantized(const Buffer& q, const Buffer& scale, const Buffer& sum) const {
    const std::size_t count = expected_.size();
    if (q.first_unwritten(0, count) || scale.first_unwritten(0, count / 8) ||
        sum.first_unwritten(0, count / 8)) {
      return "quantized results are left unwritten";
    }
    for (std::size_t group = 0; group < expected_.size() / 32; ++group) {
      std::int8_t codes[32];
      const float wanted = cpu::generic_quantize_group(&expected_[32 * group], 32, codes);
      const auto found = scale.read<float>(group);
      const bool both_nan = std::isnan(found) && std::isnan(wanted);
      if (found != wanted && !both_nan) {
        return fmt::format("scale of group {} of the results is {}, not {}", group, found, wanted);
      }
      int halves[2] = {};
      for (std::size_t i = 0; i < 32; ++i) {
        if (q.read<std::int8_t>(32 * group + i) != codes[i]) {
          return fmt::format("code {} of group {} of the results is wrong", i, group);
        }
        halves[i / 16] += codes[i];
      }
      if (sum.read<std::int16_t>(2 * group) != halves[0] ||
          sum.read<std::int16_t>(2 * group + 1) != halves[1]) {
        return fmt::format("the sum of codes of group {} of the results is wrong", group);
      }
    }
    return {};
  }

  AttentionShape shape_;
  std::size_t groups_;
  std::vector<CachedVector> keys_, values_;  // see token_index
  std::vector<Int4Block> int4_;              // full blocks, by run, block and KV head
  std::vector<std::size_t> run_int4_;        // where a run's begin
  std::vector<std::size_t> run_tokens_;      // where a run's tokens begin
  std::vector<std::size_t> run_table_;       // where a run's blocks begin in the table
  std::size_t table_size_ = 0;
  std::vector<std::size_t> row_run_;         // [rows]
  std::vector<std::uint32_t> row_position_;  // [rows]
  std::vector<std::int8_t> q_;               // [rows][heads][padded_dim]
  std::vector<float> q_scale_;               // [rows][heads][groups]
  std::vector<float> q_floats_;              // [rows][heads][padded_dim]
  std::uint32_t positions_ = 0;              // of the outliers' table
  std::vector<cuda::OutlierPair> pairs_;     // [kv_heads][outliers]
  std::vector<float> table_;                 // [kv_heads][outliers][2][positions]
  std::vector<float> coefficients_;          // [rows][heads][outliers][2]
  std::vector<cuda::AttentionTile> tiles_;
  std::vector<cuda::AttentionRow> places_;  // [rows]
  std::uint32_t most_pieces_ = 0;           // of a tile
  std::size_t expected_state_bytes_ = 0;    // with chunks of one piece
  std::unique_ptr<Buffer> q_buffer_, q_scale_buffer_, cache_, blocks_, tiles_buffer_,
      places_buffer_, position_buffer_, recent_, row_slot_buffer_, pairs_buffer_, table_buffer_,
      coefficients_buffer_;
  std::vector<float> expected_;
};

}  // namespace sluice::simt

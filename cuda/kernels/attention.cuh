// Attention over the cache. A tile is up to 16 query heads (columns) that see one sequence through
// one KV head, see AttentionTile; tokens come in pieces of 256, which are 8 pages of 32.
//
// attend_chunk: a block of threads has a tile, a KV head and a chunk of pieces, in the order of
// partial_out; warp w has page w of each piece. How a page's scores and its share of the values
// come about is the business of its kind (attention_int8.cuh, attention_f16.cuh,
// attention_int4.cuh); the rest is the same for all:
//
//   begin_scores, add_scores, finish_scores   raw scores of a page, record by record
//   keep_weights, stage_values                weights times values, record by record, to the stage
//
// Order of operations, which for a column depends on its position and on the window alone, not on
// the tile, the chunk or what else is in the pass:
//
//   score     raw by kind of pages; outliers by fma, cosine then sine, pair by pair; times
//             args.scale; softcap
//   maximum   over the tokens of the piece that the column sees
//   p         exp_of(score - maximum); 0 for tokens that the column does not see
//   sum       a page's: lane t of four has tokens 8 j + 2 t + i and adds its eight, j before i,
//   then
//             ((t0 + t1) + (t2 + t3)); pages are added in sequence
//   values    a page's share by its kind; pages are added in sequence
//   merge     with the pieces before, see merge_maximum. A piece of which the column sees nothing
//             leaves its state as it is.
//
// Records go straight from global memory into registers; where there are enough of them, one or two
// are on their way while the one before is used (keys_ahead, values_ahead). Partial results are
// merged by attention_merge.cuh.
#pragma once

#include "cuda/kernels/attention_f16.cuh"
#include "cuda/kernels/attention_int4.cuh"
#include "cuda/kernels/attention_int8.cuh"

namespace sluice::cuda {

inline constexpr std::int32_t kNarrowColumns = 8;  // the most of a tile in attend_narrow_chunk

// The grid.
SIMT_ANYWHERE std::int32_t attend_blocks(std::int32_t tiles, std::int32_t kv_heads,
                                         std::int32_t chunks) {
  return tiles * kv_heads * chunks;
}

// Where the chunk's result so far is.
template <class Pages>
SIMT_ANYWHERE std::int32_t attend_out_offset(std::int32_t head_dim) {
  return AttendShared::kOwn + own_shared_bytes(Pages(), head_dim);
}
// Shared memory of a block of threads.
template <class Pages>
SIMT_ANYWHERE std::int32_t attend_shared_bytes(std::int32_t head_dim, std::int32_t chunk_pieces) {
  return attend_out_offset<Pages>(head_dim) +
         (chunk_pieces > 1 ? page_groups(head_dim) * kTileColumns * 32 * 4 : 0);
}
static_assert(attend_shared_bytes<Int8Pages>(kMaxHeadDim, 2) <= 48 * 1024);

// Whether the tile's own block lies apart from the others, as a page of f16.
SIMT_ANYWHERE bool own_page_is_recent(Int8Pages) { return false; }
SIMT_ANYWHERE bool own_page_is_recent(HalfPages) { return false; }
SIMT_ANYWHERE bool own_page_is_recent(Int4Pages) { return true; }
// Whether this page of the context is that one. Rows of a tile share their block, where it does.
template <class Pages>
SIMT_DEVICE bool is_recent(const Sight& seen, std::int32_t page) {
  return own_page_is_recent(Pages()) && page == seen.last / kPageTokens;
}

// -- Scores --------------------------------------------------------------------------------------

// Adds what large key biases have to do with the scores. `token` is the page's first; none past
// `last` is looked up.
template <int kHalves>
SIMT_DEVICE void add_outliers(const AttentionArgs& args, std::int32_t kv_head, std::int32_t token,
                              std::int32_t last, Share<kHalves>& raw) {
  const OutlierArgs& outliers = args.outliers;
  const AttentionTile tile = block_tile(args);
  const auto lane = static_cast<std::int32_t>(simt::lane());
  std::int64_t query[kHalves];
  SIMT_UNROLL
  for (int half = 0; half < kHalves; ++half) {
    const std::int32_t column = lane / 4 + 8 * half;
    query[half] = column < tile.columns ? column_query(args, tile, kv_head, column) : -1;
  }
  SIMT_UNROLL
  for (int j = 0; j < 4; ++j) {
    const std::int32_t at = token + 8 * j + lane % 4 * 2;
    SIMT_NO_UNROLL
    for (std::int32_t n = 0; n < outliers.most; ++n) {
      const std::int64_t pair = std::int64_t{kv_head} * outliers.most + n;
      if (simt::load(simt::cast<const std::int32_t>(outliers.pairs + pair)) < 0) break;
      const simt::Global<const float> table = outliers.table + (pair * 2 * outliers.positions + at);
      float cosine[2] = {};
      float sine[2] = {};
      SIMT_UNROLL
      for (int i = 0; i < 2; ++i) {
        if (at + i > last) continue;
        cosine[i] = simt::load(table + i);
        sine[i] = simt::load(table + (outliers.positions + i));
      }
      SIMT_UNROLL
      for (int half = 0; half < kHalves; ++half) {
        if (query[half] < 0) continue;
        const simt::Global<const float> coefficients =
            outliers.coefficients + (query[half] * outliers.most + n) * 2;
        SIMT_UNROLL
        for (int i = 0; i < 2; ++i) {
          float& x = raw.x[half][j][i];
          x = simt::fma(simt::load(coefficients), cosine[i], x);
          x = simt::fma(simt::load(coefficients + 1), sine[i], x);
        }
      }
    }
  }
}

// x = cap * tanh(x / cap). Registers cannot be indexed: so that there is one copy of the code, not
// one for each place, the places take turns in being the first.
template <int kHalves>
SIMT_DEVICE void cap_scores(float cap, float inverse, Share<kHalves>& scores) {
  SIMT_NO_UNROLL
  for (int turn = 0; turn < 8; ++turn) {
    SIMT_UNROLL
    for (int half = 0; half < kHalves; ++half) {
      float(&x)[4][2] = scores.x[half];
      const float capped = cap * tanh_of(x[0][0] * inverse);
      SIMT_UNROLL
      for (int place = 0; place < 7; ++place) {
        x[place / 2][place % 2] = x[(place + 1) / 2][(place + 1) % 2];
      }
      x[3][1] = capped;
    }
  }
}

// Raw scores become scores; returns which of them count. `token` is the page's first.
template <int kHalves>
SIMT_DEVICE Visible<kHalves> scale_scores(const AttentionArgs& args, std::int32_t token,
                                          Share<kHalves>& scores) {
  const auto lane = static_cast<std::int32_t>(simt::lane());
  Visible<kHalves> visible = {};
  token += lane % 4 * 2;
  SIMT_UNROLL
  for (int half = 0; half < kHalves; ++half) {
    const std::int32_t column = lane / 4 + 8 * half;
    const Sight sight = column_sight(column);
    SIMT_UNROLL
    for (int j = 0; j < 4; ++j) {
      SIMT_UNROLL
      for (int i = 0; i < 2; ++i) {
        scores.x[half][j][i] *= args.scale;
        const std::int32_t at = token + 8 * j + i;
        if (at >= sight.first && at <= sight.last) visible.bits[half] |= 1u << (2 * j + i);
      }
    }
  }
  return visible;
}

// Where a page leaves the maximum and the sum of a column.
SIMT_DEVICE simt::Shared<float> page_slot(std::int32_t base, std::int32_t column,
                                          std::int32_t page) {
  return simt::cast<float>(simt::dynamic_shared() + base) + (column * kPiecePages + page);
}
// The maximum of a column over the piece.
SIMT_DEVICE float piece_maximum(std::int32_t column) {
  float max = simt::float_of_bits(0xff800000u);
  SIMT_UNROLL
  for (int i = 0; i < kPiecePages; i += 4) {
    const simt::Words words = simt::load_words(page_slot(AttendShared::kMaxima, column, i));
    SIMT_UNROLL
    for (int k = 0; k < 4; ++k) {
      const float x = simt::float_of_bits(words.word[k]);
      if (x > max) max = x;
    }
  }
  return max + 0.0f;  // one zero: the order of comparisons must not show
}
SIMT_DEVICE float piece_sum(std::int32_t column) {
  float sum = 0.0f;
  SIMT_UNROLL
  for (int i = 0; i < kPiecePages; i += 4) {
    const simt::Words words = simt::load_words(page_slot(AttendShared::kSums, column, i));
    SIMT_UNROLL
    for (int k = 0; k < 4; ++k) sum += simt::float_of_bits(words.word[k]);
  }
  return sum;
}

// Leaves the page's largest scores for the other warps.
template <int kHalves>
SIMT_DEVICE void write_maxima(const Share<kHalves>& scores, const Visible<kHalves>& visible) {
  const auto lane = static_cast<std::int32_t>(simt::lane());
  SIMT_UNROLL
  for (int half = 0; half < kHalves; ++half) {
    float max = simt::float_of_bits(0xff800000u);  // NaN is never larger
    SIMT_UNROLL
    for (int j = 0; j < 4; ++j) {
      SIMT_UNROLL
      for (int i = 0; i < 2; ++i) {
        const float x = scores.x[half][j][i];
        if ((visible.bits[half] >> (2 * j + i) & 1u) != 0 && x > max) max = x;
      }
    }
    SIMT_UNROLL
    for (std::uint32_t lanes = 1; lanes < 4; lanes *= 2) {
      const float other =
          simt::float_of_bits(simt::shuffle_xor(simt::kAllLanes, simt::float_bits(max), lanes));
      if (other > max) max = other;
    }
    if (lane % 4 == 0) {
      const auto page = static_cast<std::int32_t>(simt::warp());
      simt::store(page_slot(AttendShared::kMaxima, lane / 4 + 8 * half, page), max);
    }
  }
}

// Scores become exp(score - maximum); leaves the page's sums for the other warps.
template <int kHalves>
SIMT_DEVICE void exponentiate(const Visible<kHalves>& visible, Share<kHalves>& scores) {
  const auto lane = static_cast<std::int32_t>(simt::lane());
  SIMT_UNROLL
  for (int half = 0; half < kHalves; ++half) {
    const float max = piece_maximum(lane / 4 + 8 * half);
    float sum = 0.0f;
    SIMT_UNROLL
    for (int j = 0; j < 4; ++j) {
      SIMT_UNROLL
      for (int i = 0; i < 2; ++i) {
        float& x = scores.x[half][j][i];
        x = if_visible(visible, half, j, i, exp_of(x - max));
        sum += x;
      }
    }
    SIMT_UNROLL
    for (std::uint32_t lanes = 1; lanes < 4; lanes *= 2) {
      sum += simt::float_of_bits(simt::shuffle_xor(simt::kAllLanes, simt::float_bits(sum), lanes));
    }
    if (lane % 4 == 0) {
      const auto page = static_cast<std::int32_t>(simt::warp());
      simt::store(page_slot(AttendShared::kSums, lane / 4 + 8 * half, page), sum);
    }
  }
}

// -- Chunks --------------------------------------------------------------------------------------

// The maximum and the sum of a column so far; lane `column / 8` of warp `column % 8` looks after
// them.
SIMT_DEVICE simt::Shared<float> state_slot(std::int32_t column) {
  return simt::cast<float>(simt::dynamic_shared() + AttendShared::kStates) + 2 * column;
}
// The queries of a tile, to shared memory; columns past its last one are zeros and see nothing.
template <class Pages>
SIMT_DEVICE void stage_queries(const AttentionArgs& args, const AttentionTile& tile,
                               std::int32_t kv_head) {
  stage_query_values(Pages(), args, tile, kv_head);
  const auto thread = static_cast<std::int32_t>(simt::thread_index());
  if (thread < kTileColumns) {
    Sight sight = {0, -1};
    if (thread < tile.columns) sight = sight_of(args, column_row(args, tile, thread));
    simt::store(sight_slot(thread), sight.first);
    simt::store(sight_slot(thread) + 1, sight.last);
    simt::store(state_slot(thread), simt::float_of_bits(0xff800000u));  // -infinity
    simt::store(state_slot(thread) + 1, 0.0f);
  }
}

// Pages of a piece that somebody in the tile sees.
struct SeenPages {
  std::int32_t first;
  std::int32_t last;
};
SIMT_DEVICE SeenPages seen_pages(const Sight& seen, std::int32_t piece) {
  const std::int32_t start = piece * kPieceTokens;
  return {seen.first > start ? (seen.first - start) / kPageTokens : 0,
          seen.last - start < kPieceTokens ? (seen.last - start) / kPageTokens : kPiecePages - 1};
}

// Where the factors of a column for the current piece are: old_part, new_part, and whether the
// column sees something of the piece.
SIMT_DEVICE MergeFactors factors_of(const simt::Words& words) {
  return {simt::float_of_bits(words.word[0]), simt::float_of_bits(words.word[1])};
}
SIMT_DEVICE simt::Shared<float> factors_slot(std::int32_t column) {
  return simt::cast<float>(simt::dynamic_shared() + AttendShared::kFactors) + 4 * column;
}

// The maxima of a piece are there: begins its merge into a column's state.
SIMT_DEVICE void begin_merge(std::int32_t column, std::int32_t piece) {
  const simt::Shared<std::int32_t> sight = sight_slot(column);
  const std::int32_t start = piece * kPieceTokens;
  const bool sees = simt::load(sight) < start + kPieceTokens && simt::load(sight + 1) >= start;
  MergeFactors factors = {};
  if (sees) {
    float maximum = simt::load(state_slot(column));
    factors = merge_maximum(maximum, piece_maximum(column));
    simt::store(state_slot(column), maximum);
  }
  simt::store_words(factors_slot(column), {{simt::float_bits(factors.old_part),
                                            simt::float_bits(factors.new_part), sees ? 1u : 0u}});
}

// The sums are there too.
SIMT_DEVICE void finish_merge(std::int32_t column) {
  const simt::Words words = simt::load_words(factors_slot(column));
  if (words.word[2] == 0) return;
  const simt::Shared<float> sum = state_slot(column) + 1;
  simt::store(sum, merge_value(simt::load(sum), piece_sum(column), factors_of(words)));
}

// Adds the pages' shares of a group of dimensions, and merges them into a column's result.
SIMT_DEVICE float merge_group(std::int32_t column, const SeenPages& pages, float old_value) {
  const auto lane = static_cast<std::int32_t>(simt::lane());
  const simt::Words words = simt::load_words(factors_slot(column));
  const simt::Shared<std::uint8_t> stage =
      simt::dynamic_shared() +
      (AttendShared::kStage + column * AttendShared::kStageColumn + 4 * lane);
  float sum = 0.0f;  // adding nothing of pages that are not seen gives the same bits
  SIMT_NO_UNROLL
  for (std::int32_t page = pages.first; page <= pages.last; ++page) {
    sum += simt::load(simt::cast<float>(stage + page * AttendShared::kStagePage));
  }
  return words.word[2] != 0 ? merge_value(old_value, sum, factors_of(words)) : old_value;
}

// Weights times values of a piece, group by group of dimensions, into the chunk's result.
template <class Pages, int kHalves>
SIMT_DEVICE void add_values(const AttentionArgs& args, std::int32_t piece,
                            simt::Global<const std::uint8_t> values, const Share<kHalves>& p,
                            const Visible<kHalves>& visible) {
  const auto lane = static_cast<std::int32_t>(simt::lane());
  const auto warp = static_cast<std::int32_t>(simt::warp());
  const std::int32_t groups = page_groups(args.head_dim);
  const SeenPages pages = seen_pages(load_tile().sight, piece);
  constexpr bool kAhead = values_ahead<kHalves>(Pages());
  const auto load = [values](std::int32_t group) {
    return load_record(Pages(), values + std::int64_t{group} * Pages::kRecord);
  };
  decltype(load(0)) record = {};
  const std::int32_t page = piece * kPiecePages + warp;
  const bool recent = is_recent<Pages>(load_tile().sight, page);
  if (warp >= pages.first && warp <= pages.last) {
    if (kAhead && !recent) record = load(0);
    if (recent) {
      keep_weights(HalfPages(), p);
    } else {
      keep_weights(Pages(), p);
    }
  }
  SIMT_NO_UNROLL
  for (std::int32_t group = 0; group < groups; ++group) {
    if (group > 0) simt::sync_threads();  // everyone has read the stage
    if (warp >= pages.first && warp <= pages.last) {
      if (recent) {
        stage_seen(load_record(HalfPages(), values + std::int64_t{group} * HalfPages::kRecord),
                   load_tile().columns, page * kPageTokens);
      } else {
        if (!kAhead) record = load(group);
        stage_values(record, p, visible, load_tile().columns, page * kPageTokens);
        if (kAhead && group + 1 < groups) record = load(group + 1);
      }
    }
    simt::sync_threads();  // the shares and sums of all pages are there

    const TileView tile = load_tile();
    SIMT_UNROLL
    for (int half = 0; half < kHalves; ++half) {
      const std::int32_t column = warp + 8 * half;
      if (column >= tile.columns) continue;
      const simt::Shared<float> so_far =
          simt::cast<float>(simt::dynamic_shared() + attend_out_offset<Pages>(args.head_dim)) +
          ((group * kTileColumns + column) * 32 + lane);
      const float old_value = piece > tile.first_piece ? simt::load(so_far) : 0.0f;
      const float value = merge_group(column, pages, old_value);
      if (piece < tile.last_piece) {
        simt::store(so_far, value);
      } else {
        const std::int64_t row = std::int64_t{simt::block_index()} * kTileColumns + column;
        const std::int32_t dim = 8 * (lane % 8 / 2) + 2 * (lane / 8) + lane % 2;
        simt::store(args.partial_out + ((row * groups + group) * 32 + dim), value);
      }
    }
  }
}

// Raw scores of a page whose keys begin at `record`, which moves on to its values.
template <class Pages, int kHalves>
SIMT_DEVICE Share<kHalves> page_scores(std::int32_t head_dim, std::int32_t columns,
                                       simt::Global<const std::uint8_t>& record) {
  auto raw = begin_scores<kHalves>(Pages());
  const std::int32_t groups = page_groups(head_dim);
  constexpr int kAhead = keys_ahead<kHalves>(Pages());
  auto next = load_record(Pages(), record);
  auto second = next;
  if (kAhead == 2) second = load_record(Pages(), record + Pages::kRecord);
  SIMT_NO_UNROLL
  for (std::int32_t group = 0; group < groups; ++group) {
    const auto keys = next;
    record = record + Pages::kRecord;
    // In the end the first ones of the values, which brings them near.
    if (kAhead == 2) {
      next = second;
      if (group + 2 < 2 * groups) second = load_record(Pages(), record + Pages::kRecord);
    }
    if (kAhead == 1) next = load_record(Pages(), record);
    add_scores(keys, group, head_dim, columns, raw);
    if (kAhead == 0) next = load_record(Pages(), record);
  }
  return finish_scores(raw, columns);
}

// Warp w looks after columns w and w + 8: lanes 0 and 1 after their states, all lanes after their
// outputs.
template <class Pages, int kHalves>
SIMT_DEVICE void attend_piece(const AttentionArgs& args, std::int32_t piece) {
  const TileView tile = load_tile();
  const auto lane = static_cast<std::int32_t>(simt::lane());
  const auto warp = static_cast<std::int32_t>(simt::warp());
  const std::int32_t page = piece * kPiecePages + warp;
  const SeenPages pages = seen_pages(tile.sight, piece);
  simt::Global<const std::uint8_t> record = args.cache;
  Share<kHalves> share = {};  // scores, later p
  Visible<kHalves> visible = {};
  if (warp >= pages.first && warp <= pages.last) {
    if (is_recent<Pages>(tile.sight, page)) {
      const AttentionTile rows = block_tile(args);
      const std::uint32_t slot = simt::load(args.row_slot + column_row(args, rows, 0));
      record = args.recent +
               page_record<HalfPages>(slot, args.kv_heads, args.head_dim, tile.kv_head, false, 0);
      share = recent_scores<kHalves>(record, args.head_dim, tile.columns);
      record = record + std::int64_t{page_groups(args.head_dim)} * HalfPages::kRecord;
    } else {
      const std::uint32_t block = simt::load(args.blocks + (std::int64_t{tile.table} + page));
      record =
          record + page_record<Pages>(block, args.kv_heads, args.head_dim, tile.kv_head, false, 0);
      share = page_scores<Pages, kHalves>(args.head_dim, tile.columns, record);
    }
    if (args.outliers.most > 0) {
      add_outliers(args, tile.kv_head, page * kPageTokens, tile.sight.last, share);
    }
    visible = scale_scores(args, page * kPageTokens, share);
    if (args.softcap > 0.0f) cap_scores(args.softcap, load_tile().inverse_cap, share);
  }
  write_maxima(share, visible);
  simt::sync_threads();  // the maxima of all pages are there
  const std::int32_t column = warp + 8 * lane;
  const bool has_state = lane < kHalves && column < load_tile().columns;
  if (has_state) begin_merge(column, piece);
  exponentiate(visible, share);
  add_values<Pages>(args, piece, record, share, visible);
  if (has_state) finish_merge(column);
}

template <class Pages, int kHalves>
SIMT_DEVICE void attend_pieces(const AttentionArgs& args) {
  const auto block = static_cast<std::int32_t>(simt::block_index());
  const std::int32_t kv_head = block / args.chunks % args.kv_heads;
  const AttentionTile tile = block_tile(args);
  const Sight seen = {sight_of(args, column_row(args, tile, 0)).first,
                      simt::load(args.position + column_row(args, tile, tile.columns - 1))};
  const std::int32_t first = seen.first / kPieceTokens + block % args.chunks * args.chunk_pieces;
  const std::int32_t last = seen.last / kPieceTokens;
  if (first > last) return;  // the whole block
  stage_queries<Pages>(args, tile, kv_head);
  if (simt::thread_index() == 0) {
    store_tile({seen, tile.columns, tile.table, kv_head, first,
                last - first < args.chunk_pieces ? last : first + args.chunk_pieces - 1,
                args.softcap > 0.0f ? 1.0f / args.softcap : 0.0f});
  }
  simt::sync_threads();  // queries, sights and states are staged

  for (std::int32_t piece = first; piece <= load_tile().last_piece; ++piece) {
    attend_piece<Pages, kHalves>(args, piece);
  }

  const auto lane = static_cast<std::int32_t>(simt::lane());
  const std::int32_t column = static_cast<std::int32_t>(simt::warp()) + 8 * lane;
  if (lane < kHalves && column < load_tile().columns) {
    const std::int64_t at = (std::int64_t{block} * kTileColumns + column) * 2;
    simt::store(args.partial_state + at, simt::load(state_slot(column)));
    simt::store(args.partial_state + (at + 1), simt::load(state_slot(column) + 1));
  }
}

template <class Pages>
SIMT_KERNEL(kAttendThreads, attend_together(Pages()))
attend_chunk(AttentionArgs args) {
  simt::wait_for_previous();
  attend_pieces<Pages, 2>(args);
}

// The same bits at half the work, where no tile has more than kNarrowColumns columns.
template <class Pages>
SIMT_KERNEL(kAttendThreads, attend_together(Pages()))
attend_narrow_chunk(AttentionArgs args) {
  simt::wait_for_previous();
  attend_pieces<Pages, 1>(args);
}

}  // namespace sluice::cuda

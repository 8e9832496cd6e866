"""Copies of the attention kernels with one fault each, for tests/simt_attention_faults_test.cpp; see mutants.py.

    python3 attention_mutants.py KERNEL_FOLDER OUTPUT.h
"""

from mutants import write_mutants

FILES = ["rope.cuh", "attention_parts.cuh", "attention_shared.cuh", "attention_int8.cuh", "attention_f16.cuh", "attention.cuh",
         "attention_merge.cuh"]

# (name, what is wrong, source, replacement)
FAULTS = [
    # Rotation and the cache.
    ("missing_stage_sync", "lanes read a head before others have staged it",
     "  simt::sync_warp();  // the head is staged\n", ""),
    ("missing_restage_sync", "a head is staged again while others still read it",
     "  simt::sync_warp();  // everyone has read what was staged before\n", ""),
    ("wrong_warp_tail", "warps past the last head go on",
     "unit >= args.rows * all_heads", "unit > args.rows * all_heads"),
    ("wrong_pair", "the second value of a pair in halves is that of a pair of neighbours",
     "args.interleaved ? 1 : pairs;", "1;"),
    ("unrounded_scale", "scales of the cache are rounded to nearest, not up",
     "nearest + (simt::half_to_float(nearest) < scale ? 1u : 0u)", "nearest"),
    ("wrong_value_place", "values lie as keys do",
     "is_value ? value_place(pages, slot, lane) : key_place(pages, slot, lane);\n"
     "  simt::store(record + at, static_cast<std::uint8_t>(code));",
     "is_value ? key_place(pages, slot, lane) : key_place(pages, slot, lane);\n"
     "  simt::store(record + at, static_cast<std::uint8_t>(code));"),
    ("wrong_half_place", "values of f16 lie as keys do",
     "is_value ? value_place(pages, slot, lane) : key_place(pages, slot, lane);\n"
     "  simt::store(simt::cast<std::uint16_t>(record + at)",
     "is_value ? key_place(pages, slot, lane) : key_place(pages, slot, lane);\n"
     "  simt::store(simt::cast<std::uint16_t>(record + at)"),
    ("unpadded_query", "the floats of a query's padding are left as they are",
     "    simt::store(args.q_floats +", "    if (32 * i + lane < args.head_dim) simt::store(args.q_floats +"),
    ("cache_offset_of_32_bits", "the offset of a page wraps",
     "page_record<Pages>(block, args.kv_heads, args.head_dim, kv_head, is_value, 0)",
     "static_cast<std::int32_t>(page_record<Pages>(block, args.kv_heads, args.head_dim, kv_head, is_value, 0))"),
    ("padding_pair", "pairs that only fill up a list count",
     "    if (pair.first < 0) continue;\n", ""),
    # Chunks.
    ("missing_query_barrier", "queries are read before all are staged",
     "  simt::sync_threads();  // queries, sights and states are staged\n", ""),
    ("missing_maxima_barrier", "the maximum is taken before all pages have theirs",
     "  simt::sync_threads();  // the maxima of all pages are there\n", ""),
    ("missing_share_barrier", "pages are added before all are there",
     "    simt::sync_threads();  // the shares and sums of all pages are there\n", ""),
    ("missing_reuse_barrier", "the stage is filled while others still read it",
     "    if (group > 0) simt::sync_threads();  // everyone has read the stage\n", ""),
    ("masked_by_product", "an unseen token's scale is multiplied by nothing instead of left out",
     "if_visible(visible, half, j, i, p.x[half][j][i] * record_scale(values, j, i))",
     "if_visible(visible, half, j, i, p.x[half][j][i]) * record_scale(values, j, i)"),
    ("wide_window", "a window is a token too wide", "last - args.window + 1", "last - args.window"),
    ("page_past_the_end", "the last piece is taken to be whole",
     "seen.last - start < kPieceTokens ? (seen.last - start) / kPageTokens : kPiecePages - 1", "kPiecePages - 1"),
    ("row_of_tile", "a tile is taken to begin with the first head of its row",
     "tile.first_row + (tile.column + column) / (args.heads / args.kv_heads)",
     "tile.first_row + tile.column / (args.heads / args.kv_heads) + column / (args.heads / args.kv_heads)"),
    ("unseen_piece_counts", "a piece of which a column sees nothing changes its state",
     "words.word[2] != 0 ? merge_value(old_value, sum, factors_of(words)) : old_value",
     "merge_value(old_value, sum, factors_of(words))"),
    ("wrong_key_words", "halves of a key change places",
     "{keys.plane[0].word[j], keys.plane[1].word[j]}", "{keys.plane[1].word[j], keys.plane[0].word[j]}"),
    ("wrong_weight_words", "fragments of weights change places",
     "high[2 * k + half] =", "high[k + 2 * half] ="),
    ("lost_carry", "the upper byte of a code is not that of its nearest multiple of 256",
     "pair[2 * k] + 0x00800080u", "pair[2 * k]"),
    ("hidden_nan", "a weight that is not finite adds nothing",
     "if (max_bits >= 0x7f800000u) return {0.0f, simt::float_of_bits(0x7fc00000u)};",
     "if (max_bits >= 0x7f800000u) return {0.0f, 0.0f};"),
    ("wrong_stage_order", "results stand in the order of the stage",
     "8 * (lane % 8 / 2) + 2 * (lane / 8) + lane % 2", "lane"),
    ("pages_backwards", "pages are added in another order",
     "std::int32_t page = pages.first; page <= pages.last; ++page",
     "std::int32_t page = pages.last; page >= pages.first; --page"),
    ("wrong_head_of_column", "heads of a column are counted from the tile's first",
     "(tile.column + column) % group", "column % group"),
    ("read_of_32_bits", "the offset of a page wraps where it is read",
     "page_record<Pages>(block, args.kv_heads, args.head_dim, tile.kv_head, false, 0)",
     "static_cast<std::int32_t>(page_record<Pages>(block, args.kv_heads, args.head_dim, tile.kv_head, false, 0))"),
    ("restarted_chunk", "each piece of a chunk begins from nothing",
     "piece > tile.first_piece ? simt::load(so_far) : 0.0f", "0.0f"),
    ("lost_last_piece", "a chunk ends a piece too early",
     "first + args.chunk_pieces - 1", "first + args.chunk_pieces - 2"),
    # Pages of f16.
    ("missing_scores_sync", "scores are taken from lanes that may still have to write them",
     "  simt::sync_warp();  // the scores of all lanes are there\n", ""),
    ("missing_weights_sync", "weights are read before all lanes have written theirs",
     "  simt::sync_warp();  // the weights of all lanes are there\n", ""),
    ("query_past_the_tile", "a query past the tile's last column is read",
     "i < tile.columns * words;", "i < (tile.columns + 1) * words;"),
    ("unseen_halves_count", "what stands where a column sees nothing is multiplied by nothing instead of left out",
     "counts ? row[h][i] : 0.0f", "counts || kMasked ? row[h][i] : 0.0f"),
    ("first_column_sees_all", "what the first column sees from is taken for all",
     "column_sight(columns - 1).first <= token", "column_sight(0 * columns).first <= token"),
    ("last_column_sees_all", "what the last column sees up to is taken for all",
     "column_sight(0).last >= token", "column_sight(columns - 1).last >= token"),
    ("wrong_slice_lane", "slices of the wrong lanes are added",
     "exchange(upper ? pair[0] : pair[1], 2)", "exchange(upper ? pair[0] : pair[1], 1)"),
    ("wrong_slice_order", "the numbers of a slice are taken in another order",
     "for (int part = 0; part < 2; ++part)", "for (int part = 1; part >= 0; --part)"),
    ("unfused_slices", "a multiplication and an addition instead of one fused operation",
     "sum = simt::fma(counts ? row[h][i] : 0.0f, simt::float_of_bits(x.word[i]), sum);",
     "sum += (counts ? row[h][i] : 0.0f) * simt::float_of_bits(x.word[i]);"),
    ("wrong_half_stage", "results of f16 stand in the order of their dimensions",
     "8 * (lane / 8) + 2 * (lane % 4) + lane / 4 % 2;", "8 * (lane % 4) + lane / 4;"),
    ("wrong_halves", "both halves of a word change places",
     "(word >> (16 * (i % 2)))", "(word >> (16 - 16 * (i % 2)))"),
    # The merge.
    ("unseen_chunk", "chunks are merged that the row does not see",
     "/ args.chunk_pieces;\n  const std::int64_t block", "/ args.chunk_pieces + 1;\n  const std::int64_t block"),
    ("lost_first_chunk", "chunks are counted from the row's first",
     "first_piece(args, simt::load(args.tiles + tile))", "sight.first / kPieceTokens"),
    ("column_past_the_tile", "heads in the next tile are looked for in the one where the row begins",
     "place.tile + column / kTileColumns", "place.tile"),
]

if __name__ == "__main__":
    write_mutants(FILES, FAULTS)

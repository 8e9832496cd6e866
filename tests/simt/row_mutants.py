"""Copies of the kernels that go through rows, with one fault each, for tests/simt_rows_faults_test.cpp. See mutants.py.

    python3 row_mutants.py KERNEL_FOLDER OUTPUT.cpp

The output is a unit of its own, so that the real kernels are not in it: a call would find them too, by the namespace of
its arguments.
"""

import sys
from pathlib import Path

from mutants import copies, write

FILES = ["quantize.cuh", "rows.cuh", "norm.cuh", "activate.cuh", "softcap.cuh", "matvec_float.cuh",
         "experts.cuh", "top_logits.cuh"]

# (name, what is wrong, source, replacement)
FAULTS = [
    # rows.cuh
    ("missing_sum_barrier", "the sums of warps are read without a barrier",
     "  simt::sync_threads();  // the sums of all warps are there\n", ""),
    ("wrong_row_tail", "a value past the end of a row is loaded",
     "      if (col + i < cols) four.x[i] = simt::load(row + (col + i));",
     "      if (col + i <= cols) four.x[i] = simt::load(row + (col + i));"),
    # norm.cuh
    ("one_place_for_two_sums", "the second sum is written while other warps still read the first",
     "inverse_root(args, squares, sums + kRowWarps)", "inverse_root(args, squares, sums)"),
    ("add_to_gathered", "what is to be added is added to the wrong rows where rows are gathered",
     "const bool adds = !gathers && !simt::is_null(args.add);", "const bool adds = !simt::is_null(args.add);"),
    ("norm_before_sum", "squares are those of the rows before the sum",
     "    Four x[kNormBatch];\n    SIMT_UNROLL\n"
     "    for (std::int32_t i = 0; i < kNormBatch; ++i) x[i] = row.load(hidden, norm_col(start, i));\n    if (adds) {",
     "    Four x[kNormBatch];\n    SIMT_UNROLL\n"
     "    for (std::int32_t i = 0; i < kNormBatch; ++i) x[i] = row.load(hidden, norm_col(start, i));\n"
     "    for (std::int32_t i = 0; i < kNormBatch; ++i) squares = add_squares(x[i], squares);\n    if (adds) {"),
    ("unfused_squares", "a multiplication and an addition instead of one fused operation",
     "acc = simt::fma(four.x[j], four.x[j], acc);", "acc = four.x[j] * four.x[j] + acc;"),
    ("uneven_shuffle", "lanes past the end leave before the shuffles of their neighbours",
     "if (start + i * kRowStep >= args.cols) break;", "if (norm_col(start, i) >= args.cols) break;"),
    # activate.cuh
    ("misaligned_gate", "gates are loaded as vectors where their rows begin anywhere",
     "const bool vectors = whole && args.stride % 4 == 0;", "const bool vectors = whole;"),
    ("unrounded_codes", "codes are those of the values before the product",
     "quantize_four(bits_of_four(out), col < args.cols, row * args.cols + col, args.quantized);",
     "quantize_four(bits_of_four(gate), col < args.cols, row * args.cols + col, args.quantized);"),
    # softcap.cuh
    ("wrong_last_vector", "the last values are taken for four",
     "const bool vectors = at + 4 <= some;", "const bool vectors = at < some;"),
    # matvec_float.cuh
    ("step_past_the_end", "the last steps that are taken together do not fit",
     "k - lane <= args.cols - 32 * kSteps;", "k - lane <= args.cols - 31 * kSteps;"),
    ("wrong_x_tail", "activation rows past the last one are read",
     "(r < count ? r : count - 1)", "r"),
    ("wrong_result_tail", "results past the last activation row are written",
     "if (lane == r && r < count) {", "if (lane == r) {"),
    ("row_of_32_bits", "the offset of a weight row wraps",
     "weight_row * args.cols * std::int64_t{float_type_bytes(kType)}",
     "static_cast<std::int32_t>(static_cast<std::uint32_t>(weight_row) * static_cast<std::uint32_t>(args.cols) * "
     "static_cast<std::uint32_t>(float_type_bytes(kType)))"),
    # experts.cuh
    ("softmax_sum_order", "the elements of a partial sum are added in another order",
     "    sum += x;\n    sum += simt::float_of_bits(other);", "    sum += simt::float_of_bits(other);\n    sum += x;"),
    ("ties_to_the_last", "of equal experts the last one is chosen",
     "(a.bits == b.bits && a.expert < b.expert)", "(a.bits == b.bits && a.expert > b.expert)"),
    ("missing_count_sync", "a lane counts on what another may still have to write",
     "    simt::sync_warp();  // the next 32 pairs may count on another lane\n", ""),
    ("missing_count_barrier", "counts are added up without a barrier",
     "  simt::sync_threads();  // the counts of all warps are there\n", ""),
    ("missing_place_barrier", "places are taken without a barrier",
     "  simt::sync_threads();  // all counts have become places\n", ""),
    ("missing_read_sync", "the next place is written while other lanes read the last one",
     "    simt::sync_warp();  // all have read\n", ""),
    ("missing_next_sync", "the next place is read without a barrier",
     "    simt::sync_warp();  // the next places are there\n", ""),
    ("items_too_long", "a rest of one row is added to the item before",
     "for (std::uint32_t at = begin; at < place; at += item_rows, ++item)",
     "for (std::uint32_t at = begin; at + 1 < place; at += item_rows, ++item)"),
    # top_logits.cuh
    ("missing_select_barrier", "counts of warps are read without a barrier",
     "  simt::sync_threads();  // all warps have counted\n", ""),
    ("one_set_of_counts", "a count is written while other warps still read the last one",
     "turn % 2 * kRowWarps", "turn % 1 * kRowWarps"),
    ("select_by_bits", "negative logits are ordered by their bits", "bits >> 31 != 0 ? ~bits : bits | 0x80000000u",
     "bits ^ 0x80000000u"),
    ("equals_from_each", "equal logits are taken from each thread", "room > equal_before ? room - equal_before : 0", "room + 0 * equal_before"),
    ("lost_lowest_bit", "the last bit of a key is not looked at", "bit >= 0; --bit", "bit > 0; --bit"),
    ("unread_tail", "a logit past the end of the row is read", "own + i + j < args.cols ?", "own + i + j <= args.cols ?"),
    ("unfilled_parts", "places without a logit are left as they are", "i = n + thread; i < args.count", "i = n + thread; i < n"),
    ("fused_sum", "one fused operation instead of a multiplication and an addition",
     "sum.x[i] += weight * x.x[i];", "sum.x[i] = simt::fma(weight, x.x[i], sum.x[i]);"),
]

INCLUDES = ["cuda/arguments.h", "cuda/kernels/math.cuh", "tests/simt/row_kernels.h"]


def main():
    folder, output = Path(sys.argv[1]), Path(sys.argv[2])
    includes = "".join(f'#include "{name}"\n' for name in INCLUDES)
    rows = "".join(f'    ROW_KERNELS("{name}", "{what}", cuda::{name}),\n' for name, what, *_ in FAULTS)
    write(output, f"{includes}{copies(folder, FILES, FAULTS)}namespace sluice::simt {{\n"
                  f"const std::vector<RowKernels> kFaultyRowKernels = {{\n{rows}}};\n}}\n")


if __name__ == "__main__":
    main()

"""Copies of the kernels with one fault each, for tests/simt_faults_test.cpp.

    python3 mutants.py KERNEL_FOLDER OUTPUT.h

Each fault replaces one piece of the kernels' source, which must be there exactly once: a kernel that changes takes
its fault along or breaks the build. The copy gets a namespace of its own inside that of the kernels, so that it
hides the real ones and still sees the headers that they share; arguments are part of it, or its functions get names of
their own, or a call would find the real function too, by the namespace of its arguments.
"""

import re
import sys
from pathlib import Path

FILES = ["../arguments.h", "quantize.cuh", "tile_codes.cuh", "tile_sums.cuh", "matvec.cuh", "matvec_dp4a.cuh",
         "matvec_mma.cuh", "gated.cuh", "rope.cuh",
         "qkv.cuh", "gemm.cuh"]

# (name, the Check of simt_faults_test.cpp that must catch it, what is wrong, source, replacement)
FAULTS = [
    ("missing_block_barrier", "Matvec", "no barrier between partial sums and their sum",
     "  simt::sync_threads();  // all partial sums are there\n", ""),
    ("missing_ring_barrier", "Matvec", "partial sums are written while other warps still read their rings",
     "  simt::sync_threads();  // all rings are through: their memory takes the partial sums\n", ""),
    ("missing_arrival_sync", "Matvec", "lanes read a stage without waiting for the copies of others",
     "      simt::sync_warp();  // everyone's copies are there\n", ""),
    ("missing_refill_sync", "Matvec", "a stage is filled anew while other lanes still read it",
     "      simt::sync_warp();  // everyone has read the stage\n", ""),
    ("wait_for_too_few", "Matvec", "one group of copies too many may still be under way",
     "simt::wait_async<kStages - 1>()", "simt::wait_async<kStages>()"),
    ("wrong_row_tail", "Matvec", "rows past the matrix's last one are written",
     "work.first_row + tile_row >= args.rows || ", ""),
    ("wrong_x_tail", "Matvec", "activation rows past the last one are read",
     "const bool inside = lane / 2 < work.count;", "const bool inside = lane / 2 <= work.count;"),
    ("wrong_segment_tail", "Matvec", "the last segment does not end with the matrix",
     "first + some < blocks ? first + some : blocks", "first + some"),
    ("segments_backwards", "Matvec", "the segments' sums are added in another order",
     "for (std::int32_t s = 1; s < segments; ++s) {", "for (std::int32_t s = segments - 1; s > 0; --s) {"),
    ("lost_last_block", "Matvec", "the last block of each segment is left out",
     "block < end; ++block", "block < end - 1; ++block"),
    ("offset_of_32_bits", "FarTile", "the offset of a tile wraps",
     "const std::int64_t offset = kTiles * tile * tile_bytes<Tiles>(args.cols / kBlockCols);",
     "const std::int64_t offset = static_cast<std::int32_t>(\n"
     "      static_cast<std::uint32_t>(tile * tile_bytes<Tiles>(args.cols / kBlockCols)));"),
    ("wrong_fragment_lane", "Matvec", "the words of a fragment change places",
     "{low[2 * m], low[2 * m + 1], high[2 * m], high[2 * m + 1]}, x.b",
     "{low[2 * m], high[2 * m], low[2 * m + 1], high[2 * m + 1]}, x.b"),
    ("wrong_result_lane", "Matvec", "results of the tensor cores are taken for those of the neighbouring lane",
     "(segment, 8 * n + 2 * t + i % 2,", "(segment, 8 * n + 2 * (t ^ 1) + i % 2,"),
    ("wrong_scale_row", "Matvec", "scales of the wrong rows",
     "load_scales<Tiles>(stage + Layout::kRecord, 4 * g, header)",
     "load_scales<Tiles>(stage + Layout::kRecord, 4 * (g ^ 1), header)"),
    ("unfused_sum", "Matvec", "a multiplication and an addition instead of one fused operation",
     "simt::fma(w.scale[part][row] * x.scale, dot_value<Tiles>(dot), acc)",
     "w.scale[part][row] * x.scale * dot_value<Tiles>(dot) + acc"),
    ("early_return", "Quantize", "lanes past the end leave before the shuffles",
     "  simt::Words x = {};\n",
     "  if (!inside) return;\n  simt::Words x = {};\n"),
    ("short_shuffle", "Quantize", "the largest value of half of a group only",
     "lanes = 4; lanes > 0", "lanes = 2; lanes > 0"),

    ("no_header_in_a_bundle", "KTypes", "a segment that begins within a bundle gets no header",
     "return block == first || block % Tiles::kBundleBlocks == 0;", "return first >= 0 && block % Tiles::kBundleBlocks == 0;"),
    ("stale_header", "KTypes", "the header of a segment's first bundle is kept for all",
     "return block == first || block % Tiles::kBundleBlocks == 0;", "return block == first;"),
    ("minimum_added", "KTypes", "the minimum has the wrong sign",
     "-(header.dmin[i] * static_cast<float>(bits[i]))", "header.dmin[i] * static_cast<float>(bits[i])"),
    ("half_a_sum", "KTypes", "the minimum is multiplied with the sum of half of the activations",
     "static_cast<float>(first + second)", "static_cast<float>(first)"),
    ("sums_without_sign", "KTypes", "sums of activations are taken without their sign",
     "const std::int32_t first = static_cast<std::int16_t>(sums & 0xffffu);",
     "const std::int32_t first = static_cast<std::int32_t>(sums & 0xffffu);"),
    ("unsigned_scales", "KTypes", "factors of scales are taken without their sign",
     "static_cast<float>(static_cast<std::int8_t>(bits[i]))", "static_cast<float>(bits[i])"),
    ("high_bits_of_another_row", "KTypes", "lanes of dp4a take the high bits of a neighbouring row",
     "bits[0].word[t] >> (2 * (row / 8))", "bits[0].word[t] >> (2 * (row / 8 ^ 1))"),
    ("one_codebook_half", "KTypes", "the fourth bit of a codebook's index is lost",
     "((nibbles & 0x8888u) >> 1) | 0x3210u", "0x3210u"),

    ("first_expert_only", "Experts", "all items go through the first expert",
     "work.tile = work.tile + simt::load(item) * args.expert_bytes;", ""),
    ("rows_not_chosen", "Experts", "activation rows are those of the results",
     "copies_x && inside) source = simt::load(args.x_row + source)", "copies_x && inside) source += 0"),
    ("item_too_long", "Experts", "an item writes as many rows as the kernel can do",
     " || x_row >= work.count) continue", ") continue"),
    ("item_of_none", "Experts", "an item without rows does those of the first",
     "    work.count = simt::load(item + 2);\n",
     "    work.count = simt::load(item + 2);\n    if (work.count == 0) work.count = 1;\n"),

    ("gated_missing_barrier", "Gated", "sums are read before all warps have written theirs",
     "  simt::sync_threads();  // the sums of all segments are there\n", ""),
    ("gated_same_tile", "Gated", "the second matrix is the first one again",
     "second ? work.tile + tile_bytes<Tiles>(blocks) : work.tile", "work.tile"),
    ("gated_late_tile", "Gated", "the second matrix begins a block late",
     "copy_weights<Tiles>(tile, first + (second ? i - each : i), first, stage);",
     "copy_weights<Tiles>(tile, first + (second ? i - each + (i - each + 1 < each ? 1 : 0) : i), first, stage);"),
    ("gated_swapped", "Gated", "gate and up change places", "kTileRows * tile + lane)", "kTileRows * (kTiles - 1 - tile) + lane)"),
    ("gated_next_row", "Gated", "results go to the wrong group", "row * args.product.rows + work.first_row + lane, args.out",
     "row * args.product.rows + (work.first_row ^ 32) + lane, args.out"),
    ("gated_lost_rows", "Gated", "rows past the eighth are not done", "x_row += kSegments)", "x_row += 2 * kSegments)"),

    ("qkv_no_arrival", "Qkv", "each block finishes its head without waiting for the others",
     "if (!simt::arrive_last(args.arrivals + head, tiles)) return;",
     "if (tiles == 0) return;"),
    ("qkv_early_arrival", "Qkv", "the last block but one finishes the head",
     "simt::arrive_last(args.arrivals + head, tiles)", "simt::arrive_last(args.arrivals + head, tiles > 1 ? tiles - 1 : 1)"),
    ("qkv_one_counter", "Qkv", "blocks of all heads arrive at one counter", "args.arrivals + head, tiles", "args.arrivals + 0 * head, tiles"),
    ("qkv_first_rows", "Qkv", "a warp finishes its first row only", "row < work.count; row += kSegments", "row < kSegments; row += kSegments"),
    ("qkv_shared_staging", "Qkv", "warps stage their heads at one place",
     "simt::cast<float>(simt::dynamic_shared()) + warp * kMaxHeadDim;\n  SIMT_NO_UNROLL",
     "simt::cast<float>(simt::dynamic_shared()) + 0 * warp;\n  SIMT_NO_UNROLL"),

    ("gemm_missing_barrier", "Gemm", "warps do not wait for each other's copies",
     "    simt::sync_threads();  // everyone's copies are there, and the stage before has been read\n", ""),
    ("gemm_wait_for_too_few", "Gemm", "one group of copies too many may still be under way",
     "simt::wait_async<kStages - 2>()", "simt::wait_async<kStages - 1>()"),
    ("gemm_wrong_slot", "Gemm", "the stage that is filled is the one that is read",
     "ring + (slot > 0 ? slot - 1 : kStages - 1) * Layout::kBytes", "ring + slot * Layout::kBytes"),
    ("gemm_wrong_row_tail", "Gemm", "rows past the matrix's last one are written",
     "if (r < args.rows && c < work.count) {", "if (c < work.count) {"),
    ("gemm_wrong_x_tail", "Gemm", "activation rows past the last one are read",
     "const bool inside = thread / 2 < work.count;", "const bool inside = thread / 2 <= work.count;"),
    ("gemm_missing_tile", "Gemm", "warps past the last tile read weights all the same",
     "if (has_tile) copy_weights", "copy_weights"),
    ("gemm_one_segment", "Gemm", "blocks are summed without regard to segments",
     "--left == 0 || block == blocks - 1", "--left == -blocks || block == blocks - 1"),
    ("gemm_lost_segment", "Gemm", "the last segment is not added where it is shorter",
     "--left == 0 || block == blocks - 1", "--left == 0"),
    ("gemm_swapped_rows", "Gemm", "results of both halves of a fragment change places",
     "const std::int32_t r = row + 8 * (i / 2);", "const std::int32_t r = row + 8 * (i / 2 ^ 1);"),
    ("gemm_wrong_tile", "Gemm", "blocks of the grid take each other's tiles",
     "args.x_rows - first_x, block / x_groups}", "args.x_rows - first_x, block % x_groups}"),
    ("gemm_first_expert_only", "GemmExperts", "all items go through the first expert",
     "return {simt::load(item) * args.expert_bytes,", "return {0,"),
    ("gemm_rows_not_chosen", "GemmExperts", "activation rows are those of the results",
     "simt::is_null(args.x_row)) source = simt::load(args.x_row + source)", "simt::is_null(args.x_row)) source += 0"),
]


def body(text):
    """What stands between the braces of the kernels' namespace."""
    return re.search(r"^namespace sluice::cuda \{\n(.*)^\}  // namespace sluice::cuda$", text, re.M | re.S).group(1)


def with_own_names(source):
    names = re.findall(r"^SIMT_(?:DEVICE|ANYWHERE)\b[^(;{]*\b(\w+)\(", source, re.M)
    return re.sub(rf"\b({'|'.join(names)})(?=[(<])", r"\1_of_copy", source)


def copies(folder, files, faults, finish=lambda source: source):
    """The files once for each fault, in a namespace of its name."""
    source = "".join(body((folder / name).read_text()) for name in files)
    parts = ["// Made by tests/simt/mutants.py.\n"]
    for name, *_, old, new in faults:
        if source.count(old) != 1:
            sys.exit(f"{sys.argv[0]}: fault '{name}' wants to replace what stands {source.count(old)} times in the kernels, "
                     f"not once: {old!r}")
        parts.append(f"namespace sluice::cuda::{name} {{\n{finish(source.replace(old, new))}}}\n")
    return "".join(parts)


def visitor(faults, rows):
    """Types of the copies, and a function that visits them; `rows` is its body."""
    types = "".join(f"KERNELS_OF({name})\n" for name, *_ in faults)
    return f"{types}template <class Visit>\nvoid for_each_fault(Visit visit) {{\n{rows}}}\n"


def write_mutants(files, faults):
    """Writes copies of `files` with functions of their own names to the header that the command line names."""
    folder, output = Path(sys.argv[1]), Path(sys.argv[2])
    rows = "".join(f'  visit.template operator()<{name}_kernels>("{name}", "{what}");\n' for name, what, *_ in faults)
    write(output, copies(folder, files, faults, with_own_names) + visitor(faults, rows))


def write(output, text):
    if not output.is_file() or output.read_text() != text:  # an unchanged file compiles nothing anew
        output.write_text(text)


def main():
    folder, output = Path(sys.argv[1]), Path(sys.argv[2])
    rows = "".join(f'  visit.template operator()<{name}_kernels, sluice::simt::Check::k{check}>("{name}", "{what}");\n'
                   for name, check, what, *_ in FAULTS)
    write(output, copies(folder, FILES, FAULTS, with_own_names) + visitor(FAULTS, rows))


if __name__ == "__main__":
    main()

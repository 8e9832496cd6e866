"""Copies of the kernels with one fault each, for tests/simt_faults_test.cpp.

    python3 mutants.py KERNEL_FOLDER OUTPUT.h

Each fault replaces one piece of the kernels' source, which must be there exactly once: a kernel that changes takes
its fault along or breaks the build. The copy gets a namespace of its own inside that of the kernels, so that it
hides the real ones and still sees the headers that they share. Its functions get names of their own too: their
arguments are of types outside of that namespace, where a call would find the real functions as well.
"""

import re
import sys
from pathlib import Path

FILES = ["quantize.cuh", "matvec.cuh", "matvec_dp4a.cuh", "matvec_mma.cuh"]

# (name, what is wrong, source, replacement)
FAULTS = [
    ("missing_block_barrier", "no barrier between partial sums and their sum",
     "  simt::sync_threads();  // all partial sums are there\n", ""),
    ("missing_ring_barrier", "partial sums are written while other warps still read their rings",
     "  simt::sync_threads();  // all rings are through: their memory takes the partial sums\n", ""),
    ("missing_arrival_sync", "lanes read a stage without waiting for the copies of others",
     "    simt::sync_warp();  // everyone's copies are there\n", ""),
    ("missing_refill_sync", "a stage is filled anew while other lanes still read it",
     "    simt::sync_warp();  // everyone has read the stage\n", ""),
    ("wait_for_too_few", "one group of copies too many may still be under way",
     "simt::wait_async<Tiles::kStages - 1>()", "simt::wait_async<Tiles::kStages>()"),
    ("wrong_row_tail", "rows past the matrix's last one are written",
     "first_row + tile_row >= args.rows || ", ""),
    ("wrong_x_tail", "activation rows past the last one are read",
     "row < args.x_rows ? 16 : 0", "row <= args.x_rows ? 16 : 0"),
    ("wrong_segment_tail", "the last segment does not end with the matrix",
     "first + some < blocks ? first + some : blocks", "first + some"),
    ("segments_backwards", "the segments' sums are added in another order",
     "for (std::int32_t s = 1; s < segments; ++s) {", "for (std::int32_t s = segments - 1; s > 0; --s) {"),
    ("lost_last_block", "the last block of each segment is left out",
     "block < end; ++block", "block < end - 1; ++block"),
    ("offset_of_32_bits", "the offset of a record wraps",
     "const std::int64_t at = record * Tiles::kRecordBytes + 16 * (i + lane);",
     "const auto at = static_cast<std::int32_t>(static_cast<std::uint32_t>(record) * "
     "Tiles::kRecordBytes + 16u * static_cast<std::uint32_t>(i + lane));"),
    ("wrong_fragment_lane", "the words of a fragment change places",
     "{low[2 * m], low[2 * m + 1], high[2 * m], high[2 * m + 1]}",
     "{low[2 * m], high[2 * m], low[2 * m + 1], high[2 * m + 1]}"),
    ("wrong_result_lane", "results of the tensor cores are taken for those of the neighbouring lane",
     "8 * n + 2 * t + i % 2, 16 * m + g", "8 * n + 2 * (t ^ 1) + i % 2, 16 * m + g"),
    ("wrong_scale_row", "scales of the wrong rows",
     "2 * (g + 8 * i)", "2 * (4 * g + i)"),
    ("unfused_sum", "a multiplication and an addition instead of one fused operation",
     "simt::fma(w_scale * x_scale, static_cast<float>(dot >> Tiles::kShift), acc)",
     "w_scale * x_scale * static_cast<float>(dot >> Tiles::kShift) + acc"),
    ("early_return", "lanes past the end leave before the shuffles",
     "  simt::Words x = {};\n",
     "  if (!inside) return;\n  simt::Words x = {};\n"),
    ("short_shuffle", "the largest value of half of a group only",
     "lanes = 4; lanes > 0", "lanes = 2; lanes > 0"),
]


def body(text):
    """What stands between the braces of the kernels' namespace."""
    return re.search(r"^namespace sluice::cuda \{\n(.*)^\}  // namespace sluice::cuda$", text, re.M | re.S).group(1)


def with_own_names(source):
    names = re.findall(r"^SIMT_(?:DEVICE|ANYWHERE)\b[^(;{]*\b(\w+)\(", source, re.M)
    return re.sub(rf"\b({'|'.join(names)})(?=[(<])", r"\1_of_copy", source)


def write_mutants(files, faults):
    """Writes copies of `files` to the header that the command line names."""
    folder, output = Path(sys.argv[1]), Path(sys.argv[2])
    source = "".join(body((folder / name).read_text()) for name in files)
    parts = [f"// Made by tests/simt/{Path(sys.argv[0]).name}.\n"]
    for name, what, old, new in faults:
        if source.count(old) != 1:
            sys.exit(f"{sys.argv[0]}: fault '{name}' wants to replace what stands {source.count(old)} times in the kernels, "
                     f"not once: {old!r}")
        parts.append(f"namespace sluice::cuda::{name} {{\n{with_own_names(source.replace(old, new))}}}\n")
    rows = "".join(f'  visit.template operator()<{name}_kernels>("{name}", "{what}");\n' for name, what, _, _ in faults)
    for name, *_ in faults:
        parts.append(f"KERNELS_OF({name})\n")
    parts.append(f"template <class Visit>\nvoid for_each_fault(Visit visit) {{\n{rows}}}\n")
    text = "".join(parts)
    if not output.is_file() or output.read_text() != text:  # an unchanged file compiles nothing anew
        output.write_text(text)


if __name__ == "__main__":
    write_mutants(FILES, FAULTS)

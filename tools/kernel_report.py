#!/usr/bin/env python3
"""What nvcc makes of the GPU's kernels: registers, shared memory, spills, how wide they load, and the bytes they must move.

    tools/kernel_report.py [--nvcc FILE] [--targets 80,90] [--disassembler FILE]

Compiles cuda/host/launch.cu for each target; no GPU is needed. Load widths and the instructions that do the arithmetic are counted in
the machine code where nvdisasm or cuobjdump is found. Exit code 1: nvcc or the disassembler failed, or a hot kernel spills
registers, keeps something in local memory, or loads weights or cached keys less than 16 bytes a lane. Exit code 77: there is no nvcc, nothing was checked.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import gpu_predict

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "cuda" / "host" / "launch.cu"
FLAGS = ["-std=c++17", "-O3", "--fmad=false", "--Werror=all-warnings", "-Xcompiler=-Wall,-Wextra,-Werror"]

# Kernels that run for every token: these must not spill.
HOT = re.compile(r"matvec_|gated_|qkv_|gemm|quantize_|add_and_normalise|activate|softcap_|attend_|merge_|rope_|select_|(route|order|sum)_experts")

# What must bring weights and cached keys and values: 16 bytes a lane. And these must have no memory of their own.
# (sm_75 has no cp.async.)
WIDE = re.compile(r"matvec_(dp4a|mma)|gated_|qkv_|gemm|attend_")

# Instructions of the machine code that are counted, by a name for the table. LDGSTS is cp.async; LDSM is ldmatrix.
COUNTED = {
    "cp.async 16": r"LDGSTS\.E\.\S*128|LDGSTS\.E\.BYPASS\.128",
    "cp.async 4": r"LDGSTS\.E(?!\S*128)",
    "global 16": r"LDG\.E\.128|LDG\.E\S*\.128",
    "global <16": r"LDG\.E(?!\S*128)",
    "shared 16": r"LDS\.128|LDS\.U\.128",
    "shared <16": r"LDS(?!M)(?!\S*128)",
    "ldmatrix": r"LDSM",
    "dp4a": r"IDP\.4A",
    "mma": r"IMMA",
    "fma": r"FFMA",
    "local": r"LDL|STL",
}


def readable(symbol):
    """matvec_dp4a<TilesQ4_0, 1> from its mangled name; what does not look like ours stays as it is."""
    found = re.match(r"_ZN6sluice4cuda(\d+)(.*)", symbol)
    if not found:
        return symbol
    length = int(found[1])
    name, rest = found[2][:length], found[2][length:]
    arguments = re.match(r"INS0_\d+(\w+?)E(?:Li(\d+)E)?E", rest)
    if not arguments:
        return name
    return f"{name}<{', '.join(found for found in arguments.groups() if found)}>"


def compile_kernels(nvcc, target, cubin):
    """What ptxas says about each kernel: {name: {registers, shared, spills}}."""
    command = [nvcc, "-cubin", f"-arch=sm_{target}", *FLAGS, "-Xptxas=-v", f"-I{ROOT}", "-o", cubin, SOURCE]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"kernel_report: nvcc failed for sm_{target}:\n{done.stdout}{done.stderr}")
    kernels, name = {}, None
    for line in done.stderr.splitlines():
        if found := re.search(r"Compiling entry function '(\w+)'", line):
            name = readable(found[1])
            kernels[name] = {"registers": 0, "shared": 0, "spills": 0}
        elif found := re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line):
            if name is not None:
                kernels[name]["spills"] += int(found[1]) + int(found[2])
        elif found := re.search(r"Used (\d+) registers", line):
            kernels[name]["registers"] = int(found[1])
            if shared := re.search(r"(\d+) bytes smem", line):
                kernels[name]["shared"] = int(shared[1])
    if not kernels:
        sys.exit(f"kernel_report: nvcc said nothing about kernels for sm_{target}; its output:\n{done.stderr}")
    return kernels


def count_instructions(disassembler, cubin):
    """{name: {counted: number}} from the machine code."""
    options = ["-sass"] if Path(disassembler).name.startswith("cuobjdump") else ["-c"]
    done = subprocess.run([disassembler, *options, str(cubin)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"kernel_report: {disassembler} failed:\n{done.stdout}{done.stderr}")
    counts, name = {}, None
    for line in done.stdout.splitlines():
        if found := re.search(r"^\s*\.text\.(\w+):|Function : (\w+)", line):
            name = readable(found[1] or found[2])
            counts[name] = dict.fromkeys(COUNTED, 0)
        elif name is not None:
            for what, pattern in COUNTED.items():
                counts[name][what] += len(re.findall(rf"\s(?:{pattern})", line))
    return counts


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--nvcc", default=shutil.which("nvcc") or "", help="CUDA's compiler")
    parser.add_argument("--targets", default="75,80,86,89,90,100,120", help="compute capabilities without the dot")
    parser.add_argument("--disassembler", default=shutil.which("nvdisasm") or shutil.which("cuobjdump") or "",
                        help="nvdisasm or cuobjdump")
    options = parser.parse_args()
    if not options.nvcc or not Path(options.nvcc).is_file():
        print("kernel_report: SKIPPED, no nvcc here: that the kernels compile for GPUs is NOT checked")
        return 77
    if not options.disassembler:
        places = [Path(options.nvcc).parent / name for name in ("nvdisasm", "cuobjdump")]
        places += (ROOT / "build/venv-cuda").glob("lib/python*/site-packages/nvidia/*/bin/nvdisasm")  # scripts/test.sh
        options.disassembler = next((str(path) for path in places if path.is_file()), "")

    spilling, narrow = [], []
    with tempfile.TemporaryDirectory() as folder:
        for target in options.targets.split(","):
            cubin = Path(folder) / f"kernels_{target}.cubin"
            kernels = compile_kernels(options.nvcc, target, cubin)
            counts = count_instructions(options.disassembler, cubin) if options.disassembler else {}
            print(f"sm_{target}")
            for name, kernel in sorted(kernels.items()):
                counted = ", ".join(f"{what}: {n}" for what, n in counts.get(name, {}).items() if n > 0)
                print(f"  {name:<32} {kernel['registers']:>4} registers {kernel['shared']:>6} bytes static shared"
                      f" {kernel['spills']:>4} bytes spilled  {counted}")
                if kernel["spills"] > 0 and HOT.match(name):
                    spilling.append(f"{name} on sm_{target}: {kernel['spills']} bytes")
                if counts and WIDE.match(name):
                    wide = counts[name]["cp.async 16"] + counts[name]["global 16"]
                    if wide == 0 or counts[name]["local"] > 0:
                        narrow.append(f"{name} on sm_{target}")
    print("bytes that each must move in a decode step, a layer of an 8B model (Q4_0, int8 cache, 512 tokens; gpu_predict.py):")
    for step, moved in gpu_predict.layer_kernels(gpu_predict.MODELS["8B"], 512, "int8"):
        print(f"  {step:<32} {moved:>12,.0f}")
    if not options.disassembler:
        print("kernel_report: no nvdisasm or cuobjdump here: load widths are not counted")
    if narrow:
        print("kernel_report: hot kernels without loads of 16 bytes, or with local memory: " + "; ".join(narrow), file=sys.stderr)
        return 1
    if spilling:
        print("kernel_report: hot kernels spill registers: " + "; ".join(spilling), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Instructions of a start, a prompt's token and a generated token, counted by valgrind: what noise hides from a clock.

    scripts/count_instructions.py [--update] [--limit PERCENT]

Small models of a few block types run on one thread under callgrind, with AVX2, the widest set that valgrind knows; counts repeat to
well below a percent. They are shown beside those in scripts/instruction_counts.json; one that grew by more than the limit (2%) makes exit
code 1. --update records the new ones. Other compilers count otherwise: compare with what the same machine recorded. Needs valgrind and a
release build with its tools; takes a minute or two.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build/release"
RECORDED = ROOT / "scripts/instruction_counts.json"
SHAPE = ["--layers", "2", "--embd", "512", "--heads", "8", "--kv-heads", "2", "--head-dim", "64", "--ffn", "1536", "--vocab", "2048"]
TYPES = ["q4_0", "q4_k", "q6_k", "q8_0", "f16"]
DEPTH = 520


def count(arguments):
    with tempfile.NamedTemporaryFile() as out:
        done = subprocess.run(["valgrind", "--tool=callgrind", f"--callgrind-out-file={out.name}", BUILD / "sluice", *arguments],
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    found = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode != 0 or not found:
        sys.exit(f"count_instructions: sluice {' '.join(map(str, arguments))} failed:\n{done.stderr}")
    return int(found[1])


def run(model, prompt, generated, kv="int8"):
    ids = ",".join(str(3 + i * 7 % 2000) for i in range(prompt))
    return ["run", "-m", model, "--prompt-tokens", ids, "-n", str(generated), "--kv", kv, "--temp", "0", "--ignore-eos", "--spec", "off", "-t", "1",
            "--cpu-isa", "avx2", "--quiet"]


def cases(folder):
    """name: (arguments of a run with more work, those of one with less or None, by how many units they differ)"""
    all_cases = {}
    for kind in TYPES:
        model = Path(folder) / f"{kind}.gguf"
        subprocess.run([BUILD / "tools/make_model", model, *SHAPE, "--type", kind], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        all_cases[f"{kind}: start and first token"] = (run(model, 1, 1), None, 1)
        all_cases[f"{kind}: a token of a prompt"] = (run(model, 129, 1), run(model, 1, 1), 128)
        all_cases[f"{kind}: a generated token"] = (run(model, 1, 17), run(model, 1, 1), 16)
    model = Path(folder) / "q4_0.gguf"
    for kv in ["int8", "f16", "int4"]:
        all_cases[f"{kv} cache: a generated token at {DEPTH}"] = (run(model, DEPTH, 9, kv), run(model, DEPTH, 1, kv), 8)
    text = "The quick brown fox, who is 42, doesn't jump over lazy dogs; it walks. " * 200
    all_cases["tokenize --json: a byte of text"] = (["tokenize", "--json", text], ["tokenize", "--json", "x"], len(text))
    return all_cases


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--update", action="store_true", help="record the counts")
    parser.add_argument("--limit", type=float, default=2.0, help="percent by which a count may grow (2)")
    options = parser.parse_args()
    if not shutil.which("valgrind"):
        sys.exit("count_instructions: valgrind is not there (Debian's package valgrind)")
    recorded = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        wanted = cases(folder)
        runs = {tuple(map(str, arguments)) for more, less, _ in wanted.values() for arguments in (more, less) if arguments}
        with ThreadPoolExecutor(2) as workers:
            counted = dict(zip(runs, workers.map(count, runs)))
    counts, grown = {}, []
    print(f"{'':44}{'instructions':>14}{'recorded':>14}{'change':>9}")
    for name, (more, less, units) in wanted.items():
        difference = counted[tuple(map(str, more))] - (counted[tuple(map(str, less))] if less else 0)
        counts[name] = round(difference / units)
        before = recorded.get(name)
        change = f"{100 * (counts[name] / before - 1):+8.2f}%" if before else ""
        print(f"{name:44}{counts[name]:14,}{f'{before:,}' if before else '':>14}{change}")
        if before and counts[name] > before * (1 + options.limit / 100):
            grown.append(name)
    if options.update:
        RECORDED.write_text(json.dumps(counts, indent=2) + "\n")
        print(f"recorded in {RECORDED.relative_to(ROOT)}")
    elif grown:
        sys.exit(f"count_instructions: more than {options.limit}% above what is recorded: {'; '.join(grown)}")


if __name__ == "__main__":
    main()

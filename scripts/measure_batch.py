#!/usr/bin/env python3
"""Many prompts at a time: throughput by slots, beside one at a time and beside llama.cpp's batched decoding.

    scripts/measure_batch.py MODEL [--slots 1,2,4,8,16,32] [--items 32] [--tokens 64] [--rounds 3] [--side both|sluice|llama]

Every item is a prompt of about 40 tokens and gets exactly --tokens tokens at temperature 0; ends are ignored. Both sides run
the same number of threads; sluice its int8 cache, llama.cpp its f16 cache (its default). Runs alternate, figures are medians of
generated tokens per second, prompts included, loading excluded. The answers of all slot counts must be equal.

llama.cpp comes as in scripts/compare_peers.py (--python-env). Its side is a plain continuous loop over llama_decode: every pass has a row
of each running sequence, a finished one makes room for the next prompt, and argmax is numpy's. Run it on an idle machine.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SUBJECTS = ["rivers", "clocks", "the moon", "bread", "bridges", "owls", "glass", "winter", "maps", "salt", "violins", "tides", "ink",
            "lanterns", "chess", "whales"]


def prompts(count):
    return [f"Item {i}: write a few plain sentences about {SUBJECTS[i % len(SUBJECTS)]}, for a reader of {10 + i % 50} years who has never heard "
            f"of it, and say at the end what is most surprising." for i in range(count)]


def sluice(options, slots):
    with tempfile.TemporaryDirectory() as folder:
        source, out, report = (Path(folder) / name for name in ("in.jsonl", "out.jsonl", "report.json"))
        source.write_text("".join(json.dumps({"id": str(i), "prompt": p}) + "\n" for i, p in enumerate(prompts(options.items))))
        subprocess.run([options.sluice, "batch", "-m", options.model, "-i", source, "-o", out, "--slots", str(slots), "-n", str(options.tokens),
                        "--temp", "0", "--ignore-eos", "--raw", "-c", "512", "-t", str(options.threads), "--spec", options.spec, "--report", report,
                        "--quiet"], check=True, stderr=subprocess.DEVNULL)
        answers = {item["id"]: item["text"] for item in map(json.loads, out.read_text().splitlines())}
        return json.loads(report.read_text())["throughput"]["generated_tokens_per_s"], answers


def llama_worker(options):
    import llama_cpp as api
    import numpy as np
    quiet = api.llama_log_callback(lambda level, text, data: None)
    api.llama_log_set(quiet, None)
    api.llama_backend_init()
    model = api.llama_model_load_from_file(str(options.model).encode(), api.llama_model_default_params())
    vocabulary = api.llama_model_get_vocab(model)
    n_vocab = api.llama_vocab_n_tokens(vocabulary)
    params = api.llama_context_default_params()
    slots = options.worker_slots
    params.n_seq_max = slots
    params.n_ctx = 512 * slots
    params.n_batch = params.n_ubatch = 512
    params.n_threads = params.n_threads_batch = options.threads
    context = api.llama_init_from_model(model, params)
    batch = api.llama_batch_init(512, 0, 1)
    memory = api.llama_get_memory(context)

    def tokenize(text):
        data = text.encode()
        tokens = (api.llama_token * (len(data) + 8))()
        return list(tokens[: api.llama_tokenize(vocabulary, data, len(data), tokens, len(data) + 8, True, False)])

    def decode(rows):  # (token, position, sequence, logits)
        batch.n_tokens = len(rows)
        for i, (token, position, sequence, wanted) in enumerate(rows):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, position, 1, wanted
            batch.seq_id[i][0] = sequence
        if api.llama_decode(context, batch) != 0:
            sys.exit("llama_decode failed")

    def best(row):
        return int(np.ctypeslib.as_array(api.llama_get_logits_ith(context, row), (n_vocab,)).argmax())

    waiting = [tokenize(p) for p in prompts(options.items)]
    running, free, generated = {}, list(range(slots)), 0
    decode([(waiting[0][0], 0, 0, True)])  # warm
    api.llama_memory_seq_rm(memory, 0, -1, -1)
    start = time.perf_counter()
    while waiting or running:
        rows = [(text[-1], len(text) - 1, sequence, True) for sequence, (text, _) in running.items()]
        order = list(running)
        while waiting and free and len(rows) + len(waiting[0]) <= 512:
            prompt, sequence = waiting.pop(0), free.pop()
            rows += [(token, i, sequence, i + 1 == len(prompt)) for i, token in enumerate(prompt)]
            running[sequence] = (prompt, len(prompt) + options.tokens)
            order += [None] * (len(prompt) - 1) + [sequence]
        decode(rows)
        for row, sequence in enumerate(order):
            if sequence is None:
                continue
            text, end = running[sequence]
            text.append(best(row))
            generated += 1
            if len(text) >= end:
                del running[sequence]
                api.llama_memory_seq_rm(memory, sequence, -1, -1)
                free.append(sequence)
    print(generated / (time.perf_counter() - start))


def llama(options, slots):
    command = [options.python_env / "bin/python", __file__, options.model, "--items", str(options.items), "--tokens", str(options.tokens), "--threads",
               str(options.threads), "--worker-slots", str(slots)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--slots", default="1,2,4,8,16,32")
    parser.add_argument("--items", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--spec", default="off", help="sluice's guessing: off or auto")
    parser.add_argument("--side", choices=["both", "sluice", "llama"], default="both")
    parser.add_argument("--sluice", default=str(ROOT / "build/release/sluice"))
    parser.add_argument("--python-env", type=Path, default=ROOT / "build/venv-peers")
    parser.add_argument("--worker-slots", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker_slots:
        llama_worker(options)
        return
    counts = [int(n) for n in options.slots.split(",")]
    ours, theirs, first = {n: [] for n in counts}, {n: [] for n in counts}, None
    for _ in range(options.rounds):
        for n in counts:
            if options.side != "llama":
                rate, answers = sluice(options, n)
                first = first or answers
                if answers != first:
                    raise SystemExit(f"other answers with {n} slots: a fault")
                ours[n].append(rate)
            if options.side != "sluice":
                theirs[n].append(llama(options, n))
    cell = lambda values: f"{statistics.median(values):.1f}" if values else "-"
    print("| slots | sluice, t/s | of one at a time | llama.cpp, t/s | sluice / llama.cpp |")
    print("|---|---|---|---|---|")
    for n in counts:
        alone = statistics.median(ours[n]) / statistics.median(ours[counts[0]]) if ours[n] else 0
        ratio = statistics.median(ours[n]) / statistics.median(theirs[n]) if ours[n] and theirs[n] else 0
        print(f"| {n} | {cell(ours[n])} | {alone:.2f} | {cell(theirs[n])} | {ratio:.2f} |")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Compares sluice with llama.cpp on this machine: one GGUF file, one text, the same work for both.

    scripts/compare_peers.py MODEL [--text FILE] [--only speed|perplexity|start] [--json FILE]

What is measured:
- decode: tokens/s of single-token steps, from an empty context and at a depth
- prompt: tokens/s of a prompt of 512 tokens
- pass: milliseconds of one forward pass of 1, 2, 4, 8 and 16 rows of one sequence, logits for each row
- start (only when asked for with --only start): from nothing to the first token of a prompt of five, with the
  file in the system's cache, and the most memory in use. sluice: the whole process. llama.cpp: from loading the
  model on, without the interpreter's own start; its memory without what the interpreter had before
- perplexity: whole text tokenized once, cut in chunks of n_ctx tokens, a last partial chunk dropped; the
  first token of each chunk is replaced by BOS where the vocabulary asks for one; the second half of each
  chunk is scored; exp(mean negative log likelihood). The sum of the softmax is taken in float64.

Speed runs alternate, one process of each side after the other, --rounds times; the figures are
medians. Both sides run the same number of threads and an f16 KV cache unless told otherwise, and llama.cpp
its defaults otherwise (weights repacked, batches of 512; flash attention is "auto", which
is on for CPUs: --flash-attention off for the other way). Run it on an idle machine: llama.cpp's threads spin.

llama.cpp comes as llama-cpp-python, built for this machine into build/venv-peers at the first run (minutes);
--python-env names another environment that has it. A fork with a llama-bench of its own joins the speed runs by --bench-peer (ik_llama.cpp=/path/llama-bench): flash attention and weights repacked
at run time (-fa 1 -rtr 1); its passes of N rows are prompts of N tokens, which have logits for the last row only.

sluice's side is these commands:

    sluice bench -m MODEL -t T -p 512 -n 64 -d DEPTH -b 1,2,4,8,16 --kv f16 --json
    sluice run -m MODEL -t T --raw -p "One two three four five" -n 1 -c 512 --kv f16 --temp 0 --quiet
    sluice perplexity -m MODEL -t T -f TEXT -c N_CTX --kv f16 --json
"""

import argparse
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
START_PROMPT = "One two three four five"
PINNED = ["llama-cpp-python==0.3.36", "numpy"]


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("--text", type=Path, help="for perplexity; scripts/get_text.sh fetches one")
    parser.add_argument("--only", choices=["speed", "perplexity", "start"])
    parser.add_argument("--side", choices=["both", "sluice", "llama"], default="both")
    parser.add_argument("--sluice", type=Path, default=ROOT / "build/release/sluice")
    parser.add_argument("--python-env", type=Path, default=ROOT / "build/venv-peers")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=3, help="runs of each side for speed")
    parser.add_argument("--prompt", type=int, default=512, help="tokens of the prompt")
    parser.add_argument("--decode", type=int, default=64, help="tokens decoded a measurement")
    parser.add_argument("--depths", default="0,1024", help="context lengths for decode")
    parser.add_argument("--rows", default="1,2,4,8,16", help="rows of the measured passes")
    parser.add_argument("--n-ctx", type=int, default=512, help="chunk length for perplexity")
    parser.add_argument("--first-tokens", type=int, default=0, help="score only the first N tokens, 0: all")
    parser.add_argument("--kv", default="f16", help="f16, or q8_0 on llama.cpp's side for int8")
    parser.add_argument("--flash-attention", choices=["auto", "on", "off"], default="auto")
    parser.add_argument("--bench-peer", action="append", default=[], metavar="NAME=PROGRAM",
                        help="one more side for speed: the llama-bench of a fork of llama.cpp that repacks weights at run time")
    parser.add_argument("--packed-cache", action="store_true", help="with --only start: sluice maps the packed weights of its first run")
    parser.add_argument("--json", type=Path, help="write all figures there")
    parser.add_argument("--llama-worker", choices=["speed", "perplexity", "start"], help=argparse.SUPPRESS)
    return parser.parse_args()


# ---------------------------------------------------------------- llama.cpp, in a process of its own


class Llama:
    """The low-level API: a model, a context, batches of one sequence."""

    KV_TYPES = {"f32": 0, "f16": 1, "int8": 8, "q8_0": 8}
    FLASH = {"auto": -1, "off": 0, "on": 1}

    def __init__(self, arguments, n_ctx):
        import llama_cpp

        self.api = api = llama_cpp
        # The callback must outlive the library's use of it.
        self.quiet = api.llama_log_callback(lambda level, text, data: None)
        api.llama_log_set(self.quiet, None)
        api.llama_backend_init()
        self.model = api.llama_model_load_from_file(
            str(arguments.model).encode(), api.llama_model_default_params()
        )
        if not self.model:
            sys.exit(f"llama.cpp cannot load {arguments.model}")
        self.vocabulary = api.llama_model_get_vocab(self.model)
        self.n_vocab = api.llama_vocab_n_tokens(self.vocabulary)
        params = api.llama_context_default_params()
        params.n_ctx = n_ctx
        params.n_batch = n_ctx
        params.n_ubatch = 512
        params.n_threads = params.n_threads_batch = arguments.threads
        params.type_k = params.type_v = self.KV_TYPES[arguments.kv]
        params.flash_attn_type = self.FLASH[arguments.flash_attention]
        params.no_perf = True
        # Windowed layers keep the whole context, so that rows can be taken back and measured again.
        params.swa_full = True
        self.context = api.llama_init_from_model(self.model, params)
        if not self.context:
            sys.exit("llama.cpp cannot make a context of this size and KV type")
        self.batch = api.llama_batch_init(n_ctx, 0, 1)

    def tokenize(self, text):
        data = text.encode("utf-8")
        room = len(data) + 8
        tokens = (self.api.llama_token * room)()
        count = self.api.llama_tokenize(self.vocabulary, data, len(data), tokens, room, True, False)
        if count < 0:
            sys.exit("llama.cpp cannot tokenize the text")
        return list(tokens[:count])

    def forward(self, tokens, position, wants_logits):
        """One pass; wants_logits says for each row whether its logits are computed."""
        batch = self.batch
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i] = token
            batch.pos[i] = position + i
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = 0
            batch.logits[i] = wants_logits[i]
        status = self.api.llama_decode(self.context, batch)
        if status != 0:
            sys.exit(f"llama_decode failed with {status}")

    def shorten(self, length):
        """Forgets everything from this position on."""
        memory = self.api.llama_get_memory(self.context)
        if not self.api.llama_memory_seq_rm(memory, 0, length, -1):
            sys.exit("llama.cpp cannot shorten its context")


def seconds_of(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def llama_speed(arguments):
    depths = [int(d) for d in arguments.depths.split(",")]
    rows = [int(r) for r in arguments.rows.split(",")]
    room = max(depths) + arguments.decode
    llama = Llama(arguments, max(room, arguments.prompt, max(rows)) + 64)
    # Any ordinary tokens do: time does not depend on which.
    tokens = [100 + (i * 7919) % (min(llama.n_vocab, 30000) - 200) for i in range(max(room, arguments.prompt, 64))]

    def prompt(length):
        llama.forward(tokens[:length], 0, [0] * (length - 1) + [1])

    def decode(depth):
        for i in range(arguments.decode):
            llama.forward([tokens[i]], depth + i, [1])

    prompt(min(64, arguments.prompt))  # threads up, pages in
    llama.shorten(0)
    result = {"prompt": {"tokens": arguments.prompt}, "decode": [], "passes": []}
    times = []
    for _ in range(2):
        times.append(seconds_of(lambda: prompt(arguments.prompt)))
        llama.shorten(0)
    result["prompt"]["tokens_per_s"] = arguments.prompt / statistics.median(times)
    for depth in depths:
        if depth > 0:
            prompt(depth)
        seconds = seconds_of(lambda: decode(depth))
        result["decode"].append({"depth": depth, "tokens_per_s": arguments.decode / seconds})
        llama.shorten(0)
    for count in rows:
        times = []
        for _ in range(9):
            times.append(seconds_of(lambda: llama.forward(tokens[:count], 0, [1] * count)))
            llama.shorten(0)
        result["passes"].append({"rows": count, "ms": 1e3 * statistics.median(times[1:])})
    return result


def llama_perplexity(arguments):
    import numpy

    n_ctx = arguments.n_ctx
    llama = Llama(arguments, n_ctx)
    tokens = llama.tokenize(arguments.text.read_text(encoding="utf-8"))
    if arguments.first_tokens:
        tokens = tokens[: arguments.first_tokens]
    chunks = len(tokens) // n_ctx
    if chunks == 0:
        sys.exit(f"the text has {len(tokens)} tokens, fewer than one chunk of {n_ctx}")
    bos = llama.api.llama_vocab_bos(llama.vocabulary)
    adds_bos = llama.api.llama_vocab_get_add_bos(llama.vocabulary)
    first = n_ctx // 2  # rows first .. n_ctx-2 predict tokens first+1 .. n_ctx-1
    scored = n_ctx - 1 - first
    losses = numpy.empty((chunks, scored))
    start = time.perf_counter()
    for chunk in range(chunks):
        piece = tokens[chunk * n_ctx : (chunk + 1) * n_ctx]
        fed = [bos] + piece[1:] if adds_bos else piece
        llama.shorten(0)
        llama.forward(fed, 0, [int(first <= i < n_ctx - 1) for i in range(n_ctx)])
        logits = numpy.ctypeslib.as_array(
            llama.api.llama_get_logits(llama.context), shape=(scored, llama.n_vocab)
        )
        for i in range(scored):
            row = logits[i] - logits[i].max()
            wanted = float(row[piece[first + 1 + i]])
            losses[chunk, i] = math.log(numpy.exp(row, out=row).sum(dtype=numpy.float64)) - wanted
        mean = losses[: chunk + 1].mean()
        print(f"\rchunk {chunk + 1}/{chunks}: {math.exp(mean):.4f}  ", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    mean = losses.mean()
    error = losses.std(ddof=1) / math.sqrt(losses.size)
    return {
        "perplexity": math.exp(mean),
        "error": math.exp(mean) * error,
        "tokens": losses.size,
        "text_tokens": len(tokens),
        "chunks": chunks,
        "chunk_perplexities": [math.exp(l.mean()) for l in losses],
        "seconds": time.perf_counter() - start,
    }


def peak_memory():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def llama_start(arguments):
    import llama_cpp  # its libraries are not the model's doing

    assert llama_cpp
    before = peak_memory()
    start = time.perf_counter()
    llama = Llama(arguments, 512)
    tokens = llama.tokenize(START_PROMPT)
    llama.forward(tokens, 0, [0] * (len(tokens) - 1) + [1])
    llama.api.llama_get_logits(llama.context)  # there; the best of them is found in no time
    return {"seconds": time.perf_counter() - start, "memory": peak_memory() - before}


# ---------------------------------------------------------------- both sides


def peers_python(environment):
    """The interpreter that has llama-cpp-python; builds it natively when it is not there."""
    python = environment / "bin/python"
    if not python.exists():
        print(f"building llama-cpp-python into {environment} (minutes)", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", environment], check=True)
        build = dict(os.environ, CMAKE_ARGS="-DGGML_NATIVE=ON")
        subprocess.run(
            [python, "-m", "pip", "install", "-q", "--no-binary", "llama-cpp-python", *PINNED],
            check=True,
            env=build,
            stdout=sys.stderr,
        )
    return python


def run_json(command):
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"status {done.returncode} from: {' '.join(str(part) for part in command)}")
    return json.loads(done.stdout)


def llama_side(arguments, what):
    command = [peers_python(arguments.python_env), __file__, arguments.model, "--llama-worker", what]
    for name in ["threads", "prompt", "decode", "depths", "rows", "n_ctx", "first_tokens", "kv", "flash_attention"]:
        command += ["--" + name.replace("_", "-"), getattr(arguments, name)]
    if arguments.text:
        command += ["--text", arguments.text]
    return run_json(command)


def sluice_kv(arguments):
    return "int8" if arguments.kv == "q8_0" else arguments.kv


def sluice_speed(arguments):
    """One `sluice bench` a depth; prompt and passes come with the first."""
    result = None
    for depth in arguments.depths.split(","):
        command = [arguments.sluice, "bench", "-m", arguments.model, "-t", arguments.threads]
        command += ["-n", arguments.decode, "-d", depth, "--kv", sluice_kv(arguments), "--json"]
        command += ["-p", arguments.prompt, "-b", arguments.rows] if result is None else ["-p", 0, "-b", 1]
        measured = run_json(command)
        if result is None:
            result = measured
        else:
            result["decode"] += measured["decode"]
    return result


def sluice_perplexity(arguments):
    command = [arguments.sluice, "perplexity", "-m", arguments.model, "-t", arguments.threads]
    command += ["-f", arguments.text, "-c", arguments.n_ctx, "--kv", sluice_kv(arguments), "--json"]
    if arguments.first_tokens:
        command += ["--first-tokens", arguments.first_tokens]
    return run_json(command)


def sluice_start(arguments):
    command = [arguments.sluice, "run", "-m", arguments.model, "-t", arguments.threads, "--raw", "-p", START_PROMPT]
    command += ["-n", 1, "-c", 512, "--kv", sluice_kv(arguments), "--temp", 0, "--quiet"]
    command += ["--packed-cache"] if arguments.packed_cache else []
    start = time.perf_counter()
    child = subprocess.Popen([str(part) for part in command], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - start
    if status != 0:
        sys.exit(f"status {status} from: {' '.join(str(part) for part in command)}")
    return {"seconds": seconds, "memory": usage.ru_maxrss * 1024}


def compare_start(arguments, names):
    work = {"sluice": sluice_start, "llama.cpp": lambda a: llama_side(a, "start")}
    size = arguments.model.stat().st_size
    arguments.model.read_bytes()  # into the system's cache
    runs = {name: [] for name in names}
    for _ in range(arguments.rounds):
        for name in names:
            runs[name].append(work[name](arguments))
    medians = {}
    for name in names:
        memory = statistics.median(run["memory"] for run in runs[name])
        medians[name] = {"start to first token, s": statistics.median(run["seconds"] for run in runs[name]),
                         "most memory, MiB": memory / 2**20, "most memory, of the file": memory / size}
    print(f"\n{arguments.model.name}, {arguments.threads} threads, KV {arguments.kv}, medians of {arguments.rounds} rounds\n")
    print_table(next(iter(medians.values())), medians)
    return {"medians": medians, "runs": runs}


def speed_rows(runs):
    """{what: median} over the runs of one side, in the order of printing."""
    rows = {}
    for run in runs:
        for entry in run["decode"]:
            rows.setdefault(f"decode at depth {entry['depth']}, tokens/s", []).append(entry["tokens_per_s"])
        rows.setdefault(f"prompt of {run['prompt']['tokens']}, tokens/s", []).append(run["prompt"]["tokens_per_s"])
        for entry in run["passes"]:
            rows.setdefault(f"pass of {entry['rows']} rows, ms", []).append(entry["ms"])
    return {name: statistics.median(values) for name, values in rows.items()}


def print_table(names, sides):
    others = [name for name in sides if name != "sluice"] if "sluice" in sides else []
    print("| | " + " | ".join(sides) + " |" + "".join(f" sluice / {other} |" for other in others))
    print("|---|" + "---|" * (len(sides) + len(others)))
    for name in names:
        line = f"| {name} | " + " | ".join(f"{side[name]:.4g}" for side in sides.values()) + " |"
        print(line + "".join(f" {sides['sluice'][name] / sides[other][name]:.3f} |" for other in others))


def bench_peer_speed(arguments, program):
    depths = [int(depth) for depth in arguments.depths.split(",")]
    command = [program, "-m", arguments.model, "-t", arguments.threads, "-r", 1, "-fa", 1, "-rtr", 1, "-o", "json"]
    command += ["-ctk", arguments.kv, "-ctv", arguments.kv, "-p", f"{arguments.prompt},{arguments.rows}"]
    command += ["-n", arguments.decode if 0 in depths else 0]
    for depth in depths:
        command += ["-gp", f"{depth},{arguments.decode}"] if depth > 0 else []
    result = {"prompt": {"tokens": arguments.prompt}, "decode": [], "passes": []}
    for entry in run_json(command):
        if entry["n_gen"] > 0:
            result["decode"].append({"depth": entry["n_prompt"], "tokens_per_s": entry["avg_ts"]})
        elif entry["n_prompt"] == arguments.prompt:
            result["prompt"]["tokens_per_s"] = entry["avg_ts"]
        else:
            result["passes"].append({"rows": entry["n_prompt"], "ms": entry["avg_ns"] / 1e6})
    return result


def compare_speed(arguments, names):
    work = {"sluice": sluice_speed, "llama.cpp": lambda a: llama_side(a, "speed")}
    for peer in arguments.bench_peer:
        name, _, program = peer.partition("=")
        work[name] = lambda a, program=program: bench_peer_speed(a, program)
        names = [*names, name]
    runs = {name: [] for name in names}
    for round_number in range(arguments.rounds):
        for name in names:
            print(f"round {round_number + 1} of {arguments.rounds}: {name}", file=sys.stderr)
            runs[name].append(work[name](arguments))
    medians = {name: speed_rows(runs[name]) for name in names}
    print(f"\n{arguments.model.name}, {arguments.threads} threads, KV {arguments.kv}, "
          f"medians of {arguments.rounds} rounds\n")
    print_table(next(iter(medians.values())), medians)
    return {"medians": medians, "runs": runs}


def compare_perplexity(arguments, names):
    if not arguments.text:
        sys.exit("perplexity needs --text FILE (scripts/get_text.sh fetches one); or --only speed")
    work = {"sluice": sluice_perplexity, "llama.cpp": lambda a: llama_side(a, "perplexity")}
    results = {name: work[name](arguments) for name in names}
    print(f"\n{arguments.model.name}, {arguments.text.name}, chunks of {arguments.n_ctx}, KV {arguments.kv}\n")
    for name, result in results.items():
        print(f"{name}: {result['perplexity']:.4f} +- {result['error']:.4f} over {result['tokens']} tokens")
    if len(results) == 2:
        ratio = results["sluice"]["perplexity"] / results["llama.cpp"]["perplexity"]
        print(f"difference: {100 * (ratio - 1):+.3f}%")
    return results


def main():
    arguments = parse_arguments()
    if arguments.llama_worker:
        side = {"speed": llama_speed, "perplexity": llama_perplexity, "start": llama_start}[arguments.llama_worker]
        json.dump(side(arguments), sys.stdout)
        return
    names = {"both": ["sluice", "llama.cpp"], "sluice": ["sluice"], "llama": ["llama.cpp"]}[arguments.side]
    if "sluice" in names and not arguments.sluice.exists():
        sys.exit(f"{arguments.sluice} is not there: build it (scripts/quickstart.sh), or name it with --sluice")
    figures = {"model": arguments.model.name, "threads": arguments.threads, "kv": arguments.kv,
               "flash_attention": arguments.flash_attention}
    if arguments.only == "start":
        figures["start"] = compare_start(arguments, names)
    if arguments.only in (None, "speed"):
        figures["speed"] = compare_speed(arguments, names)
    if arguments.only in (None, "perplexity"):
        figures["perplexity"] = compare_perplexity(arguments, names)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()

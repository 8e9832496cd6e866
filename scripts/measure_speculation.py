#!/usr/bin/env python3
"""What guessing ahead gains: tokens/s with and without it, on work that copies and on work that does not.

    scripts/measure_speculation.py -m model.gguf [--draft small.gguf] [--set copy|free|pair|peer] [--rounds 5]

For each task the runs of all settings alternate; the figures are medians, at temperature 0, and every run must give the same tokens as
the one without guesses. Standard library only. Run it on an idle machine.

- copy: edit a file, quote passages, answer from a text: --spec off, auto
- free: ten prompts where nothing repeats: --spec off, auto
- pair: a draft model: --spec off, auto, and fixed lengths; the bound is the best of all lengths of expected tokens (from the acceptance by
  position) over the measured time of drafting, of a pass of that many rows, and of the draft's reading of the prompt
- peer: the tasks of copy, beside llama.cpp's prompt lookup (LlamaPromptLookupDecoding of llama-cpp-python, 10 tokens, from --python-env), each
  side with and without
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CODE = (ROOT / "src/base/rng.h").read_text()
TEXT = (ROOT / "models/README.md").read_text()
COPY = [
    ("edit a file", "Rename the function unit_interval to to_unit in this file and print the whole file again, nothing else:\n\n" + CODE),
    ("quote passages", "Quote the section 'Training' of this text word for word:\n\n" + TEXT),
    ("answer from a text", TEXT + "\n\nWhat is the architecture of both models, and what are the limits? Answer with quotes."),
    ("repeat a list", "Write this list again, in the same order, one a line, with numbers: " +
     ", ".join(f"{animal} in the {place}" for animal in ("fox", "owl", "bear", "cat", "mouse") for place in ("wood", "barn", "town"))),
]
FREE = ["Tell me about a fox and a lantern.", "What is a good name for a boat, and why?", "Explain rain to a child.",
        "Describe a city on the moon.", "Why do people sing?", "Write about a shy owl.", "How does a clock work?",
        "A letter from a lighthouse keeper.", "What would a tree say?", "Describe the taste of an apple."]
LENGTHS = [1, 2, 3, 4, 6, 8, 16]


def run(options, prompt, extra):
    command = [options.sluice, "run", "-m", options.model, "-p", prompt, "--temp", "0", "-n", str(options.n), "-c", "4096", "--json",
               "--quiet", *extra]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def measure(options, prompt, settings):
    """Median tokens/s and the last result of each setting."""
    rates = {name: [] for name in settings}
    last = {}
    for _ in range(options.rounds):
        for name, extra in settings.items():
            result = run(options, prompt, extra)
            if last and result["tokens"] != next(iter(last.values()))["tokens"]:
                raise SystemExit(f"other tokens with {name}: a fault")
            last[name] = result
            rates[name].append(result["timings"]["tokens_per_s"] or 0)
    return {name: statistics.median(values) for name, values in rates.items()}, last


def percent(part, whole):
    return f"{100 * part / whole:.0f}%" if whole else "-"


def off_against_auto(options, tasks):
    settings = {"off": ["--spec", "off"], "auto": ["--spec", "auto"]}
    print("| task | tokens | off, t/s | auto, t/s | auto / off | drafted | accepted | tokens a pass |")
    print("|---|---|---|---|---|---|---|---|")
    ratios = []
    for name, prompt in tasks:
        rates, last = measure(options, prompt, settings)
        spec = last["auto"]["speculation"]
        ratios.append(rates["auto"] / rates["off"])
        print(f"| {name} | {len(last['auto']['tokens'])} | {rates['off']:.1f} | {rates['auto']:.1f} | {ratios[-1]:.2f} | "
              f"{spec['drafted']} | {percent(spec['accepted'], spec['drafted'])} | {spec['tokens_per_pass'] or 1:.2f} |", flush=True)
    print(f"\nauto / off: median {statistics.median(ratios):.2f}, lowest {min(ratios):.2f}, highest {max(ratios):.2f}")


def bound(last):
    """What the best length would gain if each pass and each draft took what they were measured to take; the draft reads the prompt once."""
    one = 1000 / last["off"]["timings"]["tokens_per_s"]
    count = len(last["off"]["tokens"])
    longest = last[str(max(LENGTHS))]["speculation"]["by_drafter"][0]["by_position"]
    best = 1
    for k in LENGTHS:
        spec = last[str(k)]["speculation"]
        passes = dict(spec["pass_ms"])
        if k + 1 not in passes:
            continue
        tokens = 1 + sum(accepted / drafted for drafted, accepted in longest[:k])
        drafter = spec["by_drafter"][0]
        best = max(best, count * one / (drafter["reading_ms"] + count / tokens * (passes[k + 1] + k * drafter["token_ms"])))
    return best


def pair(options):
    draft = ["--spec", "draft", "--draft", options.draft]
    settings = {"off": ["--spec", "off"], "auto": draft}
    settings |= {str(k): [*draft, "--draft-length", str(k)] for k in LENGTHS}
    print("| prompt | off, t/s | auto, t/s | best fixed length | at it, t/s | auto / best | auto / off | bound | of the bound | accepted |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for prompt in FREE[: options.prompts]:
        rates, last = measure(options, prompt, settings)
        best = max(LENGTHS, key=lambda k: rates[str(k)])
        best_rate = max(rates[str(best)], rates["off"])
        spec = last["auto"]["speculation"]
        print(f"| {prompt} | {rates['off']:.1f} | {rates['auto']:.1f} | {best if best_rate > rates['off'] else 'none'} | {best_rate:.1f} | "
              f"{rates['auto'] / best_rate:.2f} | {rates['auto'] / rates['off']:.2f} | {bound(last):.2f} | "
              f"{rates['auto'] / rates['off'] / bound(last):.2f} | "
              f"{percent(spec['accepted'], spec['drafted'])} |", flush=True)


def peer_worker(options):
    """Tokens/s after the prompt, without and with prompt lookup; a list of prompts on stdin."""
    import time
    from llama_cpp import Llama
    from llama_cpp.llama_speculative import LlamaPromptLookupDecoding
    prompts = json.load(sys.stdin)
    rates = []
    for draft in (None, LlamaPromptLookupDecoding(num_pred_tokens=10)):
        model = Llama(options.model, n_ctx=4096, n_threads=options.threads, n_threads_batch=options.threads, verbose=False, draft_model=draft,
                      logits_all=draft is not None)
        row = []
        for prompt in prompts:
            model.reset()
            times = [time.perf_counter() for _ in model.create_chat_completion([{"role": "user", "content": prompt}], temperature=0,
                                                                              max_tokens=options.n, stream=True)]
            row.append((len(times) - 3) / (times[-2] - times[1]))  # a piece a token; the first and the last are none
        rates.append(row)
        del model
    print(json.dumps(rates))


def peer(options):
    ours = {name: {"off": [], "auto": []} for name, _ in COPY}
    theirs = {name: {"off": [], "lookup": []} for name, _ in COPY}
    command = [options.python_env + "/bin/python", __file__, "-m", options.model, "-n", str(options.n), "--threads", str(options.threads), "--set",
               "peer-worker"]
    for _ in range(options.rounds):
        for name, prompt in COPY:
            for mode in ("off", "auto"):
                ours[name][mode].append(run(options, prompt, ["--spec", mode, "-t", str(options.threads)])["timings"]["tokens_per_s"])
        answer = subprocess.run(command, input=json.dumps([prompt for _, prompt in COPY]), check=True, capture_output=True, text=True).stdout
        for mode, row in zip(("off", "lookup"), json.loads(answer)):
            for (name, _), rate in zip(COPY, row):
                theirs[name][mode].append(rate)
    print("| task | sluice off, t/s | auto | auto / off | llama.cpp off, t/s | lookup | lookup / off |")
    print("|---|---|---|---|---|---|---|")
    for name, _ in COPY:
        a, b = (statistics.median(ours[name][mode]) for mode in ("off", "auto"))
        c, d = (statistics.median(theirs[name][mode]) for mode in ("off", "lookup"))
        print(f"| {name} | {a:.1f} | {b:.1f} | {b / a:.2f} | {c:.1f} | {d:.1f} | {d / c:.2f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("--draft")
    parser.add_argument("--set", choices=["copy", "free", "pair", "peer", "peer-worker"], default="copy")
    parser.add_argument("--sluice", default=str(ROOT / "build/release/sluice"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prompts", type=int, default=3, help="of the pair's measurement")
    parser.add_argument("-n", type=int, default=300, help="most tokens of an answer")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--python-env", default=str(ROOT / "build/venv-peers"))
    options = parser.parse_args()
    if options.set == "peer-worker":
        peer_worker(options)
    elif options.set == "peer":
        peer(options)
    elif options.set == "pair":
        if not options.draft:
            parser.error("--set pair needs --draft")
        pair(options)
    else:
        off_against_auto(options, COPY if options.set == "copy" else [(p, p) for p in FREE])


if __name__ == "__main__":
    main()

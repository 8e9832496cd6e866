#!/usr/bin/env python3
"""What a decode step of the CUDA backend must take, from the bytes that its kernels move and the number of launches.

    tools/gpu_predict.py [--depth 512] [--kv int8]

Prints two tables in Markdown: a step of each model on each GPU, and the kernels of a layer of the 8B model. Bandwidth is the
data sheet's times the share that a copy reaches; the time of a launch is what one dependent kernel in a graph costs beyond
its work. Both are assumptions until scripts/gpu_check.sh has measured them.
"""

import argparse

COPY_SHARE = 0.90
LAUNCH_US = 1.3          # a kernel after another in a graph
OVERLAPPED_US = 0.7      # where a kernel may start while the one before it ends (sm_90 and later)

GPUS = {  # GB/s and GB by data sheet, a launch
    "H200": (4800, 141, OVERLAPPED_US),
    "RTX 4090": (1008, 24, LAUNCH_US),
    "RTX 3090": (936, 24, LAUNCH_US),
}

MODELS = {  # layers, embedding, heads, KV heads, head size, feed-forward, vocabulary
    "1B": (16, 2048, 32, 8, 64, 8192, 128256),
    "8B": (32, 4096, 32, 8, 128, 14336, 128256),
    "70B": (80, 8192, 64, 8, 128, 28672, 128256),
}

Q4_0 = 576 / 1024        # bytes of a weight: records of 512 bytes of codes and 64 of scales for 32 x 32
# Bytes of a key's or value's number: with int8, 32 codes and an f16 scale; with int4, 16 bytes of codes, a scale and a middle.
KV = {"int4": 640 / 1024, "int8": 1088 / 1024, "f16": 2}
QUERY = {"int4": 4, "int8": 1 + 4 / 32, "f16": 4}  # of a query's
OWN_TOKENS = 16  # of an int4 cache that are seen as f16, on average


def layer_kernels(model, depth, kv_type):
    """(kernel, bytes read and written) for a row."""
    _, embedding, heads, kv_heads, dim, ff, _ = model
    q, kv = heads * dim, kv_heads * dim
    cached, query = KV[kv_type], QUERY[kv_type]
    written = 2 if kv_type == "int4" else cached  # once in 32 steps a further kernel makes 4 bits of them: left out
    seen = depth * cached + min(depth, OWN_TOKENS) * (written - cached)
    int8 = 1 + 8 / 32    # codes, scale and sums of an activation
    pieces = -(-depth // 256)
    return [
        ("add and normalise", embedding * (4 + 4 + 4 + 4 + int8)),
        ("query, key, value, rotation", embedding * (q + 2 * kv) * Q4_0 + embedding * int8 + 2 * (q + 2 * kv) * 4
         + q * query + 2 * kv * written),
        ("attend", seen * 2 * kv + q * query + pieces * q * 4),
        ("merge", pieces * q * 4 + q * int8),
        ("attention output", q * embedding * Q4_0 + q * int8 + embedding * 4),
        ("add and normalise", embedding * (4 + 4 + 4 + 4 + int8)),
        ("gate, up, activation", embedding * 2 * ff * Q4_0 + embedding * int8 + ff * int8),
        ("down", ff * embedding * Q4_0 + ff * int8 + embedding * 4),
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--depth", type=int, default=512, help="tokens of context")
    parser.add_argument("--kv", default="int8", choices=KV, help="the cache")
    options = parser.parse_args()
    depth = options.depth
    print(f"Q4_0 weights, {options.kv} cache, {depth} tokens of context:\n")
    print("| model | GPU | GB a step | bytes, ms | launches | launches, ms | step, ms | tokens/s | share of copy | binds |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name, model in MODELS.items():
        kernels = layer_kernels(model, depth, options.kv)
        layers, embedding, vocabulary = model[0], model[1], model[6]
        total = layers * sum(b for _, b in kernels) + vocabulary * embedding * Q4_0 + vocabulary * 4
        launches = layers * len(kernels) + 3
        for gpu, (bandwidth, memory_gb, launch) in GPUS.items():
            if total > 0.9 * memory_gb * 1e9:
                continue  # does not fit
            memory = total / (bandwidth * COPY_SHARE * 1e9) * 1e3
            waits = launches * launch * 1e-3
            step = memory + waits
            binds = "memory" if memory > waits else "launches"
            print(f"| {name} | {gpu} | {total / 1e9:.2f} | {memory:.2f} | {launches} | {waits:.2f} | {step:.2f} | {1e3 / step:.0f} | "
                  f"{100 * memory / step:.0f}% | {binds} |")
    print("\nA layer of the 8B model on an H200:\n")
    print("| kernel | MB | us at the copy bandwidth |")
    print("|---|---|---|")
    for kernel, moved in layer_kernels(MODELS["8B"], depth, options.kv):
        print(f"| {kernel} | {moved / 1e6:.3f} | {moved / (GPUS['H200'][0] * COPY_SHARE * 1e9) * 1e6:.1f} |")


if __name__ == "__main__":
    main()

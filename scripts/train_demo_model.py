#!/usr/bin/env python3
"""Trains the bundled model pair: a small storyteller and a draft about ten times smaller with the same vocabulary.

    scripts/train_demo_model.py --out models            # everything: text, tokenizer, both models, GGUF files, report

The text comes from story_grammar.py; nothing is downloaded. Needs PyTorch (Debian's python3-torch will do) and the
packages of requirements-train.txt. Work in progress lives in build/demo_model: run the same command again after a stop and
it goes on from the last checkpoint. Same seed, same thread count and same libraries give the same weights.
"""

import argparse
import json
import math
import os
import pathlib
import random
import sys
import time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read when numpy and torch load; --threads is for torch's own pool

import gguf
import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import story_grammar  # noqa: E402

SPECIAL = ["<|endoftext|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"]
END_OF_TEXT, END_OF_TURN = 0, 4
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] not in ['system', 'user', 'assistant'] %}"
    "{{ raise_exception('The storyteller knows the roles system, user and assistant, not ' + message['role']) }}"
    "{% endif %}"
    "{{ '<|' + message['role'] + '|>\\n' + message['content'] | trim + '<|end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}"
)
CONTEXT = 1024  # longest training document, and llama.context_length
ROPE_BASE = 10000.0
NORM_EPS = 1e-5
VOCAB = 2048
SHAPES = {  # every width is a multiple of 32, so that each matrix fits Q4_0 blocks
    "storyteller": dict(dim=192, layers=4, heads=6, kv_heads=2, head_dim=32, ffn=512),
    "draft": dict(dim=64, layers=2, heads=2, kv_heads=1, head_dim=32, ffn=160),
}


# --- tokenizer -------------------------------------------------------------------------------------------------------
def train_tokenizer(path, seed):
    """Byte-level BPE with the GPT-2 split pattern; all 256 bytes are in the vocabulary, so any text can be encoded."""
    rng = random.Random(f"tokenizer {seed}")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=VOCAB, special_tokens=[AddedToken(t, special=True) for t in SPECIAL],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    texts = [text for _ in range(8000) for _, text in story_grammar.sample(rng)]
    tokenizer.train_from_iterator(texts, trainer)
    assert tokenizer.get_vocab_size() == VOCAB, tokenizer.get_vocab_size()
    tokenizer.save(str(path))
    return tokenizer


def encode(tokenizer, turns):
    """Turns -> (ids, learn): learn[i] says whether token i is something that the model has to say."""
    ids, learn = [], []
    for role, text in turns:
        if role == "raw":
            said = tokenizer.encode(text).ids + [END_OF_TEXT]
            head, tail = [], []
        else:
            # One piece each, as the rendered template is split: "<|user|>", "\n" + text, "<|end|>", "\n".
            head = [SPECIAL.index(f"<|{role}|>")]
            said = tokenizer.encode("\n" + text).ids
            head, said = head + said[:1], said[1:] + [END_OF_TURN]
            tail = tokenizer.encode("\n").ids
        if ids and len(ids) + len(head) + len(said) > CONTEXT:
            break
        ids += head + said + tail
        learn += [False] * len(head) + [role in ("assistant", "raw")] * len(said) + [False] * len(tail)
    return ids[:CONTEXT], learn[:CONTEXT]


# Lessons: (batches, what, share of the token budget). Short texts that are all copying come first: a model of this size
# finds out how to repeat the hero of the request there in a few hundred steps, and hardly ever in long stories.
LESSONS = {
    "storyteller": [(300, story_grammar.warm_up, 0.35), (250, story_grammar.brief, 0.45), (1 << 30, story_grammar.sample, 1.0)],
    "draft": [(150, story_grammar.warm_up, 0.25), (100, story_grammar.brief, 0.3), (1 << 30, story_grammar.sample, 0.5)],
}


def batches(tokenizer, lessons, seed, first, batch_tokens, place):
    """Endless batches (tokens, learn, place), right-padded; one document a row, rows of similar length together.

    place is (pool, batches before that pool): where a resumed run takes up the thread."""
    start, made = place
    for pool in range(start, 1 << 30):
        place = (pool, made)
        rng, ends = random.Random(f"text {seed} {pool}"), 0
        for count, write, share in lessons:
            ends += count
            if made < ends:
                break
        docs = sorted((encode(tokenizer, write(rng)) for _ in range(400)), key=lambda d: len(d[0]))
        rows, group = [], []
        for doc in docs:
            if group and len(doc[0]) * (len(group) + 1) > batch_tokens * share:
                rows.append(group)
                group = []
            group.append(doc)
        rows.append(group)
        rng.shuffle(rows)
        for group in rows:
            made += 1
            if made > first:
                width = max(len(ids) for ids, _ in group)
                tokens = torch.zeros(len(group), width, dtype=torch.long)
                learn = torch.zeros(len(group), width, dtype=torch.bool)
                for row, (ids, said) in enumerate(group):
                    tokens[row, :len(ids)] = torch.tensor(ids)
                    learn[row, :len(ids)] = torch.tensor(said)
                yield tokens, learn, place


# --- model -----------------------------------------------------------------------------------------------------------
def fake_q4_0(weight):
    """What the weight becomes after Q4_0 (blocks of 32, one f16 scale, 4-bit levels); gradients pass straight through."""
    with torch.no_grad():
        blocks = weight.reshape(-1, 32)
        peak = blocks.gather(1, blocks.abs().argmax(1, keepdim=True))
        scale = peak / -8
        inverse = torch.where(scale == 0, torch.zeros_like(scale), 1 / scale)
        level = torch.floor(blocks * inverse + 8.5).clamp(0, 15) - 8
        rounded = (level * scale.half().float()).reshape(weight.shape)
    return weight + (rounded - weight).detach()


class Llama(torch.nn.Module):
    """The `llama` graph of GGUF: RMSNorm, rotary pairs (2i, 2i+1), grouped queries, SwiGLU, embedding tied to the output."""

    def __init__(self, dim, layers, heads, kv_heads, head_dim, ffn):
        super().__init__()
        self.shape = dict(dim=dim, layers=layers, heads=heads, kv_heads=kv_heads, head_dim=head_dim, ffn=ffn)
        self.quantized = False
        sizes = {"token_embd": (VOCAB, dim)}
        norms = ["output_norm"]
        for i in range(layers):
            sizes |= {f"blk.{i}.attn_q": (heads * head_dim, dim), f"blk.{i}.attn_k": (kv_heads * head_dim, dim),
                      f"blk.{i}.attn_v": (kv_heads * head_dim, dim), f"blk.{i}.attn_output": (dim, heads * head_dim),
                      f"blk.{i}.ffn_gate": (ffn, dim), f"blk.{i}.ffn_up": (ffn, dim), f"blk.{i}.ffn_down": (dim, ffn)}
            norms += [f"blk.{i}.attn_norm", f"blk.{i}.ffn_norm"]
        self.weights = torch.nn.ParameterDict()
        for name, (rows, cols) in sizes.items():
            std = 0.04 if name == "token_embd" else cols ** -0.5
            if name.endswith(("attn_output", "ffn_down")):
                std /= math.sqrt(2 * layers)
            self.weights[name.replace(".", "_")] = torch.nn.Parameter(torch.randn(rows, cols) * std)
        for name in norms:
            self.weights[name.replace(".", "_")] = torch.nn.Parameter(torch.ones(dim))
        self.tensor_names = list(sizes) + norms
        angle = torch.arange(CONTEXT)[:, None] * ROPE_BASE ** (-torch.arange(0, head_dim, 2) / head_dim)
        self.register_buffer("cos", angle.cos(), persistent=False)  # [CONTEXT, head_dim / 2]
        self.register_buffer("sin", angle.sin(), persistent=False)

    def w(self, name):
        weight = self.weights[name.replace(".", "_")]
        return fake_q4_0(weight) if self.quantized and weight.dim() == 2 else weight

    def norm(self, x, name):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + NORM_EPS) * self.w(name)

    def rotate(self, x, first):  # [batch, heads, time, head_dim]
        cos, sin = self.cos[first:first + x.shape[2]], self.sin[first:first + x.shape[2]]
        even, odd = x[..., 0::2], x[..., 1::2]
        return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)

    def forward(self, tokens, pick=None, cache=None):
        """tokens [batch, time] -> logits of all positions, or of those where pick [batch, time] is true.

        cache: a list that holds (keys, values) per layer between calls, for generation."""
        s, embedding = self.shape, self.w("token_embd")
        batch, time_ = tokens.shape
        x = F.embedding(tokens, embedding)
        first = cache[0][0].shape[2] if cache else 0
        mask = torch.full((time_, first + time_), -math.inf).triu(first + 1)
        fresh = []
        for i in range(s["layers"]):
            h = self.norm(x, f"blk.{i}.attn_norm")

            def heads(name, count):
                return F.linear(h, self.w(f"blk.{i}.{name}")).view(batch, time_, count, s["head_dim"]).transpose(1, 2)

            q = self.rotate(heads("attn_q", s["heads"]), first) / math.sqrt(s["head_dim"])
            k, v = self.rotate(heads("attn_k", s["kv_heads"]), first), heads("attn_v", s["kv_heads"])
            if cache:
                k, v = torch.cat((cache[i][0], k), 2), torch.cat((cache[i][1], v), 2)
            fresh.append((k, v))
            # The queries of one KV head side by side: [batch, kv_heads, group * time, head_dim].
            group = s["heads"] // s["kv_heads"]
            q = q.reshape(batch, s["kv_heads"], group * time_, s["head_dim"])
            scores = (q @ k.transpose(-1, -2)).view(batch, s["kv_heads"], group, time_, -1)
            weights = torch.softmax(scores.add_(mask), -1).view(batch, s["kv_heads"], group * time_, -1)
            mixed = (weights @ v).view(batch, s["heads"], time_, s["head_dim"]).transpose(1, 2).flatten(2)
            x = x + F.linear(mixed, self.w(f"blk.{i}.attn_output"))
            h = self.norm(x, f"blk.{i}.ffn_norm")
            h = F.silu(F.linear(h, self.w(f"blk.{i}.ffn_gate"))) * F.linear(h, self.w(f"blk.{i}.ffn_up"))
            x = x + F.linear(h, self.w(f"blk.{i}.ffn_down"))
        if cache is not None:
            cache[:] = fresh
        x = x if pick is None else x[pick]
        return F.linear(self.norm(x, "output_norm"), embedding)

    def parameter_count(self):
        return sum(p.numel() for p in self.parameters())


# --- training --------------------------------------------------------------------------------------------------------
class Muon(torch.optim.Optimizer):
    """Momentum, with each matrix step replaced by the nearest orthogonal matrix (Newton-Schulz; Jordan et al. 2024)."""

    def __init__(self, params, lr, momentum=0.95):
        super().__init__(params, dict(lr=lr, momentum=momentum))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                buffer = self.state[p].setdefault("momentum", torch.zeros_like(p))
                buffer.mul_(group["momentum"]).add_(p.grad)
                g = p.grad + group["momentum"] * buffer
                tall = g.shape[0] > g.shape[1]
                g = g.t() if tall else g
                g = g / (g.norm() + 1e-7)
                for _ in range(5):
                    square = g @ g.t()
                    g = 3.4445 * g + (-4.7750 * square + 2.0315 * square @ square) @ g
                g = g.t() if tall else g
                p.mul_(1 - 0.01 * group["lr"]).add_(g, alpha=-group["lr"] * max(1, g.shape[0] / g.shape[1]) ** 0.5)


def optimizers(model):
    matrices = [p for n, p in model.weights.items() if p.dim() == 2 and n != "token_embd"]
    others = [p for n, p in model.weights.items() if p.dim() == 1 or n == "token_embd"]
    return [Muon(matrices, lr=0.02), torch.optim.AdamW(others, lr=4e-3, betas=(0.9, 0.98), weight_decay=0.0)]


def schedule(step, cycles, quantized_share):
    """(learning rate factor, whether weights are seen as Q4_0): each cycle is a short warm-up, a plateau and a long
    descent, and ends with weights rounded to Q4_0; the later cycles start lower."""
    first, peak = 0, 1.0
    for steps in cycles:
        if step < first + steps:
            break
        first, peak = first + steps, 0.7
    at = step - first
    warm = min(1.0, (at + 1) / 60)
    fall = 0.02 + 0.98 * (1 - math.cos(math.pi * min(1.0, (steps - at) / (0.6 * steps)))) / 2
    return peak * min(warm, fall), at >= steps * (1 - quantized_share)


def train(name, tokenizer, args, cycles, work, teacher=None):
    """Trains one model, resuming from work/NAME.pt; a draft also learns the teacher's whole distribution."""
    torch.manual_seed(args.seed)
    steps = sum(cycles)
    model = Llama(**SHAPES[name])
    opts = optimizers(model)
    path, start, losses, spent, place = work / f"{name}.pt", 0, [], 0.0, (0, 0)
    if path.exists():
        state = torch.load(path)
        model.load_state_dict(state["model"])
        for opt, saved in zip(opts, state["opts"]):
            opt.load_state_dict(saved)
        start, losses, spent = state["step"], state["losses"], state["spent"]
    base = [[g["lr"] for g in opt.param_groups] for opt in opts]
    if path.exists():
        base, place = state["base"], state.get("place", place)

    def save(step):
        torch.save(dict(model=model.state_dict(), opts=[o.state_dict() for o in opts], step=step, losses=losses,
                        spent=spent, base=base, place=place, shape=model.shape), path.with_suffix(".tmp"))
        path.with_suffix(".tmp").rename(path)

    print(f"{name}: {model.parameter_count():,} parameters, step {start} of {steps}", flush=True)
    source = batches(tokenizer, LESSONS[name], args.seed, start, args.batch_tokens, place)
    clock, last = time.time(), 0
    for step in range(start, steps):
        factor, model.quantized = schedule(step, cycles, args.quantized_share)
        for opt, rates in zip(opts, base):
            for group, lr in zip(opt.param_groups, rates):
                group["lr"] = lr * factor
        tokens, learn, place = next(source)
        pick = torch.zeros_like(learn)
        pick[:, :-1] = learn[:, 1:]  # position t predicts token t + 1
        logits = model(tokens, pick)
        loss = F.cross_entropy(logits, tokens[learn.logical_and(position_after_first(learn))])
        objective = loss
        if teacher is not None and step >= LESSONS[name][0][0]:  # the storyteller has long forgotten the first lesson
            with torch.no_grad():
                target = F.softmax(teacher(tokens, pick), -1)
            objective = 0.2 * loss + 0.8 * -(target * F.log_softmax(logits, -1)).sum(-1).mean()
        for opt in opts:
            opt.zero_grad(set_to_none=True)
        objective.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for opt in opts:
            opt.step()
        losses.append(loss.item())
        if (step + 1) % 25 == 0 or step + 1 == steps:
            now = time.time()
            spent += now - clock
            pace = (now - clock) / (step + 1 - (last or start))
            clock, last = now, step + 1
            left = (steps - step - 1) * pace
            print(f"{name} step {step + 1}/{steps} loss {np.mean(losses[-25:]):.4f}{' Q4_0' if model.quantized else ''} "
                  f"{spent / 60:.1f} min done, {left / 60:.1f} min left", flush=True)
        if (step + 1) % 50 == 0 or step + 1 == steps:
            save(step + 1)
    return model, losses, spent


def position_after_first(learn):
    after = torch.ones_like(learn)
    after[:, 0] = False
    return after


# --- judging ---------------------------------------------------------------------------------------------------------
@torch.no_grad()
def held_out_loss(model, tokenizer, quantized, documents=60):
    """Mean loss per spoken token on fresh text (another seed), or on stories of pairs that never met in training."""
    model.quantized = quantized
    rng, out = random.Random("held out"), {}
    for kind in ("fresh text", "held-out pairs"):
        total, count = 0.0, 0
        for _ in range(documents):
            turns = story_grammar.sample(rng) if kind == "fresh text" else story_grammar.held_out_sample(rng)
            ids, learn = encode(tokenizer, turns)
            tokens, learn = torch.tensor([ids]), torch.tensor([learn])
            pick = torch.zeros_like(learn)
            pick[:, :-1] = learn[:, 1:]
            goal = tokens[learn.logical_and(position_after_first(learn))]
            total += F.cross_entropy(model(tokens, pick), goal, reduction="sum").item()
            count += len(goal)
        out[kind] = total / count
    return out


@torch.no_grad()
def generate(model, tokenizer, request, temperature=0.0, limit=500, seed=0):
    torch.manual_seed(seed)
    ids, _ = encode(tokenizer, [("user", request)])
    ids += [SPECIAL.index("<|assistant|>")] + tokenizer.encode("\n").ids
    cache, said = [], []
    feed = torch.tensor([ids])
    while len(said) < limit:
        logits = model(feed, cache=cache)[0, -1]
        token = int(logits.argmax()) if temperature == 0 else int(torch.multinomial(F.softmax(logits / temperature, -1), 1))
        if token in (END_OF_TEXT, END_OF_TURN):
            break
        said.append(token)
        feed = torch.tensor([[token]])
    return ids, said


@torch.no_grad()
def judge_pairs(model, tokenizer, count=20):
    """How often a sampled story about a pair that never met in training is about both, to its end."""
    model.quantized = True
    rng, good = random.Random("pairs"), 0
    for i in range(count):
        hero, thing = story_grammar.held_out_pair(rng)
        request = f"Tell me a story about {story_grammar.an(hero)} and {story_grammar.an(thing)}."
        _, said = generate(model, tokenizer, request, 0.2, seed=i)
        text = tokenizer.decode(said)
        good += hero in text and thing in text.split("\n\n", 1)[-1] and len(said) < 500
    return good / count


@torch.no_grad()
def acceptance(model, draft, tokenizer, count=20):
    """Share of positions of the storyteller's own stories where the draft's first choice is the storyteller's."""
    model.quantized = draft.quantized = True
    rng, same, total = random.Random("acceptance"), 0, 0
    for i in range(count):
        hero, thing = story_grammar.held_out_pair(rng)
        ids, said = generate(model, tokenizer, f"a story about {story_grammar.an(hero)} and {story_grammar.an(thing)}", 0.0)
        tokens = torch.tensor([ids + said])
        a, b = model(tokens)[0, len(ids) - 1:].argmax(-1), draft(tokens)[0, len(ids) - 1:].argmax(-1)
        same, total = same + int((a == b).sum()), total + len(a)
    return same / total


# --- export ----------------------------------------------------------------------------------------------------------
def export(path, title, about, model, tokenizer):
    s = model.shape
    out = gguf.GGUFWriter(str(path), "llama")
    out.add_type(gguf.GGUFType.MODEL)
    out.add_name(title)
    out.add_description(about)
    out.add_license("MIT")
    out.add_languages(["en"])
    out.add_tags(["text-generation", "storytelling"])
    out.add_sampling_temp(0.2)
    out.add_sampling_top_k(40)
    out.add_sampling_top_p(0.95)
    out.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_0)
    out.add_quantization_version(gguf.GGML_QUANT_VERSION)
    out.add_context_length(CONTEXT)
    out.add_embedding_length(s["dim"])
    out.add_block_count(s["layers"])
    out.add_feed_forward_length(s["ffn"])
    out.add_head_count(s["heads"])
    out.add_head_count_kv(s["kv_heads"])
    out.add_key_length(s["head_dim"])
    out.add_value_length(s["head_dim"])
    out.add_rope_dimension_count(s["head_dim"])
    out.add_rope_freq_base(ROPE_BASE)
    out.add_layer_norm_rms_eps(NORM_EPS)
    out.add_vocab_size(VOCAB)
    bpe = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(bpe["vocab"], key=bpe["vocab"].get)
    merges = [m if isinstance(m, str) else " ".join(m) for m in bpe["merges"]]
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("gpt-2")
    out.add_token_list(tokens)
    out.add_token_types([gguf.TokenType.CONTROL if t in SPECIAL else gguf.TokenType.NORMAL for t in tokens])
    out.add_token_merges(merges)
    out.add_bos_token_id(END_OF_TEXT)
    out.add_eos_token_id(END_OF_TEXT)
    out.add_eot_token_id(END_OF_TURN)
    out.add_pad_token_id(END_OF_TEXT)
    out.add_add_bos_token(False)
    out.add_chat_template(CHAT_TEMPLATE)
    for name in model.tensor_names:
        data = model.weights[name.replace(".", "_")].detach().numpy().astype(np.float32)
        if data.ndim == 2:
            packed = gguf.quants.quantize(data, gguf.GGMLQuantizationType.Q4_0)
            out.add_tensor(f"{name}.weight", packed, raw_dtype=gguf.GGMLQuantizationType.Q4_0)
        else:
            out.add_tensor(f"{name}.weight", data)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("models"), help="folder of the GGUF files")
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("build/demo_model"), help="checkpoints")
    parser.add_argument("--cycles", type=int, nargs="+", default=[1800, 1700], help="training steps of the storyteller")
    parser.add_argument("--draft-cycles", type=int, nargs="+", default=[1500], help="training steps of the draft")
    parser.add_argument("--batch-tokens", type=int, default=2700, help="tokens a step, padding included")
    parser.add_argument("--quantized-share", type=float, default=0.2, help="last part of each cycle that sees Q4_0 weights")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--export-now", action="store_true", help="write the files from the checkpoints as they are")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    args.work.mkdir(parents=True, exist_ok=True)
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.work / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(path)) if path.exists() else train_tokenizer(path, args.seed)

    if args.export_now:
        args.cycles = [torch.load(args.work / "storyteller.pt")["step"]]
        if (args.work / "draft.pt").exists():
            args.draft_cycles = [torch.load(args.work / "draft.pt")["step"]]
    model, losses, spent = train("storyteller", tokenizer, args, args.cycles, args.work)
    model.requires_grad_(False)
    model.quantized = True
    draft, draft_losses, draft_spent = train("draft", tokenizer, args, args.draft_cycles, args.work, teacher=model)

    export(args.out / "storyteller-q4_0.gguf", "Storyteller", "Tells short stories about a hero and a thing.", model, tokenizer)
    export(args.out / "storyteller-draft-q4_0.gguf", "Storyteller draft", "Drafts for Storyteller in speculative decoding.",
           draft, tokenizer)
    if args.export_now:
        return
    report = {}
    for name, net, seen, seconds in (("storyteller", model, losses, spent), ("draft", draft, draft_losses, draft_spent)):
        report[name] = dict(parameters=net.parameter_count(), steps=len(seen), minutes=round(seconds / 60, 1),
                            train=round(float(np.mean(seen[-100:])), 4),
                            f32=held_out_loss(net, tokenizer, False), q4_0=held_out_loss(net, tokenizer, True))
    report["held-out pairs told"] = judge_pairs(model, tokenizer)
    report["draft agrees"] = acceptance(model, draft, tokenizer)
    print(json.dumps(report, indent=2))
    (args.work / "report.json").write_text(json.dumps(report, indent=2) + "\n")
    for request in ("Tell me a story about a fox and a lantern.", "dragon, teapot", "Hello!", "What is the capital of France?"):
        model.quantized = True
        print(f"\n> {request}\n{tokenizer.decode(generate(model, tokenizer, request)[1])}")


if __name__ == "__main__":
    main()

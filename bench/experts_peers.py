#!/usr/bin/env python3
"""Products of mixtures of experts: matmul_lowbit with EXPERTS beside torch._grouped_mm of bf16 in one process.

    experts_peers.py [--mixtures mixtral,...] [--tokens 1,...] [--products gate_up,...]
                     [--rivals triton,humming,marlin:LIBRARY] [--sums] [--variants 2048,...] [--seconds S]

Each token has `top` experts at random, other ones in each launch of a graph; rows are sorted by expert beforehand, as a
router leaves them. products: gate_up, down, and layer, which is both, with the gate between and the weighted sum behind
(torch's gathers rows, multiplies, gates, multiplies and adds up in operators of its own). Times are medians of replays
of CUDA graphs, us; weights are in copies that are larger together than ten times the L2. The result of a product is
compared with float64 first. touched: experts that have rows, on average; GB/s: of their weights and scales; TFLOP/s: of
rows that there are. --rivals: products of others with weights of 4 bits (bench/experts_rivals.py); --sums: with the
weighted sum of each token's rows behind each of them and ours, which is ops.combine for all. --variants: at these
numbers of tokens every kernel of the program, too, for choices that were not the best. Stops before a point that would
begin after so many seconds.
Exit status: 0 every point was right, 1 one was not."""
import argparse
import sys
import time

import torch
from side_by_side import Job, alternate

import tilusvm
from tilusvm import experts, ops

#: experts of a rank, experts of a token among them, hidden and inner size, type, group
MIXTURES = {
    "mixtral": (8, 2, 4096, 14336, "u4", 128),
    "qwen3_30b": (128, 8, 2048, 768, "u4", 128),
    "deepseek_v3": (32, 1, 7168, 2048, "u4", 128),  # one of eight ranks: of a token's 8 experts one is here, about
    "gpt_oss_20b": (32, 4, 2880, 2880, "f4_e2m1", 32),
}
BYTES = 1 << 29


class Stack:
    """Copies of a stack with random codes, and what launches its product."""

    def __init__(self, count, k, n, type, group):
        self.k, self.n, self.count, self.type, self.group = k, n, count, type, group
        empty = experts.Experts(count, self.k, n, False, type=type, group=group, dtype=torch.bfloat16, device="meta")
        size = empty.packed.numel()
        self.copies = max(2, BYTES // size)
        shape, scales = (self.copies, *empty.packed.shape), (self.copies, *empty.scales.shape)
        self.packed = torch.randint(0, 256, shape, dtype=torch.uint8, device="cuda")
        self.scales = (torch.rand(scales, device="cuda") * 0.01 + 0.01).bfloat16()
        self.bytes = (size + empty.scales.numel() * 2) / count
        empty.packed, empty.scales = self.packed[0], self.scales[0]
        self.layers = empty

    def entry(self, i, x, offsets, out, early=False):
        i %= self.copies
        options = (self.type, self.group, None, None, None, None, 1, early)
        return experts.matmul_experts.operator(
            x, offsets, self.packed[i], self.scales[i], None, None, *options
        )  # fmt: skip

    def kernels(self):
        program = ops.lowbit_program(self.type, self.group, torch.bfloat16, EXPERTS=True)
        names = [name for name in program if name not in ("pack", "matmul_lowbit") and "sm80" not in name]
        return {name.removeprefix("matmul_lowbit_"): self._launch(program[name]) for name in names}

    def _launch(self, kernel):
        def launch(i, x, offsets, out):
            i %= self.copies
            sizes = (x.shape[0], self.n, self.k, self.count)
            kernel(*sizes, x, offsets, self.packed[i], self.scales[i], out)

        return launch


def routed(tokens, top, count):
    """The experts' rows, and how many experts have some."""
    index = torch.rand(tokens, count, device="cuda").topk(top, -1).indices
    rows = experts.rows_of(index, count)
    return rows, int((rows.offsets.diff() > 0).sum())


def error_of(stack, x, offsets, y, dequantize=None):
    """Relative, Frobenius, of the rows of the first and last expert that have some."""
    dequantize = dequantize or (lambda e: stack.layers.linear(e).dequantize(torch.float64).T)
    sizes = offsets.diff().tolist()
    found = [e for e in range(stack.count) if sizes[e]]
    most = 0.0
    for e in {found[0], found[-1]}:
        begin, end = int(offsets[e]), min(int(offsets[e + 1]), int(offsets[e]) + 300)
        wanted = x[begin:end].double() @ dequantize(e)
        most = max(most, float((y[begin:end].double() - wanted).norm() / wanted.norm()))
    return most


class Layer:
    """The experts of a mixture: what launches them with our stacks and with torch's bf16."""

    def __init__(self, mixture):
        count, self.top, hidden, inner, type, group = MIXTURES[mixture]
        self.gate = "clamped" if mixture.startswith("gpt_oss") else "silu"
        self.first, self.second = Stack(count, hidden, 2 * inner, type, group), Stack(count, inner, hidden, type, group)
        shapes = (count, 2 * inner, hidden), (count, hidden, inner)
        self.weights = [torch.randn(s, device="cuda", dtype=torch.bfloat16).mT * s[2] ** -0.5 for s in shapes]

    def ours(self, i, x, rows, weights):
        tokens, stack = x.shape[0], self.first
        few = tokens * self.top <= 8
        each = (rows.rows, self.top) if few else (None, 1)
        h = experts.matmul_experts.operator(
            x if few else rows.spread(x, self.top), rows.offsets, stack.packed[i % stack.copies],
            stack.scales[i % stack.copies], None, None, stack.type, stack.group, None, None, self.gate, *each, not few,
        )  # fmt: skip
        y = self.second.entry(i, h, rows.offsets, None, True)
        return ops.combine(y, rows.places.view(tokens, -1), weights)

    def torch(self, x, rows, weights):
        h = torch._grouped_mm(rows.spread(x, self.top), self.weights[0], rows.offsets[1:])
        a, b = h.chunk(2, -1)
        h = torch._grouped_mm(torch.nn.functional.silu(a) * b, self.weights[1], rows.offsets[1:])
        return (h[rows.places].view(*weights.shape, -1) * weights[..., None]).sum(1).to(x.dtype)


def measure_layer(mixture, tokens, layer):
    count, top, hidden, inner, *_ = MIXTURES[mixture]
    flops = 6 * tokens * top * hidden * inner
    launches = 40 if flops < 2e11 else 8
    x, weights = torch.randn(tokens, hidden, device="cuda").bfloat16(), torch.rand(tokens, top, device="cuda")
    index = [torch.rand(tokens, count, device="cuda").topk(top, -1).indices for _ in range(launches)]
    rows = [experts.rows_of(i, count) for i in index]
    jobs = [
        Job("ours", lambda i: layer.ours(i, x, rows[i % launches], weights), launches),
        Job("bf16", lambda i: layer.torch(x, rows[i % launches], weights), launches),
    ]
    alternate(jobs, 5, 0.002)
    ours, theirs = (job.us for job in jobs)
    text = f"{mixture:12} {'layer':8} {tokens:5} {tokens * top:6} {'':15} {ours:8.1f} {theirs:8.1f}"
    print(f"{text} {ours / theirs:5.2f} {'':6} {flops / ours / 1e6:6.1f}", flush=True)


def read_rate():
    """GB/s of a reduction of 4 GB, which does nothing but read."""
    x = torch.ones(1 << 30, dtype=torch.int32, device="cuda")
    job = Job("read", lambda i: x.amax(), 2)
    alternate([job], 5)
    return x.numel() * 4 / job.least / 1e3


def rivals_of(names, *sizes):
    made = []
    for name in filter(None, names.split(",")):
        import experts_rivals

        try:
            kind, *library = name.split(":")
            made.append(experts_rivals.RIVALS[kind](*sizes, *library))
        except Exception as problem:
            print(f"# {name}: {problem!r}"[:300])
    return made


def add_rivals(add, stack, rivals, x, drawn, out):
    """Adds what launches each of them that is right; one that cannot is told."""
    for rival in rivals:
        try:
            for name, way in rival.ways(x.shape[0]).items():
                ready = [rival.prepare(offsets, x.shape[0], way) for offsets in drawn]
                out.fill_(float("nan"))
                y = rival.launch(0, x, ready[0], out)
                seen = rival.seen(x) if hasattr(rival, "seen") else x
                error = error_of(stack, seen, drawn[0], out if y is None else y, rival.dequantize)
                if not error < 0.01:
                    raise ValueError(f"{name}: error {error:.1e}")
                add(name, lambda i, x, offsets, out, p=ready, r=rival: r.launch(i, x, p[i % len(p)], out))
        except Exception as problem:
            print(f"# {type(rival).__name__}: {problem!r}"[:300])


def measure(mixture, product, tokens, stack, weight, variants, rivals, sums=False):
    count, top, hidden, inner, *_ = MIXTURES[mixture]
    rows = tokens * top
    launches = 40 if rows * stack.n * stack.k < 1e11 else 8
    x = torch.randn(rows, stack.k, device="cuda").bfloat16()
    drawn = [routed(tokens, top, count) for _ in range(launches)]
    offsets, touched = [d[0].offsets for d in drawn], sum(d[1] for d in drawn) / launches
    weights = torch.rand(tokens, top, device="cuda")
    out = torch.empty(rows, stack.n, device="cuda", dtype=torch.bfloat16)
    error = error_of(stack, x, offsets[0], stack.entry(0, x, offsets[0], out))
    jobs, wrong = {}, {}

    def add(name, launch):
        def run(i):
            y = launch(i, x, offsets[i % launches], out)
            if sums:
                ops.combine(out if y is None else y, drawn[i % launches][0].places.view(tokens, -1), weights)

        jobs[name] = Job(name, run, launches)

    add("ours", stack.entry)
    if weight is not None:
        add("bf16", lambda i, x, offsets, out: torch._grouped_mm(x, weight, offsets[1:]))
    add_rivals(add, stack, rivals, x, offsets, out)
    kernels = stack.kernels() if variants else {}
    if rows > 16 * count:
        kernels = {name: launch for name, launch in kernels.items() if not name.startswith("mma")}
    for name, launch in kernels.items():
        out.fill_(float("nan"))
        try:
            launch(0, x, offsets[0], out)
            wrong[name] = error_of(stack, x, offsets[0], out)
            add(name, launch)
        except tilusvm.Error as refusal:
            print(f"# {name}: {refusal}"[:200])
    alternate(list(jobs.values()), 5, 0.002)
    times = {name: job.us for name, job in jobs.items()}
    ours, flops = times["ours"], 2 * rows * stack.n * stack.k
    text = f"{mixture:12} {product:8} {tokens:5} {rows:6} {touched:6.1f} {error:8.1e} {ours:8.1f}"
    text += f" {times['bf16']:8.1f} {ours / times['bf16']:5.2f}" if weight is not None else f" {'':8} {'':5}"
    print(text, f"{touched * stack.bytes / ours / 1e3:6.0f} {flops / ours / 1e6:6.1f}", end="")
    kernels = sorted((t, name) for name, t in times.items() if name not in ("ours", "bf16"))
    if kernels:
        print("  ", ", ".join(f"{name} {t:.1f}" for t, name in kernels), end="")
    bad = {name: e for name, e in wrong.items() if not e < 0.01}
    print("".join(f" WRONG {name} {e:.1e}" for name, e in bad.items()), flush=True)
    return error < 0.01 and not bad


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mixtures", default=",".join(MIXTURES))
    parser.add_argument("--tokens", default="1,4,16,64,512,2048,8192")
    parser.add_argument("--products", default="gate_up,down,layer")
    parser.add_argument("--variants", default="", help="numbers of tokens")
    parser.add_argument("--rivals", default="", help="triton,humming,marlin:LIBRARY")
    parser.add_argument("--sums", action="store_true")
    parser.add_argument("--seconds", type=float, default=1e9)
    options = parser.parse_args()
    begin, right = time.monotonic(), True
    print(f"{torch.cuda.get_device_name()}, which reads {read_rate():.0f} GB/s", flush=True)
    print("mixture      product tokens   rows  touch    error       us     bf16 ratio   GB/s TFLOP/s")
    for mixture in options.mixtures.split(","):
        count, top, hidden, inner, type, group = MIXTURES[mixture]
        for product in options.products.split(","):
            if product == "layer":
                layer = Layer(mixture)
                for tokens in map(int, options.tokens.split(",")):
                    if time.monotonic() - begin < options.seconds:
                        measure_layer(mixture, tokens, layer)
                del layer
                continue
            k, n = (hidden, 2 * inner) if product == "gate_up" else (inner, hidden)
            stack = Stack(count, k, n, type, group)
            weight = torch.randn(count, n, stack.k, device="cuda", dtype=torch.bfloat16).mT
            rivals = rivals_of(options.rivals, count, k, n, type, group)
            for tokens in map(int, options.tokens.split(",")):
                if time.monotonic() - begin > options.seconds:
                    print("# out of time")
                    return 0 if right else 1
                variants = options.variants and tokens in map(int, options.variants.split(","))
                right &= measure(mixture, product, tokens, stack, weight, variants, rivals, options.sums)
            del stack, weight, rivals
    return 0 if right else 1


if __name__ == "__main__":
    with torch.inference_mode():
        sys.exit(main())

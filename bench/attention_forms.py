#!/usr/bin/env python3
"""Sinks, chosen blocks and latents that are appended, beside the ways to the same without: one process, one GPU.

    bench/attention_forms.py [--seconds S] [--device cpu] [PART...]

Parts: sinks_prefill and sinks_decode (attention with sinks, without, and with torch putting the sinks behind it, shapes
of gpt-oss 120b), blocks (a share of the blocks of 8192 and 32768 causal tokens, beside all of them and torch's
flex_attention), append (mla_append beside rms_norm, rope and torch's own quantization), ternary (matmul_ternary beside
matmul_lowbit of u2 and torch's product). Prints a JSON object a line: results that are compared with float64 first
(error, right), then times in microseconds, medians of replays of a CUDA graph. After S seconds (50) no part is begun.
On --device cpu, the interpreter, results are compared alone. Exit status: 0 every result was right, 1 one was not."""
import argparse
import json
import sys
import time

import torch
from timing import captured, launches_of, median_us

from tilusvm import nn, ops, ternary

H, B, E = torch.float16, torch.bfloat16, torch.float8_e4m3fn
REPLAYS, GRAPH_MS = 5, 8
state = {"right": True}


def say(**words):
    print(json.dumps(words), flush=True)


def check(what, found, wanted, tolerance):
    error = (found.double() - wanted.double()).abs().max().item()
    state["right"] &= error <= tolerance
    say(check=what, error=float(f"{error:.3g}"), right=error <= tolerance)


def time_of(launch, *copies):
    """Microseconds of launch(copy), one copy after the other; None without a GPU."""
    copies = copies or (None,)
    if device == "cpu":
        return None
    for copy in copies[:3]:
        launch(copy)
    count = max(len(copies), launches_of(GRAPH_MS, lambda: launch(copies[0])))
    graph = captured(lambda i: launch(copies[i % len(copies)]), count)
    graph.replay()
    return round(median_us(graph.replay, REPLAYS) / count, 2)


def starts_of(*lengths):
    return torch.nn.functional.pad(torch.tensor(lengths, device=device).cumsum(0), (1, 0)).int()


def heads_of(rows, heads, d, dtype):
    return torch.randn(rows, heads, d, device=device).to(dtype)


def causal(n, left=-1):
    below = torch.ones(n, n, dtype=torch.bool, device=device).tril()
    return below if left < 0 else below & ~below.tril(-left - 1)


def exact(q, k, v, seen, sinks=None):
    """[tokens, heads, d] in float64."""
    q, k, v = (t.double().transpose(0, 1) for t in (q, k, v))
    k, v = (t.repeat_interleave(q.shape[0] // k.shape[0], 0) for t in (k, v))
    scores = (q.shape[-1] ** -0.5 * q @ k.transpose(1, 2)).masked_fill(~seen, -torch.inf)
    if sinks is not None:
        scores = torch.cat([scores, sinks.double()[:, None, None].expand(-1, q.shape[1], 1)], -1)
        v = torch.nn.functional.pad(v, (0, 0, 0, 1))
    return (scores.softmax(-1).nan_to_num(0) @ v).transpose(0, 1)


def behind(out, lse, sinks):
    """What sinks do, by torch behind the launch."""
    return (out * torch.sigmoid(lse - sinks)[..., None]).to(out.dtype)


# ---- the parts ----


def sinks_prefill():
    n = 64 if device == "cpu" else 700
    for dtype, d in ((H, 64), (B, 64), (B, 128), (H, 256), (E, 128)):
        q, k, v = (heads_of(n, heads, d, dtype) for heads in (8, 2, 2))
        sinks, starts = torch.linspace(-4, 4, 8, device=device), starts_of(n)
        for left in (-1, 127):
            out, _ = ops.attention(q, k, v, starts, starts, longest=n, left=left, right=0, sinks=sinks)
            tolerance = 0.07 if dtype is E else 0.02
            check(f"sinks {dtype} d {d} left {left}", out, exact(q, k, v, causal(n, left), sinks), tolerance)
    for n, left in ((1024, 127), (8192, 127), (8192, -1)) if device != "cpu" else ():
        q, k, v = (heads_of(n, heads, 64, B) for heads in (64, 8, 8))
        sinks, starts = torch.randn(64, device=device), starts_of(n)
        args, words = (q, k, v, starts, starts), {"longest": n, "left": left, "right": 0}
        say(
            time="sinks_prefill", tokens=n, left=left, us=time_of(lambda _: ops.attention(*args, **words, sinks=sinks)),
            torch_behind=time_of(lambda _: behind(*ops.attention(*args, **words), sinks)),
            without=time_of(lambda _: ops.attention(*args, **words)),
        )  # fmt: skip


def sinks_decode():
    points = ((2, 40, 0),) if device == "cpu" else ((1, 2048, 0), (1, 2048, 128), (16, 4096, 0), (64, 4096, 128))
    for batch, tokens, window in points:
        form = ops.CacheFormat(B, head=64, page=32)
        pages = batch * (tokens // 32 + 1)
        cache, table = form.zeros(pages, 8, device), torch.randperm(pages, device=device).int().view(batch, -1)
        k, v = (heads_of(batch * tokens, 8, 64, B) for _ in range(2))
        lengths = torch.full((batch,), tokens, dtype=torch.int32, device=device)
        ops.kv_append(k, v, cache, starts_of(*[tokens] * batch), table, lengths, form, longest=tokens)
        q, sinks = torch.randn(batch, 1, 64, 64, device=device).to(B), torch.randn(64, device=device)
        args, words = (q, cache, table, lengths, form), {"window": window}
        out, _ = ops.attention_decode(*args, **words, sinks=sinks)
        seen = torch.arange(tokens, device=device)[None] >= (tokens - window if window else 0)
        for b in {0, batch - 1}:
            own = slice(b * tokens, (b + 1) * tokens)
            check(f"sinks {batch} x {tokens}, {window}", out[b], exact(q[b], k[own], v[own], seen, sinks), 0.01)
        say(
            time="sinks_decode", batch=batch, tokens=tokens, window=window,
            us=time_of(lambda _: ops.attention_decode(*args, **words, sinks=sinks)),
            torch_behind=time_of(lambda _: behind(*ops.attention_decode(*args, **words), sinks)),
            without=time_of(lambda _: ops.attention_decode(*args, **words)),
        )  # fmt: skip
    x, lse = torch.randn(3, 50, 4, 128, device=device), torch.randn(3, 50, 4, device=device)
    sinks = torch.randn(4, device=device)
    all_parts = torch.logsumexp(torch.cat([lse, sinks.expand(1, 50, 4)]).double(), 0)
    wanted = ((lse.double() - all_parts).exp()[..., None] * x).sum(0)
    check("sinks of merged parts", ops.attention_merge(x, lse, sinks)[0], wanted, 1e-5)


def _paged(t, page):
    """Rows as pages in an order of their own, and the order."""
    count = -(-t.shape[0] // page)
    order = torch.arange(count - 1, -1, -1, device=device)
    pages = torch.zeros(count * page, *t.shape[1:], dtype=t.dtype, device=device)
    pages[: t.shape[0]] = t
    out = torch.empty_like(pages).view(count, page, *t.shape[1:])
    out[order] = pages.view_as(out)
    return out, order[None].int().contiguous()


def blocks():
    n = 200 if device == "cpu" else 1000
    for dtype, d, block, page in (
        (H, 64, 128, 0), (B, 128, 128, 0), (B, 128, 64, 0), (H, 128, 128, 64), (H, 256, 128, 0), (E, 128, 128, 0),
    ):  # fmt: skip
        q, k, v = (heads_of(n, heads, d, dtype) for heads in (4, 2, 2))
        mask = torch.rand(1, 4, -(-n // block), -(-n // block), device=device) < 0.4
        mask[0, 0, 0] = False
        counts, chosen = ops.chosen_blocks(mask)
        seen = mask[0].repeat_interleave(block, 1).repeat_interleave(block, 2)[:, :n, :n] & causal(n)
        words = {"longest": n, "right": 0, "counts": counts, "chosen": chosen, "block": block}
        args = (q, k, v, starts_of(n), starts_of(n))
        if page:
            (pages, table), (values, _) = _paged(k, page), _paged(v, page)
            lengths = torch.tensor([n], dtype=torch.int32, device=device)
            args, words["table"] = (q, pages, values, starts_of(n), lengths), table
        out, _ = ops.attention(*args, **words)
        tolerance = 0.08 if dtype is E else 0.02
        check(f"blocks of {block} {dtype} d {d} page {page}", out, exact(q, k, v, seen), tolerance)
    points = ((8192, 128, 1.0), (8192, 128, 0.25), (8192, 64, 0.25), (32768, 128, 0.1), (32768, 128, 0.05))
    for n, block, share in points if device != "cpu" else ():
        q, k, v = (heads_of(n, heads, 128, B) for heads in (32, 8, 8))
        count, starts = n // block, starts_of(n)
        mask = torch.rand(1, 32, count, count, device=device) < share
        mask = (mask | torch.eye(count, dtype=torch.bool, device=device)) & causal(count)
        counts, chosen = ops.chosen_blocks(mask)
        words = {"longest": n, "right": 0}
        some = {"counts": counts, "chosen": chosen, "block": block}
        us = time_of(lambda _: ops.attention(q, k, v, starts, starts, **words, **some))
        flop = 4 * 128 * block * block * counts.sum().item()
        say(
            time="blocks", tokens=n, block=block, share=round(counts.sum().item() / (16 * count * (count + 1)), 4), us=us,
            tflops=round(flop / us * 1e-6, 1), all=time_of(lambda _: ops.attention(q, k, v, starts, starts, **words)),
        )  # fmt: skip


def flex():
    """torch's flex_attention of the same blocks; its compilation takes most of the time."""
    from torch.nn.attention import flex_attention as theirs

    n, block = 8192, 128
    q, k, v = (heads_of(n, heads, 128, B) for heads in (32, 8, 8))
    count = n // block
    mask = (torch.rand(1, 32, count, count, device=device) < 0.25) | torch.eye(count, dtype=torch.bool, device=device)
    mask &= causal(count)

    def seen(b, h, i, j):
        return mask[0, h, i // block, j // block] & (i >= j)

    of = theirs.create_block_mask(seen, 1, 32, n, n, device=device, BLOCK_SIZE=block)
    run = torch.compile(theirs.flex_attention)
    q4, k4, v4 = (t.transpose(0, 1)[None].contiguous() for t in (q, k, v))
    out = run(q4, k4, v4, block_mask=of, enable_gqa=True)
    counts, chosen = ops.chosen_blocks(mask)
    starts = starts_of(n)
    words = {"longest": n, "right": 0, "counts": counts, "chosen": chosen, "block": block}
    check("flex_attention", ops.attention(q, k, v, starts, starts, **words)[0], out[0].transpose(0, 1), 0.03)
    say(
        time="flex", tokens=n, block=block, us=time_of(lambda _: ops.attention(q, k, v, starts, starts, **words)),
        flex_attention=time_of(lambda _: run(q4, k4, v4, block_mask=of, enable_gqa=True)),
    )  # fmt: skip


def append():
    for type_ in (None, "f8_e4m3", "i8", "u4"):
        form = ops.LatentFormat(B, type_)
        for tokens in (5,) if device == "cpu" else (1, 64, 4096):
            x, weight = torch.randn(tokens, 576, device=device).to(B), torch.ones(512, device=device).to(B)
            table, slots = torch.randn(tokens, 64, device=device), torch.randperm(8192, device=device)[:tokens].int()
            places = torch.arange(tokens, dtype=torch.int32, device=device), table
            cache, wanted = form.zeros(128, device), form.zeros(128, device)

            def parts(_):
                latents, rest = x.split([512, 64], -1)
                latents = ops.rms_norm(latents.contiguous(), weight)
                form.append(wanted, latents, ops.rope(rest.contiguous()[:, None], *places)[:, 0], slots)

            def one(_):
                ops.mla_append(x, cache, slots, *places, weight, type=type_)

            one(0), parts(0)
            found, expected = (form.elements(t.view(8192, -1)) for t in (cache, wanted))
            apart = (found - expected).abs() > 1e-5 * expected.abs()  # torch multiplies by the reciprocal of a number
            differ = apart.double().mean().item()  # numbers between two roundings may go either way
            state["right"] &= differ <= 1e-3
            say(check=f"append {type_} {tokens}", differ=differ, right=differ <= 1e-3)
            say(time="append", type=str(type_), tokens=tokens, us=time_of(one), torch=time_of(parts))


def ternary_layers():
    for n, k in ((64, 160),) if device == "cpu" else ((2560, 6912), (6912, 2560), (8192, 8192), (28672, 8192)):
        w = torch.randint(-1, 2, (n, k), dtype=torch.int8, device=device)
        layer = ternary.BitLinear.from_ternary(w, 0.02)
        copies = [layer.packed.clone() for _ in range(max(2, min(40, 160_000_000 // layer.packed.numel())))]
        for m in (1, 8, 32, 128, 256, 2048):
            x = torch.randn(m, k, device=device).to(B)
            numbers, factors = ops.quantize_rows(x)
            wanted = (numbers.double() * factors.double()) @ w.double().T * 0.02
            check(f"ternary {n} x {k}, {m}", layer(x), wanted, 8e-3 * wanted.abs().max().item())
            times = {
                "us": time_of(lambda p: ops.matmul_ternary(numbers, p, factors, layer.scales, n=n), *copies),
                "layer": time_of(lambda _: layer(x)),
            }
            if k % 128 == 0 and device != "cpu":
                two = nn.Linear(k, n, False, type="u2", group=128, dtype=B, device=device)
                two.scales.fill_(0.02)
                packs = [two.packed.clone() for _ in copies]
                times["u2"] = time_of(
                    lambda p: ops.matmul_lowbit(x, p, two.scales, type="u2", group=128), *packs
                )  # fmt: skip
            say(time="ternary", n=n, k=k, m=m, bytes=layer.packed.numel(), **times)


PARTS = (sinks_decode, append, ternary_layers, blocks, sinks_prefill, flex)

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("parts", nargs="*", metavar="PART")
parser.add_argument("--seconds", type=float, default=50)
parser.add_argument("--device", default="cuda")
options = parser.parse_args()
device, began = options.device, time.monotonic()
torch.manual_seed(0)
for part in PARTS:
    name = part.__name__.removesuffix("_layers")
    if options.parts and name not in options.parts or device == "cpu" and part is flex:
        continue
    if time.monotonic() - began > options.seconds:
        say(left_out=name)
        continue
    part()
    say(part=name, seconds=round(time.monotonic() - began, 1))
sys.exit(not state["right"])

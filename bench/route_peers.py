#!/usr/bin/env python3
"""The router of a mixture of experts and the sort by expert: ops.route beside torch's softmax, topk and sort, and
beside four kernels of Triton that do the same, in one run.

    PYTHONPATH=build/python bench/route_peers.py [TOKENS...]

Times are medians of replays of a CUDA graph of 40 launches over as many logits; these are in the L2, as where a product
has just written them. Results are compared first: those of ours with a sort in float64."""

import sys

import torch
import triton
import triton.language as tl
from timing import captured, median_us

from tilusvm import ops

LAUNCHES, REPLAYS = 40, 15
SHAPES = {  # experts, arguments
    "Mixtral 8, 2": (8, dict(top=2, renormalize=True)),
    "Qwen3 128, 8": (128, dict(top=8, renormalize=True)),
    "DeepSeek-V3 256, 8 of 4 of 8 groups": (
        256, dict(top=8, score="sigmoid", renormalize=True, scale=2.5, groups=8, top_groups=4),
    ),
    "gpt-oss 32, 4": (32, dict(top=4, renormalize=True)),
}  # fmt: skip


def measure(function, data):
    """Microseconds of function(*data[i])."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for arguments in data[:3]:
            function(*arguments)
    torch.cuda.synchronize()
    graph = captured(lambda i: function(*data[i]), len(data), stream=stream)
    return median_us(graph.replay, REPLAYS, warm_up=2) / len(data)


def by_torch(logits, bias, top, score="softmax", renormalize=False, scale=1.0, groups=1, top_groups=1):
    tokens, experts = logits.shape
    scores = logits.sigmoid() if score == "sigmoid" else logits.softmax(-1)
    value = scores if bias is None else scores + bias
    if groups > 1:
        best = value.view(tokens, groups, -1).topk(2, -1)[0].sum(-1).topk(top_groups, -1, sorted=False)[1]
        stays = torch.zeros(tokens, groups, dtype=torch.bool, device=logits.device).scatter_(1, best, True)
        value = value.masked_fill(~stays.repeat_interleave(experts // groups, 1), -torch.inf)
    ids = value.topk(top, -1)[1]
    weights = scores.gather(1, ids)
    if renormalize:
        weights = weights / weights.sum(-1, keepdim=True)
    flat = ids.flatten()
    rows = flat.sort(stable=True)[1]
    places = torch.empty_like(rows).scatter_(0, rows, torch.arange(len(rows), device=rows.device))
    counts = torch.zeros(experts + 1, dtype=torch.int64, device=rows.device)
    counts[1:].scatter_add_(0, flat, torch.ones_like(flat))
    return weights * scale, ids, counts.cumsum(0), rows, places


# ---- Triton ----


@triton.jit
def _choose(logits, bias, weights, ids, tokens, scale, E: tl.constexpr, TOP: tl.constexpr, SIGMOID: tl.constexpr,
            G: tl.constexpr, TOP_GROUPS: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    token = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    column = tl.arange(0, E)
    inside = (token < tokens)[:, None]
    x = tl.load(logits + token[:, None] * E + column[None], mask=inside, other=0.0).to(tl.float32)
    value = x
    if SIGMOID:
        x = 1.0 / (1.0 + tl.exp(-x))
        value = x + tl.load(bias + column)[None]
    if G > 1:
        cube = tl.reshape(value, (BLOCK, G, E // G))
        first, at = tl.max(cube, 2, return_indices=True)
        rest = tl.where(tl.arange(0, E // G)[None, None] == at[:, :, None], float("-inf"), cube)
        sums = first + tl.max(rest, 2)
        group = tl.arange(0, G)
        stays = tl.zeros((BLOCK, G), tl.int1)
        for _ in tl.static_range(TOP_GROUPS):
            at = tl.argmax(sums, 1)
            stays = stays | (group[None] == at[:, None])
            sums = tl.where(group[None] == at[:, None], float("-inf"), sums)
        value = tl.reshape(tl.where(stays[:, :, None], cube, float("-inf")), (BLOCK, E))
    slot = tl.arange(0, 16)
    found = tl.zeros((BLOCK, 16), tl.int32)
    weight = tl.full((BLOCK, 16), 0.0 if SIGMOID else float("-inf"), tl.float32)
    for j in tl.static_range(TOP):
        at = tl.argmax(value, 1)
        hit = column[None] == at[:, None]
        own = tl.sum(tl.where(hit, x, 0.0), 1)
        found = tl.where(slot[None] == j, at[:, None], found)
        weight = tl.where(slot[None] == j, own[:, None], weight)
        value = tl.where(hit, float("-inf"), value)
    if not SIGMOID:
        weight = tl.exp(weight - tl.max(weight, 1)[:, None])
    weight = weight / tl.sum(weight, 1)[:, None] * scale
    to = token[:, None] * TOP + slot[None]
    is_slot = inside & (slot < TOP)[None]
    tl.store(weights + to, weight, mask=is_slot)
    tl.store(ids + to, found, mask=is_slot)


@triton.jit
def _count(ids, counts, total, E: tl.constexpr, CHUNK: tl.constexpr):
    row = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
    e = tl.load(ids + row, mask=row < total, other=0)
    tl.store(counts + tl.program_id(0) * E + tl.arange(0, E), tl.histogram(e, E, mask=row < total))


@triton.jit
def _add_up(counts, offsets, chunks, E: tl.constexpr, LINES: tl.constexpr):
    expert = tl.arange(0, E)
    total = tl.zeros((E,), tl.int32)
    for start in range(0, chunks, LINES):
        line = start + tl.arange(0, LINES)
        at = line[:, None] * E + expert[None]
        n = tl.load(counts + at, mask=(line < chunks)[:, None], other=0)
        tl.store(counts + at, tl.cumsum(n, 0) - n + total[None], mask=(line < chunks)[:, None])
        total += tl.sum(n, 0)
    ends = tl.cumsum(total, 0)
    tl.store(offsets + 1 + expert, ends)
    tl.store(offsets, 0)


@triton.jit
def _place(ids, counts, offsets, rows, places, total, E: tl.constexpr, CHUNK: tl.constexpr):
    own = tl.arange(0, CHUNK)
    row = tl.program_id(0) * CHUNK + own
    e = tl.load(ids + row, mask=row < total, other=-1)
    before = tl.sum(((e[:, None] == e[None]) & (own[None] < own[:, None])).to(tl.int32), 1)
    base = tl.load(counts + tl.program_id(0) * E + e, mask=row < total, other=0)
    place = before + base + tl.load(offsets + e, mask=row < total, other=0)
    tl.store(places + row, place, mask=row < total)
    tl.store(rows + place, row, mask=row < total)


def by_triton(logits, bias, top, score="softmax", renormalize=True, scale=1.0, groups=1, top_groups=1, chunk=128):
    tokens, experts = logits.shape
    i32 = dict(dtype=torch.int32, device=logits.device)
    weights, ids = torch.empty(tokens, top, device=logits.device), torch.empty(tokens, top, **i32)
    total = tokens * top
    chunks = triton.cdiv(total, chunk)
    counts, offsets = torch.empty(chunks, experts, **i32), torch.empty(experts + 1, **i32)
    rows, places = torch.empty(total, **i32), torch.empty(tokens, top, **i32)
    block = 1 if tokens <= 264 else 4
    _choose[(triton.cdiv(tokens, block),)](
        logits, logits if bias is None else bias, weights, ids, tokens, scale, experts, top, score == "sigmoid", groups,
        top_groups, block, num_warps=1,
    )  # fmt: skip
    _count[(chunks,)](ids, counts, total, experts, chunk, num_warps=4)
    _add_up[(1,)](counts, offsets, chunks, experts, max(min(8192 // experts, 128), 1), num_warps=8)
    _place[(chunks,)](ids, counts, offsets, rows, places, total, experts, chunk, num_warps=4)
    return weights, ids, offsets, rows, places


# ---- the run ----


def check(name, found, logits, bias, words):
    """Of what each gives: the choice by float64, and the sort of that choice."""
    weights, ids, offsets, rows, places = (t.long() if t.dtype == torch.int32 else t for t in found)
    wanted = by_torch(logits.double(), None if bias is None else bias.double(), **words)
    same = (ids == wanted[1]).all(-1)
    assert same.double().mean() > 0.995, f"{name}: other experts"  # where two are nearly equal
    assert (weights[same] - wanted[0][same]).abs().max() < 1e-5, f"{name}: weights"
    order = ids.flatten().sort(stable=True)[1]
    assert torch.equal(rows, order), f"{name}: rows"
    assert torch.equal(places.flatten()[order], torch.arange(len(order), device=order.device)), f"{name}: places"
    ends = torch.bincount(ids.flatten(), minlength=logits.shape[1]).cumsum(0)
    assert offsets[0] == 0 and torch.equal(offsets[1:], ends), f"{name}: offsets"


def main():
    sizes = [int(word) for word in sys.argv[1:]] or [1, 16, 64, 512, 8192]
    print(torch.cuda.get_device_name(), "us; f32 logits")
    for shape, (experts, words) in SHAPES.items():
        bias = torch.randn(experts, device="cuda") * 0.1 if words.get("score") == "sigmoid" else None
        for tokens in sizes:
            data = [(torch.randn(tokens, experts, device="cuda"), bias) for _ in range(LAUNCHES)]
            line = f"{shape:36}{tokens:6}"
            for name, function in (("ours", ops.route), ("torch", by_torch), ("Triton", by_triton)):
                try:
                    check(name, function(*data[0], **words), *data[0], words)
                    line += f"  {name} {measure(lambda x, b, f=function: f(x, b, **words), data):8.2f}"
                except Exception as error:
                    line += f"  {name} {type(error).__name__}: {str(error)[:60]}"
            print(line, flush=True)
    sorts(sizes)


def sorts(sizes):
    """Of the sort alone, where experts are chosen elsewhere."""
    for count in sizes:
        data = [(torch.randint(0, 128, (8 * count,), device="cuda", dtype=torch.int32),) for _ in range(LAUNCHES)]

        def by_sort(keys):
            ordered, rows = keys.sort(stable=True)
            number = torch.arange(129, dtype=torch.int32, device="cuda")
            places = torch.empty_like(rows).scatter_(0, rows, torch.arange(len(rows), device="cuda"))
            return torch.searchsorted(ordered, number), rows, places

        for a, b in zip(ops.bucket(*data[0], buckets=128), by_sort(*data[0])):
            assert torch.equal(a.long(), b), "bucket"
        ours, theirs = measure(lambda keys: ops.bucket(keys, buckets=128), data), measure(by_sort, data)
        print(f"sort alone, 128, 8{count:24}  ours {ours:8.2f}  torch {theirs:8.2f}", flush=True)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Decode on latents (mla_decode) beside torch's own products (bmm, softmax, bmm on latents that lie together).

    bench/mla_peers.py [-o TYPE...] [-x BATCHxLENGTHxHEADS[xQUERIES]...] [--topk N]

TYPE is that of the latents: bf16, f16, f8_e4m3, i8, u4. With --topk each query attends to N of the tokens (SPARSE), and
bytes and operations are theirs. At each point results of some sequences are compared with float64 first. Times are
medians of replays of CUDA graphs of 20 ms at least, over copies of the cache that are larger than three times the L2
together, after a pause."""
import argparse
import math
import time

import torch
from timing import captured, launches_of, median_us

import tilusvm

TYPES = {"f16": torch.float16, "bf16": torch.bfloat16}
BITS = {"f16": 16, "bf16": 16, "f8_e4m3": 8, "i8": 8, "u4": 4}
DV, ROPE, PAGE = 512, 64, 64
D = DV + ROPE
REPLAYS, GRAPH_MS, REST_S, SCALE = 5, 20, 0.1, D**-0.5
POINTS = [(b, n, h, 1) for h in (16, 128) for b in (1, 16, 64, 128) for n in (1024, 8192, 32768)]
POINTS += [(64, 8192, 64, 1), (64, 8192, 128, 2), (32, 5000, 128, 4)]


def time_of(launch, copies):
    """Microseconds of one launch."""
    for i in range(copies):
        launch(i)
    launches = max(copies, launches_of(GRAPH_MS, lambda: launch(0)))
    graph = captured(lambda i: launch(i % copies), launches)
    graph.replay()
    time.sleep(REST_S)
    return median_us(graph.replay, REPLAYS) / launches


def low_bits(kind, pages):
    """Rows of a cache as mla_decode has them, u8[pages, PAGE, BYTES], and the elements that they stand for."""
    group = 128 if BITS[kind] == 8 else 64
    shape = (pages, PAGE, DV)
    if kind == "u4":
        codes = torch.randint(0, 16, shape, device="cuda", dtype=torch.int64)
        values = codes.double() - 8
        words = codes.reshape(pages, PAGE, DV // 8, 4, 2)
        shifts = torch.arange(0, 16, 4, device="cuda")[:, None] + torch.tensor([0, 16], device="cuda")
        words = (words << shifts).sum((-1, -2))
        codes = torch.stack([(words >> at & 255).to(torch.uint8) for at in (0, 8, 16, 24)], -1)
    elif kind == "i8":
        codes = torch.randint(-127, 128, shape, device="cuda", dtype=torch.int8)
        values = codes.double()
    else:
        codes = torch.randn(shape, device="cuda").to(torch.float8_e4m3fn)
        values = codes.double()
    scales = torch.rand(pages, PAGE, DV // group, device="cuda") * {"f8_e4m3": 1.0, "u4": 0.3, "i8": 0.02}[kind]
    scales = scales.to(torch.float32 if BITS[kind] == 8 else torch.float16)
    rope = torch.randn(pages, PAGE, ROPE, device="cuda", dtype=torch.bfloat16)
    parts = [codes, scales, rope]
    rows = torch.cat([part.contiguous().view(torch.uint8).reshape(pages, PAGE, -1) for part in parts], -1)
    return rows, torch.cat([values * scales.double().repeat_interleave(group, -1), rope.double()], -1)


class Point:
    """A cache of `copies` copies, whose pages lie in no order, and what is asked of it."""

    def __init__(self, kind, batch, length, heads, queries, topk):
        at = {"device": "cuda", "dtype": TYPES.get(kind, torch.bfloat16)}
        self.kind, self.batch, self.length, self.heads, self.queries = kind, batch, length, heads, queries
        self.topk = min(topk, length) if topk else None
        self.columns = math.ceil(length / PAGE)
        self.pages = batch * self.columns
        self.bytes = D * 2 if BITS[kind] == 16 else DV * BITS[kind] // 8 + 16 + ROPE * 2
        l2 = torch.cuda.get_device_properties(0).L2_cache_size
        self.copies = min(64, 3 * l2 // (self.pages * PAGE * self.bytes) + 1)
        constants = {}
        if BITS[kind] == 16:
            first = torch.randn(self.pages, PAGE, D, **at)
        else:
            constants["LTYPE"] = kind
            tile = min(self.pages, 64)
            first, _ = low_bits(kind, tile)
            first = first.repeat(math.ceil(self.pages / tile), 1, 1)[: self.pages].contiguous()
        self.cache = [first] + [first.clone() for _ in range(self.copies - 1)]
        self.q = torch.randn(batch * queries, heads, D, **at)
        self.table = torch.randperm(self.pages, device="cuda", dtype=torch.int32).reshape(batch, self.columns)
        self.lengths = torch.full((batch,), length, device="cuda", dtype=torch.int32)
        self.chosen = ()
        if self.topk:
            constants["SPARSE"] = True
            random = torch.rand(batch * queries, length - queries + 1, device="cuda")
            self.chosen = (random.topk(self.topk, -1).indices.int(),) if length >= self.topk + queries else ()
        self.out = torch.empty(batch * queries, heads, DV, **at)
        self.lse = torch.empty(batch * queries, heads, device="cuda")
        own = "f16" if kind == "f16" else "bf16"
        self.kernel = tilusvm.program("mla_decode", T=own, PAGE=PAGE, **constants)["mla_decode"]

    def launch(self, i):
        topk = (self.topk,) if self.topk else ()
        self.kernel(self.batch, self.queries, self.heads, self.pages, self.columns, *topk, SCALE, self.q, self.cache[i],
                    self.table, self.lengths, *self.chosen, self.out, self.lse)

    def keys_of(self, b):
        """Of a sequence, float64."""
        pages = self.cache[0][self.table[b].long()]
        if BITS[self.kind] == 16:
            return pages.reshape(-1, D)[: self.length].double()
        codes = DV * BITS[self.kind] // 8
        group = 128 if BITS[self.kind] == 8 else 64
        rows = pages.reshape(-1, self.bytes)[: self.length]
        low, scales, rope = (part.contiguous() for part in rows.split([codes, 16, ROPE * 2], -1))
        if self.kind == "u4":
            words = low.view(torch.int32).long() & 0xFFFFFFFF
            shifts = torch.arange(0, 16, 4, device="cuda")[:, None] + torch.tensor([0, 16], device="cuda")
            values = (words[..., None, None] >> shifts & 15).reshape(-1, DV).double() - 8
        else:
            values = low.view(torch.int8 if self.kind == "i8" else torch.float8_e4m3fn).double()
        scales = scales.view(torch.float32 if BITS[self.kind] == 8 else torch.float16).double()
        return torch.cat([values * scales.repeat_interleave(group, -1), rope.view(torch.bfloat16).double()], -1)

    def error(self):
        """The greatest difference from float64 by the greatest value, of out and of lse, of some sequences."""
        self.out.fill_(float("nan"))
        self.launch(0)
        worst = 0.0
        for b in {0, self.batch // 2, self.batch - 1}:
            keys = self.keys_of(b)
            for t in range(self.queries):
                row = b * self.queries + t
                seen = keys[self.chosen[0][row].long()] if self.topk else keys[: self.length - self.queries + 1 + t]
                scores = SCALE * (self.q[row].double() @ seen.T)
                expected = torch.softmax(scores, -1) @ seen[:, :DV]
                off = (self.out[row].double() - expected).abs().max() / expected.abs().max()
                off_lse = (self.lse[row].double() - torch.logsumexp(scores, -1)).abs().max()
                worst = max(worst, off.item(), off_lse.item()) if off.isfinite() else math.inf
        return worst

    def peer(self):
        """Microseconds of torch's products, or None where there is no memory for them."""
        try:
            keys = torch.randn(self.batch, self.length, D, device="cuda", dtype=self.q.dtype)
            q = self.q.reshape(self.batch, -1, D)
            return time_of(lambda i: torch.softmax(q @ keys.mT * SCALE, -1) @ keys[..., :DV], 1)
        except torch.cuda.OutOfMemoryError:
            return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--only", nargs="*", default=["bf16"], choices=BITS)
    parser.add_argument("-x", "--shapes", nargs="*", help="BATCHxLENGTHxHEADS[xQUERIES]")
    parser.add_argument("--topk", type=int)
    parser.add_argument("--no-peer", action="store_true")
    arguments = parser.parse_args()
    points = POINTS
    if arguments.shapes:
        points = [(*map(int, shape.split("x")), 1)[:4] for shape in arguments.shapes]
    print(tilusvm.device_name("cuda"), torch.__version__)
    print(f"{'type':9}{'batch x length, heads x queries':34}{'us':>9}{'GB/s':>8}{'TFLOP/s':>9}{'torch us':>10}  error")
    for kind in arguments.only:
        for batch, length, heads, queries in points:
            point = Point(kind, batch, length, heads, queries, arguments.topk)
            error = point.error()
            us = time_of(point.launch, point.copies)
            has_peer = not arguments.no_peer and not arguments.topk and batch * length <= 1 << 20
            peer = point.peer() if has_peer else None
            keys = queries * point.topk if point.topk else length
            rate = batch * keys * point.bytes / us * 1e-3
            flops = 2 * batch * heads * keys * (1 if point.topk else queries) * (D + DV) / us * 1e-6
            shape = f"{batch} x {length}, {heads} x {queries}"
            print(f"{kind:9}{shape:34}{us:9.1f}{rate:8.0f}{flops:9.0f}{'-' if peer is None else f'{peer:.1f}':>10}"
                  f"  {error:.1e}", flush=True)
            del point
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()

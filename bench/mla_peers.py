#!/usr/bin/env python3
"""Decode on latents (mla_decode) beside torch's own products (bmm, softmax, bmm on latents that lie together), in one run.

    bench/mla_peers.py [-o TYPE...] [-x BATCHxLENGTHxHEADS[xQUERIES]...]

At each point results of some sequences are compared with float64 first. Times are medians of replays of CUDA graphs of
20 ms at least, over copies of the cache that are larger than three times the L2 together, after a pause."""
import argparse
import math
import statistics
import time

import torch

import tilusvm

TYPES = {"f16": torch.float16, "bf16": torch.bfloat16}
DV, ROPE, PAGE = 512, 64, 64
D = DV + ROPE
REPLAYS, GRAPH_MS, REST_S, SCALE = 5, 20, 0.1, D**-0.5
POINTS = [(b, n, h, 1) for h in (16, 128) for b in (1, 16, 64, 128) for n in (1024, 8192, 32768)]
POINTS += [(64, 8192, 64, 1), (64, 8192, 128, 2), (32, 5000, 128, 4)]


def time_of(launch, copies):
    """Microseconds of one launch."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def timed(work):
        begin.record()
        work()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end)

    for i in range(copies):
        launch(i)
    launches = max(copies, int(GRAPH_MS / timed(lambda: launch(0))) + 1)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(launches):
            launch(i % copies)
    graph.replay()
    time.sleep(REST_S)
    return statistics.median(timed(graph.replay) for _ in range(REPLAYS)) / launches * 1e3


class Point:
    """A cache of `copies` copies, whose pages lie in no order, and what is asked of it."""

    def __init__(self, kind, batch, length, heads, queries):
        at = {"device": "cuda", "dtype": TYPES[kind]}
        self.kind, self.batch, self.length, self.heads, self.queries = kind, batch, length, heads, queries
        self.columns = math.ceil(length / PAGE)
        self.pages = batch * self.columns
        l2 = torch.cuda.get_device_properties(0).L2_cache_size
        self.copies = min(64, 3 * l2 // (self.pages * PAGE * D * 2) + 1)
        self.cache = [torch.randn(self.pages, PAGE, D, **at) for _ in range(self.copies)]
        self.q = torch.randn(batch * queries, heads, D, **at)
        self.table = torch.randperm(self.pages, device="cuda", dtype=torch.int32).reshape(batch, self.columns)
        self.lengths = torch.full((batch,), length, device="cuda", dtype=torch.int32)
        self.out = torch.empty(batch * queries, heads, DV, **at)
        self.lse = torch.empty(batch * queries, heads, device="cuda")
        self.kernel = tilusvm.program("mla_decode", T=kind, PAGE=PAGE)["mla_decode"]

    def launch(self, i):
        self.kernel(self.batch, self.queries, self.heads, self.pages, self.columns, SCALE, self.q, self.cache[i],
                    self.table, self.lengths, self.out, self.lse)

    def error(self):
        """The greatest difference from float64 by the greatest value, of out and of lse, of some sequences."""
        self.out.fill_(float("nan"))
        self.launch(0)
        worst = 0.0
        for b in {0, self.batch // 2, self.batch - 1}:
            keys = self.cache[0][self.table[b].long()].reshape(-1, D)[: self.length].double()
            for t in range(self.queries):
                seen = keys[: self.length - self.queries + 1 + t]
                row = b * self.queries + t
                scores = SCALE * (self.q[row].double() @ seen.T)
                expected = torch.softmax(scores, -1) @ seen[:, :DV]
                off = (self.out[row].double() - expected).abs().max() / expected.abs().max()
                off_lse = (self.lse[row].double() - torch.logsumexp(scores, -1)).abs().max()
                worst = max(worst, off.item(), off_lse.item()) if off.isfinite() else math.inf
        return worst

    def peer(self):
        """Microseconds of torch's products, or None where there is no memory for them."""
        try:
            keys = torch.randn(self.batch, self.length, D, device="cuda", dtype=TYPES[self.kind])
            q = self.q.reshape(self.batch, -1, D)
            return time_of(lambda i: torch.softmax(q @ keys.mT * SCALE, -1) @ keys[..., :DV], 1)
        except torch.cuda.OutOfMemoryError:
            return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--only", nargs="*", default=["bf16"], choices=TYPES)
    parser.add_argument("-x", "--shapes", nargs="*", help="BATCHxLENGTHxHEADS[xQUERIES]")
    arguments = parser.parse_args()
    points = POINTS
    if arguments.shapes:
        points = [(*map(int, shape.split("x")), 1)[:4] for shape in arguments.shapes]
    print(tilusvm.device_name("cuda"), torch.__version__)
    print(f"{'type':9}{'batch x length, heads x queries':34}{'us':>9}{'GB/s':>8}{'TFLOP/s':>9}{'torch us':>10}  error")
    for kind in arguments.only:
        for batch, length, heads, queries in points:
            point = Point(kind, batch, length, heads, queries)
            error = point.error()
            us = time_of(point.launch, point.copies)
            peer = point.peer() if batch * length <= 1 << 20 else None
            rate = batch * length * D * 2 / us * 1e-3
            flops = 2 * batch * queries * heads * length * (D + DV) / us * 1e-6
            shape = f"{batch} x {length}, {heads} x {queries}"
            print(f"{kind:9}{shape:34}{us:9.1f}{rate:8.0f}{flops:9.0f}{'-' if peer is None else f'{peer:.1f}':>10}"
                  f"  {error:.1e}", flush=True)
            del point
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()

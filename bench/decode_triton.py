#!/usr/bin/env python3
"""A plain Triton matmul over u4 weights (zero point 8, f16 scales of groups of 128), tuned over a small space, timed as
bench/decode times: medians of replays of CUDA graphs of 40 launches or more over rotating copies of the data, larger than
three times the L2. Each result is first compared with a float64 reference on fresh random data.

    decode_triton.py [--shapes NxK,...] [--batches M,...] [--seconds LIMIT] >peers.json
    decode ... --peers peers.json

Prints a JSON object a line. The weights are packed along k: bits 4i to 4i+3 of word [g, r, j] are the weight of row
128 g + 16 i + r, column j. Exit status: 0 every point was right, 1 one was not."""
import argparse
import json
import sys
import time

import torch
import triton
import triton.language as tl
from timing import captured, median_us

GROUP = 128
LAUNCHES, REPLAYS, WARM_UP = 40, 15, 3
# columns of a block, warps, stages of the load pipeline
CONFIGS = [(32, 4, 4), (64, 4, 3), (64, 4, 5), (64, 8, 4), (128, 4, 3), (128, 4, 5), (128, 8, 4)]
SPLITS = [1, 2, 4, 8]


@triton.jit
def matmul_u4(a, q, s, c, m, n, k, split, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, STORE_F16: tl.constexpr):
    """One block: BLOCK_N columns of the groups split_index, split_index + split, ..."""
    columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    part = tl.program_id(1)
    rows = tl.arange(0, BLOCK_M)
    words = tl.arange(0, 16)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for group in range(part, k // 128, split):
        packed = tl.load(q + (group * 16 + words)[:, None] * n + columns[None, :])
        scale = tl.load(s + group * n + columns).to(tl.float32)
        total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for i in tl.static_range(8):
            # 0x6400 | x is the f16 1024 + x
            codes = ((packed >> (4 * i)) & 15 | 0x6400).to(tl.int16).to(tl.float16, bitcast=True)
            at = group * 128 + i * 16 + words
            x = tl.load(a + rows[:, None] * k + at[None, :], mask=rows[:, None] < m, other=0.0)
            total = tl.dot(x, codes - 1032.0, total)
        acc += total * scale[None, :]
    to = rows[:, None] * n + columns[None, :]
    if STORE_F16:
        tl.store(c + to, acc.to(tl.float16), mask=rows[:, None] < m)
    else:
        tl.store(c + part * m * n + to, acc, mask=rows[:, None] < m)


@triton.jit
def add_parts(parts, c, count, split, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for part in range(split):
        total += tl.load(parts + part * count + at, mask=at < count, other=0.0)
    tl.store(c + at, total.to(tl.float16), mask=at < count)


class Problem:
    def __init__(self, n, k, max_m):
        self.n, self.k = n, k
        self.q = torch.randint(-(2**31), 2**31, (k // 8, n), dtype=torch.int32, device="cuda")
        self.s = (torch.rand((k // GROUP, n), device="cuda") * 0.01 + 0.005).half()
        self.a = (torch.rand((max_m, k), device="cuda") * 2 - 1).half()
        self.c = torch.empty((max_m, n), dtype=torch.float16, device="cuda")
        self.parts = torch.empty((max(SPLITS), max_m, n), dtype=torch.float32, device="cuda")
        l2 = torch.cuda.get_device_properties(0).L2_cache_size
        size = 4 * self.q.numel() + 2 * self.s.numel() + 2 * self.a.numel()
        count = max(3, 3 * l2 // size + 1)
        self.copies = [(self.a.clone(), self.q.clone(), self.s.clone()) for _ in range(count)]

    def launch(self, copy, m, config, split):
        a, q, s = self.copies[copy % len(self.copies)]
        columns, warps, stages = config
        block_m = max(16, triton.next_power_of_2(m))
        to = self.c if split == 1 else self.parts
        matmul_u4[(self.n // columns, split)](
            a, q, s, to, m, self.n, self.k, split, BLOCK_M=block_m, BLOCK_N=columns, STORE_F16=split == 1,
            num_warps=warps, num_stages=stages)
        if split > 1:
            add_parts[(triton.cdiv(m * self.n, 1024),)](self.parts, self.c, m * self.n, split, BLOCK=1024)

    def error(self, m, config, split):
        """Relative, by the Frobenius norm, over 64 columns; infinite when an element was not written."""
        self.c.fill_(float("nan"))
        self.launch(0, m, config, split)
        columns = torch.randperm(self.n, device="cuda")[:64]
        words = self.q.view(self.k // GROUP, 1, 16, self.n)[..., columns]
        shifts = torch.arange(0, 32, 4, device="cuda", dtype=torch.int32).view(1, 8, 1, 1)
        codes = (words >> shifts) & 15
        scales = self.s[:, columns].double().view(-1, 1, 1, len(columns))
        weights = ((codes.double() - 8) * scales).reshape(self.k, len(columns))
        expected = self.a[:m].double() @ weights
        if self.c[:m].isnan().any():
            return float("inf")
        return ((self.c[:m, columns].double() - expected).norm() / expected.norm()).item()

    def time(self, m, config, split, replays):
        """Microseconds a launch."""
        launches = -(-LAUNCHES // len(self.copies)) * len(self.copies)
        torch.cuda.synchronize()
        graph = captured(lambda i: self.launch(i, m, config, split), launches)
        return median_us(graph.replay, replays, warm_up=WARM_UP) / launches


def tune(problem, m, deadline):
    """The best of the configurations that run, are right, and were reached before the deadline."""
    best = None
    for config in CONFIGS:
        for split in SPLITS:
            if best and time.monotonic() > deadline:
                return best
            try:
                error = problem.error(m, config, split)
                if not error < 1e-3:
                    print(f"m {m}, {config}, split {split}: wrong, error {error:.3g}", file=sys.stderr)
                    continue
                taken = problem.time(m, config, split, 3)
            except triton.runtime.errors.OutOfResources:
                continue
            if best is None or taken < best[0]:
                best = (taken, config, split)
    return best


def measure(problem, m, deadline):
    best = tune(problem, m, deadline)
    if best is None:
        print(f"m {m}, n {problem.n}, k {problem.k}: no configuration is right", file=sys.stderr)
        return False
    _, config, split = best
    point = {"peer": "triton", "type": "u4", "m": m, "n": problem.n, "k": problem.k,
             "us": round(problem.time(m, config, split, REPLAYS), 3), "error": problem.error(m, config, split),
             "config": [*config, split]}
    print(json.dumps(point), flush=True)
    return True


def main():
    parser = argparse.ArgumentParser(description="A plain Triton u4 matmul, tuned and timed as bench/decode times.")
    parser.add_argument("--shapes", default="8192x8192,10240x8192,57344x8192,8192x28672,5120x5120,27648x5120")
    parser.add_argument("--batches", default="1,4,8,16,32,64")
    parser.add_argument("--seconds", type=float, default=300, help="begin no point after so long (default 300)")
    options = parser.parse_args()
    batches = [int(m) for m in options.batches.split(",")]
    shapes = [tuple(int(x) for x in shape.split("x")) for shape in options.shapes.split(",")]
    if max(batches) > 128 or any(n % 128 or k % GROUP for n, k in shapes):
        parser.error("batches up to 128, and multiples of 128 as n and k, are expected")
    deadline = time.monotonic() + options.seconds
    right = True
    for n, k in shapes:
        if time.monotonic() > deadline:
            print(f"n {n}, k {k} and what follows: out of time", file=sys.stderr)
            break
        problem = Problem(n, k, max(batches))
        for m in batches:
            if time.monotonic() <= deadline:
                right &= measure(problem, m, deadline)
        del problem
        torch.cuda.empty_cache()
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())

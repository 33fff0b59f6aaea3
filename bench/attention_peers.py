#!/usr/bin/env python3
"""Prefill attention beside cuDNN (torch) at the same points, in one run.

    bench/attention_peers.py BENCH [ARGUMENT...]

BENCH is bench/attention, run with the arguments and --json. At each of its points cuDNN is measured then as BENCH does
it: CUDA graphs of 20 ms at least, the median of replays, tensors [tokens, heads, d]. Of points that cuDNN refuses (8
bits are not asked of it) there is a dash. All tensors are larger than the L2 cache together."""
import json
import subprocess
import sys
import tempfile
import time

import torch
import torch.nn.functional as F
from timing import captured, launches_of, median_us
from torch.nn.attention import SDPBackend, sdpa_kernel

TYPES = {"f16": torch.float16, "bf16": torch.bfloat16}
REPLAYS, GRAPH_MS, REST_S = 5, 20, 0.1


def tensors(p):
    """q, k, v as cuDNN takes them, [sequences, heads, length, d], of [tokens, heads, d] in memory."""
    widths = ((p["heads"], p["d"]), (p["kv_heads"], p["d"]), (p["kv_heads"], p["dv"]))
    at = {"device": "cuda", "dtype": TYPES[p["type"]]}
    return [torch.randn(p["sequences"], p["length"], heads, width, **at).transpose(1, 2) for heads, width in widths]


def time_of(launch):
    """Milliseconds of one launch."""
    launch()
    launches = launches_of(GRAPH_MS, launch)
    graph = captured(lambda i: launch(), launches)
    time.sleep(REST_S)
    return median_us(graph.replay, REPLAYS) / launches * 1e-3


def tflops(p):
    """Of cuDNN, or None."""
    if p["type"] not in TYPES:
        return None
    q, k, v = tensors(p)
    flop = 2 * p["heads"] * p["sequences"] * p["length"] ** 2 * (p["d"] + p["dv"]) * (0.5 if p["causal"] else 1)

    def launch():
        return F.scaled_dot_product_attention(q, k, v, is_causal=p["causal"], enable_gqa=p["heads"] != p["kv_heads"])

    try:
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return flop / time_of(launch) * 1e-9
    except RuntimeError as why:
        print(f"cuDNN: {str(why).splitlines()[0]}", file=sys.stderr)
        return None


def main():
    with tempfile.NamedTemporaryFile("r", suffix=".json") as found:
        subprocess.run([sys.argv[1], f"--json={found.name}", *sys.argv[2:]], check=True, stdout=subprocess.DEVNULL)
        points = [json.loads(line) for line in found]
    print(f"{'':48} {'ours':>6} {'cuDNN':>6}  TFLOP/s")
    for p in points:
        peer = tflops(p)
        name = (f"{p['type']} {p['sequences']} x {p['length']}, {p['heads']} / {p['kv_heads']} heads of {p['d']} / "
                f"{p['dv']}, {'causal' if p['causal'] else 'full'}")
        print(f"{name:48} {p['tflops']:6.0f} {'-' if peer is None else f'{peer:.0f}':>6}", flush=True)


if __name__ == "__main__":
    main()

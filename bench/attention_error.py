#!/usr/bin/env python3
"""The error of prefill attention beside its peers' on the same inputs, against float64 of those inputs.

    bench/attention_error.py TVM_RUN ATTENTION.vasm|FOLDER [TEXT]

Ours is programs/attention.vasm, run by tvm-run; given a FOLDER, its f16.vbc, bf16.vbc and f8_e4m3.vbc, such as tvm-cc
--embed makes them. Peers are torch's cuDNN and FlashAttention 2, on the CPU torch's own. They take no f8 inputs: there
f16 takes the same numbers, which it holds exactly, and `weights f8` is float64 but for weights rounded to f8_e4m3 as
they are before they are divided by their sum, so that the greatest is 1: what any kernel with both products of 8 bits
begins with. Inputs are normal; `outliers` makes one element in a thousand of q, k and v ten times as large. Printed are
the greatest error and the root of the mean square of errors, both over the root of the mean square of the results.
TEXT chooses points whose name contains it."""
import math
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TOKENS, HEADS = (4096, 4) if DEVICE == "cuda" else (160, 2)
TYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f8_e4m3": torch.float8_e4m3fn}
PEERS = {"cuDNN": SDPBackend.CUDNN_ATTENTION, "FlashAttention 2": SDPBackend.FLASH_ATTENTION}
CPU_PEERS = {"torch": SDPBackend.MATH}


def inputs(dtype, d, outliers):
    """q, k, v [tokens, heads, d] of a type's numbers, in float32."""
    made = []
    for _ in range(3):
        x = torch.randn(TOKENS, HEADS, d, device=DEVICE)
        if outliers:
            x = torch.where(torch.rand_like(x) < 1e-3, 10 * x, x)
        made.append(x.to(dtype).float())
    return made


def exact(q, k, v, causal, weights=None):
    """float64, [tokens, heads, d]; `weights` of this type before they are summed with values."""
    out = []
    for h in range(HEADS):
        s = q[:, h].double() @ k[:, h].double().T / math.sqrt(q.shape[2])
        if causal:
            s += torch.full_like(s, -math.inf).triu(1)
        e = torch.exp(s - s.amax(1, keepdim=True))
        used = e if weights is None else e.float().to(weights).double()
        out.append(used @ v[:, h].double() / e.sum(1, keepdim=True))
    return torch.stack(out, 1)


def peer(backend, dtype, q, k, v, causal):
    with sdpa_kernel(backend):
        o = F.scaled_dot_product_attention(*(x.to(dtype).transpose(0, 1)[None] for x in (q, k, v)), is_causal=causal)
    return o[0].transpose(0, 1)


def write(path, x, dtype):
    """As tvm-run takes it: bf16 is uint16 codes, f8 uint8 codes."""
    x = x.to(dtype).cpu()
    views = {torch.bfloat16: torch.uint16, torch.float8_e4m3fn: torch.uint8}
    np.save(path, (x.view(views[dtype]) if dtype in views else x).numpy())


def ours(run, program, name, q, k, v, causal):
    d = q.shape[2]
    with tempfile.TemporaryDirectory() as folder:
        for part, x in zip("qkv", (q, k, v)):
            write(f"{folder}/{part}.npy", x, TYPES[name])
        np.save(f"{folder}/starts.npy", np.array([0, TOKENS], dtype=np.int32))
        given = {"sequences": 1, "tokens": TOKENS, "kv_tokens": TOKENS, "heads": HEADS, "kv_heads": HEADS, "d": d,
                 "dv": d, "longest": TOKENS, "left": -1, "right": 0 if causal else -1, "scale": 1 / math.sqrt(d),
                 "q": f"@{folder}/q.npy", "k": f"@{folder}/k.npy", "v": f"@{folder}/v.npy",
                 "q_starts": f"@{folder}/starts.npy", "k_starts": f"@{folder}/starts.npy",
                 "o": f"out:{folder}/o.npy", "lse": "zeros"}
        subprocess.run([run, program, "--quiet", "--kernel", "attention", "--args",
                        *(f"{key}={value}" for key, value in given.items())], check=True)
        o = torch.from_numpy(np.load(f"{folder}/o.npy")).to(DEVICE)
    return (o.view(torch.bfloat16) if name == "bf16" else o).reshape(TOKENS, HEADS, d)


def report(name, what, found, want):
    scale = want.square().mean().sqrt()
    error = found.double() - want
    print(f"{name:32} {what:18} {(error.abs().max() / scale).item():9.2e} "
          f"{(error.square().mean().sqrt() / scale).item():9.2e}", flush=True)


def assembled(source, folder, name):
    if os.path.isdir(source):
        return f"{source}/{name}.vbc"
    path = f"{folder}/{name}.vbc"
    subprocess.run(["tvm-as", "-D", f"T={name}", "-o", path, source], check=True)
    return path


def main():
    run, source, chosen = sys.argv[1], sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else ""
    torch.manual_seed(1)
    print(f"{TOKENS} tokens, {HEADS} heads\n{'':51} {'greatest':>9} {'rms':>9}")
    with tempfile.TemporaryDirectory() as folder:
        for name in TYPES:
            for d, causal, outliers in ((128, False, False), (128, True, False), (128, True, True), (64, True, False),
                                        (64, False, True), (256, False, False)):
                point = f"{name} d {d} {'causal' if causal else 'full'}{' outliers' if outliers else ''}"
                if chosen not in point:
                    continue
                q, k, v = inputs(TYPES[name], d, outliers)
                want = exact(q, k, v, causal)
                report(point, "ours", ours(run, assembled(source, folder, name), name, q, k, v, causal), want)
                eight = name == "f8_e4m3"
                for what, backend in (PEERS if DEVICE == "cuda" else CPU_PEERS).items():
                    found = peer(backend, torch.float16 if eight else TYPES[name], q, k, v, causal)
                    report(point, what + (", f16" if eight else ""), found, want)
                if eight:
                    report(point, "weights f8", exact(q, k, v, causal, TYPES[name]), want)


if __name__ == "__main__":
    main()

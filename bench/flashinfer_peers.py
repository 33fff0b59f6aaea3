#!/usr/bin/env python3
"""attention_decode and attention beside their peers in one process: FlashInfer's paged decode on tensor cores and its
FA3 prefill, and cuDNN's prefill.

    flashinfer_peers.py [--flashinfer libflashinfer.so] [--decode BxTOKENS,...] [--prefill D:BxTOKENS[:HEADS],...]
    flashinfer_peers.py --flashinfer libflashinfer.so [--decode BxTOKENS,...] --errors f16,f8_e4m3

Results are compared with float64 before they are timed: decode with all of some sequences, prefill with a row; for f8
and u4 of what was not yet quantized, so that the codes are most of their error. Times are medians of replays of CUDA
graphs over rotating caches, larger together than three times the L2; the replays of all alternate. Prints a JSON object
a line; tb_s: the bytes of codes of keys and values a second.

With --errors nothing is timed: inputs are numbers that every peer's type holds, and printed are the greatest error and
the root of the mean square of errors against float64 of the same numbers, of all results, both over the root of the
mean square of the results.

libflashinfer.so is flashinfer_glue.cu with FlashInfer's headers; its head says how it is made."""
import argparse
import ctypes
import json
import math
import sys

import torch
import torch.nn.functional as F
from side_by_side import Job, alternate, copies_beside_l2
from torch.nn.attention import SDPBackend, sdpa_kernel

from tilusvm import ops

KV_HEADS, HEAD, PAGE = 8, 128, 16


def pointers(*tensors):
    return [ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]


def stream():
    return ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)


def error_of(found, expected):
    error = (found.double() - expected).norm() / expected.norm()
    return math.inf if found.isnan().any() else error.item()


def say(job, **facts):
    print(json.dumps({"peer": job.name, **facts, "us": job.us, "least": job.least, **job.facts}), flush=True)


# ---- decode ----


class FlashInferDecode:
    """Of one batch; FlashInfer's plan splits its context once, outside of what is timed."""

    def __init__(self, library, kind, table, heads):
        batch, tokens = table.shape[0], table.shape[1] * PAGE
        self.kind, self.batch, self.heads, self.library = kind, batch, heads, library
        starts = torch.arange(batch + 1, dtype=torch.int32)
        page_starts = starts * (tokens // PAGE)
        self.starts, self.page_starts = starts.cuda(), page_starts.cuda()
        self.pages = table.flatten()
        self.last = torch.full((batch,), PAGE, dtype=torch.int32, device="cuda")
        self.floats = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
        self.integers = torch.empty(8 << 20, dtype=torch.uint8, device="cuda")
        pinned = torch.empty(8 << 20, dtype=torch.uint8).pin_memory()
        plan = getattr(library, f"decode_plan_{kind}")
        plan.restype = ctypes.c_void_p
        space = [ctypes.c_size_t(tensor.numel()) for tensor in (self.floats, pinned)]
        floats, *rest = pointers(self.floats, self.integers, pinned)
        sizes = batch, heads, KV_HEADS, PAGE
        self.plan = plan(floats, space[0], *rest, space[1], *pointers(starts, page_starts), *sizes)
        torch.cuda.synchronize()
        if not self.plan:
            raise RuntimeError("FlashInfer's plan failed")

    def run(self, q, keys, values, out, early):
        strides = (ctypes.c_int64 * 4)(*keys.stride())
        refused = getattr(self.library, f"decode_run_{self.kind}")(
            ctypes.c_void_p(self.plan), *pointers(q, keys, values), strides,
            *pointers(self.starts, self.page_starts, self.pages, self.last, out), self.batch, self.heads, KV_HEADS,
            PAGE, ctypes.c_float(1 / math.sqrt(HEAD)), int(early), stream())  # fmt: skip
        if refused:
            raise RuntimeError(f"FlashInfer's decode: {refused}")


def our_cache(kind, keys, values, table, lengths):
    """keys, values: [tokens of all, heads, head]."""
    form = ops.CacheFormat(k_type=kind, v_type=kind, head=HEAD, page=PAGE)
    cache = form.zeros(table.numel(), KV_HEADS, device="cuda")
    longest = keys.shape[0] // lengths.shape[0]
    starts = torch.arange(lengths.shape[0] + 1, dtype=torch.int32, device="cuda") * longest
    ops.kv_append(keys, values, cache, starts, table, lengths, form, longest=longest)
    return form, cache


def exact_decode(q, keys, values, batch, sequences):
    """float64, of some sequences: [sequences, heads, head]."""
    found = []
    for b in sequences:
        k, v = (x.view(batch, -1, KV_HEADS, HEAD)[b].double().repeat_interleave(q.shape[1] // KV_HEADS, 1)
                for x in (keys, values))  # fmt: skip
        weights = torch.softmax(torch.einsum("hd,thd->ht", q[b].double(), k) / math.sqrt(HEAD), -1)
        found.append(torch.einsum("ht,thd->hd", weights, v))
    return torch.stack(found)


def decode(batch, tokens, heads, options):
    q = torch.randn(batch, heads, HEAD, device="cuda").half()
    keys, values = (torch.randn(batch * tokens, KV_HEADS, HEAD, device="cuda").half() for _ in range(2))
    table = torch.randperm(batch * tokens // PAGE, device="cuda").int().view(batch, -1)
    lengths = torch.full((batch,), tokens, dtype=torch.int32, device="cuda")
    some = sorted({0, batch - 1})
    expected = exact_decode(q, keys, values, batch, some)
    jobs, count = [], lambda bits: copies_beside_l2(batch * tokens * KV_HEADS * HEAD * 2 * bits / 8)

    def add(name, bits, run, bound):
        """run(i) gives the result of copy i."""
        error = error_of(run(0).view(batch, heads, HEAD)[some], expected)
        if not error < bound:
            print(f"{name}: {batch} x {tokens}: wrong, error {error:.3g}", file=sys.stderr)
            return
        rounds = max(1, (20 if bits * tokens * batch > 1e6 else 40) // count(bits))
        jobs.append(Job(name, lambda i: run(i % count(bits)), rounds * count(bits), error=error, bits=bits))

    for kind, bits, bound in ((None, 16, 1e-3), ("f8_e4m3", 8, 5e-2), ("u4", 4, 0.25)):
        form, cache = our_cache(kind, keys, values, table, lengths)
        caches = [cache, *(cache.clone() for _ in range(count(bits) - 1))]
        wide = q.view(batch, 1, heads, HEAD)
        add(f"tilusvm {kind or 'f16'}", bits,
            lambda i, c=caches, f=form: ops.attention_decode(wide, c[i], table, lengths, f)[0], bound)  # fmt: skip
    for kind, dtype, bits, bound in (("f16", torch.float16, 16, 1e-3), ("f8", torch.float8_e4m3fn, 8, 5e-2)):
        if not options.flashinfer:
            break
        peer = FlashInferDecode(options.library, kind, table, heads)
        both = torch.empty(table.numel(), 2, PAGE, KV_HEADS, HEAD, dtype=dtype, device="cuda")
        for i, x in enumerate((keys, values)):
            pages = x.to(dtype).view(-1, PAGE, KV_HEADS, HEAD)
            both.view(torch.uint8)[table.flatten().long(), i] = pages.view(torch.uint8)
        held = [both, *(both.clone() for _ in range(count(bits) - 1))]
        out = torch.empty_like(q)

        def run(i, peer=peer, held=held, early=False):
            peer.run(q, held[i][:, 0], held[i][:, 1], out, early)
            return out

        add(f"flashinfer {kind}", bits, run, bound)
        add(f"flashinfer {kind} PDL", bits, lambda i, run=run: run(i, early=True), bound)
    alternate(jobs, options.replays)
    for job in jobs:
        amount = batch * tokens * KV_HEADS * HEAD * 2 * job.facts["bits"] / 8
        say(job, batch=batch, tokens=tokens, heads=heads, tb_s=round(amount / job.us / 1e6, 2))


# ---- prefill ----


def exact_rows(q, k, v, row, causal):
    """float64, one row of one sequence [tokens, heads, d]."""
    end = row + 1 if causal else q.shape[0]
    weights = torch.softmax(torch.einsum("hd,thd->ht", q[row].double(), k[:end].double()) / math.sqrt(q.shape[2]), -1)
    return torch.einsum("ht,thd->hd", weights, v[:end].double())


def prefill(d, batch, tokens, heads, options):
    for causal in (False, True):
        q, k, v = (torch.randn(batch * tokens, heads, d, device="cuda").half() for _ in range(3))
        starts = torch.arange(batch + 1, dtype=torch.int32, device="cuda") * tokens
        row = tokens - 77
        expected = exact_rows(q[:tokens], k[:tokens], v[:tokens], row, causal)
        jobs = []

        def add(name, run, bound=2e-3):
            try:
                error = error_of(run().reshape(batch * tokens, heads, d)[row], expected)
                if not error < bound:
                    print(f"{name}: d {d}, {batch} x {tokens}: wrong, error {error:.3g}", file=sys.stderr)
                    return
                jobs.append(Job(name, lambda i: run(), 2, error=error))
            except Exception as problem:
                print(f"{name}: d {d}, {batch} x {tokens}: {problem!r}", file=sys.stderr)

        right = 0 if causal else -1
        add("tilusvm", lambda: ops.attention(q, k, v, starts, starts, longest=tokens, right=right)[0])
        views = [x.view(batch, tokens, heads, d).transpose(1, 2) for x in (q, k, v)]

        def cudnn():
            with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                return F.scaled_dot_product_attention(*views, is_causal=causal).transpose(1, 2)

        add("cudnn", cudnn)
        out, ones = torch.empty_like(q), torch.ones(heads, device="cuda")

        def fa3(kind, q, k, v):
            run = getattr(options.library, f"fa3_{kind}{'c' if causal else 'n'}{d}")
            sizes = tokens, tokens, heads, heads, ctypes.c_float(1 / math.sqrt(d))
            if run(*pointers(q, k, v, out), *sizes, stream(), *pointers(ones)):
                raise RuntimeError("FA3 refused")
            return out

        if options.flashinfer and batch == 1:
            add("flashinfer fa3", lambda: fa3("", q, k, v))
        if d == 128:
            eight = [x.to(torch.float8_e4m3fn) for x in (q, k, v)]
            add("tilusvm f8", lambda: ops.attention(*eight, starts, starts, longest=tokens, right=right)[0], 1e-1)
            if options.flashinfer and batch == 1:
                add("flashinfer fa3 f8", lambda: fa3("f8", *eight), 1e-1)
        alternate(jobs, options.replays, options.rest)
        work = 4 * batch * tokens * tokens * heads * d * (0.5 if causal else 1)
        for job in jobs:
            say(job, d=d, batch=batch, tokens=tokens, heads=heads, causal=causal, tflops=round(work / job.us / 1e6))


# ---- errors ----


def say_error(peer, found, expected, **facts):
    scale = expected.square().mean().sqrt()
    error = (found.double() - expected) / scale
    greatest, rms = error.abs().max().item(), error.square().mean().sqrt().item()
    print(json.dumps({"peer": peer, **facts, "greatest": greatest, "rms": rms}), flush=True)


def exact_prefill(q, k, v, causal):
    """float64, [tokens, heads, d]."""
    found = []
    for h in range(q.shape[1]):
        scores = q[:, h].double() @ k[:, h].double().T / math.sqrt(q.shape[2])
        if causal:
            scores += torch.full_like(scores, -math.inf).triu(1)
        found.append(torch.softmax(scores, -1) @ v[:, h].double())
    return torch.stack(found, 1)


def prefill_errors(d, tokens, heads, eight, outliers, options):
    kind = torch.float8_e4m3fn if eight else torch.float16
    q, k, v = (torch.randn(tokens, heads, d, device="cuda") for _ in range(3))
    if outliers:
        q, k, v = (torch.where(torch.rand_like(x) < 1e-3, 10 * x, x) for x in (q, k, v))
    q, k, v = (x.to(kind) for x in (q, k, v))
    starts = torch.tensor([0, tokens], dtype=torch.int32, device="cuda")
    out, ones = torch.empty(tokens, heads, d, dtype=torch.float16, device="cuda"), torch.ones(heads, device="cuda")
    for causal in (False, True):
        expected = exact_prefill(q, k, v, causal)
        facts = {"type": "f8_e4m3" if eight else "f16", "d": d, "causal": causal, "outliers": outliers}
        ours = ops.attention(q, k, v, starts, starts, longest=tokens, right=0 if causal else -1)[0]
        say_error("tilusvm", ours, expected, **facts)
        run = getattr(options.library, f"fa3_{'f8' if eight else ''}{'c' if causal else 'n'}{d}")
        sizes = tokens, tokens, heads, heads, ctypes.c_float(1 / math.sqrt(d))
        if run(*pointers(q, k, v, out), *sizes, stream(), *pointers(ones)):
            raise RuntimeError("FA3 refused")
        say_error("flashinfer fa3", out, expected, **facts)


def decode_errors(batch, tokens, heads, eight, options):
    q = torch.randn(batch, heads, HEAD, device="cuda").half()
    keys, values = (torch.randn(batch * tokens, KV_HEADS, HEAD, device="cuda").half() for _ in range(2))
    kind = torch.float8_e4m3fn if eight else torch.float16
    if eight:  # the greatest is 448 / 128, so that our scales are powers of two, and codes the same numbers
        for x in (keys, values):
            x.clamp_(-3.5, 3.5)[..., 0] = 3.5
            x.copy_(x.to(kind))
    table = torch.randperm(batch * tokens // PAGE, device="cuda").int().view(batch, -1)
    lengths = torch.full((batch,), tokens, dtype=torch.int32, device="cuda")
    expected = exact_decode(q, keys, values, batch, range(batch))
    facts = {"type": "f8_e4m3" if eight else "f16", "batch": batch, "tokens": tokens, "heads": heads}
    form, cache = our_cache("f8_e4m3" if eight else None, keys, values, table, lengths)
    ours = ops.attention_decode(q.view(batch, 1, heads, HEAD), cache, table, lengths, form)[0]
    say_error("tilusvm", ours.view(batch, heads, HEAD), expected, **facts)
    both = torch.empty(table.numel(), 2, PAGE, KV_HEADS, HEAD, dtype=kind, device="cuda")
    for i, x in enumerate((keys, values)):
        pages = x.to(kind).view(-1, PAGE, KV_HEADS, HEAD)
        both.view(torch.uint8)[table.flatten().long(), i] = pages.view(torch.uint8)
    out = torch.empty_like(q)
    peer = FlashInferDecode(options.library, "f8" if eight else "f16", table, heads)
    peer.run(q, both[:, 0], both[:, 1], out, False)
    say_error("flashinfer", out, expected, **facts)


def errors(options):
    for eight in (kind == "f8_e4m3" for kind in options.errors.split(",")):
        for shape in filter(None, options.decode.split(",")):
            decode_errors(*map(int, shape.split("x")), options.heads, eight, options)
        for d in (128,) if eight else (128, 64, 256):
            for outliers in (False, True):
                prefill_errors(d, 4096, 4, eight, outliers, options)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--decode", default="64x4096,16x4096,1x65536,1x4096")
    parser.add_argument("--heads", type=int, default=32, help="of queries, in decode")
    parser.add_argument("--prefill", default="128:1x16384,128:8x2048,64:4x4096:32,256:4x4096")
    parser.add_argument("--rest", type=float, default=0.1, help="seconds before each replay of prefill")
    parser.add_argument("--flashinfer", help="the library of flashinfer_glue.cu")
    parser.add_argument("--replays", type=int, default=9)
    parser.add_argument("--errors", help="instead of times; of these types, f16 and f8_e4m3")
    options = parser.parse_args()
    if options.flashinfer:
        options.library = ctypes.CDLL(options.flashinfer)
    if options.errors:
        torch.manual_seed(1)
        return errors(options)
    for shape in filter(None, options.decode.split(",")):
        decode(*map(int, shape.split("x")), options.heads, options)
        torch.cuda.empty_cache()
    for shape in filter(None, options.prefill.split(",")):
        d, sizes, *heads = shape.split(":")
        prefill(int(d), *map(int, sizes.split("x")), int(heads[0]) if heads else 4096 // int(d), options)
        torch.cuda.empty_cache()
    return 0


if __name__ == "__main__":
    with torch.no_grad():
        sys.exit(main())

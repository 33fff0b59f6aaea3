#!/usr/bin/env python3
"""Linear attention and state space models by tilusvm.ops, beside Triton's kernels, on a GPU.

    bench/linear_attention.py [delta] [delta_prompts] [space] [space_prompts] [conv]

Peers are flash-linear-attention's gated delta rule and mamba_ssm's state space models, where `fla` and `mamba_ssm` can
be imported; `copy` is torch's copy of half of the bytes that states have to be read and written. Results are compared
with the peer's first, or with float64 in python/tests/test_linear.py. Times are us of CUDA graphs of 40 launches, of
prompts 8, over buffers larger than three times the L2, the median of replays. Of decoding each tuned size of the
program has a column."""
import math
import sys

import torch
from timing import captured, median_us

import tilusvm
from tilusvm import ops

DEV, BF16, F32 = "cuda", torch.bfloat16, torch.float32
BUFFERS = 200e6  # bytes of buffers that are used in turn


def timed(calls, launches=40):
    """us of a call; they are taken in turn, so that each finds other buffers."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for call in calls[:3]:
            call()
    torch.cuda.current_stream().wait_stream(side)
    count = max(launches, len(calls))
    graph = captured(lambda i: calls[i % len(calls)](), count)
    graph.replay()
    return median_us(graph.replay, 9, rest=0.02) / count


def attempt(function):
    """What it gives; NaN, with the reason on standard error, where it fails."""
    try:
        with torch.no_grad():
            return function()
    except Exception as error:
        print(f"{type(error).__name__}: {str(error).partition(chr(10))[0]}", file=sys.stderr)
        return math.nan


def copied(size):
    """us in which half of `size` bytes are read and half are written."""
    count = max(3, int(BUFFERS // size) + 1)
    buffers = [torch.zeros(size // 8, device=DEV) for _ in range(2 * count)]
    return timed([lambda i=i: buffers[2 * i + 1].copy_(buffers[2 * i]) for i in range(count)])


def different(found, wanted):
    found, wanted = found.double().flatten(), wanted.double().flatten()
    return float((found - wanted).abs().max() / wanted.abs().max())


def row(name, columns, rest=""):
    print(f"  {name:28}" + "".join(f"{x:9.2f}" if x < 100 else f"{x:9.1f}" for x in columns) + f"  {rest}", flush=True)


def sequences(lengths):
    starts = torch.tensor([0, *lengths], device=DEV).cumsum(0).int()
    return sum(lengths), starts, torch.arange(len(lengths), dtype=torch.int32, device=DEV)


# ---- the gated delta rule ----


def delta_inputs(lengths, key_heads, heads, state_type=F32):
    n, starts, slots = sequences(lengths)
    q, k = (torch.randn(n, key_heads, 128, device=DEV).to(BF16) for _ in range(2))
    v = torch.randn(n, heads, 128, device=DEV).to(BF16)
    g, beta = -0.1 * torch.rand(n, heads, device=DEV), torch.rand(n, heads, device=DEV)
    state = (0.3 * torch.randn(len(lengths), heads, 128, 128, device=DEV)).to(state_type)
    return q, k, v, g, beta, starts, slots, state


def delta():
    sizes = [(64, 4), (64, 8), (32, 4), (32, 8), (16, 4)]
    print("gated_delta_update, one token: BV x WARPS " + ", ".join(f"{b} x {w}" for b, w in sizes) + "; fla; copy")
    for batch, key_heads, heads, kind in (
        (32, 4, 8, F32), (32, 4, 8, BF16), (128, 4, 8, F32), (1, 4, 8, F32), (8, 16, 32, F32), (1, 16, 32, F32),
    ):  # fmt: skip
        size = 2 * batch * heads * 128 * 128 * kind.itemsize
        count = min(40, max(3, int(BUFFERS // size) + 1))
        sets = [delta_inputs([1] * batch, key_heads, heads, kind) for _ in range(count)]
        outs = [torch.empty_like(s[2]) for s in sets]
        columns = []
        for bv, warps in sizes:
            kind_name = "f32" if kind == F32 else "bf16"
            kernel = tilusvm.program("gated_delta", T="bf16", NORM=True, STYPE=kind_name, BV=bv, WARPS=warps)
            kernel = kernel["gated_delta_update"]

            def call(s, out):
                q, k, v, g, beta, starts, slots, state = s
                table = slots.view(-1, 1)
                kernel(batch, batch, heads, key_heads, batch, 1, 128**-0.5, q, k, v, g, beta, starts, slots, table,
                       state, out)  # fmt: skip

            columns.append(attempt(lambda: timed([lambda s=s, o=o: call(s, o) for s, o in zip(sets, outs)])))

        def peer():
            from fla.ops.gated_delta_rule import fused_recurrent_gated_delta_rule as rule

            def one(q, k, v, g, beta, starts, slots, state):
                rule(q[:, None], k[:, None], v[:, None], g[:, None], beta=beta[:, None], initial_state=state,
                     output_final_state=True, use_qk_l2norm_in_kernel=True)  # fmt: skip

            return timed([lambda s=s: one(*s) for s in sets])

        columns += [attempt(peer) if kind == F32 else math.nan, copied(size)]
        best = min(columns[: len(sizes)])
        name = f"{batch} x {heads} heads, {str(kind)[6:]}"
        row(name, columns, f"{size / best / 1e3:.0f} GB/s, {columns[-1] / best:.2f} of the copy")


def delta_prompts():
    print("gated_delta, prompts: chunks, states, both; fla's chunk_gated_delta_rule; difference of outputs, of states")
    for lengths, key_heads, heads in (
        ([8192], 4, 8), ([1024] * 8, 4, 8), ([8192], 16, 32), ([1024] * 8, 16, 32), ([300] * 27, 16, 32),
    ):  # fmt: skip
        sets, longest = [delta_inputs(lengths, key_heads, heads) for _ in range(4)], max(lengths)
        options = {"longest": longest, "normalize": True}
        parts = [ops.gated_delta_chunks(*s[:6], **options) for s in sets]
        rounds = (
            [lambda s=s: ops.gated_delta_chunks(*s[:6], **options) for s in sets],
            [lambda s=s, p=p: ops.gated_delta_states(*s[:2], *p, *s[5:7], *s[6:]) for s, p in zip(sets, parts)],
            [lambda s=s: ops.gated_delta(*s[:7], *s[6:], **options) for s in sets],
        )
        columns = [timed(calls, 8) for calls in rounds]
        rest = []

        def peer():
            from fla.ops.gated_delta_rule import chunk_gated_delta_rule as rule

            def one(q, k, v, g, beta, starts, slots, state):
                return rule(q[None], k[None], v[None], g[None], beta[None], initial_state=state,
                            output_final_state=True, use_qk_l2norm_in_kernel=True, cu_seqlens=long)  # fmt: skip

            long, state = sets[0][5].long(), sets[0][7].clone()
            out, last = one(*sets[0])
            ours = ops.gated_delta(*sets[0][:7], sets[0][6], state, **options)
            rest.extend([different(ours, out), different(state, last)])
            return timed([lambda s=s: one(*s) for s in sets], 8)

        columns.append(attempt(peer))
        name = f"{len(lengths)} x {longest}, {heads} heads"
        row(name, columns, "  ".join(f"{x:.1e}" for x in rest))


# ---- state space models ----


def space_inputs(lengths, heads):
    n, starts, slots = sequences(lengths)
    x, z = (torch.randn(n, heads, 64, device=DEV).to(BF16) for _ in range(2))
    b, c = (torch.randn(n, 1, 128, device=DEV).to(BF16) for _ in range(2))
    dt, a = torch.randn(n, heads, device=DEV).to(BF16), -8 * torch.rand(heads, device=DEV)
    d, bias = torch.randn(heads, device=DEV), torch.randn(heads, device=DEV) - 3
    state = torch.randn(len(lengths), heads, 64, 128, device=DEV)
    return x, dt, a, b, c, starts, slots, slots.view(-1, 1), state, d, bias, z


def space():
    sizes = [32, 16, 64]
    print(f"state_space, one token: ROWS {', '.join(map(str, sizes))}; mamba_ssm's selective_state_update; copy; "
          f"difference")  # fmt: skip
    for batch, heads in ((32, 80), (128, 80), (1, 80), (32, 20)):
        size = 2 * batch * heads * 64 * 128 * 4
        sets = [space_inputs([1] * batch, heads) for _ in range(min(40, max(3, int(BUFFERS // size) + 1)))]
        columns, rest = [], []
        for rows in sizes:
            kernel = tilusvm.program(
                "state_space", T="bf16", SOFTPLUS=True, SKIP=True, BIAS=True, GATE=True, ROWS=rows
            )["state_space_update"]

            def call(out, x, dt, a, b, c, starts, slots, table, state, d, bias, z):
                kernel(batch, batch, heads, 1, batch, 1, 0.0, math.inf, x, dt, a, b, c, d, bias, z, starts, slots,
                       table, state, out)  # fmt: skip

            outs = [torch.empty_like(s[0]) for s in sets]
            columns.append(attempt(lambda: timed([lambda s=s, o=o: call(o, *s) for s, o in zip(sets, outs)])))

        def peer():
            from mamba_ssm.ops.triton.selective_state_update import selective_state_update as update

            def one(x, dt, a, b, c, starts, slots, table, state, d, bias, z):
                wide = (heads, 64, 128)
                return update(state, x, dt[:, :, None].expand(batch, *wide[:2]), a[:, None, None].expand(wide), b, c,
                              d[:, None].expand(wide[:2]), z=z, dt_bias=bias[:, None].expand(wide[:2]),
                              dt_softplus=True)  # fmt: skip

            first = sets[0]
            ours = ops.state_space(*first[:8], first[8].clone(), *first[9:], softplus=True)
            rest.append(different(ours, one(*first)))
            return timed([lambda s=s: one(*s) for s in sets])

        columns += [attempt(peer), copied(size)]
        best = min(columns[: len(sizes)])
        told = f"{size / best / 1e3:.0f} GB/s, {columns[-1] / best:.2f} of the copy"
        row(f"{batch} x {heads} heads", columns, told + "".join(f"  {x:.1e}" for x in rest))


def space_prompts():
    print("state_space, prompts; mamba_ssm's chunk scan with chunks of 256, 64; difference")
    for lengths, heads in (([8192], 80), ([1024] * 8, 80), ([8192], 20), ([1024] * 8, 20)):
        sets = [space_inputs(lengths, heads) for _ in range(4)]
        columns, rest = [timed([lambda s=s: ops.state_space(*s, softplus=True) for s in sets], 8)], []
        for chunk in (256, 64):

            def peer():
                from mamba_ssm.ops.triton.ssd_combined import _mamba_chunk_scan_combined_fwd as scan

                shape = len(lengths), lengths[0]

                def one(x, dt, a, b, c, starts, slots, table, state, d, bias, z):
                    x, z = (t.view(*shape, heads, 64) for t in (x, z))
                    b, c = (t.view(*shape, 1, 128) for t in (b, c))
                    return scan(x, dt.view(*shape, heads), a, b, c, chunk, D=d, z=z, dt_bias=bias,
                                initial_states=state, dt_softplus=True)  # fmt: skip

                first = sets[0]
                ours = ops.state_space(*first[:8], first[8].clone(), *first[9:], softplus=True)
                rest.append(different(ours, one(*first)[0]))
                return timed([lambda s=s: one(*s) for s in sets], 8)

            columns.append(attempt(peer))
        row(f"{len(lengths)} x {lengths[0]}, {heads} heads", columns, "  ".join(f"{x:.1e}" for x in rest[:1]))


# ---- the convolution ----


def conv():
    sizes = [(32, 2), (16, 2), (64, 2), (32, 1)]
    print("causal_conv: ROWS x WARPS " + ", ".join(f"{r} x {w}" for r, w in sizes) + "; copy")
    for lengths, channels in (([8192], 2048), ([8192], 8192), ([1] * 32, 2048), ([1] * 128, 8192)):
        n, starts, slots = sequences(lengths)
        weight = torch.randn(channels, 4, device=DEV).to(BF16)
        count = min(40, max(3, int(BUFFERS // (4 * n * channels)) + 1))
        xs = [torch.randn(n, channels, device=DEV).to(BF16) for _ in range(count)]
        states = [torch.randn(len(lengths), 3, channels, device=DEV).to(BF16) for _ in range(count)]
        ys, columns = [torch.empty_like(x) for x in xs], []
        for rows, warps in sizes:
            kernel = tilusvm.program("causal_conv", T="bf16", ROWS=rows, WARPS=warps)["causal_conv"]

            def call(i):
                kernel(len(lengths), n, max(lengths), channels, len(lengths), 1, xs[i], weight, starts, slots,
                       slots.view(-1, 1), states[i], ys[i])  # fmt: skip

            columns.append(attempt(lambda: timed([lambda i=i: call(i) for i in range(count)])))
        row(f"{n} tokens of {len(lengths)}, {channels}", [*columns, copied(4 * n * channels)])


if __name__ == "__main__":
    torch.manual_seed(1)
    print(torch.cuda.get_device_name(), torch.__version__)
    parts = {f.__name__: f for f in (delta, delta_prompts, space, space_prompts, conv)}
    for part in sys.argv[1:] or parts:
        parts[part]()

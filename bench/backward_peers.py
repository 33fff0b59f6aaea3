"""Gradients beside torch's, on one GPU: attention (FlashAttention 2 and cuDNN of scaled_dot_product_attention), norms,
swiglu, cross entropy, embedding, and that of a layer of u4.

    python3 bench/backward_peers.py [attention] [rows]

us, median of five replays of a CUDA graph after a pause of 0.1 s, torch's backward without one; tensors are larger than
the L2. TFLOP/s of attention are those of five products, half where it is causal, whatever is computed; GB/s those of
the tensors, each once. bench/attention_error.py and python/tests/test_backward.py say whether it is right."""

import sys

import torch
from timing import captured, median_us
from torch.nn.attention import SDPBackend, sdpa_kernel

from tilusvm import _autograd, nn, ops

F = torch.nn.functional
DEVICE, HALF, BFLOAT = "cuda", torch.float16, torch.bfloat16


def us(function, count=5, graph=True):
    for _ in range(2):
        function()
    torch.cuda.synchronize()
    work = captured(lambda i: function(), count).replay if graph else lambda: [function() for _ in range(count)]
    return median_us(work, 5, warm_up=1, rest=0.1) / count


def backward(result, inputs, gradient):
    return us(lambda: torch.autograd.grad(result, inputs, gradient, retain_graph=True), graph=False)


def numbers(dtype, *shape):
    return torch.randn(*shape, device=DEVICE).to(dtype)


def attention():
    for batch, heads, kv_heads, tokens, d, causal, dtype in (
        (4, 32, 32, 4096, 128, True, HALF), (4, 32, 32, 4096, 128, False, HALF), (4, 32, 8, 4096, 128, True, BFLOAT),
        (4, 32, 32, 4096, 64, True, HALF), (1, 40, 8, 16384, 128, True, BFLOAT), (16, 16, 16, 1024, 96, True, BFLOAT),
        (8, 16, 16, 2048, 128, True, HALF),
    ):  # fmt: skip
        q, o_grad = (numbers(dtype, batch * tokens, heads, d) for _ in range(2))
        k, v = (numbers(dtype, batch * tokens, kv_heads, d) for _ in range(2))
        starts, right = torch.arange(batch + 1, dtype=torch.int32, device=DEVICE) * tokens, 0 if causal else -1
        o, lse = ops.attention(q, k, v, starts, starts, longest=tokens, right=right)
        words = {"longest": tokens, "scale": d**-0.5, "right": right}
        first = lambda: ops.attention_backward_queries(q, k, v, o, o_grad, lse, starts, starts, **words)  # noqa: E731
        sums = first()[1]
        second = lambda: ops.attention_backward_keys(q, k, v, o_grad, sums, starts, starts, **words)  # noqa: E731
        parts = us(first), us(second)
        both, flops = us(lambda: (first(), second())), 10 * batch * heads * tokens**2 * d / (2 if causal else 1)
        row = [f"{both:.0f} ({parts[0]:.0f} + {parts[1]:.0f}) {flops / both / 1e6:.0f}"]
        inputs = [t.view(batch, tokens, -1, d).transpose(1, 2).detach().requires_grad_() for t in (q, k, v)]
        for name, kind in (("FA2", SDPBackend.FLASH_ATTENTION), ("cuDNN", SDPBackend.CUDNN_ATTENTION)):
            with sdpa_kernel(kind):
                out = F.scaled_dot_product_attention(*inputs, is_causal=causal, enable_gqa=heads != kv_heads)
            peer = backward(out, inputs, o_grad.view(batch, tokens, heads, d).transpose(1, 2))
            row.append(f"{name} {peer:.0f} {flops / peer / 1e6:.0f}")
        print(f"attention {batch} x {heads}/{kv_heads} x {tokens} x {d} {causal} {dtype}:", *row, sep="  ", flush=True)


def beside(what, size, ours, peer):
    print(f"{what}: {ours:.0f} us, {size / ours / 1e3:.0f} GB/s; torch {peer:.0f}", flush=True)


def rows():
    for m, n in ((16384, 4096), (16384, 8192), (16384, 2048), (4096, 16384)):
        x, y_grad, w = numbers(BFLOAT, m, n), numbers(BFLOAT, m, n), numbers(BFLOAT, n)
        inputs = [t.clone().requires_grad_() for t in (x, w, w)]
        parts = _autograd._parts(x)
        for name, tensors in (("rms_norm", inputs[:2]), ("layer_norm", inputs))[: 2 if n <= 8192 else 1]:
            program = getattr(ops, f"{name}_backward")

            def own():
                ops.column_sums(program(x, w, y_grad, 1e-6, parts)[1].flatten(1), BFLOAT)

            result = getattr(F, name)(tensors[0], (n,), *tensors[1:], eps=1e-6)
            beside(f"{name} {m} x {n}", 6 * m * n, us(own), backward(result, tensors, y_grad))
    for m, n in ((16384, 4096), (8192, 14336)):
        x, y_grad = numbers(BFLOAT, m, 2 * n).requires_grad_(), numbers(BFLOAT, m, n)
        a, b = x.chunk(2, -1)
        ours = us(lambda: ops.swiglu_backward(x.detach(), y_grad))
        beside(f"swiglu {m} x {n}", 10 * m * n, ours, backward(F.silu(a) * b, x, y_grad))
    for m, n in ((4096, 128256), (8192, 32000)):
        x, labels = numbers(BFLOAT, m, n), torch.randint(0, n, (m,), device=DEVICE, dtype=torch.int32)
        (_, lse), g = ops.cross_entropy_rows(x, labels), torch.ones(m, device=DEVICE)
        long, wide = labels.long(), x.clone().requires_grad_()
        forward = us(lambda: ops.cross_entropy_rows(x, labels))
        beside(f"loss {m} x {n}", 2 * m * n, forward, us(lambda: F.cross_entropy(x, long, reduction="none")))
        ours = us(lambda: ops.cross_entropy_backward(x, labels, lse, g))
        loss = F.cross_entropy(wide, long, reduction="none").float()
        beside(f"its gradient {m} x {n}", 4 * m * n, ours, backward(loss, wide, g))
    table, ids = numbers(BFLOAT, 128256, 4096).requires_grad_(), torch.randint(0, 128256, (16384,), device=DEVICE).int()
    y_grad, size = numbers(BFLOAT, 16384, 4096), 2 * 4096 * (16384 + 128256)
    ours = backward(ops.embedding(ids, table), table, y_grad)
    beside("embedding, with the sort", size, ours, backward(F.embedding(ids.long(), table), table, y_grad))
    layer = nn.Linear.from_float(torch.nn.Linear(4096, 14336, bias=False, device=DEVICE).half(), "u4")
    y, weight = numbers(HALF, 4096, 14336), layer.dequantize(HALF)
    ours = us(lambda: _autograd.lowbit_product(y, layer.packed, layer.scales, None, "u4", 128))
    print(f"dx of u4 4096 x 14336, 4096 rows: {ours:.0f} us; torch with weights of f16 {us(lambda: y @ weight):.0f}")


for part in sys.argv[1:] or ("attention", "rows"):
    {"attention": attention, "rows": rows}[part]()

"""torch.autograd through the operators: against autograd of torch's own arithmetic in float64, and by gradcheck."""

import pytest
from conftest import NO_TORCH, torch

if torch is None:
    pytest.skip(NO_TORCH, allow_module_level=True)

from torch_kit import DEVICES, HALVES, close  # noqa: E402

from tilusvm import _autograd, _backward, nn, ops  # noqa: E402

F = torch.nn.functional
HALF, BFLOAT, FLOAT = torch.float16, torch.bfloat16, torch.float32
ROUNDING = {HALF: 2e-3, BFLOAT: 1.2e-2, FLOAT: 2e-6}
ACTIVATIONS = {"silu": F.silu, "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh")}


@pytest.fixture(params=DEVICES)
def device(request):
    torch.manual_seed(17)
    return request.param


def numbers(device, dtype, *shape):
    return torch.randn(*shape, device=device).to(dtype)


def agree(function, exact, tensors, tolerance):
    """Gradients of function, and those of exact in float64, by a random gradient of the result."""
    own = [t.clone().requires_grad_() for t in tensors]
    result = function(*own)
    gradient = torch.randn_like(result)
    found = torch.autograd.grad(result, own, gradient)
    wide = [t.double().requires_grad_() for t in tensors]
    expected = torch.autograd.grad(exact(*wide), wide, gradient.double())
    for one, other in zip(found, expected):
        close(one, other, tolerance)


# ---- row by row ----


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("n", [40, 45])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_swiglu(device, dtype, n, name):
    def exact(x):
        a, b = x.chunk(2, -1)
        return ACTIVATIONS[name](a) * b

    agree(lambda x: ops.swiglu(x, name), exact, [2 * numbers(device, dtype, 2, 3, 2 * n)], ROUNDING[dtype])


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("n", [1, 72, 77, 800, 1600, 3000, 8192, 9000])
def test_rms_norm(device, dtype, n):
    """A row in registers, of each size, and rows that are walked along. A row of one element has a gradient of its
    size only by epsilon: what a small one leaves is the rounding of two equal terms."""
    epsilon = 0.5 if n == 1 else 1e-5
    tensors = [numbers(device, dtype, 2, 3, n), numbers(device, dtype, n)]
    exact = lambda x, w: F.rms_norm(x, (n,), w, epsilon)  # noqa: E731
    agree(lambda x, w: ops.rms_norm(x, w, epsilon), exact, tensors, ROUNDING[dtype])


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("n", [72, 77, 800, 1600, 3000, 8192])
def test_layer_norm(device, dtype, n):
    tensors = [numbers(device, dtype, 5, n) + 3, numbers(device, dtype, n), numbers(device, dtype, n)]
    exact = lambda x, w, b: F.layer_norm(x, (n,), w, b, 1e-5)  # noqa: E731
    agree(lambda x, w, b: ops.layer_norm(x, w, b, 1e-5), exact, tensors, ROUNDING[dtype])


@pytest.mark.parametrize("parts", [1, 2, 7, 20])
def test_shares_of_any_number_of_blocks_have_the_same_sum(device, parts):
    x, y = numbers(device, FLOAT, 13, 40), numbers(device, FLOAT, 13, 40)
    x_grad, shares = _backward.rms_norm_backward(x, torch.ones(40, device=device), y, 0.0, parts)
    assert shares.shape == (parts, 1, 40)
    exact = (y.double() * x.double() * x.double().square().mean(1, keepdim=True).rsqrt()).sum(0)
    close(_backward.column_sums(shares.flatten(1)), exact, 1e-6)
    assert torch.equal(x_grad, _backward.rms_norm_backward(x, torch.ones(40, device=device), y, 0.0, 3)[0])


@pytest.mark.parametrize("shape", [(0, 40), (1, 8), (100, 33), (65, 264), (3, 0)])
@pytest.mark.parametrize("dtype", ROUNDING)
def test_column_sums(device, dtype, shape):
    x = numbers(device, dtype, *shape)
    sums = _backward.column_sums(x, FLOAT)
    assert sums.dtype == FLOAT and _backward.column_sums(x).dtype == dtype
    assert torch.allclose(sums.double(), x.double().sum(0), rtol=0, atol=1e-5 * max(shape[0], 1))


@pytest.mark.parametrize("style", ["half", "interleaved"])
def test_rope(device, style):
    x, table = numbers(device, FLOAT, 3, 2, 32), torch.randn(4, 32, device=device)
    positions = torch.tensor([0, 3, 1], dtype=torch.int32, device=device)
    tensors = [x.clone().requires_grad_() for _ in range(2)]
    y = ops.rope(tensors[0], positions, table, style)
    gradient = torch.randn_like(y)
    y.backward(gradient)
    # rotation is linear: <gradient, rope(e)> for each unit e
    units = torch.eye(64, device=device).view(64, 1, 2, 32).expand(-1, 3, -1, -1).reshape(64 * 3, 2, 32)
    turned = ops.rope(units.contiguous(), positions.repeat(64), table, style).view(64, 3, 64)
    close(y.grad_fn and tensors[0].grad.view(3, 64), (turned.double() * gradient.view(3, 64)).sum(2).t(), 1e-6)


# ---- the loss, and tables ----


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("n", [2, 100, 1001, 9000])
@pytest.mark.parametrize("smoothing, z", [(0.0, 0.0), (0.1, 1e-2)])
def test_cross_entropy(device, dtype, n, smoothing, z):
    logits = 3 * numbers(device, dtype, 2, 3, n)
    labels = torch.randint(0, n, (2, 3), device=device, dtype=torch.int32)
    labels[1, 1], labels[0, 0] = -100, n - 1

    def exact(x):
        losses = F.cross_entropy(x.view(6, n), labels.view(6).long(), reduction="none", label_smoothing=smoothing)
        return losses.view(2, 3) + (z * x.logsumexp(-1) ** 2).masked_fill(labels == -100, 0)

    words = {"smoothing": smoothing, "z": z}
    agree(lambda x: ops.cross_entropy(x, labels, reduction="none", **words), exact, [logits], ROUNDING[dtype])
    close(ops.cross_entropy(logits, labels, reduction="sum", **words), exact(logits.double()).sum(), 1e-5)
    close(ops.cross_entropy(logits, labels, **words), exact(logits.double()).sum() / 5, 1e-5)


def test_labels_that_are_no_column(device):
    logits = numbers(device, FLOAT, 4, 10).requires_grad_()
    loss, lse = ops.cross_entropy_rows(logits, torch.tensor([10, -1, 3, -7], dtype=torch.int32, device=device), -7)
    assert loss.isnan().tolist() == [True, True, False, False] and loss[3] == 0 and lse.isfinite().all()
    assert not lse.requires_grad
    loss.sum().backward()
    assert logits.grad.isnan().all(1).tolist() == [True, True, False, False] and not logits.grad[3].any()


def test_an_ignored_row_may_hold_anything(device):
    logits = numbers(device, HALF, 2, 20)
    logits[0] = torch.nan
    logits.requires_grad_()
    loss = ops.cross_entropy(logits, torch.tensor([-100, 3], dtype=torch.int32, device=device))
    loss.backward()
    assert loss.isfinite() and not logits.grad[0].any() and logits.grad[1].any()


def test_the_gradient_may_take_the_place_of_the_logits(device):
    logits, labels = numbers(device, HALF, 5, 700), torch.arange(5, dtype=torch.int32, device=device)
    _, lse = ops.cross_entropy_rows(logits, labels)
    ones = torch.ones(5, device=device)
    expected = _backward.cross_entropy_backward(logits, labels, lse, ones)
    kernel = __import__("tilusvm").program("cross_entropy")["cross_entropy_backward"]
    kernel(5, 700, -100, 0.0, 0.0, logits, labels, lse, ones, logits)
    assert torch.equal(logits, expected)


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("n", [24, 33])
def test_embedding(device, dtype, n):
    ids = torch.randint(-1, 13, (3, 9), device=device, dtype=torch.int32)  # some that the table has not
    ids[0] = 5
    table = numbers(device, dtype, 12, n)
    exact = lambda t: F.pad(t, (0, 0, 1, 1))[ids.long() + 1]  # noqa: E731
    agree(lambda t: ops.embedding(ids, t), exact, [table], ROUNDING[dtype])
    ids = ids.clamp(0) * 2 + 1
    exact = lambda t: F.pad(t, (0, 0, 0, 1))[ids.long() // 2]  # noqa: E731
    agree(lambda t: ops.embedding(ids, t, 2), exact, [table], ROUNDING[dtype])


# ---- attention ----


def attended(q, k, v, left, right, cap, slopes=None, sinks=None):
    """One sequence [tokens, heads, d], in float64."""
    q, k, v = (t.transpose(0, 1) for t in (q, k, v))
    k, v = (t.repeat_interleave(q.shape[0] // k.shape[0], 0) for t in (k, v))
    scores = q.shape[-1] ** -0.5 * q @ k.transpose(1, 2)
    if cap:
        scores = cap * torch.tanh(scores / cap)
    place = torch.arange(q.shape[1], device=q.device)[:, None] + k.shape[1] - q.shape[1]
    key = torch.arange(k.shape[1], device=q.device)[None].expand(q.shape[1], -1)
    if slopes is not None:
        scores = scores - slopes[:, None, None] * (key - place).abs()
    hidden = torch.zeros_like(key, dtype=torch.bool)
    hidden |= key > place + right if right >= 0 else hidden
    hidden |= key < place - left if left >= 0 else hidden
    if sinks is not None:  # of a key more, whose value is zero
        scores = torch.cat([scores, sinks[:, None, None].expand(-1, q.shape[1], 1)], -1)
        hidden, v = F.pad(hidden, (0, 1)), F.pad(v, (0, 0, 0, 1))
    unseen = hidden.all(1, keepdim=True)  # a softmax of nothing is zeros
    weights = scores.masked_fill(hidden & ~unseen, -torch.inf).softmax(-1).masked_fill(unseen, 0)
    logs = scores.masked_fill(hidden & ~unseen, -torch.inf).logsumexp(-1).masked_fill(unseen[:, 0], 0)
    return (weights @ v).transpose(0, 1), logs.t()


def starts_of(lengths, device):
    return F.pad(torch.tensor(lengths, device=device).cumsum(0), (1, 0)).int()


def check_attention(device, dtype, heads, d, lengths, *, left=-1, right=-1, cap=0.0, slopes=None, of_logs=False,
                    sunk=False):  # fmt: skip
    (heads, kv_heads), (d, dv), (q_lengths, k_lengths) = heads, d, lengths
    q = numbers(device, dtype, sum(q_lengths), heads, d).requires_grad_()
    k = numbers(device, dtype, sum(k_lengths), kv_heads, d).requires_grad_()
    v = numbers(device, dtype, sum(k_lengths), kv_heads, dv).requires_grad_()
    q_starts = starts_of(q_lengths, device)
    k_starts = q_starts if q_lengths == k_lengths else starts_of(k_lengths, device)
    sinks = [torch.randn(heads, device=device).requires_grad_()] if sunk else []
    words = {"longest": max(q_lengths), "left": left, "right": right, "cap": cap, "slopes": slopes}
    words |= {"sinks": sinks[0]} if sunk else {}
    out, lse = ops.attention(q, k, v, q_starts, k_starts, **words)
    o_grad = torch.randn_like(out)
    l_grad = torch.randn_like(lse).masked_fill(lse == -torch.inf, 0) if of_logs else torch.zeros_like(lse)
    results = [(out, o_grad)] + ([(lse, l_grad)] if of_logs else [])
    found = torch.autograd.grad([r for r, _ in results], (q, k, v, *sinks), [g for _, g in results], retain_graph=True)
    again = torch.autograd.grad([r for r, _ in results], (q, k, v, *sinks), [g for _, g in results])
    wide = [t.detach().double().requires_grad_() for t in (q, k, v, *sinks)]
    total = 0
    for i in range(len(q_lengths)):
        own, keys = slice(*q_starts[i : i + 2].tolist()), slice(*k_starts[i : i + 2].tolist())
        exact, logs = attended(wide[0][own], wide[1][keys], wide[2][keys], left, right, cap, slopes, *wide[3:])
        total = total + (exact * o_grad[own]).sum() + (logs * l_grad[own]).sum()
    for one, same, other in zip(found, again, torch.autograd.grad(total, wide)):
        close(one, other, ROUNDING[dtype])
        assert torch.equal(one, same)


LENGTHS = [7, 1, 150], [7, 30, 170]  #: of queries and of keys


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("d", [(64, 64), (80, 80), (96, 96), (128, 128), (192, 128), (256, 256)])
def test_attention_of_every_head(device, dtype, d):
    check_attention(device, dtype, (4, 2), d, LENGTHS, right=0)


@pytest.mark.parametrize(
    "words",
    [
        {}, {"left": 40, "right": 0}, {"left": 3, "right": 5}, {"right": 0, "cap": 15.0},
        {"of_logs": True, "right": 0}, {"sunk": True, "left": 40, "right": 0}, {"sunk": True, "of_logs": True},
    ],  # fmt: skip
)
@pytest.mark.parametrize("d", [64, 128])
def test_attention_of_every_mask(device, d, words):
    check_attention(device, HALF, (2, 1), (d, d), LENGTHS, **words)
    check_attention(device, HALF, (2, 1), (d, d), ([70, 140], [70, 140]), **words)


def test_attention_with_slopes(device):
    slopes = torch.tensor([0.5, 0.01, 0.1, 0.0], device=device)
    check_attention(device, HALF, (4, 2), (64, 64), LENGTHS, right=0, slopes=slopes)
    check_attention(device, HALF, (4, 2), (96, 96), LENGTHS, right=0, slopes=slopes, cap=5.0)


def test_queries_that_see_no_key(device):
    """More queries than keys, and none of either."""
    check_attention(device, HALF, (2, 1), (64, 64), ([60, 5, 0, 9], [50, 9, 3, 0]), right=0)


def test_odd_heads_by_padding(device):
    """Zeros add nothing to products, and take no gradient: heads of 40 and 72 elements."""
    starts = starts_of([20], device)
    for d, whole in ((40, 64), (72, 80)):
        tensors = [numbers(device, HALF, 20, 2, d) for _ in range(3)]

        def padded(q, k, v):
            q, k, v = (F.pad(t, (0, whole - d)) for t in (q, k, v))
            return ops.attention(q, k, v, starts, starts, longest=20, right=0, scale=d**-0.5)[0][..., :d]

        agree(padded, lambda q, k, v: attended(q, k, v, -1, 0, 0.0)[0], tensors, ROUNDING[HALF])


def test_attention_says_what_has_no_gradient(device):
    q = numbers(device, HALF, 4, 1, 64).requires_grad_()
    pages = numbers(device, HALF, 1, 16, 1, 64)
    starts, lengths, table = starts_of([4], device), torch.tensor([4], device=device).int(), torch.zeros(1, 1).int()
    out, _ = ops.attention(q, pages, pages, starts, lengths, table=table.to(device), longest=4)
    with pytest.raises(RuntimeError, match="attention: keys and values of pages have no gradients"):
        out.sum().backward()


# ---- weights of low-precision types ----


@pytest.mark.parametrize(
    "type, group, zeros, dtype",
    [
        ("u4", 32, False, HALF), ("u4", 128, True, BFLOAT), ("u3", 16, True, HALF), ("f6_e3m2", 128, False, BFLOAT),
        ("i8", 0, False, HALF), ("nf4", 64, False, BFLOAT), ("u1", 128, False, HALF), ("u7", 32, True, HALF),
        ("f8_e6m1", 128, False, BFLOAT), ("f5_e2m2", 16, False, HALF),
    ],
)  # fmt: skip
def test_linear(device, type, group, zeros, dtype, monkeypatch):
    """As torch's product with the weights as float64, of which few are floats at a time."""
    monkeypatch.setattr(_autograd, "_CHUNK", 200 * 328)
    layer = nn.Linear.from_float(torch.nn.Linear(500, 325, device=device).to(dtype), type, group, zeros=zeros)
    weight, seen = layer.dequantize(torch.float64), []
    rows = _backward.dequantize_rows

    def counted(*args, **words):
        seen.append(words["rows"])
        return rows(*args, **words)

    monkeypatch.setattr(_backward, "dequantize_rows", counted)
    layer.bias.requires_grad_()
    x = numbers(device, dtype, 2, 3, 500).requires_grad_()
    y = layer(x)
    gradient = torch.randn_like(y)
    y.backward(gradient)
    close(x.grad, gradient.double() @ weight, ROUNDING[dtype])
    close(layer.bias.grad, gradient.double().sum((0, 1)), ROUNDING[dtype])
    assert max(seen) <= 200 and sum(seen) == 512


def test_rows_of_weights(device):
    layer = nn.Linear.from_float(torch.nn.Linear(512, 72, device=device), "u4", 64, zeros=True)
    tensors = layer.packed, layer.scales, layer.zeros
    whole = layer.dequantize(FLOAT).t()
    for first, rows in ((0, 512), (64, 64), (448, 64), (128, 320), (512, 0)):
        found = _backward.dequantize_rows(*tensors, first=first, rows=rows, type="u4", group=64, out_dtype=FLOAT)
        assert torch.equal(found, whole[first : first + rows])
    for first, rows in ((32, 64), (0, 100), (448, 128), (-64, 64)):
        with pytest.raises(ValueError, match="first and rows must be multiples of 64 within 512 rows"):
            _backward.dequantize_rows(*tensors, first=first, rows=rows, type="u4", group=64)


# ---- what torch asks of gradients ----


def test_gradcheck():
    """Numbers of float32 by differences: what is small beside 1 is not seen. agree() is what is exact."""
    torch.manual_seed(3)
    labels, ids = torch.tensor([1, 0, 4], dtype=torch.int32), torch.tensor([1, 1, 3], dtype=torch.int32)
    positions, table = torch.tensor([2, 0, 1], dtype=torch.int32), torch.randn(3, 4)
    draw = lambda *shape: torch.randn(*shape).requires_grad_()  # noqa: E731
    for function, tensors in (
        (ops.rms_norm, (draw(3, 6), draw(6))),
        (ops.layer_norm, (draw(3, 6), draw(6), draw(6))),
        (ops.swiglu, (draw(3, 6),)),
        (lambda x: ops.swiglu(x, "gelu"), (draw(3, 6),)),
        (lambda x: ops.swiglu(x, "gelu_tanh"), (draw(3, 6),)),
        (lambda x: ops.rope(x, positions, table), (draw(3, 2, 4),)),
        (lambda t: ops.embedding(ids, t), (draw(5, 4),)),
        (lambda x: ops.cross_entropy(x, labels, smoothing=0.1, z=0.01), (draw(3, 5),)),
    ):
        with pytest.warns(UserWarning, match="double precision"):
            assert torch.autograd.gradcheck(function, tensors, eps=1e-2, atol=5e-3, rtol=2e-2, nondet_tol=0.0)


def test_only_what_is_asked_for_is_computed(monkeypatch):
    monkeypatch.setattr(_backward, "column_sums", None)
    x = torch.randn(2, 8).requires_grad_()
    ops.rms_norm(x, torch.ones(8)).sum().backward()
    monkeypatch.setattr(_backward, "attention_backward_keys", None)
    q, starts = torch.randn(3, 1, 64).half(), torch.tensor([0, 3], dtype=torch.int32)
    ops.attention(q.clone().requires_grad_(), q, q, starts, starts, longest=3)[0].sum().backward()


def test_second_gradients_are_refused():
    x = torch.randn(2, 8).requires_grad_()
    w, q = torch.ones(8), torch.randn(3, 1, 64).half().requires_grad_()
    starts, labels = torch.tensor([0, 3], dtype=torch.int32), torch.tensor([1, 2], dtype=torch.int32)
    for name, y, of in (
        ("rms_norm", ops.rms_norm(x, w), x),
        ("layer_norm", ops.layer_norm(x, w, w), x),
        ("swiglu", ops.swiglu(x), x),
        ("cross_entropy", ops.cross_entropy(x, labels), x),
        ("embedding", ops.embedding(labels, x).square(), x),
        ("attention", ops.attention(q, q, q, starts, starts, longest=3)[0], q),
    ):
        (found,) = torch.autograd.grad(y.square().sum(), of, create_graph=True)
        with pytest.raises(RuntimeError, match=f"{name} has a gradient, but no gradient of its gradient"):
            found.sum().backward()


def test_compiled_without_graph_breaks():
    """AOTAutograd traces the gradients: those of eager, bit by bit."""
    torch.manual_seed(5)
    layer = nn.Linear.from_float(torch.nn.Linear(64, 128), "u4", 32)
    weight, starts = torch.randn(64).half().requires_grad_(), torch.tensor([0, 2, 6], dtype=torch.int32)
    labels = torch.tensor([1, 2, 3, -100, 5, 6], dtype=torch.int32)

    def loss(x):
        y = layer(ops.rms_norm(x, weight))
        heads = ops.swiglu(y).view(-1, 1, 64)
        out, _ = ops.attention(heads, heads, heads, starts, starts, longest=4, right=0)
        return ops.cross_entropy(out.flatten(1), labels)

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    x = torch.randn(6, 64).half().requires_grad_()
    expected = torch.autograd.grad(loss(x), (x, weight))
    for one, other in zip(torch.autograd.grad(compiled(x), (x, weight)), expected):
        assert torch.equal(one, other) and one.any()


def test_gradients_that_are_views():
    """Of a sum an expanded number, of a transposed result its strides."""
    x = torch.randn(4, 8).requires_grad_()
    (ops.swiglu(x).t() * torch.arange(16.0).view(4, 4)).sum().backward()
    assert x.grad.isfinite().all() and x.grad.any()


@pytest.mark.parametrize("n", [16388, 20000])
def test_rows_that_are_too_long(n):
    x = torch.randn(1, n).requires_grad_()
    with pytest.raises(ValueError, match="rms_norm_backward: x must have 16384 columns at most"):
        ops.rms_norm(x, torch.ones(n)).sum().backward()
    with pytest.raises(ValueError, match="parts must be 1 to 65536, not 0"):
        _backward.rms_norm_backward(x[:, :8].contiguous(), torch.ones(8), x[:, :8].contiguous(), 1e-6, 0)
    with pytest.raises(ValueError, match="reduction must be mean, sum or none, not 'max'"):
        ops.cross_entropy(x, torch.zeros(1, dtype=torch.int32), reduction="max")

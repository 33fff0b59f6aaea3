"""The operators against torch's own arithmetic in f32 or f64; schemas, fake tensors, autocast, and what is refused."""

import math

import pytest
from conftest import NO_TORCH, torch

if torch is None:
    pytest.skip(NO_TORCH, allow_module_level=True)

from torch_kit import DEVICES, HALVES, close  # noqa: E402

from tilusvm import nn, ops, quantize  # noqa: E402

F = torch.nn.functional
HALF, BFLOAT, FLOAT = torch.float16, torch.bfloat16, torch.float32
ROUNDING = {HALF: 1e-3, BFLOAT: 8e-3, FLOAT: 1e-5}
FLOATS = list(ROUNDING)


@pytest.fixture(params=DEVICES)
def device(request):
    torch.manual_seed(11)
    return request.param


def rows(device, dtype, *shape):
    return torch.randn(*shape, device=device).to(dtype)


@pytest.mark.parametrize("dtype", FLOATS)
def test_rms_norm(device, dtype):
    x, w = rows(device, dtype, 2, 3, 72), rows(device, dtype, 72)
    close(ops.rms_norm(x, w, 1e-5), F.rms_norm(x.double(), (72,), w.double(), 1e-5), ROUNDING[dtype])
    residual = rows(device, dtype, 2, 3, 72)
    total = (x.float() + residual.float()).to(dtype)
    y = ops.add_rms_norm(x, residual, w, 1e-5)
    assert torch.equal(residual, total)
    close(y, F.rms_norm(total.double(), (72,), w.double(), 1e-5), ROUNDING[dtype])
    inner, again = rows(device, dtype, 72), residual.clone()
    expected = ops.add_rms_norm(ops.rms_norm(x, inner, 1e-5), residual, w, 1e-5)
    assert torch.equal(ops.add_rms_norm(x, again, w, 1e-5, inner), expected)
    assert torch.equal(again, residual)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("activation", ["silu", "gelu", "gelu_tanh"])
def test_swiglu(device, dtype, activation):
    x = rows(device, dtype, 3, 5, 80)
    a, b = x.double().chunk(2, -1)
    act = {"silu": F.silu, "gelu": F.gelu, "gelu_tanh": lambda v: F.gelu(v, approximate="tanh")}[activation]
    close(ops.swiglu(x, activation), act(a) * b, ROUNDING[dtype])
    neighbours = x.unflatten(-1, (2, -1)).transpose(-1, -2).flatten(-2)
    assert torch.equal(ops.swiglu(neighbours, activation, True), ops.swiglu(x, activation))


@pytest.mark.parametrize("dtype", FLOATS)
def test_softmax(device, dtype):
    x = rows(device, dtype, 4, 1, 100)
    close(ops.softmax(x), x.double().softmax(-1), ROUNDING[dtype])
    assert torch.equal(ops.argmax(x).long(), x.argmax(-1))


@pytest.mark.parametrize("style", ["half", "interleaved"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_rope(device, dtype, style):
    x = rows(device, dtype, 2, 3, 4, 32)
    positions = torch.tensor([[0, 1, 2], [5, 6, 7]], dtype=torch.int32, device=device)
    angles = torch.arange(8, device=device)[:, None] * 10000.0 ** (-torch.arange(16, device=device) / 16)
    table = torch.cat([angles.cos(), angles.sin()], 1)
    turn = torch.polar(torch.ones_like(angles), angles)[positions.long()][:, :, None].to(torch.complex128)
    d = x.double()
    pairs = torch.stack([d[..., :16], d[..., 16:]], -1) if style == "half" else d.view(2, 3, 4, 16, 2)
    turned = torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * turn)
    expected = torch.cat([turned[..., 0], turned[..., 1]], -1) if style == "half" else turned.flatten(-2)
    close(ops.rope(x, positions, table, style), expected, ROUNDING[dtype])


def test_quantize_rows(device):
    x = rows(device, HALF, 2, 3, 128)
    for dtype, half_step in [(torch.int8, 0.5), (torch.float8_e4m3fn, 16.0), (torch.float8_e5m2, 4096.0)]:
        for group in (0, 32):
            y, s = ops.quantize_rows(x, dtype, group)
            assert y.shape == x.shape and s.shape == (2, 3, 128 // (group or 128)) and y.dtype == dtype
            back = y.float().view(2, 3, s.shape[-1], -1) * s[..., None]
            assert ((back - x.view_as(back)).abs() <= 1.01 * half_step * s[..., None]).all()
        turned, scales = ops.quantize_rows(x, dtype, 32, True)
        assert torch.equal(turned.float(), y.float()) and scales.shape == (4, 8)
        assert torch.equal(scales[:, :6].t(), s.view(6, 4))
    with pytest.raises(ValueError, match="by_group goes with a group"):
        ops.quantize_rows(x, by_group=True)


@pytest.mark.parametrize("dtype", FLOATS)
def test_embedding(device, dtype):
    table = rows(device, dtype, 10, 24)
    ids = torch.tensor([[3, 9], [0, 10]], dtype=torch.int32, device=device)
    assert torch.equal(ops.embedding(ids, table), F.pad(table, (0, 0, 0, 1))[ids.long()])
    ids = torch.tensor([-1, 29, 30, 0, 2, 3], dtype=torch.int32, device=device)  # three to a row; the first has none
    wanted = torch.cat([table.new_zeros(1, 24), table[[9]], table.new_zeros(1, 24), table[[0, 0, 1]]])
    assert torch.equal(ops.embedding(ids, table, 3), wanted)
    with pytest.raises(ValueError, match="each must be 1 or more, not 0"):
        ops.embedding(ids, table, 0)


@pytest.mark.parametrize("dtype", FLOATS)
def test_matmul(device, dtype):
    a, b = rows(device, dtype, 2, 3, 64), rows(device, dtype, 40, 64)
    bias, residual = rows(device, FLOAT, 40), rows(device, dtype, 2, 3, 40)
    product = a.double() @ b.double().t()
    tolerance = max(ROUNDING[dtype], 2e-3 if dtype == FLOAT else 0)  # as tf32
    close(ops.matmul(a, b), product, tolerance)
    ours = ops.matmul(a, b, bias=bias, residual=residual, activation="silu", out_dtype=dtype)
    close(ours, F.silu(product + bias) + residual, tolerance)
    assert ops.matmul(a, b, out_dtype=FLOAT).dtype == FLOAT


def test_matmul_of_eight_bits(device):
    x, w = rows(device, HALF, 5, 64), rows(device, HALF, 24, 64)
    for dtype in (torch.int8, torch.float8_e4m3fn):
        (a, sa), (b, sb) = ops.quantize_rows(x, dtype), ops.quantize_rows(w, dtype)
        ours = ops.matmul(a, b, sa, sb.view(-1), out_dtype=FLOAT)
        # tensor cores of sm_90 add products of f8 with fewer bits than an f32 has
        close(ours, (a.double() * sa) @ (b.double() * sb).t(), 1e-5 if dtype == torch.int8 else 1e-3)


def test_matmul_scaled(device):
    x, w = rows(device, HALF, 5, 256), rows(device, HALF, 136, 256)
    a, sa = ops.quantize_rows(x, torch.float8_e4m3fn, 128)
    b, sb = ops.quantize_rows(w, torch.float8_e4m3fn, 128)
    sb = torch.stack([sb[:128].amax(0), sb[128:].amax(0)])
    b = (w.float() / sb.repeat_interleave(128, 0)[:136].repeat_interleave(128, 1)).to(torch.float8_e4m3fn)
    left = a.double() * sa.repeat_interleave(128, 1)
    right = b.double() * sb.repeat_interleave(128, 0)[:136].repeat_interleave(128, 1)
    bias = rows(device, FLOAT, 136)
    # tensor cores of sm_90 add products of f8 with fewer bits than an f32 has
    ours = ops.matmul_scaled(a, b, sa, sb, bias, out_dtype=FLOAT)
    close(ours, left @ right.t() + bias, 1e-3)
    a, by_group = ops.quantize_rows(x, torch.float8_e4m3fn, 128, True)
    assert by_group.shape == (2, 8)  # of 5 rows
    assert torch.equal(ops.matmul_scaled(a, b, by_group, sb, bias, out_dtype=FLOAT, by_group=True), ours)
    with pytest.raises(ValueError, match=r"scale_a must have the shape \[2, 8\]"):
        ops.matmul_scaled(a, b, sa, sb, bias, by_group=True)
    with pytest.raises(ValueError, match="by_group goes with group 128"):
        ops.matmul_scaled(a, b, sa, sb, group=0, by_group=True)
    (a, sa), (b, sb) = (ops.quantize_rows(t, torch.float8_e4m3fn) for t in (x, w))
    close(ops.matmul_scaled(a, b, sa, sb, group=0, out_dtype=FLOAT), (a.double() * sa) @ (b.double() * sb).t(), 1e-3)
    powers = torch.full((136, 8), 126, dtype=torch.uint8, device=device)
    close(ops.matmul_scaled(b, b, powers, powers, group=32, out_dtype=FLOAT), b.double() @ b.double().t() / 4, 1e-3)


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn])
def test_matmul_lowbit_a8(device, dtype):
    a, sa = ops.quantize_rows(rows(device, HALF, 2, 3, 256), dtype)
    codes = torch.randint(0, 16, (256, 72), dtype=torch.uint8, device=device)
    scales, zeros = rows(device, FLOAT, 2, 72), torch.randint(0, 16, (2, 72), dtype=torch.uint8, device=device)
    for points in (None, zeros):
        packed = ops.pack_a8(codes, "u4", 128, dtype, zeros=points is not None)
        less = 8 if points is None else points.double().repeat_interleave(128, 0)
        weights = (codes.double() - less) * scales.double().repeat_interleave(128, 0)
        ours = ops.matmul_lowbit_a8(a, packed, sa, scales, zeros=points, out_dtype=FLOAT)
        close(ours, (a.double() * sa) @ weights, 1e-5 if dtype == torch.int8 else 1e-3)


def test_levels(device):
    a, sa = ops.quantize_rows(rows(device, HALF, 3, 256), torch.int8)
    codes = torch.randint(0, 16, (256, 72), dtype=torch.uint8, device=device)
    levels, zeros = (torch.randint(1, 8, (4, 72), dtype=torch.uint8, device=device) for _ in range(2))
    scales = rows(device, FLOAT, 1, 72)
    weights = (codes.double() - zeros.repeat_interleave(64, 0)) * levels.repeat_interleave(64, 0) * scales
    packed = ops.pack_a8(codes, "u4", 64, zeros=True, levels=True)
    ours = ops.matmul_lowbit_a8(a, packed, sa, scales, levels, zeros, group=64, out_dtype=FLOAT)
    close(ours, (a.double() * sa) @ weights, 1e-5)


def quantized_alike(ours, wanted):
    """The same numbers but for a step, as sums of squares may be added up in another order."""
    (y, s), (w, t) = ours, wanted
    assert y.dtype == w.dtype and torch.allclose(s, t, rtol=1e-3)
    y, w = (q.float().view(*r.shape, -1) * r[..., None] for q, r in (ours, wanted))
    assert ((y - w).abs() <= 1.01 * (1 if ours[0].dtype == torch.int8 else 32) * t[..., None]).all()


@pytest.mark.parametrize("dtype", FLOATS)
def test_quantized_norms(device, dtype):
    for n, group in ((256, 0), (256, 128), (255, 0)):
        x, residual = rows(device, dtype, 3, n), rows(device, dtype, 3, n)
        weight, bias = rows(device, dtype, n), rows(device, dtype, n)
        for kind in (torch.int8, torch.float8_e4m3fn):
            wanted = ops.quantize_rows(ops.rms_norm(x, weight), kind, group)
            quantized_alike(ops.rms_norm_quantized(x, weight, 1e-6, kind, group), wanted)
            wanted = ops.quantize_rows(ops.layer_norm(x, weight, bias), kind, group)
            quantized_alike(ops.layer_norm_quantized(x, weight, bias, 1e-5, kind, group), wanted)
            other = residual.clone()
            wanted = ops.quantize_rows(ops.add_rms_norm(x, residual.clone(), weight), kind, group)
            quantized_alike(ops.add_rms_norm_quantized(x, other, weight, 1e-6, kind, group), wanted)
            assert torch.equal(other, x + residual)
            if group:
                numbers, scales = ops.rms_norm_quantized(x, weight, 1e-6, kind, group, True)
                more = ops.add_rms_norm_quantized(x, residual.clone(), weight, 1e-6, kind, group, True)
                quantized_alike((numbers, scales[:, :3].t()), ops.rms_norm_quantized(x, weight, 1e-6, kind, group))
                quantized_alike((more[0], more[1][:, :3].t()), wanted)
                numbers, scales = ops.layer_norm_quantized(x, weight, bias, 1e-5, kind, group, True)
                wanted = ops.layer_norm_quantized(x, weight, bias, 1e-5, kind, group)
                quantized_alike((numbers, scales[:, :3].t()), wanted)
    x = rows(device, dtype, 3, 512)
    wanted = ops.quantize_rows(ops.swiglu(x), torch.float8_e4m3fn, 128)
    quantized_alike(ops.swiglu_quantized(x, torch.float8_e4m3fn, 128), wanted)
    numbers, scales = ops.swiglu_quantized(x, torch.float8_e4m3fn, 128, "silu", True)
    quantized_alike((numbers, scales[:, :3].t()), wanted)


# ---- attention ----


def reference(q, k, v, scale, left, right, cap=0.0):
    """One sequence, [tokens, heads, d], in f64: the output, and the logarithms of sums of exponentials."""
    q, k, v = (t.double().transpose(0, 1) for t in (q, k, v))
    k, v = (t.repeat_interleave(q.shape[0] // k.shape[0], 0) for t in (k, v))
    scores = scale * q @ k.transpose(1, 2)
    if cap:
        scores = cap * torch.tanh(scores / cap)
    place = torch.arange(q.shape[1], device=q.device)[:, None] + k.shape[1] - q.shape[1]
    key = torch.arange(k.shape[1], device=q.device)
    hidden = (key > place + right if right >= 0 else key < 0) | (key < place - left if left >= 0 else key < 0)
    scores = scores.masked_fill(hidden, -torch.inf)
    return (scores.softmax(-1) @ v).transpose(0, 1), scores.logsumexp(-1).t()


def starts_of(lengths, device):
    return F.pad(torch.tensor(lengths, device=device).cumsum(0), (1, 0)).int()


def seen_by(q, k, v, chosen, sinks=None, right=0):
    """One sequence as reference has it, of keys that bool [heads, tokens, keys] has, and of each head's sink."""
    q, k, v = (t.double().transpose(0, 1) for t in (q, k, v))
    k, v = (t.repeat_interleave(q.shape[0] // k.shape[0], 0) for t in (k, v))
    place = torch.arange(q.shape[1], device=q.device)[:, None] + k.shape[1] - q.shape[1]
    behind = torch.arange(k.shape[1], device=q.device) > place + right
    scores = (q.shape[-1] ** -0.5 * q @ k.transpose(1, 2)).masked_fill(behind | ~chosen, -torch.inf)
    if sinks is not None:
        scores = torch.cat([scores, sinks.double()[:, None, None].expand(-1, q.shape[1], 1)], -1)
        v = F.pad(v, (0, 0, 0, 1))
    return (scores.softmax(-1).nan_to_num(0) @ v).transpose(0, 1), scores.logsumexp(-1).t()


@pytest.mark.parametrize("sunk", [False, True])
@pytest.mark.parametrize("block", [64, 128])
def test_attention_to_chosen_blocks(device, block, sunk):
    q_lengths, k_lengths, heads, d = [150, 20], [280, 33], 4, 64
    q, k, v = (rows(device, HALF, sum(n), h, d) for n, h in ((q_lengths, heads), (k_lengths, 2), (k_lengths, 2)))
    sinks = torch.tensor([-2.0, 0.0, 1.0, 4.0], device=device) if sunk else None
    mask = torch.rand(2, heads, -(-150 // block), -(-280 // block), device=device) < 0.6
    mask[0, 0, 0] = False
    mask[1, :, :, 1:] = False  # the second sequence has no such keys
    counts, chosen = ops.chosen_blocks(mask)
    starts = starts_of(q_lengths, device), starts_of(k_lengths, device)
    words = {"longest": 150, "right": 0, "sinks": sinks, "counts": counts, "chosen": chosen, "block": block}
    out, lse = ops.attention(q, k, v, *starts, **words)
    for i in range(2):
        own, keys = (slice(*each[i : i + 2].tolist()) for each in starts)
        wide = mask[i].repeat_interleave(block, 1).repeat_interleave(block, 2)[:, : q_lengths[i], : k_lengths[i]]
        expected, logs = seen_by(q[own], k[keys], v[keys], wide, sinks)
        close(out[own], expected, 3e-3)
        assert torch.equal(lse[own].isinf(), logs.isinf())
        close(lse[own].nan_to_num(neginf=0), logs.nan_to_num(neginf=0), 1e-3)
    with pytest.raises(ValueError, match="counts and chosen go together"):
        ops.attention(q, k, v, *starts, **{**words, "counts": None})
    with pytest.raises(ValueError, match="block must be 64 or 128, not 32"):
        ops.attention(q, k, v, *starts, **{**words, "block": 32})
    with pytest.raises(ValueError, match="chosen must have the shape"):
        ops.attention(q, k, v, *starts, **{**words, "chosen": chosen[:, :, :1].contiguous()})


def test_sinks(device):
    """Of all keys, of the newest tokens to a cache, and of parts that are put together."""
    heads, d, tokens = 4, 64, 40
    q, k, v = (rows(device, HALF, tokens, h, d) for h in (heads, 2, 2))
    sinks, starts = torch.tensor([-30.0, -1.0, 2.0, 12.0], device=device), starts_of([tokens], device)
    expected, logs = seen_by(q, k, v, torch.ones(heads, tokens, tokens, dtype=torch.bool, device=device), sinks)
    out, lse = ops.attention(q, k, v, starts, starts, longest=tokens, right=0, sinks=sinks)
    close(out, expected, 3e-3)
    close(lse, logs, 1e-3)
    form = ops.CacheFormat(HALF, head=d, page=16)
    cache, table = form.zeros(3, 2, device), torch.tensor([[2, 0, 1]], dtype=torch.int32, device=device)
    lengths = torch.tensor([tokens], dtype=torch.int32, device=device)
    ops.kv_append(k, v, cache, starts, table, lengths, form, longest=tokens)
    new = q[-2:].view(1, 2, heads, d)
    out, lse = ops.attention_decode(new, cache, table, lengths, form, sinks=sinks)
    close(out[0], expected[-2:], 3e-3)
    close(lse[0], logs[-2:], 1e-3)
    parts = []
    for begin, end in ((0, 17), (17, tokens)):
        at = starts_of([end - begin], device)
        last = starts_of([1], device)
        parts.append(ops.attention(q[-1:], k[begin:end].clone(), v[begin:end].clone(), last, at, longest=1))
    out, lse = ops.attention_merge(*(torch.stack(each) for each in zip(*parts)), sinks)
    close(out, expected[-1:], 3e-3)
    close(lse, logs[-1:], 1e-3)
    plain, _ = ops.attention_merge(*(torch.stack(each) for each in zip(*parts)), out_dtype=FLOAT)
    close(plain, reference(q[-1:], k, v, d**-0.5, -1, -1)[0], 3e-3)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("left, right, cap", [(-1, -1, 0.0), (-1, 0, 0.0), (5, 0, 20.0)])
def test_attention(device, dtype, left, right, cap):
    q_lengths, k_lengths, heads, kv_heads, d = [7, 1, 20], [7, 30, 33], 4, 2, 64
    q = rows(device, dtype, sum(q_lengths), heads, d)
    k, v = (rows(device, dtype, sum(k_lengths), kv_heads, d) for _ in range(2))
    q_starts, k_starts = starts_of(q_lengths, device), starts_of(k_lengths, device)
    out, lse = ops.attention(q, k, v, q_starts, k_starts, longest=20, left=left, right=right, cap=cap)
    for i in range(3):
        own, keys = slice(*q_starts[i : i + 2].tolist()), slice(*k_starts[i : i + 2].tolist())
        expected, logs = reference(q[own], k[keys], v[keys], d**-0.5, left, right, cap)
        close(out[own], expected, 3 * ROUNDING[dtype])
        close(lse[own], logs, 1e-3)


def test_attention_to_pages(device):
    heads, d, page = 2, 64, 16
    lengths = torch.tensor([20, 40], dtype=torch.int32, device=device)
    table = torch.tensor([[3, 1, 0], [0, 4, 2]], dtype=torch.int32, device=device)
    k, v = (rows(device, HALF, 5, page, heads, d) for _ in range(2))
    q = rows(device, HALF, 6, heads, d)
    q_starts = starts_of([2, 4], device)
    out, _ = ops.attention(q, k, v, q_starts, lengths, table=table, longest=4, right=0)
    for i in range(2):
        own = slice(*q_starts[i : i + 2].tolist())
        keys, values = (t[table[i].long()].flatten(0, 1)[: lengths[i]] for t in (k, v))
        close(out[own], reference(q[own], keys, values, d**-0.5, -1, 0)[0], 3e-3)


@pytest.mark.parametrize(
    "k_type, v_type, zeros, tolerance, early",
    [(None, None, False, 3e-3, True), ("u8", "u8", True, 0.02, False), ("f8_e4m3", "u4", False, 0.2, True)],
)
def test_decode(device, k_type, v_type, zeros, tolerance, early):
    """Tokens are appended in two steps, and the newest attend to all."""
    form = ops.CacheFormat(HALF, k_type, v_type, head=64, page=16, k_zeros=zeros, v_zeros=zeros)
    kv_heads, heads, lengths = 2, 4, [19, 33]
    cache = form.zeros(6, kv_heads, device)
    table = torch.tensor([[5, 1, 0], [3, 4, 2]], dtype=torch.int32, device=device)
    k, v = ([rows(device, HALF, n, kv_heads, 64) for n in lengths] for _ in range(2))
    for begin, end in ((0, 17), (17, None)):
        parts = [[t[begin:end] for t in ts] for ts in (k, v)]
        counts = [len(t) for t in parts[0]]
        now = torch.tensor([begin + c for c in counts], dtype=torch.int32, device=device)
        ops.kv_append(
            torch.cat(parts[0]),
            torch.cat(parts[1]),
            cache,
            starts_of(counts, device),
            table,
            now,
            form,
            longest=max(counts),
            early=early,
        )
    now.add_(0)  # a launch of another kind, behind which what was written before is there for all that follow
    q = rows(device, HALF, 2, 1, heads, 64)
    out, lse = ops.attention_decode(q, cache, table, now, form, early=early)
    assert now.tolist() == lengths and lse.shape == (2, 1, heads)
    for i in range(2):
        close(out[i], reference(q[i], k[i], v[i], 0.125, -1, 0)[0], tolerance)


@pytest.mark.parametrize("type, group", [("f6_e3m2", 128), ("f5_e2m2", 32), ("f7_e4m2", 0)])
def test_widened_weights_have_the_same_values(device, type, group):
    layer = nn.Linear.from_float(torch.nn.Linear(256, 72), type, group, device=device)
    wide = nn.Linear(256, 72, type="f8_e4m3", group=group, device=device)
    wide.packed, wide.scales = ops.widen(layer.packed, type, group), layer.scales
    assert ops.widens(type, group) and wide.packed.shape == nn.Linear(256, 72, type="f8_e4m3", group=group).packed.shape
    assert torch.equal(wide.dequantize(), layer.dequantize())


def test_few_types_are_widened():
    wide = [ops.widens(type, 128) for type in ("u6", "f4_e2m1", "f6_e1m4", "f7_e5m1", "f8_e4m3", "f6_e2m3", "nf4")]
    assert wide == [False] * 5 + [True, False] and not ops.widens("f6_e3m2", 16)


@pytest.mark.parametrize("type, early", [(None, False), ("u4", False), (None, True), ("u4", True)])
def test_queries_keys_and_values_at_once(device, type, early):
    """As rope and kv_append one after the other, of tokens that begin within a slab."""
    form = ops.CacheFormat(HALF, type, type, head=64, page=16)
    kv_heads, heads, counts = 2, 6, [3, 2]
    caches = [form.zeros(6, kv_heads, device) for _ in range(2)]
    table = torch.tensor([[5, 1, 0], [3, 4, 2]], dtype=torch.int32, device=device)
    lengths = torch.tensor([18, 35], dtype=torch.int32, device=device)
    positions = torch.cat([torch.arange(n - c, n) for n, c in zip(lengths.tolist(), counts)]).int().to(device)
    qkv, rotation = rows(device, HALF, 5, (heads + 2 * kv_heads) * 64), rows(device, FLOAT, 48, 64)
    q, k, v = (t.reshape(5, -1, 64).contiguous() for t in qkv.split([heads * 64, kv_heads * 64, kv_heads * 64], -1))
    where = starts_of(counts, device), table, lengths, form
    ops.kv_append(k, v, caches[0], *where, longest=3, rotation=rotation)
    turned = ops.qkv_append(qkv, caches[1], *where, longest=3, rotation=rotation, early=early)
    close(turned, ops.rope(q, positions, rotation), 2e-3)
    assert torch.equal(*caches) and caches[0].any()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [HALF, torch.bfloat16, torch.float32])
def test_combine(device, dtype):
    """Some places are no rows: they add nothing, whatever stands beside x."""
    for tokens, top, n in ((5, 3, 72), (1, 9, 1033), (4, 1, 8)):
        x, base = rows(device, dtype, tokens * top, n), rows(device, dtype, tokens, n)
        places = torch.randperm(tokens * top, device=device).int().view(tokens, top)
        weights = torch.randn(tokens, top, device=device)
        places[0, 0], weights[-1, -1] = -1, float("inf")
        places[-1, -1] = tokens * top
        padded = torch.cat([x, x.new_zeros(1, n)]).double()
        kept = torch.where(places.clamp(min=-1) == places, places, -1)
        kept[-1, -1] = -1
        each = padded[kept.long()] * weights.double().nan_to_num(posinf=0)[..., None]
        close(ops.combine(x, places, weights), each.sum(1), 1e-2 if dtype == torch.bfloat16 else 2e-3)
        close(ops.combine(x, places, weights, base), each.sum(1) + base.double(), 1e-2)


def test_cache_formats():
    assert ops.CacheFormat().shape(7, 3) == (7, 3, 1, 2048)
    assert ops.CacheFormat(k_type="u4", v_type="u4", k_zeros=True).shape(1, 1)[3] == 2 * 256 + 16 + 8
    assert ops.CacheFormat(k_type="u4", k_group=32, page=64).shape(1, 1)[2:] == (4, 256 + 32 + 1024)
    assert ops.CacheFormat(k_type="u4", k_channels=True, k_zeros=True).shape(1, 1)[3] == 256 + 1024


# ---- what torch asks of operators ----


def examples():
    """Of each operator good arguments on the CPU."""
    x, w = rows("cpu", HALF, 2, 64), rows("cpu", HALF, 64)
    layer = nn.Linear.from_float(torch.nn.Linear(64, 16), "u4", 32)
    product = nn.Linear.from_float(torch.nn.Linear(64, 384), "u4", 32)
    heads = rows("cpu", HALF, 5, 2, 64)
    starts, lengths = starts_of([5], "cpu"), torch.tensor([5], dtype=torch.int32)
    form = ops.CacheFormat(head=64)
    cache, table = form.zeros(2, 2), torch.zeros(1, 1, dtype=torch.int32)
    text = str(form)
    (a, sa), (b, sb) = (ops.quantize_rows(rows("cpu", HALF, n, 128), torch.int8) for n in (2, 8))
    chances = torch.full((2, 4, 8), 0.125)
    ops.kv_append(heads, heads, cache, starts, table, lengths, form, longest=5)
    rates, slot = rows("cpu", FLOAT, 5, 2), torch.zeros(1, dtype=torch.int32)
    wide = rows("cpu", HALF, 5, 2, 128)
    delta = (heads, heads, wide, rates, rates, starts)
    parts = ops.gated_delta_chunks(*delta, longest=5)
    state, space = rows("cpu", FLOAT, 1, 2, 64, 128), rows("cpu", FLOAT, 2)
    return {
        "matmul_lowbit": (x, layer.packed, layer.scales, None, layer.bias, "u4", 32),
        "matmul_lowbit_normed": (
            x, layer.packed, layer.scales, None, layer.bias, torch.ones(2, 1), "u4", 32, 1e-6, 1.0, 1e-6, 1.0, "silu",
        ),
        "matmul_lowbit_add": (
            x, x[:, :16].clone(), w[:16].clone(), layer.packed, layer.scales, None, layer.bias, "u4", 32,
        ),
        "matmul_lowbit_addend": (
            x, x[:, :16].clone(), x[:, 16:32].clone(), torch.ones(4, 2, 1), w[:16].clone(), w[16:32].clone(),
            w[32:48].clone(), layer.packed, layer.scales, None, layer.bias, "u4", 32,
        ),
        "qkv_lowbit": (
            x[:1], product.packed, product.scales, cache.view(HALF), table, lengths, torch.randn(8, 64), None,
            product.bias, torch.ones(1, 1), torch.ones(2, 64), None, 2, "u4", None, 32,
        ),
        "matmul": (x, rows("cpu", HALF, 8, 64)),
        "rms_norm": (x, w, 1e-6),
        "add_rms_norm": (x, x.clone(), w, 1e-6, w),
        "swiglu": (x,),
        "rope": (heads, torch.arange(5, dtype=torch.int32), torch.randn(8, 64)),
        "softmax": (x,),
        "argmax": (x,),
        "sample": (x, 0.7, 3, 0.9, 5, 6),
        "probabilities": (x, 0.7, 3, 0.9),
        "accept": (chances, torch.zeros(2, 3, dtype=torch.int32), chances[:, :3].contiguous(), 5, 6),
        "route": (torch.randn(3, 24), torch.randn(24), 4, "sigmoid", True, 2.5, 6, 3),
        "bucket": (torch.tensor([3, 0, -1, 24], dtype=torch.int32), 24),
        "quantize_rows": (x, torch.int8, 32, True),
        "rms_norm_quantized": (x, w, 1e-6, torch.int8),
        "add_rms_norm_quantized": (x, x.clone(), w, 1e-6, torch.int8),
        "swiglu_quantized": (x, torch.int8),
        "matmul_scaled": (a, b, torch.ones(1, 4), sb[:1].clone(), None, 128, FLOAT, True),
        "matmul_lowbit_a8": (
            a, torch.zeros(1, 1, 4096, dtype=torch.uint8), sa, torch.ones(1, 8), None, None, None, "u4", 0, HALF,
        ),
        "embedding": (torch.tensor([1, 0], dtype=torch.int32), x),
        "combine": (x, torch.tensor([[1, 0]], dtype=torch.int32), torch.rand(1, 2), x[:1]),
        "attention": (
            heads, heads, heads, starts, starts, None, None, torch.ones(2),
            *ops.chosen_blocks(torch.ones(1, 2, 1, 1, dtype=torch.bool)), 5, 0.1,
        ),
        "attention_decode": (heads[:1, None], cache, table, lengths, None, None, torch.ones(2), text, 0, 0.1, 0.0),
        "attention_merge": (torch.stack([heads, heads]), torch.zeros(2, 5, 2), torch.ones(2)),
        "matmul_ternary": (
            a, ops.pack_ternary(b.t().clamp(-1, 1).contiguous()), sa, torch.ones(8), torch.ones(8), 8, HALF,
        ),
        "pack_ternary": (a,),
        "unpack_ternary": (ops.pack_ternary(b.t().clamp(-1, 1).contiguous()), 8, 128),
        "mla_decode": (rows("cpu", HALF, 1, 1, 2, 576), ops.LatentFormat(HALF).zeros(2), table, lengths, None, None, 0.1),
        "mla_append": (
            rows("cpu", HALF, 2, 576), ops.LatentFormat(HALF).zeros(2), torch.tensor([3, -1], dtype=torch.int32),
            torch.tensor([0, 1], dtype=torch.int32), torch.randn(8, 64), rows("cpu", HALF, 512),
        ),
        "index_scores": (
            rows("cpu", HALF, 1, 1, 2, 64), torch.ones(1, 1, 2), rows("cpu", HALF, 2, 16, 64), table, lengths, None
        ),
        "topk_set": (torch.randn(2, 30), 7),
        "kv_append": (heads, heads, cache, starts, table, lengths, None, None, None, text, 5),
        "qkv_append": (rows("cpu", HALF, 5, 6 * 64), cache, starts, table, lengths, torch.randn(8, 64), text, 5),
        "gated_rms_norm": (x, x, w, 1e-6),
        "gated_delta_update": (*delta, slot, slot.view(1, 1), state, 0.1),
        "gated_delta_chunks": (*delta, 5, 0.1),
        "gated_delta_states": (heads, heads, *parts, starts, slot, slot, state),
        "state_space": (heads, rates, space, wide, wide, starts, slot, slot.view(1, 1), state, space, space, heads),
        "causal_conv": (x, rows("cpu", HALF, 64, 4), starts_of([2], "cpu"), slot, slot.view(1, 1),
                        rows("cpu", HALF, 1, 3, 64), w, 2),
        "layer_norm": (x, w, w, 1e-6),
        "layer_norm_quantized": (x, w, w, 1e-6, torch.int8),
        "column_sums": (x,),
        "rms_norm_backward": (x, w, x, 1e-6, 2),
        "layer_norm_backward": (x, w, x, 1e-6, 2),
        "swiglu_backward": (x, rows("cpu", HALF, 2, 32)),
        "cross_entropy_rows": (x, torch.tensor([1, -100], dtype=torch.int32), -100, 0.1, 0.01),
        "cross_entropy_backward": (x, torch.tensor([1, 2], dtype=torch.int32), *(torch.ones(2) for _ in range(2))),
        "embedding_backward": (x, torch.tensor([1, 0], dtype=torch.int32), torch.tensor([0, 2, 2], dtype=torch.int32)),
        "attention_backward_queries": (*[heads] * 5, torch.ones(5, 2), starts, starts, None, None, 5, 0.1),
        "attention_backward_keys": (*[heads] * 4, torch.zeros(2, 2, 256), starts, starts, None, 5, 0.1),
        "dequantize_rows": (layer.packed, layer.scales, None, 32, 32, "u4", 32),
        "unpack": (layer.packed, "u4", 32, 16),
    }  # fmt: skip


NAMES = [
    "matmul_lowbit", "matmul_lowbit_normed", "matmul_lowbit_add", "matmul_lowbit_addend", "qkv_lowbit", "matmul", "rms_norm",
    "add_rms_norm", "swiglu", "rope", "softmax", "argmax", "sample",
    "probabilities", "accept", "quantize_rows", "embedding", "combine", "attention", "attention_decode", "kv_append",
    "attention_merge", "matmul_ternary", "pack_ternary", "unpack_ternary",
    "qkv_append", "route", "bucket", "gated_rms_norm", "gated_delta_update", "gated_delta_chunks",
    "gated_delta_states", "state_space", "causal_conv", "layer_norm", "layer_norm_quantized", "column_sums", "rms_norm_backward",
    "layer_norm_backward", "swiglu_backward", "cross_entropy_rows", "cross_entropy_backward", "embedding_backward",
    "attention_backward_queries", "attention_backward_keys", "dequantize_rows", "mla_decode", "mla_append",
    "index_scores", "topk_set", "rms_norm_quantized", "add_rms_norm_quantized", "swiglu_quantized", "matmul_scaled",
    "matmul_lowbit_a8", "unpack",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_schemas_and_fake_tensors(name):
    torch.manual_seed(12)
    arguments = examples()
    op = getattr(torch.ops.tilusvm, name).default
    torch.library.opcheck(op, arguments[name], test_utils=("test_schema", "test_faketensor"))


def test_compiled_without_graph_breaks():
    torch.manual_seed(13)
    weight = torch.randn(64).half()

    def block(x, residual):
        y = ops.add_rms_norm(x, residual, weight)
        return ops.softmax(ops.swiglu(y)) + ops.rms_norm(residual, weight).chunk(2, -1)[0]

    compiled = torch.compile(block, fullgraph=True, backend="aot_eager")
    for m in (2, 5, 7):
        x, r = rows("cpu", HALF, m, 64), rows("cpu", HALF, m, 64)
        r2 = r.clone()
        assert torch.equal(compiled(x, r), block(x, r2)) and torch.equal(r, r2)


def test_autocast(device):
    x, w = rows(device, FLOAT, 2, 64), rows(device, FLOAT, 64)
    heads, starts = rows(device, FLOAT, 5, 2, 64), starts_of([5], device)
    with torch.autocast(device, dtype=BFLOAT):
        assert ops.rms_norm(x, w.half()).dtype == FLOAT
        assert ops.matmul(x, rows(device, FLOAT, 8, 64)).dtype == BFLOAT
        assert ops.attention(heads, heads, heads, starts, starts, longest=5)[0].dtype == BFLOAT
        assert ops.swiglu(x).dtype == FLOAT


@pytest.mark.parametrize("name", NAMES[:-1])
def test_wrong_arguments_are_named(name):
    """Each tensor in turn of another type, with another stride, on another device, and not aligned."""
    arguments = examples()
    op = getattr(torch.ops.tilusvm, name).default
    for i, parameter in enumerate(op._schema.arguments):
        if i >= len(arguments[name]) or not isinstance(arguments[name][i], torch.Tensor):
            continue
        good = arguments[name][i]
        spread = torch.stack([good, good], -1)[..., 0]
        shifted = torch.empty(good.numel() + 1, dtype=good.dtype)[1:].view(good.shape).copy_(good)
        for bad in (good.to(torch.float64), spread, good.to("meta"), shifted):
            if bad is spread and spread.is_contiguous() or i == 0 and bad.is_meta:
                continue  # strides of extents of 1 do not matter; the first tensor says where to run
            args = list(arguments[name])
            args[i] = bad
            with pytest.raises((TypeError, ValueError), match=rf"{name}: .*\b{parameter.name}\b"):
                op(*args)


def test_tensors_of_no_use_are_refused():
    """An optional tensor that the kernel for the other arguments does not take is not passed over in silence."""
    arguments = examples()
    keys, more = arguments["index_scores"][2], torch.ones(2, 16)
    q, weights, _, table, lengths, _ = arguments["index_scores"]
    with pytest.raises(ValueError, match="index_scores: key_scales go with q and cache of float8"):
        ops.index_scores(q, weights, keys, table, lengths, more)
    a, b = arguments["matmul"]
    with pytest.raises(ValueError, match="matmul: .*scale_b"):
        ops.matmul(a, b, scale_b=torch.ones(8))
    heads, cache, _, starts_or_lengths = (arguments["attention_decode"][i] for i in range(4))
    form = ops.CacheFormat(HALF, head=64, page=16)
    with pytest.raises(ValueError, match="attention_decode: k_zero"):
        ops.attention_decode(heads, cache, table, starts_or_lengths, form, k_zero=torch.ones(2, 64))


def test_formats_are_formats():
    heads, cache, table, lengths = examples()["attention_decode"][:4]
    with pytest.raises(TypeError, match="format must be a CacheFormat, not str"):
        ops.attention_decode(heads, cache, table, lengths, "u4")


def test_a_table_has_rows_or_none():
    y_grad, order, starts = examples()["embedding_backward"]
    with pytest.raises(ValueError, match=r"embedding_backward: starts .*\[vocabulary \+ 1\], not \[0\]"):
        ops.embedding_backward(y_grad, order, starts[:0].clone())
    assert ops.embedding_backward(y_grad, order, starts[:1].clone()).shape == (0, 64)


@pytest.mark.parametrize("k", [-1, 1 << 40, (1 << 63) - 1])
def test_no_set_has_so_many(k):
    with pytest.raises(ValueError, match="topk_set: k must be from 0"):
        ops.topk_set(torch.randn(2, 30), k)


@pytest.mark.parametrize("dtype", [HALF, BFLOAT, torch.int32])
def test_quantized_numbers_are_narrow(dtype):
    """Also where the program has such an OTYPE for the norm that is not quantized."""
    x, w = rows("cpu", HALF, 2, 64), rows("cpu", HALF, 64)
    for run in (
        lambda: ops.rms_norm_quantized(x, w, 1e-6, dtype),
        lambda: ops.add_rms_norm_quantized(x, x.clone(), w, 1e-6, dtype),
        lambda: ops.swiglu_quantized(x, dtype),
        lambda: ops.quantize_rows(x, dtype),
    ):
        with pytest.raises(TypeError, match=r"\bdtype must be"):
            run()


def test_torch_warns_of_gradients_that_are_not_there():
    x = rows("cpu", HALF, 2, 64).requires_grad_()
    with pytest.warns(UserWarning, match="autograd kernel was not registered"):
        ops.softmax(x).sum().backward()


def test_unpack_refuses():
    with pytest.raises(ValueError, match="packed"):
        quantize.unpack(torch.zeros(1, 2, 7, dtype=torch.uint8), "u4", 32, 16)


def test_scale_is_that_of_the_head():
    heads, starts = rows("cpu", HALF, 5, 2, 64), starts_of([5], "cpu")
    given = ops.attention(heads, heads, heads, starts, starts, longest=5, scale=1 / math.sqrt(64))
    assert torch.equal(given[0], ops.attention(heads, heads, heads, starts, starts, longest=5)[0])

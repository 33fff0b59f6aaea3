"""Products of few rows with what stands before and behind them: against float64, and against launches of their own; in
a Decoder, the launches of a step and its logits."""

import pytest
from conftest import NO_TORCH, torch

if torch is None:
    pytest.skip(NO_TORCH, allow_module_level=True)

from torch_kit import DEVICES  # noqa: E402

from tilusvm import nn, ops, quantize_  # noqa: E402

F = torch.nn.functional
HALF, BFLOAT = torch.float16, torch.bfloat16
#: Rows, columns and terms: one tile, tiles that several blocks share, and rows and columns that end within one.
SIZES = [(1, 64, 128), (5, 200, 384), (16, 328, 1408), (17, 72, 256)]


@pytest.fixture(params=DEVICES)
def device(request):
    torch.manual_seed(5)
    with torch.no_grad():
        yield request.param


def layer_of(n, k, device, dtype, type="u4", group=128, **words):
    linear = torch.nn.Linear(k, n).to(device, dtype)
    return nn.Linear.from_float(linear, type, group, zeros=type.startswith("u"), **words)


def apart(found, exact):
    return float((found.double() - exact).norm() / exact.norm())


def parts_of(v):
    """The sums of squares of 64 columns each."""
    v = F.pad(v.float(), (0, -v.shape[-1] % 64))
    return v.square().unflatten(1, (-1, 64)).sum(-1)


@pytest.mark.parametrize(
    "dtype, type, group", [(HALF, "u4", 128), (BFLOAT, "u4", 32), (HALF, "i8", 0), (HALF, "u3", 64)]
)
@pytest.mark.parametrize("size", SIZES)
def test_a_norm_before_it(device, dtype, type, group, size):
    """It is no farther from the exact product than that of a normalized row."""
    m, n, k = size
    layer = layer_of(n, k, device, dtype, type, group)
    v, gain = (3 * torch.randn(m, k, device=device)).to(dtype), (torch.rand(k, device=device) + 0.5).to(dtype)
    exact = F.rms_norm(v.double(), (k,), gain.double(), 1e-3) @ layer.dequantize().double().t() + layer.bias.double()
    apart_of_two = apart(layer(ops.rms_norm(v, gain, 1e-3)), exact)
    x = (v.float() * gain.float() / 4).to(dtype)
    found = layer.normed(x, parts_of(v), eps=1e-3, lift=4.0)
    assert apart(found, exact) <= 1.3 * apart_of_two + 1e-5
    assert apart(layer.normed(x, 4 * parts_of(v), eps=1e-3, lift=4.0), exact) > 10 * apart_of_two


@pytest.mark.parametrize("dtype", [HALF, BFLOAT])
@pytest.mark.parametrize("size", SIZES)
def test_a_sum_behind_it(device, dtype, size):
    m, n, k = size
    layer = layer_of(n, k, device, dtype)
    x, residual = (torch.randn(m, width, device=device).to(dtype) for width in (k, n))
    gain = torch.randn(n, device=device).to(dtype)
    exact = residual.double() + x.double() @ layer.dequantize().double().t() + layer.bias.double()
    one = apart(residual + layer(x), exact)
    moments, gained = layer.add_to(residual, x, gain)
    assert apart(residual, exact) <= one + 1e-5
    assert torch.equal(gained, (residual.float() * gain.float()).to(dtype))
    torch.testing.assert_close(moments, parts_of(residual), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("activation", ["silu", "gelu", "gelu_tanh"])
@pytest.mark.parametrize("size", SIZES)
def test_a_gate_behind_it(device, activation, size):
    m, n, k = size
    layer, x = layer_of(n, k, device, HALF), torch.randn(m, k, device=device).to(HALF)
    both = x.double() @ layer.dequantize().double().t() + layer.bias.double()
    act = {"silu": F.silu, "gelu": F.gelu, "gelu_tanh": lambda a: F.gelu(a, approximate="tanh")}[activation]
    exact = act(both[:, ::2]) * both[:, 1::2]
    found = layer.normed(x, gate=activation)
    assert apart(found, exact) <= apart(ops.swiglu(layer(x), activation, True), exact) + 1e-5


def rms(v, gain, eps):
    return F.rms_norm(v, v.shape[-1:], gain, eps)


@pytest.mark.parametrize("dtype", [HALF, BFLOAT])
@pytest.mark.parametrize("gate", [None, "gelu_tanh"])
@pytest.mark.parametrize("size", SIZES)
def test_a_norm_behind_it(device, dtype, gate, size):
    """A norm between a product and the sum: the next products are no farther from exact ones than by launches of their
    own, and so is the residual that the next of its kind leaves."""
    m, n, k = size
    n = -(-n // 128) * 128  # what the next product multiplies
    layer, other, last = (layer_of(*of, device, dtype) for of in ((n, k), (200, n), (n, 128)))
    x, residual, old = (torch.randn(m, width, device=device).to(dtype) for width in (k, n, n))
    old_gain, after, gain = (torch.rand(n, device=device).to(dtype) + 0.25 for _ in range(3))
    eps = 1e-3
    exact = residual.double() + rms(old.double(), old_gain.double(), eps)
    moments = torch.zeros(4, m, n // 64, device=device)
    moments[0] = parts_of(old)
    words = {"addend_eps": eps, "addend_lift": 4.0}
    addend, before = old.clone(), residual.clone()
    squares, rows = layer.addend_to(residual, addend, x, moments, old_gain / 4, after / 4, gain / 2, **words)
    torch.testing.assert_close(residual, exact.to(dtype), rtol=1e-2, atol=1e-2)
    assert apart(residual, exact) <= apart(before + ops.rms_norm(old, old_gain, eps), exact) + 1e-5
    torch.testing.assert_close(addend, layer(x), rtol=1e-2, atol=1e-2)

    def through(product, norm, total):
        return norm(total + norm(product, after), gain)

    plain = through(layer(x), lambda v, g: ops.rms_norm(v.contiguous(), g, eps), residual)
    y = x.double() @ layer.dequantize().double().t() + layer.bias.double()
    normed = through(y, lambda v, g: rms(v, g.double(), eps), exact)
    wanted = normed @ other.dequantize().double().t() + other.bias.double()
    by_launches, found = other(plain), other.normed(rows.view(2 * m, n), squares, eps=eps, lift=2.0, gate=gate, **words)
    if gate:
        wanted = F.gelu(wanted[:, ::2], approximate="tanh") * wanted[:, 1::2]
        by_launches = ops.swiglu(by_launches, gate, True)
    assert apart(found, wanted) <= 1.2 * apart(by_launches, wanted) + 1e-5
    assert apart(other.normed(rows.view(2 * m, n), 2 * squares, eps=eps, lift=2.0, gate=gate, **words), wanted) > 0.1
    z, middle = torch.randn(m, 128, device=device).to(dtype), residual.clone()
    last.addend_to(residual, addend, z, squares, after / 4, after, gain, **words)
    exact = exact + rms(y, after.double(), eps)
    assert apart(residual, exact) <= 1.1 * apart(middle + ops.rms_norm(layer(x), after, eps), exact)


def test_outputs_in_another_order(device):
    layer, x = layer_of(72, 64, device, HALF, "u3", 32), torch.randn(3, 64, device=device).to(HALF)
    order = torch.randperm(72, device=device)
    other = layer.rearranged(order)
    assert torch.equal(other(x), layer(x)[:, order])
    assert torch.equal(other.rearranged(order.argsort()).packed, layer.packed)
    with pytest.raises(ValueError, match="must be a permutation of the outputs"):
        layer.rearranged(order.clamp(max=70))


# ---- queries, keys and values ----


def interleaved(x):
    """Of heads [..., d] element i + d / 2 beside element i."""
    return x.unflatten(-1, (2, -1)).transpose(-1, -2).flatten(-2)


def a_cache(form, batch, pages, kv_heads, lengths, device):
    """A cache full of what is no number, its table, whose pages are in no order, and the lengths."""
    cache = form.zeros(batch * pages, kv_heads, device=device)
    cache.fill_(-1)
    table = torch.randperm(batch * pages, device=device).int().view(batch, pages)
    return cache, table, torch.tensor(lengths, dtype=torch.int32, device=device)


@pytest.mark.parametrize("head", [64, 128])
@pytest.mark.parametrize("type", [None, "f8_e4m3", "u4"])
def test_interleaved_pairs_in_a_cache(device, head, type):
    """They are turned as those of halves, put in another order."""
    form = ops.CacheFormat(head=head, k_type=type, v_type=type)
    rotation = torch.randn(64, head, device=device)
    qkv = torch.randn(5, 5, head, device=device).to(HALF)  # three heads of queries, one of keys
    starts, found = torch.tensor([0, 2, 5], dtype=torch.int32, device=device), []
    for style, rows in (("half", qkv), ("interleaved", torch.cat([interleaved(qkv[:, :4]), qkv[:, 4:]], 1))):
        torch.manual_seed(1)
        cache, table, lengths = a_cache(form, 2, 2, 1, [2, 3], device)
        words = {"longest": 3, "rotation": rotation, "style": style}
        q = ops.qkv_append(rows.flatten(1), cache, starts, table, lengths, form, **words)
        alone = torch.full_like(cache, -1)
        ops.kv_append(
            rows[:, 3:4].contiguous(), rows[:, 4:].contiguous(), alone, starts, table, lengths, form, **words
        )
        assert torch.equal(alone, cache)
        probe = torch.randn(2, 1, 3, head, device=device).to(HALF)
        probe = probe if style == "half" else interleaved(probe)
        found.append((q, *ops.attention_decode(probe, cache, table, lengths, form)))
    assert torch.equal(interleaved(found[0][0]), found[1][0])
    for one, other in zip(found[0][1:], found[1][1:]):
        torch.testing.assert_close(one, other, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("dtype", [HALF, BFLOAT])
@pytest.mark.parametrize("head, heads, kv_heads, page", [(64, 3, 1, 16), (128, 2, 2, 64), (96, 4, 2, 32)])
@pytest.mark.parametrize("new, lengths", [(1, [1, 16, 17, 40]), (3, [3, 18, 33]), (16, [21])])
def test_a_cache_behind_it(device, dtype, head, heads, kv_heads, page, new, lengths):
    """As a product, and what qkv_append does: but for one rounding less, and tokens behind the end are zeros."""
    form = ops.CacheFormat(dtype=dtype, head=head, page=page)
    layer = layer_of((heads + 2 * kv_heads) * head, 256, device, dtype)
    v, gain = torch.randn(new * len(lengths), 256, device=device).to(dtype), torch.rand(256, device=device).to(dtype)
    rotation = torch.randn(64, head, device=device)
    starts = torch.arange(len(lengths) + 1, dtype=torch.int32, device=device) * new
    at = a_cache(form, len(lengths), -(-64 // page), kv_heads, lengths, device)
    two, (cache, table, lengths) = at[0].clone(), at
    for part in (cache, two):  # what was there: tokens of no interest, which stay
        before = torch.ones(len(lengths) * 40, kv_heads, head, device=device).to(dtype)
        olds = (lengths - new).clamp(min=0)
        rows = torch.cat([olds.new_zeros(1), olds.cumsum(0).int()])
        ops.kv_append(before, before, part, rows, table, olds, form, longest=40)
    x = (v.float() * gain.float()).to(dtype)
    words = {"eps": 1e-3, "lift": 1.0}
    q = layer.append_to(cache, table, lengths, rotation, x, parts_of(v), heads=heads, **words)
    qkv = layer.normed(x, parts_of(v), **words)
    wanted = ops.qkv_append(
        qkv, two, starts, table, lengths, form, longest=new, rotation=rotation, style="interleaved"
    )
    near = {"rtol": 2e-2 if dtype == BFLOAT else 3e-3, "atol": 2e-2 if dtype == BFLOAT else 3e-3}
    torch.testing.assert_close(q.view(wanted.shape), wanted, **near)
    torch.testing.assert_close(cache.view(dtype), two.view(dtype), **near, equal_nan=True)


def an_exact_layer(n, k, device, dtype):
    """Whose products with small integers are integers that a half holds."""
    layer = layer_of(n, k, device, dtype)
    layer.scales.fill_(1.0)
    layer.zeros.round_().clamp_(6, 9)
    layer.bias.copy_(torch.randint(-9, 9, (n,), device=device))
    return layer


#: Formats of a cache for heads of 64 or 128: each width, floats of other packings, groups, zero points, and a mixture.
FORMATS = [
    {"k_type": "u4", "v_type": "u4"}, {"k_type": "u8", "v_type": "u8"}, {"k_type": "f8_e4m3", "v_type": "f8_e4m3"},
    {"k_type": "u3", "v_type": "u2", "k_zeros": True, "v_zeros": True},
    {"k_type": "u1", "v_type": "u5", "k_zeros": True}, {"k_type": "i6", "v_type": "u7", "v_group": 64},
    {"k_type": "f6_e3m2", "v_type": "f8_e2m5"}, {"k_type": "i4", "v_type": None}, {"k_type": None, "v_type": "u4"},
    {"k_type": "u4", "v_type": "u4", "k_group": 32, "v_group": 64, "v_zeros": True},
]  # fmt: skip


@pytest.mark.parametrize("words", FORMATS, ids=lambda words: "-".join(map(str, words.values())))
@pytest.mark.parametrize("dtype, head, heads, kv_heads, page", [(HALF, 64, 3, 2, 16), (BFLOAT, 128, 2, 1, 32)])
@pytest.mark.parametrize("new, lengths", [(1, [1, 16, 17, 40]), (3, [3, 18, 33]), (16, [21]), (17, [40])])
def test_a_cache_of_fewer_bits_behind_it(device, words, dtype, head, heads, kv_heads, page, new, lengths):
    """The cache has the very bits that qkv_append gives it, where the product has no rounding."""
    form = ops.CacheFormat(dtype=dtype, head=head, page=page, **words)
    layer = an_exact_layer((heads + 2 * kv_heads) * head, 128, device, dtype)
    x = (torch.randint(-1, 2, (new * len(lengths), 128), device=device)).to(dtype)
    rotation = torch.randn(64, head, device=device)
    starts = torch.arange(len(lengths) + 1, dtype=torch.int32, device=device) * new
    cache, table, lengths = a_cache(form, len(lengths), -(-64 // page), kv_heads, lengths, device)
    before = torch.randn(len(lengths) * 40, kv_heads, head, device=device).to(dtype)
    olds = (lengths - new).clamp(min=0)
    rows = torch.cat([olds.new_zeros(1), olds.cumsum(0).int()])
    ops.kv_append(before, before, cache, rows, table, olds, form, longest=40)
    two = cache.clone()
    q = layer.append_to(cache, table, lengths, rotation, x, heads=heads, format=form)
    wanted = ops.qkv_append(
        layer(x), two, starts, table, lengths, form, longest=new, rotation=rotation, style="interleaved"
    )
    assert torch.equal(q.view(wanted.shape), wanted)
    assert torch.equal(cache, two)


@pytest.mark.parametrize("dtype", [HALF, BFLOAT])
@pytest.mark.parametrize("head, heads, kv_heads", [(64, 3, 2), (128, 2, 1), (256, 1, 1)])
@pytest.mark.parametrize("rows", [2, 16])
def test_norms_of_heads_behind_it(device, dtype, head, heads, kv_heads, rows):
    """Queries and keys are no farther from exact ones than by launches of their own; values are not normed."""
    form, style = ops.CacheFormat(dtype=dtype, head=head, page=64), "interleaved"
    layer = layer_of((heads + 2 * kv_heads) * head, 256, device, dtype)
    x, rotation = torch.randn(rows, 256, device=device).to(dtype), torch.randn(64, head, device=device)
    gains = torch.rand(2, head, device=device).to(dtype).float() + 0.5
    cache, table, lengths = a_cache(form, rows, 1, kv_heads, [1 + 3 * i for i in range(rows)], device)
    starts = torch.arange(rows + 1, dtype=torch.int32, device=device)
    two = cache.zero_().clone()
    q = layer.append_to(cache, table, lengths, rotation, x, heads=heads, gains=gains, heads_eps=1e-3)
    q = q.view(rows, heads, head)

    def parts(qkv, norm, turn):
        qkv = qkv.unflatten(1, (-1, head))
        both = zip(qkv.split([heads, kv_heads, kv_heads], 1), gains)
        normed = [norm(part, gain.to(qkv.dtype)) for part, gain in both]
        return [*map(turn, normed), qkv[:, heads + kv_heads :]]

    def turned(part):
        cos, sin = rotation[lengths.long() - 1].double()[:, None].chunk(2, -1)
        a, b = part[..., ::2], part[..., 1::2]
        return torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)

    exact = x.double() @ layer.dequantize().double().t() + layer.bias.double()
    exact = parts(exact, lambda part, gain: F.rms_norm(part, (head,), gain, 1e-3), turned)
    at = lengths - 1
    plain = parts(
        layer(x), lambda part, gain: ops.rms_norm(part.contiguous(), gain, 1e-3),
        lambda part: ops.rope(part, at, rotation, style),
    )  # fmt: skip
    ops.kv_append(plain[1], plain[2].contiguous(), two, starts, table, lengths, form, longest=1)
    assert apart(q, exact[0]) <= 1.1 * apart(plain[0], exact[0])
    near = {"rtol": 2e-2 if dtype == BFLOAT else 4e-3, "atol": 4e-2 if dtype == BFLOAT else 8e-3}
    torch.testing.assert_close(cache.view(dtype), two.view(dtype), **near, equal_nan=True)


# ---- a model ----

transformers = pytest.importorskip("transformers", reason="transformers cannot be imported")
from decoder_kit import padded, tiny_model, tokens_of  # noqa: E402


class Launches(torch.utils._python_dispatch.TorchDispatchMode):
    """The operators that launch something, by name."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = ("empty", "new_empty", "empty_like", "detach")
        if not func.is_view and func._schema.name.partition("::")[2] not in made:
            self.names.append(func._schema.name)
        return func(*args, **(kwargs or {}))


#: Launches of a layer at a step: projections, attention and what stands between them.
LAUNCHES = {"llama": 5, "qwen2": 5, "mistral": 5, "gemma2": 5, "gemma3_text": 5, "qwen3": 5}


def decoder_of(family, device, dtype=HALF, **words):
    from tilusvm.transformers import Decoder

    model = tiny_model(family, device, dtype, hidden_size=128, intermediate_size=192, **words)
    return quantize_(model, "u4", 32), Decoder


def exact_of(model, family, ids):
    """The logits of transformers in f32, with the weights that the quantized layers have."""
    whole = tiny_model(family, ids.device, torch.float32, hidden_size=128, intermediate_size=192)
    layers = dict(model.named_modules())
    for name, module in whole.named_modules():
        if isinstance(layers.get(name), nn.Linear):
            module.weight.copy_(layers[name].dequantize())
    return whole(ids).logits


@pytest.mark.transformers
@pytest.mark.parametrize("dtype", [HALF, BFLOAT])
@pytest.mark.parametrize(
    "family, cache",
    [*((name, None) for name in LAUNCHES), *((name, "u8") for name in ("llama", "qwen3", "gemma3_text"))],
)
def test_logits_of_a_decoder(family, cache, dtype, device):
    from tilusvm.transformers import Options

    prompts = [padded(tokens_of(7, 7, seed=seed), device)[0] for seed in range(4 if cache else 1)]
    model, Decoder = decoder_of(family, device, dtype)
    exact, errors = [exact_of(model, family, ids) for ids in prompts], []
    for fuse in (True, False):
        options, found = Options(fuse=fuse, addends=True), []
        decoder = Decoder(decoder_of(family, device, dtype)[0], 2, 32, page=16, cache=cache, options=options)
        for ids in prompts:  # few rows each; of codes of a cache single prompts say little
            decoder.cache.reset()
            found.append(torch.stack([decoder.forward(ids[:, :5]), decoder.forward(ids[:, 5:])]))
        wanted = [logits[:, at].double() for logits in exact for at in (4, 6)]
        found = torch.stack(found).flatten(0, 1)
        errors.append([apart(found[at::2], torch.stack(wanted[at::2])) for at in (0, 1)])
        assert decoder.fuses == fuse
    for fused, plain in zip(*errors):
        assert fused <= 1.5 * plain + 1e-3


@pytest.mark.transformers
@pytest.mark.parametrize(
    "family, cache, wanted",
    [(family, None, count) for family, count in LAUNCHES.items()] + [("llama", "u4", 5), ("qwen3", "k8v4", 5)],
)
def test_launches_of_a_layer(family, cache, wanted):
    from tilusvm.transformers import Options

    counts = []
    for layers in (1, 3):
        model, Decoder = decoder_of(family, "cpu", num_hidden_layers=layers)
        decoder = Decoder(model, 1, 32, page=16, cache=cache, options=Options(addends=True))
        decoder.forward(torch.tensor(tokens_of(4)))
        decoder.token = torch.tensor([3])
        with Launches() as launches:
            decoder.step()
        counts.append(len(launches.names))
    assert counts[1] - counts[0] == 2 * wanted


@pytest.mark.transformers
def test_gains_beyond_one(device):
    """Of f16 a residual times the gain of its norm is not beyond the type where the residual is not."""
    from tilusvm.transformers._block import Norm

    norm = torch.nn.RMSNorm(128, 1e-5, device=device, dtype=HALF)
    norm.weight.uniform_(-300, 300)
    norm.variance_epsilon = norm.eps
    gain, lift = Norm(norm).parted()
    assert torch.equal(gain.float() * lift, norm.weight.float()) and gain.abs().max() <= 1 and lift == 512
    v, layer = torch.randn(3, 128, device=device).to(HALF), layer_of(64, 128, device, HALF)
    v[:, 7] = 60000.0
    exact = F.rms_norm(v.double(), (128,), norm.weight.double(), 1e-5) @ layer.dequantize().double().t() + layer.bias
    assert apart(layer.normed((v.float() * gain.float()).to(HALF), parts_of(v), eps=1e-5, lift=lift), exact) < 2e-3


@pytest.mark.transformers
@pytest.mark.parametrize("family, cache", [("llama", None), ("qwen3", "u4"), ("gemma3_text", None)])
def test_the_launches_of_a_step_are_prepared(device, family, cache):
    """prepare launches what a step does, each once, and leaves an empty cache."""
    from tilusvm.transformers import Options

    model, Decoder = decoder_of(family, device, num_hidden_layers=1)
    words = {"page": 16, "cache": cache, "options": Options(addends=True)}
    decoder = Decoder(model, 1, 32, **words)
    decoder.prepare(4)
    assert decoder.cache.lengths.tolist() == [0]
    ids, other = torch.tensor(tokens_of(4), device=device), Decoder(model, 1, 32, **words)
    assert torch.equal(decoder.forward(ids), other.forward(ids))

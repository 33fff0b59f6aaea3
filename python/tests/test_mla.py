"""Latent attention (ops.mla_decode) against torch's own arithmetic in f64, on caches of every type."""

import itertools
import os
import subprocess
import sys

import pytest
from conftest import NO_TORCH, torch

if torch is None:
    pytest.skip(NO_TORCH, allow_module_level=True)

from torch_kit import DEVICES, HALVES, close  # noqa: E402

import tilusvm  # noqa: E402
from tilusvm import ops  # noqa: E402

if "MLA_TARGET" in os.environ:  # as another device sees a launch
    tilusvm.interpreter(multiprocessors=24, target=int(os.environ["MLA_TARGET"]))

HALF, BFLOAT = torch.float16, torch.bfloat16
TOLERANCE = {HALF: 2e-3, BFLOAT: 1e-2}
SCALE = 0.05


@pytest.fixture(params=DEVICES)
def device(request):
    torch.manual_seed(21)
    return request.param


class Cache:
    """Pages in no order; rows behind the ends of sequences are no numbers."""

    def __init__(self, form, lengths, device):
        counts = [-(-length // form.page) for length in lengths]
        pages = sum(counts) + 2
        self.form, self.lengths = form, lengths
        self.rows = torch.full_like(form.zeros(pages, device), 255 if form.type else torch.nan)
        self.table = torch.full((len(lengths), max(1, *counts)), -1, dtype=torch.int32, device=device)
        self.now = torch.tensor(lengths, dtype=torch.int32, device=device)
        order, self.keys = iter(torch.randperm(pages).tolist()), []
        for b, (length, count) in enumerate(zip(lengths, counts)):
            self.table[b, :count] = torch.tensor(list(itertools.islice(order, count)), dtype=torch.int32)
            place = torch.arange(length, device=device)
            slots = self.table[b].long()[place // form.page] * form.page + place % form.page
            form.append(self.rows, *(torch.randn(length, n, device=device) for n in (512, 64)), slots)
            self.keys.append(form.elements(self.rows.view(-1, self.rows.shape[-1])[slots]).double())

    def expected(self, q, chosen=None):
        """[batch, queries, heads, 512] and lse, float64."""
        batch, queries, heads, _ = q.shape
        out = torch.zeros(batch, queries, heads, 512, dtype=torch.float64, device=q.device)
        lse = torch.full(out.shape[:3], -torch.inf, dtype=torch.float64, device=q.device)
        for b, t in itertools.product(range(batch), range(queries)):
            seen = max(self.lengths[b] - queries + 1 + t, 0)
            keys = self.keys[b][:seen]
            if chosen is not None:
                own = chosen[b, t].long()
                keys = keys[own[(own >= 0) & (own < seen)]]
            if len(keys):
                scores = SCALE * q[b, t].double() @ keys.T
                out[b, t], lse[b, t] = scores.softmax(-1) @ keys[:, :512], scores.logsumexp(-1)
        return out, lse


def check(cache, q, chosen=None):
    out, lse = ops.mla_decode(
        q, cache.rows, cache.table, cache.now, type=cache.form.type, scale=SCALE, chosen=chosen
    )
    expected, expected_lse = cache.expected(q, chosen)
    assert out.dtype == q.dtype and out.shape == expected.shape
    close(out, expected, TOLERANCE[q.dtype])
    assert torch.equal(lse.isinf(), expected_lse.isinf())
    close(lse.nan_to_num(neginf=0), expected_lse.nan_to_num(neginf=0), TOLERANCE[q.dtype])


def queries(form, batch, count, heads, device):
    return torch.randn(batch, count, heads, 576, device=device).to(form.dtype)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("type", [None, "f8_e4m3", "i8", "u4"])
def test_types(device, dtype, type):
    form = ops.LatentFormat(dtype, type)
    cache = Cache(form, [130, 1, 0, 64], device)
    check(cache, queries(form, 4, 1, 16, device))


@pytest.mark.parametrize(
    "page, lengths, count, heads",
    [(16, [47, 16], 2, 20), (32, [3, 200], 4, 5), (128, [129], 1, 128), (64, [2, 65], 3, 1)],
)
def test_shapes(device, page, lengths, count, heads):
    form = ops.LatentFormat(HALF, None, page)
    check(Cache(form, lengths, device), queries(form, len(lengths), count, heads, device))


@pytest.mark.parametrize("type, topk", [(None, 100), ("f8_e4m3", 33), ("u4", 1)])
def test_chosen_tokens(device, type, topk):
    form = ops.LatentFormat(BFLOAT, type, 32)
    lengths, count = [140, 3, 0], 2
    cache = Cache(form, lengths, device)
    chosen = torch.full((3, count, topk), -1, dtype=torch.int32, device=device)
    for b, t in itertools.product(range(3), range(count)):
        some = torch.randperm(max(lengths[b], 1))[:topk].int()  # tokens that the query does not see, too
        chosen[b, t, torch.randperm(topk)[: len(some)]] = some.to(device)
    chosen[0, 0, 0] = 2**31 - 1
    check(cache, queries(form, 3, count, 18, device), chosen)


@pytest.mark.parametrize(
    "type, page, lengths, count, heads",
    [
        ("u4", 16, [65, 300, 0], 2, 3),
        ("i8", 128, [130, 64], 1, 32),
        ("u4", 32, [700], 4, 7),
        ("f8_e4m3", 64, [191], 1, 5),
    ],
)
def test_few_rows(device, type, page, lengths, count, heads):
    """Which a GPU with wgmma has as the columns of its products."""
    form = ops.LatentFormat(BFLOAT, type, page)
    check(Cache(form, lengths, device), queries(form, len(lengths), count, heads, device))


def test_no_races():
    form = ops.LatentFormat(BFLOAT, "u4")
    cache = Cache(form, [400, 1, 0, 200], "cpu")
    tilusvm.set_sanitizer("text")
    try:
        check(cache, queries(form, 4, 1, 16, "cpu"))
    finally:
        tilusvm.set_sanitizer(None)


def test_many_parts(device):
    """Of a sequence, which are put together in two steps."""
    form = ops.LatentFormat(HALF)
    check(Cache(form, [2500, 70], device), queries(form, 2, 1, 16, device))
    check(Cache(form, [3000], device), queries(form, 1, 1, 128, device))


@pytest.mark.skipif("MLA_TARGET" in os.environ, reason="is that device already")
def test_as_a_gpu_with_wgmma():
    """The kernels for sm_90a, on the interpreter, by as many blocks as 24 multiprocessors have."""
    chosen = "test_types or test_shapes or test_few or test_chosen_tokens or test_many_parts or test_same_bits"
    which = f"({chosen}) and cpu or test_no_races"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__, "-k", which]
    done = subprocess.run(command, env={**os.environ, "MLA_TARGET": "90"}, capture_output=True, text=True)
    assert done.returncode == 0 and "passed" in done.stdout, done.stdout + done.stderr


def test_same_bits_again(device):
    form = ops.LatentFormat(HALF)
    cache, q = Cache(form, [700, 300], device), queries(form, 2, 1, 16, device)
    first = ops.mla_decode(q, cache.rows, cache.table, cache.now)
    for one, other in zip(first, ops.mla_decode(q, cache.rows, cache.table, cache.now)):
        assert torch.equal(one, other)


@pytest.mark.parametrize("type", ["f8_e4m3", "i8", "u4"])
def test_rows_keep_latents(type):
    form = ops.LatentFormat(BFLOAT, type)
    latents, rope = torch.randn(3, 5, 512), torch.randn(3, 5, 64).bfloat16()
    back = form.elements(form.rows(latents, rope))
    assert form.rows(latents, rope).shape[-1] == form.shape(1)[2] == (400 if type == "u4" else 656)
    assert torch.equal(back[..., 512:], rope.float())
    most = latents.unflatten(-1, (-1, 64)).abs().amax(-1, keepdim=True)
    step = {"f8_e4m3": 1 / 14, "i8": 1 / 120, "u4": 1 / 13}[type]
    off = (back[..., :512] - latents).unflatten(-1, (-1, 64)).abs()
    assert (off <= 2 * step * most).all() if type != "u4" else (off <= step * most).all()


def test_bad_page_tables():
    form = ops.LatentFormat(HALF)
    cache, q = Cache(form, [64], "cpu"), queries(form, 1, 1, 4, "cpu")
    cache.table[0, 0] = 99
    with pytest.raises(tilusvm.FaultError, match="table: 99 is not in the range"):
        ops.mla_decode(q, cache.rows, cache.table, cache.now)
    with pytest.raises(tilusvm.FaultError, match="lengths: 65 is not in the range"):
        ops.mla_decode(q, cache.rows, cache.table, cache.now + 1)


@pytest.mark.parametrize(
    "change, error, message",
    [
        ({"q": lambda q: q[..., :512].contiguous()}, ValueError, "q must have heads of 576 elements, not 512"),
        ({"cache": lambda c: c.byte()}, TypeError, "cache must be torch.float16"),
        ({"cache": lambda c: c[:, :8].contiguous()}, ValueError, "cache must have pages of"),
        ({"lengths": lambda n: n.long()}, TypeError, "lengths must be torch.int32"),
        ({"type": lambda _: "u3"}, ValueError, "type must be f8_e4m3, i8 or u4, not 'u3'"),
    ],
)
def test_what_is_refused(change, error, message):
    form = ops.LatentFormat(HALF)
    cache = Cache(form, [5], "cpu")
    given = {"q": queries(form, 1, 1, 4, "cpu"), "cache": cache.rows, "table": cache.table, "lengths": cache.now}
    given["type"] = None
    for name, how in change.items():
        given[name] = how(given[name])
    with pytest.raises(error, match=message):
        ops.mla_decode(**given)


# ---- which tokens to attend to ----


@pytest.mark.parametrize(
    "dtype, heads, page, lengths, count",
    [
        (HALF, 64, 64, [200, 0, 1], 1),
        (BFLOAT, 40, 16, [130, 65], 3),
        (torch.float8_e4m3fn, 64, 64, [300, 7], 2),
        (BFLOAT, 100, 32, [64], 4),
    ],
)
def test_index_scores(device, dtype, heads, page, lengths, count):
    batch, columns = len(lengths), max(1, *(-(-length // page) for length in lengths))
    table = torch.randperm(batch * columns + 1, device=device)[: batch * columns].int().view(batch, columns)
    keys = torch.randn(batch * columns + 1, page, 128, device=device).to(dtype)
    q = torch.randn(batch, count, heads, 128, device=device).to(dtype)
    weights = torch.randn(batch, count, heads, device=device)
    scales = torch.rand(keys.shape[:2], device=device) + 0.5 if dtype.itemsize == 1 else None
    now = torch.tensor(lengths, dtype=torch.int32, device=device)
    scores = ops.index_scores(q, weights, keys, table, now, scales)
    assert scores.shape == (batch, count, columns * page)
    for b, t in itertools.product(range(batch), range(count)):
        seen = max(lengths[b] - count + 1 + t, 0)
        assert scores[b, t, seen:].eq(-torch.inf).all()
        if seen:
            own = keys.double()[table[b].long()].flatten(0, 1)[:seen]
            expected = (weights[b, t].double()[:, None] * (q[b, t].double() @ own.T).relu()).sum(0)
            if scales is not None:
                expected *= scales[table[b].long()].flatten()[:seen]
            close(scores[b, t, :seen], expected, 1e-3 if scales is not None else 1e-4)


@pytest.mark.parametrize("n, k", [(100, 5), (5000, 2048), (4096, 4096), (300, 400), (9000, 1), (10, 0), (1, 1)])
@pytest.mark.parametrize("kind", ["different", "equal", "holes"])
def test_topk_set(device, n, k, kind):
    x = torch.randn(2, n, device=device)
    if kind == "equal":
        x = (2 * x).round() / 2
    if kind == "holes":
        x[:, ::2], x[:, 1::7] = -torch.inf, torch.nan
    order = x.nan_to_num(nan=-torch.inf, neginf=-torch.inf).sort(dim=-1, descending=True, stable=True)
    for row, values, places in zip(ops.topk_set(x, k), order.values, order.indices):
        best = places[values > -torch.inf][:k].sort().values.int()
        assert torch.equal(row[: len(best)], best) and row[len(best) :].eq(-1).all()


def test_attends_to_the_best_tokens(device):
    form = ops.LatentFormat(BFLOAT, "f8_e4m3")
    cache, q = Cache(form, [300, 40], device), queries(form, 2, 2, 16, device)
    keys = torch.randn(cache.rows.shape[0], form.page, 128, device=device, dtype=BFLOAT)
    weights = torch.rand(2, 2, 8, device=device)
    index = torch.randn(2, 2, 8, 128, device=device, dtype=BFLOAT)
    chosen = ops.topk_set(ops.index_scores(index, weights, keys, cache.table.clamp_min(0), cache.now), 64)
    assert chosen.shape == (2, 2, 64) and (chosen[0] >= 0).all() and (chosen[1] < 0).any()
    check(cache, q, chosen)


# ---- what is appended ----


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("type", [None, "f8_e4m3", "i8", "u4"])
@pytest.mark.parametrize("style", [None, "half", "interleaved"])
def test_append(device, dtype, type, style):
    """As rows of the format are made of what rms_norm and rope give; tokens with no slot go nowhere."""
    form = ops.LatentFormat(dtype, type, 16)
    x = torch.randn(11, 576, device=device).to(dtype)
    slots = torch.tensor([5, 40, -1, 0, 47, 16, 31, 9, 1 << 30, 8, 2], dtype=torch.int32, device=device)
    latents, rope, words = x[:, :512].contiguous(), x[:, 512:].contiguous(), {}
    if style is not None:
        table, positions = torch.randn(70, 64, device=device), torch.arange(60, 71, dtype=torch.int32, device=device)
        weight = (torch.rand(512, device=device) + 0.5).to(dtype)
        words = {"positions": positions, "rotation": table, "weight": weight, "style": style, "eps": 1e-5}
        latents = ops.rms_norm(latents, weight, 1e-5)
        rope = ops.rope(rope[:, None], positions, table, style)[:, 0]
    cache = torch.full_like(form.zeros(3, device), 99)
    wanted = cache.clone()
    ops.mla_append(x, cache, slots, type=type, **words)
    kept = (slots >= 0) & (slots < 48)
    form.append(wanted, latents[kept], rope[kept], slots[kept])
    rows, exact = (t.view(48, -1) for t in (cache, wanted))
    untouched = torch.ones(48, dtype=torch.bool, device=device)
    untouched[slots[kept].long()] = False
    assert torch.equal(rows[untouched], exact[untouched])
    found, expected = form.elements(rows[~untouched]), form.elements(exact[~untouched])
    # a latent between two roundings may go either way where norms are computed in another order
    step = {None: 0.0, "f8_e4m3": 0.13, "i8": 0.02, "u4": 0.4}[type] + (0.02 if style else 0.0)
    assert ((found - expected).abs() <= step * expected.abs().clamp_min(1.0)).all()
    assert ((found - expected).abs() > 1e-5 * expected.abs()).float().mean() <= 0.01


def test_append_says_what_is_wrong(device):
    form = ops.LatentFormat(HALF)
    cache, slots = form.zeros(2, device), torch.zeros(3, dtype=torch.int32, device=device)
    x = torch.zeros(3, 576, device=device).half()
    for message, args, words in (
        ("x must have 576 columns", (x[:, :512].contiguous(), cache, slots), {}),
        ("positions and rotation go together", (x, cache, slots), {"rotation": torch.zeros(8, 64, device=device)}),
        ("slots must have the shape", (x, cache, slots[:2]), {}),
    ):
        with pytest.raises(ValueError, match=message):
            ops.mla_append(*args, **words)
    with pytest.raises(TypeError, match="cache must be torch.uint8"):
        ops.mla_append(x, cache, slots, type="u4")

"""The operator that chooses experts and sorts tokens by them, against sorts of torch in f64."""

import pytest
from conftest import NO_TORCH, torch

if torch is None:
    pytest.skip(NO_TORCH, allow_module_level=True)

from torch_kit import DEVICES  # noqa: E402

import tilusvm  # noqa: E402
from tilusvm import ops  # noqa: E402

F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16


@pytest.fixture(params=DEVICES)
def device(request):
    return request.param


def best(values, count):
    return values.sort(dim=-1, descending=True, stable=True).indices[:, :count]


def scores_of(logits, bias, score="softmax", groups=1, top_groups=1, group_best=2, **rest):
    """In f64: logits that are all finite, scores, what experts are chosen by, and groups; None where all are left."""
    most = torch.finfo(logits.dtype).max
    x = logits.double().nan_to_num(nan=-most, posinf=most, neginf=-most)
    scores = x.softmax(-1) if score == "softmax" else x.sigmoid()
    value, of_group = scores if bias is None else scores + bias.double(), None
    if top_groups < groups:
        cube = value.view(len(x), groups, x.shape[1] // groups)
        of_group = cube.sort(-1).values[..., -group_best:].sum(-1)
        stays = torch.zeros_like(of_group, dtype=torch.bool).scatter_(1, best(of_group, top_groups), True)
        value = value.masked_fill(~stays.repeat_interleave(x.shape[1] // groups, 1), -torch.inf)
    if bias is None:  # the logits have the order of the scores, and are not rounded
        value = x.masked_fill(value.isinf(), -torch.inf)
    return x, scores, value, of_group


def chosen(logits, bias, top, renormalize=False, scale=1.0, **words):
    """Weights and ids, in f64: what a router does, step by step."""
    x, scores, value, _ = scores_of(logits, bias, **words)
    ids = best(value, top)
    weights = scores.gather(1, ids)
    if renormalize and words.get("score", "softmax") == "softmax":
        weights = x.gather(1, ids).softmax(-1)
    elif renormalize:
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
    return weights * scale, ids


def clear(logits, bias, top, top_groups=1, **words):
    """The tokens whose choice is no matter of rounding."""
    _, _, value, of_group = scores_of(logits, bias, top_groups=top_groups, **words)
    good = torch.ones(len(logits), dtype=torch.bool)
    for numbers, count in ((value, top + 1), (of_group, top_groups + 1)):
        if numbers is not None and numbers.shape[1] > 1:
            gaps = -numbers.sort(dim=-1, descending=True).values[:, :count].diff(dim=-1)
            good &= (gaps > 1e-5).all(-1)
    return logits[good]


def check_sorted(routes, experts):
    """Of the ids that are there."""
    ids = routes.ids.cpu().flatten().long()
    assert ((ids >= 0) & (ids < experts)).all()
    rows = ids.sort(stable=True).indices
    places = torch.empty_like(rows).index_copy_(0, rows, torch.arange(len(rows)))
    ends = torch.bincount(ids, minlength=experts).cumsum(0)
    assert torch.equal(routes.rows.cpu().long(), rows)
    assert torch.equal(routes.places.cpu().long().flatten(), places)
    assert routes.offsets[0] == 0 and torch.equal(routes.offsets[1:].cpu().long(), ends)


def check(device, logits, bias=None, **words):
    experts = logits.shape[1]
    routes = ops.Routes(*ops.route(logits.to(device), None if bias is None else bias.to(device), **words))
    check_sorted(routes, experts)
    weights, ids = chosen(logits, bias, **words)
    assert torch.equal(routes.ids.cpu().long(), ids)
    error = (routes.weights.cpu() - weights).abs() / weights.abs().clamp(min=1e-30)
    assert not len(error) or float(error.max()) < 4e-6


def values(tokens, experts, dtype, step):
    """Logits, no two of a token alike; multiples of a step that all types have."""
    draw = torch.Generator().manual_seed(experts)
    order = torch.rand(tokens, experts, generator=draw).argsort(-1)
    return ((order - experts // 2) * step).to(dtype)


MODELS = {
    "mixtral": (8, F16, False, dict(top=2, renormalize=True)),
    "qwen3": (128, F32, False, dict(top=8, renormalize=True)),
    "qwen2": (60, BF16, False, dict(top=4)),
    "deepseek_v3": (
        256, F32, True,
        dict(top=8, score="sigmoid", renormalize=True, scale=2.5, groups=8, top_groups=4),
    ),
    "deepseek_v2": (160, F32, False, dict(top=6, groups=8, top_groups=3, group_best=1, scale=16.0)),
    "short groups": (40, F16, False, dict(top=3, groups=5, top_groups=2, group_best=1)),
    "gpt_oss": (32, BF16, False, dict(top=4, renormalize=True)),
    "qwen3_next": (512, F32, False, dict(top=10, renormalize=True)),
    "ernie": (64, F32, True, dict(top=6)),
    "kimi": (384, BF16, False, dict(top=8, score="sigmoid", renormalize=True)),
    "one": (1, F32, False, dict(top=1)),
    "all": (16, F16, False, dict(top=16, score="sigmoid", groups=16, top_groups=16)),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_routers_of_models(device, name):
    """One token, tiles that end within, tiles of several blocks; on a GPU many tokens, too."""
    experts, dtype, has_bias, words = MODELS[name]
    for tokens in (0, 1, 17, 70, 523) if device == "cpu" else (0, 1, 17, 70, 523, 8192, 30001):
        draw = torch.Generator().manual_seed(1)
        bias = torch.linspace(-0.3, 0.3, experts)[torch.randperm(experts, generator=draw)] if has_bias else None
        logits = values(tokens, experts, dtype, 1 / 32)
        logits = clear(logits, bias, **words) if has_bias else logits
        assert len(logits) >= tokens * 0.9
        check(device, logits, bias, **words)


@pytest.mark.parametrize("dtype", [F32, F16, BF16])
def test_of_equal_ones_the_first(device, dtype):
    """Also of groups, and where a bias makes others equal."""
    x = torch.tensor([[0.5, 2.0, 2.0, -0.0, 0.0, 2.0, 0.5, 0.5], [0.0] * 8], dtype=dtype, device=device)
    assert ops.route(x, top=5)[1].tolist() == [[1, 2, 5, 0, 6], [0, 1, 2, 3, 4]]
    bias = torch.tensor([0.25, 0, 0, 0, 0, 0, 0.25, 0], device=device)
    assert ops.route(x[1:], bias, top=4, score="sigmoid")[1].tolist() == [[0, 6, 1, 2]]
    found = ops.route(x, top=2, score="sigmoid", groups=4, top_groups=1)
    assert found[1].tolist() == [[1, 0], [0, 1]]
    zeros = torch.zeros(1, 8, dtype=dtype, device=device)
    assert ops.route(zeros, top=3, groups=4, top_groups=2, group_best=1)[1].tolist() == [[0, 1, 2]]


@pytest.mark.parametrize("dtype", [F32, F16, BF16])
def test_numbers_that_are_none(device, dtype):
    """A NaN is the least number, infinities are the least and the greatest; no weight is NaN."""
    nan, inf = float("nan"), float("inf")
    x = torch.tensor(
        [[nan] * 6, [-inf] * 6, [inf] * 6, [nan, 1, -inf, 3, inf, 2], [nan, nan, 0, -inf, nan, nan]], dtype=dtype
    )
    for words in (dict(), dict(renormalize=True), dict(score="sigmoid"), dict(score="sigmoid", renormalize=True)):
        check(device, x, top=3, **words)
    for words in (dict(), dict(renormalize=True)):  # all of a row's weights are 1/6, or 1/3
        weights = ops.route(x[:3].to(device), top=3, **words)[0]
        assert torch.allclose(weights.cpu(), torch.full((3, 3), 1 / (3 if words else 6)))
    bias = torch.tensor([0, nan, inf, -inf, 0, 0], device=device)
    assert ops.route(torch.zeros(1, 6, dtype=dtype, device=device), bias, top=6)[1].tolist() == [[2, 0, 4, 5, 1, 3]]


VARIANTS = ("few", "some", "many", "cluster", "cluster_some", "cluster_many", "grid", "grid_some", "grid_many")


@pytest.mark.parametrize("name, consts", [
    ("route", {"EXPERTS": 40, "TOP": 3}), ("route", {"EXPERTS": 512, "TOP": 16, "T": "bf16"}),
    ("route", {"EXPERTS": 6, "TOP": 2, "SCORE": "sigmoid"}), ("bucket", {"BUCKETS": 70}), ("bucket", {"BUCKETS": 512}),
])  # fmt: skip
def test_every_variant(device, name, consts):
    """Each kernel gives what the one gives that is chosen, at the sizes that it takes."""
    made, ran = tilusvm.program(name, **consts), set()
    top, count = consts.get("TOP", 1), consts.get("EXPERTS") or consts["BUCKETS"]
    for tokens in (1, 3, 15, 60, 300, 1100):
        i32 = dict(dtype=torch.int32, device=device)
        if name == "route":
            given = [values(tokens, count, BF16 if "T" in consts else F32, 1 / 32).to(device)]
            results = [torch.empty(tokens, top, device=device), torch.empty(tokens, top, **i32)]
            scalars = [tokens, 1.0]
        else:
            given, results, scalars = [torch.randint(-1, count + 2, (tokens,), **i32)], [], [tokens]
        results += [torch.empty(count + 1, **i32), torch.empty(tokens * top, **i32), torch.empty(tokens, top, **i32)]
        if name == "bucket":
            results[-1] = results[-1].view(-1)
        made[name](*scalars, *given, *results)
        wanted = [each.clone() for each in results]
        for variant in VARIANTS:
            if f"{name}_{variant}" not in made:
                continue
            for each in results:
                each.fill_(-7)
            try:
                made[f"{name}_{variant}"](*scalars, *given, *results)
            except tilusvm.Error as error:
                assert "tokens <=" in str(error) or "has(clusters)" in str(error)
                continue
            ran.add(variant)
            for a, b in zip(results, wanted):
                assert torch.equal(a, b), (variant, tokens)
    assert {"few", "some", "many", "grid", "grid_some", "grid_many"} <= ran


def test_rows_in_buckets(device):
    """Keys that are none stand last, in their order; many buckets and few, many rows of one."""
    draw = torch.Generator().manual_seed(2)
    for tokens, buckets in ((0, 4), (1, 1), (77, 3), (500, 256), (3000, 1023), (5000, 64)):
        keys = torch.randint(-2, buckets + 2, (tokens,), generator=draw, dtype=torch.int32)
        keys[tokens // 2 : tokens // 2 + 300] = buckets - 1
        offsets, rows, places = (t.cpu().long() for t in ops.bucket(keys.to(device), buckets=buckets))
        key = torch.where((keys >= 0) & (keys < buckets), keys, buckets)
        assert torch.equal(rows, key.sort(stable=True).indices)
        assert torch.equal(places[rows], torch.where(key[rows] < buckets, torch.arange(tokens), tokens))
        ends = torch.bincount(key, minlength=buckets + 1).cumsum(0)[:buckets]
        assert torch.equal(offsets, torch.cat([torch.zeros(1, dtype=torch.long), ends]))
    for call, message in [
        (lambda: ops.bucket(keys, buckets=1024), "buckets must be from 1 to 1023, not 1024"),
        (lambda: ops.bucket(keys.long(), buckets=4), "keys must be torch.int32"),
        (lambda: ops.bucket(keys[None], buckets=4), "keys must have 1 dimensions"),
    ]:
        with pytest.raises((TypeError, ValueError), match=f"bucket: .*{message}"):
            call()


def test_every_launch_gives_the_same(device):
    """And leaves behind what the next one needs."""
    x = torch.randn(1500, 64, generator=torch.Generator().manual_seed(3)).to(device)
    first = ops.route(x, top=8, renormalize=True)
    for tokens in (1500, 900, 1500):
        found = ops.route(x[:tokens], top=8, renormalize=True)
        check_sorted(ops.Routes(*found), 64)
    for a, b in zip(found, first):
        assert torch.equal(a, b)


def test_what_is_refused():
    x = torch.zeros(2, 8)
    for call, message in [
        (lambda: ops.route(x, top=9), "top must be from 1 to 8, of 8 experts, not 9"),
        (lambda: ops.route(x, top=0), "top must be from 1 to 8"),
        (lambda: ops.route(torch.zeros(2, 64), top=17), "top must be from 1 to 16"),
        (lambda: ops.route(x, top=2, groups=3), "groups must divide the experts, 8, not 3"),
        (lambda: ops.route(x, top=2, groups=4, top_groups=5), "top_groups must be from 1 to 4"),
        (lambda: ops.route(x, top=3, groups=4, top_groups=1), "of 2 experts each, with 3 in all, not 1"),
        (lambda: ops.route(x, top=2, groups=4, top_groups=2, group_best=3), "group_best must be 1 or 2"),
        (lambda: ops.route(x, top=1, groups=8, top_groups=2), "a group must have so many experts, not 2"),
        (lambda: ops.route(x, top=2, score="tanh"), "score must be softmax or sigmoid"),
        (lambda: ops.route(x[0], top=2), "logits must have 2 dimensions"),
        (lambda: ops.route(torch.zeros(2, 513), top=2), "1 to 512 columns, not 513"),
        (lambda: ops.route(x, torch.zeros(7), top=2), r"bias must have the shape \[8\], not \[7\]"),
        (lambda: ops.route(x.int(), top=2), "logits must be"),
    ]:
        with pytest.raises((TypeError, ValueError), match=f"route: .*{message}"):
            call()

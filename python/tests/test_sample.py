"""The operator that draws tokens, against probabilities computed in f64 from the definition of each argument."""

import pytest
from conftest import NO_TORCH, torch

if torch is None:
    pytest.skip(NO_TORCH, allow_module_level=True)

from torch_kit import DEVICES  # noqa: E402

from tilusvm import ops  # noqa: E402


@pytest.fixture(params=DEVICES)
def device(request):
    return request.param


def probabilities(logits, temperature=1.0, top_k=0, top_p=1.0):
    """Of each token of one row; no two of its logits are equal."""
    ranks = logits.double().cpu().sort(descending=True)
    weights = (ranks.values / temperature).softmax(-1)
    if top_k:
        weights[top_k:] = 0.0
    weights /= weights.sum()
    before = weights.cumsum(-1) - weights  # what the more likely tokens have
    weights[before >= top_p] = 0.0
    return torch.zeros_like(weights).scatter(0, ranks.indices, weights / weights.sum())


def surprise(counts, expected):
    """How likely chi-square is at least that of these counts, if the expected ones are right."""
    used = expected > 0
    assert not counts[~used].any(), counts.tolist()
    square = ((counts[used] - expected[used]) ** 2 / expected[used]).sum()
    return torch.special.gammaincc((used.sum() - 1).double() / 2, square / 2).item()


LOGITS = torch.tensor([0.5, -1.0, 2.0, 1.0, 0.0, 1.5, -0.5, 2.5, -2.0, 0.25, 0.75, 1.25])


@pytest.mark.parametrize(
    "words, left, draws", [
        ({}, 12, 300), ({"temperature": 0.5}, 12, 200), ({"temperature": 3.0}, 12, 200), ({"top_k": 4}, 4, 80),
        ({"top_p": 0.7}, 4, 80), ({"temperature": 0.8, "top_k": 6, "top_p": 0.8}, 4, 60),
    ],
)  # fmt: skip
def test_distribution(words, left, draws, device):
    expected = probabilities(LOGITS, **words)
    assert (expected > 0).sum() == left
    rows = LOGITS.half().to(device).expand(draws, -1).contiguous()
    tokens = ops.sample(rows, **words, seed=7)
    assert tokens.dtype == torch.int32 and tokens.shape == (draws,) and tokens.device == rows.device
    counts = torch.bincount(tokens.cpu(), minlength=12).double()
    assert counts.sum() == draws
    assert surprise(counts, expected * draws) > 1e-3
    turned = torch.zeros(12, dtype=torch.float64)
    turned[expected > 0] = expected[expected > 0].flip(0)
    assert surprise(counts, turned * draws) < 1e-3  # so many draws tell others from these


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_rows_and_seeds(dtype, device):
    """A row's token depends on its logits, the seed and its place in the offsets, on nothing else."""
    logits = torch.randn(2, 4, 40, generator=torch.Generator().manual_seed(3)).to(dtype).to(device)
    tokens = ops.sample(logits, seed=11, offset=100)
    assert tokens.shape == (2, 4) and torch.equal(tokens, ops.sample(logits, seed=11, offset=100))
    assert not torch.equal(tokens, ops.sample(logits, seed=12, offset=100))
    assert not torch.equal(tokens, ops.sample(logits, seed=11, offset=108))
    for row in range(8):
        alone = ops.sample(logits.view(8, 40)[row], seed=11, offset=100 + row)
        assert alone.shape == () and alone == tokens.flatten()[row]
    among = torch.cat([logits.view(8, 40)[2:5], logits.view(8, 40)[:1]])
    assert torch.equal(ops.sample(among, seed=11, offset=102)[:3], tokens.flatten()[2:5])
    assert torch.equal(ops.sample(logits, 0.0).long(), logits.argmax(-1))
    assert torch.equal(ops.sample(logits, 5.0, 1).long(), logits.argmax(-1))
    assert torch.equal(ops.sample(logits, 5.0, 0, 1e-6).long(), logits.argmax(-1))
    assert torch.equal(ops.sample(logits, top_k=4000, seed=11, offset=100), tokens)  # of all, as without
    assert ops.sample(logits[:0]).shape == (0, 4)
    assert torch.equal(torch.ops.tilusvm.sample(logits, seed=11, offset=100), tokens)


@pytest.mark.parametrize(
    "words, error, message", [
        ({"temperature": -0.1}, ValueError, "temperature must be a finite number from 0, not -0.1"),
        ({"temperature": float("nan")}, ValueError, "temperature must be a finite number"),
        ({"temperature": "hot"}, TypeError, "temperature must be a number, not 'hot'"),
        ({"top_p": 0.0}, ValueError, "top_p must be above 0 and at most 1"),
        ({"top_p": 1.1}, ValueError, "top_p must be above 0 and at most 1"),
        ({"top_p": None}, TypeError, "top_p must be a number, not None"),
        ({"top_k": -1}, ValueError, "top_k must be a number of tokens from 1, or 0 for all, not -1"),
        ({"top_k": 2.5}, TypeError, "top_k must be an integer, not 2.5"),
        ({"seed": -1}, ValueError, "seed must be from 0 to 2.63 - 1, not -1"),
        ({"seed": 1 << 63}, ValueError, "seed must be from 0"),
        ({"seed": True}, TypeError, "seed must be an integer"),
        ({"offset": -1}, ValueError, "offset must be an integer from 0"),
        ({"logits": [1.0]}, TypeError, "logits must be a tensor"),
        ({"logits": torch.zeros(2, 3, dtype=torch.int32)}, TypeError, "logits must be torch.float16"),
        ({"logits": torch.zeros(2, 0)}, ValueError, "logits must have 1 to 2.20 columns"),
        ({"logits": torch.zeros(4, 6).t()}, ValueError, "logits must be contiguous"),
    ],
)  # fmt: skip
def test_what_is_refused(words, error, message):
    with pytest.raises(error, match=f"sample: {message}"):
        ops.sample(**{"logits": torch.zeros(2, 8), **words})


@pytest.mark.parametrize("words", [{}, {"temperature": 0.5, "top_k": 5}, {"top_p": 0.7}, {"temperature": 0.0}])
def test_probabilities(words, device):
    """Those of sample, also of a row that ends within a tile, and of halves."""
    if words.get("temperature") == 0:
        expected = torch.nn.functional.one_hot(LOGITS.argmax(), 12).double()
    else:
        expected = probabilities(LOGITS, **words)
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        found = ops.probabilities(LOGITS.to(dtype).to(device).expand(2, -1).contiguous(), **words)
        assert found.dtype == torch.float32
        torch.testing.assert_close(found.cpu().double(), expected.expand(2, -1), rtol=2e-6, atol=1e-9)


def test_probabilities_of_many(device):
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(3, 9001, generator=generator)
    logits[1, 5000] = logits[1, 17] = 9.0  # the first of equal ones
    logits[2] = -float("inf")
    found = ops.probabilities(logits.to(device)).cpu().double()
    torch.testing.assert_close(found[:2], logits[:2].double().softmax(-1), rtol=1e-5, atol=1e-9)
    sure = ops.probabilities(logits.to(device), 0.0).cpu()
    assert torch.equal(sure.nonzero()[:, 1].cpu(), torch.tensor([logits[0].argmax(), 17, 0]))
    assert found[2, 0] == 1 and found[2].sum() == 1 and sure.sum() == 3


# ---- what is kept of a draft ----


def pair(seed, n):
    """Probabilities of a model and of a draft, some of either 0."""
    p, q = torch.rand(2, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    p[0], q[1] = 0.0, 0.0
    return (p / p.sum()).float(), (q / q.sum()).float()


def test_kept_tokens_have_the_models_distribution(device):
    """The first token that comes of a draft by q, whatever is drafted behind it; and as many are kept as can be."""
    rows, n = 3000, 6
    p, q = pair(1, n)
    drafted = torch.multinomial(q.expand(rows, -1), 2, replacement=True, generator=torch.Generator().manual_seed(2))
    tokens, kept = ops.accept(
        p.expand(rows, 3, n).contiguous().to(device), drafted.to(torch.int32).to(device),
        q.expand(rows, 2, n).contiguous().to(device), seed=4,
    )  # fmt: skip
    tokens, kept = tokens.cpu(), kept.cpu()
    first = torch.bincount(tokens[:, 0], minlength=n).double()
    assert surprise(first, p.double() * rows) > 1e-3 and surprise(first.flip(0)[p.flip(0) > 0], rows * p[p > 0]) < 1e-3
    second = torch.bincount(tokens[kept > 0, 1], minlength=n).double()
    assert surprise(second, p.double() * second.sum()) > 1e-3
    third = torch.bincount(tokens[kept > 1, 2], minlength=n).double()
    assert surprise(third, p.double() * third.sum()) > 1e-3
    keeps = torch.minimum(p, q).sum().double()  # of each place, if it comes to it
    expected = torch.stack([1 - keeps, keeps * (1 - keeps), keeps * keeps]) * rows
    assert surprise(torch.bincount(kept, minlength=3).double(), expected) > 1e-3


def test_certain_drafts(device):
    """A token that was drafted for certain is kept by its probability in p, and drawn from the others else."""
    rows, n = 3000, 6
    p, _ = pair(5, n)
    drafted = torch.full((rows, 1), 3, dtype=torch.int32)
    tokens, kept = ops.accept(p.expand(rows, 2, n).contiguous().to(device), drafted.to(device), seed=6)
    tokens, kept = tokens.cpu(), kept.cpu()
    assert surprise(torch.bincount(tokens[:, 0], minlength=n).double(), p.double() * rows) > 1e-3
    assert torch.equal(kept == 1, tokens[:, 0] == 3)


def test_places_of_a_draft(device):
    """What is kept is certain here: all before the first that p has not; no token of a draft is below 0."""
    n = 9000
    wanted = torch.tensor([[8999, 4, 5000, 1], [7, 7, 7, 7], [0, 1, 2, 3], [5, 6, 7, 8]])
    p = torch.nn.functional.one_hot(wanted, n).float()
    drafted = torch.tensor([[8999, 4, 5000], [7, 6, 7], [-1, 1, 2], [9000, 6, 7]], dtype=torch.int32)
    tokens, kept = ops.accept(p.to(device), drafted.to(device))
    assert kept.tolist() == [3, 1, 0, 0]
    assert tokens.tolist() == [[8999, 4, 5000, 1], [7, 7, -1, -1], [0, -1, -1, -1], [5, -1, -1, -1]]
    none, kept = ops.accept(p[:, :1].contiguous().to(device), drafted[:, :0].contiguous().to(device))
    assert none.tolist() == [[8999], [7], [0], [5]] and not kept.any()


@pytest.mark.parametrize(
    "change, text", [
        ({"p": torch.zeros(2, 8)}, "p must be [m, k + 1, n]"),
        ({"drafted": torch.zeros(2, 4, dtype=torch.int32)}, "drafted must be [2, 3]"),
        ({"q": torch.zeros(2, 4, 8)}, "q must have the shape [2, 3, 8]"),
        ({"offset": -1}, "offset must be an integer from 0"),
    ],
)  # fmt: skip
def test_wrong_drafts(change, text):
    words = {"p": torch.zeros(2, 4, 8), "drafted": torch.zeros(2, 3, dtype=torch.int32), **change}
    with pytest.raises(ValueError) as caught:
        ops.accept(**words)
    assert text in str(caught.value)

"""Calibration: GPTQ and AWQ against plain computations of the papers' algorithms, in f64; and whole models."""

import gc
import warnings

import pytest
from conftest import NO_TORCH, torch

if torch is None:
    pytest.skip(NO_TORCH, allow_module_level=True)

from torch_kit import FLOATS, SIGNED, UNSIGNED, weights_of  # noqa: E402

import tilusvm  # noqa: E402
from tilusvm import _awq, calibrate, nn  # noqa: E402
from tilusvm._formats import format_of  # noqa: E402
from tilusvm._gptq import gptq, round_nearest  # noqa: E402

HALF = torch.float16


def layer(n, k, seed=0, outliers=True):
    """Weights [n, k], and activations [tokens, k] as those of language models are: their spectrum falls by a power, and
    a few channels are 20 times as large as the others."""
    draw = torch.Generator().manual_seed(seed)
    basis = torch.linalg.qr(torch.randn(k, k, generator=draw))[0]
    x = (torch.randn(4 * k, k, generator=draw) * torch.arange(1, k + 1) ** -0.5) @ basis.t()
    size = torch.exp(0.5 * torch.randn(k, generator=draw)) if outliers else torch.ones(k)
    size[torch.randperm(k, generator=draw)[: k // 100 + 1]] *= 20 if outliers else 1
    return torch.randn(n, k, generator=draw) * torch.exp(0.3 * torch.randn(n, 1, generator=draw)), x * size


def error(w, q, x):
    """Of the outputs, as a part of their norm."""
    return float(((q.double() - w) @ x.double().t()).norm() / (w.double() @ x.double().t()).norm())


# ---- the papers' algorithms ----


def holding(w, bits):
    """The scale and zero point that hold the rows of w."""
    low, high = w.amin(1).clamp(max=0), w.amax(1).clamp(min=0)
    scale = (high - low) / (2**bits - 1)
    return scale, (-low / scale).round()


def searched(w, bits):
    """As holding, but the range is made smaller in 80 steps, and that of the least sum of |error|^2.4 is taken, as
    GPTQModel does with mse=2.4."""
    first, _ = holding(w, bits)
    scale, zero = holding(w, bits)
    least = torch.full_like(first, torch.inf)
    for step in range(80):
        part = first * (1 - step / 100)
        point = (-w.amin(1).clamp(max=0) / first).round()
        lost = (rounded(w, part, point, bits) - w).abs().pow(2.4).sum(1)
        scale, zero = torch.where(lost < least, part, scale), torch.where(lost < least, point, zero)
        least = torch.minimum(lost, least)
    return scale, zero


def rounded(w, scale, zero, bits):
    return ((w / scale[:, None]).round().add(zero[:, None]).clamp(0, 2**bits - 1) - zero[:, None]) * scale[:, None]


def gptq_of_the_paper(w, x, bits, group, find, act_order):
    """Column by column, without blocks."""
    w, k = w.double().clone(), w.shape[1]
    hessian = x.double().t() @ x.double()
    hessian += 0.01 * hessian.diagonal().mean() * torch.eye(k, dtype=torch.float64)
    order = hessian.diagonal().argsort(descending=True) if act_order else torch.arange(k)
    upper = torch.linalg.cholesky(torch.linalg.inv(hessian[order][:, order]), upper=True)
    w, q = w[:, order], torch.empty_like(w)
    for j in range(k):
        if j % group == 0:
            scale, zero = find(w[:, j : j + group], bits)
        q[:, j] = rounded(w[:, j : j + 1], scale, zero, bits)[:, 0]
        w[:, j + 1 :] -= ((w[:, j] - q[:, j]) / upper[j, j])[:, None] * upper[j, j + 1 :]
    return torch.empty_like(q).index_copy_(1, order, q)


def awq_of_the_paper(w, x, bits, group):
    """Equations 4 and 5: scales are powers of the mean magnitudes, of 20 that with the least error of the outputs."""
    w, x, mean, best = w.double(), x.double(), x.double().abs().mean(0), None
    for step in range(20):
        s = mean.clamp(min=1e-4) ** (step / 20)
        s = s / (s.max() * s.min()).sqrt()
        groups = (w * s).reshape(-1, group)
        q = rounded(groups, *holding(groups, bits), bits).view_as(w) / s
        if best is None or error(w, q, x) < error(w, best, x):
            best = q
    return best


@pytest.mark.parametrize(
    "bits, outliers, part",
    [(2, True, 0.75), (3, True, 0.8), (4, True, 0.9), (2, False, 0.97), (3, False, 0.98), (4, False, 1)],
)
def test_errors_beside_the_papers(bits, outliers, part):
    """Not worse at 4 bits, better at 2 and 3, than the best of the papers' algorithms; without zero points, too."""
    w, x = layer(64, 256, outliers=outliers)
    theirs = [gptq_of_the_paper(w, x, bits, 128, find, act) for find in (holding, searched) for act in (False, True)]
    least = min(error(w, q, x) for q in [*theirs, awq_of_the_paper(w, x, bits, 128)])
    for zeros in (True, False):
        ours = gptq(w, x.t() @ x, format_of(f"u{bits}"), 128, zeros, HALF)
        assert error(w, ours.weights(), x) < part * least


@pytest.mark.parametrize("type", ["u2", "u4"])
def test_one_pass_is_the_papers(type):
    """With one scale for all inputs, which is the same in both, nothing but the order of inputs is left."""
    w, x = layer(8, 64, seed=3)
    ours = gptq(w, x.t() @ x, format_of(type), 64, True, HALF, passes=0)
    scale, zero = ours.scale[:, 0].double(), ours.zero[:, 0].double()
    theirs = gptq_of_the_paper(w, x, int(type[1]), 64, lambda *_: (scale, zero), True)
    same = (ours.weights() - theirs).abs() < 1e-4
    assert same.double().mean() > 0.98 and error(w, ours.weights(), x) < 1.01 * error(w, theirs, x)


# ---- a matrix ----


@pytest.mark.parametrize("type", [*UNSIGNED, *SIGNED, *FLOATS, "nf4", "fp4"])
def test_all_types(type):
    """Less of the outputs is lost than by rounding to nearest with weighted scales, with zero points, too; and the
    codes are those of the weights."""
    w, x = layer(8, 64, seed=1)
    hessian, fmt = x.t() @ x, format_of(type)
    for zeros in (False, True) if type in UNSIGNED else (False,):
        plain = round_nearest(w, hessian.diagonal(), fmt, 32, zeros, HALF)
        ours = gptq(w, hessian, fmt, 32, zeros, HALF, passes=2)
        assert error(w, ours.weights(), x) < 0.95 * error(w, plain.weights(), x)
        if fmt.kind != "t":
            points = ours.zero.t() if zeros else None
            again = weights_of(ours.codes(), ours.scale.t(), points, type, 32)
            assert torch.allclose(again.t(), ours.weights().double(), rtol=1e-6, atol=0)
        assert torch.equal(ours.scale.half().float(), ours.scale) and torch.equal(ours.zero.half().float(), ours.zero)


@pytest.mark.parametrize("group", [16, 64, 0])
@pytest.mark.parametrize("zeros", [False, True])
def test_passes_lower_the_error(group, zeros):
    w, x = layer(16, 192, seed=2)
    errors = [
        error(w, gptq(w, x.t() @ x, format_of("u2"), group or 192, zeros, HALF, passes=p).weights(), x)
        for p in (0, 1, 4)
    ]
    assert errors[0] > errors[1] > errors[2]


def test_inputs_without_activations():
    """Channels that are always zero are rounded, and leave the others alone; so are all where nothing is known."""
    w, x = layer(8, 64)
    x[:, ::3] = 0
    ours = gptq(w, x.t() @ x, format_of("u4"), 32, True, HALF).weights()
    assert float((ours - w)[:, ::3].norm() / w[:, ::3].norm()) < 0.2 and error(w, ours, x) < 0.1
    nothing = gptq(w, torch.zeros(64, 64), format_of("u8"), 32, True, HALF).weights()
    assert float((nothing - w).norm() / w.norm()) < 0.01


# ---- AWQ ----


class Block(torch.nn.Module):
    """A norm before two layers with a gate, and one behind: what is scaled is exact, whatever the activation."""

    def __init__(self, norm, k=64):
        super().__init__()
        self.norm = norm
        self.gate_proj, self.up_proj = torch.nn.Linear(k, 96), torch.nn.Linear(k, 96)
        self.down_proj = torch.nn.Linear(96, k)

    def forward(self, x):
        y = self.norm(x)
        return x + self.down_proj(torch.nn.functional.silu(self.gate_proj(y)) * self.up_proj(y))


class OffsetNorm(torch.nn.Module):
    """As Gemma's, whose weight is one less."""

    def __init__(self, k):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(k) * 0.1)

    def forward(self, x):
        return torch.nn.functional.rms_norm(x, x.shape[-1:]) * (1 + self.weight)


class SharedBlock(Block):
    """Its norm's result goes elsewhere, too."""

    def forward(self, x):
        y = self.norm(x)
        return y + self.down_proj(torch.nn.functional.silu(self.gate_proj(y)) * self.up_proj(y))


def scaled(block, batch):
    """What scale_block changes: names of the layers whose weights are others."""
    recorder = calibrate.Recorder(block, torch.device("cpu"))
    block(batch)
    recorder.close()
    weights = {name: m.weight.detach().float() for name, m in block.named_modules() if isinstance(m, torch.nn.Linear)}
    before = dict(weights)
    hessians = {name: moment.hessian for name, moment in recorder.moments.items()}

    def rounder(w, importance):
        return round_nearest(w, importance, format_of("u3"), 32, True, HALF).weights()

    rounders = dict.fromkeys(weights, rounder)
    _awq.scale_block(block, ((batch,), {}), recorder.moments, weights, hessians, rounders)
    return {name for name in weights if not torch.equal(weights[name], before[name])}, hessians


def outlying(rows, k):
    x = torch.randn(rows, k)
    x[:, :3] *= 10
    return x


@torch.no_grad()
@pytest.mark.parametrize("norm", [torch.nn.RMSNorm, torch.nn.LayerNorm, OffsetNorm])
def test_scaling_is_exact(norm):
    torch.manual_seed(5)
    block, x = Block(norm(64)), outlying(64, 64)
    y = block(x)
    changed, hessians = scaled(block, x)
    assert changed >= {"gate_proj", "up_proj"}
    assert torch.allclose(block(x), y, rtol=1e-4, atol=1e-4)
    inputs = block.norm(x)
    assert torch.allclose(hessians["up_proj"], inputs.t() @ inputs, rtol=1e-3, atol=1e-2)


@torch.no_grad()
def test_what_is_not_exact_stays():
    torch.manual_seed(6)
    block, x = SharedBlock(torch.nn.RMSNorm(64)), outlying(64, 64)
    weight = block.norm.weight.clone()
    changed, _ = scaled(block, x)
    assert "gate_proj" not in changed and torch.equal(block.norm.weight, weight)


# ---- models ----


class Stack(torch.nn.Module):
    """Blocks, and a head."""

    def __init__(self, count=3):
        super().__init__()
        self.layers = torch.nn.ModuleList(Block(torch.nn.RMSNorm(64)) for _ in range(count))
        self.head = torch.nn.Linear(64, 40, bias=False)

    def forward(self, x):
        for layer_ in self.layers:
            x = layer_(x)
        return self.head(x)


def stack(seed=0, dtype=HALF):
    torch.manual_seed(seed)
    return Stack().to(dtype), outlying(8 * 12, 64).view(8, 12, 64).to(dtype)


@torch.no_grad()
@pytest.mark.parametrize("method, part", [("gptq", 0.85), ("awq", 0.98), ("gptq+awq", 0.85)])
def test_a_model(method, part):
    model, x = stack()
    exact = model.float()(x.float())
    errors = []
    for data in ([x[:4], x[4:]], None):
        model, _ = stack()
        tilusvm.quantize_(model, "u3", 32, zeros=True, calibrate=data, method=method, progress=False)
        assert isinstance(model.head, nn.Linear) and isinstance(model.layers[2].down_proj, nn.Linear)
        errors.append(float((model(x).float() - exact).norm() / exact.norm()))
    assert errors[0] < part * errors[1]


@torch.no_grad()
def test_one_block_at_a_time():
    """The moments of a block are there while it is quantized, those of others are not; and each block gets the results
    of the quantized ones before it."""
    model, x = stack()
    counts, inputs = [], {}

    def progress(done, total, name):
        counts.append(sum(type(each) is calibrate.Moment for each in gc.get_objects()))

    original = calibrate.Moment.add

    def add(self, x):
        inputs[len(inputs)] = x
        original(self, x)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calibrate.Moment, "add", add)
        tilusvm.quantize_(model, "u2", 32, calibrate=calibrate.Calibration([x], rows=8), progress=progress)
    assert max(counts) == 2  # of gate and up, and of down
    model = model.float()
    exact = model.layers[0].norm(model.layers[0].half()(x).float())
    assert torch.allclose(inputs[2].float(), exact, atol=0.05)


@torch.no_grad()
def test_rows_change_nothing():
    """How many sequences run at a time."""
    made = []
    for rows in (1, 3, 8):
        model, x = stack(dtype=torch.float32)
        tilusvm.quantize_(model, "u4", 32, calibrate=calibrate.Calibration([x], rows=rows), progress=False)
        made.append(model)
    for other in made[1:]:
        for a, b in zip(made[0].buffers(), other.buffers()):
            assert (a != b).float().mean() < 0.02  # sums come in another order


@torch.no_grad()
def test_a_layer_by_itself_and_shared_ones():
    torch.manual_seed(1)
    linear = torch.nn.Linear(64, 64)
    model = torch.nn.Sequential(linear, torch.nn.ReLU(), linear).half()
    x = torch.randn(32, 64).half()
    exact = model(x)
    tilusvm.quantize_(model, "u8", 32, calibrate=[x], progress=False)
    assert model[0] is model[2] and isinstance(model[0], nn.Linear)
    assert float((model(x) - exact).norm() / exact.norm()) < 0.01


@torch.no_grad()
def test_what_the_data_do_not_reach():
    model, x = stack()
    model.other = torch.nn.Linear(64, 64).half()
    with pytest.warns(UserWarning, match="do not reach other$"):
        tilusvm.quantize_(model, "u4", 32, calibrate=[x], progress=False)
    assert isinstance(model.other, nn.Linear)
    assert "forward" not in model.layers[0].__dict__


@torch.no_grad()
def test_what_is_not_finite():
    model, x = stack()
    model.layers[1].up_proj.weight[3, 5] = float("nan")
    with pytest.raises(ValueError, match=r"weight\[3, 5\] is nan: weights must be finite") as raised:
        tilusvm.quantize_(model, "u4", 32, calibrate=[x], progress=False)
    assert raised.value.__notes__ == ["in the module layers.1.up_proj"]
    model, x = stack()
    x[0, 0, 0] = float("inf")
    with pytest.raises(ValueError, match="activations of the calibration's data are not finite"):
        tilusvm.quantize_(model, "u4", 32, calibrate=[x], progress=False)


def test_moments_that_rounding_has_spoiled():
    """Of rank 1, with an eigenvalue that is negative, larger than damping cures."""
    w, x = layer(8, 64)
    hessian = x[:1].t() @ x[:1] - 0.1 * torch.eye(64)
    ours = gptq(w, hessian, format_of("u4"), 32, True, HALF, damping=1e-6).weights()
    assert torch.isfinite(ours).all()


@torch.no_grad()
def test_mappings_of_types_and_skipped_layers():
    model, x = stack()
    kinds = {"*.down_proj": "i5", "*_proj": "f4_e2m1"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tilusvm.quantize_(model, kinds, 32, skip=["head"], calibrate=[x], method="gptq+awq", progress=False)
    assert model.layers[1].down_proj.type == "i5" and model.layers[1].up_proj.type == "f4_e2m1"
    assert type(model.head) is torch.nn.Linear


@pytest.mark.transformers
@torch.no_grad()
@pytest.mark.parametrize("family", ["qwen3_moe", "gpt_oss"])
def test_experts(family):
    """Each for its own tokens."""
    pytest.importorskip("transformers", reason="transformers cannot be imported")
    from decoder_kit import FAMILIES, tiny_model

    words = {"num_local_experts": 3} if family == "gpt_oss" else {"num_experts": 3, "moe_intermediate_size": 64}
    words |= {"num_experts_per_tok": 2, "num_hidden_layers": 1, "intermediate_size": 64}
    ids, errors = torch.randint(2, 120, (8, 16), generator=torch.Generator().manual_seed(1)), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(FAMILIES, family, {})
        exact = tiny_model(family, dtype=torch.float32, **words)
        for parameter in exact.parameters():  # stacks, which the kit leaves small
            parameter.data.normal_(std=0.2, generator=torch.Generator().manual_seed(parameter.numel()))
        for data in ([ids], None):
            model = tiny_model(family, dtype=torch.float32, **words)
            model.load_state_dict(exact.state_dict())
            seen, experts = [], model.model.layers[0].mlp.experts
            experts.register_forward_pre_hook(lambda module, args: seen.append(args))
            model(ids)
            given = seen[0]
            theirs = experts(*given)
            tilusvm.quantize_(
                model, {"*.experts.*": "u3"}, 32, zeros=True, calibrate=data, progress=False, dtype=HALF
            )  # fmt: skip
            made = model.model.layers[0].mlp.experts
            assert isinstance(made, tilusvm.experts.MixtureOfExperts) and made.down_proj.type == "u3"
            ours = made(given[0].half(), given[1], given[2])
            errors.append(float((ours.float() - theirs).norm() / theirs.norm()))
    assert errors[0] < 0.8 * errors[1]


# ---- data ----


def test_windows():
    def words(text):
        return {"input_ids": [int(word) for word in text.split()]}

    text = " ".join(map(str, range(23)))
    assert calibrate.windows(words, text, 5).tolist() == [list(range(5 * i, 5 * i + 5)) for i in range(4)]
    assert calibrate.windows(words, text, 5, 2)[:, 0].tolist() == [0, 15]
    with pytest.raises(ValueError, match="the text has 23 tokens, fewer than the 24 of a window"):
        calibrate.windows(words, text, 24)
    inputs = calibrate.Calibration((words, text), samples=3, length=4).inputs
    assert inputs.shape == (3, 4)


@pytest.mark.parametrize(
    "data, words, kind, message",
    [
        ([], {}, ValueError, "calibrate has no batches"),
        ("text", {}, TypeError, "calibrate must be batches, or a tokenizer and a text, not str"),
        (3, {}, TypeError, "not int"),
        (["text"], {}, ValueError, "must be tensors"),
        ([[[1, 2]], [[1, 2, 3]]], {}, ValueError, "of one shape but for the number of sequences"),
        ([[[1]]], {"method": "rtn"}, ValueError, "method must be gptq, awq or gptq"),
        ([[[1]]], {"damping": 0}, ValueError, "damping must be between 0 and 1"),
        ([[[1]]], {"passes": -1}, ValueError, "passes must be a number of 0 at least"),
    ],
)
def test_bad_calibrations(data, words, kind, message):
    with pytest.raises(kind, match=message):
        calibrate.Calibration(data, **words)


def test_calibration_finds_importance_itself():
    model, x = stack()
    with pytest.raises(ValueError, match="goes without importance and scales"):
        tilusvm.quantize_(model, calibrate=[x], scales="absmax")

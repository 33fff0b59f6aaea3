"""Linear attention, state space models and their convolution against recurrences in f64, and models of transformers."""

import functools
import math

import pytest
from conftest import NO_TORCH, torch

if torch is None:
    pytest.skip(NO_TORCH, allow_module_level=True)

from torch_kit import DEVICES, close  # noqa: E402

from tilusvm import ops  # noqa: E402

F = torch.nn.functional
HALF, BFLOAT, FLOAT = torch.float16, torch.bfloat16, torch.float32
ROUNDING = {HALF: 1e-3, BFLOAT: 8e-3, FLOAT: 1e-5}
LENGTHS = [65, 0, 1, 63, 130]  # within chunks, whole ones, none


@pytest.fixture(params=DEVICES)
def device(request):
    torch.manual_seed(21)
    return request.param


def starts_of(lengths, device):
    return F.pad(torch.tensor(lengths, device=device).cumsum(0), (1, 0)).int()


def pieces(starts):
    return [slice(*starts[i : i + 2].tolist()) for i in range(len(starts) - 1)]


def numbers(values, device):
    return torch.tensor(values, dtype=torch.int32, device=device)


# ---- the gated delta rule ----


def delta(q, k, v, g, beta, state, normalize):
    """Token by token in f64: the output, and the state behind each token."""
    q, k, v, g, beta, state = (t.double() for t in (q, k, v, g, beta, state))
    if normalize:
        q, k = (t / (t.square().sum(-1, keepdim=True) + 1e-6).sqrt() for t in (q, k))
    q, k = (t.repeat_interleave(v.shape[1] // t.shape[1], 1) for t in (q, k))
    out, states = [], []
    for t in range(len(v)):
        state = state * g[t].exp()[:, None, None]
        change = beta[t][:, None] * (v[t] - torch.einsum("hkv,hk->hv", state, k[t]))
        state = state + k[t][:, :, None] * change[:, None]
        out.append(torch.einsum("hkv,hk->hv", state, q[t]) / math.sqrt(q.shape[-1]))
        states.append(state)
    return out, states


def delta_inputs(device, dtype, lengths, key_heads, heads, d, dv, state_dtype=FLOAT):
    n = sum(lengths)
    q, k = (torch.randn(n, key_heads, d, device=device).to(dtype) for _ in range(2))
    v = torch.randn(n, heads, dv, device=device).to(dtype)
    g, beta = -torch.rand(n, heads, device=device), torch.rand(n, heads, device=device)
    state = torch.randn(len(lengths) + 2, heads, d, dv, device=device).to(state_dtype)
    return q, k, v, g, beta, starts_of(lengths, device), state


def check_delta(inputs, normalize, tolerance, few, lengths=LENGTHS):
    q, k, v, g, beta, starts, state = inputs
    device, first = q.device, state.clone()
    reads = numbers([-1, *range(1, len(lengths))], device)
    writes = numbers([*range(len(lengths) - 1), -1], device)
    if few:
        out = ops.gated_delta_update(
            q, k, v, g, beta, starts, reads, writes.view(-1, 1), state, normalize=normalize
        )
    else:
        out = ops.gated_delta(q, k, v, g, beta, starts, reads, writes, state, longest=130, normalize=normalize)
    expected = first.double()
    for i, own in enumerate(pieces(starts)):
        before = first[reads[i]] if reads[i] >= 0 else torch.zeros_like(first[0])
        rows, states = delta(q[own], k[own], v[own], g[own], beta[own], before, normalize)
        if rows:
            close(out[own], torch.stack(rows), tolerance)
        if rows and writes[i] >= 0:
            expected[writes[i]] = states[-1]
    close(state, expected, max(tolerance, ROUNDING[state.dtype]))
    assert torch.equal(state[len(lengths) - 1 :], first[len(lengths) - 1 :])  # slots that nobody writes


@pytest.mark.parametrize("few", [True, False])
@pytest.mark.parametrize("dtype, key_heads, heads, d, dv", [(HALF, 1, 3, 128, 128), (BFLOAT, 2, 2, 64, 128)])
def test_gated_delta(device, dtype, key_heads, heads, d, dv, few):
    inputs = delta_inputs(device, dtype, LENGTHS, key_heads, heads, d, dv)
    check_delta(inputs, True, 2 * ROUNDING[dtype], few)


@pytest.mark.parametrize("few", [True, False])
def test_gated_delta_of_extreme_decays(device, few):
    """Nothing is forgotten, or everything at once; keys are alike, which is hard on the inverse."""
    q, k, v, g, beta, starts, state = delta_inputs(device, HALF, LENGTHS, 1, 2, 64, 64, HALF)
    k = F.normalize(torch.randn(64, device=device) + 0.1 * k.float(), dim=-1).to(HALF)
    g[:, 0], beta[:, 0] = 0.0, 1.0
    g[::5, 1], g[1::5, 1], g[2::5, 1] = -math.inf, -1e30, -80.0
    check_delta((q, k, v, g, beta, starts, state), False, 4e-3, few)


@pytest.mark.parametrize("few", [True, False])
def test_sequences_do_not_mix(device, few):
    """What is not a number stays in its sequence."""
    q, k, v, g, beta, starts, state = delta_inputs(device, HALF, [70, 3], 1, 1, 64, 64)
    for t in (q, k, v, g):
        t[70:] = math.nan
    reads = writes = numbers([0, 1], device)
    update = ops.gated_delta_update if few else ops.gated_delta
    options = {} if few else {"longest": 70}
    out = update(q, k, v, g, beta, starts, reads, writes.view(-1, 1) if few else writes, state, normalize=True,
                 **options)  # fmt: skip
    assert out[:70].isfinite().all() and state[0].isfinite().all() and out[70:].isnan().all()


def test_drafts_leave_the_state_behind_each_token(device):
    q, k, v, g, beta, starts, state = delta_inputs(device, BFLOAT, [4, 2], 1, 2, 128, 128)
    state = torch.cat([state, state, state])
    reads, writes = numbers([0, 1], device), numbers([[2, 3, 4, 0], [-7, 8, 5, -1]], device)
    first = state.clone()
    ops.gated_delta_update(q, k, v, g, beta, starts, reads, writes, state, normalize=True)
    for i, own in enumerate(pieces(starts)):
        _, states = delta(q[own], k[own], v[own], g[own], beta[own], first[i], True)
        for slot, expected in zip(writes[i][-len(states) :].tolist(), states):
            if slot >= 0:
                close(state[slot], expected, 1e-5)
    assert torch.equal(state[8], first[8]) and torch.equal(state[1], first[1])


# ---- state space models ----


def space(x, dt, a, b, c, state, d, bias, z, softplus, limits):
    x, dt, a, b, c, state = (t.double() for t in (x, dt, a, b, c, state))
    b, c = (t.repeat_interleave(x.shape[1] // t.shape[1], 1) for t in (b, c))
    dt = dt if bias is None else dt + bias.double()
    dt = (F.softplus(dt, threshold=50) if softplus else dt).clamp(*limits)
    out, states = [], []
    for t in range(len(x)):
        state = state * (dt[t] * a).exp()[:, None, None] + (dt[t][:, None] * x[t])[:, :, None] * b[t][:, None]
        y = torch.einsum("hpn,hn->hp", state, c[t])
        y = y if d is None else y + d.double()[:, None] * x[t]
        out.append(y if z is None else y * F.silu(z[t].double()))
        states.append(state)
    return out, states


@pytest.mark.parametrize("lengths", [LENGTHS, [3, 1, 0, 8]])
@pytest.mark.parametrize(
    "dtype, groups, heads, p, n, options", [(HALF, 1, 3, 64, 128, True), (BFLOAT, 2, 2, 32, 64, False)]
)
def test_state_space(device, dtype, groups, heads, p, n, options, lengths):
    tokens, slots = sum(lengths), len(lengths) + 1
    x, z = (torch.randn(tokens, heads, p, device=device).to(dtype) for _ in range(2))
    b, c = (torch.randn(tokens, groups, n, device=device).to(dtype) for _ in range(2))
    dt = torch.randn(tokens, heads, device=device).to(dtype) if options else torch.rand(tokens, heads, device=device)
    a, d, bias = -torch.rand(heads, device=device) * 4, *(torch.randn(heads, device=device) for _ in "db")
    a[0] = -1e30 if options else 0.0
    more = (d, bias, z) if options else (None, None, None)
    limits = (0.01, 1.5) if options else (0.0, math.inf)
    state = torch.randn(slots, heads, p, n, device=device)
    first, starts = state.clone(), starts_of(lengths, device)
    reads, writes = numbers([*range(1, slots - 1), -1], device), numbers([*range(1, slots - 1), 0], device)
    y = ops.state_space(
        x, dt, a, b, c, starts, reads, writes.view(-1, 1), state, *more, softplus=options, least=limits[0],
        most=limits[1],
    )  # fmt: skip
    expected = first.double()
    for i, own in enumerate(pieces(starts)):
        before = first[reads[i]] if reads[i] >= 0 else torch.zeros_like(first[0])
        own_more = (*more[:2], None if z is None or not options else z[own])
        rows, states = space(x[own], dt[own], a, b[own], c[own], before, *own_more, options, limits)
        if rows:
            close(y[own], torch.stack(rows), 2 * ROUNDING[dtype])
            expected[writes[i]] = states[-1]
    close(state, expected, 2 * ROUNDING[dtype] if max(lengths) > 8 else 1e-5)


# ---- the convolution and the norm ----


@pytest.mark.parametrize("dtype, taps, bias, activation", [(HALF, 4, True, "silu"), (FLOAT, 2, False, "none")])
def test_causal_conv(device, dtype, taps, bias, activation):
    lengths, channels = [65, 0, 1, 3, 2, 40], 72
    tokens = sum(lengths)
    x, w = torch.randn(tokens, channels, device=device).to(dtype), torch.randn(channels, taps, device=device).to(dtype)
    shift = torch.randn(channels, device=device).to(dtype) if bias else None
    state = torch.randn(12, taps - 1, channels, device=device).to(dtype)
    first, starts = state.clone(), starts_of(lengths, device)
    reads = numbers([0, 1, 2, 3, -1, 5], device)
    writes = numbers([[6, 0], [7, 1], [8, 2], [9, 3], [10, 4], [-1, 5]], device)
    y = ops.causal_conv(x, w, starts, reads, writes, state, shift, longest=65, activation=activation)
    expected = first.clone()
    for i, own in enumerate(pieces(starts)):
        before = first[reads[i]] if reads[i] >= 0 else torch.zeros_like(first[0])
        line = torch.cat([before, x[own]])
        if not lengths[i]:
            continue
        product = F.conv1d(line.double().t()[None], w.double()[:, None], None, groups=channels)[0].t()
        product = product if shift is None else product + shift.double()
        close(y[own], F.silu(product) if activation == "silu" else product, ROUNDING[dtype])
        for back, slot in enumerate(reversed(writes[i].tolist())):
            if slot >= 0 and back < lengths[i]:
                end = len(line) - back
                expected[slot] = line[end - taps + 1 : end]
    assert torch.equal(state, expected)


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("dtype", list(ROUNDING))
def test_gated_rms_norm(device, dtype, first):
    for n in (72, 77):
        x, gate, weight = (torch.randn(*s, n, device=device).to(dtype) for s in ((2, 3), (2, 3), ()))
        act, d = F.silu(gate.double()), x.double()
        norm = F.rms_norm(d * act if first else d, (n,), weight.double(), 1e-5)
        close(ops.gated_rms_norm(x, gate, weight, 1e-5, first), norm if first else norm * act, ROUNDING[dtype])


def test_bad_arguments_are_named():
    q, k, v, g, beta, starts, state = delta_inputs("cpu", HALF, [3], 2, 4, 64, 64)
    slot = numbers([0], "cpu")
    rule = functools.partial(ops.gated_delta, k=k, g=g, beta=beta, starts=starts, reads=slot, writes=slot, state=state)
    with pytest.raises(ValueError, match="q must have heads of 64 or 128 elements, not 32"):
        rule(q[..., :32].contiguous(), v=v, longest=3)
    with pytest.raises(ValueError, match="the heads of v, 3, must be a multiple of those of q, 2"):
        rule(q, v=v[:, :3].contiguous(), longest=3)
    with pytest.raises(TypeError, match="q must be torch.float16 or torch.bfloat16"):
        rule(q.float(), v=v, longest=30)
    x, w = torch.randn(3, 12).half(), torch.randn(12, 4).half()
    with pytest.raises(ValueError, match="x must have a multiple of 8 columns, not 12"):
        ops.causal_conv(x, w, starts, slot, slot.view(1, 1), torch.zeros(1, 3, 12).half(), longest=3)
    with pytest.raises(ValueError, match="x must have 6128 columns at most"):
        ops.gated_rms_norm(*(torch.zeros(1, 7001).half() for _ in range(2)), torch.zeros(7001).half())
    with pytest.raises(ValueError, match="b must have 64 or 128 columns, not 32"):
        b = torch.zeros(3, 1, 32).half()
        ops.state_space(v, g, g[0].clone(), b, b, starts, slot, slot.view(1, 1), torch.zeros(1, 4, 64, 32))


# ---- models of transformers ----

MIXED = {
    "qwen3_next": dict(
        linear_num_value_heads=4, linear_num_key_heads=2, linear_key_head_dim=64, linear_value_head_dim=64,
        num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32, shared_expert_intermediate_size=32,
        num_hidden_layers=3, layer_types=["linear_attention", "full_attention", "linear_attention"],
    ),
    "mamba2": dict(num_heads=4, head_dim=64, state_size=64, n_groups=2, hidden_size=128, expand=2, chunk_size=32),
}  # fmt: skip
GREEDY = {"max_new_tokens": 4, "do_sample": False, "eos_token_id": None}


@pytest.mark.transformers
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", MIXED)
def test_models(device, family):
    """Whole prompts, tokens behind them, and padding, which stays torch's; the parts that are taken are told."""
    transformers = pytest.importorskip("transformers", reason="transformers cannot be imported")
    from decoder_kit import padded, tiny_model, tokens_of

    from tilusvm.transformers import accelerate_

    transformers.logging.set_verbosity_error()
    with torch.no_grad():
        ours = accelerate_(tiny_model(family, device, **MIXED[family]))
        half, exact = tiny_model(family, device, **MIXED[family]), tiny_model(family, device, **MIXED[family]).float()
        kinds = {"qwen3_next": "gated delta rule", "mamba2": "state space models"}
        taken = [entry.name for entry in ours.tilusvm_report if entry.taken and kinds[family] in entry.why]
        assert len(taken) == 2 and type(ours).__name__ == type(half).__name__
        for lengths in ([70], [33, 33], [9, 20]):
            ids, mask = padded(tokens_of(*lengths), device)
            words = {"attention_mask": mask} if len(set(lengths)) > 1 else {}
            found, theirs, wanted = (
                model(ids, **words).logits[mask.bool()].double() for model in (ours, half, exact)
            )
            error, allowed = ((each - wanted).norm() / wanted.norm() for each in (found, theirs))
            assert error <= 2 * allowed + 1e-3, (lengths, error, allowed)
        ids = torch.tensor(tokens_of(40, 40), device=device)
        tokens = ours.generate(ids, **GREEDY)
        logits = exact(tokens).logits[:, 39:-1]
        chosen = logits.gather(-1, tokens[:, 40:, None])[..., 0]
        assert (logits.amax(-1) - chosen <= 0.04 * logits.abs().amax(-1)).all()

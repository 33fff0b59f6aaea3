"""The operators of linear attention, of state space models and of the convolution before them: see ops."""

from __future__ import annotations

import math

from ._torch import torch

from ._registry import FLOATS, HALVES, need, operator

#: Tokens of a chunk.
CHUNK = 64
#: Tokens of the longest sequence up to which gated_delta goes token by token.
FEW = 16


def _check_heads(op, name, tensor, shared, shared_name):
    """ValueError where the heads of a tensor [tokens, heads, n] do not share those of another."""
    if not tensor.shape[1] or not shared.shape[1] or tensor.shape[1] % shared.shape[1]:
        raise ValueError(
            f"{op}: the heads of {name}, {tensor.shape[1]}, must be a multiple of those of {shared_name}, "
            f"{shared.shape[1]}"
        )


# ---- the gated delta rule ----


def _check_rule(op, q, name, v):
    need(op, "q", q, dtype=HALVES, dim=3)
    need(op, name, v, dtype=q.dtype, dim=3)
    for one, n in (("q", q.shape[2]), (name, v.shape[2])):
        if n not in (64, 128):
            raise ValueError(f"{op}: {one} must have heads of 64 or 128 elements, not {n}")
    _check_heads(op, name, v, q, "q")


def _check_delta(op, q, v):
    _check_rule(op, q, "v", v)


#: Of the programs of the gated delta rule.
_DELTA = {
    "T": ("q", HALVES), "D": lambda q: q.shape[2], "DV": lambda v: v.shape[2], "NORM": "normalize",
    "scale": lambda q, scale: q.shape[-1] ** -0.5 if scale is None else scale, "check": _check_delta,
    "tensors_first": True,
}  # fmt: skip


@operator("gated_delta", "gated_delta_update", **_DELTA, STYPE=("state", FLOATS), writes=("state",))
def gated_delta_update(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor, beta: torch.Tensor, starts: torch.Tensor,
    reads: torch.Tensor, writes: torch.Tensor, state: torch.Tensor, *, scale: float | None = None,
    normalize: bool = False,
) -> torch.Tensor:  # fmt: skip
    """The gated delta rule token by token, of ragged sequences: out [tokens, heads, dv], and the states, in place.

    Of each token S = e^g S; S += k (beta (v - S^T k))^T; out = scale S^T q. q, k: halves [tokens, key_heads, d]; v: of
    their type, [tokens, heads, dv], heads a multiple of key_heads, d and dv 64 or 128; g, beta: f32 [tokens, heads];
    starts: i32 [sequences + 1], where each sequence begins, and the last ends; state: a float [slots, heads, d, dv].
    Sequence b begins with the state of slot reads[b], i32 [sequences], or with zeros where that is negative, and the
    states behind its last `kept` tokens go to the slots writes[b], i32 [sequences, kept], the last one to the last;
    negative: nowhere. A slot is written by one sequence, and read by no other. normalize: q and k are divided by their
    lengths first, sqrt(sum x^2 + 1e-6). scale: 1 / sqrt(d) when None.
    """


@operator("gated_delta", "gated_delta_chunks", **_DELTA)
def gated_delta_chunks(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor, beta: torch.Tensor, starts: torch.Tensor, *,
    longest: int, scale: float | None = None, normalize: bool = False,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """What gated_delta_states needs to know of chunks of 64 tokens: (w, u, a, factors).

    Arguments as for gated_delta_update; longest: no sequence has more tokens. w: [tokens, heads, d], u: [tokens, heads,
    dv], a: [tokens, heads, 64], of q's type; factors: f32 [tokens, heads, 3].
    """


def _check_states(op, q, u):
    _check_rule(op, q, "u", u)


@operator(
    "gated_delta", "gated_delta_states", T=("q", HALVES), D=lambda q: q.shape[2], DV=lambda u: u.shape[2],
    STYPE=("state", FLOATS), writes=("state",), check=_check_states, tensors_first=True,
)  # fmt: skip
def gated_delta_states(
    q: torch.Tensor, k: torch.Tensor, w: torch.Tensor, u: torch.Tensor, a: torch.Tensor, factors: torch.Tensor,
    starts: torch.Tensor, reads: torch.Tensor, writes: torch.Tensor, state: torch.Tensor,
) -> torch.Tensor:  # fmt: skip
    """The gated delta rule chunk by chunk: what gated_delta_update gives, by w, u, a and factors of gated_delta_chunks.

    q, k: as given there, [tokens, key_heads, d]; w: [tokens, heads, d]; u: [tokens, heads, dv]; a: [tokens, heads, 64];
    factors: f32 [tokens, heads, 3]; starts, reads, state: as for gated_delta_update; writes: i32 [sequences], the slot
    of the state behind the last token, or negative.
    """


def gated_delta(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor, beta: torch.Tensor, starts: torch.Tensor,
    reads: torch.Tensor, writes: torch.Tensor, state: torch.Tensor, *, longest: int, scale: float | None = None,
    normalize: bool = False,
) -> torch.Tensor:  # fmt: skip
    """gated_delta_update, or for sequences of more than FEW tokens gated_delta_chunks and gated_delta_states.

    longest: no sequence has more tokens; the rest as for gated_delta_update, but writes: i32 [sequences].
    """
    if longest <= FEW:
        writes = writes.view(-1, 1)
        return gated_delta_update(q, k, v, g, beta, starts, reads, writes, state, scale=scale, normalize=normalize)
    parts = gated_delta_chunks(q, k, v, g, beta, starts, longest=longest, scale=scale, normalize=normalize)
    return gated_delta_states(q, k, *parts, starts, reads, writes, state)


# ---- state space models ----


def _check_space(op, x, b):
    need(op, "x", x, dtype=HALVES, dim=3)
    need(op, "b", b, dtype=x.dtype, dim=3)
    if x.shape[2] not in (32, 64, 128):
        raise ValueError(f"{op}: x must have heads of 32, 64 or 128 elements, not {x.shape[2]}")
    if b.shape[2] not in (64, 128):
        raise ValueError(f"{op}: b must have 64 or 128 columns, not {b.shape[2]}")
    _check_heads(op, "x", x, b, "b")


@operator(
    "state_space", T=("x", HALVES), DTYPE=("dt", FLOATS), STYPE=("state", FLOATS), P=lambda x: x.shape[2],
    N=lambda b: b.shape[2], SKIP="d", BIAS="bias", GATE="z", SOFTPLUS="softplus",
    most=lambda most: math.inf if most is None else most, writes=("state",),
    check=_check_space, tensors_first=True,
)  # fmt: skip
def state_space(
    x: torch.Tensor, dt: torch.Tensor, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, starts: torch.Tensor,
    reads: torch.Tensor, writes: torch.Tensor, state: torch.Tensor, d: torch.Tensor | None = None,
    bias: torch.Tensor | None = None, z: torch.Tensor | None = None, *, softplus: bool = False, least: float = 0.0,
    most: float | None = None,
) -> torch.Tensor:  # fmt: skip
    """The state space model of Mamba 2, of ragged sequences: y as x, and the states, in place.

    Of each token S = e^(dt a) S + (dt x) b^T; y = S c + d x, times silu(z) with z. x, z: halves [tokens, heads, p], p
    32, 64 or 128; dt: f32 or of x's type, [tokens, heads]; a, d, bias: f32 [heads]; b, c: of x's type, [tokens, groups,
    n], n 64 or 128, heads a multiple of groups; state: a float [slots, heads, p, n]. dt is dt + bias, softplus of it
    with softplus, and from least to most (None: no limit). starts, reads, writes: as for gated_delta_update.
    """


# ---- the convolution before them ----


def _check_conv(op, x, w, activation):
    need(op, "x", x, dtype=FLOATS, dim=2)
    need(op, "w", w, dtype=x.dtype, dim=2)
    if not 2 <= w.shape[1] <= 4:
        raise ValueError(f"{op}: w must have 2 to 4 columns, not {w.shape[1]}")
    run = 16 // x.element_size()
    if not x.shape[1] or x.shape[1] % run:
        raise ValueError(f"{op}: x must have a multiple of {run} columns, not {x.shape[1]}")


@operator(
    "causal_conv", T=("x", FLOATS), TAPS=lambda w: w.shape[1], BIAS="bias", ACT=("activation", ("silu", "none")),
    shapes=lambda constants: {f"{constants['TAPS']} - 1": f"{constants['TAPS'] - 1}"}, writes=("state",),
    check=_check_conv, tensors_first=True,
)  # fmt: skip
def causal_conv(
    x: torch.Tensor, w: torch.Tensor, starts: torch.Tensor, reads: torch.Tensor, writes: torch.Tensor,
    state: torch.Tensor, bias: torch.Tensor | None = None, *, longest: int, activation: str = "silu",
) -> torch.Tensor:  # fmt: skip
    """Each channel's sum of the newest inputs of ragged sequences by weights, and its activation: y as x.

    x: a float [tokens, channels]; w: of its type, [channels, taps], taps 2 to 4, the last one that of the token itself;
    bias: [channels]; longest: no sequence has more tokens; activation: silu or none; state: [slots, taps - 1, channels]
    of x's type, the inputs before a token, written in place. starts, reads, writes: as for gated_delta_update.
    """

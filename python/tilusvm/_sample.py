"""The operator that draws tokens: see ops."""

from __future__ import annotations

import math

from ._registry import FLOATS, ROWS, check_row, operator
from ._torch import torch


def _is_integer(value):
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def check_sampling(op: str, temperature, top_k, top_p, seed):
    """TypeError or ValueError where tokens cannot be drawn so."""
    if not _is_number(temperature) or not _is_number(top_p):
        name, value = ("top_p", top_p) if _is_number(temperature) else ("temperature", temperature)
        raise TypeError(f"{op}: {name} must be a number, not {value!r}")
    if not 0 <= temperature < math.inf:
        raise ValueError(f"{op}: temperature must be a finite number from 0, not {temperature!r}")
    if not 0 < top_p <= 1:
        raise ValueError(f"{op}: top_p must be above 0 and at most 1, which leaves all, not {top_p!r}")
    if not _is_integer(top_k) or not _is_integer(seed):
        name, value = ("seed", seed) if _is_integer(top_k) else ("top_k", top_k)
        raise TypeError(f"{op}: {name} must be an integer, not {value!r}")
    if top_k < 0:
        raise ValueError(f"{op}: top_k must be a number of tokens from 1, or 0 for all, not {top_k!r}")
    if not 0 <= seed < 1 << 63:
        raise ValueError(f"{op}: seed must be from 0 to 2^63 - 1, not {seed!r}")


def _check_sample(op, logits, temperature, top_k, top_p, seed, offset):
    check_row(op, logits, "logits")
    check_sampling(op, temperature, top_k, top_p, seed)
    if not _is_integer(offset) or not 0 <= offset < 1 << 63:
        raise ValueError(f"{op}: offset must be an integer from 0 to 2^63 - 1, not {offset!r}")


def _top_k(logits, temperature, top_k, top_p, seed):
    """The constant of the program; checks what the kernel does not."""
    check_sampling("sample", temperature, top_k, top_p, seed)
    return top_k if top_k < logits.shape[-1] else 0


@operator(
    "sample", T=("logits", FLOATS), TOPK=_top_k, shapes=ROWS, check=_check_sample,
    programs=64,  # one for each top_k, which callers choose
)  # fmt: skip
def sample(
    logits: torch.Tensor, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, seed: int = 0, offset: int = 0,
) -> torch.Tensor:  # fmt: skip
    """A token for each row of logits, a float [..., n], n up to 2^20: i32 [...].

    Of softmax(logits / temperature) top_k leaves the tokens of the top_k greatest logits, 0: all; top_p, above 0 and at
    most 1, of these the fewest whose probabilities add up to top_p of theirs; tokens that are as likely as the last of
    them are left, too. temperature 0 takes the greatest logit. Row i is drawn by the random number offset + i of the
    seed, whatever the other rows are: the next call's offset is offset + rows, or beyond. A top_k is a program of its
    own, which is compiled when it is first used. A CUDA graph replays the seed and the offset that it was captured
    with: draw behind it.
    """


def _check_probabilities(op, logits, temperature, top_k, top_p):
    check_row(op, logits, "logits")
    check_sampling(op, temperature, top_k, top_p, 0)


@operator(
    "probabilities", T=("logits", FLOATS), shapes=ROWS, check=_check_probabilities, programs=64,
    TOPK=lambda logits, temperature, top_k, top_p: _top_k(logits, temperature, top_k, top_p, 0),
)  # fmt: skip
def probabilities(
    logits: torch.Tensor, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0,
) -> torch.Tensor:  # fmt: skip
    """Those by which sample draws a token of each row of logits, a float [..., n], n up to 2^20: f32 [..., n], 0 of
    tokens that are not left."""


def _check_accept(op, p, drafted, q, seed, offset):
    if p.dim() != 3 or not 1 <= p.shape[-1] <= 1 << 20:
        raise ValueError(f"{op}: p must be [m, k + 1, n], n from 1 to 2^20, not {list(p.shape)}")
    if drafted.dim() != 2 or (drafted.shape[0], drafted.shape[1] + 1) != p.shape[:2]:
        raise ValueError(
            f"{op}: drafted must be [{p.shape[0]}, {p.shape[1] - 1}], a place less than p, not {list(drafted.shape)}"
        )
    check_sampling(op, 1.0, 0, 1.0, seed)
    if not _is_integer(offset) or not 0 <= offset < 1 << 63:
        raise ValueError(f"{op}: offset must be an integer from 0 to 2^63 - 1, not {offset!r}")


@operator("accept", CHANCES="q", check=_check_accept)
def accept(
    p: torch.Tensor, drafted: torch.Tensor, q: torch.Tensor | None = None, seed: int = 0, offset: int = 0,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Which of the drafted tokens are kept, and the token behind them: tokens i32 [m, k + 1], kept i32 [m].

    p: f32 [m, k + 1, n], a model's probabilities at each of k places of m rows and behind the last; drafted: i32 [m,
    k], a token each, below 0 where there is none; q: f32 [m, k, n], the probabilities by which they were drafted, None:
    each was certain. A token x is kept with the probability min(1, p(x) / q(x)), if all before it are; the one behind
    them is drawn from max(p - q, 0), or from p behind the last: so tokens are distributed by p. tokens has -1 behind
    it. Row i takes the random number offset + i of the seed, another for each place.
    """

"""The operators that choose experts for tokens, and that sort rows by expert: see ops."""

from __future__ import annotations

from typing import NamedTuple

from ._registry import FLOATS, need, operator
from ._torch import torch

SCORES = ("softmax", "sigmoid")
EXPERTS, TOP, BUCKETS = 512, 16, 1023  #: at most


def check_routing(op: str, experts: int, top, groups, top_groups, group_best):
    """TypeError or ValueError where tokens cannot choose `top` of so many experts so."""
    for name, value in (("top", top), ("groups", groups), ("top_groups", top_groups), ("group_best", group_best)):
        if not isinstance(value, int) or isinstance(value, bool):
            raise TypeError(f"{op}: {name} must be an integer, not {value!r}")
    if not 1 <= experts <= EXPERTS:
        raise ValueError(f"{op}: logits must have 1 to {EXPERTS} columns, not {experts}")
    if not 1 <= top <= min(TOP, experts):
        raise ValueError(f"{op}: top must be from 1 to {min(TOP, experts)}, of {experts} experts, not {top}")
    if groups < 1 or experts % groups:
        raise ValueError(f"{op}: groups must divide the experts, {experts}, not {groups}")
    if not 1 <= top_groups <= groups or top_groups * (experts // groups) < top:
        raise ValueError(
            f"{op}: top_groups must be from 1 to {groups}, of {experts // groups} experts each, with {top} in all, not "
            f"{top_groups}"
        )
    if group_best not in (1, 2) or group_best > experts // groups and top_groups < groups:
        raise ValueError(f"{op}: group_best must be 1 or 2, and a group must have so many experts, not {group_best}")


def _check(op, logits, bias, top, groups, top_groups, group_best):
    need(op, "logits", logits, dim=2)
    check_routing(op, logits.shape[1], top, groups, top_groups, group_best)


class Routes(NamedTuple):
    """What ops.route gives."""

    weights: torch.Tensor  #: f32 [tokens, top]: of each choice of a token
    ids: torch.Tensor  #: i32 [tokens, top]: their experts, the first choice first
    offsets: torch.Tensor  #: i32 [experts + 1]: expert e has rows[offsets[e] : offsets[e + 1]]
    rows: torch.Tensor  #: i32 [tokens * top]: token * top + choice, sorted by expert, then by token
    places: torch.Tensor  #: i32 [tokens, top]: where each choice stands in rows


@operator(
    "route", T=("logits", FLOATS), EXPERTS=lambda logits: logits.shape[-1], TOP="top", SCORE=("score", SCORES),
    BIAS="bias", RENORMALIZE="renormalize", GROUPS="groups", TOP_GROUPS="top_groups", GROUP_BEST="group_best",
    check=_check,
)  # fmt: skip
def route(
    logits: torch.Tensor, bias: torch.Tensor | None = None, *, top: int, score: str = "softmax",
    renormalize: bool = False, scale: float = 1.0, groups: int = 1, top_groups: int = 1, group_best: int = 2,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """The experts that each token goes to, and the tokens sorted by expert, in one launch: weights f32 [tokens, top],
    ids i32 [tokens, top], offsets i32 [experts + 1], rows i32 [tokens * top], places i32 [tokens, top] (Routes names
    them).

    logits: a float [tokens, experts], 512 experts at most; score: softmax of a token's logits, or sigmoid of each;
    bias: f32 [experts], with which experts are chosen and not weighed. Each token has the `top` best, at most 16, the
    best first, of equal ones the lowest first; with groups of those of the top_groups groups whose group_best best have
    the greatest sum. weights: the scores times scale, with renormalize over their sum. Choice j of token t is row t *
    top + j; rows has those of expert e, in their order, at offsets[e] to offsets[e + 1] - 1, places where each stands
    there.
    """


def _check_bucket(op, keys, buckets):
    need(op, "keys", keys, dim=1)
    if not isinstance(buckets, int) or isinstance(buckets, bool):
        raise TypeError(f"{op}: buckets must be an integer, not {buckets!r}")
    if not 1 <= buckets <= BUCKETS:
        raise ValueError(f"{op}: buckets must be from 1 to {BUCKETS}, not {buckets}")


@operator("bucket", BUCKETS="buckets", check=_check_bucket)
def bucket(keys: torch.Tensor, *, buckets: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Rows sorted by a small number, in one launch: offsets i32 [buckets + 1], rows i32 [tokens], places i32 [tokens].

    keys: i32 [tokens]. rows has the rows of key e, in their order, at offsets[e] to offsets[e + 1] - 1; behind them all
    stand those whose key is none of 0 to buckets - 1, in their order. places has where each row stands there, and
    `tokens` for those of no bucket. buckets: 1 to 1023.
    """

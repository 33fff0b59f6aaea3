"""The operators of products of few rows that do what stands before and behind them in a model, too: see ops."""

from __future__ import annotations

from ._torch import torch

from ._attention import CacheFormat, format_given, format_text
from ._formats import format_of
from ._narrow import NARROW, activations_of, check_scales
from ._registry import need, operator

#: Rows up to which such a product takes no longer than a plain one; more are right, too.
FEW_ROWS = 16
FEWEST_ROWS = 8  #: of the smallest tile

GATES = ("silu", "gelu", "gelu_tanh", "clamped")  #: as matmul_lowbit has them

#: As LOWBIT of ops, without what goes with no fused product.
_FUSED = {
    "names": {"a": "x", "p": "packed", "s": "scales", "z": "zeros", "factor": "multiplier"},
    "constants": lambda type: format_of(type).consts, "ATYPE": activations_of,
    "STYPE": lambda scales: NARROW.get(scales.dtype), "GROUP": "group", "ZEROS": "zeros", "BIAS": "bias",
    "FACTOR": "multiplier", "EARLY": "early",
}  # fmt: skip


def _constants(type, format):
    """Of the weights, and of a cache that is not of 16 bits."""
    return format_of(type).consts | ({} if format is None else format_given(format).constants())


def _check(op, x, packed, scales, zeros, type, group):
    from .ops import check_group, check_zeros, group_rows

    need(op, "scales", scales, dim=2)
    check_group(f"{op}: ", type, group, check_scales(op, x, scales))
    need(op, "packed", packed, dim=3)
    need(op, "x", x, dim=2)
    k = packed.shape[1] * group_rows(group)
    if x.shape[1] != k:
        raise ValueError(f"{op}: x must have {k} columns, as the weights have rows, not {x.shape[1]}")
    check_zeros(op, type, zeros)


def _has_addend(squares):
    return squares is not None and squares.dim() == 3


@operator("matmul_lowbit", **_FUSED, NORM="squares", ADDEND=_has_addend, GATE=("gate", GATES), check=_check)
def matmul_lowbit_normed(
    x: torch.Tensor, packed: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor | None = None,
    bias: torch.Tensor | None = None, squares: torch.Tensor | None = None, *, type: str, group: int = 128,
    eps: float = 1e-6, lift: float = 1.0, addend_eps: float = 1e-6, addend_lift: float = 1.0, gate: str | None = None,
    multiplier: torch.Tensor | None = None, early: bool = False,
) -> torch.Tensor:  # fmt: skip
    """matmul_lowbit of few rows x [m, k], with the RMS norm before it and a gated unit's activation behind it.

    squares: f32 [m, cdiv(k, 64)], the sums of the squares of 64 columns each of the rows v that are normalized, whose x
    is v * gain: matmul_lowbit_add gives both. The sums are times lift / sqrt(mean(v^2) + eps), where lift takes back
    what gain was divided by; None: x is as it is. gate: silu, gelu or gelu_tanh: act(a) * b of the results a and b of
    columns 2j and 2j + 1, [m, n / 2]; clamped: as of matmul_experts. The rest as for matmul_lowbit. For up to FEW_ROWS
    rows it takes no longer; more are right, too.

    squares of matmul_lowbit_addend, f32 [4, m / 2, cdiv(k, 64)]: v is a sum that is not there yet, of which x has two
    rows each; addend_eps, addend_lift: of the norm of its addend. The result has m / 2 rows.
    """


@operator(
    "matmul_lowbit", **_FUSED, RESIDUAL=True, writes=("residual",), check=_check,
)  # fmt: skip
def matmul_lowbit_add(
    x: torch.Tensor, residual: torch.Tensor, gain: torch.Tensor, packed: torch.Tensor, scales: torch.Tensor,
    zeros: torch.Tensor | None = None, bias: torch.Tensor | None = None, *, type: str, group: int = 128,
    multiplier: torch.Tensor | None = None, early: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Adds the product of few rows x [m, k] to residual [m, n], in place, rounded once; (moments, gained) for the RMS
    norm of the sum: f32 [m, cdiv(n, 64)], the sums of its squares of 64 columns each, and the sum times gain [n],
    rounded, as matmul_lowbit_normed takes them. x, residual, gain: of the type of the scales; the rest as for
    matmul_lowbit.
    """


@operator("matmul_lowbit", **_FUSED, POSTNORM=True, writes=("residual", "addend"), check=_check)
def matmul_lowbit_addend(
    x: torch.Tensor, residual: torch.Tensor, addend: torch.Tensor, squares: torch.Tensor, old_gain: torch.Tensor,
    after_gain: torch.Tensor, gain: torch.Tensor, packed: torch.Tensor, scales: torch.Tensor,
    zeros: torch.Tensor | None = None, bias: torch.Tensor | None = None, *, type: str, group: int = 128,
    addend_eps: float = 1e-6, addend_lift: float = 1.0, multiplier: torch.Tensor | None = None, early: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """The product of few rows x [m, k] where a norm stands between it and the sum with residual [m, n]: an addend,
    which the next call adds, as its norm needs all of its columns.

    residual becomes residual + norm(addend), in place, rounded once: addend [m, n] is the product of the call before,
    old_gain [n] the gain of its norm, addend_eps and addend_lift the norm's, squares, f32 [4, m, cdiv(n, 64)], what
    that call gave; zeros for none. addend becomes the product. Returns (moments, rows) for matmul_lowbit_normed, or
    another of these: f32 [4, m, cdiv(n, 64)], the sums of 64 columns each of y^2, residual^2, residual y after_gain
    and (y after_gain)^2, of the product y, whose norm has after_gain [n]; and [m, 2, n], residual gain and y after_gain
    gain, with gain [n] of the norm of the sum. The rest as for matmul_lowbit_add.
    """


def _check_product(op, x, packed, scales, zeros, type, group, cache, rotation, heads, format):
    _check(op, x, packed, scales, zeros, type, group)
    need(op, "cache", cache, dim=4)
    need(op, "rotation", rotation, dim=2)
    if format is not None and format_given(format).head != rotation.shape[1]:
        raise ValueError(f"{op}: rotation must have {format_given(format).head} columns, not {rotation.shape[1]}")
    columns = (heads + 2 * cache.shape[1]) * rotation.shape[1]
    if scales.shape[1] != columns:
        raise ValueError(
            f"{op}: scales must have {columns} columns, those of {heads} heads of queries and {cache.shape[1]} of keys "
            f"and of values, not {scales.shape[1]}"
        )


@operator(
    "qkv_lowbit", "matmul_lowbit", **{**_FUSED, "constants": _constants}, NORM="squares", ADDEND=_has_addend,
    HEADS_NORM="gains", HEAD=lambda rotation: rotation.shape[1], PAGE=lambda cache: 16 * cache.shape[2], convert={"format": format_text},
    writes=("cache",), check=_check_product, tensors_first=True,
)  # fmt: skip
def qkv_lowbit(
    x: torch.Tensor, packed: torch.Tensor, scales: torch.Tensor, cache: torch.Tensor, table: torch.Tensor,
    lengths: torch.Tensor, rotation: torch.Tensor, zeros: torch.Tensor | None = None,
    bias: torch.Tensor | None = None, squares: torch.Tensor | None = None, gains: torch.Tensor | None = None, *,
    heads: int, type: str, format: CacheFormat | None = None, group: int = 128, eps: float = 1e-6, lift: float = 1.0,
    addend_eps: float = 1e-6, addend_lift: float = 1.0, heads_eps: float = 1e-6,
    multiplier: torch.Tensor | None = None, early: bool = False,
) -> torch.Tensor:  # fmt: skip
    """matmul_lowbit_normed and qkv_append, interleaved, in one launch of few rows; the queries, turned, [m, heads *
    head].

    x: [m, k], as many new tokens of each sequence; the columns of W are (heads + 2 kv_heads) heads of head elements,
    of queries, keys and values, of which neighbours are turned as a pair. cache: int32, as the format has it, without
    k_channels; of 16 bits (format: None) as halves, cache.view(dtype), [pages, kv_heads, page / 16, 32 * head]; table:
    i32 [batch, max_pages]; lengths: i32 [batch], the new tokens included; rotation: f32 [max, head], the table of rope.
    gains: f32 [2, head], of the RMS norms of the heads of queries, and of keys, with heads_eps, before they are turned.
    With gains or a format head is a power of 2. The rest as for matmul_lowbit_normed.
    """

"""The operators that give gradients of other operators, and what training alone needs: see ops."""

from __future__ import annotations

from ._torch import torch

from ._attention import check_heads
from ._formats import format_of
from ._registry import FLOATS, HALVES, ROWS, check_row, need, operator

# ---- attention ----


def _check_backward(op, q, k, v):
    need(op, "q", q, dim=3)
    need(op, "k", k, dim=3)
    check_heads(op, q.shape[-1], v.shape[-1] if v.dim() else 0)
    heads, kv_heads = q.shape[1], k.shape[1]
    if not kv_heads or heads % kv_heads:
        raise ValueError(f"{op}: the heads of q, {heads}, must be a multiple of those of k, {kv_heads}")


_ATTENTION = {
    "T": ("q", HALVES), "CAP": lambda cap: cap > 0, "ALIBI": "slopes", "check": _check_backward, "tensors_first": True,
}  # fmt: skip


@operator("attention_backward", "attention_backward_queries", LSE_GRAD="lse_grad", **_ATTENTION)
def attention_backward_queries(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, o: torch.Tensor, o_grad: torch.Tensor, lse: torch.Tensor,
    q_starts: torch.Tensor, k_starts: torch.Tensor, *, longest: int, scale: float, left: int = -1, right: int = -1,
    cap: float = 0.0, slopes: torch.Tensor | None = None, lse_grad: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """The gradient of q, and sums, which attention_backward_keys takes.

    q: [tokens, heads, d], k: [kv_tokens, kv_heads, d], v: [kv_tokens, kv_heads, dv], halves, q_starts, k_starts: i32
    [sequences + 1], slopes: f32 [heads], and the options: as attention had them; o: [tokens, heads, dv] and lse: f32
    [tokens, heads], its results; o_grad, lse_grad: the gradients of these. sums: f32
    [heads, 2, (tokens / 128 + sequences + 1) * 128].
    """


@operator("attention_backward", "attention_backward_keys", **_ATTENTION)
def attention_backward_keys(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, o_grad: torch.Tensor, sums: torch.Tensor,
    q_starts: torch.Tensor, k_starts: torch.Tensor, *, longest: int, scale: float, left: int = -1, right: int = -1,
    cap: float = 0.0, slopes: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """The gradients of k and v.

    q: [tokens, heads, d], k: [kv_tokens, kv_heads, d], v: [kv_tokens, kv_heads, dv], o_grad: [tokens, heads, dv],
    q_starts, k_starts: i32 [sequences + 1], slopes: f32 [heads], and the options: as for attention_backward_queries,
    whose result sums is, f32 [heads, 2, (tokens / 128 + sequences + 1) * 128]. longest: the most keys of a sequence.
    """


# ---- row by row ----

#: Columns at most of rows whose norm has a gradient, by the operator.
NORM_COLUMNS = {"rms_norm_backward": 16384, "layer_norm_backward": 8192}


def _check_norm_backward(op, x, parts):
    check_row(op, x)
    if x.shape[-1] > NORM_COLUMNS[op]:
        raise ValueError(f"{op}: x must have {NORM_COLUMNS[op]} columns at most, not {x.shape[-1]}")
    if not 1 <= parts <= 1 << 16:
        raise ValueError(f"{op}: parts must be 1 to 65536, not {parts}")


_NORM = {
    "T": ("x", FLOATS), "names": {"w": "weight"}, "shapes": ROWS, "check": _check_norm_backward,
}  # fmt: skip


@operator("rms_norm_backward", **_NORM)
def rms_norm_backward(
    x: torch.Tensor, weight: torch.Tensor, y_grad: torch.Tensor, eps: float = 1e-6, parts: int = 256,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """The gradient of x, a float [..., n], by that of rms_norm's result, y_grad [..., n], and shares f32 [parts, 1, n]
    of that of the weight, [n], which column_sums adds up. parts: blocks."""


@operator("layer_norm_backward", **_NORM)
def layer_norm_backward(
    x: torch.Tensor, weight: torch.Tensor, y_grad: torch.Tensor, eps: float = 1e-5, parts: int = 256,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """The gradient of x, a float [..., n], by that of layer_norm's result, y_grad [..., n], and shares f32
    [parts, 2, n] of that of the weight, [n], and behind it of the bias, which column_sums adds up. parts: blocks."""


@operator("column_sums", T=("x", FLOATS), OTYPE=("out_dtype", FLOATS))
def column_sums(x: torch.Tensor, out_dtype: torch.dtype | None = None) -> torch.Tensor:
    """The sums over the rows of x, a float [m, n], in f32, rounded to out_dtype, or x's: [n]. Their order depends on m
    alone."""


def _check_swiglu_backward(op, x):
    check_row(op, x)
    if x.shape[-1] % 2:
        raise ValueError(f"{op}: x must have an even number of columns, not {x.shape[-1]}")


@operator(
    "swiglu_backward", T=("x", FLOATS), ACT=("activation", ("silu", "gelu", "gelu_tanh")), shapes=ROWS,
    check=_check_swiglu_backward,
)  # fmt: skip
def swiglu_backward(x: torch.Tensor, y_grad: torch.Tensor, activation: str = "silu") -> torch.Tensor:
    """The gradient of x [..., 2n] by that of swiglu's result, y_grad [..., n]."""


# ---- the loss ----


_LOSS = {"T": ("logits", FLOATS), "shapes": ROWS, "check": lambda op, logits: check_row(op, logits, "logits")}


@operator("cross_entropy", **_LOSS)
def cross_entropy_rows(
    logits: torch.Tensor, labels: torch.Tensor, ignore: int = -100, smoothing: float = 0.0, z: float = 0.0,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Of each row of logits, a float [..., n], n up to 2^20, its loss and the log of its sum of exponentials, f32
    [...].

    labels: i32 [...]; the loss is lse - (1 - smoothing) logits[label] - smoothing mean(logits) + z lse^2, and 0 where
    the label is `ignore`; NaN where the label is no column.
    """


@operator("cross_entropy", "cross_entropy_backward", **_LOSS)
def cross_entropy_backward(
    logits: torch.Tensor, labels: torch.Tensor, lse: torch.Tensor, loss_grad: torch.Tensor, ignore: int = -100,
    smoothing: float = 0.0, z: float = 0.0,
) -> torch.Tensor:  # fmt: skip
    """The gradient of the logits, a float [..., n], by that of each row's loss, f32 [...]. labels: i32 [...]; lse: f32
    [...], cross_entropy_rows' second result."""


# ---- tables and weights ----


@operator("embedding_backward", T=("y_grad", FLOATS))
def embedding_backward(y_grad: torch.Tensor, order: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
    """The gradient of a table [vocabulary, n]: of each id the sum of its rows of y_grad [rows, n], in f32, rounded
    once.

    order: i32 [rows], rows of y_grad sorted by their ids; starts: i32 [vocabulary + 1], where each id begins among
    them, and the last ends.
    """


def _check_dequantize(op, packed, scales, zeros, first, rows, type, group):
    from .ops import check_group, check_zeros, group_rows

    check_group(f"{op}: ", type, group, scales.dtype)
    check_zeros(op, type, zeros)
    need(op, "packed", packed, dim=3)
    each, all = group_rows(group), packed.shape[1] * group_rows(group)
    if first < 0 or rows < 0 or first % each or rows % each or first + rows > all:
        raise ValueError(f"{op}: first and rows must be multiples of {each} within {all} rows, not {first} and {rows}")


@operator(
    "dequantize_lowbit", constants=lambda type: format_of(type).consts, ATYPE=("scales", HALVES), GROUP="group",
    ZEROS="zeros", OTYPE=("out_dtype", FLOATS), names={"p": "packed", "s": "scales", "z": "zeros"},
    check=_check_dequantize,
)  # fmt: skip
def dequantize_rows(
    packed: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor | None = None, *, first: int, rows: int, type: str,
    group: int = 128, out_dtype: torch.dtype | None = None,
) -> torch.Tensor:  # fmt: skip
    """Rows first to first + rows of the weights [k, n] that matmul_lowbit multiplies by, as floats of out_dtype, or of
    the scales' type: [rows, n], computed in f32 and rounded once. first and rows are multiples of group_rows(group).

    packed: uint8, packed_shape(type, group, k, n); scales: halves [k / group, n], or [1, n] for group 0; zeros: as
    scales.
    """

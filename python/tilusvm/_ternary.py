"""The operators of weights that are -1, 0 and 1: see ops and ternary."""

from __future__ import annotations

from ._torch import torch

from ._registry import FLOATS, ROWS, need, operator

CHUNK = 160  #: inputs whose weights are packed together, five to a byte


def packed_shape(k: int, n: int) -> tuple[int, int, int]:
    """Of weights [k, n], in bytes."""
    return (-(-n // 16), -(-k // CHUNK), 512)


@operator("matmul_ternary", "pack", check=lambda op, w: need(op, "w", w, dtype=torch.int8, dim=2))
def pack_ternary(w: torch.Tensor) -> torch.Tensor:
    """Weights for matmul_ternary, five to a byte: uint8 [cdiv(n, 16), cdiv(k, 160), 512] of w, int8 [k, n], whose
    elements are cut to -1 to 1."""


def _check_unpack(op, packed, n, k):
    need(op, "packed", packed, dtype=torch.uint8, shape=packed_shape(k, n))
    if k < 8 or k % 8 or n < 1:
        raise ValueError(f"{op}: k must be a multiple of 8, and n 1 or more, not {k} and {n}")


@operator("matmul_ternary", "unpack", names={"p": "packed"}, check=_check_unpack)
def unpack_ternary(packed: torch.Tensor, *, n: int, k: int) -> torch.Tensor:
    """The weights of pack_ternary as they are, transposed: int8 [n, k], for ops.matmul, of many rows. packed: uint8
    [cdiv(n, 16), cdiv(k, 160), 512]; k is a multiple of 8."""


def _check_ternary(op, x, packed, n):
    need(op, "packed", packed, dtype=torch.uint8, dim=3)
    if x.dim() < 1 or not x.shape[-1] or x.shape[-1] % 8:
        raise ValueError(f"{op}: x must have a multiple of 8 columns, not the shape {list(x.shape)}")
    if n % 8 or packed.shape != packed_shape(x.shape[-1], n):
        wanted = list(packed_shape(x.shape[-1], n))
        raise ValueError(f"{op}: n, {n}, must be a multiple of 8 whose weights are {wanted}, not {list(packed.shape)}")


@operator(
    "matmul_ternary", BIAS="bias", OTYPE=("out_dtype", FLOATS), names={"a": "x", "p": "packed", "sa": "factors",
    "s": "scales"}, shapes=ROWS, check=_check_ternary, tensors_first=True,
)  # fmt: skip
def matmul_ternary(
    x: torch.Tensor, packed: torch.Tensor, factors: torch.Tensor, scales: torch.Tensor,
    bias: torch.Tensor | None = None, *, n: int, out_dtype: torch.dtype = torch.bfloat16,
) -> torch.Tensor:  # fmt: skip
    """factors * scales * (x @ W) + bias for weights W [k, n] that are -1, 0 and 1, with exact sums: [..., n].

    x: int8 [..., k] and factors: f32 [..., 1], as quantize_rows gives them; packed: pack_ternary(W); scales, bias: f32
    [n], of each column; k and n are multiples of 8. out_dtype: a float.
    """

"""Operators of activations of 8 bits: products of them with weights of 8 bits and fewer, and norms that make them."""

from __future__ import annotations

from ._torch import torch

from . import program
from ._formats import bits_of_codes, format_of
from ._registry import FLOATS, ROWS, check_row, need, operator
from ._signature import TYPES

__all__ = [
    "matmul_scaled",
    "matmul_lowbit_a8",
    "pack_a8",
    "rms_norm_quantized",
    "add_rms_norm_quantized",
    "swiglu_quantized",
]

_F8 = (torch.float8_e4m3fn, torch.float8_e5m2)
_EIGHT = (torch.int8, *_F8)
_GROUPS = (0, 32, 64, 128, 256, 512)


# ---- products ----


def _check_scaled(op, a, b, group, by_group):
    need(op, "b", b, dtype=_F8 if a.dtype in _F8 else torch.int8, dim=2)
    if group not in (0, 32, 128):
        raise ValueError(f"{op}: group must be 0, 32 or 128, not {group!r}")
    if by_group and group != 128:
        raise ValueError(f"{op}: by_group goes with group 128, not {group}")
    if a.dtype == torch.int8 and group != 128:
        raise ValueError(f"{op}: int8 goes with group 128; matmul multiplies it exactly where rows have one scale")
    n, k = b.shape
    if a.dim() < 1 or a.shape[-1] != k:
        raise ValueError(f"{op}: a must have {k} columns, as b has, not the shape {list(a.shape)}")
    if n % 8 or k % (32 if group == 32 else 16):
        raise ValueError(f"{op}: b must have a multiple of 8 rows, and of 16 columns (group 32: 32), not {[n, k]}")


@operator(
    "matmul_scaled", T=("a", _EIGHT), TB=lambda a, b: b.dtype, OTYPE=("out_dtype", FLOATS), BIAS="bias",
    GROUP=lambda group: str(group), BY_GROUP="by_group", names={"sa": "scale_a", "sb": "scale_b"}, shapes=ROWS, check=_check_scaled,
)  # fmt: skip
def matmul_scaled(
    a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor, bias: torch.Tensor | None = None,
    *, group: int = 128, out_dtype: torch.dtype = torch.bfloat16, by_group: bool = False,
) -> torch.Tensor:  # fmt: skip
    """(a * scale_a) @ (b * scale_b).T + bias of matrices of 8 bits, of which every 128 products are added up, scaled
    and added to the sums in f32.

    a: [..., k], b: [n, k], float8; or both int8, with group 128. group: 128, scales f32 of 1 x 128 of a,
    [..., cdiv(k, 128)], and of 128 x 128 of b, [cdiv(n, 128), cdiv(k, 128)]; 0, of rows, [..., 1] and [n, 1]; 32,
    powers of two of 1 x 32 of both, as the uint8 of e8m0 (MXFP8). by_group, with group 128: scale_a is
    [cdiv(k, 128), cdiv(m, 4) * 4] for m rows, which is read faster. bias: f32 [n]; n % 8 == 0, k % 16 == 0.
    quantize_rows makes a and scale_a.
    """


def _integers(type, activations):
    return {"WTYPE": format_of(type).consts["WTYPE"], "ATYPE": TYPES[activations]}


def _check_a8(op, a, packed, scales, levels, type, group):
    need(op, "packed", packed, dtype=torch.uint8, dim=3)
    need(op, "scales", scales, dim=2)
    if group not in (0, 32, 64, 128):
        raise ValueError(f"{op}: group must be 0, 32, 64 or 128, not {group!r}")
    k = packed.shape[1] * 128
    if a.dim() < 1 or a.shape[-1] != k:
        raise ValueError(f"{op}: a must have {k} columns, as the weights have rows, not the shape {list(a.shape)}")
    if scales.shape[1] % 8 or -(-scales.shape[1] // 64) != packed.shape[0]:
        raise ValueError(f"{op}: scales must have a multiple of 8 columns, those of the packed weights")
    if levels is not None and a.dtype != torch.int8:
        raise TypeError(f"{op}: levels go with int8, not with {a.dtype}")


@operator(
    "matmul_lowbit_a8", ATYPE=("a", (torch.int8, torch.float8_e4m3fn)), STYPE=("scales", FLOATS),
    OTYPE=("out_dtype", FLOATS), GROUP=lambda group: str(group), ZEROS="zeros", LEVELS="levels", BIAS="bias",
    constants=lambda type: {"WTYPE": format_of(type).consts["WTYPE"]},
    names={"sa": "scale_a", "p": "packed", "s": "scales", "level": "levels", "z": "zeros"}, shapes=ROWS,
    check=_check_a8,
)  # fmt: skip
def matmul_lowbit_a8(
    a: torch.Tensor, packed: torch.Tensor, scale_a: torch.Tensor, scales: torch.Tensor,
    levels: torch.Tensor | None = None, zeros: torch.Tensor | None = None, bias: torch.Tensor | None = None, *,
    type: str = "u4", group: int = 128, out_dtype: torch.dtype = torch.float16,
) -> torch.Tensor:  # fmt: skip
    """(a * scale_a) @ W + bias for activations of 8 bits and weights W [k, n] of fewer, which are converted exactly.

    a: int8 or float8_e4m3fn [..., k]; scale_a: f32 [..., 1]; packed: by pack_a8, for a's type; scales: floats
    [k / group, n], [1, n] for group 0 or with levels; levels: uint8 [k / group, n], W = (w - zero) * level * scale,
    where all but the scale is an int8; zeros: uint8 [k / group, n] ([1, n]), of unsigned types; bias: f32 [n]. n % 8 ==
    0, k % 128 == 0.
    """


@torch.no_grad()
def pack_strings_a8(strings, n, type, group, activations, *, zeros=False, levels=False):
    """As pack_a8, of codes as rows of compact bit strings, uint8 [k, whole bytes of n codes]."""
    flags = {name: True for name, flag in (("ZEROS", zeros), ("LEVELS", levels)) if flag}
    made = program("matmul_lowbit_a8", **_integers(type, activations), GROUP=group, **flags)
    k = strings.shape[0]
    packed = strings.new_empty((-(-n // 64), k // 128, 1024 * format_of(type).bits))
    made["pack"](k, n, strings, packed)
    return packed


def pack_a8(
    codes: torch.Tensor, type: str = "u4", group: int = 128, activations: torch.dtype = torch.int8, *,
    zeros: bool = False, levels: bool = False,
) -> torch.Tensor:  # fmt: skip
    """Codes of weights, uint8 [k, n], one to a byte, as matmul_lowbit_a8 takes them: uint8 [n / 64, k / 128, ...].

    The layout depends on the type of the activations, and on whether there are zero points or levels.
    """
    need("pack_a8", "codes", codes, dtype=torch.uint8, dim=2)
    k, n = codes.shape
    if n % 8 or k % 128:
        raise ValueError(f"pack_a8: codes must have a multiple of 128 rows and of 8 columns, not {[k, n]}")
    strings = bits_of_codes(codes, format_of(type).bits)
    return pack_strings_a8(strings, n, type, group, activations, zeros=zeros, levels=levels)


# ---- what makes activations of 8 bits ----


def _check_group(op, x, group, by_group, columns):
    check_row(op, x)
    if by_group and not group:
        raise ValueError(f"{op}: by_group goes with a group, not with a scale for each row")
    if group not in _GROUPS or group and columns % group:
        allowed = "0, 32, 64, 128, 256 or 512 and divide the columns"
        raise ValueError(f"{op}: group must be {allowed}, {columns}, not {group}")


def _check_norm(op, x, group, by_group):
    _check_group(op, x, group, by_group, x.shape[-1])
    most = 16384 if x.shape[-1] % (16 // x.element_size()) == 0 else 8185
    if x.shape[-1] > most:
        raise ValueError(f"{op}: x must have {most} columns at most, not {x.shape[-1]}")


@operator(
    "rms_norm", T=("x", FLOATS), OTYPE=("dtype", _EIGHT), GROUP="group", BY_GROUP="by_group", names={"w": "weight"},
    shapes=ROWS, check=_check_norm,
)  # fmt: skip
def rms_norm_quantized(
    x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6, dtype: torch.dtype = torch.int8, group: int = 0,
    by_group: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """quantize_rows(rms_norm(x, weight, eps), dtype, group, by_group) in one launch: x a float [..., n], n at most
    16384, weight [n]."""


@operator(
    "rms_norm", "add_rms_norm", T=("x", FLOATS), OTYPE=("dtype", _EIGHT), GROUP="group", BY_GROUP="by_group",
    names={"w": "weight"}, shapes=ROWS, writes=("residual",), check=_check_norm,
)  # fmt: skip
def add_rms_norm_quantized(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6,
    dtype: torch.dtype = torch.int8, group: int = 0, by_group: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """quantize_rows(add_rms_norm(x, residual, weight, eps), dtype, group, by_group) in one launch, which adds x to
    residual: both floats [..., n], n at most 16384, weight [n]."""


def _check_swiglu(op, x, group, by_group):
    if x.dim() and x.shape[-1] % 2:
        raise ValueError(f"{op}: x must have an even number of columns, not {x.shape[-1]}")
    _check_group(op, x, group, by_group, x.shape[-1] // 2 if x.dim() else 0)


@operator(
    "quantize_rows", "swiglu_quantize_rows", T=("x", FLOATS), OTYPE=("dtype", _EIGHT), GROUP="group",
    BY_GROUP="by_group", ACT=("activation", ("silu", "gelu", "gelu_tanh")), shapes=ROWS, check=_check_swiglu,
)  # fmt: skip
def swiglu_quantized(
    x: torch.Tensor, dtype: torch.dtype = torch.int8, group: int = 0, activation: str = "silu",
    by_group: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """quantize_rows(swiglu(x, activation), dtype, group, by_group) in one launch: x a float [..., 2n], the numbers
    [..., n]."""

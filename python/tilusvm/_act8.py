"""Operators of activations of 8 and of 4 bits: products of them with weights of as many and fewer, and what makes them.
"""

from __future__ import annotations

from ._torch import torch

from . import program
from ._formats import bits_of_codes, format_of
from ._narrow import as_bytes, byte_type, of_types
from ._registry import FLOATS, ROWS, check_row, need, need_choice, operator
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
_NARROW_B = ("f4_e2m1", "f6_e2m3", "f6_e3m2")  # of matmul_scaled, of bytes


# ---- products ----


def check_scaled_types(op, a, b, group, by_group, alpha, type_b, dim):
    """Of products of numbers with scales, whose b has `dim` dimensions."""
    need_choice(op, "a", a.dtype, (*_EIGHT, torch.uint8))
    need_choice(op, "type_b", type_b, _NARROW_B)
    need(op, "b", b, dtype=(*_F8, torch.uint8) if a.dtype in _F8 else a.dtype, dim=dim)
    if group not in (0, 16, 32, 128):
        raise ValueError(f"{op}: group must be 0, 16, 32 or 128, not {group!r}")
    if by_group and group != 128:
        raise ValueError(f"{op}: by_group goes with group 128, not {group}")
    whole, hint = ("128", "; matmul multiplies it exactly where rows have one scale") if dim == 2 else ("128 or 0", "")
    if a.dtype == torch.int8 and str(group) not in whole.split(" or "):
        raise ValueError(f"{op}: int8 goes with group {whole}{hint}")
    if a.dtype == torch.uint8 and type_b != "f4_e2m1":
        raise ValueError(f"{op}: where a is uint8, f4_e2m1, type_b must be f4_e2m1, too, not {type_b!r}")
    if a.dtype == torch.uint8 and group not in (16, 32):
        raise ValueError(f"{op}: uint8, f4_e2m1, goes with group 16 (NVFP4) and 32 (MXFP4), not with {group}")
    if a.dtype != torch.uint8 and group == 16:
        raise ValueError(f"{op}: group 16 (NVFP4) goes with a of uint8, f4_e2m1, not with {a.dtype}")
    if alpha is not None and group != 16:
        raise ValueError(f"{op}: alpha goes with group 16 (NVFP4), not with {group}")


def check_scaled_extents(op, a, b, group, type_b):
    """Of the same: the last two extents of b, which are rows and their numbers."""
    bits = int(type_b[1]) if b.dtype == torch.uint8 else 8
    n, k = b.shape[-2], b.shape[-1] * 8 // bits
    own = k // 2 if a.dtype == torch.uint8 else k
    if a.dim() < 1 or a.shape[-1] != own:
        what = f"{k} columns, as b has" if own == k else f"{own} columns of bytes, two numbers in each, as b has"
        raise ValueError(f"{op}: a must have {what}, not the shape {list(a.shape)}")
    unit = 128 if bits < 8 else 32 if group == 32 else 16
    if n % 8 or k % unit or b.shape[-1] * 8 % bits:
        allowed = "and of 16 columns (group 32: 32; of fewer than 8 bits: 128 numbers)"
        raise ValueError(f"{op}: b must have a multiple of 8 rows, {allowed}, not {[n, k]}")


def _check_scaled(op, a, b, group, by_group, alpha, type_b):
    check_scaled_types(op, a, b, group, by_group, alpha, type_b, 2)
    check_scaled_extents(op, a, b, group, type_b)


#: What declares a product of numbers with scales, of a, b, group, by_group, alpha, type_b and out_dtype.
SCALED = {
    "T": lambda a: "f4_e2m1" if a.dtype == torch.uint8 else a.dtype,
    "TB": lambda b, type_b: type_b if b.dtype == torch.uint8 else b.dtype, "OTYPE": ("out_dtype", FLOATS),
    "BIAS": "bias", "GROUP": lambda group: str(group), "BY_GROUP": "by_group", "ALPHA": "alpha",
    "names": {"sa": "scale_a", "sb": "scale_b"},
    "convert": dict.fromkeys(("a", "b", "scale_a", "scale_b"), as_bytes),
}  # fmt: skip


@operator("matmul_scaled", **SCALED, shapes=ROWS, check=_check_scaled)
def matmul_scaled(
    a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor, bias: torch.Tensor | None = None,
    *, group: int = 128, out_dtype: torch.dtype = torch.bfloat16, by_group: bool = False,
    alpha: torch.Tensor | None = None, type_b: str = "f4_e2m1",
) -> torch.Tensor:  # fmt: skip
    """(a * scale_a) @ (b * scale_b).T + bias of matrices of 8 or 4 bits, of which every 128 products, or with groups of
    32 and 16 so many, are added up, scaled and added to the sums in f32.

    a: [..., k], b: [n, k], float8; or both int8, with group 128. group: 128, scales f32 of 1 x 128 of a,
    [..., cdiv(k, 128)], and of 128 x 128 of b, [cdiv(n, 128), cdiv(k, 128)]; 0, of rows, [..., 1] and [n, 1]; 32,
    powers of two of 1 x 32 of both, as torch.float8_e8m0fnu or its uint8 (MXFP8); 16, float8_e4m3fn of 1 x 16 of both
    (NVFP4). by_group, with group 128: scale_a is [cdiv(k, 128), cdiv(m, 4) * 4] for m rows, which is read faster. bias:
    f32 [n]; n % 8 == 0, k % 16 == 0. quantize_rows makes a and scale_a.

    Less than 8 bits: with group 32 (MXFP4 times MXFP4) and 16 (NVFP4) both are f4_e2m1, as torch.float4_e2m1fn_x2 or
    its uint8, [..., k / 2] and [n, k / 2]: the first of two numbers has the lower four bits of a byte, as torchao and
    compressed-tensors pack them, too. Beside a of float8 b may be of type_b, f4_e2m1, f6_e2m3 or f6_e3m2, as uint8
    [n, k * bits / 8], the first number in the lowest bits. k is then a multiple of 128. alpha, with group 16: f32 [1],
    by which sums are multiplied before bias is added: the product of both tensors' own scales.
    """


def _integers(type, activations):
    return {"WTYPE": format_of(type).consts["WTYPE"], "ATYPE": TYPES[activations]}


def check_a8_weights(op, a, packed, scales, levels, group, dim):
    """Of products of activations of 8 bits and weights of fewer, whose packed has `dim` dimensions."""
    need(op, "packed", packed, dtype=torch.uint8, dim=dim)
    need(op, "scales", scales, dim=dim - 1)
    if group not in (0, 32, 64, 128):
        raise ValueError(f"{op}: group must be 0, 32, 64 or 128, not {group!r}")
    k = packed.shape[-2] * 128
    if a.dim() < 1 or a.shape[-1] != k:
        raise ValueError(f"{op}: a must have {k} columns, as the weights have rows, not the shape {list(a.shape)}")
    if scales.shape[-1] % 8 or -(-scales.shape[-1] // 64) != packed.shape[-3]:
        raise ValueError(f"{op}: scales must have a multiple of 8 columns, those of the packed weights")
    if levels is not None and a.dtype != torch.int8:
        raise TypeError(f"{op}: levels go with int8, not with {a.dtype}")


def _check_a8(op, a, packed, scales, levels, group):
    check_a8_weights(op, a, packed, scales, levels, group, 3)


#: What declares a product of activations of 8 bits and weights of fewer, of a, scales, type, group and out_dtype.
A8 = {
    "ATYPE": ("a", (torch.int8, torch.float8_e4m3fn)), "STYPE": ("scales", FLOATS), "OTYPE": ("out_dtype", FLOATS),
    "GROUP": lambda group: str(group), "ZEROS": "zeros", "LEVELS": "levels", "BIAS": "bias",
    "constants": lambda type: {"WTYPE": format_of(type).consts["WTYPE"]},
    "names": {"sa": "scale_a", "p": "packed", "s": "scales", "level": "levels", "z": "zeros"},
}  # fmt: skip


@operator("matmul_lowbit_a8", **A8, shapes=ROWS, check=_check_a8)
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
    if group not in (0, 16, 32, 64, 128, 256, 512) or group and columns % group:
        allowed = "0, 16, 32, 64, 128, 256 or 512 and divide the columns"
        raise ValueError(f"{op}: group must be {allowed}, {columns}, not {group}")


def check_quantized(op, x, dtype, group, by_group, scale_dtype, scale, columns):
    """Of operators that make numbers of 8 and 4 bits: ValueError or TypeError for what no program makes so."""
    need_choice(op, "dtype", dtype, (*_EIGHT, torch.uint8))
    need_choice(op, "scale_dtype", scale_dtype or torch.float32, (torch.float32, torch.float8_e4m3fn, torch.uint8))
    _check_group(op, x, group, by_group, columns)
    if dtype == torch.uint8 and not group:
        raise ValueError(f"{op}: uint8, f4_e2m1, goes with a group, not with a scale for each row")
    if scale_dtype == torch.uint8 and (group != 32 or dtype == torch.int8):
        raise ValueError(f"{op}: scale_dtype of e8m0 goes with group 32 of floats, not with {group} of {dtype}")
    if scale_dtype == torch.float8_e4m3fn and (group != 16 or dtype != torch.uint8):
        what = f"group 16 of uint8, f4_e2m1 (NVFP4), not with {group} of {dtype}"
        raise ValueError(f"{op}: scale_dtype of float8_e4m3fn goes with {what}")
    if scale is not None and scale_dtype != torch.float8_e4m3fn:
        raise ValueError(f"{op}: scale goes with scale_dtype of float8_e4m3fn (NVFP4), not with {scale_dtype}")


_NUMBERS = {dtype: dtype for dtype in _EIGHT} | {torch.uint8: "f4_e2m1"}  # by dtype; rms_norm has other OTYPEs, too

#: What declares an operator that makes numbers of 8 and 4 bits, of dtype, group, by_group, scale_dtype and scale.
QUANTIZED = {
    "T": ("x", FLOATS), "OTYPE": lambda dtype: _NUMBERS[dtype],
    "STYPE": lambda scale_dtype: "e8m0" if scale_dtype == torch.uint8 else scale_dtype, "GROUP": "group",
    "BY_GROUP": "by_group", "TWO_SCALES": "scale", "names": {"g": "scale"}, "shapes": ROWS,
    "convert": {"dtype": byte_type, "scale_dtype": byte_type, "return": of_types},
}  # fmt: skip


def _check_norm(op, x, dtype, group, by_group, scale_dtype, scale):
    check_quantized(op, x, dtype, group, by_group, scale_dtype, scale, x.shape[-1] if x.dim() else 0)
    most = 16384 if x.shape[-1] % (16 // x.element_size()) == 0 else 8185
    if x.shape[-1] > most:
        raise ValueError(f"{op}: x must have {most} columns at most, not {x.shape[-1]}")


_NORM = {**QUANTIZED, "names": {"w": "weight", **QUANTIZED["names"]}}


@operator("rms_norm", check=_check_norm, **_NORM)
def rms_norm_quantized(
    x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6, dtype: torch.dtype = torch.int8, group: int = 0,
    by_group: bool = False, scale_dtype: torch.dtype | None = None, scale: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """quantize_rows(rms_norm(x, weight, eps), dtype, group, by_group, scale_dtype, scale) in one launch: x a float
    [..., n], n at most 16384, weight [n]."""


@operator("rms_norm", "add_rms_norm", writes=("residual",), check=_check_norm, **_NORM)
def add_rms_norm_quantized(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6,
    dtype: torch.dtype = torch.int8, group: int = 0, by_group: bool = False, scale_dtype: torch.dtype | None = None,
    scale: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """quantize_rows(add_rms_norm(x, residual, weight, eps), dtype, group, by_group, scale_dtype, scale) in one launch,
    which adds x to residual: both floats [..., n], n at most 16384, weight [n]."""


def _check_swiglu(op, x, dtype, group, by_group, scale_dtype, scale):
    if x.dim() and x.shape[-1] % 2:
        raise ValueError(f"{op}: x must have an even number of columns, not {x.shape[-1]}")
    check_quantized(op, x, dtype, group, by_group, scale_dtype, scale, x.shape[-1] // 2 if x.dim() else 0)


@operator(
    "quantize_rows", "swiglu_quantize_rows", ACT=("activation", ("silu", "gelu", "gelu_tanh")), check=_check_swiglu,
    **QUANTIZED,
)  # fmt: skip
def swiglu_quantized(
    x: torch.Tensor, dtype: torch.dtype = torch.int8, group: int = 0, activation: str = "silu",
    by_group: bool = False, scale_dtype: torch.dtype | None = None, scale: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """quantize_rows(swiglu(x, activation), dtype, group, by_group, scale_dtype, scale) in one launch: x a float
    [..., 2n], the numbers [..., n]."""

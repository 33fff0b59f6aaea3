"""Scales of 8 bits beside halves: f8_e4m3 (NVFP4) and e8m0 (MXFP4), which matmul_lowbit takes as they are (STYPE).

e8m0, a power of two, is uint8 here, the bits of torch.float8_e8m0fnu, as torch computes little with that; so are two
numbers of 4 bits, torch.float4_e2m1fn_x2, of which the first has the lower bits.
"""

from __future__ import annotations

from ._torch import torch

from ._registry import HALVES, need_choice

#: The program's names of scales of 8 bits, by the types of tensors.
NARROW = {torch.float8_e4m3fn: "f8_e4m3", torch.uint8: "e8m0"}
#: Columns of which the program takes a multiple: rows of scales are whole runs of 16 bytes.
COLUMNS = 16

_HALF = {torch.float8_e4m3fn: torch.float16, torch.uint8: torch.bfloat16}
_E8M0 = getattr(torch, "float8_e8m0fnu", None)
_F4 = getattr(torch, "float4_e2m1fn_x2", None)
_BYTES = {dtype for dtype in (_E8M0, _F4) if dtype is not None}
_MOST = 127 + 28  # of e8m0: in bf16 the program multiplies them by 2^96


def half_of(dtype: torch.dtype) -> torch.dtype:
    """The halves that hold all scales of the type, f8_e4m3 or e8m0; a half itself."""
    return _HALF.get(dtype, dtype)


def activations_of(x: torch.Tensor, scales: torch.Tensor) -> torch.dtype:
    """The type that the program multiplies: that of halves as scales; beside scales of 8 bits that of x."""
    return x.dtype if scales.dtype in NARROW else scales.dtype


def check_scales(op: str, x: torch.Tensor, scales: torch.Tensor) -> torch.dtype:
    """TypeError where the scales, or beside narrow ones x, are of no type that the program takes, ValueError where it
    does not take so many columns; activations_of."""
    need_choice(op, "scales", scales.dtype, (*HALVES, *NARROW))
    multiple = 8
    if scales.dtype in NARROW:
        need_choice(op, "x", x.dtype, HALVES)
        multiple = COLUMNS
    if scales.shape[-1] % multiple:
        told = f"scales must have a multiple of {multiple} columns"
        raise ValueError(f"{op}: {told}, not {scales.shape[-1]}")
    return activations_of(x, scales)


def widened(scales: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Scales as numbers of dtype, or of half_of their type, which is exact; halves stay as they are without dtype."""
    dtype = dtype or half_of(scales.dtype)
    if scales.dtype != torch.uint8:
        return scales.to(dtype)
    bits = scales.int() << 23  # of f32, whose exponents are the same; but 0 is 2^-127, 255 no number
    bits = torch.where(scales == 0, 1 << 22, bits)
    return torch.where(scales == 255, 0x7FC00000, bits).view(torch.float32).to(dtype)


def byte_type(dtype: torch.dtype | None) -> torch.dtype | None:
    """uint8 for torch's types of which operators take the bytes; another type itself."""
    return torch.uint8 if dtype in _BYTES else dtype


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of one of these types as uint8; another one, or what is none, as it is."""
    return tensor.view(torch.uint8) if getattr(tensor, "dtype", None) in _BYTES else tensor


def of_types(
    made: tuple[torch.Tensor, torch.Tensor], dtype: torch.dtype, scale_dtype: torch.dtype | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Numbers and scales, of which uint8 are viewed as these types where they are some of torch's."""
    return tuple(t.view(kind) if kind in _BYTES else t for t, kind in zip(made, (dtype, scale_dtype)))


def bytes_of(tensor: torch.Tensor | None) -> torch.Tensor | None:
    """Scales of 8 bits as uint8, which torch pads, joins and selects from on every device; halves as they are."""
    return tensor.view(torch.uint8) if tensor is not None and tensor.dtype in NARROW else tensor


def kept(scales: torch.Tensor, columns: int, dtype: torch.dtype | None) -> torch.Tensor:
    """Scales of a layer of so many columns of packed weights and activations of dtype: those of 8 bits where the
    program multiplies by them; else widened, exactly, or rounded to dtype where it is not half_of their type."""
    if _E8M0 is not None and scales.dtype == _E8M0:
        scales = scales.view(torch.uint8)
    if scales.dtype not in NARROW:
        return scales
    dtype = dtype or half_of(scales.dtype)
    takes = columns % COLUMNS == 0
    if takes and scales.dtype == torch.uint8 and not scales.is_meta:  # powers of two need the range of bf16
        takes = dtype == torch.bfloat16 and (not scales.numel() or int(scales.max()) <= _MOST)
    return scales if takes else widened(scales, dtype)

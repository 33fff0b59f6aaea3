"""The shipped programs as operators of torch: torch.ops.tilusvm.NAME, and functions of the same names here.

They work under CUDA graphs, torch.compile (without graph breaks), FakeTensor and autocast. Tensors on a GPU are
worked on there, on torch's current stream; those on the CPU by the interpreter. A tensor of a wrong device, type,
shape, stride or alignment is a TypeError or ValueError that names the argument; what a program refuses otherwise is a
tilusvm.Error. They have no gradients (nn.Linear has): torch says so when one is asked for.

`type` is a low-precision type's name ("u4", "f6_e3m2"), or that of a table of 16 values, "nf4" or "fp4"; halves are
torch.float16 and torch.bfloat16, floats also torch.float32. All tensors are contiguous.
"""

from __future__ import annotations

import functools
import math

from ._torch import torch

from . import program
from ._attention import CacheFormat, attention, attention_decode, kv_append, qkv_append
from ._formats import format_of
from ._registry import FLOATS, HALVES, TYPES, Operator, cast_all, cast_to_first, need, type_name
from ._sample import sample

__all__ = [
    "matmul_lowbit",
    "matmul",
    "rms_norm",
    "add_rms_norm",
    "swiglu",
    "rope",
    "softmax",
    "argmax",
    "sample",
    "quantize_rows",
    "embedding",
    "attention",
    "attention_decode",
    "kv_append",
    "qkv_append",
    "CacheFormat",
]


def rows_of(tensor) -> int:
    """The product of all extents but the last; right for tensors without elements, too."""
    return math.prod(tensor.shape[:-1])


# ---- matmul_lowbit ----


GROUPS = (0, 16, 32, 64, 128)  #: rows of weights that share a scale, as matmul_lowbit takes them; 0: all


def group_rows(group: int) -> int:
    """Rows of weights that the program packs together: a group, or 128 of a column with one scale or with groups of
    16."""
    return 128 if group in (0, 16) else group


def check_group(op: str, type: str, group: int, dtype):
    """ValueError where no program has groups of so many rows."""
    if group not in GROUPS or isinstance(group, bool):
        raise ValueError(f"{op}group must be 16, 32, 64, 128, or 0 for one scale a row, not {group!r}")
    fmt = format_of(type)
    if group == 16 and dtype == torch.float16 and (fmt.exponent > 5 or fmt.exponent == 5 and fmt.mantissa < 2):
        raise ValueError(f"{op}group must be 32 or more for {type}, which float16 does not hold, not 16")


@functools.lru_cache(maxsize=None)
def lowbit_program(
    type: str, group: int, dtype, zeros=False, bias=False, out_dtype=None, batch_invariant=False, factor=False,
    early=False, experts=False,
):  # fmt: skip
    """The program matmul_lowbit for these weights, whose kernel `pack` lays them out."""
    consts = {**format_of(type).consts, "ATYPE": TYPES[dtype], "GROUP": group}
    if zeros:
        consts["ZEROS"] = True
    if bias:
        consts["BIAS"] = True
    if out_dtype is not None and out_dtype != dtype:
        consts["OTYPE"] = TYPES[out_dtype]
    if batch_invariant:
        consts["BATCH_INVARIANT"] = True
    if factor:
        consts["FACTOR"] = True
    if early:
        consts["EARLY"] = True
    if experts:
        consts["EXPERTS"] = True
    return program("matmul_lowbit", **consts)


@functools.lru_cache(maxsize=None)
def _lowbit_kernel(*args):
    return lowbit_program(*args)["matmul_lowbit"]


def packed_shape(type: str, group: int, k: int, n: int) -> tuple[int, int, int]:
    """Of weights [k, n]: granules of 64 columns and group_rows(group) rows, in bytes."""
    rows = group_rows(group)
    return (-(-n // 64), k // rows, rows * 8 * format_of(type).bits)


#: Rows from which on the product of weights that widen takes is faster by way of f8_e4m3, on a Hopper GPU.
WIDE_ROWS = 1024


def widens(type: str, group: int) -> bool:
    """Does f8_e4m3 have all values of the type, one of 5 to 7 bits?"""
    fmt = format_of(type)
    return fmt.kind == "f" and 5 <= fmt.bits <= 7 and fmt.exponent <= 4 and fmt.mantissa <= 3 and group != 16


def widen(packed, type: str, group: int, early=False):
    """Packed weights of a type that widens as those of f8_e4m3, for the same scales: as packed, 8 / bits as large.
    early: as for matmul_lowbit."""
    out = packed.new_empty((*packed.shape[:2], 64 * group_rows(group)))
    _widening(type, group, early)(packed.shape[0] * packed.shape[1], packed.view(-1), out.view(-1))
    return out


@functools.lru_cache(maxsize=None)
def _widening(type, group, early):
    return program("widen_lowbit", **format_of(type).consts, GROUP=group, EARLY=early)["widen"]


@functools.lru_cache(maxsize=None)
def _is_hopper(device):
    return device.type == "cuda" and torch.cuda.get_device_capability(device) == (9, 0)


def _matmul_lowbit(x, packed, scales, zeros, bias, type, group, out_dtype, batch_invariant, multiplier, early):
    shape, n = x.shape, scales.shape[1]
    if shape.numel() >= WIDE_ROWS * shape[-1] and not batch_invariant and widens(type, group) and _is_hopper(x.device):
        packed, type, early = widen(packed, type, group, early), "f8_e4m3", False  # behind what writes its weights
    more = [t for t in (zeros, bias, multiplier) if t is not None]
    kernel = _lowbit_kernel(
        type, group, scales.dtype, zeros is not None, bias is not None, out_dtype, batch_invariant,
        multiplier is not None, early,
    )  # fmt: skip
    k, m = shape[-1], shape[0] if len(shape) == 2 else rows_of(x)
    rows = x if len(shape) == 2 else x.view(m, k)
    out = x.new_empty((m, n)) if out_dtype is None else x.new_empty((m, n), dtype=out_dtype)
    kernel(m, n, k, rows, packed, scales, *more, out)
    return out if len(shape) == 2 else out.view(*shape[:-1], n)


def _check_lowbit(x, packed, scales, zeros, bias, type, group, out_dtype, batch_invariant, multiplier, early):
    op = "matmul_lowbit"
    bits = format_of(type).bits
    check_group(f"{op}: ", type, group, scales.dtype if isinstance(scales, torch.Tensor) else None)
    most = scales if scales.device == packed.device else x  # where all but one lie
    need(op, "scales", scales, dtype=HALVES, dim=2, like=most)
    need(op, "x", x, dtype=scales.dtype, like=most)
    if x.dim() < 1:
        raise ValueError(f"{op}: x must have a dimension at least")
    k, n, rows = x.shape[-1], scales.shape[1], group_rows(group)
    groups = scales.shape[0] * group // rows if group else packed.shape[1]
    if k != groups * rows:
        raise ValueError(f"{op}: x must have {groups * rows} columns, as the weights have rows, not {k}")
    if n % 8:
        raise ValueError(f"{op}: scales must have a multiple of 8 columns, not {n}")
    need(op, "scales", scales, shape=(k // group if group else 1, n))
    need(op, "packed", packed, dtype=torch.uint8, shape=(-(-n // 64), groups, rows * 8 * bits), like=most)
    if zeros is not None:
        need(op, "zeros", zeros, dtype=scales.dtype, shape=tuple(scales.shape), like=scales)
        if format_of(type).kind != "u":
            raise ValueError(f"{op}: zeros goes with unsigned types, not with {type}")
    if bias is not None:
        need(op, "bias", bias, dtype=scales.dtype, shape=(n,), like=scales)
    if multiplier is not None:
        need(op, "multiplier", multiplier, dtype=torch.float32, shape=(1,), like=scales)
    if out_dtype not in (None, scales.dtype, torch.float32):
        raise TypeError(f"{op}: out_dtype must be {scales.dtype} or torch.float32, not {out_dtype}")


def _fake_lowbit(x, packed, scales, zeros, bias, type, group, out_dtype, batch_invariant, multiplier, early):
    return x.new_empty((*x.shape[:-1], scales.shape[1]), dtype=out_dtype or x.dtype)


def _cast_lowbit(dtype, x, packed, scales, zeros, bias, *rest):
    # Weights keep the type that they were quantized for: scales rounded once more would be other weights.
    bias = bias if bias is None else bias.to(scales.dtype)
    return x.to(scales.dtype), packed, scales, zeros, bias, *rest


lowbit_operator = Operator(
    "matmul_lowbit(Tensor x, Tensor packed, Tensor scales, Tensor? zeros, Tensor? bias, str type, int group, "
    "ScalarType? out_dtype=None, bool batch_invariant=False, Tensor? multiplier=None, bool early=False) -> Tensor",
    _matmul_lowbit,
    _check_lowbit,
    _fake_lowbit,
    _cast_lowbit,
)


def matmul_lowbit(
    x: torch.Tensor, packed: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor | None = None,
    bias: torch.Tensor | None = None, *, type: str, group: int = 128, out_dtype: torch.dtype | None = None,
    batch_invariant: bool = False, multiplier: torch.Tensor | None = None, early: bool = False,
) -> torch.Tensor:  # fmt: skip
    """x @ W * multiplier + bias for weights W [k, n] of any low-precision type, where x is [..., k], of the type of the
    scales.

    packed: uint8, packed_shape(type, group, k, n), by quantize.pack; scales: halves [k / group, n], or [1, n] for group
    0; zeros: as scales, zero points of unsigned types; bias: [n]; multiplier: float32 [1], of the sums in f32. n is a
    multiple of 8, k of group_rows(group).
    out_dtype: torch.float32 leaves the sums unrounded. batch_invariant: a row's bits do not depend on the other rows.
    early: the first weights, scales and zero points are read while the launch before on the stream may still run, so
    that launch must not be what writes them.
    """
    rest = type, group, out_dtype, batch_invariant, multiplier, early
    return lowbit_operator(x, packed, scales, zeros, bias, *rest)


# ---- matmul ----

_ACTIVATIONS = ("none", "relu", "silu", "gelu", "gelu_tanh")
_MATMUL_TYPES = (
    torch.float16, torch.bfloat16, torch.float32, torch.float8_e4m3fn, torch.float8_e5m2, torch.int8, torch.uint8,
)  # fmt: skip


def _matmul_out(a, out_dtype):
    return out_dtype or (a.dtype if a.dtype in FLOATS else torch.float16)


@functools.lru_cache(maxsize=None)
def _matmul_kernel(a, b, out, scales, bias, residual, activation):
    consts = {"T": TYPES[a], "OTYPE": TYPES[out], "SCALES": scales, "ACT": activation}
    if b != a:
        consts["TB"] = TYPES[b]
    return program("matmul", **consts, BIAS=bias, RESIDUAL=residual)["matmul"]


def _matmul(a, b, scale_a, scale_b, bias, residual, activation, out_dtype):
    n, k = b.shape
    out_dtype = _matmul_out(a, out_dtype)
    kernel = _matmul_kernel(
        a.dtype, b.dtype, out_dtype, scale_a is not None, bias is not None, residual is not None, activation
    )
    out = torch.empty((*a.shape[:-1], n), dtype=out_dtype, device=a.device)
    m = rows_of(a)
    args = [m, n, k, a.view(m, k), b]
    if scale_a is not None:
        args += [scale_a.view(m), scale_b]
    if bias is not None:
        args.append(bias)
    if residual is not None:
        args.append(residual.view(m, n))
    kernel(*args, out.view(m, n))
    return out


def _check_matmul(a, b, scale_a, scale_b, bias, residual, activation, out_dtype):
    op = "matmul"
    need(op, "a", a, dtype=_MATMUL_TYPES)
    wide = {1: [torch.float8_e4m3fn, torch.float8_e5m2], 0: [torch.int8, torch.uint8]}
    kinds = (a.dtype,) if a.dtype in FLOATS else tuple(wide[a.dtype.is_floating_point])
    need(op, "b", b, dtype=kinds, dim=2, like=a)
    n, k = b.shape
    if a.dim() < 1 or a.shape[-1] != k:
        raise ValueError(f"{op}: a must have {k} columns, as b has, not the shape {list(a.shape)}")
    if n % 8 or k % 16:
        raise ValueError(f"{op}: b must have a multiple of 8 rows and of 16 columns, not the shape {[n, k]}")
    type_name(op, "out_dtype", _matmul_out(a, out_dtype), FLOATS)
    if (scale_a is None) != (scale_b is None) or scale_a is None and a.dtype in (torch.int8, torch.uint8):
        raise ValueError(f"{op}: scale_a and scale_b go together, and integers need them")
    if activation not in _ACTIVATIONS:
        raise ValueError(f"{op}: activation must be one of {', '.join(_ACTIVATIONS)}, not {activation!r}")
    if scale_a is not None:
        if scale_a.numel() != rows_of(a):
            raise ValueError(f"{op}: scale_a must have {rows_of(a)} elements, not {scale_a.numel()}")
        need(op, "scale_a", scale_a, dtype=torch.float32, like=a)
        need(op, "scale_b", scale_b, dtype=torch.float32, shape=(n,), like=a)
    if bias is not None:
        need(op, "bias", bias, dtype=torch.float32, shape=(n,), like=a)
    if residual is not None:
        need(op, "residual", residual, dtype=_matmul_out(a, out_dtype), shape=(*a.shape[:-1], n), like=a)


def _fake_matmul(a, b, scale_a, scale_b, bias, residual, activation, out_dtype):
    return a.new_empty((*a.shape[:-1], b.shape[0]), dtype=_matmul_out(a, out_dtype))


def _cast_matmul(dtype, a, b, scale_a, scale_b, bias, residual, activation, out_dtype):
    if a.dtype in FLOATS:
        a, b = cast_all(dtype, a, b)
        residual = residual if residual is None else residual.to(_matmul_out(a, out_dtype))
    return a, b, scale_a, scale_b, bias if bias is None else bias.float(), residual, activation, out_dtype


_matmul_op = Operator(
    "matmul(Tensor a, Tensor b, Tensor? scale_a=None, Tensor? scale_b=None, Tensor? bias=None, Tensor? residual=None, "
    'str activation="none", ScalarType? out_dtype=None) -> Tensor',
    _matmul,
    _check_matmul,
    _fake_matmul,
    _cast_matmul,
)


def matmul(
    a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor | None = None, scale_b: torch.Tensor | None = None,
    bias: torch.Tensor | None = None, residual: torch.Tensor | None = None, *, activation: str = "none",
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:  # fmt: skip
    """activation(a @ b.T * scale_a * scale_b + bias) + residual, computed in f32 and rounded once.

    a: [..., k], b: [n, k], of a float, float8 or 8-bit integer type (f32 is multiplied as tf32); scale_a: f32 [rows
    of a], scale_b: f32 [n], needed for integers; bias: f32 [n]; residual: [..., n] of the result's type, which is
    out_dtype, a float, or a's (float16 for 8 bits). activation: none, relu, silu, gelu or gelu_tanh. n % 8 == 0, k %
    16 == 0.
    """
    return _matmul_op(a, b, scale_a, scale_b, bias, residual, activation, out_dtype)


# ---- row by row ----


@functools.lru_cache(maxsize=None)
def _kernel(name, entry, dtype, **consts):
    return program(name, T=TYPES[dtype], **consts)[entry]


def _rms_norm(x, weight, eps):
    out = torch.empty_like(x)
    m, n = rows_of(x), x.shape[-1]
    _kernel("rms_norm", "rms_norm", x.dtype)(m, n, eps, x.view(m, n), weight, out.view(m, n))
    return out


def _check_row(op, x, columns="columns"):
    need(op, "x", x, dtype=FLOATS)
    if x.dim() < 1 or not 1 <= x.shape[-1] <= 1 << 20:
        raise ValueError(f"{op}: x must have 1 to 2^20 {columns}, not the shape {list(x.shape)}")


def _check_rms_norm(x, weight, eps):
    _check_row("rms_norm", x)
    need("rms_norm", "weight", weight, dtype=x.dtype, shape=(x.shape[-1],), like=x)


_rms_norm_op = Operator(
    "rms_norm(Tensor x, Tensor weight, float eps=1e-6) -> Tensor",
    _rms_norm,
    _check_rms_norm,
    lambda x, weight, eps: torch.empty_like(x),
    cast_to_first,
)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last dimension, in f32: x a float [..., n], weight [n] of its
    type."""
    return _rms_norm_op(x, weight, eps)


def _add_rms_norm(x, residual, weight, eps, inner):
    out = torch.empty_like(x)
    m, n = rows_of(x), x.shape[-1]
    kernel = _kernel("rms_norm", "add_rms_norm", x.dtype, **({} if inner is None else {"INNER": True}))
    weights = (weight,) if inner is None else (inner, weight)
    kernel(m, n, eps, x.view(m, n), residual.view(m, n), *weights, out.view(m, n))
    return out


#: Columns at most of add_rms_norm with inner.
INNER_COLUMNS = 16384


def _check_add_rms_norm(x, residual, weight, eps, inner):
    op = "add_rms_norm"
    _check_row(op, x)
    need(op, "residual", residual, dtype=x.dtype, shape=tuple(x.shape), like=x)
    need(op, "weight", weight, dtype=x.dtype, shape=(x.shape[-1],), like=x)
    if inner is not None:
        need(op, "inner", inner, dtype=x.dtype, shape=(x.shape[-1],), like=x)
        if x.shape[-1] > INNER_COLUMNS:
            raise ValueError(f"{op}: x must have {INNER_COLUMNS} columns at most with inner, not {x.shape[-1]}")


def _cast_add_rms_norm(dtype, x, residual, weight, eps, inner):
    # The residual is written: it cannot be another tensor.
    inner = inner if inner is None else inner.to(residual.dtype)
    return x.to(residual.dtype), residual, weight.to(residual.dtype), eps, inner


_add_rms_norm_op = Operator(
    "add_rms_norm(Tensor x, Tensor(a!) residual, Tensor weight, float eps=1e-6, Tensor? inner=None) -> Tensor",
    _add_rms_norm,
    _check_add_rms_norm,
    lambda x, residual, weight, eps, inner: torch.empty_like(x),
    _cast_add_rms_norm,
)


def add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6, inner: torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    """Adds x to residual, in place, rounded to their type, and returns rms_norm of the sum. With inner, weights [n] of
    their type, rms_norm(x, inner, eps) is added in the place of x, by the same launch; n is at most 16384 then."""
    return _add_rms_norm_op(x, residual, weight, eps, inner)


def _swiglu(x, activation):
    m, n = rows_of(x), x.shape[-1] // 2
    out = torch.empty((*x.shape[:-1], n), dtype=x.dtype, device=x.device)
    _kernel("swiglu", "swiglu", x.dtype, ACT=activation)(m, n, x.view(m, 2 * n), out.view(m, n))
    return out


def _check_swiglu(x, activation):
    _check_row("swiglu", x)
    if x.shape[-1] % 2:
        raise ValueError(f"swiglu: x must have an even number of columns, not {x.shape[-1]}")
    if activation not in ("silu", "gelu", "gelu_tanh"):
        raise ValueError(f"swiglu: activation must be silu, gelu or gelu_tanh, not {activation!r}")


_swiglu_op = Operator(
    'swiglu(Tensor x, str activation="silu") -> Tensor',
    _swiglu,
    _check_swiglu,
    lambda x, activation: x.new_empty((*x.shape[:-1], x.shape[-1] // 2)),
)


def swiglu(x: torch.Tensor, activation: str = "silu") -> torch.Tensor:
    """activation(a) * b, where a row of x [..., 2n] is one of a and then of b: silu, gelu or gelu_tanh."""
    return _swiglu_op(x, activation)


def _rope(x, positions, table, style):
    out = torch.empty_like(x)
    tokens, (heads, d) = positions.numel(), x.shape[-2:]
    shape = (tokens, heads, d)
    kernel = _kernel("rope", "rope", x.dtype, STYLE=style)
    kernel(table.shape[0], tokens, heads, d, positions.view(tokens), table, x.view(shape), out.view(shape))
    return out


def _check_rope(x, positions, table, style):
    need("rope", "x", x, dtype=FLOATS)
    if x.dim() < 2 or x.shape[-1] % 2:
        raise ValueError(f"rope: x must be [..., heads, d] with d even, not {list(x.shape)}")
    need("rope", "positions", positions, dtype=torch.int32, shape=tuple(x.shape[:-2]), like=x)
    need("rope", "table", table, dtype=torch.float32, shape=(None, x.shape[-1]), like=x)
    if style not in ("half", "interleaved"):
        raise ValueError(f"rope: style must be half or interleaved, not {style!r}")


_rope_op = Operator(
    'rope(Tensor x, Tensor positions, Tensor table, str style="half") -> Tensor',
    _rope,
    _check_rope,
    lambda x, positions, table, style: torch.empty_like(x),
)


def rope(x: torch.Tensor, positions: torch.Tensor, table: torch.Tensor, style: str = "half") -> torch.Tensor:
    """Rotary embedding of x, a float [..., heads, d], d even.

    positions: i32 [...]; table: f32 [max, d], of each position the d/2 cosines and then the sines. style: half
    (elements i and i + d/2 are a pair) or interleaved (2i and 2i + 1). A position outside of the table gives zeros.
    """
    return _rope_op(x, positions, table, style)


def _softmax(x):
    out = torch.empty_like(x)
    m, n = rows_of(x), x.shape[-1]
    _kernel("softmax", "softmax", x.dtype)(m, n, x.view(m, n), out.view(m, n))
    return out


_softmax_op = Operator(
    "softmax(Tensor x) -> Tensor", _softmax, functools.partial(_check_row, "softmax"), torch.empty_like
)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Softmax over the last dimension of a float [..., n], n up to 2^20, computed in f32."""
    return _softmax_op(x)


_INTEGERS = (torch.int8, torch.uint8, torch.int32)


def _argmax(x):
    out = torch.empty(x.shape[:-1], dtype=torch.int32, device=x.device)
    m, n = rows_of(x), x.shape[-1]
    _kernel("argmax", "argmax", x.dtype)(m, n, x.view(m, n), out.view(m))
    return out


def _check_argmax(x):
    need("argmax", "x", x, dtype=FLOATS + _INTEGERS)
    if x.dim() < 1 or not 1 <= x.shape[-1] <= 1 << 30:
        raise ValueError(f"argmax: x must have 1 to 2^30 columns, not the shape {list(x.shape)}")


_argmax_op = Operator(
    "argmax(Tensor x) -> Tensor",
    _argmax,
    _check_argmax,
    lambda x: x.new_empty(x.shape[:-1], dtype=torch.int32),
)


def argmax(x: torch.Tensor) -> torch.Tensor:
    """The index of the greatest element of the last dimension of x [..., n], the lowest of equal ones: i32 [...]. x: a
    float, int8, uint8 or int32; a NaN is below every number."""
    return _argmax_op(x)


_QUANTIZED = (torch.int8, torch.float8_e4m3fn, torch.float8_e5m2)


def _quantize_rows(x, dtype, group):
    m, n = rows_of(x), x.shape[-1]
    groups = n // group if group else 1
    out = torch.empty(x.shape, dtype=dtype, device=x.device)
    scales = torch.empty((*x.shape[:-1], groups), dtype=torch.float32, device=x.device)
    kernel = _kernel("quantize_rows", "quantize_rows", x.dtype, OTYPE=TYPES[dtype], GROUP=group)
    kernel(m, n, x.view(m, n), out.view(m, n), scales.view(m, groups))
    return out, scales


def _check_quantize_rows(x, dtype, group):
    _check_row("quantize_rows", x)
    type_name("quantize_rows", "dtype", dtype, _QUANTIZED)
    if group not in (0, 32, 64, 128, 256, 512) or group and x.shape[-1] % group:
        raise ValueError(
            f"quantize_rows: group must be 0, 32, 64, 128, 256 or 512 and "
            f"divide the columns, {x.shape[-1]}, not {group}"
        )


def _fake_quantize_rows(x, dtype, group):
    groups = x.shape[-1] // group if group else 1
    return x.new_empty(x.shape, dtype=dtype), x.new_empty((*x.shape[:-1], groups), dtype=torch.float32)


_quantize_rows_op = Operator(
    "quantize_rows(Tensor x, ScalarType dtype, int group=0) -> (Tensor, Tensor)",
    _quantize_rows,
    _check_quantize_rows,
    _fake_quantize_rows,
)


def quantize_rows(
    x: torch.Tensor, dtype: torch.dtype = torch.int8, group: int = 0,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """x [..., n] as 8-bit numbers of dtype (int8, float8_e4m3fn, float8_e5m2), and f32 scales [..., n / group or 1].

    x is numbers * scales; a scale for each row, or `group` columns (32 to 512): max |x| / the greatest number.
    """
    return _quantize_rows_op(x, dtype, group)


def _embedding(ids, table):
    rows, n = ids.numel(), table.shape[1]
    out = torch.empty((*ids.shape, n), dtype=table.dtype, device=table.device)
    kernel = _kernel("embedding", "embedding", table.dtype)
    kernel(table.shape[0], rows, n, table, ids.view(rows), out.view(rows, n))
    return out


def _check_embedding(ids, table):
    need("embedding", "ids", ids, dtype=torch.int32)
    need("embedding", "table", table, dtype=FLOATS, dim=2, like=ids)


_embedding_op = Operator(
    "embedding(Tensor ids, Tensor table) -> Tensor",
    _embedding,
    _check_embedding,
    lambda ids, table: table.new_empty((*ids.shape, table.shape[1])),
)


def embedding(ids: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """table[ids], rows of zeros where there is no such row: ids i32 [...], table a float [vocabulary, n]."""
    return _embedding_op(ids, table)

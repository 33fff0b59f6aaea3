"""The shipped programs as operators of torch: torch.ops.tilusvm.NAME, and functions of the same names here.

They work under CUDA graphs, torch.compile (without graph breaks), FakeTensor and autocast. Tensors on a GPU are
worked on there, on torch's current stream; those on the CPU by the interpreter. A tensor of a wrong device, type,
shape, stride or alignment is a TypeError or ValueError that names the argument; what a program refuses otherwise is a
tilusvm.Error. matmul_lowbit (of x and bias), rms_norm, layer_norm, swiglu, rope, embedding, cross_entropy and attention
have gradients; of the others torch says that there are none when one is asked for.

`type` is a low-precision type's name ("u4", "f6_e3m2"), or that of a table of 16 values, "nf4" or "fp4"; halves are
torch.float16 and torch.bfloat16, floats also torch.float32. All tensors are contiguous.
"""

from __future__ import annotations

import functools
import math

from ._torch import torch

from . import AssembleError, program
from ._act8 import (
    QUANTIZED,
    _check_norm,
    add_rms_norm_quantized,
    check_quantized,
    matmul_lowbit_a8,
    matmul_scaled,
    pack_a8,
    rms_norm_quantized,
    swiglu_quantized,
)
from ._attention import (
    CacheFormat,
    attention,
    attention_decode,
    attention_merge,
    chosen_blocks,
    kv_append,
    qkv_append,
)
from ._backward import (
    attention_backward_keys,
    attention_backward_queries,
    column_sums,
    cross_entropy_backward,
    cross_entropy_rows,
    dequantize_rows,
    embedding_backward,
    layer_norm_backward,
    rms_norm_backward,
    swiglu_backward,
)
from ._formats import format_of
from ._fused import FEW_ROWS, matmul_lowbit_add, matmul_lowbit_addend, matmul_lowbit_normed, qkv_lowbit
from ._linear import (
    causal_conv,
    gated_delta,
    gated_delta_chunks,
    gated_delta_states,
    gated_delta_update,
    state_space,
)
from ._mla import LatentFormat, index_scores, mla_append, mla_decode, topk_set
from ._narrow import NARROW, activations_of, check_scales
from ._registry import FLOATS, ROWS, check_row, need, operator
from ._route import Routes, bucket, route
from ._sample import accept, probabilities, sample
from ._signature import TYPES
from ._ternary import matmul_ternary, pack_ternary, unpack_ternary

__all__ = [
    "matmul_lowbit",
    "matmul_lowbit_normed",
    "matmul_lowbit_add",
    "matmul_lowbit_addend",
    "qkv_lowbit",
    "FEW_ROWS",
    "matmul",
    "matmul_scaled",
    "matmul_lowbit_a8",
    "pack_a8",
    "matmul_ternary",
    "pack_ternary",
    "unpack_ternary",
    "rms_norm",
    "gated_rms_norm",
    "layer_norm",
    "layer_norm_quantized",
    "rms_norm_quantized",
    "add_rms_norm",
    "add_rms_norm_quantized",
    "swiglu",
    "swiglu_quantized",
    "rope",
    "softmax",
    "argmax",
    "sample",
    "probabilities",
    "accept",
    "bucket",
    "route",
    "Routes",
    "quantize_rows",
    "embedding",
    "combine",
    "cross_entropy",
    "cross_entropy_rows",
    "attention",
    "attention_decode",
    "attention_merge",
    "chosen_blocks",
    "kv_append",
    "qkv_append",
    "CacheFormat",
    "gated_delta",
    "gated_delta_update",
    "gated_delta_chunks",
    "gated_delta_states",
    "state_space",
    "causal_conv",
    "attention_backward_keys",
    "attention_backward_queries",
    "column_sums",
    "cross_entropy_backward",
    "dequantize_rows",
    "embedding_backward",
    "layer_norm_backward",
    "rms_norm_backward",
    "swiglu_backward",
    "mla_decode",
    "mla_append",
    "LatentFormat",
    "index_scores",
    "topk_set",
]


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


def lowbit_program(type: str, group: int, dtype, **flags: bool):
    """The program matmul_lowbit for these weights, whose kernel `pack` lays them out."""
    flags = {name: True for name, flag in flags.items() if flag}
    return program("matmul_lowbit", **format_of(type).consts, ATYPE=TYPES[dtype], GROUP=group, **flags)


def packed_shape(type: str, group: int, k: int, n: int) -> tuple[int, int, int]:
    """Of weights [k, n]: granules of 64 columns and group_rows(group) rows, in bytes."""
    rows = group_rows(group)
    return (-(-n // 64), k // rows, rows * 8 * format_of(type).bits)


def widens(type: str, group: int) -> bool:
    """Does f8_e4m3 have all values of the type, one of 5 to 7 bits? The program says so."""
    return _widening(type, group, False) is not None


def widen(packed, type: str, group: int, early=False):
    """Packed weights of a type that widens as those of f8_e4m3, for the same scales: as packed, 8 / bits as large.
    early: as for matmul_lowbit."""
    out = packed.new_empty((*packed.shape[:2], 64 * group_rows(group)))
    widening = _widening(type, group, early).program["widen"]
    widening(0, packed.shape[0] * packed.shape[1], packed.view(-1), out.view(-1))
    return out


@functools.lru_cache(maxsize=None)
def _widening(type, group, early):
    """The entry that says for how many rows it pays; None where the program does not take the type."""
    consts = format_of(type).consts
    try:
        return None if "BOOK" in consts else program("widen_lowbit", **consts, GROUP=group, EARLY=early)["widen_lowbit"]
    except AssembleError:
        return None


@functools.lru_cache(maxsize=4096)
def _pays(entry, rows, device):
    return entry.variant(m=rows, granules=0, device=device) == "widen"


def _widened(launch, constants):
    """launch, or where the type widens a function that takes that way for many rows."""
    type, group = constants["WTYPE"], constants["GROUP"]
    entry = _widening(type, group, False)
    if "BATCH_INVARIANT" in constants or entry is None:
        return launch

    def run(x, packed, scales, zeros, bias, type, group, out_dtype, invariant, multiplier, early):
        if not _pays(entry, x.numel() // max(x.shape[-1], 1), x.device):
            return launch(x, packed, scales, zeros, bias, type, group, out_dtype, invariant, multiplier, early)
        packed = widen(packed, type, group, early)
        rest = group, out_dtype, invariant, multiplier, False  # behind what writes the weights
        return lowbit_operator.direct(x, packed, scales, zeros, bias, "f8_e4m3", *rest)

    return run


def check_zeros(op, type, zeros):
    if zeros is not None and format_of(type).kind != "u":
        raise ValueError(f"{op}: zeros goes with unsigned types, not with {type}")


def check_out(op, dtype, out_dtype):
    if out_dtype not in (None, dtype, torch.float32):
        raise TypeError(f"{op}: out_dtype must be {dtype} or torch.float32, not {out_dtype}")


def _check_lowbit(op, x, packed, scales, zeros, type, group, out_dtype):
    need(op, "scales", scales, dim=2)
    dtype = check_scales(op, x, scales)
    check_group(f"{op}: ", type, group, dtype)
    if x.dim() < 1:
        raise ValueError(f"{op}: x must have a dimension at least")
    rows = group_rows(group)
    groups = scales.shape[0] * group // rows if group else packed.shape[1]
    if x.shape[-1] != groups * rows:
        raise ValueError(f"{op}: x must have {groups * rows} columns, as the weights have rows, not {x.shape[-1]}")
    check_zeros(op, type, zeros)
    check_out(op, dtype, out_dtype)


#: Names of the arguments that the kernels of matmul_lowbit call otherwise, and what their constants are.
LOWBIT = {
    "names": {"a": "x", "p": "packed", "s": "scales", "z": "zeros", "factor": "multiplier"},
    "constants": lambda type: format_of(type).consts, "ATYPE": activations_of,
    "STYPE": lambda scales: NARROW.get(scales.dtype), "GROUP": "group", "ZEROS": "zeros", "BIAS": "bias",
    "OTYPE": "out_dtype", "FACTOR": "multiplier",
}  # fmt: skip


@operator(
    "matmul_lowbit", **LOWBIT, BATCH_INVARIANT="batch_invariant", EARLY="early", shapes=ROWS, check=_check_lowbit,
    route=_widened,
)  # fmt: skip
def matmul_lowbit(
    x: torch.Tensor, packed: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor | None = None,
    bias: torch.Tensor | None = None, *, type: str, group: int = 128, out_dtype: torch.dtype | None = None,
    batch_invariant: bool = False, multiplier: torch.Tensor | None = None, early: bool = False,
) -> torch.Tensor:  # fmt: skip
    """x @ W * multiplier + bias for weights W [k, n] of any low-precision type, where x is [..., k], of the type of the
    scales.

    packed: uint8, packed_shape(type, group, k, n), by quantize.pack; scales: halves [k / group, n], or [1, n] for group
    0; zeros: as x, zero points of unsigned types; bias: [n]; multiplier: float32 [1], of the sums in f32. n is a
    multiple of 8, k of group_rows(group). Scales may be float8_e4m3fn (NVFP4), or uint8, the bits of e8m0 (MXFP4), with
    x of either type of halves and n a multiple of 16; those of e8m0 become infinite above 2^28, in float16 above 2^5.
    out_dtype: torch.float32 leaves the sums unrounded. batch_invariant: a row's bits do not depend on the other rows.
    early: the first weights, scales and zero points are read while the launch before on the stream may still run, so
    that launch must not be what writes them.
    """


lowbit_operator = matmul_lowbit.operator


# ---- matmul ----

_ACTIVATIONS = ("none", "relu", "silu", "gelu", "gelu_tanh")
_WIDE = {True: (torch.float8_e4m3fn, torch.float8_e5m2), False: (torch.int8, torch.uint8)}  # by: is it a float?


def _check_matmul(op, a, b, scale_a, scale_b, out_dtype):
    need(op, "b", b, dtype=(a.dtype,) if a.dtype in FLOATS else _WIDE[a.dtype.is_floating_point], dim=2)
    n, k = b.shape
    if a.dim() < 1 or a.shape[-1] != k:
        raise ValueError(f"{op}: a must have {k} columns, as b has, not the shape {list(a.shape)}")
    if n % 8 or k % 16:
        raise ValueError(f"{op}: b must have a multiple of 8 rows and of 16 columns, not the shape {[n, k]}")
    if (scale_a is None) != (scale_b is None) or scale_a is None and a.dtype in (torch.int8, torch.uint8):
        raise ValueError(f"{op}: scale_a and scale_b go together, and integers need them")
    rows = math.prod(a.shape[:-1])
    if scale_a is not None and scale_a.numel() != rows:
        raise ValueError(f"{op}: scale_a must have {rows} elements, not {scale_a.numel()}")


@operator(
    "matmul", T=("a", (*FLOATS, *_WIDE[True], *_WIDE[False])), TB=lambda a, b: None if a.dtype in FLOATS else b.dtype,
    OTYPE=("out_dtype", FLOATS), SCALES="scale_a", BIAS="bias", RESIDUAL="residual", ACT=("activation", _ACTIVATIONS),
    names={"sa": "scale_a", "sb": "scale_b", "r": "residual"}, shapes=ROWS, flat=("scale_a",), check=_check_matmul,
    multiplies=True,
)  # fmt: skip
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


# ---- row by row ----


@operator("rms_norm", T=("x", FLOATS), names={"w": "weight"}, shapes=ROWS, check=lambda op, x: check_row(op, x))
def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last dimension, in f32: x a float [..., n], weight [n] of its
    type."""


#: Columns at most of gated_rms_norm.
GATED_COLUMNS = 6128


def _check_gated(op, x):
    check_row(op, x)
    if x.shape[-1] > GATED_COLUMNS and (x.shape[-1] * x.element_size() % 16 or x.shape[-1] > 8192):
        raise ValueError(f"{op}: x must have {GATED_COLUMNS} columns at most, or rows of 16 bytes up to 8192 columns")


@operator(
    "rms_norm", T=("x", FLOATS), GATE=lambda first: "before" if first else "after", names={"w": "weight", "z": "gate"},
    shapes=ROWS, check=_check_gated,
)  # fmt: skip
def gated_rms_norm(
    x: torch.Tensor, gate: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6, first: bool = False,
) -> torch.Tensor:  # fmt: skip
    """rms_norm(x, weight, eps) * silu(gate), in f32, or with `first` rms_norm of x * silu(gate).

    x, gate: floats [..., n], n up to 8192; weight: [n] of their type.
    """


@operator("layer_norm", T=("x", FLOATS), names={"w": "weight", "b": "bias"}, shapes=ROWS,
          check=lambda op, x: check_row(op, x))  # fmt: skip
def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-5) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias over the last dimension, in f32: x a float [..., n], weight and
    bias [n] of its type."""


@operator(
    "layer_norm", check=_check_norm, **{**QUANTIZED, "names": {"w": "weight", "b": "bias", **QUANTIZED["names"]}},
)  # fmt: skip
def layer_norm_quantized(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-5, dtype: torch.dtype = torch.int8,
    group: int = 0, by_group: bool = False, scale_dtype: torch.dtype | None = None, scale: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """quantize_rows(layer_norm(x, weight, bias, eps), dtype, group, by_group, scale_dtype, scale) in one launch: x a
    float [..., n], n at most 16384, weight and bias [n]."""


#: Columns at most of add_rms_norm with inner.
INNER_COLUMNS = 16384


def _check_add_rms_norm(op, x, inner):
    check_row(op, x)
    if inner is not None and x.shape[-1] > INNER_COLUMNS:
        raise ValueError(f"{op}: x must have {INNER_COLUMNS} columns at most with inner, not {x.shape[-1]}")


@operator(
    "rms_norm", "add_rms_norm", T=("x", FLOATS), INNER="inner", names={"v": "inner", "w": "weight"},
    shapes=ROWS, writes=("residual",), check=_check_add_rms_norm,
)  # fmt: skip
def add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6, inner: torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    """Adds x to residual, in place, rounded to their type, and returns rms_norm of the sum. With inner rms_norm(x,
    inner, eps) is added in the place of x, by the same launch; n is at most 16384 then.

    x, residual: floats [..., n]; weight, inner: of their type, [n].
    """


def _check_swiglu(op, x):
    check_row(op, x)
    if x.shape[-1] % 2:
        raise ValueError(f"{op}: x must have an even number of columns, not {x.shape[-1]}")


@operator(
    "swiglu", T=("x", FLOATS), ACT=("activation", _ACTIVATIONS[2:]), PAIRS="pairs", shapes=ROWS, check=_check_swiglu,
)  # fmt: skip
def swiglu(x: torch.Tensor, activation: str = "silu", pairs: bool = False) -> torch.Tensor:
    """activation(a) * b, where a row of x [..., 2n] is one of a and then of b: silu, gelu or gelu_tanh. pairs: elements
    2i and 2i + 1 are an a and its b."""


def _check_rope(op, x):
    if x.dim() < 2 or x.shape[-1] % 2:
        raise ValueError(f"{op}: x must be [..., heads, d] with d even, not {list(x.shape)}")


@operator(
    "rope", T=("x", FLOATS), STYLE=("style", ("half", "interleaved")), INVERSE="inverse", shapes={"tokens": "..."},
    check=_check_rope,
)  # fmt: skip
def rope(
    x: torch.Tensor, positions: torch.Tensor, table: torch.Tensor, style: str = "half", inverse: bool = False,
) -> torch.Tensor:  # fmt: skip
    """Rotary embedding of x, a float [..., heads, d], d even.

    positions: i32 [...]; table: f32 [max, d], of each position the d/2 cosines and then the sines. style: half
    (elements i and i + d/2 are a pair) or interleaved (2i and 2i + 1). A position outside of the table gives zeros.
    inverse: turns back.
    """


@operator("combine", T=("x", FLOATS), BASE="base")
def combine(
    x: torch.Tensor, places: torch.Tensor, weights: torch.Tensor, base: torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    """weights[t, 0] * x[places[t, 0]] + weights[t, 1] * x[places[t, 1]] + ... + base[t], added in f32: [tokens, n].

    x: a float [rows, n]; places: i32 [tokens, top], of which one that is no row of x adds nothing; weights: f32
    [tokens, top]; base: as the result.
    """


@operator("softmax", T=("x", FLOATS), shapes=ROWS, check=lambda op, x: check_row(op, x))
def softmax(x: torch.Tensor) -> torch.Tensor:
    """Softmax over the last dimension of a float [..., n], n up to 2^20, computed in f32."""


@operator(
    "argmax", T=("x", (*FLOATS, torch.int8, torch.uint8, torch.int32)), shapes=ROWS,
    check=lambda op, x: check_row(op, x, columns=30),
)  # fmt: skip
def argmax(x: torch.Tensor) -> torch.Tensor:
    """The index of the greatest element of the last dimension of x [..., n], the lowest of equal ones: i32 [...]. x: a
    float, int8, uint8 or int32; a NaN is below every number."""


def _check_quantize_rows(op, x, dtype, group, by_group, scale_dtype, scale):
    check_quantized(op, x, dtype, group, by_group, scale_dtype, scale, x.shape[-1] if x.dim() else 0)


@operator("quantize_rows", check=_check_quantize_rows, **QUANTIZED)
def quantize_rows(
    x: torch.Tensor, dtype: torch.dtype = torch.int8, group: int = 0, by_group: bool = False,
    scale_dtype: torch.dtype | None = None, scale: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """x [..., n] as 8-bit numbers of dtype (int8, float8_e4m3fn, float8_e5m2), and f32 scales [..., n / group or 1]; or
    with a group as numbers of 4 bits.

    x is numbers * scales; a scale for each row, or `group` columns (16 to 512): max |x| / the greatest number.
    by_group: scales of m rows as [n / group, cdiv(m, 4) * 4], as matmul_scaled reads them fastest; those of rows beyond
    m are anything.

    dtype torch.float4_e2m1fn_x2, or uint8 for its bytes: f4_e2m1, [..., n / 2], the first of two numbers in the lower
    four bits of a byte, as torchao and compressed-tensors pack them, too. scale_dtype (None: f32):
    torch.float8_e8m0fnu, or uint8 for its bytes, powers of two of groups of 32 of floats (MXFP8, MXFP4); float8_e4m3fn,
    of groups of 16 of f4_e2m1 (NVFP4), with which scale, f32 [1], may be that of the whole tensor: x is numbers *
    scales * scale.
    """


def _check_embedding(op, each):
    if each < 1:
        raise ValueError(f"{op}: each must be 1 or more, not {each}")


@operator(
    "embedding", T=("table", FLOATS), EACH=lambda each: each != 1, shapes={"rows": "..."}, check=_check_embedding,
)  # fmt: skip
def embedding(ids: torch.Tensor, table: torch.Tensor, each: int = 1) -> torch.Tensor:
    """table[ids // each], rows of zeros where there is no such row: ids i32 [...], table a float [vocabulary, n]; each:
    so many ids share a row, as the choices of a token do."""


def cross_entropy(
    logits: torch.Tensor, labels: torch.Tensor, *, ignore: int = -100, smoothing: float = 0.0, z: float = 0.0,
    reduction: str = "mean",
) -> torch.Tensor:  # fmt: skip
    """The loss of cross_entropy_rows: its mean over labels that are not `ignore`, f32 [], or their sum, or (none) that
    of each row, f32 [...]."""
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"cross_entropy: reduction must be mean, sum or none, not {reduction!r}")
    loss, _ = cross_entropy_rows(logits, labels, ignore, smoothing, z)
    if reduction == "none":
        return loss
    return loss.sum() if reduction == "sum" else loss.sum() / (labels != ignore).sum()


from . import _autograd as _autograd  # noqa: E402  the operators' gradients, which need all of them

"""Stacks of linear layers of which each row of activations takes one: the experts of a mixture.

    rows = rows_of(top_k_index, experts)        # on the device: the rows of each expert, one expert after the other
    y = rows.gather(stack(rows.spread(x), rows))

A launch multiplies all rows, each by its expert's matrix, which blocks find by offsets in memory: nothing waits for the
device, so that a mixture can be captured into a CUDA graph. quantize_ puts MixtureOfExperts in the place of the experts
of transformers (Mixtral, Qwen 2 and 3 MoE, gpt-oss, DeepSeek, ...).
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any, NamedTuple

from ._torch import torch

from ._formats import format_of
from ._narrow import check_scales, widened
from ._registry import FLOATS, need, need_tensor, operator
from ._route import Routes, bucket
from ._router import give_routers
from .nn import Linear, LowBit, filled
from .ops import LOWBIT, check_group, check_out, check_zeros, combine, embedding, group_rows

__all__ = ["ExpertRows", "Experts", "MixtureOfExperts", "matmul_experts", "route_", "rows_of"]

class ExpertRows(NamedTuple):
    """Rows sorted by expert: those of expert e are offsets[e] to offsets[e + 1] - 1. Behind them are those of none."""

    rows: torch.Tensor  #: i32 [count]: which row stands at each place
    offsets: torch.Tensor  #: i32 [experts + 1]
    places: torch.Tensor  #: i32 [count]: the place of each row; count of one of none

    def spread(self, x: torch.Tensor, each: int = 1) -> torch.Tensor:
        """x [count / each, k] as sorted rows [count, k]; each: rows that share one of x."""
        if x.dtype in FLOATS and x.dim() == 2:
            return embedding(self.rows, x.contiguous(), each)
        return x.index_select(0, self.rows if each == 1 else self.rows // each)

    def gather(self, y: torch.Tensor) -> torch.Tensor:
        """The way back; rows without an expert are zeros."""
        count = self.places.shape[0]
        return torch.where((self.places < count)[:, None], y.index_select(0, self.places.clamp(max=count - 1)), 0)


def rows_of(index: torch.Tensor | Routes, experts: int) -> ExpertRows:
    """The rows of each expert for an integer tensor that names the expert of each row, of any shape; without a copy to
    the host. A number that is not 0 to experts - 1 is that of no expert. Routes, of ops.route, are sorted already."""
    if isinstance(index, Routes):
        need("rows_of", "offsets", index.offsets, shape=(experts + 1,))
        return ExpertRows(index.rows, index.offsets, index.places.reshape(-1))
    need_tensor("rows_of", "index", index)
    if index.dtype.is_floating_point or index.dtype == torch.bool:
        raise TypeError(f"rows_of: index must be of integers, not {index.dtype}")
    offsets, rows, places = bucket(index.reshape(-1).int(), buckets=experts)
    return ExpertRows(rows, offsets, places)


# ---- the operator ----

_GATHERED = 8  #: rows in all up to which the product itself gathers them; more are copied sooner (bench/REJECTED)
MOST_EXPERTS = 512  #: as the program has room for their offsets


def _check(op, x, offsets, packed, scales, zeros, type, group, out_dtype, rows, early):
    need(op, "scales", scales, dim=3)
    dtype = check_scales(op, x, scales)
    check_group(f"{op}: ", type, group, dtype)
    need(op, "x", x, dim=2)
    need(op, "packed", packed, dim=4)
    k = packed.shape[2] * group_rows(group)
    if x.shape[1] != k:
        raise ValueError(f"{op}: x must have {k} columns, as the weights have rows, not {x.shape[1]}")
    if not 1 <= packed.shape[0] <= MOST_EXPERTS:
        raise ValueError(f"{op}: packed must be of 1 to {MOST_EXPERTS} experts, not {packed.shape[0]}")
    need(op, "offsets", offsets, dtype=torch.int32, shape=(packed.shape[0] + 1,))
    check_zeros(op, type, zeros)
    check_out(op, dtype, out_dtype)
    if early and rows is not None:
        raise ValueError(f"{op}: early goes without rows")


GATES = ("silu", "gelu", "gelu_tanh", "clamped")  #: as matmul_lowbit has them


@operator("matmul_lowbit", **LOWBIT, EXPERTS=True, GATE=("gate", GATES), GATHER="rows", EARLY="early", check=_check)
def matmul_experts(
    x: torch.Tensor, offsets: torch.Tensor, packed: torch.Tensor, scales: torch.Tensor,
    zeros: torch.Tensor | None = None, bias: torch.Tensor | None = None, *, type: str, group: int = 128,
    out_dtype: torch.dtype | None = None, multiplier: torch.Tensor | None = None, gate: str | None = None,
    rows: torch.Tensor | None = None, top: int = 1, early: bool = False,
) -> torch.Tensor:  # fmt: skip
    """Rows offsets[e] to offsets[e + 1] - 1 of x times matrix e of a stack, for all e: [m, n].

    x: halves [m, k]; offsets: i32 [experts + 1], of which one that is less than the one before it, or no row, counts
    as the nearest that is not: rows of no matrix are undefined in the result; packed: uint8 [experts,
    *packed_shape(type, group, k, n)], of 1 to 512 experts; scales: of x's type, or of 8 bits as matmul_lowbit takes
    them, [experts, k / group, n], or [experts, 1, n] for group 0; zeros: of x's type, shaped as scales; bias:
    [experts, n]; multiplier: f32 [experts]; out_dtype: as of matmul_lowbit.

    gate: silu, gelu or gelu_tanh: act(a) * b of the results a and b of columns 2j and 2j + 1, [m, n / 2]; clamped:
    gpt-oss' a / (1 + exp(-1.702 a)) * (b + 1), with a at most 7 and b within 7. rows: i32 [m], where x is [tokens, k]:
    row i is x[rows[i] / top], of few rows an expert, which need no copy then. early: offsets and the first weights,
    scales and zero points are read while this package's launches before may still run, so that none of those since the
    last launch of embedding, of matmul_experts without early, or of another package, may write them; without rows.
    """


# ---- layers ----


class Experts(LowBit):
    """`experts` linear layers of one shape and type, nn.Linear without a gradient: y[i] = x[i] W[expert of i]^T + bias.

    The arguments, but for batch_invariant, and the buffers are those of nn.Linear, the buffers with a first dimension
    of experts: packed, scales, zeros, bias, order, multiplier.
    """

    has_turns = False  #: are outputs 2j and 2j + 1 a gate and what it gates?

    def __init__(
        self, experts: int, in_features: int, out_features: int, bias: bool = True, *,
        device: torch.device | str | None = None, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        if not isinstance(experts, int) or not 1 <= experts <= MOST_EXPERTS:
            raise ValueError(f"Experts: experts must be a number from 1 to {MOST_EXPERTS}, not {experts!r}")
        one = Linear(in_features, out_features, bias, device="meta", **options)
        if one.batch_invariant:
            raise ValueError("Experts: batch_invariant is for nn.Linear alone")
        self.experts, self.in_features, self.out_features = experts, in_features, out_features
        self.type, self.group, self._whole, self._activations = one.type, one.group, one._whole, one._activations
        for name, tensor in one._buffers.items():
            made = None
            if tensor is not None:
                shape = () if name == "multiplier" else tensor.shape
                made = torch.zeros(experts, *shape, dtype=tensor.dtype, device=device)
            self.register_buffer(name, made)
        if self.order is not None:
            self.order += torch.arange(in_features, dtype=torch.int32, device=device)
        if self.multiplier is not None:
            self.multiplier += 1

    @classmethod
    def from_linears(cls, layers: Iterable[Linear]) -> Experts:
        """Of nn.Linear layers of one shape and type, whose tensors are copied. What some have and others have not, is
        made up: zero points in the middle, a bias of zeros, the plain order, a multiplier of 1. Scales are of 8 bits
        where those of all are."""
        layers = list(layers)
        return cls.collect(layers, len(layers))

    @classmethod
    @torch.no_grad()
    def collect(cls, layers: Iterable[Linear], count: int) -> Experts:
        """from_linears of an iterable of `count` layers, of which only one need be there at a time."""
        made = None
        for i, layer in enumerate(layers):
            if not isinstance(layer, Linear):
                raise TypeError(f"layers must be nn.Linear, not {type(layer).__name__}")
            if made is None:
                made = cls(
                    count, layer.in_features, layer.out_features, False, type=layer.type, group=layer.group,
                    dtype=layer.dtype, scale_dtype=layer.scale_dtype, device="meta",
                )  # fmt: skip
            for name in ("in_features", "out_features", "type", "group", "dtype"):
                if getattr(layer, name) != getattr(made, name):
                    raise ValueError(f"{name} of expert {i} is {getattr(layer, name)}, not {getattr(made, name)}")
            if layer.scale_dtype != made.scale_dtype:
                made._widen()
            for name, value in layer._buffers.items():
                if name == "scales" and made.scale_dtype is None:
                    value = widened(value, layer.dtype)
                made._set(name, i, value)
        if made is None or i != count - 1:
            raise ValueError(f"there must be {count} layers, one at least")
        return made

    def _widen(self):
        """Scales of 8 bits become halves, as those of another expert are."""
        if self.scale_dtype is not None:
            self.scales, self._activations = widened(self.scales, self.dtype), None

    def _set(self, name, expert, value):
        """Copies an expert's tensor to its place; None where it has none, for which the others' make up one."""
        buffer = self._buffers[name]
        if value is None and buffer is None:
            return
        if buffer is None or buffer.is_meta:
            shape = (self.experts,) if name == "multiplier" else (self.experts, *value.shape)
            plain = {"zeros": float(1 << format_of(self.type).bits - 1), "multiplier": 1.0}.get(name, 0)
            buffer = self._buffers[name] = torch.full(shape, plain, dtype=value.dtype, device=value.device)
            if name == "order":
                buffer += torch.arange(self.in_features, dtype=value.dtype, device=value.device)
        if value is not None:
            buffer[expert] = value.view(buffer[expert].shape)

    @classmethod
    @torch.no_grad()
    def from_float(
        cls, weight: torch.Tensor, type: str = "u4", group: int = 128, *, bias: torch.Tensor | None = None,
        transposed: bool = False, device: torch.device | str | None = None, **options: Any,
    ) -> Experts:  # fmt: skip
        """Quantizes weights [experts, out_features, in_features], or with transposed [experts, in_features,
        out_features], one expert after the other; bias: [experts, out_features]; options: of nn.Linear.from_float."""
        need_tensor("from_float", "weight", weight)
        if weight.dim() != 3:
            raise ValueError(f"from_float: weight must have 3 dimensions, not the shape {list(weight.shape)}")

        def layers():
            for i, matrix in enumerate(weight.detach()):
                linear = torch.nn.Linear(1, 1, bias=False, device="meta")
                linear.weight = torch.nn.Parameter(matrix.t() if transposed else matrix, requires_grad=False)
                if bias is not None:
                    linear.bias = torch.nn.Parameter(bias[i].detach(), requires_grad=False)
                yield Linear.from_float(linear, type, group, device=device, **options)

        return cls.collect(layers(), weight.shape[0])

    def linear(self, expert: int) -> Linear:
        """One of them, an nn.Linear over the same memory."""
        made = Linear(
            self.in_features, self.out_features, self.bias is not None, type=self.type, group=self.group,
            zeros=self.zeros is not None, dtype=self.dtype, scale_dtype=self.scale_dtype, device="meta",
        )  # fmt: skip
        for name, buffer in self._buffers.items():
            value = None if buffer is None else buffer[expert]
            made._buffers[name] = value.view(1) if name == "multiplier" and value is not None else value
        return made

    def dequantize(self, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """The weights [experts, out_features, in_features]."""
        return torch.stack([self.linear(i).dequantize(dtype) for i in range(self.experts)])

    def forward(
        self, x: torch.Tensor, experts: torch.Tensor | ExpertRows, bias: torch.Tensor | None = None,
        gate: str | None = None, early: bool = False,
    ) -> torch.Tensor:  # fmt: skip
        """x: [rows, in_features]; experts: an integer to a row, or the ExpertRows by which x has been sorted, as the
        result is then. bias: [experts, out_features], in the place of the layers' own. gate, early: as of
        matmul_experts, early with ExpertRows alone."""
        need_tensor("Experts", "x", x)
        if x.dtype is not self.dtype and torch.is_autocast_enabled(x.device.type):
            x = x.to(self.dtype)
        if x.dim() != 2 or x.shape[1] != self.in_features:
            raise ValueError(f"Experts: x must have the shape [rows, {self.in_features}], not {list(x.shape)}")
        if isinstance(experts, ExpertRows):
            return self._multiply(x, experts, bias, gate, early=early)
        rows = rows_of(experts, self.experts)
        named = rows.places.shape[0]
        if named != x.shape[0]:
            raise ValueError(f"Experts: experts must name one for each of {x.shape[0]} rows, not {named}")
        return rows.gather(self._multiply(rows.spread(x), rows, bias, gate))

    def of_tokens(
        self, x: torch.Tensor, rows: ExpertRows, bias: torch.Tensor | None = None, gate: str | None = None,
    ) -> torch.Tensor:  # fmt: skip
        """x: [tokens, in_features], whose rows [tokens * top] the ExpertRows are of. The result is sorted."""
        top = rows.rows.shape[0] // max(x.shape[0], 1)
        few = rows.rows.shape[0] <= _GATHERED and self.order is None
        if few:
            return self._multiply(x, rows, bias, gate, top)
        return self._multiply(rows.spread(x, top), rows, bias, gate, early=True)  # spread began after the offsets

    def _multiply(self, x, rows, bias, gate=None, top=0, early=False):
        n, k = self._whole
        if self.scale_dtype is not None and x.dtype != self.dtype:  # the operator takes both types of halves
            raise TypeError(f"Experts: x must be {self.dtype}, not {x.dtype}")
        if self.order is not None:
            place = torch.arange(x.shape[0], dtype=torch.int32, device=x.device)
            owner = torch.searchsorted(rows.offsets[1:], place, right=True).clamp(max=self.experts - 1)
            x = x.gather(1, self.order.index_select(0, owner).long())
        if k != self.in_features:
            x = torch.nn.functional.pad(x, (0, k - self.in_features))
        bias = filled(self.bias if bias is None else bias.to(self.dtype).contiguous(), n)
        y = matmul_experts.operator(
            x.contiguous(), rows.offsets, self.packed, self.scales, self.zeros, bias, self.type, self.group, None,
            self.multiplier, gate, rows.rows if top else None, top or 1, early,
        )  # fmt: skip
        columns = self.out_features // (2 if gate else 1)
        return y if columns == y.shape[1] else y[:, :columns].contiguous()

    def extra_repr(self) -> str:
        return f"experts={self.experts}, {self.linear(0).extra_repr()}"


class MixtureOfExperts(torch.nn.Module):
    """The experts of a mixture of transformers, with low-precision weights: y = sum over the top k of weight * expert.

    In the place of a module with num_experts, weights gate_up_proj (or up_proj) and down_proj of three dimensions, and
    transformers' way to call it, (hidden_states [tokens, hidden], top_k_index, top_k_weights [tokens, k]). What stands
    between the two products is that module's own. Stacks: gate_up_proj, or gate_proj and up_proj, and down_proj.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        if not is_mixture(module):
            raise TypeError(f"module must be the experts of a mixture of transformers, not {type(module).__name__}")
        self.num_experts = module.num_experts
        between = copy.copy(module)
        between._parameters = {}
        self._between = [between]  # no module of ours: it has no tensors
        for name, parameter in module._parameters.items():
            if name.endswith("_bias"):
                self.register_parameter(name, parameter)
        self.train(module.training)

    def _gate(self):
        """That of matmul_experts which stands between the products; None: it is the module's own."""
        between = self._between[0]
        is_clamped = (getattr(between, "alpha", None), getattr(between, "limit", None)) == (1.702, 7.0)
        return "clamped" if self._interleaved() and is_clamped else None

    def _interleaved(self):
        return not getattr(self._between[0], "is_concatenated", True)

    def forward(
        self, hidden_states: torch.Tensor, top_k_index: torch.Tensor | Routes, top_k_weights: torch.Tensor,
    ) -> torch.Tensor:  # fmt: skip
        """top_k_index: integers [tokens, k], of which those that are no expert add nothing, or what ops.route gave."""
        shape = hidden_states.shape
        rows = rows_of(top_k_index, self.num_experts)
        y = self._products(hidden_states.reshape(-1, shape[-1]), rows)
        y = combine(y, rows.places.view(top_k_weights.shape), top_k_weights.float().contiguous())
        return y.to(hidden_states.dtype).view(shape)

    def expanded(
        self, x: torch.Tensor, ends: torch.Tensor, weights: torch.Tensor | None = None, *, alignment: int = 1,
    ) -> torch.Tensor:  # fmt: skip
        """Of rows that are sorted by expert already, as DeepEP's dispatch gives them with do_expand: weights * expert,
        and zeros for rows of none.

        x: [count, hidden]; ends: i32 [num_experts], psum_num_recv_tokens_per_expert, where the rows of each end; the
        next expert's begin there, or at the next multiple of alignment. weights: [count], or None for 1.
        """
        need("expanded", "ends", ends, shape=(self.num_experts,))
        begins = (ends + (alignment - 1)) // alignment * alignment
        offsets = torch.cat([begins.new_zeros(1), begins]).int()
        place = torch.arange(x.shape[0], dtype=torch.int32, device=x.device)
        owner = torch.searchsorted(offsets[1:], place, right=True).clamp(max=self.num_experts - 1)
        y = self._products(x, ExpertRows(place, offsets, place), is_sorted=True)
        y = y if weights is None else y * weights.view(-1, 1)
        return torch.where((place < ends[owner])[:, None], y, 0).to(x.dtype)

    def _products(self, x, rows, is_sorted=False):
        """Of tokens x whose choices the ExpertRows sort, or of rows that are sorted already: what their experts make of
        them, sorted, without weights."""
        gate = None
        if hasattr(self, "gate_proj"):
            x = x if is_sorted else rows.spread(x, rows.rows.shape[0] // max(x.shape[0], 1))
            h = torch.stack([self.gate_proj(x, rows), self.up_proj(x, rows)], -1 if self._interleaved() else -2)
            h = h.flatten(-2)
        else:
            first = "gate_up_proj" if hasattr(self, "gate_up_proj") else "up_proj"
            stack, bias, gate = getattr(self, first), getattr(self, f"{first}_bias", None), self._gate()
            h = stack(x, rows, bias, gate) if is_sorted else stack.of_tokens(x, rows, bias, gate)
        between = self._between[0]
        if gate is None:
            h = between._apply_gate(h) if getattr(between, "has_gate", True) else between.act_fn(h)
        # the first product has waited for what wrote the offsets
        return self.down_proj(h.to(x.dtype), rows, getattr(self, "down_proj_bias", None), early=True)


def route_(model: torch.nn.Module) -> torch.nn.Module:
    """Has the routers of mixtures with low-precision weights choose experts by ops.route, and sort the tokens in the
    same launch, in place; returns the model. A router that computes something else stays as it is. quantize_, and what
    loads quantized models, do so."""
    return give_routers(model, lambda module: isinstance(module, MixtureOfExperts))


def is_mixture(module) -> bool:
    """Has it the experts of a mixture as transformers keeps them, stacked?"""
    down = getattr(module, "_parameters", {}).get("down_proj")
    return down is not None and down.dim() == 3 and hasattr(module, "num_experts") and bool(stacks_of(module))


def stacks_of(module) -> list[str]:
    """The names of the weights of a mixture's experts that are stacked, the first product's first."""
    found = [name for name in ("gate_up_proj", "up_proj") if name in module._parameters]
    return [*found[:1], "down_proj"] if found else []


@torch.no_grad()
def quantize_mixture(module, types, group, **options) -> MixtureOfExperts:
    """Of the experts of transformers; types: a type for each of stacks_of(module); options: of nn.Linear.from_float."""
    made = MixtureOfExperts(module)
    for name in stacks_of(module):
        weight = module._parameters[name]
        stack = Experts.from_float(weight, types[name], group, transposed=_transposed(module), **options)
        made.add_module(name, stack)
    return made


def empty_mixture(module, type, group, *, zeros) -> MixtureOfExperts:
    """What quantize_mixture makes, without memory."""
    made = MixtureOfExperts(module)
    for name in stacks_of(module):
        weight = module._parameters[name]
        experts, outputs, inputs = weight.mT.shape if _transposed(module) else weight.shape
        words = {"type": type, "group": group, "zeros": zeros, "dtype": weight.dtype, "device": "meta"}
        made.add_module(name, Experts(experts, inputs, outputs, False, **words))
    return made


def _transposed(module):
    return getattr(module, "is_transposed", False)

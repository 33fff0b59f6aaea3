"""Stacks of linear layers of which each row of activations takes one: the experts of a mixture.

    rows = rows_of(top_k_index, experts)        # on the device: the rows of each expert, one expert after the other
    y = rows.gather(stack(rows.spread(x), rows))

A launch multiplies all rows, each by its expert's matrix, which blocks find by offsets in memory: nothing waits for the
device, so that a mixture can be captured into a CUDA graph. quantize_ puts MixtureOfExperts in the place of the experts
of transformers (Mixtral, Qwen 2 and 3 MoE, gpt-oss, DeepSeek, ...).
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterable
from typing import Any

from ._torch import torch

from ._act8_experts import matmul_lowbit_a8_experts, matmul_scaled_experts
from ._expert_rows import ExpertRows, check_offsets, rows_of
from ._experts8 import Experts8
from ._narrow import check_scales, widened
from ._registry import need, operator
from ._route import Routes
from ._router import give_routers
from ._stack import Stack
from .nn import Linear, Linear8, LowBit, filled
from .ops import LOWBIT, check_group, check_out, check_zeros, combine, group_rows

__all__ = [
    "ExpertRows", "Experts", "Experts8", "MixtureOfExperts", "matmul_experts", "matmul_lowbit_a8_experts",
    "matmul_scaled_experts", "route_", "rows_of",
]  # fmt: skip

# ---- the operator ----

_GATHERED = 8  #: rows in all up to which the product itself gathers them; more are copied sooner (bench/REJECTED)


def _check(op, x, offsets, packed, scales, zeros, type, group, out_dtype, rows, early):
    need(op, "scales", scales, dim=3)
    dtype = check_scales(op, x, scales)
    check_group(f"{op}: ", type, group, dtype)
    need(op, "x", x, dim=2)
    need(op, "packed", packed, dim=4)
    k = packed.shape[2] * group_rows(group)
    if x.shape[1] != k:
        raise ValueError(f"{op}: x must have {k} columns, as the weights have rows, not {x.shape[1]}")
    check_offsets(op, "packed", packed, offsets)
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


class Experts(Stack):
    """`experts` linear layers of one shape and type, nn.Linear without a gradient: y[i] = x[i] W[expert of i]^T + bias.

    The arguments, but for batch_invariant, and the buffers are those of nn.Linear, the buffers with a first dimension
    of experts: packed, scales, zeros, bias, order, multiplier.
    """

    has_turns = False  #: are outputs 2j and 2j + 1 a gate and what it gates?
    has_gates = True
    _of = Linear
    _own = ("in_features", "out_features", "type", "group", "_whole", "_activations")
    _alike = ("in_features", "out_features", "type", "group", "dtype")

    def __init__(
        self, experts: int, in_features: int, out_features: int, bias: bool = True, *,
        device: torch.device | str | None = None, **options: Any,
    ) -> None:  # fmt: skip
        one = Linear(in_features, out_features, bias, device="meta", **options)
        if one.batch_invariant:
            raise ValueError("Experts: batch_invariant is for nn.Linear alone")
        super().__init__(experts, one, device)

    @classmethod
    def _like(cls, layer, count):
        return cls(
            count, layer.in_features, layer.out_features, False, type=layer.type, group=layer.group,
            dtype=layer.dtype, scale_dtype=layer.scale_dtype, device="meta",
        )  # fmt: skip

    def _one(self):
        return Linear(
            self.in_features, self.out_features, self.bias is not None, type=self.type, group=self.group,
            zeros=self.zeros is not None, dtype=self.dtype, scale_dtype=self.scale_dtype, device="meta",
        )  # fmt: skip

    @classmethod
    def from_float(
        cls, weight: torch.Tensor, type: str = "u4", group: int = 128, *, activations: str | None = None,
        **options: Any,
    ) -> Experts | Experts8:  # fmt: skip
        """Quantizes weights [experts, out_features, in_features], or with transposed [experts, in_features,
        out_features], one expert after the other; bias: [experts, out_features]; activations: as of
        nn.Linear.from_float, of which other options are: an Experts8, which rounds x to 8 or 4 bits."""
        if activations is not None:
            return Experts8.from_float(weight, type, group, activations=activations, **options)
        return super().from_float(weight, type, group, **options)

    def _take(self, expert, layer):
        if layer.scale_dtype != self.scale_dtype and self.scale_dtype is not None:
            # scales of 8 bits become halves, as those of another expert are
            self.scales, self._activations = widened(self.scales, self.dtype), None
        for name, value in layer._buffers.items():
            if name == "scales" and self.scale_dtype is None:
                value = widened(value, layer.dtype)
            self._set(name, expert, value)

    def forward(
        self, x: torch.Tensor, experts: torch.Tensor | ExpertRows, bias: torch.Tensor | None = None,
        gate: str | None = None, early: bool = False,
    ) -> torch.Tensor:  # fmt: skip
        """x: [rows, in_features]; experts: an integer to a row, or the ExpertRows by which x has been sorted, as the
        result is then. bias: [experts, out_features], in the place of the layers' own. gate, early: as of
        matmul_experts, early with ExpertRows alone."""
        return self._by_expert(x, experts, lambda x, rows: self._multiply(x, rows, bias, gate, early=early))

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
            x = x.gather(1, self.order.index_select(0, rows.owners(x.shape[0])).long())
        if k != self.in_features:
            x = torch.nn.functional.pad(x, (0, k - self.in_features))
        bias = filled(self.bias if bias is None else bias.to(self.dtype).contiguous(), n)
        y = matmul_experts.operator(
            x.contiguous(), rows.offsets, self.packed, self.scales, self.zeros, bias, self.type, self.group, None,
            self.multiplier, gate, rows.rows if top else None, top or 1, early,
        )  # fmt: skip
        columns = self.out_features // (2 if gate else 1)
        return y if columns == y.shape[1] else y[:, :columns].contiguous()

    def behind(
        self, h: torch.Tensor, rows: ExpertRows, unit: Callable[[torch.Tensor], torch.Tensor], activation: str | None,
        bias: torch.Tensor | None = None,
    ) -> torch.Tensor:  # fmt: skip
        # the product before has waited for what wrote the offsets
        return self(unit(h).to(self.dtype), rows, bias, early=True)


def collect(layers: Iterable[LowBit], count: int) -> Experts | Experts8:
    """The stack of an iterable of `count` layers, nn.Linear or nn.Linear8, as collect of its class makes it."""
    layers = iter(layers)
    first = next(layers, None)
    kind = Experts8 if isinstance(first, Linear8) else Experts
    return kind.collect(layers if first is None else itertools.chain([first], layers), count)


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
        self._activation = _activation_of(between)
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
        gate, between = None, self._between[0]
        if hasattr(self, "gate_proj"):
            x = x if is_sorted else rows.spread(x, rows.rows.shape[0] // max(x.shape[0], 1))
            h = torch.stack([self.gate_proj(x, rows), self.up_proj(x, rows)], -1 if self._interleaved() else -2)
            h = h.flatten(-2)
        else:
            first = "gate_up_proj" if hasattr(self, "gate_up_proj") else "up_proj"
            stack, bias = getattr(self, first), getattr(self, f"{first}_bias", None)
            gate = self._gate() if stack.has_gates else None
            more = (gate,) if gate else ()
            h = stack(x, rows, bias, *more) if is_sorted else stack.of_tokens(x, rows, bias, *more)
        unit = between._apply_gate if getattr(between, "has_gate", True) else between.act_fn
        unit, activation = (unit, self._activation) if gate is None else ((lambda h: h), None)
        return self.down_proj.behind(h, rows, unit, activation, getattr(self, "down_proj_bias", None))


def _activation_of(between):
    """What swiglu calls the activation of a mixture's unit, found out by trying it; None where it is another unit."""
    if not getattr(between, "has_gate", True):
        return None
    h = torch.linspace(-40.0, 40.0, 256, device="cpu")[torch.arange(256, device="cpu") * 97 % 256].view(8, 32)
    try:
        found = between._apply_gate(h)
    except (AttributeError, RuntimeError, TypeError, ValueError):
        return None
    a, b = h.chunk(2, -1)
    functions = {
        "silu": torch.nn.functional.silu, "gelu": torch.nn.functional.gelu,
        "gelu_tanh": lambda a: torch.nn.functional.gelu(a, approximate="tanh"),
    }  # fmt: skip
    alike = (name for name, act in functions.items() if torch.allclose(found, act(a) * b, rtol=1e-6, atol=1e-6))
    return next(alike, None)


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


def sizes_of_stacks(module) -> dict[str, tuple[int, int]]:
    """Of each of stacks_of(module): in_features, out_features."""
    shapes = {name: module._parameters[name].shape[1:] for name in stacks_of(module)}
    return {name: tuple(shape if _transposed(module) else shape[::-1]) for name, shape in shapes.items()}


@torch.no_grad()
def quantize_mixture(module, types, group, **options) -> MixtureOfExperts:
    """Of the experts of transformers; types: a type for each of stacks_of(module); options: of nn.Linear.from_float."""
    made = MixtureOfExperts(module)
    for name in stacks_of(module):
        weight = module._parameters[name]
        stack = Experts.from_float(weight, types[name], group, transposed=_transposed(module), **options)
        made.add_module(name, stack)
    return made


def empty_mixture(module, type, group, *, zeros, activations=None) -> MixtureOfExperts:
    """What quantize_mixture makes, without memory."""
    make, more = (Experts, {}) if activations is None else (Experts8, {"activations": activations})
    made = MixtureOfExperts(module)
    for name in stacks_of(module):
        weight = module._parameters[name]
        experts, (inputs, outputs) = len(weight), sizes_of_stacks(module)[name]
        words = {"type": type, "group": group, "zeros": zeros, "dtype": weight.dtype, "device": "meta", **more}
        made.add_module(name, make(experts, inputs, outputs, False, **words))
    return made


def _transposed(module):
    return getattr(module, "is_transposed", False)

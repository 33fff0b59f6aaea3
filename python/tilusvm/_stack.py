"""What stacks of linear layers have in common, whatever the width of their activations: see experts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ._expert_rows import MOST_EXPERTS, ExpertRows, rows_of
from ._formats import format_of
from ._lowbit import LowBit
from ._registry import need_tensor
from ._torch import torch

__all__ = ["Stack"]

_ONE_EACH = ("multiplier", "input_scale")  #: of which a layer has [1], a stack [experts]


class Stack(LowBit):
    """`experts` layers of one shape and type, whose buffers have a first dimension of experts.

    A class of stacks names the class of one, what a stack has of it, and what its layers have alike.
    """

    has_gates = False  #: does its product take a gate?
    _of: type
    _own: tuple[str, ...]
    _alike: tuple[str, ...]

    def __init__(self, experts: int, one: LowBit, device: torch.device | str | None) -> None:
        super().__init__()
        if not isinstance(experts, int) or not 1 <= experts <= MOST_EXPERTS:
            what = type(self).__name__
            raise ValueError(f"{what}: experts must be a number from 1 to {MOST_EXPERTS}, not {experts!r}")
        self.experts = experts
        for name in self._own:
            setattr(self, name, getattr(one, name))
        for name, tensor in one._buffers.items():
            made = None
            if tensor is not None:
                shape = () if name in _ONE_EACH else tensor.shape
                made = torch.zeros(experts, *shape, dtype=tensor.dtype, device=device)
            self.register_buffer(name, made)
        if self.order is not None:
            self.order += torch.arange(self.in_features, dtype=torch.int32, device=device)
        if self.multiplier is not None:
            self.multiplier += 1

    @classmethod
    def _like(cls, layer, count) -> Stack:
        """An empty one of such layers."""
        raise NotImplementedError

    def _one(self) -> LowBit:
        """A layer as those of the stack, without memory."""
        raise NotImplementedError

    @classmethod
    def from_linears(cls, layers: Iterable[Any]) -> Any:
        """Of layers of one shape and type, whose tensors are copied. What some have and others have not, is made up:
        zero points in the middle, a bias of zeros, the plain order, a multiplier of 1. Scales are of 8 bits where those
        of all are."""
        layers = list(layers)
        return cls.collect(layers, len(layers))

    @classmethod
    @torch.no_grad()
    def collect(cls, layers: Iterable[Any], count: int) -> Any:
        """from_linears of an iterable of `count` layers, of which only one need be there at a time."""
        made = None
        for i, layer in enumerate(layers):
            if not isinstance(layer, cls._of):
                raise TypeError(f"layers must be nn.{cls._of.__name__}, not {type(layer).__name__}")
            made = cls._like(layer, count) if made is None else made
            for name in cls._alike:
                if getattr(layer, name) != getattr(made, name):
                    raise ValueError(f"{name} of expert {i} is {getattr(layer, name)}, not {getattr(made, name)}")
            made._take(i, layer)
        if made is None or i != count - 1:
            raise ValueError(f"there must be {count} layers, one at least")
        return made

    def _take(self, expert, layer):
        for name, value in layer._buffers.items():
            self._set(name, expert, value)

    def _set(self, name, expert, value):
        """Copies an expert's tensor to its place; None where it has none, for which the others' make up one."""
        buffer = self._buffers[name]
        if value is None and buffer is None:
            return
        if name == "input_scale" and (value is None or buffer is None and expert):
            raise ValueError(f"input_scale of expert {expert if value is None else 0} is none, and others have one")
        if buffer is None or buffer.is_meta:
            shape = (self.experts,) if name in _ONE_EACH else (self.experts, *value.shape)
            buffer = self._buffers[name] = torch.zeros(shape, dtype=value.dtype, device=value.device)
            plain = {"zeros": float(1 << format_of(self.type).bits - 1), "multiplier": 1.0, "smoothing": 1.0}
            if name in plain:
                buffer.fill_(plain[name])
            if name == "order":
                buffer += torch.arange(self.in_features, dtype=value.dtype, device=value.device)
        if value is not None:
            buffer[expert] = value.view(buffer[expert].shape)

    @classmethod
    @torch.no_grad()
    def from_float(
        cls, weight: torch.Tensor, type: str = "u4", group: int = 128, *, bias: torch.Tensor | None = None,
        transposed: bool = False, device: torch.device | str | None = None, **options: Any,
    ) -> Any:  # fmt: skip
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
                yield cls._of.from_float(linear, type, group, device=device, **options)

        return cls.collect(layers(), weight.shape[0])

    def linear(self, expert: int) -> Any:
        """One of them, an nn.Linear, or nn.Linear8, over the same memory."""
        made = self._one()
        for name, buffer in self._buffers.items():
            value = None if buffer is None else buffer[expert]
            made._buffers[name] = value.view(1) if name in _ONE_EACH and value is not None else value
        return made

    def dequantize(self, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """The weights [experts, out_features, in_features]."""
        return torch.stack([self.linear(i).dequantize(dtype) for i in range(self.experts)])

    def _by_expert(self, x, experts, multiply):
        """A product of x by an integer to a row, or by the ExpertRows that x has been sorted by; multiply: of both."""
        what = type(self).__name__
        need_tensor(what, "x", x)
        if x.dtype is not self.dtype and torch.is_autocast_enabled(x.device.type):
            x = x.to(self.dtype)
        if x.dim() != 2 or x.shape[1] != self.in_features:
            raise ValueError(f"{what}: x must have the shape [rows, {self.in_features}], not {list(x.shape)}")
        if isinstance(experts, ExpertRows):
            return multiply(x, experts)
        rows = rows_of(experts, self.experts)
        named = rows.places.shape[0]
        if named != x.shape[0]:
            raise ValueError(f"{what}: experts must name one for each of {x.shape[0]} rows, not {named}")
        return rows.gather(multiply(rows.spread(x), rows))

    def behind(
        self, h: torch.Tensor, rows: ExpertRows, unit: Callable[[torch.Tensor], torch.Tensor], activation: str | None,
        bias: torch.Tensor | None = None,
    ) -> torch.Tensor:  # fmt: skip
        """The product of what the unit makes of h, the sorted results of the product before. activation: what swiglu
        calls that of the unit, where it computes that; or None."""
        raise NotImplementedError

    def extra_repr(self) -> str:
        return f"experts={self.experts}, {self.linear(0).extra_repr()}"

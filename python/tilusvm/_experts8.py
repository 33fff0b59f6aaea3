"""Stacks of linear layers whose activations are 8 or 4 bits wide when they are multiplied: see experts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ._act8 import swiglu_quantized
from ._act8_experts import matmul_lowbit_a8_experts, matmul_scaled_experts
from ._expert_rows import ExpertRows
from ._lowbit8 import ACTIVATIONS, MICROSCALED, LowBit8, NoGradient
from ._stack import Stack
from ._torch import torch
from .nn8 import Linear8

__all__ = ["Experts8"]


class Experts8(LowBit8, Stack):
    """`experts` linear layers of one shape and type, nn.Linear8: y[i] = x[i] W[expert of i]^T + bias, x rounded.

    The arguments and the buffers are those of nn.Linear8, the buffers with a first dimension of experts: packed,
    scales, zeros, bias, smoothing; and [experts] of input_scale and multiplier. Where neither a static scale nor
    smoothing is an expert's own, a token is rounded once, for all of its experts.
    """

    _of = Linear8
    _alike = ("in_features", "out_features", "type", "group", "activations", "dtype")
    _own = (*_alike, "is_wide", "_whole")

    def __init__(
        self, experts: int, in_features: int, out_features: int, bias: bool = True, *,
        device: torch.device | str | None = None, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(experts, Linear8(in_features, out_features, bias, device="meta", **options), device)

    @classmethod
    def _like(cls, layer, count):
        words = {name: getattr(layer, name) for name in cls._alike[2:]}
        return cls(count, layer.in_features, layer.out_features, False, device="meta", **words)

    def _one(self):
        return Linear8(
            self.in_features, self.out_features, self.bias is not None, zeros=self.zeros is not None,
            static=self.input_scale is not None, smooth=self.smoothing is not None, device="meta",
            **{name: getattr(self, name) for name in self._alike[2:]},
        )  # fmt: skip

    @property
    def rounds_alike(self) -> bool:
        """Are activations rounded alike for all experts?"""
        return self.input_scale is None and self.smoothing is None

    def _rounded(self, x, rows):
        """Of x sorted by rows: its numbers, their scales, and what else _product takes."""
        if self.rounds_alike:
            return self._rounded_by(x, None, None, True)
        owner = rows.owners(x.shape[0])
        smoothing, step = (t if t is None else t.index_select(0, owner) for t in (self.smoothing, self.input_scale))
        step = step if step is None else step[:, None]
        if step is None or self.multiplier is None:
            return self._rounded_by(x, smoothing, step, True)
        numbers, factors, _ = self._rounded_by(x / step, smoothing, step.new_ones(1), True)
        return numbers, factors, self.input_scale

    def _product(self, numbers, factors, last=None, *, rows, bias, out):
        """last: do factors lie by group?; of nvfp4 the scale of all of x, or of each expert's."""
        bias = self.bias if bias is None else bias.float().contiguous()
        if not self.is_wide:
            return matmul_lowbit_a8_experts(
                numbers, rows.offsets, self.packed, factors, self.scales, zeros=self.zeros, bias=bias, type=self.type,
                group=self.group, out_dtype=out,
            )  # fmt: skip
        alpha = self.multiplier
        alpha = alpha if alpha is None or last is None else alpha * last
        return matmul_scaled_experts(
            numbers, rows.offsets, self.packed, factors, self.scales, bias, group=self.group, out_dtype=out,
            by_group=last is True, alpha=alpha,
        )  # fmt: skip

    def forward(
        self, x: torch.Tensor | tuple[torch.Tensor, ...], experts: torch.Tensor | ExpertRows,
        bias: torch.Tensor | None = None,
    ) -> torch.Tensor:  # fmt: skip
        """x: [rows, in_features], or the numbers and scales that quantize_rows and the like give, and behind them True
        where they were given by_group, of nvfp4 the scale of all; experts: an integer to a row, or the ExpertRows by
        which x has been sorted, as the result is then, of numbers these alone. bias: [experts, out_features], in the
        place of the layers' own."""
        if isinstance(x, tuple):
            if not isinstance(experts, ExpertRows):
                raise TypeError(f"Experts8: experts must be ExpertRows beside numbers, not {type(experts).__name__}")
            return self._product(*x, rows=experts, bias=bias, out=self.dtype)

        def multiply(x, rows):
            return self._product(*self._rounded(x, rows), rows=rows, bias=bias, out=x.dtype)

        with torch.no_grad():
            y = self._by_expert(x, experts, multiply)
        return _refusing(y, x)

    def of_tokens(self, x: torch.Tensor, rows: ExpertRows, bias: torch.Tensor | None = None) -> torch.Tensor:
        """x: [tokens, in_features], whose rows [tokens * top] the ExpertRows are of. The result is sorted."""
        top = max(rows.rows.shape[0] // max(x.shape[0], 1), 1)
        if not self.rounds_alike:
            return self(rows.spread(x, top), rows, bias)
        with torch.no_grad():
            numbers, factors, *rest = self._rounded_by(x, None, None, False)
            spread = rows.spread(numbers, top), rows.spread(factors, top)
            y = self._product(*spread, *rest, rows=rows, bias=bias, out=x.dtype)
        return _refusing(y, x)

    def behind(
        self, h: torch.Tensor, rows: ExpertRows, unit: Callable[[torch.Tensor], torch.Tensor], activation: str | None,
        bias: torch.Tensor | None = None,
    ) -> torch.Tensor:  # fmt: skip
        if activation is None or self.multiplier is not None or not self.rounds_alike:
            return self(unit(h).to(h.dtype), rows, bias)
        _, size, scale_dtype = MICROSCALED.get(self.activations, (None, self.group if self.is_wide else 0, None))
        by_group = size > 0 and scale_dtype is None
        with torch.no_grad():
            given = swiglu_quantized(
                h.contiguous(), ACTIVATIONS[self.activations], size, activation, by_group, scale_dtype
            )
            y = self._product(*given, by_group or None, rows=rows, bias=bias, out=h.dtype)
        return _refusing(y, h)


def _refusing(y, x):
    """y, whose gradient is refused where one is asked for x's."""
    return NoGradient.apply(y, x) if torch.is_grad_enabled() and x.requires_grad else y

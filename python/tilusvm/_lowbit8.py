"""What layers whose activations are 8 or 4 bits wide have in common: one, Linear8, or a stack of them, Experts8."""

from __future__ import annotations

from ._formats import format_of
from ._lowbit import LowBit
from ._registry import HALVES
from ._torch import torch
from .ops import quantize_rows

__all__ = ["ACTIVATIONS", "FOUR", "MICROSCALED", "LowBit8", "NoGradient", "check_activations", "scale_of"]

ACTIVATIONS = {
    "i8": torch.int8, "f8_e4m3": torch.float8_e4m3fn, "nvfp4": torch.uint8, "mxfp4": torch.uint8,
    "mxfp8": torch.float8_e4m3fn,
}  # fmt: skip
_GREATEST = {"i8": 127.0, "f8_e4m3": 448.0}
#: Of activations with scales of 8 bits, which weights share: the type, group and type of scales.
MICROSCALED = {
    "nvfp4": ("f4_e2m1", 16, torch.float8_e4m3fn), "mxfp4": ("f4_e2m1", 32, torch.uint8),
    "mxfp8": ("f8_e4m3", 32, torch.uint8),
}  # fmt: skip
#: Those of them of 4 bits.
FOUR = tuple(name for name, (type, *_) in MICROSCALED.items() if format_of(type).bits == 4)
_MOST_NVFP4 = 448.0 * 6.0  # of a number times its scale


def check_activations(op: str, activations: str) -> None:
    if activations not in ACTIVATIONS:
        *most, last = ACTIVATIONS
        raise ValueError(f"{op}: activations must be {', '.join(most)} or {last}, not {activations!r}")


def scale_of(x):
    """NVFP4's scale of all of x, f32 [1], with which the greatest group has the greatest scale."""
    if not x.numel():
        return x.new_ones(1, dtype=torch.float32)
    most = torch.linalg.vector_norm(x.detach(), torch.inf, dtype=torch.float32)
    return (most / _MOST_NVFP4).clamp(min=torch.finfo(torch.float32).tiny).reshape(1)


class NoGradient(torch.autograd.Function):
    """y, of which a gradient is refused: rounding would lose it without a word, as integers have none."""

    @staticmethod
    def forward(ctx, y, *inputs):
        return y.view_as(y)

    @staticmethod
    def backward(ctx, grad):
        raise NotImplementedError(
            "the layer has no gradient, as it rounds its activations to 8 bits or 4: train with nn.Linear without "
            "activations"
        )


class LowBit8(LowBit):
    """What rounds its activations: attributes type, group, activations and is_wide, are weights of the activations'
    type, side by side as these are?; buffers packed, scales, zeros, bias, input_scale, multiplier and smoothing."""

    dtype = torch.float16
    order = None  # which nn.Linear may have

    @property
    def has_blocks(self) -> bool:
        """Have its weights scales of 128 x 128?"""
        return self.is_wide and self.group == 128

    def _apply(self, fn, recurse=True):
        """Moves the buffers, whose types the kernels want as they are; a type of fn's is that of the layer."""
        before = dict(self._buffers)
        torch.nn.Module._apply(self, fn, recurse)
        for name, tensor in before.items():
            if tensor is not None and self._buffers[name].dtype != tensor.dtype:
                self._buffers[name] = tensor.to(self._buffers[name].device)
        dtype = fn(torch.empty(0, dtype=self.dtype)).dtype
        self.dtype = dtype if dtype in HALVES else self.dtype
        return self

    def _kind(self):
        smooth = {} if self.smoothing is None else {"smooth": True}  # which states of layers without it do not say
        return {**super()._kind(), "activations": self.activations, "static": self.input_scale is not None, **smooth}

    def _numbers(self, x, scale):
        """x as numbers with scales of 8 bits, and these, beside that of all of x."""
        _, group, scale_dtype = MICROSCALED[self.activations]
        return quantize_rows(x, ACTIVATIONS[self.activations], group, scale_dtype=scale_dtype, scale=scale)

    def _rounded_by(self, x, smoothing, step, by_group):
        """The numbers of x, their scales, and whether these lie by group; of nvfp4 the scale of all of x. smoothing,
        step: of all of x, or of each row: what it is multiplied by first, and the static scale; or None."""
        kind = ACTIVATIONS[self.activations]
        x = x if smoothing is None else x * smoothing
        if self.activations in MICROSCALED:
            scale = None
            if self.multiplier is not None:
                scale = scale_of(x) if step is None else step
            return (*self._numbers(x.contiguous(), scale), *([] if scale is None else [scale]))
        if step is None:
            group = self.group if self.is_wide else 0
            by_group = by_group and group > 0
            return (*quantize_rows(x.contiguous(), kind, group, by_group), by_group)
        greatest = _GREATEST[self.activations]
        least = -greatest if kind.is_floating_point else -greatest - 1
        numbers = (x.float() / step).clamp(least, greatest)
        numbers = numbers if kind.is_floating_point else numbers.round()
        return numbers.to(kind).contiguous(), step.expand(*x.shape[:-1], 1).contiguous(), False

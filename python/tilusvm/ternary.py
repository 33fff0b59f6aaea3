"""BitLinear: layers whose weights are -1, 0 and 1, times a scale, and whose activations are rounded to 8 bits: BitNet
b1.58 (Ma et al., "The Era of 1-bit LLMs", 2024), of which 1.6 bits a weight are read.

    model = AutoModelForCausalLM.from_pretrained("microsoft/bitnet-b1.58-2B-4T", dtype="bfloat16")
    tilusvm.ternary.replace_(model)
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from ._torch import torch

from . import ops
from ._modules import matrix_of
from ._registry import FLOATS, need, need_tensor
from ._ternary import packed_shape
from .nn import Linear

__all__ = ["BitLinear", "replace_", "ternary_of", "unpack_rows"]

#: Of more rows the weights are unpacked to 8 bits first, and multiplied by ops.matmul.
MANY_ROWS = 256
_LEAST = 1e-5  #: of the mean magnitude that is a scale, as in the reference's


def ternary_of(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights rounded to -1, 0 and 1, int8, and their scale, f32 [1], which is their mean magnitude."""
    scale = weight.detach().float().abs().mean().clamp_min(_LEAST).reshape(1)
    return (weight.detach().float() / scale).round().clamp(-1, 1).to(torch.int8), scale


def unpack_rows(packed: torch.Tensor) -> torch.Tensor:
    """The weights, int8 [4 rows, k], of uint8 [rows, k] as transformers and Microsoft's BitNet pack them: bits 2i and
    2i + 1 of row r are row i * rows + r, plus one."""
    need("unpack_rows", "packed", packed, dtype=torch.uint8, dim=2)
    return torch.cat([(packed >> 2 * i & 3).to(torch.int8) - 1 for i in range(4)])


class BitLinear(torch.nn.Module):
    """y = scale * (x W^T) + bias, where x is rounded to 8 bits, by quantize_rows, and W is -1, 0 and 1.

    in_features and out_features are multiples of 8. x: a float [..., in_features], whose type y has. norm: a module
    that x goes through before it is rounded, or None.

    Buffers: packed (uint8, by ops.pack_ternary), scales (float32 [out_features]), bias (float32 [out_features], or
    None). half() and the like leave them as they are. A gradient is refused when it is asked for.
    """

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, *, norm: torch.nn.Module | None = None,
        device: torch.device | str | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if in_features % 8 or out_features % 8 or not in_features or not out_features:
            raise ValueError(
                f"BitLinear: in_features and out_features must be multiples of 8, not {in_features} and {out_features}"
            )
        self.in_features, self.out_features, self.norm = in_features, out_features, norm
        shape = packed_shape(in_features, out_features)
        self.register_buffer("packed", torch.zeros(shape, dtype=torch.uint8, device=device))
        self.register_buffer("scales", torch.zeros(out_features, device=device))
        self.register_buffer("bias", torch.zeros(out_features, device=device) if bias else None)

    def _apply(self, fn, recurse=True):
        """Moves the buffers, whose types the kernel wants as they are."""
        before = dict(self._buffers)
        super()._apply(fn, recurse)
        for name, tensor in before.items():
            if tensor is not None and self._buffers[name].dtype != tensor.dtype:
                self._buffers[name] = tensor.to(self._buffers[name].device)
        return self

    @classmethod
    @torch.no_grad()
    def from_ternary(
        cls, weight: torch.Tensor, scale: torch.Tensor | float, bias: torch.Tensor | None = None, *,
        norm: torch.nn.Module | None = None,
    ) -> BitLinear:  # fmt: skip
        """Of weights [out_features, in_features] that are -1, 0 and 1, of any type, and a scale, one or of each
        output."""
        need_tensor("from_ternary", "weight", weight)
        if weight.dim() != 2 or not bool(((weight == 0) | (weight.abs() == 1)).all()):
            raise ValueError("from_ternary: weight must be a matrix of -1, 0 and 1")
        outputs, inputs = weight.shape
        made = cls(inputs, outputs, bias is not None, norm=norm, device="meta")
        made.packed = ops.pack_ternary(weight.to(torch.int8).t().contiguous())
        scale = torch.as_tensor(scale, device=weight.device).detach().float().flatten()
        made.scales = scale.expand(outputs).contiguous()
        if bias is not None:
            made.bias = bias.detach().to(weight.device).float().clone()
        return made

    @classmethod
    def from_float(cls, linear: torch.nn.Linear) -> BitLinear:
        """Of a torch.nn.Linear, whose weights are rounded as BitNet does while it trains: to -1, 0 and 1 times their
        mean magnitude. A model that was not trained so loses what it knows."""
        if not isinstance(getattr(linear, "weight", None), torch.Tensor):
            raise TypeError(f"from_float: linear must be a torch.nn.Linear, not {linear.__class__.__name__}")
        return cls.from_ternary(*ternary_of(matrix_of(linear)), linear.bias)

    @classmethod
    @torch.no_grad()
    def cat(cls, layers: Sequence[BitLinear]) -> BitLinear:
        """One layer whose outputs are those of the layers, one after the other: x is rounded once, for one launch.

        They have the same inputs, no norm, and but for the last a multiple of 16 outputs each. A bias that some have
        not is zero there. ValueError where they do not fit."""
        if not layers or not all(isinstance(layer, BitLinear) for layer in layers):
            raise TypeError("cat: layers must be ternary.BitLinear, one at least")
        inputs = layers[0].in_features
        if any(layer.in_features != inputs or layer.norm is not None for layer in layers):
            raise ValueError("cat: layers must have the same inputs and no norm")
        if any(layer.out_features % 16 for layer in layers[:-1]):
            raise ValueError("cat: layers but the last must have a multiple of 16 outputs")
        made = cls(inputs, sum(layer.out_features for layer in layers), False, device="meta")
        made.packed = torch.cat([layer.packed for layer in layers])
        made.scales = torch.cat([layer.scales for layer in layers])
        if any(layer.bias is not None for layer in layers):
            each = [torch.zeros_like(m.scales) if m.bias is None else m.bias for m in layers]
            made.bias = torch.cat(each)
        return made

    @torch.no_grad()
    def dequantize(self, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """The weights [out_features, in_features], times their scales, rounded to dtype."""
        weight = ops.unpack_ternary(self.packed, n=self.out_features, k=self.in_features)
        return (weight.float() * self.scales[:, None]).to(dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        need_tensor("BitLinear", "x", x)
        x = x if self.norm is None else self.norm(x)
        need("BitLinear", "x", x.contiguous(), dtype=FLOATS)
        if not x.dim() or x.shape[-1] != self.in_features:
            raise ValueError(f"BitLinear: x must have {self.in_features} columns, not the shape {list(x.shape)}")
        if torch.is_grad_enabled() and x.requires_grad:
            raise NotImplementedError("BitLinear has no gradient, as it rounds its activations to 8 bits")
        numbers, factors = ops.quantize_rows(x.contiguous(), torch.int8)
        if factors.numel() > MANY_ROWS and self.in_features % 16 == 0:
            weight = ops.unpack_ternary(self.packed, n=self.out_features, k=self.in_features)
            return ops.matmul(numbers, weight, factors.flatten(), self.scales, self.bias, out_dtype=x.dtype)
        words = {"n": self.out_features, "out_dtype": x.dtype}
        return ops.matmul_ternary(numbers, self.packed, factors, self.scales, self.bias, **words)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


# ---- models of transformers ----


def _imported(layer) -> BitLinear | None:
    """Of a layer as tvm-pack --from=bitnet makes it: codes 1 to 3 of u2, one scale; None of another."""
    if type(layer) is not Linear or layer.type != "u2" or layer.zeros is not None or layer.order is not None:
        return None
    scale = layer.scales.float().flatten()
    if layer.packed.is_meta or not bool((scale == scale[0]).all()):
        return None
    scale = scale[:1] * (1.0 if layer.multiplier is None else layer.multiplier)
    weight = (layer.dequantize() / scale).round()
    return BitLinear.from_ternary(weight, scale, layer.bias) if bool((weight.abs() <= 1).all()) else None


def _taken(module) -> BitLinear | None:
    """What computes as a layer of transformers' BitNet does, or has its weights; None for another module."""
    if (made := _imported(module)) is not None:
        return made
    theirs = sys.modules.get("transformers.integrations.bitnet")
    if theirs is None or type(module) not in (theirs.BitLinear, theirs.AutoBitLinear):
        return None
    weight, norm = module.weight, getattr(module, "rms_norm", None)
    if type(module) is theirs.BitLinear:  # it divides by the scale
        return BitLinear.from_ternary(unpack_rows(weight), 1.0 / module.weight_scale.float(), module.bias, norm=norm)
    if module.online_quant:
        return BitLinear.from_ternary(*ternary_of(weight), module.bias, norm=norm)
    if module.bias is not None:  # which it multiplies by the scale, too
        return BitLinear.from_ternary(weight, module.weight_scale, module.bias * module.weight_scale, norm=norm)
    return BitLinear.from_ternary(weight, module.weight_scale, norm=norm)


def _sites(model) -> Iterator[tuple[torch.nn.Module, str, torch.nn.Module]]:
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            yield parent, name, child


@torch.no_grad()
def replace_(model: torch.nn.Module) -> list[str]:
    """Has the layers of BitNet in a model of transformers computed as BitLinear, in place: its BitLinear, whose weights
    are packed four to a byte, its AutoBitLinear, and nn.Linear that storage.load has read from what tvm-pack
    --from=bitnet wrote. Returns the names of their modules; ValueError where there are none. What a model has besides,
    such as its head, stays as it is."""
    names = {module: name for name, module in model.named_modules()}
    done = []
    for parent, name, child in _sites(model):
        if (made := _taken(child)) is not None:
            setattr(parent, name, made)
            done.append(names[child])
    if not done:
        raise ValueError(
            "replace_: the model has no layers of BitNet; BitLinear.from_float makes one of a torch.nn.Linear"
        )
    return done

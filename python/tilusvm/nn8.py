"""Linear8: torch.nn.Linear whose activations are 8 bits wide when they are multiplied: W8A8 and W4A8."""

from __future__ import annotations

from ._torch import torch

from . import ops, quantize
from ._act8 import pack_strings_a8
from ._formats import format_of
from ._modules import matrix_of
from ._registry import HALVES, need_tensor

__all__ = ["Linear8"]

_ACTIVATIONS = {"i8": torch.int8, "f8_e4m3": torch.float8_e4m3fn}


class Linear8(torch.nn.Module):
    """y = x W^T + bias, as torch.nn.Linear, where x is rounded to 8 bits, by quantize_rows, and W has 8 bits or fewer.

    activations: "i8" or "f8_e4m3", with a scale for each row of x, or with group 128 of f8_e4m3 weights for 1 x 128 of
    it. type: that of the weights: that of the activations, with a scale for each output (group 0) or, of f8_e4m3, for
    blocks of 128 x 128 (group 128); or one of fewer bits that the activations' type has (matmul_lowbit_a8), with scales
    of 32, 64 or 128 inputs, or of all (group 0).
    in_features is a multiple of 128, out_features of 8. x: [..., in_features], float16 or bfloat16, whose type y has;
    or the numbers and scales that rms_norm_quantized and the like give, and y is of `dtype`.

    Buffers: weight (8 bits, [out_features, in_features]) or packed (uint8, by pack_a8), scales (float32), and bias
    (float32 [out_features], or None). There are no gradients.
    """

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, *, type: str = "u4", group: int = 128,
        activations: str = "f8_e4m3", dtype: torch.dtype = torch.float16, device: torch.device | str | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if activations not in _ACTIVATIONS:
            raise ValueError(f"Linear8: activations must be i8 or f8_e4m3, not {activations!r}")
        if dtype not in HALVES:
            raise TypeError(f"Linear8: dtype must be torch.float16 or torch.bfloat16, not {dtype}")
        if in_features % 128 or out_features % 8:
            sizes = f"{in_features} and {out_features}"
            raise ValueError(f"Linear8: in_features must be a multiple of 128, out_features of 8, not {sizes}")
        self.is_wide = type == activations
        allowed = (0, 32, 64, 128) if not self.is_wide else (0, 128) if type == "f8_e4m3" else (0,)
        if group not in allowed:
            raise ValueError(f"Linear8: group of {type} must be one of {allowed}, not {group!r}")
        self.in_features, self.out_features, self.dtype = in_features, out_features, dtype
        self.type, self.group, self.activations = type, group, activations
        groups = in_features // group if group else 1
        if self.is_wide:
            shape, kind = (out_features, in_features), _ACTIVATIONS[type]
            scales = (-(-out_features // 128), groups) if group else (out_features, 1)
        else:
            shape, kind = (-(-out_features // 64), in_features // 128, 1024 * format_of(type).bits), torch.uint8
            scales = (groups, out_features)
        self.register_buffer("weight" if self.is_wide else "packed", torch.zeros(shape, dtype=kind, device=device))
        self.register_buffer("scales", torch.zeros(scales, dtype=torch.float32, device=device))
        self.register_buffer("bias", torch.zeros(out_features, dtype=torch.float32, device=device) if bias else None)

    @classmethod
    @torch.no_grad()
    def from_float(
        cls, linear: torch.nn.Linear, type: str = "u4", group: int = 128, *, activations: str = "f8_e4m3",
        scales: str = "mse",
    ) -> Linear8:  # fmt: skip
        """Quantizes a torch.nn.Linear, or the Conv1D of transformers. scales: as quantize.quantize_ has it, of weights
        of fewer bits than 8."""
        if not isinstance(getattr(linear, "weight", None), torch.Tensor):
            raise TypeError(f"from_float: linear must be a torch.nn.Linear, not {linear.__class__.__name__}")
        weight = matrix_of(linear).detach()
        outputs, inputs = weight.shape
        dtype = weight.dtype if weight.dtype in HALVES else torch.float16
        made = cls(
            inputs, outputs, linear.bias is not None, type=type, group=group, activations=activations, dtype=dtype,
            device=weight.device,
        )  # fmt: skip
        if linear.bias is not None:
            made.bias.copy_(linear.bias)
        if made.is_wide and not group:
            made.weight, made.scales = ops.quantize_rows(weight.contiguous(), _ACTIVATIONS[type])
        elif made.is_wide:
            rows = torch.nn.functional.pad(weight.float(), (0, 0, 0, -outputs % 128))
            blocks = rows.view(-1, 128, inputs // 128, 128)
            most = blocks.abs().amax((1, 3))
            made.scales = torch.where(most == 0, 1.0, most / 448.0)
            made.weight = (blocks / made.scales[:, None, :, None]).reshape(rows.shape)[:outputs].to(_ACTIVATIONS[type])
        else:
            strings, found, _ = quantize.quantize_strings(
                weight, type, group, zeros=False, dtype=dtype, scales=scales, importance=None
            )
            made.packed = pack_strings_a8(strings, outputs, type, group, _ACTIVATIONS[activations])
            made.scales = found.float().contiguous()
        return made

    def forward(self, x) -> torch.Tensor:
        numbers, factors = x if isinstance(x, tuple) else (None, None)
        wide_group = self.group if self.is_wide else 0
        if numbers is None:
            need_tensor("Linear8", "x", x)
            if not x.dim() or x.shape[-1] != self.in_features:
                raise ValueError(f"Linear8: x must have {self.in_features} columns, not the shape {list(x.shape)}")
            numbers, factors = ops.quantize_rows(x.contiguous(), _ACTIVATIONS[self.activations], wide_group)
        out = self.dtype if isinstance(x, tuple) else x.dtype
        if not self.is_wide:
            return ops.matmul_lowbit_a8(
                numbers, self.packed, factors, self.scales, bias=self.bias, type=self.type, group=self.group,
                out_dtype=out,
            )  # fmt: skip
        if self.type == "i8":
            return ops.matmul(numbers, self.weight, factors.flatten(), self.scales.view(-1), self.bias, out_dtype=out)
        return ops.matmul_scaled(
            numbers, self.weight, factors, self.scales, self.bias, group=wide_group, out_dtype=out
        )

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}, "
            f"type={self.type}, group={self.group}, activations={self.activations}"
        )

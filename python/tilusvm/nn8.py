"""Linear8: torch.nn.Linear whose activations are 8 or 4 bits wide when they are multiplied: W8A8, W4A8 and W4A4.

nn.Linear.from_float and quantize_ make it where `activations` is given."""

from __future__ import annotations

from collections.abc import Sequence

from ._torch import torch

from . import ops, quantize
from ._act8 import pack_strings_a8
from ._formats import bits_of_codes, codes_of_bits, format_of
from ._lowbit8 import ACTIVATIONS as ACTIVATIONS
from ._lowbit8 import FOUR as FOUR
from ._lowbit8 import MICROSCALED as MICROSCALED
from ._lowbit8 import LowBit8, NoGradient, scale_of
from ._lowbit8 import check_activations as check_activations
from ._modules import matrix_of
from ._narrow import as_bytes, widened
from ._registry import HALVES, need, need_tensor

__all__ = ["ACTIVATIONS", "Linear8"]

#: Buffers that layers have alike which become one, and what a message calls them.
_SHARED = {
    "input_scale": "static scales of inputs", "multiplier": "scales of all weights",
    "smoothing": "scales of each input",
}  # fmt: skip


class Linear8(LowBit8):
    """y = x W^T + bias, as torch.nn.Linear, where x is rounded to 8 or 4 bits, by quantize_rows, and W has as many or
    fewer.

    activations: "i8" or "f8_e4m3", with a scale for each row of x, or with group 128 of f8_e4m3 weights for 1 x 128 of
    it. type: that of the weights: that of the activations, with a scale for each output (group 0) or, of f8_e4m3, for
    blocks of 128 x 128 (group 128); or one of fewer bits that the activations' type has (matmul_lowbit_a8), with scales
    of 32, 64 or 128 inputs, or of all (group 0). zeros: a zero point to a group, for unsigned types of fewer bits.
    static: one scale for all of x, which the buffer input_scale has, in the place of a row's: x / input_scale is
    rounded to even and saturates.
    activations "nvfp4", "mxfp4" and "mxfp8": both x and W are f4_e2m1, of "mxfp8" f8_e4m3 (`type`), in groups of 16
    with scales of f8_e4m3 ("nvfp4"), or of 32 with powers of two. NVFP4 has beside them a scale of all of W, the buffer
    multiplier, and one of all of x: max |x| / (448 * 6), found as the layer runs, so that a row's bits depend on the
    others; with static that of input_scale. smooth: x is multiplied by the buffer smoothing before it is rounded (AWQ's
    and SmoothQuant's pre_quant_scale), whose reciprocals W has been multiplied by.
    in_features is a multiple of 128, out_features of 8. x: [..., in_features], float16 or bfloat16, whose type y has;
    or the numbers and scales that rms_norm_quantized and the like give, and behind them True where they were given
    by_group, of nvfp4 the scale of all; then y is of `dtype`, and x has been multiplied by smoothing.

    Buffers: packed (8 bits, [out_features, in_features], or uint8, by pack_a8, of W4A4 [out_features, in_features / 2],
    the first of two numbers in the lower bits), scales (float32: [out_features, 1], [out_features / 128, in_features /
    128] of blocks, or [groups, out_features] of fewer bits; of nvfp4 float8_e4m3fn, of mxfp4 and mxfp8 uint8,
    [out_features, groups]), zeros (uint8, or None), bias (float32 [out_features], or None), input_scale and multiplier
    (float32 [1], or None), smoothing (float32 [in_features], or None).
    half() and the like change `dtype` alone. A gradient is refused when it is asked for. state_dict(), storage.save and
    load are as of nn.Linear.
    """

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, *, type: str = "u4", group: int = 128,
        zeros: bool = False, activations: str = "f8_e4m3", static: bool = False, smooth: bool = False,
        dtype: torch.dtype = torch.float16, device: torch.device | str | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        check_activations("Linear8", activations)
        if dtype not in HALVES:
            raise TypeError(f"Linear8: dtype must be torch.float16 or torch.bfloat16, not {dtype}")
        if in_features % 128 or out_features % 8:
            raise ValueError(
                f"Linear8: in_features must be a multiple of 128, out_features of 8, not {in_features} and "
                f"{out_features}; nn.Linear without activations takes any, and quantize_ leaves out what skip names"
            )
        shared, size, scale_dtype = MICROSCALED.get(activations, (None, None, None))
        if shared not in (None, type):
            raise ValueError(f"Linear8: type must be {shared} with activations of {activations}, not {type!r}")
        #: Are weights of the activations' type, side by side as these are?
        self.is_wide = type in (activations, shared)
        allowed = (size,) if shared else (0, 32, 64, 128)
        if type == activations:
            allowed = (0, 128) if type == "f8_e4m3" else (0,)
        if group not in allowed:
            told = f"one of {allowed}" if len(allowed) > 1 else allowed[0]
            raise ValueError(
                f"Linear8: group of {type} must be {told} with activations of {activations}, not {group!r}"
            )
        if not self.is_wide and format_of(type).bits > 7:
            raise ValueError(f"Linear8: weights of {type} do not go with activations of {activations}")
        if zeros and (self.is_wide or format_of(type).kind != "u"):
            raise ValueError(f"Linear8: zeros goes with unsigned types of up to 7 bits, not with {type}")
        if static and self.is_wide and group and activations != "nvfp4":
            raise ValueError("Linear8: static goes with scales of outputs, not of blocks, whose activations have more")
        self.in_features, self.out_features, self.dtype = in_features, out_features, dtype
        self.type, self.group, self.activations = type, group, activations
        self._whole = out_features, in_features
        groups = in_features // group if group else 1
        if shared:
            columns = in_features * format_of(type).bits // 8
            shape, kind, scales = (out_features, columns), ACTIVATIONS[activations], (out_features, groups)
        elif self.is_wide:
            shape, kind = (out_features, in_features), ACTIVATIONS[type]
            scales = (-(-out_features // 128), groups) if group else (out_features, 1)
        else:
            shape, kind = (-(-out_features // 64), in_features // 128, 1024 * format_of(type).bits), torch.uint8
            scales = (groups, out_features)

        def buffer(name, wanted, extents, dtype):
            self.register_buffer(name, torch.zeros(extents, dtype=dtype, device=device) if wanted else None)

        buffer("packed", True, shape, kind)
        buffer("scales", True, scales, scale_dtype or torch.float32)
        buffer("zeros", zeros, scales, torch.uint8)
        buffer("bias", bias, (out_features,), torch.float32)
        buffer("input_scale", static, (1,), torch.float32)
        buffer("multiplier", activations == "nvfp4", (1,), torch.float32)
        buffer("smoothing", smooth, (in_features,), torch.float32)

    @classmethod
    @torch.no_grad()
    def from_float(
        cls, linear: torch.nn.Linear, type: str = "u4", group: int = 128, *, activations: str = "f8_e4m3",
        zeros: bool = False, dtype: torch.dtype | None = None, scales: str = "mse",
        importance: torch.Tensor | None = None, device: torch.device | str | None = None,
    ) -> Linear8:  # fmt: skip
        """Quantizes a torch.nn.Linear, or the Conv1D of transformers. scales, importance: as quantize.quantize_ has
        them, of weights of fewer bits than 8."""
        if not isinstance(getattr(linear, "weight", None), torch.Tensor):
            raise TypeError(f"from_float: linear must be a torch.nn.Linear, not {linear.__class__.__name__}")
        weight = matrix_of(linear).detach().to(device or linear.weight.device)
        outputs, inputs = weight.shape
        dtype = dtype or (weight.dtype if weight.dtype in HALVES else torch.float16)
        made = cls(
            inputs, outputs, linear.bias is not None, type=type, group=group, zeros=zeros, activations=activations,
            dtype=dtype, device=weight.device,
        )  # fmt: skip
        if linear.bias is not None:
            made.bias.copy_(linear.bias)
        if made.is_wide and not bool(weight.isfinite().all()):
            raise quantize.refusal(weight, dtype)
        if activations in MICROSCALED:
            if made.multiplier is not None:
                made.multiplier = scale_of(weight)
            made.packed, made.scales = made._numbers(weight.contiguous(), made.multiplier)
        elif made.is_wide and not group:
            made.packed, made.scales = ops.quantize_rows(weight.contiguous(), ACTIVATIONS[type])
        elif made.is_wide:
            rows = torch.nn.functional.pad(weight.float(), (0, 0, 0, -outputs % 128))
            blocks = rows.view(-1, 128, inputs // 128, 128)
            most = blocks.abs().amax((1, 3))
            made.scales = torch.where(most == 0, 1.0, most / 448.0)
            made.packed = (blocks / made.scales[:, None, :, None]).reshape(rows.shape)[:outputs].to(ACTIVATIONS[type])
        else:
            strings, found, points = quantize.quantize_strings(
                weight, type, group, zeros=zeros, dtype=dtype, scales=scales, importance=importance
            )
            made._fill(strings, found, points)
        return made

    @classmethod
    @torch.no_grad()
    def from_codes(
        cls, codes: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor | None = None,
        bias: torch.Tensor | None = None, *, type: str, group: int = 128, activations: str = "f8_e4m3",
        input_scale: torch.Tensor | None = None, multiplier: torch.Tensor | None = None,
        dtype: torch.dtype = torch.float16,
    ) -> Linear8:  # fmt: skip
        """Of given codes uint8[k, n], one to a byte, floats scales [k / group, n], of blocks [n / 128, k / 128], zero
        points uint8 as scales, bias, and one scale of all activations, without quantizing anew. With activations of
        nvfp4 scales are float8_e4m3fn, and multiplier the scale of all weights (None: 1); of mxfp4 and mxfp8 uint8 of
        e8m0."""
        need("from_codes", "codes", codes, dtype=torch.uint8, dim=2)
        k, n = codes.shape
        made = cls(
            k, n, bias is not None, type=type, group=group, zeros=zeros is not None, activations=activations,
            static=input_scale is not None, dtype=dtype, device="meta",
        )  # fmt: skip
        shape = tuple(made.scales.shape)
        shared = MICROSCALED.get(activations)
        scales = as_bytes(scales)
        wanted = shape[::-1] if shared or shape == (n, 1) else shape
        need("from_codes", "scales", scales, dtype=shared[2] if shared else None, shape=wanted, like=codes)
        if multiplier is not None and activations != "nvfp4":
            raise ValueError(f"from_codes: multiplier goes with activations of nvfp4, not with {activations}")
        if zeros is not None:
            need("from_codes", "zeros", zeros, dtype=torch.uint8, shape=shape, like=codes)
        if bias is not None:
            need("from_codes", "bias", bias, shape=(n,), like=codes)
            made.bias = bias.detach().float().clone()
        if input_scale is not None:
            made.input_scale = input_scale.detach().to(codes.device).float().reshape(1).clone()
        if activations == "nvfp4":
            one = torch.ones(1) if multiplier is None else multiplier
            made.multiplier = one.detach().to(codes.device).float().reshape(1).clone()
        quantize.check_codes("from_codes", codes, type)
        if shared:
            numbers = bits_of_codes(codes.t().contiguous(), format_of(type).bits)
            made.packed, made.scales = numbers.view(ACTIVATIONS[activations]), scales.t().contiguous()
        elif made.is_wide:
            made.packed = codes.t().contiguous().view(ACTIVATIONS[type])
            made.scales = scales.float().reshape(shape).contiguous()
        else:
            made._fill(bits_of_codes(codes, format_of(type).bits), scales, zeros)
        return made

    @classmethod
    @torch.no_grad()
    def cat(cls, layers: Sequence[Linear8]) -> Linear8:
        """One layer whose outputs are those of the layers, one after the other: x is rounded once, for one launch.

        They have the same inputs, type, group, zero points, activations, scales of all inputs, of each and of all
        weights, and dtype, and but for the last a multiple of 128 outputs each where weights have blocks, of 64 where
        they have fewer bits than activations. A bias that some have not is zero there. ValueError where they do not
        fit.
        """
        if not layers or not all(isinstance(layer, Linear8) for layer in layers):
            raise TypeError("cat: layers must be nn.Linear8, one at least")
        first = layers[0]
        unit = 64 if not first.is_wide else 128 if first.has_blocks else 8
        for layer in layers[1:]:
            for name in ("in_features", "type", "group", "activations", "dtype"):
                if getattr(layer, name) != getattr(first, name):
                    raise ValueError(f"cat: {name} differs: {getattr(first, name)} and {getattr(layer, name)}")
            if (layer.zeros is None) != (first.zeros is None):
                raise ValueError("cat: some of the layers have zero points, and others none")
            for name, what in _SHARED.items():
                one, other = getattr(first, name), getattr(layer, name)
                if (one is None) != (other is None) or one is not None and not torch.equal(one, other):
                    raise ValueError(f"cat: the {what} differ")
        for layer in layers[:-1]:
            if layer.out_features % unit:
                raise ValueError(f"cat: out_features must be a multiple of {unit}, not {layer.out_features}")
        made = cls(
            first.in_features, sum(layer.out_features for layer in layers), False, type=first.type, group=first.group,
            activations=first.activations, dtype=first.dtype, device="meta",
        )  # fmt: skip
        made.packed = torch.cat([layer.packed.view(torch.uint8) for layer in layers]).view(first.packed.dtype)
        scales = [layer.scales.view(torch.uint8) for layer in layers]  # rows of bytes
        made.scales = torch.cat(scales, 0 if first.is_wide else 1).view(first.scales.dtype)
        made.zeros = None if first.zeros is None else torch.cat([layer.zeros for layer in layers], 1)
        for name in _SHARED:
            setattr(made, name, getattr(first, name))
        if any(layer.bias is not None for layer in layers):
            zero = torch.zeros((), device=first.device)
            each = [zero.expand(m.out_features) if m.bias is None else m.bias for m in layers]
            made.bias = torch.cat(each)
        return made

    def _fill(self, strings, scales, zeros):
        """Of codes of fewer bits, as rows of compact bit strings."""
        activations, has_zeros = ACTIVATIONS[self.activations], zeros is not None
        self.packed = pack_strings_a8(
            strings, self.out_features, self.type, self.group, activations, zeros=has_zeros
        )
        self.scales = scales.float().contiguous()
        self.zeros = zeros.to(torch.uint8).contiguous() if has_zeros else None

    @property
    def weight(self) -> torch.Tensor:
        """dequantize(dtype), made anew each time: for what looks at the weights of a layer, or at their type."""
        if self.waiting or self.packed.is_meta:
            return self.scales.new_empty(self.out_features, self.in_features, dtype=self.dtype, device="meta")
        return self.dequantize(self.dtype)

    @torch.no_grad()
    def dequantize(self, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """The weights [out_features, in_features], smoothing among them, computed in f32 and rounded to dtype."""
        if self.smoothing is None:
            return self._dequantize(dtype)
        return (self._dequantize(torch.float32) * self.smoothing).to(dtype)

    def _dequantize(self, dtype):
        """Without smoothing."""
        if self.activations in MICROSCALED:
            numbers = self.packed.float() if self.packed.dtype != torch.uint8 else self._numbers_of_codes()
            weights = numbers * widened(self.scales, torch.float32).repeat_interleave(self.group, 1)
            return (weights if self.multiplier is None else weights * self.multiplier).to(dtype)
        if self.is_wide:
            scales = self.scales.repeat_interleave(128, 0)[: self.out_features] if self.group else self.scales
            return (self.packed.float() * scales.repeat_interleave(self.in_features // scales.shape[1], 1)).to(dtype)
        parts = []
        for first in range(0, self.in_features, 512):  # what the product makes of rows of the identity is exact
            count = min(512, self.in_features - first)
            rows = torch.zeros(count, self.in_features, device=self.device)
            rows[:, first : first + count].fill_diagonal_(1.0)
            ones = torch.ones(count, 1, device=self.device)
            numbers = rows.to(ACTIVATIONS[self.activations])
            parts.append(self._product(numbers, ones, bias=None, out=torch.float32).to(dtype))
        return torch.cat(parts).t().contiguous()

    def _numbers_of_codes(self):
        """The weights of 4 bits, without their scales."""
        return format_of(self.type).numbers(self.device)[codes_of_bits(self.packed, 4).long()]

    def _rounded(self, x):
        return self._rounded_by(x, self.smoothing, self.input_scale, True)

    def _product_of_microscaled(self, numbers, factors, scale=None, *, bias, out):
        alpha = self.multiplier if scale is None else self.multiplier * scale
        return ops.matmul_scaled(
            numbers, self.packed, factors, self.scales, bias, group=self.group, out_dtype=out, alpha=alpha
        )

    def _product(self, numbers, factors, by_group=False, *, bias, out):
        if not self.is_wide:
            return ops.matmul_lowbit_a8(
                numbers, self.packed, factors, self.scales, zeros=self.zeros, bias=bias, type=self.type,
                group=self.group, out_dtype=out,
            )  # fmt: skip
        if self.type == "i8":
            return ops.matmul(numbers, self.packed, factors.flatten(), self.scales.view(-1), bias, out_dtype=out)
        return ops.matmul_scaled(
            numbers, self.packed, factors, self.scales, bias, group=self.group, out_dtype=out, by_group=by_group
        )

    def forward(
        self,
        x: torch.Tensor
        | tuple[torch.Tensor, torch.Tensor]
        | tuple[torch.Tensor, torch.Tensor, bool]
        | tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    ) -> torch.Tensor:
        product = self._product_of_microscaled if self.activations in MICROSCALED else self._product
        if isinstance(x, tuple):
            return product(*x, bias=self.bias, out=self.dtype)
        need_tensor("Linear8", "x", x)
        if torch.is_autocast_enabled(x.device.type) and x.dtype not in HALVES:
            x = x.to(self.dtype)
        if not x.dim() or x.shape[-1] != self.in_features:
            raise ValueError(f"Linear8: x must have {self.in_features} columns, not the shape {list(x.shape)}")
        with torch.no_grad():
            y = product(*self._rounded(x), bias=self.bias, out=x.dtype)
        return NoGradient.apply(y, x) if torch.is_grad_enabled() and x.requires_grad else y

    def extra_repr(self) -> str:
        parts = [
            f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}, "
            f"type={self.type}, group={self.group}"
        ]
        parts += ["zeros=True"] if self.zeros is not None else []
        parts += [f"activations={self.activations}"] + (["static=True"] if self.input_scale is not None else [])
        parts += ["smooth=True"] if self.smoothing is not None else []
        return ", ".join([*parts, f"dtype={self.dtype}"])

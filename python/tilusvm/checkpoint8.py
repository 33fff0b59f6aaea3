"""Layers of checkpoints that others have quantized for activations of 8 or 4 bits, taken as they lie: nn8.Linear8.

storage.load finds here what the configuration beside the files says of layers (_checkpoint_rules): compressed-tensors'
W8A8 (int-quantized, float-quantized), W4A8 (pack-quantized, or int-quantized of 4 bits) and W4A4 (nvfp4-pack-quantized
and mxfp4-pack-quantized, where these are asked for, or the device multiplies 4 bits), FP8 as DeepSeek-V3 and AutoFP8
write it, and Model Optimizer's FP8, MXFP8, W8A8 of SmoothQuant, NVFP4 with and without AWQ, and W4A8 of MXFP4. Codes
and scales are those of the file; weights of 8 bits, and of W4A4, stay where it is mapped. Scales of activations that
are found as the model runs are one for each row, or for 128 of it, where the weights have blocks; one that the file has
(static) is taken. Experts that files have one by one become stacks, experts.Experts8. Formats: compressed-tensors'
QuantizationArgs, DeepSeek-V3's inference/kernel.py, Model Optimizer's modelopt/torch/export/quant_utils.py and
torch/quantization/qtensor.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from . import UnsupportedError
from ._checkpoint_rules import Rule, configuration_of, rules_of
from ._formats import bits_of_codes, codes_of_bits, format_of
from ._narrow import as_bytes, widened
from ._torch import torch
from .nn8 import MICROSCALED, Linear8

__all__ = ["EightLayer", "MicroscaledLayer", "layers_of"]

_CODES, _SCALES = ("weight", "weight_packed"), ("weight_scale", "weight_scale_inv")
_TENSORS = (*_CODES, *_SCALES, "weight_shape", "weight_zero_point", "weight_g_idx", "input_scale", "input_zero_point",
            "bias")  # fmt: skip
_SMOOTHING = "pre_quant_scale"  # of Model Optimizer: [in], by which inputs are multiplied
#: Of numbers with scales of 8 bits: what the codes are called, of NVFP4 the scales of all weights and of all
#: activations, and whether these are reciprocals.
_MICROSCALED = {
    "compressed-tensors": ("weight_packed", ("weight_global_scale", "input_global_scale"), True),
    "modelopt": ("weight", ("weight_scale_2", "input_scale"), False),
}
_KINDS = {"i8": torch.int8, "f8_e4m3": torch.float8_e4m3fn}
_INSTEAD = "tvm-pack --from=auto FOLDER -o OTHER imports its weights alone, for activations of 16 bits"


class EightLayer:
    """One layer, whose tensors are name.weight, name.weight_scale, ... UnsupportedError where no program multiplies it,
    with its format and the reason; ValueError where its tensors are damaged.

    shapes: of its tensors, (dtype, shape), by the last words of their names.
    """

    experts = None

    def __init__(
        self, name: str, shapes: Mapping[str, tuple[torch.dtype, list[int]]], rule: Rule, dtype: torch.dtype, path: str
    ) -> None:
        self.name, self.shapes, self.rule, self.dtype, self._path = name, dict(shapes), rule, dtype, path
        if rule.lacks:
            raise self.refused(rule.lacks)
        strange = [last for last in shapes if last not in self._known()]
        if strange:
            raise self.refused(f"it has a tensor {strange[0]!r}; what that does is not known")
        self._find()
        try:
            Linear8(self.in_features, self.out_features, device="meta", **self._words())
        except ValueError as error:
            raise self.refused(str(error)) from None

    def _bits(self):
        """Of activations."""
        shared = MICROSCALED.get(self.rule.activations)
        return format_of(shared[0]).bits if shared else 8

    def _known(self):
        """What its tensors may be called."""
        return (*_TENSORS, *([_SMOOTHING] if self.rule.format == "modelopt" else []))

    def _find(self):
        """The extents, and which of the tensors are the codes and the scales."""
        rule, shapes = self.rule, self.shapes
        self.codes, self.scales = (self._one_of(names) for names in (_CODES, _SCALES))
        kind, shape = shapes[self.codes]
        wanted, each = (torch.int32, 32 // rule.bits) if self.codes == "weight_packed" else (torch.int8, 1)
        wanted, each = (torch.uint8, 8 // rule.bits) if rule.type else (wanted, each)
        wanted = _KINDS[rule.activations] if rule.bits == 8 else wanted
        if len(shape) != 2 or kind != wanted or self.codes == "weight_packed" and rule.bits == 8:
            what = f"{wanted} [out, in]" + (" of weight" if rule.bits == 8 else f" of {rule.bits} bits")
            raise self.refused(f"{self.codes} is {kind} {shape}, not {what}")
        self.out_features = shape[0]
        self.in_features = shape[1] * each
        if rule.static and "input_scale" not in shapes:
            raise self._damaged("it has no input_scale, and the activations are static")
        if rule.group > 128 and rule.group % 128 or 0 < rule.group <= 128 and rule.group not in (32, 64, 128):
            raise self.refused(f"its groups are of {rule.group} inputs; 32, 64 and multiples of 128 are multiplied")

    def _one_of(self, names):
        found = [name for name in names if name in self.shapes]
        if len(found) != 1:
            raise self._damaged(f"it has {' and '.join(found) or 'none'} of {', '.join(names)}")
        return found[0]

    def _words(self):
        """The arguments of Linear8."""
        rule = self.rule
        type = rule.activations if rule.bits == 8 else rule.type or f"u{rule.bits}"
        group = 128 if rule.blocks else min(rule.group, 128)
        return {"type": type, "group": group, "activations": rule.activations, "dtype": self.dtype}

    def _damaged(self, what):
        return ValueError(f"{self._path}: layer {self.name} ({self.rule.format}): {what}")

    def refused(self, what: str) -> UnsupportedError:
        """The error that says why the layer cannot be multiplied."""
        return UnsupportedError(
            f"{self._path}: layer {self.name} ({self.rule.format}) cannot be multiplied by activations of "
            f"{self._bits()} bits: {what}; {_INSTEAD}"
        )

    def placeholder(self) -> torch.nn.Module:
        """A module without memory that has the names of the layer's tensors in the file."""
        made = torch.nn.Module()
        for last, (dtype, shape) in self.shapes.items():
            made.register_buffer(last, torch.empty(shape, dtype=dtype, device="meta"))
        return made

    @torch.no_grad()
    def goes_with(self, dtype: torch.dtype) -> bool:
        """Is dtype that of its results?"""
        return dtype == self.dtype

    def layer(self, tensors: Mapping[str, torch.Tensor], dtype: torch.dtype | None = None) -> Linear8:
        """Of its tensors, by the last words of their names, on their device. dtype: one that it goes_with."""
        n, k, words = self.out_features, self.in_features, self._words()
        bias, step = tensors.get("bias"), self._input_scale(tensors)
        if bias is not None and list(bias.shape) != [n]:
            raise self._damaged(f"bias is {list(bias.shape)}, not {[n]}")
        scales = self._scales(tensors[self.scales])
        self._check_order(tensors)
        if self.rule.bits != 8:
            codes, zeros = self._narrow(tensors)
            made = Linear8.from_codes(codes, scales, zeros, bias, input_scale=step, **words)
            made.smoothing = self._smoothing(tensors)
            return made
        self._check_zeros(tensors.get("weight_zero_point"))
        made = Linear8(k, n, bias is not None, static=step is not None, device="meta", **words)
        made.packed, made.scales = tensors[self.codes], scales
        made.bias = bias if bias is None else bias.float()
        made.input_scale, made.smoothing = step, self._smoothing(tensors)
        return made

    def _smoothing(self, tensors):
        """What inputs are multiplied by, f32 [in], or None."""
        scales = tensors.get(_SMOOTHING)
        if scales is None:
            return None
        if list(scales.shape) != [self.in_features] or not scales.dtype.is_floating_point:
            raise self._damaged(f"{_SMOOTHING} is {scales.dtype} {list(scales.shape)}, not {[self.in_features]}")
        return scales.float()

    def _input_scale(self, tensors):
        if not self.rule.static:  # an upper bound, or what another program would take
            return None
        step, zero = tensors["input_scale"], tensors.get("input_zero_point")
        if step.numel() != 1 or not step.dtype.is_floating_point:
            raise self._damaged(f"input_scale is {step.dtype} {list(step.shape)}, not one number")
        if zero is not None and bool((zero != 0).any()):
            raise self.refused("its activations have zero points")
        return step.float().reshape(1)

    def _scales(self, scales):
        """As Linear8 has them."""
        n, k, rule, shape = self.out_features, self.in_features, self.rule, list(scales.shape)
        scales = as_bytes(scales)
        if rule.type and scales.dtype == torch.uint8:  # of e8m0
            scales = widened(scales, torch.float32)
        groups = k // rule.group if rule.group else 1
        wanted = [-(-n // 128), -(-k // 128)] if rule.blocks else [n, groups]
        if not scales.dtype.is_floating_point or scales.element_size() == 1:
            raise self._damaged(f"{self.scales} is {scales.dtype}, not floats of 16 or 32 bits")
        if scales.numel() == 1 and not rule.blocks and groups == 1:
            scales = scales.reshape(1, 1).expand(n, 1)
        elif shape == [n] and groups == 1:
            scales = scales.reshape(n, 1)
        elif shape != wanted:
            raise self._damaged(f"{self.scales} is {shape}, not {wanted}")
        scales = scales.float()
        if rule.bits != 8:
            scales = scales.t().repeat_interleave(rule.group // 128 if rule.group > 128 else 1, 0)
        return scales.contiguous()

    def _check_order(self, tensors):
        index = tensors.get("weight_g_idx")
        if index is not None and bool((index >= 0).all()) and bool((index.diff() < 0).any()):
            raise self.refused("its inputs have an order (act-order), by which activations would have to be moved")

    def _check_zeros(self, zeros):
        if zeros is not None and bool((zeros.float() != 0).any()):
            raise self.refused("its weights of 8 bits have zero points")

    def _narrow(self, tensors):
        """Codes uint8 [k, n], whose middle is 2^(bits - 1), and zero points [groups, n] or None."""
        n, k, bits, rule = self.out_features, self.in_features, self.rule.bits, self.rule
        half, zeros = 1 << bits - 1, tensors.get("weight_zero_point")
        groups = k // rule.group if rule.group else 1
        if rule.type:
            return codes_of_bits(tensors[self.codes].contiguous(), bits).t().contiguous(), None
        if self.codes == "weight":
            weight = tensors["weight"]
            if int(weight.max()) >= half or int(weight.min()) < -half:
                raise self._damaged(f"weight has numbers beyond {bits} bits")
            codes = (weight + half).to(torch.uint8)
            zeros = None if zeros is None else (zeros.reshape(n, groups).t() + half).to(torch.uint8)
        else:
            shape = tensors.get("weight_shape")
            if shape is not None and shape.tolist() != [n, k]:
                raise self._damaged(f"weight_shape is {shape.tolist()}, not {[n, k]}")
            codes = codes_of_bits(tensors["weight_packed"].contiguous().view(torch.uint8), bits)
            if zeros is not None:
                if list(zeros.shape) != [-(-n * bits // 32), groups] or zeros.dtype != torch.int32:
                    raise self._damaged(f"weight_zero_point is {zeros.dtype} {list(zeros.shape)}")
                zeros = codes_of_bits(zeros.t().contiguous().view(torch.uint8), bits)[:, :n]
        if zeros is not None and bool((zeros == half).all()):
            zeros = None
        if zeros is not None:
            zeros = zeros.repeat_interleave(rule.group // 128 if rule.group > 128 else 1, 0).contiguous()
        return codes.t().contiguous(), zeros


class MicroscaledLayer(EightLayer):
    """One layer whose weights and activations have scales of 8 bits: NVFP4, MXFP4 or MXFP8.

    Codes uint8 [out, in / 2], the first of two numbers in the lower bits, or f8_e4m3 [out, in]; weight_scale [out, in /
    group], of NVFP4 f8_e4m3, and beside it one scale of all weights and one of all activations, of compressed-tensors
    (compressors/nvfp4) as their reciprocals.
    """

    scales = "weight_scale"

    def _known(self):
        """What it must have, and what it may."""
        more = [_SMOOTHING] if self.rule.format == "modelopt" else []
        return (*self._needed(), "bias", *more)

    def _needed(self):
        self.codes, whole, _ = _MICROSCALED[self.rule.format]
        return (self.codes, self.scales, *(whole if self.rule.activations == "nvfp4" else ()))

    def _find(self):
        type, size, scale_dtype = MICROSCALED[self.rule.activations]
        for name in self._needed():
            if name not in self.shapes:
                raise self._damaged(f"it has no {name}")
        kind, shape = self.shapes[self.codes]
        bits = format_of(type).bits
        wanted = torch.uint8 if bits < 8 else _KINDS[type]
        if len(shape) != 2 or kind != wanted:
            raise self.refused(f"{self.codes} is {kind} {shape}, not {wanted} [out, in{' / 2' if bits < 8 else ''}]")
        self.out_features, self.in_features = shape[0], shape[1] * 8 // bits
        scales = scale_dtype, [shape[0], self.in_features // size]
        if (self.shapes[self.scales][0], list(self.shapes[self.scales][1])) != scales:
            raise self._damaged(f"{self.scales} is {' '.join(map(str, self.shapes[self.scales]))}, not {scales[1]}")

    def _words(self):
        type, group, _ = MICROSCALED[self.rule.activations]
        return {"type": type, "group": group, "activations": self.rule.activations, "dtype": self.dtype}

    def _whole(self, tensors, name, inverse):
        """A tensor's scale, f32 [1]."""
        scale = tensors[name].float()
        if scale.numel() != 1 or not 0 < float(scale) < float("inf"):
            raise self._damaged(f"{name} is {scale.tolist()}, not one number above 0")
        return (1 / scale if inverse else scale).reshape(1)

    @torch.no_grad()
    def layer(self, tensors: Mapping[str, torch.Tensor], dtype: torch.dtype | None = None) -> Linear8:
        n, k, bias = self.out_features, self.in_features, tensors.get("bias")
        if bias is not None and list(bias.shape) != [n]:
            raise self._damaged(f"bias is {list(bias.shape)}, not {[n]}")
        made = Linear8(k, n, bias is not None, static=self.rule.static, device="meta", **self._words())
        made.packed, made.scales = tensors[self.codes], tensors[self.scales]
        made.bias = bias if bias is None else bias.float()
        made.smoothing = self._smoothing(tensors)
        if self.rule.activations == "nvfp4":
            _, names, inverse = _MICROSCALED[self.rule.format]
            made.multiplier, made.input_scale = (self._whole(tensors, name, inverse) for name in names)
        return made


def layers_of(folder: str, files: Iterable[Any], four: Collection[str] = ()) -> dict[str, EightLayer]:
    """The layers of a folder's files, by name; none where its configuration says nothing of activations of 8 or 4 bits.

    files: of storage. four: as of rules_of. UnsupportedError for a layer that cannot be multiplied, with its format and
    the reason.
    """
    if not os.path.isdir(folder):
        return {}
    config, dtype = configuration_of(folder)
    rules = rules_of(config, four)
    if not rules:
        return {}
    tensors: dict[str, dict[str, tuple[torch.dtype, list[int]]]] = {}
    for file in files:
        for name, entry in file.entries.items():
            layer, _, last = name.rpartition(".")
            tensors.setdefault(layer, {})[last] = entry[:2]
    found = {}
    for name, shapes in tensors.items():
        if not any(scale in shapes for scale in _SCALES):
            continue
        fitting = [rule for rule in rules if rule.fits(name)] or [rule for rule in rules if "Linear" in rule.targets]
        rule = fitting[0] if fitting else Rule(rules[0].format, lacks="no group of the configuration has it")
        own = {last: entry for last, entry in shapes.items() if not is_of_caches(last)}
        made = MicroscaledLayer if rule.activations in MICROSCALED else EightLayer
        found[name] = made(name, own, rule, dtype, folder)
    return found


def is_of_caches(last: str) -> bool:
    """Is it a scale of a cache of keys and values, which says nothing of weights?"""
    return last in ("k_scale", "v_scale", "q_scale", "kv_scale", "k_zero_point", "v_zero_point")

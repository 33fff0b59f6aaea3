"""Layers of checkpoints that others have quantized for activations of 8 or 4 bits, taken as they lie: nn8.Linear8.

storage.load finds here what the configuration beside the files says of layers: compressed-tensors' W8A8 (int-quantized,
float-quantized), W4A8 (pack-quantized, or int-quantized of 4 bits) and W4A4 (nvfp4-pack-quantized and
mxfp4-pack-quantized, where these are asked for, or the device multiplies 4 bits), FP8 as DeepSeek-V3 and AutoFP8 write
it, and Model Optimizer's. Codes and scales are those of the file; weights of 8 bits, and of W4A4, stay where it is
mapped. Scales of activations that are found as the model runs are one for each row, or for 128 of it, where the weights
have blocks; one that the file has (static) is taken. Formats: compressed-tensors' QuantizationArgs, DeepSeek-V3's
inference/kernel.py.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from . import UnsupportedError
from ._formats import codes_of_bits
from ._torch import torch
from .nn8 import FOUR, Linear8

__all__ = ["EightLayer", "FourLayer", "Rule", "layers_of"]

_BLOCK = [128, 128]
_CODES, _SCALES = ("weight", "weight_packed"), ("weight_scale", "weight_scale_inv")
_TENSORS = (*_CODES, *_SCALES, "weight_shape", "weight_zero_point", "weight_g_idx", "input_scale", "input_zero_point",
            "bias")  # fmt: skip
_WHOLE_SCALES = ("weight_global_scale", "input_global_scale")  # of NVFP4
_DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16}
_KINDS = {"i8": torch.int8, "f8_e4m3": torch.float8_e4m3fn}
_INSTEAD = "tvm-pack --from=auto FOLDER -o OTHER imports its weights alone, for activations of 16 bits"


@dataclasses.dataclass(frozen=True)
class Rule:
    """How some layers are quantized.

    format: the method that the configuration names; activations, static: of nn8.Linear8; bits: of weights; group:
    inputs that share a scale, 0 for all; blocks: weights have scales of 128 x 128; targets: names of layers, `re:`
    before an expression, or "Linear" for all; lacks: why no layer can be multiplied so, or "".
    """

    format: str
    activations: str = "f8_e4m3"
    static: bool = False
    bits: int = 8
    group: int = 0
    blocks: bool = False
    targets: tuple[str, ...] = ("Linear",)
    lacks: str = ""

    def fits(self, name: str) -> bool:
        """Is the layer named, or among those of an expression?"""
        return any(
            re.match(target[3:], name) if target.startswith("re:") else f".{name}".endswith(f".{target}")
            for target in self.targets
        )


# ---- configurations ----


def _lacks_fp8(config):
    if config.get("fmt", "e4m3") not in ("e4m3", "float8_e4m3fn"):
        return f"its weights are {config['fmt']}, not e4m3"
    if config.get("activation_scheme", "dynamic") not in ("dynamic", "static"):
        return f"its activation_scheme is {config['activation_scheme']!r}"
    block = config.get("weight_block_size")
    if block and list(block) != _BLOCK:
        return f"its scales are of blocks of {list(block)}, not {_BLOCK}"
    if block and config.get("activation_scheme") == "static":
        return "its weights have blocks, and its activations one scale"
    return ""


def _lacks(weights, activations):
    """What of a group of compressed-tensors no layer multiplies; "" where one does."""
    bits, strategy = weights.get("num_bits"), weights.get("strategy")
    own, dynamic = activations.get("strategy"), activations.get("dynamic") or False
    is_block = weights.get("type") == "float" and strategy == "block"
    if activations.get("num_bits") != 8 or activations.get("type") not in ("int", "float"):
        return f"its activations have {activations.get('num_bits')} bits of type {activations.get('type')}, not 8"
    if not activations.get("symmetric", True):
        return "its activations have zero points"
    if dynamic not in (True, False) or not dynamic and own != "tensor" or dynamic and is_block != (own == "group"):
        kind = "dynamic" if dynamic is True else "static" if not dynamic else dynamic
        return f"scales of activations are {kind}, one for each {own}, and those of weights for each {strategy}"
    if own not in ("tensor", "token", "group"):
        return f"its activations have a scale for each {own}"
    if is_block and (weights.get("block_structure") != _BLOCK or activations.get("group_size") != _BLOCK[1]):
        sizes = f"{weights.get('block_structure')} and {activations.get('group_size')}"
        return f"its scales are of blocks of {sizes}, not {_BLOCK} and {_BLOCK[1]}"
    if bits == 8 and weights.get("type") != activations["type"]:
        return f"weights of type {weights.get('type')} do not go with activations of type {activations['type']}"
    if bits == 8 and strategy not in ("channel", "tensor", "block"):
        return f"its weights of 8 bits have a scale for each {strategy}"
    if bits != 8 and (weights.get("type") != "int" or bits not in (2, 4)):
        return f"its weights are of {bits} bits of type {weights.get('type')}; integers of 2 and 4 bits are known"
    if bits != 8 and strategy not in ("channel", "tensor", "group"):
        return f"its weights of {bits} bits have a scale for each {strategy}"
    return ""


def _four_of(weights, activations):
    """Of a group of compressed-tensors whose weights and activations have 4 bits: nvfp4 or mxfp4; "" of others."""
    for kind, strategy, dynamic in (("nvfp4", "tensor_group", "local"), ("mxfp4", "group", True)):
        wanted = {"num_bits": 4, "type": "float", "strategy": strategy, "group_size": FOUR[kind][1]}
        same = all(wanted.items() <= said.items() and said.get("symmetric", True) for said in (weights, activations))
        if same and not weights.get("dynamic") and activations.get("dynamic") == dynamic:
            return kind
    return ""


def _compressed(config, four):
    rules = []
    for group in (config.get("config_groups") or {}).values():
        weights, activations = group.get("weights") or {}, group.get("input_activations") or {}
        lacks = _lacks(weights, activations) if activations else "its activations have 16 bits, and others' have 8"
        kind = _four_of(weights, activations)
        if kind:
            hint = f"storage.load(..., activations={kind!r}) rounds them so on any device"
            lacks = "" if kind in four else f"they have 4 bits, which the device does not multiply as they are: {hint}"
        if group.get("output_activations"):
            lacks = "its results are rounded, too (output_activations)"
        rules.append(
            Rule(
                "compressed-tensors", kind or ("i8" if activations.get("type") == "int" else "f8_e4m3"),
                static=not activations.get("dynamic") or kind == "nvfp4", bits=weights.get("num_bits") or 0,
                group=(weights.get("group_size") or 0) if weights.get("strategy") == "group" else 0,
                blocks=weights.get("strategy") == "block", targets=tuple(group.get("targets") or ()), lacks=lacks,
            )
        )  # fmt: skip
    eight = [g for g in (config.get("config_groups") or {}).values() if (g.get("input_activations") or {})]
    sparse = (config.get("sparsity_config") or {}).get("format", "dense")
    why = f"its weights are sparse ({sparse})" if sparse != "dense" else ""
    why = "its layers have transforms (transform_config)" if config.get("transform_config") else why
    return [dataclasses.replace(rule, lacks=why or rule.lacks) for rule in rules] if eight else []


def rules_of(config: Mapping[str, Any], four: Collection[str] = ()) -> list[Rule]:
    """Of a quantization_config: how its layers are quantized; none where activations stay as they are, or of another
    method. four: which activations of 4 bits are multiplied as they are."""
    method = config.get("quant_method")
    if method == "compressed-tensors":
        return _compressed(config, four)
    if method == "fp8":
        static = config.get("activation_scheme") == "static"
        return [Rule("fp8", static=static, blocks=bool(config.get("weight_block_size")), lacks=_lacks_fp8(config))]
    if method in (None, "modelopt") and config.get("quant_algo") == "FP8":
        return [Rule("modelopt", static=True)]
    return []


def _configuration(folder):
    """What is said of the quantization, and the type of activations."""
    found = {}
    for name in ("config.json", "hf_quant_config.json"):
        path = os.path.join(folder, name)
        if os.path.exists(path):
            with open(path) as file:
                try:
                    said = json.load(file)
                except ValueError as error:
                    raise ValueError(f"{path} is no JSON: {error}") from error
            if isinstance(said, dict):
                found = {**said, **found}
    quantization = found.get("quantization_config") or found.get("quantization") or {}
    dtype = _DTYPES.get(found.get("dtype") or found.get("torch_dtype"), torch.bfloat16)
    return quantization if isinstance(quantization, dict) else {}, dtype


# ---- layers ----


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

    def _known(self):
        """What its tensors may be called."""
        return _TENSORS

    def _find(self):
        """The extents, and which of the tensors are the codes and the scales."""
        rule, shapes = self.rule, self.shapes
        self.codes, self.scales = (self._one_of(names) for names in (_CODES, _SCALES))
        kind, shape = shapes[self.codes]
        wanted = torch.int32 if self.codes == "weight_packed" else torch.int8
        wanted = _KINDS[rule.activations] if rule.bits == 8 else wanted
        if len(shape) != 2 or kind != wanted or self.codes == "weight_packed" and rule.bits == 8:
            what = f"{wanted} [out, in]" + (" of weight" if rule.bits == 8 else f" of {rule.bits} bits")
            raise self.refused(f"{self.codes} is {kind} {shape}, not {what}")
        self.out_features = shape[0]
        self.in_features = shape[1] * (32 // rule.bits if self.codes == "weight_packed" else 1)
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
        type = rule.activations if rule.bits == 8 else f"u{rule.bits}"
        group = 128 if rule.blocks else min(rule.group, 128)
        return {"type": type, "group": group, "activations": rule.activations, "dtype": self.dtype}

    def _damaged(self, what):
        return ValueError(f"{self._path}: layer {self.name} ({self.rule.format}): {what}")

    def refused(self, what: str) -> UnsupportedError:
        """The error that says why the layer cannot be multiplied."""
        return UnsupportedError(
            f"{self._path}: layer {self.name} ({self.rule.format}) cannot be multiplied by activations of "
            f"{4 if self.rule.activations in FOUR else 8} bits: {what}; {_INSTEAD}"
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
            return Linear8.from_codes(codes, scales, zeros, bias, input_scale=step, **words)
        self._check_zeros(tensors.get("weight_zero_point"))
        made = Linear8(k, n, bias is not None, static=step is not None, device="meta", **words)
        made.packed, made.scales = tensors[self.codes], scales
        made.bias = bias if bias is None else bias.float()
        made.input_scale = step
        return made

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


class FourLayer(EightLayer):
    """One layer of W4A4, NVFP4 or MXFP4: weight_packed uint8 [out, in / 2], the first of two numbers in the lower bits,
    weight_scale [out, in / group], of NVFP4 f8_e4m3 and multiplied by 1 / weight_global_scale, and 1 /
    input_global_scale the scale of all activations (compressed-tensors' compressors/nvfp4)."""

    codes, scales = "weight_packed", "weight_scale"

    def _known(self):
        return (self.codes, self.scales, *(_WHOLE_SCALES if self.rule.activations == "nvfp4" else ()), "bias")

    def _find(self):
        _, size, scale_dtype = FOUR[self.rule.activations]
        for name in self._known()[:-1]:
            if name not in self.shapes:
                raise self._damaged(f"it has no {name}")
        kind, shape = self.shapes[self.codes]
        if len(shape) != 2 or kind != torch.uint8:
            raise self.refused(f"{self.codes} is {kind} {shape}, not uint8 [out, in / 2]")
        self.out_features, self.in_features = shape[0], shape[1] * 2
        wanted = scale_dtype, [shape[0], self.in_features // size]
        if (self.shapes[self.scales][0], list(self.shapes[self.scales][1])) != wanted:
            raise self._damaged(f"{self.scales} is {' '.join(map(str, self.shapes[self.scales]))}, not {wanted[1]}")

    def _words(self):
        type, group, _ = FOUR[self.rule.activations]
        return {"type": type, "group": group, "activations": self.rule.activations, "dtype": self.dtype}

    def _inverse(self, tensors, name):
        """1 / a tensor's scale, f32 [1]."""
        scale = tensors[name].float()
        if scale.numel() != 1 or not float(scale) > 0:
            raise self._damaged(f"{name} is {scale.tolist()}, not one number above 0")
        return (1 / scale).reshape(1)

    @torch.no_grad()
    def layer(self, tensors: Mapping[str, torch.Tensor], dtype: torch.dtype | None = None) -> Linear8:
        n, k, bias = self.out_features, self.in_features, tensors.get("bias")
        if bias is not None and list(bias.shape) != [n]:
            raise self._damaged(f"bias is {list(bias.shape)}, not {[n]}")
        made = Linear8(k, n, bias is not None, static=self.rule.static, device="meta", **self._words())
        made.packed, made.scales = tensors[self.codes], tensors[self.scales]
        made.bias = bias if bias is None else bias.float()
        if self.rule.activations == "nvfp4":
            made.multiplier, made.input_scale = (self._inverse(tensors, name) for name in _WHOLE_SCALES)
        return made


def layers_of(folder: str, files: Iterable[Any], four: Collection[str] = ()) -> dict[str, EightLayer]:
    """The layers of a folder's files, by name; none where its configuration says nothing of activations of 8 or 4 bits.

    files: of storage. four: as of rules_of. UnsupportedError for a layer that cannot be multiplied, with its format and
    the reason.
    """
    if not os.path.isdir(folder):
        return {}
    config, dtype = _configuration(folder)
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
        made = FourLayer if rule.activations in FOUR else EightLayer
        found[name] = made(name, own, rule, dtype, folder)
    return found


def is_of_caches(last: str) -> bool:
    """Is it a scale of a cache of keys and values, which says nothing of weights?"""
    return last in ("k_scale", "v_scale", "q_scale", "kv_scale", "k_zero_point", "v_zero_point")

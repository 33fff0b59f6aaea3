"""Checkpoints that others have quantized, taken over as an engine reads them: GPTQ, AWQ, compressed-tensors (integers
packed in words, int8, and float8) and FP8 (with scales of blocks, columns or matrices).

A row of LAYOUTS says where a tensor of a format has a layer's inputs and outputs, so that a rank's part of it is cut
out; Foreign.linear makes an nn.Linear of the parts, with the codes that they have. Scales are rounded to the type of
activations; where the checkpoint says that these have 8 bits, and programs multiply them so, it is an nn.Linear8, whose
scales are as they are. Formats: AutoGPTQ's and AutoAWQ's packing, and compressed-tensors' pack_to_int32.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from .. import UnsupportedError
from .._checkpoint_rules import Rule, rules_of
from .._formats import bits_of_codes, codes_of_bits
from .._torch import torch
from ..checkpoint8 import EightLayer
from ..nn import Linear, Linear8

__all__ = ["LAYOUTS", "METHODS", "Foreign", "foreign_of"]

#: Of each tensor: (axis, unit) of inputs and of outputs, None where it has none. A unit is of `one` of them, of those
#: of a `group` or a `block` (of outputs), or `packed` in words of 32 bits.
LAYOUTS = {
    "gptq": {
        "qweight": ((0, "packed"), (1, "one")), "qzeros": ((0, "group"), (1, "packed")),
        "scales": ((0, "group"), (1, "one")), "g_idx": ((0, "one"), None),
    },
    "awq": {
        "qweight": ((0, "one"), (1, "packed")), "qzeros": ((0, "group"), (1, "packed")),
        "scales": ((0, "group"), (1, "one")),
    },
    "packed": {
        "weight_packed": ((1, "packed"), (0, "one")), "weight_scale": ((1, "group"), (0, "one")),
        "weight_zero_point": ((1, "group"), (0, "packed")), "weight_g_idx": ((0, "one"), None),
        "weight_shape": (None, None),
    },
    "fp8": {
        "weight": ((1, "one"), (0, "one")), "weight_scale_inv": ((1, "group"), (0, "block")),
        "weight_scale": ((1, "group"), (0, "block")), "input_scale": (None, None),
    },
    "int8": {
        "weight": ((1, "one"), (0, "one")), "weight_scale": ((1, "group"), (0, "block")), "input_scale": (None, None),
    },
}  # fmt: skip

#: What a configuration calls them.
METHODS = {
    "gptq": "gptq", "gptq_marlin": "gptq", "auto_gptq": "gptq", "awq": "awq", "awq_marlin": "awq", "auto_awq": "awq",
    "compressed-tensors": "packed", "fp8": "fp8",
}  # fmt: skip

_AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  #: the column of each nibble of a word
_GROUPS = (16, 32, 64, 128)


@dataclasses.dataclass(frozen=True)
class Foreign:
    """How the layers of a checkpoint lie.

    layout: of LAYOUTS; bits: of a code; group: inputs that share a scale, 0 for all; block: outputs that do, of FP8;
    offset: what is added to zero points as they are stored; skip: names of layers that stay, `re:` before a regular
    expression. eight: how activations of 8 bits are multiplied, where the checkpoint says so; None where they have 16.
    """

    layout: str
    bits: int
    group: int
    block: int = 1
    offset: int = 0
    skip: tuple[str, ...] = ()
    eight: Rule | None = None

    @property
    def type(self) -> str:
        return {"fp8": "f8_e4m3", "int8": "i8"}.get(self.layout, f"u{self.bits}")

    @property
    def tensors(self) -> tuple[str, ...]:
        return (*LAYOUTS[self.layout], *(("input_scale",) if self.eight and self.layout == "packed" else ()))

    def skips(self, name: str) -> bool:
        """Does the layer stay? A pattern is its name, a part of it between dots, or an expression that fits."""
        for pattern in self.skip:
            if pattern.startswith("re:"):
                if re.match(pattern[3:], name):
                    return True
            elif f".{pattern}." in f".{name}.":
                return True
        return False

    # ---- a rank's part ----

    def cut(self, name: str, tensor: torch.Tensor, axis: str, begin: int, end: int) -> torch.Tensor:
        """Outputs ("out") or inputs ("in") from begin to end of a tensor. ValueError where they begin or end within a
        word or a group, or inputs have an order."""
        rule = LAYOUTS[self.layout].get(name, (None, None))[axis == "out"]
        if rule is None or tensor.dim() <= rule[0] or tensor.dim() == 1 and rule[1] in ("group", "block"):
            return tensor if tensor.dim() != 1 or rule is None or rule[1] != "block" else tensor[begin:end]
        dim, unit = rule
        if unit == "block" and tensor.shape[0] > 1:
            rows = tensor.repeat_interleave(self.block, 0) if self.block > 1 else tensor
            return rows[begin:end]
        if unit in ("group", "block") and (not self.group or tensor.shape[dim] == 1):
            return tensor
        if name.endswith("g_idx") and (begin, end) != (0, tensor.shape[0]) and not self._plain(tensor):
            raise ValueError(
                "inputs that have an order (act-order) cannot be cut: a part of the rows reads all of them; use one "
                "rank, or a checkpoint without act-order"
            )
        size, each = {"one": (1, 1), "group": (self.group, 1), "packed": (32, self.bits)}[unit]
        if begin * each % size or end * each % size and -(-end * each // size) != tensor.shape[dim]:
            what = "outputs" if axis == "out" else "inputs"
            raise ValueError(f"a rank's part of the {what}, {begin} to {end}, must be a multiple of {-(-size // each)}")
        first, last = begin * each // size, -(-end * each // size)
        return tensor.narrow(dim, first, last - first)

    def _plain(self, g_idx):
        return bool((g_idx == torch.arange(len(g_idx), device=g_idx.device) // (self.group or len(g_idx))).all())

    # ---- a layer ----

    def _linear8(self, tensors, inputs, dtype):
        """For activations of 8 bits; None where this rank's part is none that is multiplied so."""
        own = {name: tensor for name, tensor in tensors.items() if name != "weight_shape"}
        scales = next((name for name in ("weight_scale", "weight_scale_inv") if name in own), None)
        if self.eight.blocks and scales and own[scales].shape[0] == own["weight"].shape[0]:  # spread over outputs
            first = own[scales][:: self.block]
            if not torch.equal(first.repeat_interleave(self.block, 0)[: own[scales].shape[0]], own[scales]):
                return None  # the part begins within a block
            own[scales] = first
        shapes = {name: (tensor.dtype, list(tensor.shape)) for name, tensor in own.items()}
        try:
            made = EightLayer("", shapes, self.eight, dtype, "")
            return made.layer(own) if made.in_features == inputs else None
        except UnsupportedError:
            return None

    @torch.no_grad()
    def linear(
        self, tensors: Mapping[str, torch.Tensor], inputs: int, outputs: int, dtype: torch.dtype
    ) -> Linear | Linear8:
        """Of its tensors, cut, on their device; ValueError where some are missing or have other shapes."""
        made = None if self.eight is None else self._linear8(tensors, inputs, dtype)
        if made is not None:
            return made
        read = {
            "gptq": self._gptq, "awq": self._awq, "packed": self._packed, "fp8": self._fp8, "int8": self._fp8,
        }[self.layout]  # fmt: skip
        try:
            codes, scales, zeros, index = read(tensors, outputs)
        except KeyError as error:
            raise ValueError(f"there is no {error.args[0]}") from None
        groups = scales.shape[0]
        if codes.shape != (inputs, outputs) or scales.shape[1] != outputs or inputs % groups:
            raise ValueError(
                f"codes {list(codes.shape)} and scales {list(scales.shape)} are not those of {inputs} inputs and "
                f"{outputs} outputs"
            )
        order = None
        if index is not None and not (index.diff() >= 0).all():
            order = index.argsort(stable=True)
            if not torch.equal(index[order], torch.arange(inputs, device=index.device) // (inputs // groups)):
                raise ValueError(f"groups of act-order are not of {inputs // groups} inputs each")
            codes, order = codes[order], order.int()
        group = inputs // groups if groups > 1 or self.group == inputs else 0
        if group > 128 and group % 128 == 0:
            times = group // 128
            scales = scales.repeat_interleave(times, 0)
            zeros = None if zeros is None else zeros.repeat_interleave(times, 0)
            group = 128
        if group not in (0, *_GROUPS):
            raise UnsupportedError(f"no program multiplies groups of {group} inputs: tvm-pack --from=auto says more")
        if zeros is not None and bool((zeros == 1 << self.bits - 1).all()):
            zeros = None
        scales, multiplier = _rounded(scales, dtype)
        strings = bits_of_codes(torch.nn.functional.pad(codes, (0, -outputs % 8)), self.bits)
        return Linear.from_strings(
            strings, scales, None if zeros is None else zeros.to(dtype), type=self.type, group=group,
            in_features=inputs, out_features=outputs, order=order, multiplier=multiplier,
        )  # fmt: skip

    def _words(self, words):
        """Codes [rows, n] of rows of words."""
        return codes_of_bits(words.contiguous().view(torch.uint8), self.bits)

    def _gptq(self, tensors, outputs):
        codes = self._words(tensors["qweight"].t()).t()
        zeros = self._words(tensors["qzeros"])[:, :outputs].float() + self.offset
        return codes, tensors["scales"], zeros, tensors.get("g_idx")

    def _awq(self, tensors, outputs):
        order = torch.tensor(_AWQ_ORDER, device=tensors["qweight"].device).argsort()

        def columns(words):
            raw = self._words(words)
            return raw.view(raw.shape[0], -1, 8)[:, :, order].reshape(raw.shape)[:, :outputs]

        return columns(tensors["qweight"]), tensors["scales"], columns(tensors["qzeros"]).float(), None

    def _packed(self, tensors, outputs):
        codes, zeros = self._words(tensors["weight_packed"]).t(), tensors.get("weight_zero_point")
        if zeros is not None:
            zeros = self._words(zeros.t())[:, :outputs].float()
        inputs = tensors["weight_shape"].tolist()[1] if "weight_shape" in tensors else codes.shape[0]
        codes = codes[:inputs] if inputs < codes.shape[0] else codes
        return codes, tensors["weight_scale"].t(), zeros, tensors.get("weight_g_idx")

    def _fp8(self, tensors, outputs):
        codes = tensors["weight"].view(torch.uint8).t()
        scales = tensors["weight_scale_inv" if "weight_scale_inv" in tensors else "weight_scale"].float()
        if scales.dim() < 2:
            scales = scales.reshape(-1, 1)
        if scales.shape[0] != outputs:
            scales = scales.repeat_interleave(self.block if scales.shape[0] > 1 else outputs, 0)[:outputs]
        return codes, scales.t(), None, None


def _rounded(scales, dtype):
    """The scales in dtype, and a multiplier of f32 [1] where f16 would hold small ones badly."""
    if dtype != torch.float16 or scales.dtype == torch.float16:
        return scales.to(dtype).contiguous(), None
    scales = scales.float()
    if float(scales.abs().max()) < 65504 and float(scales.abs().min()) >= 2.0**-14:
        return scales.to(dtype).contiguous(), None
    power = torch.exp2(torch.floor(torch.log2(scales.abs().max().clamp(min=1e-30))))
    return (scales / power).to(dtype).contiguous(), power.reshape(1)


# ---- configurations ----


def _need(method, config, name, wanted):
    if config.get(name, wanted[0]) not in wanted:
        known = " or ".join(map(repr, wanted))
        raise UnsupportedError(
            f"the checkpoint is quantized by {method} with {name} {config[name]!r}, where {known} is taken over; "
            f"tvm-pack --from=auto MODEL -o FOLDER may import it"
        )


def _number(method, config, *names):
    """Of the first of the names that a configuration has."""
    value = next((config[name] for name in names if config.get(name) is not None), None)
    if not isinstance(value, int):
        raise UnsupportedError(f"the checkpoint is quantized by {method}, and its configuration has no {names[0]}")
    return value


def foreign_of(config: Mapping[str, Any]) -> Foreign | None:
    """Of a quantization_config; None where its method is none of METHODS. UnsupportedError with what is not known."""
    method = config.get("quant_method")
    layout = METHODS.get(method)
    stay = config.get("modules_to_not_convert") or config.get("ignored_layers") or config.get("ignore") or []
    skip = tuple(stay) if config.get("lm_head") is True else (*stay, "lm_head")
    if layout == "gptq":
        _need(method, config, "bits", (4, 2, 3, 8))
        _need(method, config, "dynamic", (None, {}))
        _need(method, config, "checkpoint_format", ("gptq", "gptq_v2"))
        offset = 0 if config.get("checkpoint_format") == "gptq_v2" else 1
        bits, group = _number(method, config, "bits"), _number(method, config, "group_size")
        return Foreign("gptq", bits, max(group, 0), offset=offset, skip=skip)
    if layout == "awq":
        _need(method, config, "bits", (4,))
        _need(method, config, "version", ("gemm", "GEMM"))
        return Foreign("awq", 4, max(_number(method, config, "group_size", "q_group_size"), 0), skip=skip)
    if layout == "fp8":
        _need(method, config, "fmt", ("e4m3", "float8_e4m3fn"))
        rows, columns = config.get("weight_block_size") or (1, 0)
        eight = _eight(config) if config.get("activation_scheme") else None
        return Foreign("fp8", 8, columns, rows, skip=skip, eight=eight)
    if layout == "packed":
        return _compressed(method, config, skip)
    return None


def _eight(config):
    """The rule of layers whose activations have 8 bits and can be multiplied so."""
    rules = rules_of(config)
    return rules[0] if len(rules) == 1 and not rules[0].lacks else None


def _compressed(method, config, skip):
    groups = list((config.get("config_groups") or {}).values())
    if len(groups) != 1:
        raise UnsupportedError(
            f"the checkpoint is quantized by {method} with {len(groups)} groups of layers, where one is taken over; "
            f"tvm-pack --from=auto MODEL -o FOLDER may import it"
        )
    weights = groups[0].get("weights") or {}
    form = groups[0].get("format") or config.get("format")
    _need(method, {"format": form}, "format", ("pack-quantized", "float-quantized", "int-quantized"))
    eight = _eight(config)
    size = {"channel": 0, "tensor": 0}.get(weights.get("strategy"), weights.get("group_size") or 0)
    if form in ("float-quantized", "int-quantized"):
        _need(method, weights, "num_bits", (8,))
        rows, columns = weights.get("block_structure") or (1, size)
        return Foreign("fp8" if form == "float-quantized" else "int8", 8, columns, rows, skip=skip, eight=eight)
    _need(method, weights, "num_bits", (4, 8))
    _need(method, weights, "type", ("int",))
    return Foreign("packed", _number(method, weights, "num_bits"), max(int(size), 0), skip=skip, eight=eight)

"""What configurations beside checkpoints say of layers whose activations have 8 or 4 bits: rules, by the layers' names.

Read are quantization_config of config.json, of compressed-tensors (QuantizationArgs), of FP8 as DeepSeek-V3 and AutoFP8
write it, and of NVIDIA's Model Optimizer, whose hf_quant_config.json says the same
(https://github.com/NVIDIA/Model-Optimizer: modelopt/torch/export, convert_hf_config.py and quant_utils.py).
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Collection, Mapping
from typing import Any

from ._torch import torch
from .nn8 import FOUR, MICROSCALED

__all__ = ["BLOCK", "Rule", "configuration_of", "rules_of"]

BLOCK = [128, 128]  #: of weights that share a scale
_DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16}


@dataclasses.dataclass(frozen=True)
class Rule:
    """How some layers are quantized.

    format: the method that the configuration names; activations, static: of nn8.Linear8; bits: of weights; type: of
    these, where they are no integers and have fewer bits than activations; group: inputs that share a scale, 0 for all;
    blocks: weights have scales of 128 x 128; targets: names of layers, `re:` before an expression, or "Linear" for all;
    lacks: why no layer can be multiplied so, or "".
    """

    format: str
    activations: str = "f8_e4m3"
    static: bool = False
    bits: int = 8
    type: str = ""
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


def _lacks_fp8(config):
    if config.get("fmt", "e4m3") not in ("e4m3", "float8_e4m3fn"):
        return f"its weights are {config['fmt']}, not e4m3"
    if config.get("activation_scheme", "dynamic") not in ("dynamic", "static"):
        return f"its activation_scheme is {config['activation_scheme']!r}"
    block = config.get("weight_block_size")
    if block and list(block) != BLOCK:
        return f"its scales are of blocks of {list(block)}, not {BLOCK}"
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
    if is_block and (weights.get("block_structure") != BLOCK or activations.get("group_size") != BLOCK[1]):
        sizes = f"{weights.get('block_structure')} and {activations.get('group_size')}"
        return f"its scales are of blocks of {sizes}, not {BLOCK} and {BLOCK[1]}"
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
        wanted = {"num_bits": 4, "type": "float", "strategy": strategy, "group_size": MICROSCALED[kind][1]}
        same = all(wanted.items() <= said.items() and said.get("symmetric", True) for said in (weights, activations))
        if same and not weights.get("dynamic") and activations.get("dynamic") == dynamic:
            return kind
    return ""


def _lacks_four(kind, four):
    """Why layers of kind are not multiplied as they are; "" where they are, or have no 4 bits."""
    if kind not in FOUR or kind in four:
        return ""
    hint = f"storage.load(..., activations={kind!r}) rounds them so on any device"
    return f"they have 4 bits, which the device does not multiply as they are: {hint}"


def _compressed(config, four):
    rules = []
    for group in (config.get("config_groups") or {}).values():
        weights, activations = group.get("weights") or {}, group.get("input_activations") or {}
        lacks = _lacks(weights, activations) if activations else "its activations have 16 bits, and others' have 8"
        kind = _four_of(weights, activations)
        lacks = _lacks_four(kind, four) if kind else lacks
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


#: Of what Model Optimizer calls quant_algo: the words of a Rule, or why there is none. NVFP4_AWQ, and SmoothQuant's
#: W8A8, have a pre_quant_scale, by which inputs are multiplied.
_ALGORITHMS = {
    "FP8": {"static": True},
    "FP8_PER_CHANNEL_PER_TOKEN": {},
    "MXFP8": {"activations": "mxfp8"},
    "W8A8_SQ_PER_CHANNEL": {"activations": "i8", "static": True},
    "NVFP4": {"activations": "nvfp4", "static": True, "bits": 4},
    "NVFP4_AWQ": {"activations": "nvfp4", "static": True, "bits": 4},
    "MXFP4": {"activations": "mxfp4", "bits": 4},
    "W4A8_MXFP4_FP8": {"static": True, "bits": 4, "type": "f4_e2m1", "group": 32},
    "W4A8_NVFP4_FP8": "its weights have scales of 16 inputs beside activations of 8 bits, where 32 are the fewest",
    "W4A8_AWQ": "its weights of 4 bits have scales of groups and of all, beside activations of 8 bits",
    "NVFP4_SVD": "its layers have a product of low rank beside them (svdquant_lora_a, svdquant_lora_b)",
}  # fmt: skip
#: Those whose activations stay as they are.
_WEIGHTS_ALONE = ("W4A16_NVFP4", "W4A16_AWQ", "W8A16", "FP8_PB_WO", "FP8_PB_REAL")


def _of_algorithm(name, targets, four):
    said = _ALGORITHMS.get(str(name).upper(), f"its quant_algo is {name!r}; known are {', '.join(_ALGORITHMS)}")
    if str(name).upper() in _WEIGHTS_ALONE:
        said = "its activations have 16 bits, and others' have 8 or 4"
    if isinstance(said, str):
        return Rule("modelopt", targets=targets, lacks=said)
    rule = Rule("modelopt", targets=targets, **said)
    return dataclasses.replace(rule, lacks=_lacks_four(rule.activations, four))


def _modelopt(config, four):
    """Of one algorithm of all layers, or of one for each (MIXED_PRECISION); layers that are excluded have no scales."""
    algorithm = config.get("quant_algo")
    layers = config.get("quantized_layers") or {}
    if str(algorithm).upper() != "MIXED_PRECISION":
        layers = {"Linear": {"quant_algo": algorithm}}
    names: dict[str, list[str]] = {}
    for name, said in layers.items():
        names.setdefault((said or {}).get("quant_algo"), []).append(name)
    if all(str(name).upper() in _WEIGHTS_ALONE for name in names):
        return []
    return [_of_algorithm(name, tuple(targets), four) for name, targets in names.items()]


def rules_of(config: Mapping[str, Any], four: Collection[str] = ()) -> list[Rule]:
    """Of a quantization_config: how its layers are quantized; none where activations stay as they are, or of another
    method. four: which activations of 4 bits are multiplied as they are."""
    method = config.get("quant_method")
    if method == "compressed-tensors":
        return _compressed(config, four)
    if method == "fp8":
        static = config.get("activation_scheme") == "static"
        return [Rule("fp8", static=static, blocks=bool(config.get("weight_block_size")), lacks=_lacks_fp8(config))]
    if method is None and "quant_algo" in config or str(method).startswith("modelopt"):
        return _modelopt(config, four)
    return []


def configuration_of(folder: str) -> tuple[Mapping[str, Any], torch.dtype]:
    """What the files of a folder say of the quantization, and the type of activations."""
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

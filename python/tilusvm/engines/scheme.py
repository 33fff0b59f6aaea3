"""How the layers of a model are quantized: what its configuration says, and what the headers of its files say."""

from __future__ import annotations

import dataclasses
import difflib
import fnmatch
import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

from .. import UnsupportedError, storage
from .._formats import format_of
from .._torch import torch
from ..checkpoint import layers_of
from ..nn8 import check_activations
from ..quantize import checked_format
from .foreign import METHODS, Foreign, foreign_of
from .parts import NAMES, Packed, Rows

__all__ = ["Scheme", "described"]

#: Other methods of quantization whose checkpoints tvm-pack --from reads.
_IMPORTED = ("mxfp4", "bitsandbytes", "modelopt")
_OURS = ("tilusvm", None)


@dataclasses.dataclass
class Scheme:
    """The quantization of a model.

    type: a type's name, or a mapping of patterns of layers' names to types; layers that no pattern fits stay as they
    are. group, zeros, scales: as of nn.Linear.from_float; activations, too, of linear layers alone: those of experts
    stay. skip: patterns of names of layers that stay. version: of what tvm-pack imported. foreign: how a
    checkpoint of another method lies, whose layers are taken as they are. layers: what the files' headers say of
    layers, by name: where they say nothing of one that is packed, it is of `type`.
    """

    type: str | Mapping[str, str] = "u4"
    group: int = 128
    zeros: bool = False
    scales: str = "mse"
    skip: tuple[str, ...] = ("lm_head",)
    version: int | None = None
    foreign: Foreign | None = None
    activations: str | None = None
    layers: dict[str, Packed | Rows] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.skip, str):
            raise TypeError("skip must be a list of patterns, not a string")
        self.skip = tuple(self.skip)
        if self.scales not in ("mse", "absmax"):
            raise ValueError(f"scales must be mse or absmax, not {self.scales!r}")
        if self.activations is not None:
            check_activations("Scheme", self.activations)
        kinds = self.type.values() if isinstance(self.type, Mapping) else [self.type]
        for kind in kinds:
            checked_format(kind, self.group, self.zeros and format_of(kind).kind == "u", torch.bfloat16)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Scheme:
        """Of a quantization_config, also of one of METHODS, whose checkpoints are taken over. UnsupportedError for that
        of another method, with what to do; TypeError for a word that it has not."""
        foreign = foreign_of(config)
        if foreign is not None:
            return cls(type=foreign.type, group=128, skip=foreign.skip, foreign=foreign)
        words = dict(config)
        method = words.pop("quant_method", None)
        if method not in _OURS:
            raise UnsupportedError(_foreign(method))
        own = [field.name for field in dataclasses.fields(cls) if field.name not in ("layers", "foreign")]
        for name in words:
            if name not in own:
                close = difflib.get_close_matches(name, own, 1)
                hint = f"did you mean {close[0]}?" if close else f"it has {', '.join(own)}"
                raise TypeError(f"a quantization_config of tilusvm has no {name!r}: {hint}")
        return cls(**words)

    def of_16_bits(self) -> Scheme:
        """The same weights for activations of 16 bits: of experts, and where a row is not to depend on the others."""
        foreign = self.foreign and dataclasses.replace(self.foreign, eight=None)
        return dataclasses.replace(self, activations=None, foreign=foreign)

    def skips(self, name: str) -> bool:
        """Does the layer stay? A pattern fits a name, or its last words."""
        if self.foreign is not None:
            return self.foreign.skips(name)
        return any(fnmatch.fnmatchcase(name, p) or fnmatch.fnmatchcase(name, f"*.{p}") for p in self.skip)

    def type_of(self, name: str) -> str | None:
        """Of the layer of this name; None where it stays."""
        if name in self.layers:
            return self.layers[name].type
        if self.skips(name):
            return None
        if not isinstance(self.type, Mapping):
            return self.type
        return next((kind for pattern, kind in self.type.items() if fnmatch.fnmatchcase(name, pattern)), None)

    def quantizes(self, names: Iterable[str]) -> bool:
        """Are the layers of these names, which an engine has as one, quantized? ValueError where some are."""
        names = list(names)
        kinds = {name: self.type_of(name) for name in names}
        found = [name for name, kind in kinds.items() if kind is not None]
        if found and len(found) != len(names):
            rest = next(name for name in names if name not in found)
            raise ValueError(f"{found[0]} is quantized and {rest} is not, but the engine has both as one layer")
        return bool(found)

    @property
    def tensors(self) -> tuple[str, ...]:
        """The names of what a layer may have in the files: a plain weight, or the tensors of a packed one."""
        return tuple(dict.fromkeys(("weight", *NAMES, *(self.foreign.tensors if self.foreign else ()))))

    def has_packed(self, name: str) -> bool:
        """Is the tensor one of a checkpoint of another method?"""
        return self.foreign is not None and name in self.foreign.tensors

    def kind(self, name: str) -> Packed | Rows | Foreign:
        """How the tensors of a packed layer lie."""
        return self.layers.get(name) or self.foreign or Packed(self.type_of(name), self.group)

    def renamed(self, rename) -> Scheme:
        """Of a model whose engine calls layers otherwise: rename gives the new name, or None for what it drops."""
        layers = {rename(name): layer for name, layer in self.layers.items()}
        layers.pop(None, None)
        skip = tuple(name if name.startswith("re:") else rename(name) or name for name in self.skip)
        foreign = self.foreign and dataclasses.replace(self.foreign, skip=skip)
        return dataclasses.replace(self, skip=skip, layers=layers, foreign=foreign)


def _foreign(method):
    if method in _IMPORTED:
        return (
            f"the checkpoint is quantized by {method}: tvm-pack --from=auto MODEL -o FOLDER imports it once, with its "
            f"codes and scales; then serve FOLDER"
        )
    known = ", ".join((*METHODS, *_IMPORTED))
    return f"the checkpoint is quantized by {method!r}, which is not supported; serve a plain one, or one of {known}"


def described(folder: str) -> dict[str, Packed | Rows]:
    """What the headers of a folder's .safetensors files say of its layers, by name; nothing of a plain checkpoint, or
    where there is no such folder."""
    if not os.path.isdir(folder) or not any(name.endswith(".safetensors") for name in os.listdir(folder)):
        return {}
    found = {}
    for file in storage.files_of(folder):
        for name, said in json.loads(file.metadata.get("modules", "{}")).items():
            if "activations" in said:
                raise UnsupportedError(
                    f"{file.path}: layer {name} is packed for activations of {said['activations']}, which engines do "
                    f'not cut: serve the plain model with "activations" in its quantization_config'
                )
            found[name] = Packed(said["type"], said["group"])
        for name in layers_of(file.path, file.metadata):
            found[name] = Rows(name, file.metadata[f"{name}.packed"], file.path)
    return found

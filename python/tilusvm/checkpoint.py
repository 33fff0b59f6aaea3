"""Layers of checkpoints that others have quantized, as tvm-pack --from writes them (tilusvm-weights(5)).

storage.load opens the files, and finds here what their metadata say of layers, and the nn.Linear of each: the same
codes, scales and zero points, the codes laid out by the program's kernel. Nothing is quantized anew.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from . import UnsupportedError
from ._formats import format_of
from ._narrow import bytes_of, half_of
from ._registry import HALVES
from ._torch import torch
from .experts import Experts
from .nn import Linear

__all__ = ["ImportedLayer", "layers_of"]

_GROUPS = (128, 64, 32, 16)  # of the programs
_SCALES = {"f16": torch.float16, "bf16": torch.bfloat16, "f8_e4m3": torch.float8_e4m3fn, "e8m0": torch.uint8}


class ImportedLayer:
    """What the metadata of a file say of one layer, whose tensors are name.packed, name.scales, ...

    in_features, out_features, type; experts: how many matrices it is a stack of, or None; group: that of nn.Linear;
    spread: how many of its groups share a scale of the file's; scales: their type, of e8m0 uint8; dtype: that of
    activations, which is theirs, beside scales of 8 bits the halves that hold them. UnsupportedError where no program
    multiplies such weights, ValueError where the description is damaged.
    """

    def __init__(self, name: str, text: str, path: str) -> None:
        self.name, self._path = name, path
        try:
            said = json.loads(text)
            shape = [int(extent) for extent in said["shape"].split(",")]
            size, kind, packing = int(said["group"]), said["type"], said.get("packing", "rows")
            self.type = format_of(kind).name
            self.zeros, self.scales = said["zero"] == "per-group", _SCALES[said["scale"]]
            self.dtype = half_of(self.scales)
            *stack, self.in_features, self.out_features = shape
            if len(stack) > 1 or min(shape) <= 0 or size <= 0 or self.in_features % size:
                raise ValueError(f"groups of {size} in the shape {shape}")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._damaged(f"what is said of it cannot be read: {error!r}") from error
        self.experts = stack[0] if stack else None
        if packing != "rows":
            raise self._refused(f"its packing is {packing!r}, not rows")
        self.group, self.spread = self._grouped(size)

    def _grouped(self, size):
        """A group of the programs, the largest that the file's is a multiple of; of all inputs, 0 of no multiple."""
        if size == self.in_features and size not in _GROUPS:
            return 0, 1
        for group in _GROUPS:
            if size % group == 0:
                return group, size // group
        raise self._refused(f"its groups are of {size} inputs; programs take multiples of 16, or all inputs as one")

    def _damaged(self, what):
        return ValueError(f"{self._path}: layer {self.name}: {what}")

    def _refused(self, what):
        return UnsupportedError(f"{self._path}: layer {self.name} cannot be multiplied: {what}")

    def config(self, name: str, names: Collection[str]) -> dict[str, Any]:
        """The arguments of an nn.Linear that has the names of the layer's tensors, which are among names and begin with
        name, and none of its memory; of a stack those of Experts."""
        return {
            "in_features": self.in_features, "out_features": self.out_features, "type": self.type,
            "group": self.group, "batch_invariant": False, "order": f"{name}.order" in names,
            "multiplier": f"{name}.multiplier" in names, "dtype": self.dtype,
            **({"experts": self.experts} if self.experts else {}),
        }  # fmt: skip

    def goes_with(self, dtype: torch.dtype) -> bool:
        """Can activations be of dtype? Beside scales of e4m3 they are of either type of halves."""
        return dtype == self.dtype or self.scales == torch.float8_e4m3fn and dtype in HALVES

    def layer(self, tensors: Mapping[str, torch.Tensor], dtype: torch.dtype | None = None) -> Linear | Experts:
        """The nn.Linear of its tensors, a mapping of "packed", "scales" and what else it has, on their device; of a
        stack the Experts. dtype: as of linear."""
        if not self.experts:
            return self.linear(tensors, dtype)
        for name, tensor in tensors.items():
            if tensor.dim() < 1 or tensor.shape[0] != self.experts:
                raise self._damaged(f"{name} is {tensor.dtype} {list(tensor.shape)}, for {self.experts} matrices")
        parts = ({name: _part(name, tensor[i]) for name, tensor in tensors.items()} for i in range(self.experts))
        return Experts.collect((self.linear(part, dtype) for part in parts), self.experts)

    @torch.no_grad()
    def linear(self, tensors: Mapping[str, torch.Tensor], dtype: torch.dtype | None = None) -> Linear:
        """The nn.Linear of the tensors of one matrix. dtype: of activations beside scales of e4m3, which both halves
        hold; None: float16."""
        fmt = format_of(self.type)
        groups = self.in_features // (self.group or self.in_features) // self.spread
        extents = [groups, self.out_features]
        wanted = {
            "packed": [[self.in_features, fmt.row_bytes(self.out_features)], [torch.uint8]],
            "scales": [extents, [self.scales]],
            "zeros": [extents, [self.dtype]] if self.zeros else None,
            "bias": [[self.out_features], None],
            "order": [[self.in_features], [torch.int32]],
            "multiplier": [[1], [torch.float32]],
        }
        for name, tensor in tensors.items():
            shape, dtypes = wanted.get(name) or (None, None)
            if list(tensor.shape) != shape or dtypes and tensor.dtype not in dtypes:
                raise self._damaged(f"{name} is {tensor.dtype} {list(tensor.shape)}, not {shape}")
        for name in ("packed", "scales", *(["zeros"] if self.zeros else [])):
            if name not in tensors:
                raise self._damaged(f"it has no {name}")
        order = tensors.get("order")
        if order is not None and not torch.equal(order.sort().values, torch.arange(len(order)).to(order)):
            raise self._damaged("order is no permutation of the inputs")
        scales, multiplier = tensors["scales"], tensors.get("multiplier")
        if scales.dtype == self.dtype:
            scales, multiplier = _folded(scales, multiplier)
        return Linear.from_strings(
            tensors["packed"],
            self._spread(scales),
            self._spread(tensors["zeros"]) if self.zeros else None,
            tensors.get("bias"),
            type=self.type,
            group=self.group,
            in_features=self.in_features,
            out_features=self.out_features,
            order=order,
            multiplier=multiplier,
            dtype=dtype if self.scales == torch.float8_e4m3fn else None,
        )

    def _spread(self, tensor):
        return tensor if self.spread == 1 else bytes_of(tensor).repeat_interleave(self.spread, 0).view(tensor.dtype)


def _part(name, tensor):
    return tensor.view(1) if name == "multiplier" else tensor


def _folded(scales, multiplier):
    """Scales that are multiplied, and no multiplier, where their type holds the products."""
    if multiplier is None:
        return scales, None
    exact = scales.double() * multiplier.double()
    products = exact.to(scales.dtype)
    return (products, None) if torch.equal(products.double(), exact) else (scales, multiplier)


def layers_of(path: str, metadata: Mapping[str, str]) -> dict[str, ImportedLayer]:
    """The imported layers of a file with these metadata, by name; none of a file of another kind."""
    if metadata.get("format") != "tilusvm-model":
        return {}
    if metadata.get("version") != "1":
        raise UnsupportedError(f"{path}: version {metadata.get('version')} of tilusvm-weights is not known; 1 is")
    end = ".packed"
    return {
        key[: -len(end)]: ImportedLayer(key[: -len(end)], text, path)
        for key, text in metadata.items()
        if key.endswith(end)
    }

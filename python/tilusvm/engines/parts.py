"""What a rank has of packed weights: tensors of files are cut as they are read, and become an nn.Linear.

Two layouts are known: Packed, granules of 64 outputs and ops.group_rows inputs, as storage.save and save_pretrained
write them, and Rows, compact bit strings of a row of codes, as tvm-pack --from does. A cut at granules takes them as
they are; another one packs the same codes anew.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

from .. import quantize
from .._formats import bits_of_codes, codes_of_bits, format_of
from .._narrow import NARROW, bytes_of, half_of, kept
from .._torch import torch
from ..checkpoint import ImportedLayer
from ..nn import Linear
from ..ops import group_rows, packed_shape

__all__ = ["NAMES", "Packed", "Rows", "cut_weight"]

#: The tensors of a layer in a file.
NAMES = ("packed", "scales", "zeros", "order", "multiplier")


def _pad8(tensor):
    return torch.nn.functional.pad(bytes_of(tensor), (0, -tensor.shape[-1] % 8)).contiguous().view(tensor.dtype)


def cut_weight(weight: torch.Tensor, axis: str, begin: int, end: int) -> torch.Tensor:
    """Outputs ("out") or inputs ("in") from begin to end of a plain weight [outputs, inputs]."""
    return weight[begin:end] if axis == "out" else weight[:, begin:end]


class _Kind:
    type: str

    def cut(self, name: str, tensor: torch.Tensor, axis: str, begin: int, end: int) -> torch.Tensor:
        """Outputs ("out") or inputs ("in") from begin to end of the layer's tensor `name`. ValueError where inputs are
        cut within a group, or have an order."""
        if name == "multiplier":
            return tensor
        if name == "order":
            if axis == "in" and (begin, end) != (0, tensor.shape[0]):
                raise ValueError(
                    "inputs that have an order (act-order) cannot be cut: a part of the rows reads all of them; use "
                    "one rank, or a checkpoint without act-order"
                )
            return tensor
        if name != "packed":
            return self._groups(tensor, axis, begin, end)
        return self._outputs(tensor, begin, end) if axis == "out" else self._inputs(tensor, begin, end)


class Packed(_Kind):
    """A layer packed for the program: packed [outputs / 64, inputs / group_rows, bytes], scales [groups, outputs]."""

    def __init__(self, type: str, group: int) -> None:
        self.type, self.group = format_of(type).name, group

    def _outputs(self, packed, begin, end):
        part = packed[begin // 64 : -(-end // 64)]
        if begin % 64 == 0:
            return part
        first = begin // 64 * 64
        codes = quantize.unpack(part.contiguous(), self.type, self.group, 64 * part.shape[0])
        return quantize.pack(_pad8(codes[:, begin - first : end - first]), self.type, self.group)

    def _inputs(self, packed, begin, end):
        rows = group_rows(self.group)
        last = -(-end // rows)
        if begin % rows or end % rows and last != packed.shape[1]:
            raise ValueError(f"a rank's part of the inputs, {begin} to {end}, must be whole groups of {rows}")
        return packed[:, begin // rows : last]

    def _groups(self, tensor, axis, begin, end):
        if axis == "out":
            return tensor[:, begin:end]
        if not self.group:
            return tensor
        rows = group_rows(self.group)
        return tensor[begin // self.group : -(-end // rows) * rows // self.group]

    @torch.no_grad()
    def linear(self, tensors: Mapping[str, torch.Tensor], inputs: int, outputs: int, dtype: torch.dtype) -> Linear:
        """The layer of its tensors, cut, on their device; ValueError where they are not those of such a layer. Scales
        are of their own type, not of dtype, that of activations; those of e4m3 go with both halves."""
        for name in ("packed", "scales"):
            if name not in tensors:
                raise ValueError(f"there is no {name}")
        scales = _pad8(tensors["scales"][:, :outputs])
        half = dtype if scales.dtype == torch.float8_e4m3fn else half_of(scales.dtype)
        scales = kept(scales, scales.shape[1], half)
        narrow = scales.dtype if scales.dtype in NARROW else None
        zeros = tensors.get("zeros")
        made = Linear(
            inputs, outputs, False, type=self.type, group=self.group, zeros=zeros is not None,
            dtype=half, order="order" in tensors, multiplier="multiplier" in tensors, device="meta", scale_dtype=narrow,
        )  # fmt: skip
        rows = group_rows(self.group)
        wanted = packed_shape(self.type, self.group, -(-inputs // rows) * rows, scales.shape[1])
        if tuple(tensors["packed"].shape) != wanted or scales.shape != made.scales.shape:
            found = list(tensors["packed"].shape), list(tensors["scales"].shape)
            raise ValueError(
                f"packed and scales are {found[0]} and {found[1]}; {self.type} in groups of {self.group} has "
                f"{list(wanted)} and {list(made.scales.shape)}"
            )
        made.packed, made.scales = tensors["packed"].contiguous(), scales
        made.zeros = None if zeros is None else _pad8(zeros[:, :outputs])
        made.order, made.multiplier = tensors.get("order"), tensors.get("multiplier")
        return made


class Rows(_Kind):
    """A layer as rows of codes: packed [inputs, bytes of a row's bit string], scales [groups, outputs].

    text: what the file's metadata say of it (tilusvm-weights(5)).
    """

    def __init__(self, name: str, text: str, path: str) -> None:
        self._whole = ImportedLayer(name, text, path)
        self._of, self._said = (name, path), json.loads(text)
        self.type, self._size = self._whole.type, int(self._said["group"])

    def _outputs(self, strings, begin, end):
        bits = format_of(self.type).bits
        if begin * bits % 8 == 0 and (end % 8 == 0 or end == self._whole.out_features):
            return strings[:, begin * bits // 8 : -(-end * bits // 8)]
        first, last = begin // 8 * bits, -(-end // 8) * bits
        part = torch.nn.functional.pad(strings, (0, max(last - strings.shape[1], 0)))[:, first:last]
        codes = codes_of_bits(part.contiguous(), bits)[:, begin % 8 :][:, : end - begin]
        return bits_of_codes(_pad8(codes), bits)[:, : format_of(self.type).row_bytes(end - begin)]

    def _inputs(self, strings, begin, end):
        return strings[begin:end]

    def _groups(self, tensor, axis, begin, end):
        if axis == "out":
            return tensor[:, begin:end]
        common = math.gcd(self._size, begin, end)
        at = torch.arange(begin, end, common, device=tensor.device) // self._size
        return bytes_of(tensor).index_select(0, at).view(tensor.dtype)

    @torch.no_grad()
    def linear(self, tensors: Mapping[str, torch.Tensor], inputs: int, outputs: int, dtype: torch.dtype) -> Linear:
        """As of Packed. UnsupportedError where no program multiplies groups of the cut's size."""
        if "scales" not in tensors or inputs % max(tensors["scales"].shape[0], 1):
            raise ValueError("there are no scales that fit the inputs")
        size = inputs // tensors["scales"].shape[0]
        said = {**self._said, "shape": f"{inputs},{outputs}", "group": str(size)}
        name, path = self._of
        layer = ImportedLayer(name, json.dumps(said), path)
        return layer.linear({n: t.contiguous() for n, t in tensors.items()}, dtype)

"""The linear layers and the experts of an engine: their tensors as these come, and the products.

An engine calls a parameter's weight loader with each tensor of a file. What this rank needs of it is cut out, moved to
the device and kept; a plain weight is quantized at once, so that one weight at a time is there in full. When all have
come, the parts of a layer become one nn.Linear where they fit together, and several where they do not.
"""

from __future__ import annotations

from collections.abc import Sequence

from .._narrow import bytes_of
from .._torch import torch
from ..experts import Experts, rows_of
from ..nn import Linear, Linear8
from ..ops import combine, swiglu
from ..quantize import unpack
from .parts import cut_weight
from .scheme import Scheme

__all__ = ["ACTIVATIONS", "ExpertParts", "LinearParts", "mixture", "product"]

ACTIVATIONS = ("silu", "gelu", "gelu_tanh")  #: of experts, by swiglu


class LinearParts:
    """Of a linear layer of an engine, that has the layers `names` of the model as its parts.

    sizes: the outputs of each part on this rank; inputs: those of this rank. dtype: of activations. After finish,
    `linears` has the products, whose outputs come one after the other.
    """

    def __init__(
        self, scheme: Scheme, names: Sequence[str], inputs: int, sizes: Sequence[int], dtype: torch.dtype,
        device: torch.device,
    ) -> None:  # fmt: skip
        if len(names) != len(sizes):
            raise ValueError(f"there are {len(names)} names of {len(sizes)} parts")
        self.scheme, self.names, self.inputs, self.sizes = scheme, list(names), inputs, list(sizes)
        self.dtype, self.device = dtype, device
        self._tensors = [{} for _ in names]
        self._linears = [None for _ in names]

    def take(self, part: int, name: str, tensor: torch.Tensor, axis: str, begin: int, end: int) -> None:
        """Tensor `name` of part `part`, of which the outputs ("out") or inputs ("in") from begin to end are this
        rank's."""
        layer = self.names[part]
        try:
            if name == "weight" and not self.scheme.has_packed("weight"):
                self._linears[part] = self._quantized(layer, cut_weight(tensor, axis, begin, end))
                return
            kind = self.scheme.kind(layer)
            piece = kind.cut(name, tensor, axis, begin, end)
        except ValueError as error:
            error.add_note(f"in the layer {layer}")
            raise
        # a copy: what a file's mapping holds is not kept, and kernels want 16 bytes
        self._tensors[part][name] = piece.to(self.device, copy=True).contiguous()

    def _quantized(self, layer, weight):
        linear = torch.nn.Linear(1, 1, bias=False, device="meta")
        linear.weight = torch.nn.Parameter(weight.to(self.device), requires_grad=False)
        scheme = self.scheme
        words = {"zeros": scheme.zeros, "scales": scheme.scales, "dtype": self.dtype, "activations": scheme.activations}
        return Linear.from_float(linear, scheme.type_of(layer), scheme.group, **words)

    def _made(self, layer, tensors, outputs):
        return self.scheme.kind(layer).linear(tensors, self.inputs, outputs, self.dtype)

    def missing(self) -> list[int]:
        """The parts of which nothing has come."""
        return [i for i, made in enumerate(self._linears) if made is None and not self._tensors[i]]

    def fill(self, seed: int = 0) -> None:
        """Random weights for what has not come: for an engine that is measured without a model."""
        generator = torch.Generator(self.device).manual_seed(seed)
        for part in self.missing():
            weight = torch.empty(self.sizes[part], self.inputs, dtype=self.dtype, device=self.device)
            weight.normal_(std=self.inputs**-0.5, generator=generator)
            self.take(part, "weight", weight, "out", 0, self.sizes[part])

    def finish(self) -> list[Linear]:
        """The layers; ValueError for a part that has not come, or comes in another type than dtype."""
        made = []
        for part, layer in enumerate(self.names):
            linear = self._linears[part]
            try:
                if linear is None and not self._tensors[part]:
                    raise ValueError("the files have neither its weight nor its packed weights")
                if linear is None:
                    linear = self._made(layer, self._tensors[part], self.sizes[part])
                if linear.dtype != self.dtype:
                    raise ValueError(
                        f"its scales are {linear.dtype}, the model runs in {self.dtype}: serve it with "
                        f"--dtype {str(linear.dtype).removeprefix('torch.')}"
                    )
            except ValueError as error:
                error.add_note(f"in the layer {layer}")
                raise
            made.append(linear)
        self._tensors, self._linears = [], []
        return joined(made)


def joined(layers: list[Linear]) -> list[Linear]:
    """One layer of all, where they fit together (nn.Linear.cat); else the layers."""
    if len(layers) < 2 or len({type(layer) for layer in layers}) > 1:
        return layers
    try:
        return [type(layers[0]).cat(layers)]
    except ValueError:  # of several types or orders, with multipliers, or of outputs within a granule
        return layers


def by_turns(layer: Linear) -> Linear:
    """The layer whose outputs are those of its first and of its second half by turns, as matmul_experts' gate wants."""
    half = layer.out_features // 2
    order = torch.arange(2 * half, device=layer.device).view(2, half).t().flatten()
    codes = unpack(layer.packed, layer.type, layer.group, layer.scales.shape[1])
    parts = [
        t if t is None else bytes_of(t)[..., order].view(t.dtype)
        for t in (codes, layer.scales, layer.zeros, layer.bias)
    ]
    words = {"in_features": layer.in_features, "dtype": layer.dtype}
    made = Linear.from_codes(*parts, type=layer.type, group=layer.group, **words)
    made.order, made.multiplier = layer.order, layer.multiplier
    return made


def set_bias(layers: list[Linear], bias: torch.Tensor | None) -> None:
    """The bias of all outputs, so that the product adds it."""
    at = 0
    for layer in layers:
        dtype = torch.float32 if isinstance(layer, Linear8) else layer.dtype
        own = None if bias is None else bias[at : at + layer.out_features].to(dtype).clone()
        layer.bias = own
        at += layer.out_features


def product(layers: Sequence[Linear], x: torch.Tensor) -> torch.Tensor:
    """[..., outputs of all]."""
    if len(layers) == 1:
        return layers[0](x)
    return torch.cat([layer(x) for layer in layers], -1)


class ExpertParts:
    """Of the experts of a mixture that this rank has: matrices w1 (gate), w3 (up; not of mixtures without a gate) and
    w2 (down) of each.

    prefix: of the experts' names in the model; width: the rank's part of what is between the products.
    """

    def __init__(
        self, scheme: Scheme, names: dict[str, str], experts: int, hidden: int, width: int, dtype: torch.dtype,
        device: torch.device,
    ) -> None:  # fmt: skip
        self.width = width
        scheme = scheme.of_16_bits()
        sizes = {shard: (width, hidden) if shard == "w2" else (hidden, width) for shard in names}
        self._parts = {
            shard: [
                LinearParts(scheme, [name.format(i)], sizes[shard][0], sizes[shard][1:], dtype, device)
                for i in range(experts)
            ]
            for shard, name in names.items()
        }

    def rename(self, expert: int, shard: str, name: str) -> None:
        """The name in the model of an expert that this rank has at another place."""
        self._parts[shard][expert].names = [name]

    def take(self, expert: int, shard: str, name: str, tensor: torch.Tensor, rank: int, ranks: int = 0) -> None:
        """Tensor `name` of a matrix of an expert of this rank; rank: whose part of the width it is; ranks: 1 where the
        width is not cut."""
        parts = self._parts[shard][expert]
        begin = 0 if ranks == 1 else rank * self.width
        parts.take(0, name, tensor, "in" if shard == "w2" else "out", begin, begin + self.width)

    def fill(self, seed: int = 0) -> None:
        """As of LinearParts."""
        for at, parts in enumerate(each for stack in self._parts.values() for each in stack):
            parts.fill(seed + at)

    def finish(self) -> tuple[list[Experts], Experts]:
        """The stacks before the activation, one where gate and up fit together, whose columns they have by turns, and
        that behind it."""
        count = len(self._parts["w2"])

        def layers(shard):
            return [parts.finish()[0] for parts in self._parts[shard]]

        first = [layers(shard) for shard in ("w1", "w3") if shard in self._parts]
        both = [joined(list(pair)) for pair in zip(*first)]
        has_turns = len(first) == 2 and len(both[0]) == 1 and 2 * self.width == both[0][0].scales.shape[1]
        stacks = [
            Experts.collect((by_turns(pair[i]) if has_turns else pair[i] for pair in both), count)
            for i in range(len(both[0]))
        ]
        stacks[0].has_turns = has_turns
        down = Experts.collect(layers("w2"), count)
        self._parts = {}
        return stacks, down


def mixture(
    before: Sequence[Experts], down: Experts, x: torch.Tensor, weights: torch.Tensor, index: torch.Tensor,
    activation: str = "silu",
) -> torch.Tensor:  # fmt: skip
    """The weighted sum of what the experts of `index` [tokens, k] make of x [tokens, hidden], routed on the device. An
    index that is no expert of the stacks adds nothing."""
    tokens, top = index.shape
    rows = rows_of(index, down.experts)
    if before[0].has_turns:
        h = before[0].of_tokens(x, rows, gate=activation)
    else:
        parts = [stack.of_tokens(x, rows) for stack in before]
        h = swiglu(parts[0] if len(parts) == 1 else torch.cat(parts, -1), activation)
    # the products before have waited for what wrote the offsets
    y = combine(down(h, rows, early=True), rows.places.view(tokens, top), weights.float().contiguous())
    return y.to(x.dtype)

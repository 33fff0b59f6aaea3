"""The configuration and the methods of an engine's layers, but for what engines have of their own: base classes and
parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from .._torch import torch
from .layers import ACTIVATIONS, ExpertParts, LinearParts, mixture, product, set_bias
from .loader import head_loader, loader_of, whole_loader
from .scheme import Scheme

__all__ = ["Config", "ExpertsMethod", "LayerKinds", "LinearMethod", "expert_names"]


def _drop(layer, names):
    for name in names:
        if name in layer._parameters:
            delattr(layer, name)


class LayerKinds(NamedTuple):
    """The classes of an engine's layers."""

    linear: type
    replicated: type  #: a linear layer that every rank has as a whole
    head: type
    plain: type  #: the method of a linear layer that stays as it is


class Config:
    """What the configurations of vLLM and SGLang share, whose classes are mixed with it."""

    scheme: Scheme
    packed_modules_mapping: dict[str, list[str]]
    kinds: LayerKinds
    linear_method: type[LinearMethod]

    @classmethod
    def get_name(cls) -> str:
        return "tilusvm"

    @classmethod
    def get_supported_act_dtypes(cls) -> list[torch.dtype]:
        return [torch.float16, torch.bfloat16]

    @classmethod
    def get_min_capability(cls) -> int:
        return 80

    @staticmethod
    def get_config_filenames() -> list[str]:
        return []

    @classmethod
    def override_quantization_method(cls, hf_quant_cfg, user_quant, hf_config=None) -> str | None:
        """With `--quantization tilusvm` a checkpoint of another method is this one's, which says what to do with it."""
        return "tilusvm" if user_quant == "tilusvm" else None

    def names_of(self, prefix: str) -> list[str]:
        """The layers of the model that the engine's layer has as its parts."""
        parent, _, last = prefix.rpartition(".")
        names = self.packed_modules_mapping.get(last)
        if names is None or prefix in self.scheme.layers:
            return [prefix]
        return [f"{parent}.{name}" if parent else name for name in names]

    def experts_method(self, layer: torch.nn.Module, prefix: str) -> tuple[bool, object]:
        """Is the layer a mixture of experts, and its method; None where it stays as it is."""
        raise NotImplementedError

    def get_quant_method(self, layer: torch.nn.Module, prefix: str):
        is_mixture, method = self.experts_method(layer, prefix)
        if is_mixture:
            return method
        if not isinstance(layer, (self.kinds.linear, self.kinds.head)):
            return None
        names = self.names_of(prefix)
        if self.scheme.quantizes(names):
            return self.linear_method(self.scheme, names)
        return self.kinds.plain() if isinstance(layer, self.kinds.linear) else None


class LinearMethod:
    """names: of the layers of the model that the engine's layer has as its parts."""

    parameter: type  #: PartsParameter and the engine's own
    kinds: LayerKinds

    def __init__(self, scheme: Scheme, names: list[str]) -> None:
        self.scheme, self.names = scheme, names

    def loader(self, layer: torch.nn.Module, own: Callable) -> Callable:
        """The weight loader of the layer's parameters; own: the one that the engine gives."""
        if isinstance(layer, self.kinds.head):
            return head_loader(layer)
        return whole_loader if isinstance(layer, self.kinds.replicated) else loader_of(layer, own)

    def is_dummy(self) -> bool:
        """Is the model to have random weights?"""
        return False

    def is_batch_invariant(self) -> bool:
        """Are the bits of a row not to depend on the other rows?"""
        return False

    def rank(self, layer: torch.nn.Module) -> int:
        """Of the layer, among those that share its weights."""
        return getattr(layer, "tp_rank", 0)

    def create_weights(
        self, layer, input_size_per_partition, output_partition_sizes, input_size, output_size, params_dtype,
        **extra_weight_attrs,
    ) -> None:  # fmt: skip
        sizes = list(output_partition_sizes)
        names = self.names if len(self.names) == len(sizes) else self.names[:1] * len(sizes)
        device = torch.empty(0).device  # the engine makes its models under the device that they run on
        scheme = self.scheme.of_16_bits() if self.is_batch_invariant() else self.scheme
        layer.tilus_parts = LinearParts(scheme, names, input_size_per_partition, sizes, params_dtype, device)
        layer.tilus_dummy = self.is_dummy()
        loader = self.loader(layer, extra_weight_attrs["weight_loader"])
        for name in self.scheme.tensors:
            param = self.parameter(data=torch.empty(0, dtype=params_dtype), weight_loader=loader)
            param.parts, param.tensor_name = layer.tilus_parts, name
            layer.register_parameter(name, param)

    def tie_weights(self, layer, embed_tokens):
        """The head's weights are the embedding's, quantized; the embedding keeps its own."""
        layer.tilus_tied = [embed_tokens]
        return layer

    def process_weights_after_loading(self, layer) -> None:
        parts = layer.__dict__.pop("tilus_parts", None)
        if parts is None:
            return
        if hasattr(layer, "tilus_tied"):
            weight = layer.tilus_tied[0].weight.data
            parts.take(0, "weight", weight, "out", 0, weight.shape[0])
        if layer.tilus_dummy:
            parts.fill()
        wanted = sum(parts.sizes) if not hasattr(layer, "num_embeddings_per_partition") else 0
        linears = parts.finish()
        _drop(layer, self.scheme.tensors)
        for linear in linears:
            linear.batch_invariant = self.is_batch_invariant()
        layer.tilus = torch.nn.ModuleList(linears)
        layer.weight_packed = linears[0].packed  # where LoRA looks for the device
        wanted = wanted or layer.num_embeddings_per_partition
        layer.tilus_missing = wanted - sum(linear.out_features for linear in linears)
        bias = getattr(layer, "bias", None)
        others = hasattr(layer, "input_is_parallel") and self.rank(layer) > 0  # of rows the first rank alone adds it
        layer.tilus_biased = bias is not None and not getattr(layer, "skip_bias_add", False) and not others
        if layer.tilus_biased:
            set_bias(linears, bias.data)

    def apply(self, layer, x, bias=None) -> torch.Tensor:
        y = product(layer.tilus, x)
        if layer.tilus_missing:  # of a vocabulary that the ranks do not share evenly
            y = torch.nn.functional.pad(y, (0, layer.tilus_missing))
        return y if bias is None or layer.tilus_biased else y + bias

    def dequantize_weight(self, layer) -> torch.Tensor:
        return torch.cat([linear.dequantize(linear.dtype) for linear in layer.tilus])


def expert_names(prefix: str, gate: str | None, up: str | None, down: str) -> dict[str, str]:
    """The names of the experts' matrices in the model, with {} for an expert's number."""
    names = {"w1": gate, "w3": up, "w2": down}
    return {shard: f"{prefix}.{{}}.{name}" for shard, name in names.items() if name}


class ExpertsMethod:
    """Of mixtures of experts, on stacks of matrices; the device sorts the rows by expert."""

    scheme: Scheme

    def is_dummy(self) -> bool:
        """As of LinearMethod."""
        return False

    def is_batch_invariant(self) -> bool:
        """As of LinearMethod."""
        return False

    def create(self, layer, names, experts, hidden, width, dtype, *, activation, rank, ranks, local) -> None:
        """The parameters of a layer. names: expert_names; local: a function of an expert's number that gives its place
        on this rank, or -1. NotImplementedError for an activation that no program has."""
        if activation not in ACTIVATIONS:
            raise NotImplementedError(
                f"experts with the activation {activation} are not supported: skip them, by "
                f'"skip": ["lm_head", "*.experts.*"] in the quantization_config'
            )
        if self.is_batch_invariant():
            raise NotImplementedError(
                "experts are not batch-invariant, as is asked for: skip them, by "
                '"skip": ["lm_head", "*.experts.*"] in the quantization_config'
            )
        parts = ExpertParts(self.scheme, names, experts, hidden, width, dtype, torch.empty(0).device)
        layer.tilus_parts, layer.tilus_activation, layer.tilus_dummy = parts, activation, self.is_dummy()

        def load(param, loaded_weight, weight_name="", shard_id="", expert_id=0, return_success=False, **rest):
            place = local(expert_id)
            if place != -1:
                parts.rename(place, shard_id, names[shard_id].format(expert_id))
                parts.take(place, shard_id, param.tensor_name, loaded_weight, rank, ranks)
            return place != -1 if return_success else None

        for stack in ("w13", "w2"):
            for name in self.scheme.tensors:
                param = torch.nn.Parameter(torch.empty(0, dtype=dtype), requires_grad=False)
                param.weight_loader, param.tensor_name = load, name
                layer.register_parameter(f"{stack}_{name}", param)

    def process_weights_after_loading(self, layer) -> None:
        parts = layer.__dict__.pop("tilus_parts", None)
        if parts is None:
            return
        if layer.tilus_dummy:
            parts.fill()
        before, down = parts.finish()
        _drop(layer, [f"{stack}_{name}" for stack in ("w13", "w2") for name in self.scheme.tensors])
        layer.tilus_before, layer.tilus_down = torch.nn.ModuleList(before), down
        layer.w2_weight_packed = down.packed  # where LoRA looks for the device

    def mixture(self, layer, x, weights, index) -> torch.Tensor:
        """Of rows x, the experts that a router has chosen, and their weights."""
        return mixture(layer.tilus_before, layer.tilus_down, x, weights, index, layer.tilus_activation)

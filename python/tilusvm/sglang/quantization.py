"""The quantization `tilusvm` of SGLang: its configuration, its linear layers and its mixtures of experts."""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.distributed.utils import get_group_rank_size
from sglang.srt.layers.linear import LinearBase, ReplicatedLinear
from sglang.srt.layers.moe.fused_moe_triton import FusedMoE
from sglang.srt.layers.parameter import BasevLLMParameter
from sglang.srt.layers.quantization.base_config import FusedMoEMethodBase, LinearMethodBase, QuantizationConfig
from sglang.srt.layers.quantization.unquant import UnquantizedLinearMethod
from sglang.srt.layers.vocab_parallel_embedding import ParallelLMHead

from ..engines.loader import PartsParameter, loader_of, whole_loader
from ..engines.methods import ExpertsMethod, LinearMethod, expert_names
from ..engines.scheme import Scheme, described

__all__ = ["TilusConfig", "TilusLinearMethod", "TilusMoEMethod"]

_OF_ENGINE = ("packed_modules_mapping", "hf_config")  #: what SGLang adds to a model's quantization_config


class TilusConfig(QuantizationConfig):
    """Of a model's quantization_config; Scheme has the words."""

    def __init__(self, scheme: Scheme | None = None, packed_modules_mapping: dict | None = None) -> None:
        super().__init__()
        self.scheme = scheme or Scheme()
        self.packed_modules_mapping = packed_modules_mapping or {}

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
    def from_config(cls, config: dict[str, Any]) -> TilusConfig:
        scheme = Scheme.from_config({name: value for name, value in config.items() if name not in _OF_ENGINE})
        scheme.layers.update(described(getattr(config.get("hf_config"), "_name_or_path", "")))
        return cls(scheme, config.get("packed_modules_mapping"))

    @classmethod
    def override_quantization_method(cls, hf_quant_cfg, user_quant) -> str | None:
        return "tilusvm" if user_quant == "tilusvm" else None

    def get_scaled_act_names(self) -> list[str]:
        return []

    def names_of(self, prefix: str) -> list[str]:
        """The layers of the model that the engine's layer has as its parts."""
        parent, _, last = prefix.rpartition(".")
        names = self.packed_modules_mapping.get(last)
        if names is None or prefix in self.scheme.layers:
            return [prefix]
        return [f"{parent}.{name}" if parent else name for name in names]

    def get_quant_method(self, layer: torch.nn.Module, prefix: str):
        if isinstance(layer, FusedMoE):
            names = expert_names(prefix, "gate_proj", "up_proj", "down_proj")
            quantized = self.scheme.quantizes([name.format(0) for name in names.values()])
            return TilusMoEMethod(self.scheme, names) if quantized else None
        if not isinstance(layer, (LinearBase, ParallelLMHead)):
            return None
        names = self.names_of(prefix)
        if self.scheme.quantizes(names):
            return TilusLinearMethod(self.scheme, names)
        return UnquantizedLinearMethod() if isinstance(layer, LinearBase) else None


class TilusParameter(PartsParameter, BasevLLMParameter):
    """An empty parameter, whose loading fills the layer's LinearParts."""


class TilusLinearMethod(LinearMethod, LinearMethodBase):
    parameter = TilusParameter

    def create_weights(self, layer, *args, **words) -> None:
        super().create_weights(layer, *args, **words)
        for param in layer.parameters(recurse=False):
            if isinstance(param, TilusParameter):
                param.tp_rank = self.rank(layer)  # for parts that lie in one tensor; of others SGLang says it

    def rank(self, layer) -> int:
        return get_group_rank_size(getattr(layer, "tp_group", None))[0]

    def loader(self, layer, own):
        if isinstance(layer, ParallelLMHead):
            return _head_loader(layer)
        return whole_loader if isinstance(layer, ReplicatedLinear) else loader_of(layer, own)


def _head_loader(layer):
    def load(param, loaded_weight, loaded_shard_id=None):
        at = layer.shard_indices
        param.parts.sizes[0] = at.org_vocab_end_index - at.org_vocab_start_index
        param.load_whole(loaded_weight, 0, at.org_vocab_start_index)

    return load


class TilusMoEMethod(ExpertsMethod, FusedMoEMethodBase):
    def __init__(self, scheme: Scheme, names: dict[str, str]) -> None:
        self.scheme, self.names = scheme, names

    def create_weights(
        self, layer, num_experts, hidden_size, intermediate_size_per_partition, params_dtype, **extra_weight_attrs,
    ) -> None:  # fmt: skip
        self.create(
            layer, self.names, num_experts, hidden_size, intermediate_size_per_partition, params_dtype,
            activation=layer.moe_runner_config.activation, rank=layer.moe_tp_rank, ranks=layer.moe_tp_size,
            local=layer._map_global_expert_id_to_local_expert_id,
        )  # fmt: skip

    def create_moe_runner(self, layer, moe_runner_config) -> None:
        self.moe_runner_config = moe_runner_config

    def apply(self, layer, dispatch_output):
        from sglang.srt.layers.moe.token_dispatcher import StandardCombineInput

        chosen = dispatch_output.topk_output
        y = self.mixture(layer, dispatch_output.hidden_states, chosen.topk_weights, chosen.topk_ids)
        factor = self.moe_runner_config.routed_scaling_factor
        return StandardCombineInput(hidden_states=y if factor is None else y * factor)

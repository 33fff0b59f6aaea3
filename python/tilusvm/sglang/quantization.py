"""The quantization `tilusvm` of SGLang: its configuration, its linear layers and its mixtures of experts."""

from __future__ import annotations

from typing import Any

from sglang.srt.distributed.utils import get_group_rank_size
from sglang.srt.layers.linear import LinearBase, ReplicatedLinear
from sglang.srt.layers.moe.fused_moe_triton import FusedMoE
from sglang.srt.layers.parameter import BasevLLMParameter
from sglang.srt.layers.quantization.base_config import FusedMoEMethodBase, LinearMethodBase, QuantizationConfig
from sglang.srt.layers.quantization.unquant import UnquantizedLinearMethod
from sglang.srt.layers.vocab_parallel_embedding import ParallelLMHead
from sglang.srt.runtime_context import get_exec

from ..engines.loader import PartsParameter
from ..engines.methods import Config, ExpertsMethod, LayerKinds, LinearMethod, expert_names
from ..engines.scheme import Scheme, described

__all__ = ["TilusConfig", "TilusLinearMethod", "TilusMoEMethod"]

_OF_ENGINE = ("packed_modules_mapping", "hf_config")  #: what SGLang adds to a model's quantization_config
KINDS = LayerKinds(LinearBase, ReplicatedLinear, ParallelLMHead, UnquantizedLinearMethod)


class _Asked:
    """What a user of SGLang asks for."""

    def is_batch_invariant(self) -> bool:
        try:
            return bool(get_exec().deterministic.enable_deterministic_inference)
        except (AttributeError, RuntimeError, ValueError):  # without a server
            return False


class TilusParameter(PartsParameter, BasevLLMParameter):
    """An empty parameter, whose loading fills the layer's LinearParts."""


class TilusLinearMethod(_Asked, LinearMethod, LinearMethodBase):
    parameter, kinds = TilusParameter, KINDS

    def create_weights(self, layer, *args, **words) -> None:
        super().create_weights(layer, *args, **words)
        for param in layer.parameters(recurse=False):
            if isinstance(param, TilusParameter):
                param.tp_rank = self.rank(layer)  # for parts that lie in one tensor; of others SGLang says it

    def rank(self, layer) -> int:
        return get_group_rank_size(getattr(layer, "tp_group", None))[0]


class TilusConfig(Config, QuantizationConfig):
    """Of a model's quantization_config; Scheme has the words."""

    kinds, linear_method = KINDS, TilusLinearMethod

    def __init__(self, scheme: Scheme | None = None, packed_modules_mapping: dict | None = None) -> None:
        super().__init__()
        self.scheme = scheme or Scheme()
        self.packed_modules_mapping = packed_modules_mapping or {}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> TilusConfig:
        scheme = Scheme.from_config({name: value for name, value in config.items() if name not in _OF_ENGINE})
        scheme.layers.update(described(getattr(config.get("hf_config"), "_name_or_path", "")))
        return cls(scheme, config.get("packed_modules_mapping"))

    def get_scaled_act_names(self) -> list[str]:
        return []

    def experts_method(self, layer, prefix):
        if not isinstance(layer, FusedMoE):
            return False, None
        names = expert_names(prefix, "gate_proj", "up_proj", "down_proj")
        quantized = self.scheme.quantizes([name.format(0) for name in names.values()])
        return True, TilusMoEMethod(self.scheme, names) if quantized else None


class TilusMoEMethod(_Asked, ExpertsMethod, FusedMoEMethodBase):
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

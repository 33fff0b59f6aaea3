"""The quantization `tilusvm` of vLLM: its configuration, its linear layers and its mixtures of experts."""

from __future__ import annotations

from typing import Any

import torch
from vllm import envs
from vllm.config import get_current_vllm_config_or_none
from vllm.model_executor.layers.fused_moe import RoutedExperts
from vllm.model_executor.layers.fused_moe.fused_moe_method_base import FusedMoEMethodBase
from vllm.model_executor.layers.linear import (
    LinearBase,
    LinearMethodBase,
    ReplicatedLinear,
    UnquantizedLinearMethod,
    register_weight_loader_v2_supported_method,
)
from vllm.model_executor.layers.quantization import register_quantization_config
from vllm.model_executor.layers.quantization.base_config import QuantizationConfig
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead
from vllm.model_executor.parameter import BasevLLMParameter

from ..engines.loader import PartsParameter
from ..engines.methods import Config, ExpertsMethod, LayerKinds, LinearMethod, expert_names
from ..engines.scheme import Scheme, described

__all__ = ["TilusConfig", "TilusLinearMethod", "TilusMoEMethod"]


KINDS = LayerKinds(LinearBase, ReplicatedLinear, ParallelLMHead, UnquantizedLinearMethod)


class _Asked:
    """What a user of vLLM asks for."""

    def is_dummy(self) -> bool:
        config = get_current_vllm_config_or_none()
        return config is not None and config.load_config.load_format == "dummy"

    def is_batch_invariant(self) -> bool:
        return envs.VLLM_BATCH_INVARIANT


class TilusParameter(PartsParameter, BasevLLMParameter):
    """An empty parameter, whose loading fills the layer's LinearParts."""


@register_weight_loader_v2_supported_method
class TilusLinearMethod(_Asked, LinearMethod, LinearMethodBase):
    parameter, kinds = TilusParameter, KINDS


@register_quantization_config("tilusvm")
class TilusConfig(Config, QuantizationConfig):
    """Of a model's quantization_config, also of one of GPTQ, AWQ, compressed-tensors or FP8 where `--quantization
    tilusvm` takes it over, or of one by `--hf-overrides '{"quantization_config": {...}}'`; Scheme has the
    words. Without one, `--quantization tilusvm` quantizes a plain checkpoint to u4 as it is loaded."""

    kinds, linear_method = KINDS, TilusLinearMethod

    def __init__(self, scheme: Scheme | None = None) -> None:
        super().__init__()
        self.scheme = scheme or Scheme()

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> TilusConfig:
        return cls(Scheme.from_config(config))

    def maybe_update_config(self, model_name, hf_config=None, revision=None) -> None:
        """What the headers of the model's files say of its layers."""
        self.scheme.layers.update(described(model_name))
        if self.scheme.version is not None and not self.scheme.layers:
            raise ValueError(
                f"{model_name} is a model that tvm-pack imported, whose files say how each layer lies: serve its "
                f"local folder"
            )

    def apply_vllm_mapper(self, hf_to_vllm_mapper) -> None:
        def rename(name):
            return next(iter(hf_to_vllm_mapper.apply_list([name])), None)

        self.scheme = self.scheme.renamed(rename)

    def experts_method(self, layer, prefix):
        if not isinstance(layer, RoutedExperts):
            return False, None
        names = _names_of_experts(layer, prefix)
        quantized = self.scheme.quantizes([name.format(0) for name in names.values()])
        return True, TilusMoEMethod(self.scheme, layer.moe_config) if quantized else None


def _names_of_experts(layer, prefix):
    before, _, _ = prefix.partition(".routed_experts")
    return expert_names(before, layer.ckpt_gate_proj_name, layer.ckpt_up_proj_name, layer.ckpt_down_proj_name)


class TilusMoEMethod(_Asked, ExpertsMethod, FusedMoEMethodBase):
    def __init__(self, scheme: Scheme, moe) -> None:
        FusedMoEMethodBase.__init__(self, moe)
        self.scheme = scheme

    def create_weights(
        self, layer, num_experts, hidden_size, intermediate_size_per_partition, params_dtype, **extra_weight_attrs,
    ) -> None:  # fmt: skip
        if self.moe.has_bias:
            raise NotImplementedError('experts with a bias are not supported: skip them, by "skip": ["*.experts.*"]')
        self.create(
            layer, _names_of_experts(layer, layer.layer_name), num_experts, hidden_size,
            intermediate_size_per_partition, params_dtype, activation=layer.activation.value,
            rank=self.moe.tp_rank, ranks=self.moe.tp_size, local=layer._map_global_expert_id_to_local_expert_id,
        )  # fmt: skip

    def get_fused_moe_quant_config(self, layer):
        return None

    def apply(self, layer, x, topk_weights, topk_ids, shared_experts=None, shared_experts_input=None):
        index = topk_ids if layer.expert_map is None else layer.expert_map[topk_ids.long()]
        if layer.apply_router_weight_on_input:
            x, topk_weights = x * topk_weights.to(x.dtype), torch.ones_like(topk_weights)
        return self.mixture(layer, x, topk_weights, index)

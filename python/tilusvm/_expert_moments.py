"""Calibration of a mixture's experts: each for the tokens that are sent to it.

A mixture is a module of transformers with stacks of weights, called with (hidden_states, top_k_index, top_k_weights).
The inputs of an expert's second product are computed here, by the module's own gate.
"""

from __future__ import annotations

from collections.abc import Callable

from ._torch import torch

from .experts import Experts, MixtureOfExperts, stacks_of
from .nn import Linear

__all__ = ["ExpertMoments"]


class ExpertMoments:
    """X^T X of what each expert of a mixture gets, f32 [experts, k, k] for each of its stacks; of an expert that gets
    nothing, zeros."""

    def __init__(self, module: torch.nn.Module, device: torch.device) -> None:
        self.module, self.names = module, stacks_of(module)
        self.hessians = {}
        for name in self.names:
            k = self.matrix(name, 0).shape[1]
            self.hessians[name] = torch.zeros(module.num_experts, k, k, device=device)

    def matrix(self, name: str, expert: int) -> torch.Tensor:
        """The weights of an expert, [outputs, inputs]."""
        weight = self.module._parameters[name].detach()[expert]
        return weight.t() if getattr(self.module, "is_transposed", False) else weight

    def add(self, x: torch.Tensor, index: torch.Tensor) -> None:
        """Of tokens x [..., k], of which each goes to the experts index [tokens, top]."""
        x, (first, last), module = x.reshape(-1, x.shape[-1]), self.names, self.module
        bias = module._parameters.get(f"{first}_bias")
        for expert in index.unique().tolist():
            if not 0 <= expert < module.num_experts:
                continue
            own = x[(index == expert).any(-1)]
            made = torch.nn.functional.linear(own, self.matrix(first, expert), None if bias is None else bias[expert])
            made = module._apply_gate(made) if getattr(module, "has_gate", True) else module.act_fn(made)
            for name, inputs in ((first, own), (last, made)):
                inputs = inputs.float()
                self.hessians[name][expert].addmm_(inputs.t(), inputs)

    @torch.no_grad()
    def quantized(self, layer: Callable[[str, torch.Tensor, torch.Tensor], Linear]) -> MixtureOfExperts:
        """The mixture with low-precision weights; the module's own become those that they stand for. layer: a function
        of a stack's name, an expert's weights and their second moments."""
        made = MixtureOfExperts(self.module)
        for name in self.names:
            count = self.module.num_experts
            layers = (layer(name, self.matrix(name, i).float(), self.hessians[name][i]) for i in range(count))
            stack = Experts.collect(layers, count)
            made.add_module(name, stack)
        for name in self.names:
            weight, stack = self.module._parameters[name], made.get_submodule(name)
            exact = stack.dequantize(weight.dtype)
            exact = exact.mT if getattr(self.module, "is_transposed", False) else exact
            self.module._parameters[name] = torch.nn.Parameter(exact.contiguous(), requires_grad=False)
        return made

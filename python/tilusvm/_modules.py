"""Which modules of a model are linear layers, whose weights can be replaced by those of a low-precision type."""

from __future__ import annotations

import sys

from ._torch import torch


def _conv1d():
    """Conv1D of transformers, which GPT-2 has for its linear layers; None where no model can have one."""
    module = sys.modules.get("transformers.pytorch_utils")
    return module and module.Conv1D


def is_conv1d(module) -> bool:
    """Is it transformers' Conv1D, a linear layer whose weight is [in_features, out_features]?"""
    return type(module) is _conv1d()


def is_linear(module) -> bool:
    """Does it compute x W^T + bias, and nothing else? A subclass of torch.nn.Linear does that has its forward; but not
    MultiheadAttention's, whose weight is read and which is not called."""
    if isinstance(module, torch.nn.modules.linear.NonDynamicallyQuantizableLinear):
        return False
    same = type(module).forward is torch.nn.Linear.forward
    return is_conv1d(module) or isinstance(module, torch.nn.Linear) and same


def stays(module) -> bool:
    """Is it derived from torch.nn.Linear, or from Conv1D, but does something else?"""
    kinds = tuple(kind for kind in (torch.nn.Linear, _conv1d()) if kind)
    return isinstance(module, kinds) and not is_linear(module)


def matrix_of(module) -> torch.Tensor:
    """The weight of a linear layer as [out_features, in_features], over the same memory."""
    return module.weight.t() if is_conv1d(module) else module.weight


def sizes_of(module) -> tuple[int, int]:
    """in_features, out_features of a linear layer."""
    outputs, inputs = matrix_of(module).shape
    return inputs, outputs

"""Adapters of peft (LoRA) beside layers of low-precision types, which stay as they are.

from tilusvm import lora
config = lora.register(peft.LoraConfig(r=8, target_modules=["q_proj", "v_proj"]))
model = peft.get_peft_model(model, config)              # trains as models of torch.nn.Linear do
model = peft.PeftModel.from_pretrained(model, folder, config=lora.register(peft.LoraConfig.from_pretrained(folder)))
"""

from __future__ import annotations

from typing import Any, NoReturn

from ._torch import torch as torch

try:
    import peft
    from peft.tuners.lora import Linear as _Linear
except ModuleNotFoundError as _error:
    if _error.name != "peft":
        raise
    raise ModuleNotFoundError(
        "peft is not installed, which tilusvm.lora needs: pip install 'tilusvm[lora]', or pip install peft", name="peft"
    ) from None

from .nn import Linear

__all__ = ["LoraLinear", "register"]


class LoraLinear(_Linear):
    """peft's layer with an nn.Linear in it. Its packed weights take no adapter in."""

    def merge(self, safe_merge: bool = False, adapter_names: list[str] | None = None) -> NoReturn:
        """Raises ValueError: there are no floats to add to, and peft would add to a copy."""
        raise ValueError(
            "an adapter cannot be merged into low-precision weights: keep it beside them, or merge it into the float "
            "model and quantize that"
        )

    def unmerge(self) -> None:
        """There is nothing that was merged."""


def register(config: peft.LoraConfig) -> Any:
    """The same LoraConfig, by which peft also puts adapters beside nn.Linear, in layers that target_modules names. An
    adapter's folder does not have that: it is for each config that is made or read."""
    config._register_custom_module({Linear: LoraLinear})
    return config

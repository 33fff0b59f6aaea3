"""from_pretrained(..., quantization_config=TilusConfig("u4")): weights are quantized as they are loaded."""

from __future__ import annotations

import fnmatch

import torch
from transformers.quantizers import HfQuantizer, register_quantization_config, register_quantizer
from transformers.utils.quantization_config import QuantizationConfigMixin

from .. import nn
from ..quantize import quantize_

__all__ = ["TilusConfig", "TilusQuantizer"]


@register_quantization_config("tilusvm")
class TilusConfig(QuantizationConfigMixin):
    """How from_pretrained quantizes linear layers.

    type: u1 to u8, i2 to i8, f3_e1m1 to f8_e7m0; group: inputs that share a scale: 32, 64, 128, or 0 for all; zeros: a
    zero point to a group, for unsigned types; scales: "mse" or "absmax"; skip: names of modules, with wildcards, that
    stay.
    """

    def __init__(self, type="u4", group=128, zeros=False, scales="mse", skip=("lm_head",), **kwargs):
        self.quant_method = "tilusvm"
        self.type, self.group, self.zeros, self.scales, self.skip = type, group, zeros, scales, list(skip)
        if group not in (0, 32, 64, 128):
            raise ValueError(f"group must be 32, 64, 128 or 0, not {group!r}")


@register_quantizer("tilusvm")
class TilusQuantizer(HfQuantizer):
    requires_calibration = False

    def validate_environment(self, *args, **kwargs):
        pass

    def update_dtype(self, dtype):
        return dtype if dtype in (torch.float16, torch.bfloat16) else torch.float16

    def _process_model_before_weight_loading(self, model, **kwargs):
        """What was saved quantized is loaded as it is, into layers that wait for it."""
        if not self.pre_quantized:
            return model
        how = self.quantization_config
        for name, module in list(model.named_modules()):
            if isinstance(module, torch.nn.Linear) and not self._skips(name):
                layer = nn.Linear(
                    module.in_features, module.out_features, module.bias is not None, type=how.type, group=how.group,
                    zeros=how.zeros, dtype=module.weight.dtype, device="meta",
                )  # fmt: skip
                owner, _, last = name.rpartition(".")
                setattr(model.get_submodule(owner), last, layer)
        return model

    def _process_model_after_weight_loading(self, model, **kwargs):
        how = self.quantization_config
        if not self.pre_quantized:
            quantize_(
                model, how.type, how.group, skip=how.skip, zeros=how.zeros, scales=how.scales, progress=False
            )
        for module in model.modules():  # what lies in a file may begin anywhere
            if isinstance(module, nn.Linear):
                for name, tensor in list(module.named_buffers()):
                    if tensor.data_ptr() % 16:
                        setattr(module, name, tensor.clone())
        return model

    def _skips(self, name):
        return any(fnmatch.fnmatch(name, pattern) for pattern in self.quantization_config.skip)

    def is_serializable(self, *args, **kwargs):
        return True

    @property
    def is_trainable(self):
        return False

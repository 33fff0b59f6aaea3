"""from_pretrained(..., quantization_config=TilusConfig("u4")): weights are quantized as they are loaded."""

from __future__ import annotations

import fnmatch

import torch
from transformers.quantizers import HfQuantizer, register_quantization_config, register_quantizer
from transformers.utils.quantization_config import QuantizationConfigMixin

from .. import nn, storage
from ..experts import MixtureOfExperts, empty_mixture, is_mixture
from ..quantize import checked_format, quantize_

__all__ = ["TilusConfig", "TilusQuantizer"]


@register_quantization_config("tilusvm")
class TilusConfig(QuantizationConfigMixin):
    """How from_pretrained quantizes linear layers.

    type: u1 to u8, i2 to i8, f3_e1m1 to f8_e7m0, nf4, fp4; group: inputs that share a scale: 16, 32, 64, 128, or 0 for
    all; zeros: a zero point to a group, for unsigned types; scales: "mse" or "absmax"; skip: names of modules, with
    wildcards, that stay. version: of what tvm-pack --from imported, whose files say the rest; it is in their
    config.json.
    """

    def __init__(self, type="u4", group=128, zeros=False, scales="mse", skip=("lm_head",), version=None, **kwargs):
        if isinstance(skip, str):
            raise TypeError("skip must be a sequence of patterns, not a string")
        if scales not in ("mse", "absmax"):
            raise ValueError(f"scales must be mse or absmax, not {scales!r}")
        checked_format(type, group, zeros, torch.bfloat16)
        self.quant_method, self.version = "tilusvm", version
        self.type, self.group, self.zeros, self.scales, self.skip = type, group, zeros, scales, list(skip)


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
        if how.version is not None:
            return self._prepare_imported(model, **kwargs)
        for name, module in list(model.named_modules()):
            if isinstance(module, torch.nn.Linear) and not self._skips(name):
                layer = nn.Linear(
                    module.in_features, module.out_features, module.bias is not None, type=how.type, group=how.group,
                    zeros=how.zeros, dtype=module.weight.dtype, device="meta",
                )  # fmt: skip
            elif is_mixture(module) and not self._skips(name):
                layer = empty_mixture(module, how.type, how.group, zeros=how.zeros)
            else:
                continue
            owner, _, last = name.rpartition(".")
            setattr(model.get_submodule(owner), last, layer)
        return model

    def _prepare_imported(self, model, checkpoint_files, **kwargs):
        files, dtype = [storage.File(path) for path in checkpoint_files], model.dtype
        self.imported = storage.prepare_imported(model, files, model.name_or_path)
        layers = {name for each in self.imported for name in each.layers}
        for name, file, called in _tensors_in(model, files):
            owner, _, last = name.rpartition(".")
            if owner in layers:  # of the shapes and types of the file, for transformers puts nothing else there
                model.get_submodule(owner)._buffers[last] = torch.empty_like(file.tensor(called), device="meta")
        for name, layer in (pair for each in self.imported for pair in each.layers.items()):
            if dtype != layer.dtype:
                raise ValueError(
                    f"layer {name} has scales of {layer.dtype}, the model is {dtype}: load it with "
                    f"dtype={layer.dtype}, or import it with tvm-pack's option --scale"
                )
        return model

    def _process_model_after_weight_loading(self, model, **kwargs):
        how = self.quantization_config
        for each in getattr(self, "imported", []):
            modules = {name: model.get_submodule(name) for name in each.layers}
            each.fill(model, lambda name: _tensors(modules[name]))
        if not self.pre_quantized:
            names = [name for name, _ in model.named_modules()]
            skip = [pattern for pattern in how.skip if fnmatch.filter(names, pattern)]  # lm_head not all models have
            quantize_(model, how.type, how.group, skip=skip, zeros=how.zeros, scales=how.scales, progress=False)
        for module in model.modules():  # what lies in a file may begin anywhere
            if isinstance(module, nn.LowBit):
                for name, tensor in list(module.named_buffers()):
                    setattr(module, name, storage.moved(tensor, None))
        _keep_stacks(model)
        for parameter in model.parameters():
            parameter.data = storage.moved(parameter.data, None)
        return model

    def _skips(self, name):
        return any(fnmatch.fnmatch(name, pattern) for pattern in self.quantization_config.skip)

    def is_serializable(self, *args, **kwargs):
        """Not what was imported, whose layers may be of several types: storage.save writes them."""
        return self.quantization_config.version is None

    @property
    def is_trainable(self):
        return False


def _keep_stacks(model):
    """save_pretrained writes stacks of experts as they are here: transformers takes those that it made apart."""
    conversions = getattr(model, "_weight_conversions", None)
    if conversions and any(isinstance(module, MixtureOfExperts) for module in model.modules()):
        kept = [each for each in conversions if not any("experts" in name for name in each.target_patterns)]
        model._weight_conversions = kept


def _tensors_in(model, files):
    """(name in the model, file, name in the file) of each tensor."""
    rename = storage._renamer(model)
    return [(rename(called), file, called) for file in files for called in file.entries]


def _tensors(module):
    return {last: storage.moved(tensor, None) for last, tensor in module._buffers.items() if tensor is not None}

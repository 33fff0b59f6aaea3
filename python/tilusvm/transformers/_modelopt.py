"""from_pretrained of folders that NVIDIA's Model Optimizer wrote: layers as storage.load takes them (checkpoint8)."""

from __future__ import annotations

import os

import torch
from transformers.quantizers import register_quantization_config, register_quantizer
from transformers.utils.quantization_config import QuantizationConfigMixin

from .. import UnsupportedError, storage
from ._quantizer import TilusQuantizer

__all__ = ["ModelOptConfig", "ModelOptQuantizer"]


def _gpu_of(device_map):
    """The GPU that layers go to, or None."""
    if isinstance(device_map, str):
        return "cuda" if torch.cuda.is_available() else None
    places = [place for place in (device_map or {}).values() if place != "disk"]
    devices = [torch.device("cuda", place) if isinstance(place, int) else torch.device(place) for place in places]
    return next((device for device in devices if device.type == "cuda"), None)


@register_quantization_config("modelopt")
class ModelOptConfig(QuantizationConfigMixin):
    """What config.json says, which from_pretrained reads from there again: quant_algo, ignore, ..."""

    def __init__(self, **words):
        self.__dict__.update(words)
        self.quant_method = "modelopt"


@register_quantizer("modelopt")
class ModelOptQuantizer(TilusQuantizer):
    """Linear layers become nn.Linear8, whose scales are the file's. NVFP4 and MXFP4 are for a device_map of a GPU that
    multiplies 4 bits; elsewhere tvm-pack imports their weights."""

    def _process_model_before_weight_loading(self, model, checkpoint_files=None, device_map=None, **kwargs):
        files = [os.fspath(path) for path in checkpoint_files or []]
        folder = os.path.dirname(files[0]) if files else model.name_or_path
        made = self._wait_for(model, files, folder, storage.four_of(None, _gpu_of(device_map)))
        if not self.imported:
            raise UnsupportedError(
                f"{folder} has weights of {getattr(self.quantization_config, 'quant_algo', None)} for activations of "
                f"16 bits: tvm-pack --from=auto {folder} -o OTHER imports them; then load OTHER"
            )
        return made

    def is_serializable(self, *args, **kwargs):
        """storage.save writes them."""
        return False

"""Language models of transformers by this package's kernels.

    model = AutoModelForCausalLM.from_pretrained(path, quantization_config=TilusConfig("u4"), dtype="float16").cuda()
    accelerate_(model)                                          # norms, rotary embedding, attention, ... in place
    tokens = Decoder(model, batch=1, max_tokens=4096).generate(prompt, 128)             # steps from a CUDA graph

Of models whose layers are made of known parts (accelerate_ says which), with linear layers of torch, tilusvm.nn, or
tilusvm.parallel. attn_implementation="tilusvm" is the attention alone, of any model.
"""

from .. import _torch as _torch
from ._versions import check as _check

try:
    from transformers import __version__ as _version
except ModuleNotFoundError as _error:
    if _error.name != "transformers":
        raise
    raise ModuleNotFoundError(
        "transformers is not installed, which tilusvm.transformers needs: pip install 'tilusvm[transformers]', or "
        "pip install transformers",
        name="transformers",
    ) from None
_check(_version)

from . import _attention, _cache as _caches  # noqa: E402
from ._block import Options  # noqa: E402
from ._cache import PagedCache  # noqa: E402
from ._latent import LatentCache, absorb_  # noqa: E402
from ._decoder import Decoder  # noqa: E402
from ._layers import accelerate_  # noqa: E402
from ._parts import Report  # noqa: E402
from ._modelopt import ModelOptConfig, ModelOptQuantizer  # noqa: E402
from ._quantizer import TilusConfig, TilusQuantizer  # noqa: E402
from ._speculate import DraftModel, PromptLookup  # noqa: E402

_attention.register()
_caches.register()

__all__ = [
    "Decoder", "DraftModel", "LatentCache", "ModelOptConfig", "ModelOptQuantizer", "Options", "PagedCache",
    "PromptLookup", "Report", "TilusConfig", "TilusQuantizer", "absorb_", "accelerate_",
]  # fmt: skip

"""Language models of transformers by this package's kernels.

    model = AutoModelForCausalLM.from_pretrained(path, quantization_config=TilusConfig("u4"), dtype="float16").cuda()
    accelerate_(model)                                          # norms, rotary embedding, attention, ... in place
    tokens = Decoder(model, batch=1, max_tokens=4096).generate(prompt, 128)             # steps from a CUDA graph

Of the Llama, Qwen 2 and 3, Gemma 2 and 3 and Mistral families, and Mixtral and Qwen 2 and 3 MoE, with linear layers of
torch, tilusvm.nn, or tilusvm.parallel.
"""

from ._block import Options
from ._cache import PagedCache
from ._decoder import Decoder
from ._layers import accelerate_
from ._quantizer import TilusConfig, TilusQuantizer

__all__ = ["Decoder", "Options", "PagedCache", "TilusConfig", "TilusQuantizer", "accelerate_"]

"""Blocks in the layers of a model of transformers, which goes on to work as before: forward, generate, its caches."""

from __future__ import annotations

import sys

import torch
from transformers.cache_utils import Cache
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from ..ops import attention
from ._block import FAMILIES, Block, Norm, Options, check_layers, text_config
from ._cache import PagedCache
from ._decoder import Context

__all__ = ["accelerate_", "FAMILIES"]


class _Shared:
    """What the layers of a model know of its present call."""

    def __init__(self):
        self.plain = True  #: no padding
        self._of = self._table = None

    def table(self, embeddings):
        """The rotation of each token, f32 [tokens, head], from the model's cosines and sines: once a call and kind."""
        cos, sin = embeddings
        if torch.compiler.is_compiling():  # what a CUDA graph of torch.compile makes is not to be kept beyond it
            return self._joined(cos, sin)
        if self._of is not cos:
            self._of, self._table = cos, self._joined(cos, sin)
        return self._table

    @staticmethod
    def _joined(cos, sin):
        half = cos.shape[-1] // 2
        table = torch.cat([cos[..., :half], sin[..., :half]], -1).float()
        return table.reshape(-1, 2 * half).contiguous()


class Layer(Block):
    """A Block with the face of a decoder layer of transformers."""

    def __init__(self, layer, index, config, options, shared):
        super().__init__(layer, index, config, options)
        self._shared = [shared]  # no module: not copied, not listed
        self._attention = layer.self_attn
        self._eager = sys.modules[type(layer.self_attn).__module__].eager_attention_forward
        self.attention_type = getattr(layer, "attention_type", None)

    def forward(
        self, hidden_states, attention_mask=None, position_ids=None, past_key_values=None, use_cache=False,
        position_embeddings=None, **kwargs,
    ):  # fmt: skip
        batch, new, _ = hidden_states.shape
        shared, cache, device = self._shared[0], past_key_values, hidden_states.device
        table = shared.table(position_embeddings)
        positions = torch.arange(table.shape[0], dtype=torch.int32, device=device)
        if table.shape[0] != batch * new:
            positions = positions.repeat(batch)
        starts = torch.arange(batch + 1, dtype=torch.int32, device=device) * new
        context = Context(new, positions, table, starts, cache, absolute=False)
        if isinstance(cache, PagedCache):
            if self.index == 0:
                cache.check(batch, hidden_states.dtype, device)
                cache.advance(new)
            if context.new > self.few_queries and cache.tokens != new:
                raise ValueError(f"a PagedCache that is not empty takes at most {self.few_queries} tokens at once")
        else:
            context.attend = lambda block, q, k, v: self._attend_with(context, attention_mask, q, k, v)
        x = hidden_states.reshape(batch * new, -1)
        x, residual = self.run(x, None, context)
        x = x if self.after_mlp is None else self.after_mlp(x)
        return (x + residual).view(hidden_states.shape)

    def _attend_with(self, context, mask, q, k, v):
        """By this package where all keys are new and none is padding, else as the model's configuration says."""
        cache, new = context.cache, context.new
        batch = q.shape[0] // new
        q4, k4, v4 = (t.view(batch, new, -1, self.head).transpose(1, 2) for t in (q, k, v))
        fresh = cache is None or cache.get_seq_length(self.index) == 0
        if isinstance(cache, Cache):
            k4, v4 = cache.update(k4, v4, self.index)
        if fresh and self._shared[0].plain and self.options.attention:
            return attention(
                q, k, v, context.starts, context.starts, longest=new, scale=self.scale,
                left=self.window - 1 if self.window else -1, right=0, cap=self.cap,
            )[0]  # fmt: skip
        name = self._attention.config._attn_implementation
        function = ALL_ATTENTION_FUNCTIONS.get(name, self._eager)
        words = {"sliding_window": self.window or None, "softcap": self.cap or None}
        return function(self._attention, q4, k4, v4, mask, dropout=0.0, scaling=self.scale, **words)[0]


def _before_call(shared):
    def hook(module, args, kwargs):
        mask, cache = kwargs.get("attention_mask"), kwargs.get("past_key_values")
        if isinstance(mask, torch.Tensor) and mask.dim() == 2:
            shared.plain = bool(mask.all())
            if shared.plain:
                kwargs["attention_mask"] = None
        else:
            shared.plain = mask is None
        if isinstance(cache, PagedCache) and not shared.plain:
            raise ValueError("a PagedCache has no padding: all of attention_mask is to be 1")
        return args, kwargs

    return hook


@torch.no_grad()
def accelerate_(model, *, norms=True, rotary=True, mlp=True, attention=True, merge=True):
    """Puts this package's kernels into a causal language model of transformers, in place, and returns it.

    Of the Llama, Qwen 2 and 3, Gemma 2 and 3 and Mistral families, Mixtral, and Qwen 2 and 3 MoE, in float16 or
    bfloat16, for inference. norms: RMSNorm, with the sum before it; rotary: rotary embedding; mlp: the gated unit;
    attention: of prompts, and with a PagedCache of all tokens; other caches, and padding, leave it to the
    configuration's. merge: q, k and v as one product, gate and up as one. Linear layers stay what they are: quantize_
    them, before or after without merge.

    ValueError for models of other families, and for heads that attention does not take (64, 80, 96, 128 or 256
    elements), which attention=False leaves to torch.
    """
    config = text_config(model)
    options = Options(norms=norms, rotary=rotary, mlp=mlp, attention=attention, merge=merge)
    body, shared = model.model, _Shared()
    if any(isinstance(layer, Layer) for layer in body.layers):
        raise ValueError("the model has been accelerated before")
    check_layers(body.layers, config, mlp=mlp, attention=attention, hint=": attention=False leaves it to torch")
    for i, layer in enumerate(body.layers):
        body.layers[i] = Layer(layer, i, config, options, shared)
    if norms:
        body.norm = Norm(body.norm)
    body.register_forward_pre_hook(_before_call(shared), with_kwargs=True)
    return model

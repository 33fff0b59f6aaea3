"""Multi-head latent attention of transformers' models (DeepSeek V3 and its like) on a paged cache of latents.

    absorb_(model)
    cache = LatentCache(model, batch=1, max_tokens=4096, type="f8_e4m3")
    model.generate(ids, cache=cache)                            # past_key_values=cache before transformers 5.24
    model.generate(ids, cache_implementation="tilusvm_u4")      # or a cache by its name

A token's keys and values of all heads are one row of 512 latents and 64 turned elements. Queries are multiplied by the
part of kv_b_proj that makes keys of latents, and what is attended to by that which makes values (absorption), so that
mla_decode reads the rows as they are. The first tokens of a cache are attended to by keys and values instead.
"""

from __future__ import annotations

import torch
from transformers.cache_utils import Cache

from .._mla import LATENT, ROPE
from .._registry import HALVES
from ..ops import LatentFormat, attention, mla_append, mla_decode, rms_norm, rope
from ._attention import HEADS, MOST_QUERIES, NAME
from ._cache import ARGUMENT, PagedCache

__all__ = ["LatentCache", "absorb_"]


class LatentCache(PagedCache):
    """Latents of `batch` sequences of at most max_tokens, in pages, for a model that absorb_ was given.

    type: of latents, "f8_e4m3", "i8", "u4", or None, the model's; what keys have beside them keeps the model's. page,
    dtype, device, table, lengths and tokens as of a PagedCache.
    """

    def __init__(self, model, batch, max_tokens, *, type=None, page=64, dtype=None, device=None):
        layers = [module for module in model.modules() if isinstance(module, _Absorbed)]
        if not layers:
            raise ValueError("a LatentCache is for a model with latent attention that absorb_ was given")
        for name, value in (("batch", batch), ("max_tokens", max_tokens)):
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{name} must be a number from 1, not {value!r}")
        weight = layers[0].absorbed_keys
        self.format = LatentFormat(dtype or weight.dtype, type, page)
        self.batch, self.max_tokens, self.tokens = batch, max_tokens, 0
        self.pages = -(-max_tokens // page)
        self._heads, self._config = [1] * len(layers), model.config.get_text_config()
        self._placed, self._starts, self._slots = None, {}, None
        Cache.__init__(self, layers=[])
        self.place(weight.device if device is None else device)

    def _zeros(self, device):
        every = self.batch * self.pages
        return [self.format.zeros(every, device=device) for _ in self._heads]

    def advance(self, tokens) -> None:
        super().advance(tokens)
        page, device = self.format.page, self.lengths.device
        new = tokens if isinstance(tokens, int) else max(tokens)
        places = self.lengths[:, None] - new + torch.arange(new, dtype=torch.int32, device=device)
        rows = self.table.gather(1, (places // page).long())
        self._slots = (rows * page + places % page).int().flatten()

    @property
    def slots(self) -> torch.Tensor:
        """The rows of the newest tokens, i32 [batch * tokens]."""
        return self._slots

    def update(self, *args, **kwargs):
        raise TypeError("a LatentCache is for layers that absorb_ has taken: they put latents into it")


class _Absorbed:
    """Latent attention that computes by this package where it has a LatentCache, and as before where it has not."""

    PARTS = (
        "kv_a_proj_with_mqa", "kv_a_layernorm", "kv_b_proj", "o_proj", "qk_nope_head_dim", "qk_rope_head_dim",
        "v_head_dim", "kv_lora_rank", "num_heads", "scaling", "layer_idx",
    )  # fmt: skip

    paged_cache = LatentCache  #: for caches by their names

    def absorb(self):
        """Parts of kv_b_proj [heads, d, 512], as buffers that no file has."""
        proj = self.kv_b_proj
        weight = proj.dequantize(proj.dtype) if hasattr(proj, "dequantize") else proj.weight.detach()
        parts = weight.view(self.num_heads, -1, LATENT).split([self.qk_nope_head_dim, self.v_head_dim], 1)
        for name, part in zip(("absorbed_keys", "absorbed_values"), parts):
            self.register_buffer(name, part.contiguous(), persistent=False)

    def forward(self, hidden_states, position_embeddings, attention_mask=None, *args, **words):
        cache = args[0] if args else words.get(ARGUMENT)
        if not isinstance(cache, LatentCache):
            return super().forward(hidden_states, position_embeddings, attention_mask, *args, **words)
        if attention_mask is not None:
            raise ValueError("a LatentCache has no padding: all of attention_mask is to be 1")
        batch, new, _ = hidden_states.shape
        if self.layer_idx == 0:
            cache.check(batch, hidden_states.dtype, hidden_states.device)
            cache.advance(new)
        queries, turned, latents, places = self._projected(hidden_states, position_embeddings)
        norm = {"weight": self.kv_a_layernorm.weight, "eps": self.kv_a_layernorm.variance_epsilon}
        form, style = cache.format, self._style
        mla_append(latents, cache.data[self.layer_idx], cache.slots, *places, type=form.type, style=style, **norm)
        if cache.tokens == new and (self.qk_nope_head_dim + ROPE, self.v_head_dim) in HEADS:
            out = self._first(queries, turned, latents, places, norm, cache.starts(new), new)
        else:
            out = self._further(queries, turned, cache, batch, new)
        return self.o_proj(out.reshape(batch, new, -1)), None

    @property
    def _style(self):
        return "interleaved" if getattr(self.config, "rope_interleave", False) else "half"

    def _projected(self, x, embeddings):
        """Of the tokens, as rows: the queries' elements that are not turned, those that are, latents with what is to be
        turned, and the places that tell by which angles."""
        q = self.q_proj(x) if self.q_lora_rank is None else self.q_b_proj(self.q_a_layernorm(self.q_a_proj(x)))
        q = q.reshape(-1, self.num_heads, self.qk_nope_head_dim + ROPE)
        cos, sin = (part[..., : ROPE // 2].expand(x.shape[0], -1, -1) for part in embeddings)
        table = torch.cat([cos, sin], -1).float().reshape(-1, ROPE)
        positions = torch.arange(table.shape[0], dtype=torch.int32, device=x.device)
        plain, turned = q.split([self.qk_nope_head_dim, ROPE], -1)
        turned = rope(turned.contiguous(), positions, table, self._style)
        return plain, turned, self.kv_a_proj_with_mqa(x).reshape(-1, LATENT + ROPE), (positions, table)

    def _first(self, queries, turned, latents, places, norm, starts, new):
        """The first tokens, by keys and values."""
        rows, rest = latents.split([LATENT, ROPE], -1)
        rows = rms_norm(rows.contiguous(), norm["weight"], norm["eps"])
        rest = rope(rest.contiguous()[:, None], *places, self._style).expand(-1, self.num_heads, -1)
        both = self.kv_b_proj(rows).view(rows.shape[0], self.num_heads, -1)
        keys, values = both.split([self.qk_nope_head_dim, self.v_head_dim], -1)
        q, k = torch.cat([queries, turned], -1), torch.cat([keys, rest], -1)
        words = {"longest": new, "right": 0, "scale": self.scaling}
        return attention(q, k, values.contiguous(), starts, starts, **words)[0]

    def _further(self, queries, turned, cache, batch, new):
        """The newest tokens, by latents."""
        wide = torch.bmm(queries.transpose(0, 1), self.absorbed_keys).transpose(0, 1)
        q = torch.cat([wide, turned], -1).view(batch, new, self.num_heads, LATENT + ROPE)
        parts = []
        for begin in range(0, new, MOST_QUERIES):
            end = min(begin + MOST_QUERIES, new)
            lengths = cache.lengths if end == new else cache.lengths - (new - end)
            parts.append(
                mla_decode(
                    q[:, begin:end].contiguous(), cache.data[self.layer_idx], cache.table, lengths,
                    type=cache.format.type, scale=self.scaling,
                )[0]
            )  # fmt: skip
        out = torch.cat(parts, 1).flatten(0, 1).transpose(0, 1)
        return torch.bmm(out, self.absorbed_values.transpose(1, 2)).transpose(0, 1)


def _why_not(module):
    """Why a module with the parts cannot be taken; None where it can."""
    if (module.kv_lora_rank, module.qk_rope_head_dim) != (LATENT, ROPE):
        return f"it has {module.kv_lora_rank} latents and {module.qk_rope_head_dim} turned elements, not 512 and 64"
    if module.kv_a_layernorm.weight.dtype not in HALVES:
        return f"it is of {module.kv_a_layernorm.weight.dtype}, not of float16 or bfloat16"
    return None


@torch.no_grad()
def absorb_(model):
    """Has the latent attention of a model of transformers (DeepSeek V3) use a LatentCache where it is given one, in
    place, and returns the model. Without one it is what it was. The weights of kv_b_proj are kept a second time.

    The model is float16 or bfloat16, has 512 latents and 64 turned elements, and its attention becomes "tilusvm".
    ValueError where there is none, or that of other sizes. Before or after quantize_ of its linear layers."""
    found = [m for m in model.modules() if all(hasattr(m, part) for part in _Absorbed.PARTS)]
    if not found:
        raise ValueError("absorb_: the model has no latent attention, as DeepSeek V3 has it")
    for module in found:
        if (why := _why_not(module)) is not None:
            raise ValueError(f"absorb_: {type(module).__name__} cannot be taken: {why}")
    for module in found:
        if not isinstance(module, _Absorbed):
            own = type(module)
            module.__class__ = type(own.__name__, (_Absorbed, own), {})
        module.absorb()
    model.set_attn_implementation(NAME)
    return model

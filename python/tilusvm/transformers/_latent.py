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
from ._block import Block, GatedUnit, Norm, early
from ._cache import ARGUMENT, PagedCache
from ._parts import Unknown, places_of, unit_module, unit_of

__all__ = ["LatentBlock", "LatentCache", "absorb_", "block_of"]


class LatentCache(PagedCache):
    """Latents of `batch` sequences of at most max_tokens, in pages, for a model that absorb_ was given, or of a
    configuration; then dtype is told.

    type: of latents, "f8_e4m3", "i8", "u4", or None, the model's; what keys have beside them keeps the model's. page,
    dtype, device, table, lengths and tokens as of a PagedCache.
    """

    def __init__(self, model, batch, max_tokens, *, type=None, page=64, dtype=None, device=None):
        if isinstance(model, torch.nn.Module):
            weight = next((m.absorbed_keys for m in model.modules() if isinstance(m, _Absorbed)), None)
            if weight is None:
                raise ValueError("a LatentCache is for a model with latent attention that absorb_ was given")
            dtype, device = dtype or weight.dtype, weight.device if device is None else device
        config = getattr(model, "config", model).get_text_config()
        for name, value in (("batch", batch), ("max_tokens", max_tokens)):
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{name} must be a number from 1, not {value!r}")
        self.format = LatentFormat(dtype, type, page)
        self.batch, self.max_tokens, self.tokens = batch, max_tokens, 0
        self.pages = -(-max_tokens // page)
        self._heads, self._config = [1] * config.num_hidden_layers, config
        self._placed, self._starts, self._slots = None, {}, (None, None)
        Cache.__init__(self, layers=[])
        if device is not None:
            self.place(device)

    def _zeros(self, device):
        every = self.batch * self.pages
        return [self.format.zeros(every, device=device) for _ in self._heads]

    def slots(self, places: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
        """The rows of tokens that have these places in their sequences, i32 [tokens], which begin at starts: once for
        all layers of a call, which have the same tensor of places."""
        if self._slots[0] is not places:
            tokens = torch.arange(places.shape[0], dtype=torch.int32, device=places.device)
            sequences = torch.bucketize(tokens, starts[1:], right=True)
            pages = self.table[sequences, (places // self.format.page).long()]
            self._slots = places, (pages * self.format.page + places % self.format.page).int()
        return self._slots[1]

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
            newest = torch.arange(new, dtype=torch.int32, device=hidden_states.device)
            cache.places = (cache.lengths[:, None] - new + newest).flatten()
        cos, sin = (part[..., : ROPE // 2].expand(batch, -1, -1) for part in position_embeddings)
        table = torch.cat([cos, sin], -1).float().reshape(-1, ROPE)
        angles = torch.arange(table.shape[0], dtype=torch.int32, device=table.device), table
        starts, first = cache.starts(new), cache.tokens == new
        out = self.attend(hidden_states, angles, cache, cache.slots(cache.places, starts), starts, new, first)
        return self.o_proj(out.reshape(batch, new, -1)), None

    def attend(self, x, angles, cache, slots, starts, new, first):
        """What goes to o_proj, as rows. x: [..., hidden]; angles: of each token the row of a table of rope, and the
        table; starts: where the rows of each sequence begin, which have at most `new`; first: the cache was empty."""
        queries, turned, latents = self._projected(x, angles)
        norm = {"weight": self.kv_a_layernorm.weight, "eps": self.kv_a_layernorm.variance_epsilon}
        form, style = cache.format, self._style
        mla_append(latents, cache.data[self.layer_idx], slots, *angles, type=form.type, style=style, **norm)
        if first and (self.qk_nope_head_dim + ROPE, self.v_head_dim) in HEADS:
            out = self._first(queries, turned, latents, angles, norm, starts, new)
        else:
            out = self._further(queries, turned, cache, cache.batch, new)
        return out.reshape(out.shape[0], -1)

    @property
    def _style(self):
        return "interleaved" if getattr(self.config, "rope_interleave", False) else "half"

    def _projected(self, x, angles):
        """Of the tokens, as rows: the queries' elements that are not turned, those that are, and latents with what is
        to be turned."""
        q = self.q_proj(x) if self.q_lora_rank is None else self.q_b_proj(self.q_a_layernorm(self.q_a_proj(x)))
        q = q.reshape(-1, self.num_heads, self.qk_nope_head_dim + ROPE)
        plain, turned = q.split([self.qk_nope_head_dim, ROPE], -1)
        turned = rope(turned.contiguous(), *angles, self._style)
        return plain, turned, self.kv_a_proj_with_mqa(x).reshape(-1, LATENT + ROPE).contiguous()

    def _first(self, queries, turned, latents, angles, norm, starts, new):
        """The first tokens, by keys and values."""
        rows, rest = latents.split([LATENT, ROPE], -1)
        rows = rms_norm(rows.contiguous(), norm["weight"], norm["eps"])
        rest = rope(rest.contiguous()[:, None], *angles, self._style).expand(-1, self.num_heads, -1)
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


class _Whole(torch.nn.Module):
    """In the place of a Block's projections: the input, which latent attention projects by itself."""

    product = None

    def each(self, x):
        return [x]


class LatentBlock(Block):
    """A Block of a layer with latent attention, on a LatentCache. Its attention becomes one that absorb_ has taken."""

    def __init__(self, layer, index, config, options, rotary):
        torch.nn.Module.__init__(self)
        attention, unit = layer.self_attn, unit_module(layer)
        if not all(hasattr(attention, part) for part in _Absorbed.PARTS) or unit is None:
            raise Unknown("its attention is latent (MLA), but not of known parts")
        if (why := _why_not(attention)) is not None:
            raise Unknown(why)
        self.index, self.options, self.head, self.heads, self.kv_heads = index, options, ROPE, attention.num_heads, 1
        self.scale, self.cap, self.window, self.sinks = float(attention.scaling), 0.0, 0, None
        self.q_norm = self.k_norm = None
        self.wide_norms, self.style = False, "half"
        self.attention, self.qkv, self.out = _absorbed(attention), _Whole(), early(attention.o_proj)
        experts = hasattr(unit, "experts")
        self.mixture, self.unit = unit if experts else None, None
        if not experts:
            self.unit = GatedUnit(unit_of(unit, config), options.merge, options.mlp, options.fuse)
        norms = [None if found is None else Norm(found, options.norms) for found in places_of(layer)]
        self.before, self.after_attention, self.before_mlp, self.after_mlp = norms

    def cache_of(self, config, batch, max_tokens, *, zeros=False, **words):
        if zeros:
            raise ValueError("a cache of latents has no zero points: zeros=False")
        return LatentCache(config, batch, max_tokens, **words)

    def fuses(self):
        return False

    def first_launches(self, x, context):
        return [lambda: self.run(x, None, context)]

    def _attend(self, found, context):
        cache, places, starts = context.cache, context.positions, context.starts
        angles, slots, first = (places, context.table), cache.slots(places, starts), not self._few(context)
        return self.attention.attend(found[0], angles, cache, slots, starts, context.new, first)


def block_of(layer, *args):
    """The Block of a decoder layer, by its attention."""
    latent = hasattr(getattr(layer, "self_attn", None), "kv_b_proj")
    return (LatentBlock if latent else Block)(layer, *args)


def _absorbed(module):
    """Latent attention that uses a LatentCache, which it becomes."""
    if not isinstance(module, _Absorbed):
        own = type(module)
        module.__class__ = type(own.__name__, (_Absorbed, own), {})
    module.absorb()
    return module


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
        _absorbed(module)
    model.set_attn_implementation(NAME)
    return model

"""The attention of transformers named `tilusvm`, for any model whose attention is looked up by name.

    model = AutoModelForCausalLM.from_pretrained(path, dtype="float16", attn_implementation="tilusvm")
    model.generate_batch(prompts)                       # continuous batching, whose pages are read where they lie
    model.generate(ids, cache_implementation="tilusvm_u4")

Padding is left out: sequences of a batch are packed one behind the other. What the programs cannot do (heads of other
sizes, other types than halves, masks that are neither causal nor a window, biases of positions) is left to torch, with
a warning that says why, once a reason.
"""

from __future__ import annotations

import sys
import warnings

import torch
from transformers import masking_utils
from transformers.generation.continuous_batching import ContinuousBatchingManager, PagedAttentionCache
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from .._attention import HEADS
from .._registry import HALVES
from ..ops import attention, attention_decode
from ._cache import ARGUMENT, PAGES

__all__ = ["NAME", "attend_cached", "attention_forward", "is_named", "register"]

NAME = "tilusvm"
PAGED = "tilusvm_paged"  #: while sequences are batched continuously: without masks

#: Of masks: the functions that the programs know, by the names that masking_utils gives them.
_KNOWN = ("causal_mask_function", "bidirectional_mask_function", "sliding_window_overlay.<locals>.inner_mask")


def is_named(config) -> bool:
    """Is the attention of the configuration this package's?"""
    return getattr(config, "_attn_implementation", None) in (NAME, PAGED, f"paged|{NAME}")


# ---- masks ----


def _leaves(function):
    """The functions of which a mask is the conjunction."""
    if getattr(function, "__qualname__", "") != "and_masks.<locals>.and_mask":
        return [function]
    inner = dict(zip(function.__code__.co_freevars, function.__closure__))["mask_functions"].cell_contents
    return [leaf for each in inner for leaf in _leaves(each)]


def _mask(batch_size, q_length=None, kv_length=None, q_offset=0, kv_offset=0, mask_function=None, attention_mask=None,
          **words):  # fmt: skip
    """None where all tokens count, bool [batch, keys] with padding; of other masks all of it, as torch has it."""
    function = masking_utils.causal_mask_function if mask_function is None else mask_function
    known = all(getattr(leaf, "__qualname__", "") in _KNOWN for leaf in _leaves(function))
    last = q_offset + q_length - kv_offset  # of a static cache there are more keys than tokens
    if not known or torch.compiler.is_compiling() or isinstance(last, torch.Tensor) or kv_length > last:
        return masking_utils.sdpa_mask(
            batch_size=batch_size, q_length=q_length, kv_length=kv_length, q_offset=q_offset, kv_offset=kv_offset,
            mask_function=function, attention_mask=attention_mask, **{**words, "allow_is_causal_skip": False},
        )  # fmt: skip
    if attention_mask is None:
        return None
    attention_mask = attention_mask[:, -kv_length:]
    return None if attention_mask.all() else attention_mask


# ---- the function ----


def attend_cached(cache, layer, q, new, *, window=0, scale=None, cap=0.0, sinks=None):
    """Attention of the newest tokens of each sequence, q [batch * new, heads, head], which the cache has already."""
    batch, heads, head = cache.batch, *q.shape[1:]
    q, parts = q.view(batch, new, heads, head), []
    for begin in range(0, new, MOST_QUERIES):
        end = min(begin + MOST_QUERIES, new)
        lengths = cache.lengths if end == new else cache.lengths - (new - end)
        out, _ = attention_decode(
            q[:, begin:end].contiguous(), cache.data[layer], cache.table, lengths, cache.format, window=window,
            scale=scale, cap=cap, sinks=None if sinks is None else sinks.float(),
        )  # fmt: skip
        parts.append(out)
    out = parts[0] if len(parts) == 1 else torch.cat(parts, 1)
    return out.reshape(batch * new, heads, head)


MOST_QUERIES = 64  #: of a sequence, that attention_decode takes


def _rows(x):
    """[batch, heads, tokens, d] as [batch * tokens, heads, d]."""
    return x.transpose(1, 2).reshape(-1, x.shape[1], x.shape[3]).contiguous()


def _starts(batch, tokens, device):
    return torch.arange(batch + 1, dtype=torch.int32, device=device) * tokens


def _why_not(module, query, key, value, mask, dropout, words):
    """Why the programs cannot do it; None where they can."""
    if query.dtype not in HALVES:
        return f"queries are {query.dtype}"
    if (query.shape[-1], value.shape[-1]) not in HEADS:
        return f"heads have {query.shape[-1]} and {value.shape[-1]} elements"
    if isinstance(mask, torch.Tensor) and mask.dim() > 2:
        return "the mask is neither causal nor a window, or the cache is a static one"
    if dropout and module.training:
        return "there is dropout"
    if words.get("position_bias") is not None:
        return "positions have a bias"
    return None


def _by_torch(module, query, key, value, mask, dropout, scaling, words):
    """sdpa, or where that cannot do it the model's own."""
    if isinstance(mask, torch.Tensor) and mask.dim() == 2:  # of padding
        queries, keys = query.shape[2], key.shape[2]
        at = torch.arange(keys, device=key.device)
        of = at[keys - queries :, None]
        full = mask.bool()[:, None, None, :].expand(-1, 1, queries, -1)
        if words.get("is_causal", getattr(module, "is_causal", True)):
            full = full & (at <= of)
        if words.get("sliding_window"):
            full = full & (at > of - words["sliding_window"])
        mask = full | (at == of)  # rows of padding see themselves, and are finite
    elif mask is None and words.get("sliding_window") and key.shape[2] > words["sliding_window"]:
        mask = torch.ones(key.shape[0], key.shape[2], dtype=torch.bool, device=key.device)
        return _by_torch(module, query, key, value, mask, dropout, scaling, words)
    if words.get("softcap") or words.get("s_aux") is not None:
        own = sys.modules[type(module).__module__].eager_attention_forward
        if mask is None and query.shape[2] > 1:
            every = torch.ones(key.shape[0], key.shape[2], dtype=torch.bool, device=key.device)
            return _by_torch(module, query, key, value, every, dropout, scaling, words)
        if mask is not None and mask.dtype == torch.bool:
            mask = torch.zeros(mask.shape, dtype=query.dtype, device=mask.device).masked_fill(
                ~mask, torch.finfo(query.dtype).min
            )
        return own(module, query, key, value, mask, dropout=dropout, scaling=scaling, **words)
    words = {name: value for name, value in words.items() if name not in ("softcap", "s_aux", "sliding_window")}
    return sdpa_attention_forward(module, query, key, value, mask, dropout=dropout, scaling=scaling, **words)


def attention_forward(module, query, key, value, attention_mask, scaling=None, dropout=0.0, cache=None, **words):
    """What transformers calls: query [batch, heads, tokens, d], key and value [batch, kv_heads, keys, d]; out [batch,
    tokens, heads, d], and None. words: sliding_window, softcap, s_aux (sinks), is_causal, and those of a packed batch,
    cu_seq_lens_q and so on, of which `cache` has the pages."""
    if (held := getattr(key, "tilus_paged", None)) is not None:
        return _paged(held, query, key, value, attention_mask, scaling, words), None
    if cache is not None:
        return _continuous(module, query, key, value, cache, scaling, words), None
    packed = words.get("cu_seq_lens_q")
    why = _why_not(module, query, key, value, None if packed is not None else attention_mask, dropout, words)
    if why is not None:
        warnings.warn(f"attention is left to torch: {why}", stacklevel=2)
        return _by_torch(module, query, key, value, attention_mask, dropout, scaling, words)
    batch, heads, tokens, _ = query.shape
    flat = [_rows(t) for t in (query, key, value)]
    if packed is not None:
        q_starts, k_starts = packed.int(), words["cu_seq_lens_k"].int()
        out = _ragged(flat, q_starts, k_starts, tokens, module, scaling, words)
    elif attention_mask is None:
        q_starts = k_starts = _starts(batch, tokens, query.device)
        if key.shape[2] != tokens:
            k_starts = _starts(batch, key.shape[2], query.device)
        out = _ragged(flat, q_starts, k_starts, tokens, module, scaling, words)
    else:
        keep = attention_mask.bool()
        kept = [each.flatten().nonzero().flatten() for each in (keep[:, -tokens:], keep)]
        starts = [torch.nn.functional.pad(each.sum(1).cumsum(0), (1, 0)).int() for each in (keep[:, -tokens:], keep)]
        parts = [flat[0][kept[0]], flat[1][kept[1]], flat[2][kept[1]]]
        out = flat[0].new_zeros(flat[0].shape[0], heads, value.shape[-1])
        out[kept[0]] = _ragged(parts, *starts, tokens, module, scaling, words)
    return out.view(batch, tokens, heads, -1), None


def _ragged(flat, q_starts, k_starts, longest, module, scaling, words, table=None):
    causal = words.get("is_causal")
    causal = getattr(module, "is_causal", True) if causal is None else causal
    window, sinks = words.get("sliding_window") or 0, words.get("s_aux")
    out, _ = attention(
        *flat, q_starts, k_starts, longest=int(longest), scale=scaling, left=window - 1 if window else -1,
        right=0 if causal else -1, cap=float(words.get("softcap") or 0), table=table,
        sinks=None if sinks is None else sinks.float(),
    )  # fmt: skip
    return out


def _paged(held, query, key, value, mask, scaling, words):
    """With a PagedCache, which has the new keys and values."""
    cache, layer = held
    if mask is not None:
        raise ValueError("a PagedCache has no padding: all of attention_mask is to be 1")
    batch, heads, new, head = query.shape
    options = {"window": words.get("sliding_window") or 0, "cap": float(words.get("softcap") or 0)}
    if cache.tokens == new:
        starts = _starts(batch, new, query.device)
        flat = [_rows(t) for t in (query, key, value)]
        out = _ragged(flat, starts, starts, new, None, scaling, {**words, "is_causal": True})
    else:
        out = attend_cached(cache, layer, _rows(query), new, scale=scaling, sinks=words.get("s_aux"), **options)
    return out.view(batch, new, heads, head)


# ---- continuous batching ----


def _continuous(module, query, key, value, cache, scaling, words):
    """Of sequences packed in a batch of one; the cache of transformers has their pages."""
    heads, head = query.shape[1], value.shape[-1]
    why = _why_not(module, query, key, value, None, 0.0, {})
    if why is not None:
        raise ValueError(f"continuous batching by attention_implementation={NAME!r} cannot be: {why}; use sdpa")
    layer = module.layer_idx
    if hasattr(cache, "layer_to_allocator"):
        index = words["read_index"][cache.layer_to_allocator[layer].index]
        pages = _pages(cache, layer) if index.numel() else None
        key, value = _updated(cache, layer, key, value, words, pages)
    else:  # transformers 5.4
        index, pages = None, None
        key, value = cache.update(
            key_states=key, value_states=value, layer_idx=layer, read_index=words["read_index"],
            write_index=words["write_index"],
        )  # fmt: skip
        of_layer = words["cu_seq_lens_k"]
        if isinstance(of_layer, dict):
            kind = "sliding_attention" if cache.sliding_windows[layer] > 1 else "full_attention"
            of_layer = of_layer[kind]
        words["cu_seq_lens_k"] = of_layer
    q_starts, k_starts = words["cu_seq_lens_q"].int(), words["cu_seq_lens_k"].int()
    longest = words.get("max_length_q", words.get("max_seqlen_q"))
    words = {**words, "is_causal": True}
    q = _rows(query)
    if pages is None:
        flat = (q, *(t if t.dim() == 3 else _rows(t) for t in (key, value)))
        out = _ragged([t.contiguous() for t in flat], q_starts, k_starts, longest, module, scaling, words)
    else:
        lengths = k_starts[1:] - k_starts[:-1]
        table = _table(index, k_starts, lengths, words["max_length_k"], pages[0].shape[1])
        out = _ragged([q, *pages], q_starts, lengths, longest, module, scaling, words, table)
    return out.view(1, -1, heads, head)


def _pages(cache, layer):
    """The keys and values of a layer as pages [pages, rows, kv_heads, d] that attention takes, over the cache's memory;
    None where it is no such cache, as one that keeps a window alone."""
    allocator = cache.layer_to_allocator[layer]
    if not allocator.supports_block_table:
        return None
    rows = next((size for size in reversed(PAGES) if allocator.tokens_per_page % size == 0), None)
    if rows is None:
        return None
    views = [t.view(-1, rows, *t.shape[2:]) for t in allocator.get_cache_for_block_table(layer)]
    return views if all(t.is_contiguous() and t.data_ptr() % 16 == 0 for t in views) else None


def _updated(cache, layer, key, value, words, pages):
    """The new keys and values go into the cache; with pages it is not read here."""
    read, words["cache"] = words["read_index"], cache
    if pages is not None:
        words["read_index"] = [each[:0] for each in read]
    try:
        return cache.update(key_states=key, value_states=value, layer_idx=layer, kwargs=words)
    finally:
        words["read_index"] = read


def _table(index, k_starts, lengths, longest, rows):
    """i32 [sequences, columns]: the pages that tokens lie in, of which index says one after the other where they
    are."""
    columns = torch.arange(0, max(int(longest), 1), rows, device=index.device)
    first = k_starts[:-1, None] + columns
    first = torch.where(columns < lengths[:, None], first, 0).clamp(max=index.numel() - 1)
    return (index[first.long()] // rows).int().contiguous()


# ---- registration ----


def _knows(switch):
    """ContinuousBatchingManager.switch_to_cb_friendly_attn, which has a list of transformers' names alone."""

    def switch_to_cb_friendly_attn(self, model, *args, **words):
        if not is_named(model.config):
            return switch(self, model, *args, **words)
        if model.config._attn_implementation != PAGED:
            self._original_attn_impl = model.config._attn_implementation
            model.set_attn_implementation(PAGED)
        return None

    return switch_to_cb_friendly_attn


def _defers(update):
    """PagedAttentionCache.update, as layers call it before their attention: that of this package finds the cache among
    its words, and updates it without reading what is there."""

    def layers_update(self, key_states, value_states, layer_idx, kwargs):
        if not is_named(self.config) or "cache" in kwargs:
            return update(self, key_states, value_states, layer_idx, kwargs)
        kwargs["cache"] = self
        return key_states, value_states

    return layers_update


def register() -> None:
    """Makes `tilusvm` known as an attention, and what it is called with pages: transformers 5.4 says `paged|` before
    it."""
    for name in (NAME, PAGED, f"paged|{NAME}"):
        ALL_ATTENTION_FUNCTIONS.register(name, attention_forward)
    ALL_MASK_ATTENTION_FUNCTIONS.register(NAME, _mask)
    own = getattr(ContinuousBatchingManager, "switch_to_cb_friendly_attn", None)
    if own is not None and own.__module__ != __name__:
        ContinuousBatchingManager.switch_to_cb_friendly_attn = _knows(own)
    if ARGUMENT == "cache" and PagedAttentionCache.update.__module__ != __name__:
        PagedAttentionCache.update = _defers(PagedAttentionCache.update)

"""The paged cache of keys and values, of any of the cache's types (kv_cache.vasminc), for models of transformers; and
its names for generate."""

from __future__ import annotations

import dataclasses
import inspect
import itertools

import torch
from transformers.cache_utils import Cache
from transformers.generation import GenerationMixin, configuration_utils

from .._registry import HALVES
from ..engines.cache import types_of
from ..ops import CacheFormat, kv_append, qkv_append

__all__ = ["ARGUMENT", "NAMES", "PAGES", "PagedCache", "register"]

#: What models call the cache that they are given. Before transformers 5.24 it is past_key_values, and `cache` the pages
#: of continuous batching, which the function of attention updates; since then `cache` is either, and layers update it.
ARGUMENT = "past_key_values"
if "cache" in inspect.signature(GenerationMixin.prepare_inputs_for_generation).parameters:
    ARGUMENT = "cache"

PAGES = (16, 32, 64, 128)

#: What generate's cache_implementation may be, beside transformers' own, and the `type` of the PagedCache.
NAMES = {
    "tilusvm": None,
    **{f"tilusvm_{type}": type for type in ("u8", "u6", "u5", "u4", "u3", "u2", "f8_e4m3", "f8_e5m2", "k8v4", "k4v2")},
}


class PagedCache(Cache):
    """Keys and values of `batch` sequences of at most max_tokens, in pages:
    model.generate(cache=PagedCache(...)), past_key_values=PagedCache(...) before transformers 5.24.

    config: of a model, or the model. type: None keeps keys and values as they are, "f8_e4m3", "u4" or another
    low-precision type quantizes them as they come, a scale to a head and token; "u8,u4" and "k8v4" are of keys and of
    values; zeros: zero points, for unsigned types.
    Pages are of `page` tokens: 16, 32, 64 or 128. dtype: of the model; None: the model's, or what its configuration
    says, or float16. device: None: the model's, or of a configuration that of the first keys that come.

    kv_heads: of this rank, where ranks share them; else the configuration's.

    table, i32 [batch, pages of a sequence], says which pages a sequence has, lengths, i32 [batch], how many tokens: on
    the device, so that steps can be replayed from a CUDA graph. tokens: those of the longest sequence, which the host
    knows.
    """

    is_compileable = False

    def __init__(
        self, config, batch, max_tokens, *, type=None, zeros=False, page=64, dtype=None, device=None, kv_heads=None
    ):
        if isinstance(config, torch.nn.Module):
            weight = next(config.parameters())
            device = weight.device if device is None else device
            dtype = weight.dtype if dtype is None and weight.dtype in HALVES else dtype
            config = config.config
        config = config.get_text_config()
        if page not in PAGES:
            raise ValueError(f"page must be one of {', '.join(map(str, PAGES))} tokens, not {page!r}")
        for name, value in (("batch", batch), ("max_tokens", max_tokens)):
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{name} must be a number from 1, not {value!r}")
        if dtype is None:
            dtype = getattr(config, "dtype", None)
            dtype = dtype if dtype in HALVES else torch.float16
        head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        types = {"k_type": type, "v_type": type, "k_zeros": zeros, "v_zeros": zeros}
        if isinstance(type, str) and ("," in type or type.startswith("k")):
            types = types_of(f"{type}+zeros" if zeros else type, "type ")
        self.format = CacheFormat(dtype=dtype, head=head, page=page, **types)
        self.format.check()
        self.batch, self.max_tokens, self.tokens = batch, max_tokens, 0
        self.pages = -(-max_tokens // page)
        self._heads = [kv_heads or config.num_key_value_heads] * config.num_hidden_layers
        self._placed = None
        self._starts, self._config = {}, config
        super().__init__(layers=[])
        if device is not None:
            self.place(device)

    def place(self, device) -> None:
        """Makes its tensors there, where there are none yet."""
        if self._placed is not None:
            return
        every = self.batch * self.pages
        table = torch.arange(every, dtype=torch.int32, device=device).view(self.batch, self.pages)
        lengths = torch.full((self.batch,), self.tokens, dtype=torch.int32, device=device)
        self._placed = table, lengths, self._zeros(device)

    def _zeros(self, device):
        every = self.batch * self.pages
        return [self.format.zeros(every, heads, device=device) for heads in self._heads]

    def _at(self, part):
        self.place(torch.get_default_device())
        return self._placed[part]

    @property
    def table(self) -> torch.Tensor:
        return self._at(0)

    @property
    def lengths(self) -> torch.Tensor:
        return self._at(1)

    @property
    def data(self) -> list[torch.Tensor]:
        """Of each layer."""
        return self._at(2)

    def starts(self, tokens: int | list[int]) -> torch.Tensor:
        """Where the rows of each sequence begin, of `tokens` new ones each, or so many of each: i32 [batch + 1]."""
        device = self.lengths.device
        if isinstance(tokens, list):
            ends = itertools.accumulate(tokens, initial=0)
            return torch.tensor(list(ends), dtype=torch.int32, device=device)
        if tokens not in self._starts:
            self._starts[tokens] = torch.arange(self.batch + 1, dtype=torch.int32, device=device) * tokens
        return self._starts[tokens]

    def check(self, batch: int, dtype: torch.dtype, device: torch.device) -> None:
        """ValueError or TypeError where it is not for so many sequences, or a model of that type, or there."""
        if batch != self.batch:
            raise ValueError(f"the PagedCache is for a batch of {self.batch}, not {batch}")
        if dtype != self.format.dtype:
            raise TypeError(f"the PagedCache is for {self.format.dtype}, not {dtype}: make it with dtype={dtype}")
        self.place(device)
        if self.lengths.device != device:
            raise ValueError(f"the PagedCache is on {self.lengths.device}, not on {device}: make it with device=None")

    def advance(self, tokens: int | list[int]) -> None:
        """Makes room for so many new tokens of each sequence, or so many of each, before the first layer appends
        them."""
        most = max(tokens) if isinstance(tokens, list) else tokens
        if isinstance(tokens, list) and self.tokens:
            raise ValueError("sequences have different numbers of new tokens only where the cache is empty")
        if self.tokens + most > self.max_tokens:
            raise ValueError(f"the cache holds {self.max_tokens} tokens of a sequence, not {self.tokens + most}")
        if isinstance(tokens, list):
            self.rewind(tokens)
            return
        self.tokens += tokens
        if self._placed is not None:
            self.lengths.add_(tokens)

    def rewind(self, lengths: list[int]) -> None:
        """Each sequence has so many tokens, the first of those that it had."""
        self.tokens = max(lengths)
        self.lengths.copy_(torch.tensor(lengths, dtype=torch.int32))

    def append(self, layer: int, k, v, rotation=None, starts=None, longest=None, style="half") -> None:
        """k, v: [tokens, kv_heads, head], the newest tokens, for which advance has made room. starts: i32 [batch + 1],
        where those of each sequence begin; longest: no sequence has more; None: all have as many. style: of rope."""
        self.place(k.device)
        tokens = k.shape[0] // self.batch
        starts, longest = (self.starts(tokens), tokens) if starts is None else (starts, longest)
        kv_append(
            k, v, self.data[layer], starts, self.table, self.lengths, self.format, longest=longest, rotation=rotation,
            early=True, style=style,
        )  # fmt: skip

    def append_all(self, layer: int, qkv, rotation, style="half"):
        """append, as many of each sequence, of the keys and values in qkv [batch * tokens, (heads + 2 kv_heads) *
        head], the keys turned; gives the queries, turned, [batch * tokens, heads, head]."""
        tokens = qkv.shape[0] // self.batch
        return qkv_append(
            qkv, self.data[layer], self.starts(tokens), self.table, self.lengths, self.format, longest=tokens,
            rotation=rotation, early=True, style=style,
        )  # fmt: skip

    def reset(self) -> None:
        self.tokens = 0
        if self._placed is not None:
            self.lengths.zero_()

    # ---- what transformers asks a cache ----

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.tokens

    def get_mask_sizes(self, query_length, layer_idx: int = 0) -> tuple[int, int]:
        return self.tokens + (query_length if isinstance(query_length, int) else query_length.shape[0]), 0

    @property
    def is_linear(self) -> list[bool]:
        """Of each layer, is it of linear attention: transformers takes no layers for those alone."""
        return [False] * len(self._heads)

    def get_max_cache_shape(self, layer_idx: int = 0) -> int:
        return self.max_tokens

    def update(self, key_states, value_states, layer_idx, *args, **kwargs):
        """Appends keys and values [batch, kv_heads, tokens, head]. The attention `tilusvm` finds the cache by the keys
        that come back; other attentions see no cache, and are refused."""
        from ._attention import is_named

        if not is_named(self._config):
            raise TypeError(
                "a PagedCache is for models whose attention is this package's: accelerate_(model), or "
                "attn_implementation='tilusvm'"
            )
        batch, kv_heads, tokens, head = key_states.shape
        if (head, value_states.shape[-1]) != (self.format.head,) * 2 or kv_heads != self._heads[layer_idx]:
            raise TypeError(
                f"the PagedCache is for {self._heads[layer_idx]} heads of {self.format.head} elements, not for "
                f"{kv_heads} of {head} and {value_states.shape[-1]}, as layer {layer_idx} has: use transformers' own"
            )
        if layer_idx == 0:
            self.check(batch, key_states.dtype, key_states.device)
            self.advance(tokens)
        rows = [t.transpose(1, 2).reshape(-1, kv_heads, head) for t in (key_states, value_states)]
        self.append(layer_idx, *rows)
        key_states = key_states.view(key_states.shape)
        key_states.tilus_paged = self, layer_idx
        return key_states, value_states

    def crop(self, max_length: int) -> None:
        """Each sequence keeps its first tokens, so many, or with a number of 0 or less all but so many. Assisted
        generation of some versions counts them by a tensor."""
        max_length = int(max_length)
        kept = max_length if max_length > 0 else max(self.tokens + max_length, 0)
        if kept < self.tokens:
            self.rewind([min(length, kept) for length in self.lengths.tolist()])

    def _refused(self, *args, **kwargs):
        raise NotImplementedError("a PagedCache follows no beams, and its sequences are not reordered")

    reorder_cache = batch_repeat_interleave = batch_select_indices = _refused

    def __repr__(self) -> str:
        fields = ", ".join(f"{f.name}={getattr(self.format, f.name)}" for f in dataclasses.fields(self.format)[:5])
        return f"PagedCache(batch={self.batch}, tokens={self.tokens} of {self.max_tokens}, {fields})"


# ---- by name ----


def _prepared(prepare):
    """GenerationMixin._prepare_cache_for_generation, which knows the names of transformers alone."""

    def _prepare_cache_for_generation(
        self, generation_config, model_kwargs, generation_mode, batch_size, max_cache_length, *rest,
    ):  # fmt: skip
        name = generation_config.cache_implementation
        if name not in NAMES or model_kwargs.get(ARGUMENT) is not None or not generation_config.use_cache:
            return prepare(self, generation_config, model_kwargs, generation_mode, batch_size, max_cache_length, *rest)
        if (generation_config.num_beams or 1) > 1:
            raise ValueError(f"cache_implementation={name!r} follows no beams: num_beams=1")
        batch = batch_size * (generation_config.num_return_sequences or 1)
        model_kwargs[ARGUMENT] = cache_of(self, batch, max_cache_length, NAMES[name])
        return None

    return _prepare_cache_for_generation


def cache_of(model, batch, max_tokens, type):
    """The paged cache of a model, by the first of its modules that says of which kind that is: its `paged_cache`."""
    for module in model.modules():
        if hasattr(module, "paged_cache"):
            return module.paged_cache(model, batch, max_tokens, type=type)
    return PagedCache(model, batch, max_tokens, type=type, kv_heads=kv_heads_of(model))


def kv_heads_of(model):
    """Of this rank, by the first layer that says so; None: as the configuration says."""
    for module in model.modules():
        if hasattr(module, "kv_heads"):
            return module.kv_heads
    return None


def register() -> None:
    """Makes NAMES known to generate."""
    known = configuration_utils.ALL_CACHE_IMPLEMENTATIONS
    configuration_utils.ALL_CACHE_IMPLEMENTATIONS = known + tuple(name for name in NAMES if name not in known)
    own = GenerationMixin._prepare_cache_for_generation
    if own.__module__ != __name__:
        GenerationMixin._prepare_cache_for_generation = _prepared(own)

"""The paged cache of keys and values, of any of the cache's types (kv_cache.vasminc), for models of transformers."""

from __future__ import annotations

import dataclasses

import torch
from transformers.cache_utils import Cache

from .._registry import HALVES
from ..ops import CacheFormat, kv_append, qkv_append

__all__ = ["PagedCache"]


PAGES = (16, 32, 64, 128)


class PagedCache(Cache):
    """Keys and values of `batch` sequences of at most max_tokens, in pages:
    model.generate(past_key_values=PagedCache(...)).

    type: None keeps keys and values as they are, "f8_e4m3", "u4" or another low-precision type quantizes them as they
    come, a scale to a head and token; zeros: zero points, for unsigned types. Pages are of `page` tokens: 16, 32, 64
    or 128. dtype: of the model; None: what its configuration says, or float16.

    kv_heads: of this rank, where ranks share them; else the configuration's.

    table, i32 [batch, pages of a sequence], says which pages a sequence has, lengths, i32 [batch], how many tokens: on
    the device, so that steps can be replayed from a CUDA graph. All sequences are of one length.
    """

    is_compileable = False

    def __init__(
        self, config, batch, max_tokens, *, type=None, zeros=False, page=64, dtype=None, device="cuda", kv_heads=None
    ):
        config = config.get_text_config()
        if page not in PAGES:
            raise ValueError(f"page must be one of {', '.join(map(str, PAGES))} tokens, not {page!r}")
        for name, value in (("batch", batch), ("max_tokens", max_tokens)):
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be a number from 1, not {value!r}")
        if dtype is None:
            dtype = getattr(config, "dtype", None)
            dtype = dtype if dtype in HALVES else torch.float16
        head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self.format = CacheFormat(
            dtype=dtype, k_type=type, v_type=type, head=head, page=page, k_zeros=zeros, v_zeros=zeros
        )
        self.batch, self.tokens = batch, 0
        self.pages = -(-max_tokens // page)
        self.max_tokens = self.pages * page
        every = batch * self.pages
        self.table = torch.arange(every, dtype=torch.int32, device=device).view(batch, self.pages)
        self.lengths = torch.zeros(batch, dtype=torch.int32, device=device)
        self.data = [
            self.format.zeros(every, kv_heads or config.num_key_value_heads, device=device)
            for _ in range(config.num_hidden_layers)
        ]
        self._starts = {}
        super().__init__(layers=[])

    def starts(self, tokens: int) -> torch.Tensor:
        """Where the rows of each sequence begin, of `tokens` new ones each: i32 [batch + 1]."""
        if tokens not in self._starts:
            device = self.lengths.device
            self._starts[tokens] = torch.arange(self.batch + 1, dtype=torch.int32, device=device) * tokens
        return self._starts[tokens]

    def check(self, batch: int, dtype: torch.dtype) -> None:
        """ValueError or TypeError where it is not for so many sequences, or a model of that type."""
        if batch != self.batch:
            raise ValueError(f"the PagedCache is for a batch of {self.batch}, not {batch}")
        if dtype != self.format.dtype:
            raise TypeError(f"the PagedCache is for {self.format.dtype}, not {dtype}: make it with dtype={dtype}")

    def advance(self, tokens: int) -> None:
        """Makes room for so many new tokens of each sequence, before the first layer appends them."""
        if self.tokens + tokens > self.max_tokens:
            raise ValueError(f"the cache holds {self.max_tokens} tokens of a sequence, not {self.tokens + tokens}")
        self.tokens += tokens
        self.lengths += tokens

    def append(self, layer: int, k, v, rotation=None) -> None:
        """k, v: [batch * tokens, kv_heads, head], the newest tokens, for which advance has made room."""
        tokens = k.shape[0] // self.batch
        kv_append(
            k, v, self.data[layer], self.starts(tokens), self.table, self.lengths, self.format, longest=tokens,
            rotation=rotation, early=True,
        )  # fmt: skip

    def append_all(self, layer: int, qkv, rotation):
        """append of the keys and values in qkv [batch * tokens, (heads + 2 kv_heads) * head], the keys turned;
        gives the queries, turned, [batch * tokens, heads, head]."""
        tokens = qkv.shape[0] // self.batch
        return qkv_append(
            qkv, self.data[layer], self.starts(tokens), self.table, self.lengths, self.format, longest=tokens,
            rotation=rotation, early=True,
        )  # fmt: skip

    def reset(self) -> None:
        self.tokens = 0
        self.lengths.zero_()

    # ---- what transformers asks a cache ----

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.tokens

    def get_mask_sizes(self, query_length, layer_idx: int = 0) -> tuple[int, int]:
        return self.tokens + (query_length if isinstance(query_length, int) else query_length.shape[0]), 0

    def get_max_cache_shape(self, layer_idx: int = 0) -> int:
        return self.max_tokens

    def update(self, *args, **kwargs):
        raise TypeError("a PagedCache is for models whose attention is this package's: accelerate_(model)")

    def __repr__(self) -> str:
        fields = ", ".join(f"{f.name}={getattr(self.format, f.name)}" for f in dataclasses.fields(self.format)[:5])
        return f"PagedCache(batch={self.batch}, tokens={self.tokens} of {self.max_tokens}, {fields})"

"""The attention backend CUSTOM of vLLM, on attention, attention_decode and kv_append, with caches of any types.

`--attention-backend CUSTOM`; the environment variable TILUSVM_KV_CACHE names the types of keys and values (u8,u4);
without it they are those of activations. A cache of vLLM, [blocks, heads, tokens, bytes], is one of this package's,
[pages, heads, slabs, words]: a block is a page.

Batches are sorted. First come sequences of as many new tokens each (a step of decoding, or the drafts that speculation
verifies), which read the cache as it is; then the others, whose queries see their new keys alone where there are no
others, and else what the cache has, unpacked.
"""

from __future__ import annotations

import dataclasses
import os

import torch
from vllm.v1.attention.backend import (
    AttentionBackend,
    AttentionCGSupport,
    AttentionImpl,
    AttentionMetadata,
    AttentionMetadataBuilder,
    AttentionType,
)
from vllm.v1.attention.backends.utils import split_decodes_and_prefills

from .. import ops, program
from ..engines.cache import VARIABLE, format_for, token_bytes, types_of
from . import _versions

__all__ = ["TilusAttentionBackend", "TilusAttentionImpl", "TilusMetadata", "TilusMetadataBuilder"]

PAGES = [16, 32, 64, 128]
HEADS = [64, 80, 96, 128, 256]


def cache_types(kv_cache_dtype: str = "auto") -> dict:
    """The types of keys and values: those of the environment, or those that vLLM's own option names."""
    if VARIABLE in os.environ:
        return types_of(os.environ[VARIABLE])
    return types_of({"fp8": "f8_e4m3", "fp8_e4m3": "f8_e4m3", "fp8_e5m2": "f8_e5m2"}.get(kv_cache_dtype))


class TilusAttentionBackend(AttentionBackend):
    accept_output_buffer = True
    forward_includes_kv_cache_update = True
    supported_kv_cache_dtypes = ["auto", "float16", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2"]

    @staticmethod
    def get_name() -> str:
        return "CUSTOM"

    @staticmethod
    def get_impl_cls():
        return TilusAttentionImpl

    @staticmethod
    def get_builder_cls():
        return TilusMetadataBuilder

    @staticmethod
    def get_supported_kernel_block_sizes(kv_cache_spec=None) -> list[int]:
        return list(PAGES)

    @classmethod
    def get_supported_head_sizes(cls) -> list[int]:
        return list(HEADS)

    @classmethod
    def supports_sliding_window(cls) -> bool:
        return True

    @classmethod
    def supports_sink(cls) -> bool:
        return True

    @classmethod
    def supported_kv_cache_layouts(cls):
        return _versions.one_layout()

    @classmethod
    def customize_spec(cls, spec):
        """Of a token and head as many bytes as its codes and scales have."""
        name = "fp8" if spec.dtype.itemsize == 1 else "auto"  # both types of 8 bits have cells of one size
        return dataclasses.replace(spec, state_content_bytes=token_bytes(cache_types(name), spec.head_size))


@dataclasses.dataclass
class TilusMetadata(AttentionMetadata):
    """Of a batch. decodes: sequences of `queries` new tokens each, the first ones; prefill: of the others."""

    starts: torch.Tensor  #: i32 [sequences + 1], rows of each
    lengths: torch.Tensor  #: i32 [sequences], new tokens included
    table: torch.Tensor  #: i32 [sequences, blocks of one]
    longest: int  #: no sequence has more new tokens
    tokens: int  #: new ones of all
    decodes: int
    queries: int
    decode_lengths: torch.Tensor
    decode_table: torch.Tensor
    prefill: Prefill | None


@dataclasses.dataclass
class Prefill:
    """The sequences behind those of a step of decoding."""

    starts: torch.Tensor  #: i32 [sequences + 1], rows of each, less those before
    lengths: torch.Tensor
    table: torch.Tensor
    longest: int
    cached: CachedKeys | None  #: None where no sequence has tokens but the new ones


@dataclasses.dataclass
class CachedKeys:
    """Where the keys and values of sequences lie when the cache is unpacked."""

    starts: torch.Tensor  #: i32 [sequences + 1]
    tokens: int
    longest: int


def _aligned(tensor):
    """Kernels want 16 bytes; a part of a tensor of the engine may begin anywhere."""
    tensor = tensor.contiguous()
    return tensor.clone() if tensor.data_ptr() % 16 else tensor


class TilusMetadataBuilder(AttentionMetadataBuilder[TilusMetadata]):
    _cudagraph_support = AttentionCGSupport.UNIFORM_BATCH

    def __init__(self, kv_cache_spec, layer_names, vllm_config, device):
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        self._init_reorder_batch_threshold(1, supports_spec_as_decode=True)

    def build(self, common_prefix_len, common_attn_metadata, fast_build=False) -> TilusMetadata:
        common = common_attn_metadata
        decodes, _, tokens, _ = split_decodes_and_prefills(
            common, decode_threshold=self.reorder_batch_threshold, require_uniform=True
        )
        queries = -(-tokens // decodes) if decodes else 0
        if decodes and tokens != decodes * queries:  # padding that is no graph's
            decodes = tokens = 0
        lengths, table = common.seq_lens, common.block_table_tensor
        prefill = _prefill(common, decodes, tokens) if decodes < common.num_reqs else None
        return TilusMetadata(
            starts=_aligned(common.query_start_loc), lengths=_aligned(lengths), table=_aligned(table),
            longest=common.max_query_len, tokens=common.num_actual_tokens, decodes=decodes, queries=queries,
            decode_lengths=_aligned(lengths[:decodes]), decode_table=_aligned(table[:decodes]), prefill=prefill,
        )  # fmt: skip


def _prefill(common, decodes, tokens):
    host = common.query_start_loc_cpu[decodes : common.num_reqs + 1]
    new = host[1:] - host[:-1]
    every = common.seq_lens_cpu_upper_bound
    every = (common.seq_lens.cpu() if every is None else every)[decodes : common.num_reqs]
    lengths = _aligned(common.seq_lens[decodes:])
    cached = None
    if bool((every > new).any()):
        starts = torch.zeros(lengths.shape[0] + 1, dtype=torch.int32, device=lengths.device)
        torch.cumsum(lengths, 0, out=starts[1:])
        cached = CachedKeys(starts, int(every.sum()), int(every.max()))
    return Prefill(
        starts=_aligned(common.query_start_loc[decodes:] - tokens), lengths=lengths,
        table=_aligned(common.block_table_tensor[decodes:]), longest=int(new.max()), cached=cached,
    )  # fmt: skip


class TilusAttentionImpl(AttentionImpl[TilusMetadata]):
    def __init__(
        self, num_heads, head_size, scale, num_kv_heads=None, alibi_slopes=None, sliding_window=None,
        kv_cache_dtype="auto", logits_soft_cap=None, attn_type=AttentionType.DECODER, kv_sharing_target_layer_name=None,
        **rest,
    ) -> None:  # fmt: skip
        if attn_type != AttentionType.DECODER:
            raise NotImplementedError(f"attention of the kind {attn_type} is not supported: decoders are")
        if alibi_slopes is not None:
            raise NotImplementedError("attention with ALiBi is not supported: leave out --attention-backend")
        self.sinks = rest.get("sinks")
        self.num_heads, self.head_size, self.scale = num_heads, head_size, float(scale)
        self.num_kv_heads = num_kv_heads or num_heads
        self.window, self.cap = sliding_window or 0, float(logits_soft_cap or 0)
        self.kv_cache_dtype, self.types = kv_cache_dtype, cache_types(kv_cache_dtype)
        self.shares = kv_sharing_target_layer_name is not None

    def format(self, dtype: torch.dtype, page: int) -> ops.CacheFormat:
        return format_for(self.types, dtype, self.head_size, page)

    def forward(
        self, layer, query, key, value, kv_cache, attn_metadata, output, output_scale=None, output_block_scale=None,
    ) -> torch.Tensor:  # fmt: skip
        if attn_metadata is None:  # while memory is measured
            return output.fill_(0)
        meta = attn_metadata
        form = self.format(query.dtype, kv_cache.shape[2])
        cache = kv_cache.view(-1).view(torch.int32).view(form.shape(kv_cache.shape[0], self.num_kv_heads))
        query = _aligned(query[: meta.tokens])
        new = None
        if key is not None and value is not None:
            new = _aligned(key[: meta.tokens]), _aligned(value[: meta.tokens])
        if new is not None and not self.shares:
            ops.kv_append(*new, cache, meta.starts, meta.table, meta.lengths, form, longest=meta.longest)
        tokens = meta.decodes * meta.queries
        if meta.decodes:
            q = query[:tokens].view(meta.decodes, meta.queries, self.num_heads, self.head_size)
            out, _ = ops.attention_decode(
                q, cache, meta.decode_table, meta.decode_lengths, form, window=self.window, scale=self.scale,
                cap=self.cap, sinks=self._wide_sinks(),
            )  # fmt: skip
            output[:tokens].copy_(out.flatten(0, 1))
        if meta.prefill is not None:
            own = None if new is None or self.shares else tuple(_aligned(t[tokens:]) for t in new)
            out = self._attend(_aligned(query[tokens:]), own, cache, form, meta.prefill)
            output[tokens : meta.tokens].copy_(out)
        return output

    def _attend(self, query, new, cache, form, prefill):
        """Of the queries of a prefill; new: their keys and values, or None where they are another layer's."""
        key_starts = prefill.starts
        if prefill.cached is not None or new is None:
            key_starts, new = self._unpacked(query, cache, form, prefill)
        out, _ = ops.attention(
            query, *new, prefill.starts, key_starts, longest=prefill.longest, scale=self.scale,
            left=self.window - 1 if self.window else -1, right=0, cap=self.cap,
            sinks=self._wide_sinks(),
        )  # fmt: skip
        return out

    def _wide_sinks(self):
        """As the operators take them, f32."""
        return None if self.sinks is None else self.sinks.float()

    def _unpacked(self, query, cache, form, prefill):
        at = prefill.cached or CachedKeys(prefill.starts, query.shape[0], prefill.longest)
        shape = at.tokens, self.num_kv_heads, self.head_size
        key, value = query.new_empty(shape), query.new_empty(shape)
        pages, kv_heads = cache.shape[:2]
        _unpack_kernel(form)(
            prefill.lengths.shape[0], at.tokens, at.longest, kv_heads, pages, prefill.table.shape[1], at.starts,
            prefill.table, prefill.lengths, key, value, cache.view(torch.uint32),
        )  # fmt: skip
        return at.starts, (key, value)


def _unpack_kernel(form):
    return program("kv_append", **form.constants())["kv_unpack"]

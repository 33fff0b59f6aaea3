"""Weight loaders of the second generation, which vLLM and SGLang share: a parameter is asked to load a part.

The parameters hold nothing: they hand the tensor on to the LinearParts of their layer, which cut out the rank's part.
"""

from __future__ import annotations

from .layers import LinearParts

__all__ = ["PartsParameter", "fused_sizes", "head_loader", "loader_of", "whole_loader"]

_SHARDS = {"q": 0, "k": 1, "v": 2}


class PartsParameter:
    """What a parameter class of an engine is mixed with: `parts` and `tensor_name` are set by the layer's method."""

    parts: LinearParts
    tensor_name: str

    def _rank(self, words):
        rank = words.get("tp_rank")
        return getattr(self, "tp_rank", 0) if rank is None else rank

    def _take(self, part, tensor, axis, begin, size):
        self.parts.take(part, self.tensor_name, tensor, axis, begin, begin + size)

    def load_column_parallel_weight(self, loaded_weight, *args, **words):
        size = self.parts.sizes[0]
        self._take(0, loaded_weight, "out", (args[0] if args else self._rank(words)) * size, size)

    def load_row_parallel_weight(self, loaded_weight, *args, **words):
        size = self.parts.inputs
        self._take(0, loaded_weight, "in", (args[0] if args else self._rank(words)) * size, size)

    def load_merged_column_weight(self, loaded_weight, **words):
        part = words["shard_id"]
        size = self.parts.sizes[part]
        self._take(part, loaded_weight, "out", words.get("begin", 0) + self._rank(words) * size, size)

    def load_qkv_weight(self, loaded_weight, **words):
        part = words["shard_id"]
        rank = self._rank(words)
        rank, part = (rank if part == "q" else rank // words["num_heads"]), _SHARDS.get(part, part)
        size = self.parts.sizes[part]
        self._take(part, loaded_weight, "out", words.get("begin", 0) + rank * size, size)

    def load_whole(self, loaded_weight, part=0, begin=0, size=None):
        """Without a rank: outputs from begin on."""
        self._take(part, loaded_weight, "out", begin, self.parts.sizes[part] if size is None else size)


def fused_sizes(layer) -> list[tuple[str | int, int]]:
    """Of a layer of several parts, what the engine calls each, and its outputs on all ranks together."""
    if hasattr(layer, "total_num_kv_heads"):
        value_size = getattr(layer, "v_head_size", layer.head_size)
        sizes = (
            layer.total_num_heads * layer.head_size,
            layer.total_num_kv_heads * layer.head_size,
            layer.total_num_kv_heads * value_size,
        )
        return list(zip("qkv", sizes))
    return list(enumerate(layer.output_sizes))


def loader_of(layer, own):
    """The weight loader of a layer's parameters: the engine's own, but for parts that lie in one tensor of a file."""

    def load(param, loaded_weight, loaded_shard_id=None):
        several = len(param.parts.sizes) > 1
        if not several:
            return own(param, loaded_weight)
        if loaded_shard_id is not None and not isinstance(loaded_shard_id, tuple):
            return own(param, loaded_weight, loaded_shard_id)
        begin = 0
        for shard, size in fused_sizes(layer):
            if isinstance(loaded_shard_id, tuple) and shard not in loaded_shard_id:
                continue
            words = {"shard_id": shard, "begin": begin, "num_heads": getattr(layer, "num_kv_head_replicas", 1)}
            load_part = param.load_qkv_weight if isinstance(shard, str) else param.load_merged_column_weight
            load_part(loaded_weight, **words)
            begin += size
        return None

    return load


def whole_loader(param, loaded_weight, loaded_shard_id=None):
    """The weight loader of a layer that every rank has as a whole."""
    sizes = param.parts.sizes
    begin = 0
    for part in range(len(sizes)) if loaded_shard_id is None else [loaded_shard_id]:
        param.load_whole(loaded_weight, part, begin)
        begin += sizes[part]


def head_loader(layer):
    """The weight loader of a head, of whose vocabulary a rank has a part, of the rows that the model has."""

    def load(param, loaded_weight, loaded_shard_id=None):
        at = layer.shard_indices
        param.parts.sizes[0] = at.org_vocab_end_index - at.org_vocab_start_index
        param.load_whole(loaded_weight, 0, at.org_vocab_start_index)

    return load

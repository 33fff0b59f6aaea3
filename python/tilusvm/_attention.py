"""The operators of attention: see ops."""

from __future__ import annotations

import dataclasses
import functools
import math

from ._torch import torch

from . import AssembleError, program
from ._formats import format_of
from ._registry import HALVES, TYPES, Operator, cast_all, need

# ---- of all queries ----

_ATTENTION_TYPES = (torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2)
#: Elements of a head of queries and keys, and of one of values.
HEADS = ((64, 64), (80, 80), (96, 96), (128, 128), (192, 128), (256, 256))


def check_heads(op: str, d: int, dv: int):
    """ValueError where attention takes no heads of so many elements."""
    if (d, dv) not in HEADS:
        raise ValueError(
            f"{op}: q and v must have heads of 64, 80, 96, 128 or 256 elements, or 192 and 128, not {d}, {dv}"
        )



def _attention_out(q, out_dtype):
    return out_dtype or (q.dtype if q.dtype in HALVES else torch.float16)


@functools.lru_cache(maxsize=None)
def _attention_kernel(dtype, out, page, cap, alibi):
    consts = {"T": TYPES[dtype], "OTYPE": TYPES[out]}
    return program("attention", **consts, PAGE=page, CAP=cap, ALIBI=alibi)["attention"]


def _attention(q, k, v, q_starts, k_starts, table, slopes, longest, scale, left, right, cap, out_dtype):
    tokens, heads, d = q.shape
    kv_heads, dv = k.shape[-2], v.shape[-1]
    kv_tokens = k.shape[0] if table is None else k.shape[0] * k.shape[1]
    out_dtype = _attention_out(q, out_dtype)
    out = torch.empty((tokens, heads, dv), dtype=out_dtype, device=q.device)
    lse = torch.empty((tokens, heads), dtype=torch.float32, device=q.device)
    page = 0 if table is None else k.shape[1]
    kernel = _attention_kernel(q.dtype, out_dtype, page, cap > 0, slopes is not None)
    args = [q_starts.shape[0] - 1, tokens, kv_tokens, heads, kv_heads, d, dv, longest, left, right, scale]
    if cap > 0:
        args.append(cap)
    if table is not None:
        args.append(table.shape[1])
    args += [q, k.view(kv_tokens, kv_heads, d), v.view(kv_tokens, kv_heads, dv)]
    if slopes is not None:
        args.append(slopes)
    args += [q_starts, k_starts]
    if table is not None:
        args.append(table)
    kernel(*args, out, lse)
    return out, lse


def _check_attention(q, k, v, q_starts, k_starts, table, slopes, longest, scale, left, right, cap, out_dtype):
    op = "attention"
    need(op, "q", q, dtype=_ATTENTION_TYPES, dim=3)
    paged = table is not None
    need(op, "k", k, dtype=q.dtype, dim=4 if paged else 3, like=q)
    need(op, "v", v, dtype=q.dtype, shape=(*k.shape[:-1], None), like=q)
    heads, d = q.shape[1:]
    kv_heads, dv = k.shape[-2], v.shape[-1]
    if k.shape[-1] != d:
        raise ValueError(f"{op}: k must have {d} elements in a head, as q has, not {k.shape[-1]}")
    check_heads(op, d, dv)
    if not kv_heads or heads % kv_heads:
        raise ValueError(f"{op}: the heads of q, {heads}, must be a multiple of those of k, {kv_heads}")
    need(op, "q_starts", q_starts, dtype=torch.int32, dim=1, like=q)
    sequences = q_starts.shape[0] - 1
    need(op, "k_starts", k_starts, dtype=torch.int32, shape=(sequences if paged else sequences + 1,), like=q)
    if paged:
        need(op, "table", table, dtype=torch.int32, shape=(sequences, None), like=q)
        if k.shape[1] not in (16, 32, 64, 128):
            raise ValueError(f"{op}: k must have pages of 16, 32, 64 or 128 rows, not {k.shape[1]}")
    if slopes is not None:
        need(op, "slopes", slopes, dtype=torch.float32, shape=(heads,), like=q)
    if out_dtype not in (None, *HALVES):
        raise TypeError(f"{op}: out_dtype must be torch.float16 or torch.bfloat16, not {out_dtype}")


def _fake_attention(q, k, v, q_starts, k_starts, table, slopes, longest, scale, left, right, cap, out_dtype):
    shape = (q.shape[0], q.shape[1], v.shape[-1])
    return q.new_empty(shape, dtype=_attention_out(q, out_dtype)), q.new_empty(shape[:2], dtype=torch.float32)


def _cast_attention(dtype, q, k, v, q_starts, k_starts, table, slopes, *rest):
    q, k, v = cast_all(dtype, q, k, v) if q.dtype not in _ATTENTION_TYPES[2:] else (q, k, v)
    return q, k, v, q_starts, k_starts, table, slopes, *rest


_attention_op = Operator(
    "attention(Tensor q, Tensor k, Tensor v, Tensor q_starts, Tensor k_starts, Tensor? table, Tensor? slopes, "
    "int longest, float scale, int left=-1, int right=-1, float cap=0.0, "
    "ScalarType? out_dtype=None) -> (Tensor, Tensor)",
    _attention,
    _check_attention,
    _fake_attention,
    _cast_attention,
)


def attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, q_starts: torch.Tensor, k_starts: torch.Tensor, *, longest: int,
    scale: float | None = None, left: int = -1, right: int = -1, cap: float = 0.0, table: torch.Tensor | None = None,
    slopes: torch.Tensor | None = None, out_dtype: torch.dtype | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """softmax(scale q k^T) v of a ragged batch, and the log of each row's sum of exponentials: (out, lse).

    q: [tokens, heads, d], k: [kv_tokens, kv_heads, d], v: [kv_tokens, kv_heads, dv], halves or float8; d and dv are
    64, 80, 96, 128, 256, or 192 and 128. q_starts, k_starts: i32 [sequences + 1], where each sequence begins, and the
    last ends; longest: the most queries of a sequence. With table, i32 [sequences, columns], k and v are pages
    [pages, rows, kv_heads, d], and k_starts the lengths, i32 [sequences]. The last query stands beside the last key,
    and sees `left` keys before its place and `right` behind it, negative: all; causal is -1, 0. scale: 1 / sqrt(d)
    when None; cap > 0: scores are cap * tanh(score / cap); slopes: f32 [heads], of ALiBi. out: [tokens, heads, dv];
    lse: f32 [tokens, heads].
    """
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    return _attention_op(
        q, k, v, q_starts, k_starts, table, slopes, longest, scale, left, right, cap, out_dtype
    )  # fmt: skip


# ---- of the newest tokens, to a paged cache ----


@dataclasses.dataclass(frozen=True)
class CacheFormat:
    """A paged cache of keys and values (kv_cache.vasminc): an int32 tensor of shape(pages, kv_heads).

    dtype: of queries and new keys, a half; k_type, v_type: a low-precision type, or None for dtype; head: elements of
    a head; page: tokens of a page, 16, 32, 64 or 128; k_group, v_group: elements that share a scale, None for the
    head; k_channels: scales of keys are of channels, tensors f32 [kv_heads, head], and not in the cache; k_zeros,
    v_zeros: zero points, for unsigned types.
    """

    dtype: torch.dtype = torch.float16
    k_type: str | None = None
    v_type: str | None = None
    head: int = 128
    page: int = 16
    k_group: int | None = None
    v_group: int | None = None
    k_channels: bool = False
    k_zeros: bool = False
    v_zeros: bool = False

    def constants(self) -> dict:
        """Of the programs that read and write it."""
        if self.dtype not in HALVES:
            raise TypeError(f"dtype must be torch.float16 or torch.bfloat16, not {self.dtype}")
        consts = {"ATYPE": TYPES[self.dtype], "D": self.head, "PAGE": self.page}
        for name, value in (
            ("KTYPE", self.k_type),
            ("VTYPE", self.v_type),
            ("KGROUP", self.k_group),
            ("VGROUP", self.v_group),
        ):
            if value is not None:
                consts[name] = value
        flags = {"KCHANNELS": self.k_channels, "KZEROS": self.k_zeros, "VZEROS": self.v_zeros}
        return consts | {name: True for name, flag in flags.items() if flag}

    def _words(self, type, group, zeros, channels=False):
        """Of a slab's keys, or values: of their codes, of their scales and zero points."""
        if type is not None and format_of(type).kind == "t":
            raise ValueError(f"a cache of keys and values has numbers, not codes of a table, as {type}")
        bits = 16 if type is None else format_of(type).bits
        scaled = type is not None and not channels
        groups = self.head // (group or self.head)
        return self.head * bits // 2, 8 * groups * (scaled + (scaled and zeros))

    def shape(self, pages: int, kv_heads: int) -> tuple[int, int, int, int]:
        """Of the cache: pages, heads, slabs of 16 tokens, words."""
        k = self._words(self.k_type, self.k_group, self.k_zeros, self.k_channels)
        return pages, kv_heads, self.page // 16, sum(k) + sum(self._words(self.v_type, self.v_group, self.v_zeros))

    @property
    def turns(self) -> bool:
        """Can keys be turned as they are appended: rotation of kv_append, and qkv_append?"""
        return self.head % 32 == 0

    def check(self) -> None:
        """ValueError where the programs take no such cache, with what they say."""
        self.shape(1, 1)
        try:
            _cache_kernel("kv_append", "kv_append", _text(self))
        except AssembleError as error:
            reason = str(error).partition("\n")[0].removeprefix(f"{error.file}:{error.line}:{error.column}: ")
            types = " and ".join(dict.fromkeys(t or str(self.dtype) for t in (self.k_type, self.v_type)))
            raise ValueError(f"no cache has {types} for heads of {self.head} elements: {reason}") from error

    def zeros(self, pages: int, kv_heads: int, device: torch.device | str | None = None) -> torch.Tensor:
        """A cache of nothing."""
        return torch.zeros(self.shape(pages, kv_heads), dtype=torch.int32, device=device)

    def __str__(self) -> str:
        return ",".join(str(getattr(self, field.name)) for field in dataclasses.fields(self))


_formats: dict[str, CacheFormat] = {}  # by their texts, as which operators take them


def _text(format: CacheFormat) -> str:
    text = str(format)
    _formats.setdefault(text, format)
    return text


@functools.lru_cache(maxsize=None)
def _cache_kernel(name, entry, text, *consts):
    return program(name, **_formats[text].constants(), **dict(consts))[entry]


def _need_cache(op, cache, format, table, lengths, like):
    need(op, "cache", cache, dtype=torch.int32, dim=4, like=like)
    need(op, "cache", cache, shape=format.shape(*cache.shape[:2]))
    need(op, "lengths", lengths, dtype=torch.int32, dim=1, like=cache)
    need(op, "table", table, dtype=torch.int32, shape=(lengths.shape[0], None), like=cache)


def _need_channels(op, format, kv_heads, k_scale, k_zero, like):
    wanted = {"k_scale": (k_scale, format.k_channels), "k_zero": (k_zero, format.k_channels and format.k_zeros)}
    for name, (tensor, wants) in wanted.items():
        if (tensor is not None) != wants:
            raise ValueError(f"{op}: {name} {'is missing' if wants else 'goes with a format that has k_channels'}")
        if wants:
            need(op, name, tensor, dtype=torch.float32, shape=(kv_heads, format.head), like=like)


def _flags(**flags):
    """Constants of those that are set."""
    return tuple((name, True) for name, flag in flags.items() if flag)


def _decode(q, cache, table, lengths, k_scale, k_zero, format, window, scale, cap, early):
    batch, queries, heads, d = q.shape
    out = torch.empty_like(q)
    lse = torch.empty((batch, queries, heads), dtype=torch.float32, device=q.device)
    consts = _flags(LSE=True, SOFT_CAP=cap > 0, EARLY=early)
    kernel = _cache_kernel("attention_decode", "attention_decode", format, *consts)
    args = [batch, queries, heads, cache.shape[1], cache.shape[0], table.shape[1], window, scale]
    if cap > 0:
        args.append(cap)
    args += [q.view(-1, heads, d), cache.view(torch.uint32), table, lengths]
    args += [t for t in (k_scale, k_zero) if t is not None]
    kernel(*args, out.view(-1, heads, d), lse.view(-1, heads))
    return out, lse


def _check_decode(q, cache, table, lengths, k_scale, k_zero, format, window, scale, cap, early):
    op, format = "attention_decode", _formats[format]
    need(op, "q", q, dtype=format.dtype, dim=4)
    _need_cache(op, cache, format, table, lengths, q)
    need(op, "q", q, shape=(lengths.shape[0], None, None, format.head))
    if q.shape[2] % cache.shape[1]:
        raise ValueError(f"{op}: the heads of q, {q.shape[2]}, must be a multiple of the cache's, {cache.shape[1]}")
    _need_channels(op, format, cache.shape[1], k_scale, k_zero, q)


def _fake_decode(q, cache, table, lengths, k_scale, k_zero, format, window, scale, cap, early):
    return torch.empty_like(q), q.new_empty(q.shape[:3], dtype=torch.float32)


def _cast_decode(dtype, q, cache, table, lengths, k_scale, k_zero, format, *rest):
    return q.to(_formats[format].dtype), cache, table, lengths, k_scale, k_zero, format, *rest


_decode_op = Operator(
    "attention_decode(Tensor q, Tensor cache, Tensor table, Tensor lengths, Tensor? k_scale, Tensor? k_zero, "
    "str format, int window, float scale, float cap, bool early=False) -> (Tensor, Tensor)",
    _decode,
    _check_decode,
    _fake_decode,
    _cast_decode,
)


def attention_decode(
    q: torch.Tensor, cache: torch.Tensor, table: torch.Tensor, lengths: torch.Tensor, format: CacheFormat, *,
    window: int = 0, scale: float | None = None, cap: float = 0.0, k_scale: torch.Tensor | None = None,
    k_zero: torch.Tensor | None = None, early: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Attention of the newest tokens of sequences to all that a paged cache has of them: (out, lse).

    q: [batch, queries, heads, head] of the format's dtype, the newest tokens, which see each other causally; cache:
    int32, format.shape(pages, kv_heads); table: i32 [batch, max_pages], the pages of each sequence; lengths: i32
    [batch], their tokens, the newest included. window > 0: a query sees that many tokens, itself included. scale: 1 /
    sqrt(head) when None; cap > 0: scores are cap * tanh(score / cap). out as q; lse: f32 [batch, queries, heads].
    early: lengths, table and the cache's older tokens are read while this package's launches before may still run: none
    of those since the latest launch of another kernel, such as torch's, may write them.
    """
    scale = 1 / math.sqrt(format.head) if scale is None else scale
    return _decode_op(q, cache, table, lengths, k_scale, k_zero, _text(format), window, scale, cap, early)


def _append(k, v, cache, starts, table, lengths, rotation, k_scale, k_zero, format, longest, early):
    batch, tokens, kv_heads = lengths.shape[0], k.shape[0], k.shape[1]
    kernel = _cache_kernel("kv_append", "kv_append", format, *_flags(ROPE=rotation is not None, EARLY=early))
    args = [batch, tokens, longest, kv_heads, cache.shape[0], table.shape[1]]
    if rotation is not None:
        args.append(rotation.shape[0])
    args += [starts, table, lengths, k, v]
    args += [t for t in (rotation, k_scale, k_zero) if t is not None]
    kernel(*args, cache.view(torch.uint32))


def _check_append(k, v, cache, starts, table, lengths, rotation, k_scale, k_zero, format, longest, early):
    op, format = "kv_append", _formats[format]
    need(op, "k", k, dtype=format.dtype, shape=(None, None, format.head))
    need(op, "v", v, dtype=format.dtype, shape=tuple(k.shape), like=k)
    _need_cache(op, cache, format, table, lengths, k)
    need(op, "cache", cache, shape=(None, k.shape[1], None, None))
    need(op, "starts", starts, dtype=torch.int32, shape=(lengths.shape[0] + 1,), like=k)
    if rotation is not None:
        need(op, "rotation", rotation, dtype=torch.float32, shape=(None, format.head), like=k)
    _need_channels(op, format, k.shape[1], k_scale, k_zero, k)


def _cast_append(dtype, k, v, cache, starts, table, lengths, rotation, k_scale, k_zero, format, *rest):
    half = _formats[format].dtype
    return k.to(half), v.to(half), cache, starts, table, lengths, rotation, k_scale, k_zero, format, *rest


def _append_qkv(qkv, cache, starts, table, lengths, rotation, format, longest, early):
    batch, tokens, kv_heads, d = lengths.shape[0], qkv.shape[0], cache.shape[1], _formats[format].head
    heads = qkv.shape[1] // d - 2 * kv_heads
    q = qkv.new_empty((tokens, heads, d))
    kernel = _cache_kernel("kv_append", "kv_append", format, *_flags(QKV=True, EARLY=early))
    sizes = [batch, tokens, longest, heads, kv_heads, cache.shape[0], table.shape[1], rotation.shape[0]]
    kernel(
        *sizes, starts, table, lengths, qkv.view(tokens, heads + 2 * kv_heads, d), rotation, q, cache.view(torch.uint32)
    )
    return q


def _check_append_qkv(qkv, cache, starts, table, lengths, rotation, format, longest, early):
    op, format = "qkv_append", _formats[format]
    need(op, "qkv", qkv, dtype=format.dtype, dim=2)
    _need_cache(op, cache, format, table, lengths, qkv)
    kv_heads = cache.shape[1]
    if qkv.shape[1] % format.head or qkv.shape[1] < 2 * kv_heads * format.head:
        raise ValueError(
            f"{op}: qkv must have heads of {format.head} elements, {kv_heads} of them keys and {kv_heads} values, not "
            f"{qkv.shape[1]} columns"
        )
    need(op, "starts", starts, dtype=torch.int32, shape=(lengths.shape[0] + 1,), like=qkv)
    need(op, "rotation", rotation, dtype=torch.float32, shape=(None, format.head), like=qkv)
    if format.k_channels:
        raise ValueError(f"{op}: the format must not have k_channels")


def _fake_append_qkv(qkv, cache, starts, table, lengths, rotation, format, longest, early):
    d = _formats[format].head
    return qkv.new_empty((qkv.shape[0], qkv.shape[1] // d - 2 * cache.shape[1], d))


def _cast_append_qkv(dtype, qkv, cache, starts, table, lengths, rotation, format, *rest):
    return qkv.to(_formats[format].dtype), cache, starts, table, lengths, rotation, format, *rest


_append_qkv_op = Operator(
    "qkv_append(Tensor qkv, Tensor(a!) cache, Tensor starts, Tensor table, Tensor lengths, Tensor rotation, "
    "str format, int longest, bool early=False) -> Tensor",
    _append_qkv,
    _check_append_qkv,
    _fake_append_qkv,
    _cast_append_qkv,
)


def qkv_append(
    qkv: torch.Tensor, cache: torch.Tensor, starts: torch.Tensor, table: torch.Tensor, lengths: torch.Tensor,
    format: CacheFormat, *, longest: int, rotation: torch.Tensor, early: bool = False,
) -> torch.Tensor:  # fmt: skip
    """kv_append, and rope of the queries, of what one product gives: one launch; the queries, turned.

    qkv: [tokens, (heads + 2 kv_heads) * head], of a token the queries, then the keys, then the values; the rest as for
    kv_append, and formats without k_channels. Returns [tokens, heads, head].
    """
    return _append_qkv_op(qkv, cache, starts, table, lengths, rotation, _text(format), longest, early)


_append_op = Operator(
    "kv_append(Tensor k, Tensor v, Tensor(a!) cache, Tensor starts, Tensor table, Tensor lengths, Tensor? rotation, "
    "Tensor? k_scale, Tensor? k_zero, str format, int longest, bool early=False) -> ()",
    _append,
    _check_append,
    lambda *args: None,
    _cast_append,
)


def kv_append(
    k: torch.Tensor, v: torch.Tensor, cache: torch.Tensor, starts: torch.Tensor, table: torch.Tensor,
    lengths: torch.Tensor, format: CacheFormat, *, longest: int, rotation: torch.Tensor | None = None,
    k_scale: torch.Tensor | None = None, k_zero: torch.Tensor | None = None, early: bool = False,
) -> None:  # fmt: skip
    """Puts new keys and values of sequences into their pages of a cache, quantized as its format says.

    k, v: [tokens, kv_heads, head] of the format's dtype; starts: i32 [batch + 1], the rows of k and v of each sequence;
    longest: no sequence has more; table, lengths: as for attention_decode, the new tokens included. rotation: f32 [max,
    head], the table of rope, by which keys are turned first (half style). early: starts, table and lengths are read
    while this package's launches before may still run, as attention_decode does.
    """
    _append_op(k, v, cache, starts, table, lengths, rotation, k_scale, k_zero, _text(format), longest, early)

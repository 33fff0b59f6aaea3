"""The operators of attention: see ops."""

from __future__ import annotations

import dataclasses

from ._torch import torch

from . import AssembleError, program
from ._formats import format_of
from ._registry import FLOATS, HALVES, need, operator
from ._signature import TYPES

# ---- of all queries ----

#: Elements of a head of queries and keys, and of one of values.
HEADS = ((64, 64), (80, 80), (96, 96), (128, 128), (192, 128), (256, 256))


def check_heads(op: str, d: int, dv: int):
    """ValueError where attention takes no heads of so many elements."""
    if (d, dv) not in HEADS:
        raise ValueError(
            f"{op}: q and v must have heads of 64, 80, 96, 128 or 256 elements, or 192 and 128, not {d}, {dv}"
        )


BLOCKS = (64, 128)  #: queries, and keys, of a block


def chosen_blocks(mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """counts and chosen of attention, of bool [sequences, heads, blocks of queries, blocks of keys]: does a block of
    queries of a head see that block of keys?"""
    need("chosen_blocks", "mask", mask, dtype=torch.bool, dim=4)
    counts = mask.sum(-1, dtype=torch.int32)
    order = torch.argsort(mask.int(), dim=-1, descending=True, stable=True).int()
    places = torch.arange(mask.shape[-1], device=mask.device)
    return counts, torch.where(places < counts[..., None], order, -1)


def _check_attention(op, q, k, v, table, out_dtype, counts, chosen, block):
    need(op, "q", q, dim=3)
    need(op, "k", k, dim=3 if table is None else 4)
    heads, d = q.shape[1:]
    kv_heads = k.shape[-2]
    if k.shape[-1] != d:
        raise ValueError(f"{op}: k must have {d} elements in a head, as q has, not {k.shape[-1]}")
    check_heads(op, d, v.shape[-1] if v.dim() else 0)
    if not kv_heads or heads % kv_heads:
        raise ValueError(f"{op}: the heads of q, {heads}, must be a multiple of those of k, {kv_heads}")
    if table is not None and k.shape[1] not in (16, 32, 64, 128):
        raise ValueError(f"{op}: k must have pages of 16, 32, 64 or 128 rows, not {k.shape[1]}")
    if (counts is None) != (chosen is None):
        raise ValueError(f"{op}: counts and chosen go together")
    if chosen is not None and block not in BLOCKS:
        raise ValueError(f"{op}: block must be 64 or 128, not {block}")


@operator(
    "attention", T=("q", (*HALVES, torch.float8_e4m3fn, torch.float8_e5m2)), OTYPE=("out_dtype", HALVES),
    PAGE=lambda k, table: 0 if table is None else k.shape[1], CAP=lambda cap: cap > 0, ALIBI="slopes",
    SINKS="sinks", BLOCK=lambda chosen, block: None if chosen is None else block,
    scale=lambda q, scale: q.shape[-1] ** -0.5 if scale is None else scale, names={"lengths": "k_starts"},
    shapes=lambda constants: {"kv_tokens": f"pages, {constants['PAGE']}"} if constants["PAGE"] else {},
    check=_check_attention, multiplies=True, tensors_first=True,
)  # fmt: skip
def attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, q_starts: torch.Tensor, k_starts: torch.Tensor, *, longest: int,
    scale: float | None = None, left: int = -1, right: int = -1, cap: float = 0.0, table: torch.Tensor | None = None,
    slopes: torch.Tensor | None = None, sinks: torch.Tensor | None = None, counts: torch.Tensor | None = None,
    chosen: torch.Tensor | None = None, block: int = 128, out_dtype: torch.dtype | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """softmax(scale q k^T) v of a ragged batch, and the log of each row's sum of exponentials: (out, lse).

    q: [tokens, heads, d], k: [kv_tokens, kv_heads, d], v: [kv_tokens, kv_heads, dv], halves or float8; d and dv are 64,
    80, 96, 128, 256, or 192 and 128. q_starts, k_starts: i32 [sequences + 1], where each sequence begins, and the last
    ends; longest: the most queries of a sequence. With table, i32 [sequences, columns], k and v are pages [pages, rows,
    kv_heads, d], and k_starts the lengths, i32 [sequences]. The last query stands beside the last key, and sees `left`
    keys before its place and `right` behind it, negative: all; causal is -1, 0. scale: 1 / sqrt(d) when None; cap > 0:
    scores are cap * tanh(score / cap); slopes: f32 [heads], of ALiBi; sinks: f32 [heads], of a key more that all
    queries see, whose value is zero, so that its exponential joins the sum. With chosen, i32 [sequences, heads,
    cdiv(longest, block), most], and counts, i32 [sequences, heads, cdiv(longest, block)], the `block` queries (64 or
    128) of block i of a sequence see no keys but those of the first counts[b, head, i] blocks of keys of chosen[b,
    head, i], in any order: chosen_blocks makes both of a mask. out: [tokens, heads, dv]; lse: f32 [tokens, heads].
    """


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
            program("kv_append", **self.constants())
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


def format_text(format: CacheFormat | None) -> str | None:
    """As operators take it."""
    if format is None:
        return None
    if not isinstance(format, CacheFormat):
        raise TypeError(f"format must be a CacheFormat, not {type(format).__name__}")
    text = str(format)
    _formats.setdefault(text, format)
    return text


def format_given(text: str) -> CacheFormat:
    return _formats[text]


#: Of operators that a paged cache goes with.
_OF_CACHE = {
    "constants": lambda format: _formats[format].constants(), "convert": {"format": format_text}, "EARLY": "early",
    "batch": lambda lengths: lengths.shape[0],
}  # fmt: skip


def _check_channels(op, k_scale, k_zero, format):
    format = _formats[format]
    wanted = {"k_scale": (k_scale, format.k_channels), "k_zero": (k_zero, format.k_channels and format.k_zeros)}
    for name, (tensor, wants) in wanted.items():
        if (tensor is not None) != wants:
            raise ValueError(f"{op}: {name} {'is missing' if wants else 'goes with a format that has k_channels'}")


def _check_decode(op, q, cache, k_scale, k_zero, format):
    need(op, "q", q, dim=4)
    need(op, "cache", cache, dim=4)
    if q.shape[2] % cache.shape[1]:
        raise ValueError(f"{op}: the heads of q, {q.shape[2]}, must be a multiple of the cache's, {cache.shape[1]}")
    _check_channels(op, k_scale, k_zero, format)


@operator(
    "attention_decode", **_OF_CACHE, LSE=True, SOFT_CAP=lambda cap: cap > 0, SINKS="sinks",
    scale=lambda q, scale: q.shape[-1] ** -0.5 if scale is None else scale,
    shapes={"batch * queries": "batch, queries"}, check=_check_decode, tensors_first=True,
)  # fmt: skip
def attention_decode(
    q: torch.Tensor, cache: torch.Tensor, table: torch.Tensor, lengths: torch.Tensor, format: CacheFormat, *,
    window: int = 0, scale: float | None = None, cap: float = 0.0, k_scale: torch.Tensor | None = None,
    k_zero: torch.Tensor | None = None, sinks: torch.Tensor | None = None, early: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Attention of the newest tokens of sequences to all that a paged cache has of them: (out, lse).

    q: [batch, queries, heads, head] of the format's dtype, the newest tokens, which see each other causally; cache:
    int32, format.shape(pages, kv_heads); table: i32 [batch, max_pages], the pages of each sequence; lengths: i32
    [batch], their tokens, the newest included. window > 0: a query sees that many tokens, itself included. scale: 1 /
    sqrt(head) when None; cap > 0: scores are cap * tanh(score / cap); sinks: f32 [heads], as for
    attention. out as q; lse: f32 [batch, queries, heads].
    early: lengths, table and the cache's older tokens are read while this package's launches before may still run: none
    of those since the latest launch of another kernel, such as torch's, may write them.
    """


def _check_merge(op, x, x_lse):
    need(op, "x", x, dim=4)
    need(op, "x_lse", x_lse, dim=3)
    if not 1 <= x.shape[0] <= 1024 or not 1 <= x.shape[3] <= 1024:
        raise ValueError(f"{op}: x must have 1 to 1024 parts of heads of 1 to 1024 elements, not {list(x.shape)}")


@operator(
    "attention_merge", T=("x", FLOATS), OTYPE=("out_dtype", FLOATS), SINKS="sinks", check=_check_merge,
    tensors_first=True,
)  # fmt: skip
def attention_merge(
    x: torch.Tensor, x_lse: torch.Tensor, sinks: torch.Tensor | None = None, *, out_dtype: torch.dtype | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Attention to all keys, of that to parts of them: (out, lse).

    x: a float [parts, tokens, heads, d], what attention gave of each part, d up to 1024; x_lse: f32 [parts, tokens,
    heads], -inf for none; sinks: f32 [heads], as for attention, of parts that were computed without. out: [tokens,
    heads, d] of out_dtype, a float, or x's; lse: f32 [tokens, heads].
    """


STYLES = ("half", "interleaved")  #: of rope


def _check_qkv(op, qkv, cache, format):
    need(op, "qkv", qkv, dim=2)
    need(op, "cache", cache, dim=4)
    format, kv_heads = _formats[format], cache.shape[1]
    if qkv.shape[1] % format.head or qkv.shape[1] < 2 * kv_heads * format.head:
        raise ValueError(
            f"{op}: qkv must have heads of {format.head} elements, {kv_heads} of them keys and {kv_heads} values, not "
            f"{qkv.shape[1]} columns"
        )
    if format.k_channels:
        raise ValueError(f"{op}: the format must not have k_channels")


def _one_product(constants):
    d = constants["D"]
    return {f"heads + 2 * kv_heads, {d}": f"(heads + 2 * kv_heads) * {d}"}


@operator(
    "kv_append", **_OF_CACHE, QKV=True, STYLE=("style", STYLES), shapes=_one_product, writes=("cache",),
    check=_check_qkv, tensors_first=True,
)  # fmt: skip
def qkv_append(
    qkv: torch.Tensor, cache: torch.Tensor, starts: torch.Tensor, table: torch.Tensor, lengths: torch.Tensor,
    format: CacheFormat, *, longest: int, rotation: torch.Tensor, early: bool = False, style: str = "half",
) -> torch.Tensor:  # fmt: skip
    """kv_append, and rope of the queries, of what one product gives: one launch; the queries, turned.

    qkv: [tokens, (heads + 2 * kv_heads) * head], of a token the queries, then the keys, then the values; the rest as
    for kv_append, and formats without k_channels; style: of rope. Returns [tokens, heads, head].
    """


@operator(
    "kv_append", **_OF_CACHE, ROPE="rotation", STYLE=("style", STYLES), writes=("cache",), check=_check_channels,
    tensors_first=True,
)  # fmt: skip
def kv_append(
    k: torch.Tensor, v: torch.Tensor, cache: torch.Tensor, starts: torch.Tensor, table: torch.Tensor,
    lengths: torch.Tensor, format: CacheFormat, *, longest: int, rotation: torch.Tensor | None = None,
    k_scale: torch.Tensor | None = None, k_zero: torch.Tensor | None = None, early: bool = False, style: str = "half",
) -> None:  # fmt: skip
    """Puts new keys and values of sequences into their pages of a cache, quantized as its format says.

    k, v: [tokens, kv_heads, head] of the format's dtype; starts: i32 [batch + 1], the rows of k and v of each sequence;
    longest: no sequence has more; table, lengths: as for attention_decode, the new tokens included. rotation: f32 [max,
    head], the table of rope, by which keys are turned first; style: of rope. early: starts, table and lengths are read
    while this package's launches before may still run, as attention_decode does.
    """

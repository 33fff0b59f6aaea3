"""The operator of multi-head latent attention, and its cache: see ops."""

from __future__ import annotations

import dataclasses

from ._torch import torch

from ._attention import STYLES
from ._registry import HALVES, need, operator

LATENT, ROPE = 512, 64  #: elements of a value, and those that only a key has
_PAGES = (16, 32, 64, 128)
_TYPES = ("f8_e4m3", "i8", "u4")  #: of latents, beside those of queries


@dataclasses.dataclass(frozen=True)
class LatentFormat:
    """Rows of a paged cache of latents (mla_decode.vasm): a tensor of shape(pages).

    dtype: of queries, and of what is not quantized, a half; type: of latents, "f8_e4m3", "i8" or "u4" with a scale for
    each group of 128 elements (64 of "u4"), or None for dtype; page: tokens of a page, 16, 32, 64 or 128.
    """

    dtype: torch.dtype = torch.bfloat16
    type: str | None = None
    page: int = 64

    def __post_init__(self):
        if self.dtype not in HALVES:
            raise TypeError(f"dtype must be torch.float16 or torch.bfloat16, not {self.dtype}")
        if self.type is not None and self.type not in _TYPES:
            raise ValueError(f'type must be None, "f8_e4m3", "i8" or "u4", not {self.type!r}')
        if self.page not in _PAGES:
            raise ValueError(f"page must be 16, 32, 64 or 128, not {self.page!r}")

    @property
    def _group(self):
        return 64 if self.type == "u4" else 128

    @property
    def _scale_dtype(self):
        return torch.float16 if self.type == "u4" else torch.float32

    def shape(self, pages: int) -> tuple[int, int, int]:
        """Of the cache: pages, rows, elements of dtype, or bytes."""
        codes = {None: 0, "f8_e4m3": LATENT, "i8": LATENT, "u4": LATENT // 2}[self.type]
        scales = LATENT // self._group * self._scale_dtype.itemsize
        return pages, self.page, codes + scales + ROPE * 2 if self.type else LATENT + ROPE

    def zeros(self, pages: int, device: torch.device | str | None = None) -> torch.Tensor:
        """A cache of nothing."""
        return torch.zeros(self.shape(pages), dtype=torch.uint8 if self.type else self.dtype, device=device)

    def rows(self, latents: torch.Tensor, rope: torch.Tensor) -> torch.Tensor:
        """Rows of the cache, of latents [..., 512] and the other elements of keys, [..., 64]."""
        if self.type is None:
            return torch.cat([latents, rope], -1).to(self.dtype)
        groups = latents.float().unflatten(-1, (-1, self._group))
        greatest = {"f8_e4m3": 448.0, "i8": 127.0, "u4": 7.0}[self.type]
        scales = (groups.abs().amax(-1) / greatest).clamp_min(2.0**-14).to(self._scale_dtype)
        scaled = (groups / scales.float()[..., None]).flatten(-2)
        if self.type == "f8_e4m3":
            codes = scaled.clamp(-greatest, greatest).to(torch.float8_e4m3fn)
        elif self.type == "i8":
            codes = scaled.round().clamp(-greatest, greatest).to(torch.int8)
        else:
            nibbles = (scaled.round().clamp(-7, 7).to(torch.uint8) + 8).unflatten(-1, (-1, 4, 2)) & 15
            # packing pair: of a word's 16-bit halves the lower one has elements 0, 2, 4 and 6
            halves = nibbles[..., 0::2, :] | nibbles[..., 1::2, :] << 4
            codes = halves.transpose(-1, -2).flatten(-3)
        parts = (codes, scales, rope.to(self.dtype))
        return torch.cat([part.contiguous().view(torch.uint8) for part in parts], -1)

    def append(self, cache: torch.Tensor, latents: torch.Tensor, rope: torch.Tensor, slots: torch.Tensor) -> None:
        """Puts tokens' latents [tokens, 512] and rope [tokens, 64] to rows of the cache: slots[i] is a page times
        `page` and the row in it."""
        cache.view(-1, cache.shape[-1])[slots.long()] = self.rows(latents, rope)

    def elements(self, rows: torch.Tensor) -> torch.Tensor:
        """What rows stand for, float32 [..., 576]."""
        if self.type is None:
            return rows.float()
        codes, scales, rope = rows.split([self.shape(1)[2] - 16 - 2 * ROPE, 16, 2 * ROPE], -1)
        if self.type == "u4":
            halves = codes.unflatten(-1, (-1, 2, 2)).transpose(-1, -2)
            values = torch.stack([halves & 15, halves >> 4], -2).flatten(-4).float() - 8
        else:
            kind = torch.int8 if self.type == "i8" else torch.float8_e4m3fn
            values = codes.contiguous().view(kind).float()
        scales = scales.contiguous().view(self._scale_dtype).float()
        values = values * scales.repeat_interleave(self._group, -1)
        return torch.cat([values, rope.contiguous().view(self.dtype).float()], -1)


def _check_cache(op, cache, dtype, type):
    need(op, "cache", cache, dim=3, dtype=torch.uint8 if type else dtype)
    if cache.shape[1] not in _PAGES:
        raise ValueError(f"{op}: cache must have pages of 16, 32, 64 or 128 rows, not {cache.shape[1]}")


def _check_mla(op, q, cache, chosen, type):
    need(op, "q", q, dim=4)
    if q.shape[3] != LATENT + ROPE:
        raise ValueError(f"{op}: q must have heads of {LATENT + ROPE} elements, not {q.shape[3]}")
    _check_cache(op, cache, q.dtype, type)
    if chosen is not None:
        need(op, "chosen", chosen, dim=3)


@operator(
    "mla_decode", T=("q", HALVES), LTYPE=("type", _TYPES), PAGE=lambda cache: cache.shape[1], SPARSE="chosen",
    scale=lambda scale: (128 + ROPE) ** -0.5 if scale is None else scale,
    shapes={"batch * queries": "batch, queries"}, check=_check_mla, multiplies=False, tensors_first=True,
)  # fmt: skip
def mla_decode(
    q: torch.Tensor, cache: torch.Tensor, table: torch.Tensor, lengths: torch.Tensor, *, type: str | None = None,
    scale: float | None = None, chosen: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Multi-head latent attention, absorbed, of the newest tokens to a paged cache of latents: (out, lse).

    q: halves [batch, queries, heads, 576], the newest tokens, which see each other causally, times the matrix that
    makes keys of latents, and their rotated part; cache: LatentFormat(q.dtype, type, rows).shape(pages); table: i32
    [batch, max_pages], the pages of each sequence; lengths: i32 [batch], their tokens, the newest included. chosen: i32
    [batch, queries, topk], the tokens that each query attends to, by their places in the sequence; what it does not
    see, such as -1, is none. scale: 1 / sqrt(192) when None, as heads of 128 and 64 elements have it. out: [batch,
    queries, heads, 512], still to be multiplied by the matrix that makes values; lse: f32 [batch, queries, heads].
    """


def _check_append(op, x, cache, positions, rotation, type):
    need(op, "x", x, dim=2)
    if x.shape[1] != LATENT + ROPE:
        raise ValueError(f"{op}: x must have {LATENT + ROPE} columns, not {x.shape[1]}")
    _check_cache(op, cache, x.dtype, type)
    if (positions is None) != (rotation is None):
        raise ValueError(f"{op}: positions and rotation go together")


@operator(
    "mla_append", T=("x", HALVES), LTYPE=("type", _TYPES), PAGE=lambda cache: cache.shape[1], NORM="weight",
    TURNS="rotation", STYLE=("style", STYLES), writes=("cache",), check=_check_append, tensors_first=True,
)  # fmt: skip
def mla_append(
    x: torch.Tensor, cache: torch.Tensor, slots: torch.Tensor, positions: torch.Tensor | None = None,
    rotation: torch.Tensor | None = None, weight: torch.Tensor | None = None, *, type: str | None = None,
    style: str = "half", eps: float = 1e-6,
) -> None:  # fmt: skip
    """Puts tokens' latents, and the turned part of their keys, into rows of a paged cache, quantized as it says.

    x: halves [tokens, 576], of a token 512 latents, then 64 other elements of its key; cache: LatentFormat(x.dtype,
    type, rows).shape(pages); slots: i32 [tokens], a page times `rows` and the row in it, negative for nowhere. weight:
    [512] of x's type: latents go through rms_norm(latents, weight, eps) first. rotation: f32 [max, 64], the table of
    rope, by which the others are turned at positions, i32 [tokens]; style: of rope.
    """


# ---- which tokens to attend to ----

_INDEXED = (torch.bfloat16, torch.float16, torch.float8_e4m3fn)
_MOST_HEADS = (16, 32, 64, 128)


def _check_index(op, q, cache, key_scales):
    need(op, "q", q, dim=4)
    need(op, "cache", cache, dim=3)
    if q.shape[3] not in (64, 128):
        raise ValueError(f"{op}: q must have heads of 64 or 128 elements, not {q.shape[3]}")
    if not 1 <= q.shape[2] <= _MOST_HEADS[-1]:
        raise ValueError(f"{op}: q must have 1 to {_MOST_HEADS[-1]} heads, not {q.shape[2]}")
    if cache.shape[1] not in _PAGES:
        raise ValueError(f"{op}: cache must have pages of 16, 32, 64 or 128 rows, not {cache.shape[1]}")
    if (key_scales is not None) != (q.dtype == torch.float8_e4m3fn):
        raise ValueError(f"{op}: key_scales go with q and cache of float8_e4m3fn")


@operator(
    "index_scores", T=("q", _INDEXED), D=lambda q: q.shape[3], PAGE=lambda cache: cache.shape[1],
    HEADS=lambda q: next((most for most in _MOST_HEADS if most >= q.shape[2]), _MOST_HEADS[-1]),
    shapes={"batch * queries": "batch, queries"}, check=_check_index, names={"keys": "cache"}, tensors_first=True,
)  # fmt: skip
def index_scores(
    q: torch.Tensor, weights: torch.Tensor, cache: torch.Tensor, table: torch.Tensor, lengths: torch.Tensor,
    key_scales: torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    """How much each token of a paged cache matters to the newest ones, as DeepSeek's sparse attention asks: f32 [batch,
    queries, max_pages * page], the sum over heads of weights * max(q . key, 0), times the key's scale; -inf where a
    query does not see a token.

    q: [batch, queries, heads, head], bfloat16, float16 or float8_e4m3fn, up to 128 heads of 64 or 128 elements;
    weights: f32 [batch, queries, heads]; cache: the keys, [pages, page, head] of q's type; key_scales: f32 [pages, page], of 8
    bits; table: i32 [batch, max_pages], the pages of each sequence; lengths: i32 [batch], their tokens, the newest
    included.
    """


def _check_topk_set(op, x, k):
    need(op, "x", x, dtype=torch.float32)
    if not 0 <= k < 1 << 31:
        raise ValueError(f"{op}: k must be from 0 to 2^31 - 1, not {k}")


@operator("topk_set", shapes={"m": "..."}, check=_check_topk_set)
def topk_set(x: torch.Tensor, k: int) -> torch.Tensor:
    """Where the k greatest elements of the last dimension of x, f32 [..., n], are: i32 [..., k], in ascending order,
    whatever k is; of equal ones those with the lowest indices. -inf and NaN count for nothing, and -1 stands behind the
    others where there are fewer than k."""

"""The types of keys and values in a cache, as a user names them, and the size of a token in it."""

from __future__ import annotations

import re

from .._formats import format_of
from .._torch import torch
from ..ops import CacheFormat

__all__ = ["VARIABLE", "format_for", "token_bytes", "types_of"]

VARIABLE = "TILUSVM_KV_CACHE"  #: the environment variable that names them
_PLAIN = ("", "auto", "none")


def types_of(text: str | None, said: str = f"{VARIABLE}=") -> dict:
    """k_type, v_type, k_zeros and v_zeros of a CacheFormat.

    text: `u4` for both, `u8,u4` for keys and values, `k8v4` for u8 and u4; `none` is the type of activations; with
    `+zeros` unsigned types have zero points. ValueError where it is none of these; said: how it begins.
    """
    text = (text or "").strip()
    kinds, _, flag = text.partition("+")
    if flag not in ("", "zeros"):
        raise ValueError(f"{said}{text}: behind + only zeros may stand, not {flag!r}")
    if match := re.fullmatch(r"k(\d+)v(\d+)", kinds):
        names = [None if bits == "16" else f"u{bits}" for bits in match.groups()]
    else:
        parts = [part.strip() for part in kinds.split(",")]
        if len(parts) > 2:
            raise ValueError(f"{said}{text}: there are types of keys and of values, not {len(parts)}")
        names = [None if part in _PLAIN else part for part in (parts * 2)[:2]]
    try:
        unsigned = [name is not None and format_of(name).kind == "u" for name in names]
    except ValueError as error:
        raise ValueError(f"{said}{text}: {error}") from error
    zeros = [bool(flag) and each for each in unsigned]
    return {"k_type": names[0], "v_type": names[1], "k_zeros": zeros[0], "v_zeros": zeros[1]}


def format_for(types: dict, dtype: torch.dtype, head: int, page: int) -> CacheFormat:
    """The cache of heads of `head` elements in pages of `page` tokens."""
    return CacheFormat(dtype=dtype, head=head, page=page, **types)


def token_bytes(types: dict, head: int) -> int:
    """Of a token of one head, keys, values and scales together: a slab of 16 tokens is a whole number of words."""
    return 4 * format_for(types, torch.float16, head, 16).shape(1, 1)[3] // 16

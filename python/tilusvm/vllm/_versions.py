"""Where versions of vLLM differ, and which are supported."""

from __future__ import annotations

import importlib.metadata
import re

FIRST, LAST = (0, 32), (0, 33)  #: minor versions that the tests run with


def version() -> tuple[int, int]:
    """The minor version of vLLM."""
    found = re.match(r"(\d+)\.(\d+)", importlib.metadata.version("vllm"))
    return (int(found[1]), int(found[2])) if found else LAST


def check() -> None:
    """ImportError for a version before the first."""
    if version() < FIRST:
        raise ImportError(f"tilusvm needs vLLM {'.'.join(map(str, FIRST))} or later, not {version()}")


def one_layout():
    """Of a cache's pages the heads come before the tokens, and a layer's pages lie together."""
    from vllm.v1.kv_cache_layout import KVCacheLayout

    return (KVCacheLayout.LBHNC,)

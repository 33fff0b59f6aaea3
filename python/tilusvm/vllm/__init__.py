"""vLLM with this package's weights and caches: `vllm serve MODEL --quantization tilusvm`.

vLLM calls `register` in each of its processes, by the entry point vllm.general_plugins, before it reads its arguments.
"""

from __future__ import annotations

__all__ = ["register"]

BACKEND = "tilusvm.vllm.attention.TilusAttentionBackend"


def register() -> None:
    """Makes the quantization `tilusvm` and the attention backend CUSTOM known."""
    from . import _versions

    _versions.check()
    from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend

    from . import quantization  # noqa: F401, which registers itself

    register_backend(AttentionBackendEnum.CUSTOM, BACKEND)

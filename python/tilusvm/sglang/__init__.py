"""SGLang with this package's weights: `python -m sglang.launch_server --model-path MODEL --quantization tilusvm`.

SGLang calls `register` in each of its processes, by the entry point sglang.srt.plugins, before it reads its arguments.
"""

from __future__ import annotations

__all__ = ["register"]


def register() -> None:
    """Makes the quantization `tilusvm` known."""
    from sglang.srt.arg_groups import choices
    from sglang.srt.layers import linear
    from sglang.srt.layers.quantization import QUANTIZATION_METHODS

    from .quantization import TilusConfig, TilusLinearMethod

    QUANTIZATION_METHODS["tilusvm"] = TilusConfig
    for known, name in (
        (linear.WEIGHT_LOADER_V2_SUPPORTED, TilusLinearMethod.__name__),
        (choices.QUANTIZATION_CHOICES, "tilusvm"),
    ):
        if name not in known:
            known.append(name)

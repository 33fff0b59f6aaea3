"""Torch, which the modules that need it take from here, so that one that is missing or old is told of at once."""

try:
    import torch as torch
except ModuleNotFoundError as _error:
    if _error.name != "torch":
        raise
    raise ModuleNotFoundError(
        "torch is not installed, which layers, operators and models need (kernels of tilusvm alone do not): "
        "pip install 'tilusvm[torch]', or pip install torch",
        name="torch",
    ) from None

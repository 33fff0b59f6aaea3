"""What layers with weights of low precision have in common, whatever the width of their activations."""

from __future__ import annotations

import warnings

from ._narrow import NARROW, kept
from ._registry import HALVES
from ._torch import torch


class LowBit(torch.nn.Module):
    """What has weights of a low-precision type: buffers packed, scales, zeros, bias, order, multiplier."""

    waiting = False  #: while a file is read, whose tensors are not those of the layer yet
    _activations: torch.dtype | None = None  # beside scales of 8 bits

    @property
    def dtype(self) -> torch.dtype:
        return self._activations or self.scales.dtype

    @property
    def scale_dtype(self) -> torch.dtype | None:
        """Of scales of 8 bits, float8_e4m3fn or uint8; None of those of the activations' type."""
        return None if self._activations is None else self.scales.dtype

    @property
    def device(self) -> torch.device:
        return self.packed.device

    def _apply(self, fn, recurse=True):
        """half() and the like are for what multiplies activations, not for the multiplier, which f16 may not hold, nor
        for scales of 8 bits, where the program multiplies by them beside such activations."""
        multiplier, scales = self.multiplier, self.scales
        super()._apply(fn, recurse)
        if multiplier is not None and self.multiplier.dtype != multiplier.dtype:
            self.multiplier = multiplier.to(self.multiplier.device)
        if self._activations is not None:
            dtype = fn(torch.empty(0, dtype=self._activations)).dtype
            same = self.scales.dtype == scales.dtype
            scales = self.scales if same else scales.to(self.scales.device)
            self._set_scales(scales, dtype if dtype in HALVES else self._activations)
        return self

    def _set_scales(self, scales, dtype):
        """Scales of any type, for activations of dtype: those of 8 bits as _narrow.kept has them."""
        self.scales = kept(scales, scales.shape[-1], dtype)
        self._activations = dtype if self.scales.dtype in NARROW else None

    def true_bias(self, bias: torch.Tensor) -> torch.Tensor:
        """A bias of a file, which once was filled up as the weights are, without what it was filled up with."""
        return bias[..., : self.out_features] if bias.shape[-1] == self._whole[0] else bias

    def parameter_count(self) -> int:
        """Weights and biases, of whatever width."""
        one = self.in_features * self.out_features + (0 if self.bias is None else self.out_features)
        return one * getattr(self, "experts", 1)

    def _kind(self):
        """What the tensors do not say: types of one width have tensors of one shape."""
        scales = {} if self.scale_dtype is None else {"scales": NARROW[self.scale_dtype]}
        return {"type": self.type, "group": self.group, "zeros": self.zeros is not None, **scales}

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if hasattr(destination, "_metadata"):  # where torch has the version of each module
            destination._metadata[prefix[:-1]]["tilusvm"] = self._kind()

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing, unexpected, errors):
        kind, own = local_metadata.get("tilusvm"), self._kind()
        if kind is not None and kind != own:
            errors.append(f"{prefix[:-1] or 'the layer'} is {_told(own)}, in the state {_told(kind)}")
            return
        if kind is None and f"{prefix}packed" in state_dict:
            warnings.warn(
                f"the state does not say of which type its weights are: they are taken for {_told(own)}, as the "
                f"layer's; a state_dict() says so in its _metadata, which a plain dict of its tensors has not",
                stacklevel=2,
            )
        bias = state_dict.get(f"{prefix}bias")
        if bias is not None:
            state_dict[f"{prefix}bias"] = self.true_bias(bias)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing, unexpected, errors)


def _told(kind):
    """Of what _kind says, for a message."""
    size = f"groups of {kind['group']}" if kind["group"] else "one group"
    activations = f" for activations of {kind['activations']}" if kind.get("activations") else ""
    static = " with one scale" if kind.get("static") else ""
    static += " with scales of inputs" if kind.get("smooth") else ""
    scales = f" with scales of {kind['scales']}" if kind.get("scales") else ""
    return f"{kind['type']} in {size}{' with zero points' if kind['zeros'] else ''}{scales}{activations}{static}"

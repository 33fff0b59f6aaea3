"""What layers with weights of low precision have in common, whatever the width of their activations."""

from __future__ import annotations

import warnings

from ._torch import torch


class LowBit(torch.nn.Module):
    """What has weights of a low-precision type: buffers packed, scales, zeros, bias, order, multiplier."""

    waiting = False  #: while a file is read, whose tensors are not those of the layer yet

    @property
    def dtype(self) -> torch.dtype:
        return self.scales.dtype

    @property
    def device(self) -> torch.device:
        return self.packed.device

    def _apply(self, fn, recurse=True):
        """half() and the like are for what multiplies activations, not for the multiplier, which f16 may not hold."""
        multiplier = self.multiplier
        super()._apply(fn, recurse)
        if multiplier is not None and self.multiplier.dtype != multiplier.dtype:
            self.multiplier = multiplier.to(self.multiplier.device)
        return self

    def true_bias(self, bias: torch.Tensor) -> torch.Tensor:
        """A bias of a file, which once was filled up as the weights are, without what it was filled up with."""
        return bias[..., : self.out_features] if bias.shape[-1] == self._whole[0] else bias

    def parameter_count(self) -> int:
        """Weights and biases, of whatever width."""
        one = self.in_features * self.out_features + (0 if self.bias is None else self.out_features)
        return one * getattr(self, "experts", 1)

    def _kind(self):
        """What the tensors do not say: types of one width have tensors of one shape."""
        return {"type": self.type, "group": self.group, "zeros": self.zeros is not None}

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
    return f"{kind['type']} in {size}{' with zero points' if kind['zeros'] else ''}{activations}{static}"

"""AWQ: channels of activations are scaled, so that weights that matter are rounded less (Lin et al., 2023).

A linear layer with weights W s and inputs x / s gives what W and x give. The scales are s = m^a, with m the root mean
square of each channel; a is one of 20 from 0 up, that with the least error of the outputs, which the second moments of
the inputs give: tr(D H D^T) for weights that differ by D (the paper's equation 5). Their inverse goes into the norm, or
the linear layer, that the inputs are from, where that is exact: which is tried, with a copy of the block in f32.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

from ._torch import torch

from ._modules import is_conv1d, is_linear, matrix_of

__all__ = ["is_norm", "scale_block"]

_STEPS = 20
_ROWS = 256  # of a matrix, by which scales are judged
_CLOSE = 1e-4  # what is exact in f32, whose sums come in another order
#: Layers whose inputs are, channel by channel, proportional to outputs of another: its last ones.
_BEFORE = {
    "o_proj": ("v_proj",), "out_proj": ("v_proj",), "down_proj": ("up_proj", "gate_up_proj"), "w2": ("w3",),
    "fc2": ("fc1",),
}  # fmt: skip


def is_norm(module: torch.nn.Module) -> bool:
    """Has it a weight for each channel, and perhaps a bias, and nothing else?"""
    own = module._parameters
    weight = own.get("weight")
    return weight is not None and weight.dim() == 1 and set(own) <= {"weight", "bias"} and not module._modules


class _Fold:
    """One scaling: of the layers `consumers`, and its inverse in a norm or in rows of a linear layer.

    spread: the producer's channels as those of the inputs, for heads of values that several queries share."""

    def __init__(self, consumers, producer, offset=None, spread=lambda s: s, channels=0):
        self.consumers, self.producer, self.offset = consumers, producer, offset
        self.spread, self.channels = spread, channels

    def mean(self, squares):
        """Of the inputs' channels those of the producer: the mean of what shares one."""
        places = self.spread(torch.arange(self.channels, device=squares.device))
        total = torch.zeros(self.channels, device=squares.device).index_add_(0, places, squares)
        return total * (self.channels / len(squares))

    def exact(self, block, s):
        """The scales near s that a norm of the model's type has the inverse of."""
        if self.offset is None:
            return s
        weight = block.get_submodule(self.producer).weight
        whole = weight.float() + self.offset
        stored = (whole / s - self.offset).to(weight.dtype).float() + self.offset
        return torch.where((whole != 0) & (stored != 0), whole / stored, s)

    def apply(self, block, s, weights=None):
        """To the modules of the block, or to their weights in f32 where `weights` has them."""
        wide = self.spread(s)
        for name in self.consumers:
            self._change(block, name, weights, lambda w: w.mul_(wide))
        module = block.get_submodule(self.producer)
        if self.offset is not None:
            new = (module.weight.float() + self.offset) / s - self.offset
            module.weight = torch.nn.Parameter(new.to(module.weight.dtype), requires_grad=False)
        else:
            self._change(block, self.producer, weights, lambda w: w[-self.channels :].div_(s[:, None]))
        bias = getattr(module, "bias", None)
        if bias is not None:
            new = bias.detach().clone()
            new[-self.channels :] /= s.to(new.dtype)
            module.bias = torch.nn.Parameter(new, requires_grad=False)

    @staticmethod
    def _change(block, name, weights, change):
        module = block.get_submodule(name)
        w = matrix_of(module).detach().float().clone() if weights is None else weights[name].clone()
        change(w)
        if weights is not None:
            weights[name] = w
        w = w.t() if is_conv1d(module) else w
        module.weight = torch.nn.Parameter(w.to(module.weight.dtype).contiguous(), requires_grad=False)


def _folds(block, moments):
    """The scalings to try, alternatives of the same consumers one after the other: lists of them."""
    names = {id(module): name for name, module in block.named_modules()}
    together: dict[int, list[str]] = {}
    for name, moment in moments.items():
        together.setdefault(id(moment), []).append(name)
    for consumers in together.values():
        moment = moments[consumers[0]]
        k = moment.hessian.shape[0]
        if moment.source is not None and moment.source.weight.shape[0] == k:
            norm = names[id(moment.source)]
            yield [_Fold(consumers, norm, offset, channels=k) for offset in (0.0, 1.0)]
        elif len(consumers) == 1:
            yield [fold for fold in _linear_folds(block, consumers, k) if fold is not None]


def _linear_folds(block, consumers, k):
    owner, _, last = consumers[0].rpartition(".")
    parent = block.get_submodule(owner)
    for before in _BEFORE.get(last, ()):
        producer = getattr(parent, before, None)
        if producer is None or not is_linear(producer):
            continue
        name = f"{owner}.{before}" if owner else before
        channels = min(matrix_of(producer).shape[0], k)
        if channels == k:
            yield _Fold(consumers, name, channels=k)
            continue
        size = getattr(parent, "head_dim", 0)
        if size and channels % size == 0 and k % channels == 0:

            def spread(s, size=size, times=k // channels):
                return s.view(-1, size).repeat_interleave(times, 0).view(-1)

            yield _Fold(consumers, name, spread=spread, channels=channels)


def _search(fold, hessian, weights, rounders):
    """The scales of the producer's channels, or None where none are better than 1."""
    squares = fold.mean(hessian.diagonal())
    squares = squares / squares.mean()
    judged = [name for name in fold.consumers if name in rounders]
    sample = {name: weights[name][:: max(len(weights[name]) // _ROWS, 1)] for name in judged}
    best, least = None, None
    for step in range(_STEPS):
        s = squares.clamp(min=1e-8) ** (step / _STEPS / 2)
        s = s / (s.max() * s.min()).sqrt()
        wide, error = fold.spread(s), 0.0
        for name, w in sample.items():
            lost = rounders[name](w * wide, hessian.diagonal() / wide.square()) / wide - w
            error += float((lost @ hessian * lost).sum())
        if least is None or error < least:
            best, least = (s if step else None), error
    return best


def _is_same(result, before):
    first, other = (x[0] if isinstance(x, tuple) else x for x in (result, before))
    return bool((first - other).norm() <= _CLOSE * other.norm())


def _to_float(value):
    if isinstance(value, torch.Tensor):
        return value.float() if value.is_floating_point() else value
    if type(value) in (tuple, list):
        return type(value)(_to_float(each) for each in value)
    return {name: _to_float(each) for name, each in value.items()} if type(value) is dict else value


def scale_block(
    block: torch.nn.Module, batch: tuple, moments: dict, weights: dict[str, torch.Tensor],
    hessians: dict[str, torch.Tensor], rounders: dict[str, Callable],
) -> None:  # fmt: skip
    """Scales what of the block can be, in place, with `weights` (f32, by name) and `hessians`, which follow.

    batch: arguments (args, kwargs) of the block; moments: a Moment of each linear layer; rounders: of each layer to
    quantize a function of its weights and the importance of inputs that rounds to nearest."""
    args, kwargs = _to_float(batch[0]), _to_float(batch[1])
    trial, before = None, None
    for choices in _folds(block, moments):
        if not choices or not any(name in rounders for name in choices[0].consumers):
            continue
        hessian = hessians[choices[0].consumers[0]]
        s = _search(choices[0], hessian, weights, rounders)
        if s is None:
            continue
        if trial is None:
            trial = copy.deepcopy(block).float()
            before = trial(*args, **kwargs)
        for fold in choices:
            exact = fold.exact(block, s)
            tried = copy.deepcopy(trial)
            fold.apply(tried, exact)
            if _is_same(tried(*args, **kwargs), before):
                trial = tried
                fold.apply(block, exact, weights)
                wide = fold.spread(exact)
                for name in fold.consumers:
                    hessians[name] = hessian / (wide[:, None] * wide)
                break

"""Quantization of a matrix by the second moments of its inputs: GPTQ, and coordinate descent behind it.

What is made small is the error of the outputs, tr((W - Q) H (W - Q)^T), with H = X^T X of activations X (Frantar et
al., "GPTQ", 2022, equation 1). GPTQ rounds one input after the other and moves the error of each into the inputs that
are still to come, by the Cholesky factor of the inverse of H (its algorithm 1). Here the groups are taken in the order
of their largest diagonal, and inputs within a group likewise, so that groups remain neighbours in the matrix and a
multiplication needs no permutation (the group-aware reordering of GPTQModel). The scale of a group is chosen among
several, by the error that the group's own inputs leave, each input times its weight in GPTQ's sum.

Behind it, coordinate descent: a code is the best one for what all the others are (Behdin et al., "QuantEase", 2023),
and the scale and the zero point of a group those of least squares for its codes. Each step only lowers the error.
"""

from __future__ import annotations

from ._torch import torch

from ._formats import Format
from ._scales import scales_of

__all__ = ["Rounded", "gptq", "round_nearest"]

_BLOCK = 128  # inputs whose errors are moved on at once
_TIMES = (1.0, 0.94, 0.88, 0.8, 1.07, 0.72)  # scales to try for a group, as parts of that of least weighted squares


class Rounded:
    """A matrix [n, k] as numbers of a type, f32, and of each group of `size` inputs a scale and, perhaps, a zero point.

    Of a type with zero points the numbers are the codes, 0 and up. Weights are (numbers - zero) * scale.
    """

    def __init__(self, fmt: Format, own_zeros: bool, dtype: torch.dtype, n: int, k: int, size: int, device) -> None:
        self.fmt, self.own_zeros, self.dtype, self.size = fmt, own_zeros, dtype, size
        self.numbers = torch.zeros(n, k, device=device)
        self.scale = torch.zeros(n, k // size, device=device)
        self.zero = torch.zeros(n, k // size, device=device)
        self.table = None
        if own_zeros:
            self.least, self.greatest = 0.0, float((1 << fmt.bits) - 1)
        elif fmt.kind in "ui":
            self.least, self.greatest = fmt.least, fmt.greatest
        else:
            numbers = fmt.numbers(device)
            numbers = numbers.to(dtype).float() if fmt.kind == "t" else numbers[numbers.isfinite()]
            self.table = numbers.unique()
            self.middles = (self.table[1:] + self.table[:-1]) / 2

    def nearest(self, x: torch.Tensor) -> torch.Tensor:
        """The numbers nearest to x."""
        if self.table is None:
            return x.round().clamp_(self.least, self.greatest)
        return self.table[torch.bucketize(x, self.middles, out_int32=True)]

    def weights(self) -> torch.Tensor:
        """The matrix, f32."""
        scale, zero = (x.repeat_interleave(self.size, 1) for x in (self.scale, self.zero))
        return (self.numbers - zero) * scale

    def codes(self) -> torch.Tensor:
        """uint8 [k, n]."""
        numbers = self.numbers - (1 << self.fmt.bits - 1) if self.own_zeros else self.numbers
        return self.fmt.encode(numbers).t().contiguous()

    def stored(self, x: torch.Tensor) -> torch.Tensor:
        """Scales or zero points as their type holds them."""
        return x.to(self.dtype).float()

    def first_scales(self, w: torch.Tensor, importance: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Of the group w [n, size]: scales and zero points of least weighted squares, [n]."""
        scale, zero = scales_of(w.contiguous(), self.fmt, self.own_zeros, self.dtype, "mse", importance)
        return scale, torch.zeros_like(scale) if zero is None else zero


def _inverse(scale):
    return torch.where(scale == 0, torch.zeros_like(scale), 1 / scale)


def _round_block(rounded, w, upper, scale, zero):
    """Rounds the inputs of a block w [..., n, b] in turn, each error moved to those behind it. Returns the numbers, the
    errors as GPTQ's sum has them, and what they add to it, [..., n]."""
    w, numbers, errors = w.clone(), torch.empty_like(w), torch.empty_like(w)
    inverse = _inverse(scale)
    for i in range(w.shape[-1]):
        column = w[..., i]
        number = rounded.nearest(column * inverse + zero)
        error = (column - (number - zero) * scale) / upper[i, i]
        w[..., i + 1 :] -= error[..., None] * upper[i, i + 1 :]
        numbers[..., i], errors[..., i] = number, error
    return numbers, errors, errors.square().sum(-1)


def _choose_scale(rounded, w, upper, importance):
    """Rounds a group with several scales; of each row the best one's scale, zero point, numbers and errors."""
    scale, zero = rounded.first_scales(w, importance)
    times = torch.tensor(_TIMES, device=w.device)[:, None]
    scales = rounded.stored(scale * times)
    scales = torch.where((scales == 0) | ~scales.isfinite(), scale, scales)
    zeros = zero.expand_as(scales)
    if rounded.own_zeros:  # which keep the middle of the numbers where it is
        middle = rounded.greatest / 2
        zeros = rounded.stored((zero - middle) / times + middle)
    numbers, errors, sums = _round_block(rounded, w.expand(len(_TIMES), *w.shape), upper, scales, zeros)
    best = sums.argmin(0)

    def pick(x):
        index = best.view(1, -1, *[1] * (x.dim() - 2)).expand(1, *x.shape[1:])
        return x.gather(0, index)[0]

    return pick(scales), pick(zeros), pick(numbers), pick(errors)


def _order(diagonal, size):
    """The inputs in the order in which they are rounded, groups as a whole: a permutation."""
    groups = diagonal.view(-1, size)
    within = groups.argsort(dim=1, descending=True, stable=True)
    first = groups.amax(1).argsort(descending=True, stable=True)
    return (within + torch.arange(len(groups), device=diagonal.device)[:, None] * size)[first].reshape(-1)


def _upper(hessian):
    """The upper factor of the inverse's Cholesky decomposition, f32, by f64. Where the sums' rounding has made of the
    damped moments what is not positive definite, there is more damping."""
    hessian, more = hessian.double(), 0.1
    lower, failed = torch.linalg.cholesky_ex(hessian)
    while failed and more < 1e9:
        hessian.diagonal().add_(more)
        lower, failed = torch.linalg.cholesky_ex(hessian)
        more *= 10
    return torch.linalg.cholesky(torch.cholesky_inverse(lower), upper=True).float()


def _forward(rounded, w, hessian):
    """GPTQ: fills in `rounded`."""
    k, size = w.shape[1], rounded.size
    diagonal = hessian.diagonal()
    one = size == k  # a scale for all inputs: known before any is rounded
    width = min(size, _BLOCK)
    order = diagonal.argsort(descending=True, stable=True) if one else _order(diagonal, size)
    upper = _upper(hessian[order][:, order])
    w = w[:, order].clone()
    if one:
        rounded.scale[:, 0], rounded.zero[:, 0] = rounded.first_scales(w, diagonal[order])
    for begin in range(0, k, width):
        part = slice(begin, min(begin + width, k))
        block, factor = w[:, part], upper[part, part]
        if one:
            numbers, errors, _ = _round_block(rounded, block, factor, rounded.scale[:, 0], rounded.zero[:, 0])
        else:
            group = int(order[begin]) // size
            found = _choose_scale(rounded, block, factor, diagonal[order[part]])
            rounded.scale[:, group], rounded.zero[:, group], numbers, errors = found
        rounded.numbers[:, order[part]] = numbers
        w[:, part.stop :] -= errors @ upper[part, part.stop :]


def _descend_block(rounded, w_rest, hessian, part, group):
    """Codes of a block, each the best for all others. w_rest: W - Q, changed along with the numbers."""
    rest = w_rest[:, part]
    gradient = w_rest @ hessian[:, part]  # of half the error, negated
    own = hessian[part, part]
    scale = rounded.scale[:, group]
    inverse = _inverse(scale)
    numbers = rounded.numbers[:, part]
    for j in own.diagonal().argsort(descending=True).tolist():
        old = numbers[:, j]
        wanted = old + gradient[:, j] * inverse / own[j, j]
        new = rounded.nearest(wanted)
        moved = (new - old) * scale
        gradient -= moved[:, None] * own[j]
        rest[:, j] -= moved
        numbers[:, j] = new
    return gradient


def _refit(rounded, w_rest, gradient, hessian, part, group):
    """The scale and zero point of a group of least squares for its numbers, where they lower the error."""
    rest, own = w_rest[:, part], hessian[part, part]
    scale, zero = rounded.scale[:, group], rounded.zero[:, group]
    numbers = rounded.numbers[:, part]
    steps = (numbers - zero[:, None]) if not rounded.own_zeros else numbers
    slope = steps @ own
    a, b = (slope * steps).sum(1), (gradient * steps).sum(1)
    if rounded.own_zeros:  # W - Q - ds c + do 1: two unknowns
        c, d = slope.sum(1), gradient.sum(1)
        e = own.sum()
        determinant = a * e - c * c
        safe = determinant > 1e-6 * a * e
        determinant = torch.where(safe, determinant, torch.ones_like(a))
        ds = torch.where(safe, (b * e - c * d) / determinant, torch.zeros_like(a))
        do = torch.where(safe, (c * b - a * d) / determinant, torch.zeros_like(a))
        new = rounded.stored(scale + ds)
        zeros = rounded.stored((scale * zero + do) * _inverse(new))
    else:
        new = rounded.stored(scale + torch.where(a > 0, b / torch.where(a > 0, a, torch.ones_like(a)), 0))
        zeros = zero
    change = (numbers - zeros[:, None]) * new[:, None] - (numbers - zero[:, None]) * scale[:, None]
    gain = ((change @ own - 2 * gradient) * change).sum(1)
    better = (gain < 0) & new.isfinite() & zeros.isfinite() & (new != 0)
    rounded.scale[:, group] = torch.where(better, new, scale)
    rounded.zero[:, group] = torch.where(better, zeros, zero)
    w_rest[:, part] = rest - torch.where(better[:, None], change, torch.zeros_like(change))


def _descend(rounded, w, hessian, passes):
    k, size = w.shape[1], rounded.size
    width = min(size, _BLOCK) if size < k else _BLOCK
    for _ in range(passes):
        w_rest = w - rounded.weights()
        for begin in range(0, k, width):
            part = slice(begin, min(begin + width, k))
            gradient = _descend_block(rounded, w_rest, hessian, part, begin // size)
            if size < k:
                _refit(rounded, w_rest, gradient, hessian, part, begin // size)
        if size == k:
            everything = slice(0, k)
            _refit(rounded, w_rest, w_rest @ hessian, hessian, everything, 0)


def gptq(
    w: torch.Tensor, hessian: torch.Tensor, fmt: Format, size: int, own_zeros: bool, dtype: torch.dtype, *,
    damping: float = 0.01, passes: int = 4,
) -> Rounded:  # fmt: skip
    """Quantizes W [n, k], f32, for inputs of the second moments hessian [k, k], f32; groups of `size` inputs, or k.

    damping: what part of the mean of the diagonal is added to it. passes: of coordinate descent; 0 is GPTQ.
    """
    n, k = w.shape
    rounded = Rounded(fmt, own_zeros, dtype, n, k, size, w.device)
    mean = hessian.diagonal().mean()
    if not bool(mean > 0):
        mean, hessian = torch.ones_like(mean), hessian + torch.eye(k, device=w.device)
    hessian = hessian / mean
    hessian.diagonal().add_(damping)
    _forward(rounded, w, hessian)
    _descend(rounded, w, hessian, passes)
    return rounded


def round_nearest(
    w: torch.Tensor, importance: torch.Tensor | None, fmt: Format, size: int, own_zeros: bool, dtype: torch.dtype
) -> Rounded:  # fmt: skip
    """W [n, k], f32, rounded to nearest, with scales of least squares, each input's times its importance [k]."""
    n, k = w.shape
    rounded = Rounded(fmt, own_zeros, dtype, n, k, size, w.device)
    if importance is not None:
        importance = importance.float().view(-1, size).repeat(n, 1)
    scale, zero = rounded.first_scales(w.reshape(-1, size), importance)
    rounded.scale, rounded.zero = scale.view(n, -1), zero.view(n, -1)
    wide = (x.repeat_interleave(size, 1) for x in (_inverse(rounded.scale), rounded.zero))
    inverse, zeros = wide
    rounded.numbers = rounded.nearest(w * inverse + zeros)
    return rounded

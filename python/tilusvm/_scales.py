"""Scales and zero points of groups of weights: the arithmetic of tvm-pack(1), in torch, on the weights' device.

Groups are the rows of w, f32[groups, size]; scales and zeros f32[groups], as their type holds them.
"""

from __future__ import annotations

import math

from ._torch import torch

from ._formats import Format

_STARTS = (0, 0.2, 0.15, 0.3, 0.4, 0.55, 0.7, 0.8, 0.88)  # of the search, by bits
_ROOM = 1 << 24  # elements that are searched at once: so many that launches cost less than what they do


def holding(w, fmt: Format, own_zeros: bool, dtype):
    """The least scales that keep each group within the codes, before they are rounded; and the zero points."""
    high, low = w.amax(1).clamp_(min=0).double(), w.amin(1).clamp_(max=0).double()
    if own_zeros:
        return (high - low) / ((1 << fmt.bits) - 1), low
    most = torch.maximum(high, -low)
    if fmt.greatest == 0:  # of 1 bit: the numbers are -1 and 0
        return torch.where(-low >= high, most, -most), low
    scale = torch.maximum(high / fmt.greatest, low / fmt.least)
    if dtype == torch.float16 and fmt.exponent >= 4:  # such types have exponents to spare, the scale has not
        scale = torch.where(most >= 2.0**-14, scale.clamp(min=2.0**-14), scale)
    return scale, low


def zero_points(low, scale, fmt: Format):
    """Of asymmetric codes, for scales as they are stored."""
    safe = torch.where(scale == 0, torch.ones_like(scale), scale)
    zero = (-low.float() / safe).round().clamp_(0, (1 << fmt.bits) - 1)
    return torch.where(scale == 0, torch.zeros_like(zero), zero)


class _Search:
    """The search for scales of least squared error over a few groups; what is found is in .scale and .zero.

    Weights are divided by `base`, powers of two near the scales, numbers of float types by `unit`, so that nothing is
    beyond f32.
    """

    def __init__(self, w, fmt: Format, own_zeros: bool, dtype, importance):
        self.fmt, self.own_zeros = fmt, own_zeros
        hold, low = holding(w, fmt, own_zeros, dtype)
        self.first_scale = hold.to(dtype).float()
        self.first_zero = zero_points(low, self.first_scale, fmt) if own_zeros else torch.zeros_like(self.first_scale)
        self.unit = 2.0 ** (math.frexp(fmt.greatest)[1] - 1) if fmt.kind == "f" else 1.0
        self.lows, self.highs = fmt.least / self.unit, fmt.greatest / self.unit
        size = self.first_scale.abs().double() * self.unit
        self.base = 2.0 ** torch.where(size > 0, size, torch.ones_like(size)).log2().floor().clamp(-125, 125)
        floor = 2.0**-14 if dtype == torch.float16 and fmt.exponent >= 4 else 0.0
        self.floor = floor * self.unit / self.base
        self.w = w / self.base.float()[:, None]
        self.importance = importance
        self.heavy = self.w if importance is None else self.w * importance
        self.total = (self.heavy * self.w).sum(1).double()
        self.high, self.low = self.w.amax(1).clamp_(min=0), self.w.amin(1).clamp_(max=0)
        self.error = torch.full_like(self.total, torch.inf)
        self.scale = torch.zeros_like(self.total)
        self.zero = torch.zeros_like(self.total)

    def nearest(self, x, zero):
        """The numbers nearest to x, in units of `unit`."""
        if self.own_zeros:
            last = (1 << self.fmt.bits) - 1
            x = torch.maximum(x, -zero[:, None])
            return torch.minimum(x, (last - zero)[:, None]).round_()
        if self.fmt.kind == "t":
            numbers, places = self.fmt.nearest_places(x)
            return numbers[places]
        x = x.clamp_(self.lows, self.highs)
        if self.fmt.kind != "f":
            return x.round_()
        # an adder of so large an ulp that what is lost is what the mantissa lacks
        least_normal = 2.0 ** (2 - (1 << self.fmt.exponent - 1)) / self.unit
        exponent = (x.view(torch.int32) & 0x7F800000).clamp_(min=torch.tensor(least_normal).view(torch.int32).item())
        adder = (exponent + (((23 - self.fmt.mantissa) << 23) + (1 << 22))).view(torch.float32)
        return (x + adder).sub_(adder)

    def sums(self, scale, zero):
        inverse = torch.where(scale != 0, 1 / scale, torch.zeros_like(scale)).float()
        return self.nearest(self.w * inverse[:, None], zero.float()), inverse

    def weighted(self, x):
        return x if self.importance is None else x * self.importance

    def propose(self, scale, zero):
        """Keeps, of each group, what is better than the best so far, with the scale that is best for its codes."""
        q, _ = self.sums(scale, zero)
        first = (self.heavy * q).sum(1).double()
        second = self.weighted(q.square_()).sum(1).double()
        error = self.total - first * first / second
        better = (second > 0) & (error < self.error)
        self.error = torch.where(better, error, self.error)
        self.scale = torch.where(better, first / second, self.scale)
        self.zero = torch.where(better, zero, self.zero)

    def middle_zero(self, scale, other):
        """The zero point with which as much is cut off above as below; or the next one, beyond that point."""
        last = (1 << self.fmt.bits) - 1
        middle = ((-self.low / scale + last - self.high / scale) / 2).clamp(0, last)
        zero = middle.round()
        if other:
            zero += torch.where(middle > zero, 1.0, -1.0)
        return zero.clamp_(0, last)

    def starts(self, start):
        """The least candidates, as parts of the scales that hold: less where the important weights are small."""
        if self.importance is None:
            return torch.full_like(self.total, start)
        important = self.total / self.weighted(torch.ones_like(self.w)).sum(1)
        ratio = (important / self.w.square().mean(1)).sqrt().nan_to_num(1.0).clamp(0.01, 1)
        return start * ratio

    def candidate(self, times, sign):
        """times the scale that holds the group, of that sign."""
        if self.own_zeros:
            return (self.high - self.low).double() / ((1 << self.fmt.bits) - 1) * times
        high, low = (self.high, self.low) if sign > 0 else (-self.low, -self.high)
        above = high.double() / self.highs if self.highs else torch.zeros_like(self.total)
        scale = torch.maximum(above, low.double() / self.lows)
        return torch.where(scale > 0, torch.maximum(scale, self.floor), scale) * (sign * times)

    def run(self):
        fmt, few = self.fmt, self.fmt.kind != "f" and self.fmt.bits <= 4
        if fmt.kind == "f":
            count, start, end = 10, 0.35 if fmt.mantissa and fmt.exponent < 3 else 0.5, 1.5
        else:
            count, start, end = 8 if few else 10, _STARTS[fmt.bits], 1.0
        times = self.starts(start)
        step = (end / times) ** (1 / (count - 1))
        nothing = torch.zeros_like(self.total)
        for _ in range(count):
            for sign in (1, -1) if few and not self.own_zeros else (1,):
                scale = self.candidate(times, sign)
                for other in (False, True) if few and self.own_zeros else (False,):
                    zero = (
                        torch.where(scale > 0, self.middle_zero(scale, other), nothing) if self.own_zeros else nothing
                    )
                    self.propose(scale, zero)
            times = times * step
        scale, zero = self.scale, self.zero
        for around in (-0.5, 0.5):
            self.propose(scale * (1 + around * (step - 1)), zero)
        for _ in range(2):
            self.propose(self.scale, self.zero)

    def residual(self, scale, zero):
        """The squared errors with scales as they are stored."""
        inner = scale.double() * (self.unit / self.base)
        q, inverse = self.sums(inner, zero)
        rest = (self.w * inverse[:, None]).sub_(q)
        return inner * inner * self.weighted(rest.square_()).sum(1).double()

    def stored(self, dtype):
        """The best scales, in `dtype`: those found, rounded to either side, where better than those that just hold."""
        best, zero = self.first_scale, self.first_zero
        error = self.residual(best, zero)
        wanted = self.scale * self.base / self.unit
        if dtype == torch.float16 and self.fmt.exponent >= 4:
            wanted = torch.where((best.abs() >= 2.0**-14) & (wanted < 2.0**-14), 2.0**-14, wanted)
        nearer = wanted.to(dtype)
        farther = torch.where(wanted.abs() > nearer.double().abs(), 1, -1).to(torch.int16)
        other = (nearer.view(torch.int16) + torch.where(nearer == 0, 0, farther)).view(dtype)
        for scale in (nearer.float(), other.float()):
            found = self.residual(scale, self.zero)
            better = (scale != 0) & scale.isfinite() & (found < error)
            error = torch.where(better, found, error)
            best = torch.where(better, scale, best)
            zero = torch.where(better, self.zero.float(), zero)
        return best, zero


def scales_of(w, fmt: Format, own_zeros: bool, dtype, method: str, importance=None):
    """Scales and zero points (None without own_zeros), f32[groups], of the groups w, f32[groups, size].

    method: "mse", least squared error, each weight's times its importance ([size] or [groups, size]; None: 1);
    "absmax", the least that hold each group.
    """
    scales, zeros = [], []
    rows = max(_ROOM // max(w.shape[1], 1), 1)
    for i in range(0, w.shape[0], rows):
        part = w[i : i + rows]
        search = _Search(
            part,
            fmt,
            own_zeros,
            dtype,
            importance if importance is None or importance.dim() == 1 else importance[i : i + rows],
        )
        if method == "mse":
            search.run()
            scale, zero = search.stored(dtype)
        else:
            scale, zero = search.first_scale, search.first_zero
        scales.append(scale)
        zeros.append(zero)
    return torch.cat(scales), torch.cat(zeros) if own_zeros else None

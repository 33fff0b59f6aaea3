"""Numbers of 4 and 8 bits with scales of 8 bits, by their definitions, in float64: NVFP4, MXFP4 and MXFP8.

The nearest numbers, and scales of groups as OCP's microscaling formats (section 6.3), compressed-tensors'
QuantizationArgs and Model Optimizer's qtensor have them.
"""

import torch
from torch_kit import number

F8 = torch.float8_e4m3fn
SIZES = {"nvfp4": 16, "mxfp4": 32, "mxfp8": 32}
SCALES = {"nvfp4": F8, "mxfp4": torch.uint8, "mxfp8": torch.uint8}
MAGNITUDES = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


def nearest(x):
    """The numbers of f4_e2m1 nearest to x, of two as near the one whose code is even, in float64."""
    table = torch.tensor(MAGNITUDES, dtype=torch.float64, device=x.device)
    distance = (x.abs().double()[..., None] - table).abs() + 1e-9 * (torch.arange(8, device=x.device) % 2)
    return table[distance.argmin(-1)] * x.sign()


def rounded(x, kind, scale=None):
    """The numbers of x [..., k] and the scales of its groups, both in float64."""
    groups = (x.float() if scale is None else x.float() / scale.float()).unflatten(-1, (-1, SIZES[kind]))
    most = groups.abs().amax(-1, keepdim=True)
    if kind == "nvfp4":
        step = (most / 6).clamp(2.0**-9, 448.0).to(F8).float()
    else:
        exponent = {"mxfp4": 2, "mxfp8": 8}[kind]  # of the greatest number
        step = 2.0 ** (most.clamp(min=2.0 ** (exponent - 126)).log2().floor() - exponent)
    found = (groups / step).clamp(-448, 448).to(F8).double() if kind == "mxfp8" else nearest(groups / step)
    return found.flatten(-2), step[..., 0].double()


def values(x, kind, scale=None):
    """What x becomes, in float64."""
    numbers, steps = rounded(x, kind, scale)
    return numbers * steps.repeat_interleave(SIZES[kind], -1) * (1 if scale is None else scale.double())


def whole_scale(x):
    """NVFP4's scale of a tensor: its greatest group has the greatest scale of f8_e4m3."""
    return (x.abs().amax().float() / (448 * 6)).reshape(1)


def unpacked(codes, type="f4_e2m1"):
    """The numbers of rows of codes, of which the first has the lowest bits, in float64."""
    bits = int(type[1])
    every = (codes.cpu()[..., None].int() >> torch.arange(8) & 1).flatten(-2).unflatten(-1, (-1, bits))
    table = torch.tensor([number(type, code) for code in range(1 << bits)], dtype=torch.float64)
    return table[(every << torch.arange(bits)).sum(-1)].to(codes.device)


def powers(scales):
    """The numbers of scales, in float64."""
    return 2.0 ** (scales.double() - 127) if scales.dtype == torch.uint8 else scales.double()


def codes_of(numbers):
    """Numbers of f4_e2m1 as bytes of two, the first in the lower bits."""
    codes = numbers.abs()[..., None].eq(torch.tensor(MAGNITUDES, dtype=torch.float64)).int().argmax(-1)
    codes = (codes | numbers.lt(0).int() << 3).to(torch.uint8)
    return codes[:, ::2] | codes[:, 1::2] << 4

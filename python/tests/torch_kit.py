"""What the tests of the torch half share: devices, types, and decoding that knows nothing of the package's own."""

import pathlib
import subprocess
from collections import OrderedDict

import pytest
from conftest import needs_gpu, torch

import tilusvm

DEVICES = ["cpu", pytest.param("cuda", marks=needs_gpu)]
HALVES = [] if torch is None else [torch.float16, torch.bfloat16]

UNSIGNED = [f"u{b}" for b in range(1, 9)]
SIGNED = [f"i{b}" for b in range(2, 9)]
FLOATS = [f"f{b}_e{e}m{b - 1 - e}" for b in range(3, 9) for e in range(1, b)]
TYPES = UNSIGNED + SIGNED + FLOATS


#: What is built with the package, and stands beside it.
TOOL = pathlib.Path(tilusvm.__file__).parent / "bin" / "tvm-pack"


def tvm_pack(*arguments):
    """Runs the tool."""
    done = subprocess.run([TOOL, "--quiet", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def small_model():
    """Three layers: up, down and head."""
    nn = torch.nn
    layers = OrderedDict(up=nn.Linear(128, 256), silu=nn.SiLU())
    layers.update(down=nn.Linear(256, 128, bias=False), head=nn.Linear(128, 12))
    return nn.Sequential(layers)


def number(type, code):
    """What a code stands for, computed from the definition of its type; None for NaN and infinities."""
    bits = int(type[1])
    half = 1 << bits - 1
    if type[0] == "u":
        return float(code - half)
    if type[0] == "i":
        return float(code - 2 * half if code >= half else code)
    exponent_bits = int(type[4])
    mantissa_bits = bits - 1 - exponent_bits
    bias = 2 ** (exponent_bits - 1) - 1
    sign = -1.0 if code >= half else 1.0
    exponent, mantissa = divmod(code % half, 1 << mantissa_bits)
    if type == "f8_e4m3" and code % half == 127 or type == "f8_e5m2" and exponent == 31:
        return None
    if exponent == 0:
        return sign * mantissa * 2.0 ** (1 - bias - mantissa_bits)
    return sign * (1 + mantissa / (1 << mantissa_bits)) * 2.0 ** (exponent - bias)


def weights_of(layer_codes, scales, zeros, type, group):
    """W [k, n] in f64 from codes [k, n] by the definition above."""
    k = layer_codes.shape[0]
    size = group or k
    if zeros is None:
        table = [number(type, c) for c in range(1 << int(type[1]))]
        table = torch.tensor([float("nan") if x is None else x for x in table], dtype=torch.float64)
        numbers = table.to(layer_codes.device)[layer_codes.long()]
    else:
        numbers = layer_codes.double() - zeros.double().repeat_interleave(size, 0)
    return numbers * scales.double().repeat_interleave(size, 0)


def close(result, exact, tolerance):
    """Is the largest difference at most tolerance times the largest magnitude?"""
    exact = exact.double()
    assert result.shape == exact.shape, (result.shape, exact.shape)
    worst = (result.double() - exact).abs().max() / exact.abs().max()
    assert worst <= tolerance, f"{worst:.2e}"

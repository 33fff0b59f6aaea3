"""The low-precision types of weights, and the arithmetic of their codes, in torch.

A code of b bits is held in a uint8. Its number is `code - 2**(b-1)` for unsigned types, two's complement for signed
ones, sign, exponent and mantissa for floats (vasm(5), "Types"); a weight is its number times the scale of its group.
Unsigned types may have a zero point to a group instead: `(code - zero) * scale`.
"""

from __future__ import annotations

import functools
import math
import re
from pathlib import Path

from ._torch import torch


#: Types whose codes of 4 bits mean the values of a table.
_TABLES = ("nf4", "fp4")


@functools.cache
def _table(name: str) -> tuple[float, ...]:
    """The 16 values, as the programs have them."""
    text = (Path(__file__).parent / "programs" / "code_tables.vasminc").read_text()
    found = re.search(rf"^\.const {name.upper()} = \[([^]]*)\]", text, re.MULTILINE)
    return tuple(float(value) for value in found[1].replace("\\\n", "").split(","))


class Format:
    """A type of weights: `u1` to `u8`, `i2` to `i8`, `f3_e1m1` to `f8_e7m0`, and the tables `nf4` and `fp4`.

    name, bits; kind: "u", "i", "f" or "t"; greatest, least: the largest and smallest numbers that codes stand for.
    consts: of the program matmul_lowbit.
    """

    __slots__ = ("name", "bits", "kind", "exponent", "mantissa", "greatest", "least", "consts", "_magnitudes")

    def __init__(self, name: str):
        if isinstance(name, str) and name in _TABLES:
            self.name, self.kind, self.bits, self.exponent, self.mantissa = name, "t", 4, 0, 0
            self.greatest, self.least, self._magnitudes = 1.0, -1.0, None
            self.consts = {"WTYPE": "u4", "BOOK": f'"{name}"'}
            return
        match = re.fullmatch(r"([ui])([1-8])|f([3-8])_e([1-7])m([0-6])", name) if isinstance(name, str) else None
        kind = match and (match[1] or "f")
        if not match or name == "i1" or kind == "f" and int(match[3]) != 1 + int(match[4]) + int(match[5]):
            raise ValueError(f"type must be u1 to u8, i2 to i8, a float such as f6_e3m2, nf4 or fp4, not {name!r}")
        self.name, self.kind, self.consts = name, kind, {"WTYPE": name}
        self.bits = int(match[2] or match[3])
        self.exponent, self.mantissa = (int(match[4]), int(match[5])) if kind == "f" else (0, 0)
        self._magnitudes = self._float_magnitudes() if kind == "f" else None
        half = 1 << self.bits - 1
        self.greatest = self._magnitudes[-1] if kind == "f" else float(half - 1)
        self.least = -self._magnitudes[-1] if kind == "f" else float(-half)

    def _float_magnitudes(self) -> list[float]:
        """Of the finite codes without a sign, in the order of the codes, which is theirs."""
        bias = (1 << self.exponent - 1) - 1
        step = 1 << self.mantissa
        count = {"f8_e4m3": 127, "f8_e5m2": 124}.get(self.name, 1 << self.bits - 1)  # the others are NaN, infinity
        values = []
        for code in range(count):
            exponent, fraction = divmod(code, step)
            scale = 2.0 ** (max(exponent, 1) - bias - self.mantissa)
            values.append((fraction + (step if exponent else 0)) * scale)
        return values

    def numbers(self, device=None) -> torch.Tensor:
        """What each code stands for, f32[2**bits]; codes of infinities and NaN as such."""
        codes = torch.arange(1 << self.bits, dtype=torch.float32)
        half = 1 << self.bits - 1
        if self.kind == "u":
            numbers = codes - half
        elif self.kind == "t":
            numbers = torch.tensor(_table(self.name))
        elif self.kind == "i":
            numbers = torch.where(codes < half, codes, codes - 2 * half)
        else:
            magnitudes = torch.full((half,), float("nan"))
            magnitudes[: len(self._magnitudes)] = torch.tensor(self._magnitudes)
            if self.name == "f8_e5m2":
                magnitudes[124] = float("inf")
            numbers = torch.cat([magnitudes, -magnitudes])
        return numbers.to(device)

    def nearest_places(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Of a table: the numbers, from the least up, as x has them, and which of them are nearest to x."""
        numbers = self.numbers(x.device).to(x.dtype).sort().values
        return numbers, torch.bucketize(x, (numbers[1:] + numbers[:-1]) / 2, out_int32=True)

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        """The codes, uint8, of the numbers nearest to x (f32 or f64): ties to even, of a table down, saturating."""
        if self.kind == "t":
            order = self.numbers(x.device).sort(stable=True).indices.to(torch.uint8)
            return order[self.nearest_places(x)[1]]
        if self.kind == "f":
            magnitudes = torch.tensor(self._magnitudes, dtype=x.dtype, device=x.device)
            middles = (magnitudes[1:] + magnitudes[:-1]) / 2
            middles[1::2] = torch.nextafter(middles[1::2], torch.zeros_like(middles[1::2]))  # ties go up, to even
            codes = torch.bucketize(x.abs(), middles, out_int32=True).to(torch.uint8)
            return codes | (torch.signbit(x).to(torch.uint8) << self.bits - 1)
        x = x.round().clamp_(self.least, self.greatest).to(torch.int16)
        return (
            (x + (1 << self.bits - 1)).to(torch.uint8)
            if self.kind == "u"
            else (x & (1 << self.bits) - 1).to(torch.uint8)
        )

    def row_bytes(self, columns: int) -> int:
        """Of a row of codes in a file: it is filled up to the least number of columns whose codes are whole bytes."""
        unit = 8 // math.gcd(8, self.bits)
        return -(-columns // unit) * unit * self.bits // 8

    def zero_code(self) -> int:
        if self.kind == "t":
            return _table(self.name).index(0.0)
        return 1 << self.bits - 1 if self.kind == "u" else 0

    def __repr__(self) -> str:
        return self.name


@functools.lru_cache(maxsize=None)
def format_of(name: str) -> Format:
    """The Format of a name; ValueError where there is none."""
    return Format(name)


def bits_of_codes(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """Codes uint8[rows, n], n a multiple of 8, as rows of compact bit strings, uint8[rows, n * bits / 8]."""
    rows, n = codes.shape
    if bits == 8:
        return codes.contiguous()
    words = torch.zeros(rows, n // 8, dtype=torch.int64, device=codes.device)
    for i in range(8):
        words |= codes[:, i::8].to(torch.int64) << bits * i
    return words.view(torch.uint8).view(rows, n // 8, 8)[:, :, :bits].reshape(rows, n // 8 * bits).contiguous()


def codes_of_bits(strings: torch.Tensor, bits: int) -> torch.Tensor:
    """The way back: uint8[rows, n * bits / 8] to codes uint8[rows, n]."""
    rows, width = strings.shape
    if bits == 8:
        return strings
    bytes_ = torch.zeros(rows, width // bits, 8, dtype=torch.uint8, device=strings.device)
    bytes_[:, :, :bits] = strings.view(rows, width // bits, bits)
    words = bytes_.view(torch.int64)
    shifts = torch.arange(8, device=strings.device) * bits
    return (words >> shifts & (1 << bits) - 1).to(torch.uint8).view(rows, width // bits * 8)

#!/usr/bin/env python3
"""Weights of other kinds than u4 in groups of 128, beside it: NVFP4, MXFP4, u2, u3, ternary, in one process.

    other_weights.py [--shapes NxK,...] [--rows M,...] [--forms NAME,...] [--seconds S] [--device cpu]

Prints a JSON object a line: form, n, k, m, us, times of u4's time with the same activations, error. Times are medians
of replays of a CUDA graph of launches over rotating copies of the weights, larger together than three times the L2.
Each form's result for each shape and number of rows is first compared with a float64 product of 64 of its columns.
After S seconds (100) no further point is begun. On --device cpu, the interpreter, results are compared alone.
Exit status: 0 every point was right, 1 one was not."""
import argparse
import json
import sys
import time

import torch
from timing import captured, median_us

import tilusvm

E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
E2M1 += [-value for value in E2M1]
F16, BF16 = {"ATYPE": "f16"}, {"ATYPE": "bf16"}
NVFP4 = {"WTYPE": "f4_e2m1", "GROUP": 16, "STYPE": "f8_e4m3", "FACTOR": True}
MXFP4 = {"WTYPE": "f4_e2m1", "GROUP": 32, "STYPE": "e8m0"}
FORMS = {  # the first of each type of activations is what the others are compared with
    "u4": {"WTYPE": "u4", **F16},
    "u2": {"WTYPE": "u2", **F16},
    "u3": {"WTYPE": "u3", **F16},
    "f4_g16": {"WTYPE": "f4_e2m1", "GROUP": 16, **F16},
    "nvfp4": {**NVFP4, **F16},
    "f4_g32": {"WTYPE": "f4_e2m1", "GROUP": 32, **F16},
    "mxfp4": {**MXFP4, **F16},
    "u4_bf16": {"WTYPE": "u4", **BF16},
    "nvfp4_bf16": {**NVFP4, **BF16},
    "nvfp4_bf16_book": {**NVFP4, **BF16, "WTYPE": "u4", "BOOK": '"e2m1"'},
    "mxfp4_bf16": {**MXFP4, **BF16},
    "mxfp4_bf16_book": {**MXFP4, **BF16, "WTYPE": "u4", "BOOK": '"e2m1"'},
    "ternary": None,
}
TOLERANCE = {torch.float16: 5e-4, torch.bfloat16: 4e-3}


def scales(form, shape, device):
    """Scales [k / group, n] as the program takes them, and as float64."""
    kind = form.get("STYPE")
    if kind is None:
        type_ = torch.float16 if form["ATYPE"] == "f16" else torch.bfloat16
        s = (torch.rand(shape, device=device) * 0.01 + 0.005).to(type_)
        return s, s.double()
    codes = torch.randint(*((0x30, 0x48) if kind == "f8_e4m3" else (117, 122)), shape, dtype=torch.uint8, device=device)
    if kind == "f8_e4m3":
        return codes, codes.view(torch.float8_e4m3fn).double()
    return codes, torch.exp2(codes.double() - 127)


def values(codes, form, bits):
    """float64 [k, columns] of the bytes [k, columns * bits / 8]."""
    stream = codes.unsqueeze(-1) >> torch.arange(8, device=codes.device) & 1
    stream = stream.reshape(codes.shape[0], -1, bits).double()
    codes = (stream * 2.0 ** torch.arange(bits, device=codes.device)).sum(-1)
    if form["WTYPE"] == "f4_e2m1" or "BOOK" in form:
        return torch.tensor(E2M1, dtype=torch.float64, device=codes.device)[codes.long()]
    return codes - 2 ** (bits - 1)


class Weights:
    """Packed weights of a form, in as many copies as make `least` bytes; `known`: their first 64 columns, float64."""

    def __init__(self, name, n, k, device, least):
        self.name, self.form, self.n, self.k, self.device = name, FORMS[name], n, k, device
        self.packed = []
        kernel = "matmul_ternary" if self.form is None else "matmul_lowbit"
        program = tilusvm.program(kernel, **(self.form or {}))
        self.kernel = program[kernel]
        if self.form is None:
            w = torch.randint(-1, 2, (k, n), dtype=torch.int8, device=device)
            p = torch.zeros(-(-n // 16), -(-k // 160), 512, dtype=torch.uint8, device=device)
            self.scales, self.known = torch.full((n,), 0.01, device=device), w[:, :64].double() * 0.01
            bytes_of = p.numel()
        else:
            bits, group = int(self.form["WTYPE"][1]), self.form.get("GROUP", 128)
            w = torch.randint(0, 256, (k, n * bits // 8), dtype=torch.uint8, device=device)
            rows = 128 if group == 16 else group
            p = torch.zeros(-(-n // 64), k // rows, rows * 8 * bits, dtype=torch.uint8, device=device)
            self.scales, known = scales(self.form, (k // group, n), device)
            self.factor = torch.full((1,), 0.02, device=device)
            self.known = values(w[:, : 8 * bits], self.form, bits) * known[:, :64].repeat_interleave(group, 0)
            self.known *= 0.02 if "FACTOR" in self.form else 1
            bytes_of = p.numel() + self.scales.numel() * self.scales.element_size()
        program["pack"](k, n, w, p)
        count = max(1, -(-least // bytes_of))
        self.packed = [p] + [p.clone() for _ in range(count - 1)]

    def activations(self, m):
        if self.form is None:
            return torch.randint(-127, 128, (m, self.k), dtype=torch.int8, device=self.device)
        type_ = torch.float16 if self.form["ATYPE"] == "f16" else torch.bfloat16
        return torch.randn(m, self.k, device=self.device).to(type_)

    def launch(self, a, c, copy, row_scales):
        m = a.shape[0]
        if self.form is None:
            self.kernel(m, self.n, self.k, a, self.packed[copy], row_scales, self.scales, c)
        elif "FACTOR" in self.form:
            self.kernel(m, self.n, self.k, a, self.packed[copy], self.scales, self.factor, c)
        else:
            self.kernel(m, self.n, self.k, a, self.packed[copy], self.scales, c)


def measure(weights, m, timed):
    """Microseconds (None where not timed), and the relative error of 64 columns."""
    a = weights.activations(m)
    type_ = torch.bfloat16 if weights.form is None else a.dtype
    c = torch.zeros(m, weights.n, dtype=type_, device=a.device)
    row_scales = torch.rand(m, 1, device=a.device) * 0.01 + 0.005
    weights.launch(a, c, 0, row_scales)
    want = a.double() @ weights.known * (row_scales.double() if weights.form is None else 1)
    error = float((c[:, :64].double() - want).norm() / want.norm())
    if not timed:
        return None, error, TOLERANCE[type_]
    launches = 10 if m > 512 else 40
    graph = captured(lambda i: weights.launch(a, c, i % len(weights.packed), row_scales), launches)
    return median_us(graph.replay, 6, warm_up=1) / launches, error, TOLERANCE[type_]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shapes", default="8192x8192,6144x5120,12288x4096")
    parser.add_argument("--rows", default="1,4,16,64,512,4096")
    parser.add_argument("--forms", default=",".join(FORMS))
    parser.add_argument("--seconds", type=float, default=100)
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    begun, right, timed = time.monotonic(), True, options.device != "cpu"
    l2 = torch.cuda.get_device_properties(0).L2_cache_size if timed else 0
    for shape in options.shapes.split(","):
        n, k = map(int, shape.split("x"))
        beside = {}
        for name in options.forms.split(","):
            if time.monotonic() - begun > options.seconds:
                print(json.dumps({"left_out": [shape, name]}))
                continue
            weights = Weights(name, n, k, options.device, 3 * l2)
            base = "u4_bf16" if "bf16" in name else "u4"
            for m in map(int, options.rows.split(",")):
                us, error, most = measure(weights, m, timed)
                beside[name, m] = us
                line = {"form": name, "n": n, "k": k, "m": m, "error": round(error, 6), "right": error <= most}
                if us:
                    line["us"] = round(us, 2)
                    line["times"] = round(us / beside[base, m], 3) if (base, m) in beside else None
                right &= error <= most
                print(json.dumps(line), flush=True)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())

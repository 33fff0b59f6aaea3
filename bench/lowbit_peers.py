#!/usr/bin/env python3
"""matmul_lowbit beside its peers in one process: humming and Marlin where they can be loaded, and cuBLAS' f16.

    lowbit_peers.py [--types u4,...] [--shapes NxK,...] [--batches M,...] [--marlin ./libmarlin.so] >peers.json
    decode ... --peers peers.json

All have the same codes and scales (groups of 128), and each result is compared with a float64 product first. Times are
medians of replays of CUDA graphs over rotating copies of weights and activations, larger together than three times the
L2; the replays of all of them alternate, so that clocks and temperature are the same for each. Prints a JSON object a
line. tilusvm is matmul_lowbit as nn.Linear launches it, `early` with its attribute of that name (weights are read while
the launch before still runs).

humming: the package humming-kernels; it compiles a kernel a shape and number of rows with NVRTC, which takes seconds,
outside of what is timed. Its humming/_native/*/nvrtc_compile has to be executable, which unzip does not make it.
Marlin: its one file, marlin_cuda_kernel.cu, without the cache hint of cp_async4_stream (an illegal instruction on
sm_90), and behind it

    extern "C" int marlin_run(const void *A, const void *B, void *C, void *s, int m, int n, int k, void *ws,
                              cudaStream_t st) { return marlin_cuda(A, B, C, s, m, n, k, ws, 128, 0, st); }

by nvcc -O3 -std=c++17 -gencode arch=compute_90,code=sm_90 --expt-relaxed-constexpr -Xcompiler -fPIC -shared. The
kernel that vLLM and SGLang have made of it (marlin_mm of gptq_marlin.cuh, kU4B8, with room for sums, 132 x 64 x 256
floats) takes the same weights: --marlin vllm=FILE; of 8 bits (kU8B128) by marlin_run_u8.
Exit status: 0 every point was right, 1 one was not."""
import argparse
import concurrent.futures
import copy
import ctypes
import json
import sys
import time

import torch
from side_by_side import Job, alternate, copies_beside_l2, twin

from tilusvm import nn

GROUP = 128


def numbers_of(codes, name):
    """What codes stand for, in float64, by the definition of the types."""
    bits = int(name[1])
    if name[0] == "u":
        return codes.double() - 2 ** (bits - 1)
    exponent_bits, mantissa_bits = int(name[4]), int(name[6])
    mantissa = (codes & (2**mantissa_bits - 1)).double() / 2**mantissa_bits
    exponent = codes >> mantissa_bits & (2**exponent_bits - 1)
    bias = 2 ** (exponent_bits - 1) - 1
    size = torch.where(exponent == 0, mantissa * 2.0 ** (1 - bias), (1 + mantissa) * 2.0 ** (exponent - bias).double())
    return torch.where(codes >> bits - 1 == 1, -size, size)


class Ours:
    """The weights of one layer, and what launches its product; copies() gives the same with memory of its own."""

    names = ("tilusvm", "early")

    def __init__(self, name, codes, scales):
        self.layer = nn.Linear.from_codes(codes, scales, type=name, group=GROUP)

    def copies(self):
        made = copy.copy(self)
        made.layer = twin(self.layer)
        return made

    def launch(self, mode, x, out):
        self.layer.early = mode == "early"
        return self.layer(x)


def humming_type(name):
    return "uint" + name[1:] if name[0] == "u" else "float" + name[1:].replace("_", "")


class Humming:
    names = ("humming",)

    def __init__(self, name, codes, scales):
        from humming.layer import HummingLayer

        k, n = codes.shape
        bits = int(name[1])
        words = {"dtype": humming_type(name), "group_size": GROUP}
        layer = HummingLayer(n, k, words, torch_dtype=torch.float16).cuda()
        shifts = torch.arange(bits, device="cuda", dtype=torch.uint8)
        words = torch.empty(n, k * bits // 32, dtype=torch.int32, device="cuda")
        for i in range(0, n, 1024):  # strings of bits, the lowest of each code first
            string = (codes[:, i : i + 1024].t()[..., None] >> shifts & 1).reshape(-1, k * bits // 8, 8)
            words[i : i + 1024] = (string << torch.arange(8, device="cuda", dtype=torch.uint8)).sum(
                -1, dtype=torch.uint8).view(torch.int32)  # fmt: skip
        layer.weight.data, layer.weight_scale.data = words, scales.t().contiguous()
        layer.transform()
        self.layer, self.tuned = layer, {}

    @staticmethod
    def compile(name, sizes, batches):
        """Makes the kernels of (n, k) in sizes and of so many rows, side by side, for launch to find them."""
        from humming.kernel.humming import HummingKernel
        from humming.schema import BaseWeightSchema
        from humming.transform import prepare_layer_config
        from humming.tune import get_heuristics_config

        words = {"quant_method": "humming", "dtype": humming_type(name), "group_size": GROUP}
        schema, jobs = BaseWeightSchema.from_config(words), set()
        for n, k in sizes:
            config = prepare_layer_config(n, k, schema, torch_dtype=torch.float16)
            jobs |= {(config.to_str(), json.dumps(get_heuristics_config(config, shape_m=m))) for m in batches}
        with concurrent.futures.ThreadPoolExecutor(len(jobs)) as threads:
            for _ in threads.map(lambda job: HummingKernel.prepare_kernels(job[0], None, job[1]), jobs):
                pass

    def copies(self):
        made = copy.copy(self)
        made.layer = twin(self.layer)
        return made

    def launch(self, mode, x, out):
        from humming.tune import get_heuristics_config

        m = x.shape[0]
        if m not in self.tuned:  # of what the layer would choose, only the kernel for so many rows
            self.tuned[m] = json.dumps(get_heuristics_config(self.layer.humming_config, shape_m=m))
        return self.layer(x, out, tuning_config=self.tuned[m])


class Marlin:
    libraries = {}  # by the names that --marlin gives them
    functions = {"u4": "marlin_run", "u8": "marlin_run_u8"}
    names = libraries.keys()

    def __init__(self, name, codes, scales):
        k, n = codes.shape
        if name not in self.functions or n % 64 or not self.libraries:
            raise NotImplementedError("u4 and u8, and multiples of 64 columns (of Marlin itself 256)")
        bits = int(name[1])
        count = 32 // bits  # codes of a word; those of one register of an mma apart
        lane, half, pair = torch.arange(32), torch.arange(2), torch.tensor([0, 1, 8, 9])
        rows = 2 * (lane % 4)[:, None, None] + pair  # of a fragment of 16 x 16, a lane's
        once = 16 * rows + (lane // 4)[:, None, None] + 8 * half[None, :, None]
        order = once.reshape(32, 1, 8) + 256 * torch.arange(4)[None, :, None]
        order = order.reshape(-1, count)[:, [*range(0, count, 2), *range(1, count, 2)]].flatten()
        tiles = codes.view(k // 16, 16, n // 16, 16).transpose(1, 2).reshape(k // 16, n * 16)
        tiles = tiles.reshape(-1, order.numel())[:, order.cuda()].reshape(k // 16, n * 16 // count, count)
        shifts = bits * torch.arange(count, device="cuda")
        words = torch.empty(k // 16, n * 16 // count, dtype=torch.int64, device="cuda")
        for i in range(0, k // 16, 64):
            words[i : i + 64] = (tiles[i : i + 64].long() << shifts).sum(-1)
        self.words = torch.where(words >= 2**31, words - 2**32, words).int()
        columns = (torch.arange(8)[:, None] + 8 * torch.arange(8)).flatten()
        self.scales = scales.reshape(-1, 64)[:, columns.cuda()].reshape(scales.shape).contiguous()
        self.locks = torch.zeros(n // 128 * 16, dtype=torch.int32, device="cuda")
        self.n, self.k, self.function = n, k, self.functions[name]

    def copies(self):
        made = copy.copy(self)
        made.words, made.scales, made.locks = self.words.clone(), self.scales.clone(), self.locks.clone()
        return made

    def launch(self, mode, x, out):
        pointers = [ctypes.c_void_p(t.data_ptr()) for t in (x, self.words, out, self.scales)]
        sizes = [ctypes.c_int(size) for size in (x.shape[0], self.n, self.k)]
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        run = getattr(self.libraries[mode], self.function)
        if run(*pointers, *sizes, ctypes.c_void_p(self.locks.data_ptr()), stream):
            raise RuntimeError(f"{self.function} refused")
        return out


def add_marlin(parser):
    """--marlin, which may be repeated: libraries with marlin_run."""

    def load(text):
        name, _, path = text.rpartition("=")
        Marlin.libraries[name or "marlin"] = ctypes.CDLL(path)

    parser.add_argument("--marlin", action="append", type=load, metavar="[NAME=]LIBRARY", help="with marlin_run")


class Cublas:
    names = ("cublas",)

    def __init__(self, name, codes, scales):
        numbers = numbers_of(torch.arange(256, device="cuda") & 2 ** int(name[1]) - 1, name).half()
        self.weight = torch.empty(codes.shape[::-1], dtype=torch.float16, device="cuda")
        for i in range(0, codes.shape[0], GROUP):
            self.weight[:, i : i + GROUP] = (numbers[codes[i : i + GROUP].int()] * scales[i // GROUP]).t()

    def copies(self):
        made = copy.copy(self)
        made.weight = self.weight.clone()
        return made

    def launch(self, mode, x, out):
        return torch.mm(x, self.weight.t(), out=out)


def measure(name, n, k, batches, peers, options):
    least = 1 if options.symmetric and name[0] == "u" else 0
    codes = torch.randint(least, 2 ** int(name[1]), (k, n), device="cuda", dtype=torch.uint8)
    scales = (torch.rand(k // GROUP, n, device="cuda") * 0.02 + 0.005).half()
    columns = torch.randperm(n, device="cuda")[:64]
    weight = numbers_of(codes[:, columns].int(), name) * scales[:, columns].double().repeat_interleave(GROUP, 0)
    made = {}
    for peer in peers:
        begin = time.monotonic()
        try:
            first = peer(name, codes, scales)
        except Exception as error:  # a peer that cannot is told, the others go on
            print(f"{peer.__name__}: {name}, {n} x {k}: {error!r}", file=sys.stderr)
            continue
        size = n * k * (2 if peer is Cublas else int(name[1]) / 8)
        made[peer] = [first, *(first.copies() for _ in range(copies_beside_l2(size) - 1))]
        print(f"{peer.__name__}: {name}, {n} x {k}: weights in {time.monotonic() - begin:.1f} s", file=sys.stderr)
    del codes, scales
    right = True
    for m in batches:
        count = max(len(copies) for copies in made.values()) if m < 1024 else 3
        inputs = [torch.randn(m, k, device="cuda").half() for _ in range(count)]
        outs = [torch.empty(m, n, dtype=torch.float16, device="cuda") for _ in range(count)]
        expected = inputs[0].double() @ weight
        jobs = []
        for peer, copies in made.items():
            for mode in peer.names:
                begin = time.monotonic()
                try:
                    outs[0].fill_(float("nan"))
                    found = copies[0].launch(mode, inputs[0], outs[0])
                    error = ((found[:, columns].double() - expected).norm() / expected.norm()).item()
                    first = time.monotonic() - begin
                    if not error < 1e-3 or found.isnan().any():
                        right = False
                        print(f"{mode}: wrong at {m} x {n} x {k}, error {error:.3g}", file=sys.stderr)
                        continue
                    launches = max(40 // count, 1) * count if m < 1024 else 2 * count

                    def launch(i):
                        copies[i % len(copies)].launch(mode, inputs[i % count], outs[i % count])

                    jobs.append(Job(mode, launch, launches, error=error, first_s=round(first, 2)))
                except Exception as problem:
                    print(f"{mode}: {m} x {n} x {k}: {problem!r}", file=sys.stderr)
        alternate(jobs, options.replays, options.rest if m >= 512 else 0.0)
        for job in jobs:
            point = {"peer": job.name, "type": name, "m": m, "n": n, "k": k, "us": job.us, "least": job.least}
            print(json.dumps(point | job.facts), flush=True)
    return right


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--types", default="u4")
    parser.add_argument("--shapes", default="8192x8192,4096x4096,28672x4096,6144x4096,5120x5120,8192x28672")
    parser.add_argument("--batches", default="1,16,32,64,128,256,512,4096")
    add_marlin(parser)
    parser.add_argument("--symmetric", action="store_true", help="no code 0 of u types; humming then drops the offset")
    parser.add_argument("--replays", type=int, default=9)
    parser.add_argument("--rest", type=float, default=0.02, help="seconds before a replay from 512 rows up")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no shape after so long")
    options = parser.parse_args()
    peers = [Ours, Humming, Cublas] + ([Marlin] if Marlin.libraries else [])
    batches = [int(m) for m in options.batches.split(",")]
    begin, right = time.monotonic(), True
    for name in options.types.split(","):
        for shape in options.shapes.split(","):
            if time.monotonic() - begin > options.seconds:
                print(f"{name}, {shape} and what follows: out of time", file=sys.stderr)
                return 0 if right else 1
            n, k = map(int, shape.split("x"))
            right &= measure(name, n, k, batches, peers, options)
            torch.cuda.empty_cache()
    return 0 if right else 1


if __name__ == "__main__":
    with torch.no_grad():
        sys.exit(main())

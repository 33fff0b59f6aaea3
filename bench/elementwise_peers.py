#!/usr/bin/env python3
"""Memory-bound programs beside their peers, point by point in one run: bench/elementwise (ours, and a copy of as many
bytes), torch eager and compiled, FlashInfer where it is installed, and CUB where nvcc is.

    bench/elementwise_peers.py PATH/elementwise PROGRAMS [TEXT]

TEXT chooses points whose name contains it. Peers' times are medians of replays of a CUDA graph of launches over
rotating tensors, larger than three times the L2 together, as those of bench/elementwise are."""
import ctypes
import os
import subprocess
import sys
import tempfile

import torch
import torch.nn.functional as F
from timing import captured, median_us

try:
    import flashinfer
except ImportError:
    flashinfer = None

L2 = 60 << 20
REPLAYS = 15
H = torch.float16
CUB = r"""
#include <cub/cub.cuh>
static void *room;
static size_t bytes;
extern "C" int histogram(const int *x, int n, int *bins, int count, void *stream) {
    size_t need = 0;
    cub::DeviceHistogram::HistogramEven(nullptr, need, x, bins, count + 1, 0, count, n, (cudaStream_t)stream);
    if (need > bytes && cudaMalloc(&room, bytes = need) != cudaSuccess) return 1;
    return cub::DeviceHistogram::HistogramEven(room, need, x, bins, count + 1, 0, count, n, (cudaStream_t)stream);
}
"""


def tensors(*shapes, dtype=H):
    return [torch.randn(s, device="cuda", dtype=dtype) for s in shapes]


def measure(function, make):
    """Microseconds of function(*make())."""
    first = make()
    size = sum(t.numel() * t.element_size() for t in first if isinstance(t, torch.Tensor))
    data = [first] + [make() for _ in range(min(40, 3 * L2 // max(size, 1)))]
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for arguments in data:
            function(*arguments)
    torch.cuda.synchronize()
    launches = max(2, min(40, int(2e10 // max(size, 1))))
    words = {"stream": stream, "capture_error_mode": "relaxed"}
    graph = captured(lambda i: function(*data[i % len(data)]), launches, **words)
    return median_us(graph.replay, REPLAYS, warm_up=2) / launches


def swiglu(x):
    a, b = x.chunk(2, -1)
    return F.silu(a) * b


def cub_histogram():
    folder = tempfile.mkdtemp()
    source, library = os.path.join(folder, "cub.cu"), os.path.join(folder, "cub.so")
    with open(source, "w") as f:
        f.write(CUB)
    try:
        subprocess.run(["nvcc", "-O2", "-arch=native", "-shared", "-Xcompiler", "-fPIC", source, "-o", library],
                       check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    call = ctypes.CDLL(library).histogram
    call.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p]

    def histogram(x, bins):
        stream = torch.cuda.current_stream().cuda_stream
        assert call(x.data_ptr(), x.numel(), bins.data_ptr(), bins.numel(), stream) == 0

    return histogram


def codes(n, limit):
    return torch.randint(0, limit, (n,), device="cuda", dtype=torch.int32)


def points():
    """Name, point of bench/elementwise, {peer: function}, arguments."""
    for m, n in ((16384, 4096), (4096, 152064)):
        x, y = f"r:f16:{m}*{n}", f"w:f16:{m}*{n}"
        row = lambda m=m, n=n: tensors((m, n))
        with_w = lambda m=m, n=n: tensors((m, n), (n,))
        yield (f"softmax {m} x {n}", f"softmax/T=f16/softmax/i:{m} i:{n} {x} {y}",
               {"torch": lambda a: F.softmax(a, -1)}, row)
        yield (f"layer_norm {m} x {n}",
               f"layer_norm/T=f16/layer_norm/i:{m} i:{n} f:1e-5 {x} r:f16:{n} r:f16:{n} {y}",
               {"torch": lambda a, w: F.layer_norm(a, w.shape, w, w)}, with_w)
        yield from rms_norm(m, n)
    yield from rms_norm(64, 8192)
    for m, n in ((16384, 4096), (64, 4096), (64, 8192)):
        peers = {"torch": swiglu}
        if flashinfer:
            peers["flashinfer"] = flashinfer.silu_and_mul
        yield (f"swiglu {m} x {n}", f"swiglu/T=f16/swiglu/i:{m} i:{n} r:f16:{m}*{2 * n} w:f16:{m}*{n}", peers,
               lambda m=m, n=n: tensors((m, 2 * n)))
    m, n = 64, 152064
    yield (f"topk {m} x {n}", f"topk/T=f16 K=20/topk/i:{m} i:{n} r:f16:{m}*{n} w:f16:{m}*20 w:i32:{m}*20",
           {"torch": lambda a: torch.topk(a, 20)}, lambda: tensors((m, n)))
    m, n = 16384, 4096
    yield (f"transpose {m} x {n}", f"transpose/T=f16/transpose/i:{m} i:{n} r:f16:{m}*{n} w:f16:{m}*{n}",
           {"torch": lambda a: a.t().contiguous()}, lambda: tensors((m, n)))
    yield (f"cumsum {m} x {n}", f"cumsum/T=f16/cumsum/i:{m} i:{n} r:f16:{m}*{n} w:f16:{m}*{n}",
           {"torch": lambda a: torch.cumsum(a, -1)}, lambda: tensors((m, n)))
    for name, dtype in (("f32", torch.float32), ("f16", H)):
        yield (f"scatter_add {name} {m} x {n}",
               f"scatter_add/T={name}/scatter_add/i:{m} i:{m} i:{n} r:{name}:{m}*{n} k:i32:{m}:{m} b:{name}:{m}*{n}",
               {"torch": lambda t, ids, x: t.index_add_(0, ids, x)},
               lambda dtype=dtype: [*tensors((m, n), dtype=dtype), codes(m, m), *tensors((m, n), dtype=dtype)])
    cub = cub_histogram()
    for bins in (256, 16384):
        yield (f"histogram {bins} bins",
               f"histogram/T=i32/histogram/i:67108864 i:{bins} k:i32:67108864:{bins} b:i32:{bins}",
               {"CUB": cub} if cub else {},
               lambda bins=bins: [codes(1 << 26, bins), torch.zeros(bins, device="cuda", dtype=torch.int32)])


def rms_norm(m, n):
    peers = {"torch": lambda a, w: F.rms_norm(a, w.shape, w)}
    if flashinfer:
        peers["flashinfer"] = flashinfer.norm.rmsnorm
    yield (f"rms_norm {m} x {n}",
           f"rms_norm/T=f16/rms_norm/i:{m} i:{n} f:1e-5 r:f16:{m}*{n} r:f16:{n} w:f16:{m}*{n}", peers,
           lambda: tensors((m, n), (n,)))


def compiled(function, arguments):
    torch._dynamo.reset()
    made = torch.compile(function)
    made(*arguments)
    return made


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    program, folder, text = sys.argv[1], sys.argv[2], (sys.argv + [""])[3]
    for name, point, peers, make in points():
        if text not in name:
            continue
        ours = subprocess.run([program, "--programs", folder, "-x", point], capture_output=True, text=True)
        line = ours.stdout.splitlines()[:1] or [ours.stderr.strip()]
        print(f"{name}\n    ours       {' '.join(line[0].split()[1:])}", flush=True)
        for peer, function in peers.items():
            variants = {peer: lambda: function}
            if peer == "torch" and "scatter" not in name:
                variants["compiled"] = lambda: compiled(function, make())
            for label, get in variants.items():
                try:
                    print(f"    {label:<10} {measure(get(), make):9.2f} us", flush=True)
                except Exception as e:  # a peer that cannot is told, the others go on
                    print(f"    {label:<10} {type(e).__name__}: {str(e).splitlines()[0][:80]}", flush=True)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()

"""Weights that `pack` laid out, multiplied by numbers of rows for which the entry chooses kernels of each kind, through
DLPack and the buffer protocol: as files hold them, in the shape that every kernel of the entry declares."""

import pathlib
import subprocess
import sys

import numpy
import pytest
from conftest import needs_gpu, torch

import tilusvm

ROWS, N, K, GROUP = (1, 12, 65, 300), 320, 768, 128


def product(rows, n, k, folder, to):
    """The names of the kernels that multiply, and the greatest error of c."""
    program = tilusvm.program("matmul_lowbit", WTYPE="u4", GROUP=GROUP)
    rng = numpy.random.default_rng(rows)
    codes = rng.integers(0, 256, (k, n // 2), dtype=numpy.uint8)
    packed = to(numpy.zeros(program.pack.param_shape("p", k=k, n=n), dtype=numpy.uint8))
    program.pack(k, n, to(codes), packed)
    numpy.save(folder / "p.npy", back(packed))
    a = rng.standard_normal((rows, k)).astype(numpy.float16)
    scales = rng.uniform(0.01, 0.02, (k // GROUP, n)).astype(numpy.float16)
    c = to(numpy.zeros((rows, n), dtype=numpy.float16))
    assert program["matmul_lowbit"].param_shape("p", m=rows, k=k, n=n) == packed.shape
    arguments = (rows, n, k, to(a), to(numpy.load(folder / "p.npy")), to(scales), c)
    program.matmul_lowbit(*arguments)
    weights = numpy.stack([codes & 15, codes >> 4], 2).reshape(k, n).astype(float) - 8
    exact = a.astype(float) @ (weights * scales.astype(float).repeat(GROUP, 0))
    return program.matmul_lowbit.variant(*arguments), abs(back(c) - exact).max() / abs(exact).max()


def back(x):
    return x if isinstance(x, numpy.ndarray) else x.cpu().numpy()


WAYS = {"numpy": lambda x: x, "torch": lambda x: torch.from_numpy(x.copy())}


def on_the_interpreter(folder):
    tilusvm.interpreter(multiprocessors=132, target=90)
    kernels = set()
    for way in WAYS if torch is not None else ["numpy"]:
        for rows in ROWS:
            kernel, error = product(rows, N, K, folder, WAYS[way])
            assert error < 2e-3, (way, rows, kernel, error)
            kernels.add(kernel)
    assert len(kernels) >= 3, kernels


def test_as_on_sm_90(tmp_path):
    """In a process of its own, as the interpreter is set up once."""
    code = "import pathlib, sys, test_packed; test_packed.on_the_interpreter(pathlib.Path(sys.argv[1]))"
    here = pathlib.Path(__file__).parent
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=here, check=True)


@needs_gpu
@pytest.mark.parametrize("rows", [*ROWS, 4096])
def test_on_a_gpu(rows, tmp_path):
    kernel, error = product(rows, 1024, 1024, tmp_path, lambda x: torch.from_numpy(x.copy()).cuda())
    assert error < 2e-3, kernel

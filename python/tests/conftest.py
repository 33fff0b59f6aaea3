"""What the tests share. Torch is used where it can be imported; its tests say so where it cannot. With TVM_HIDE_TORCH
in the environment it cannot."""

import os
import pathlib
import sys
import textwrap

import numpy
import pytest

import tilusvm

AXPY = """
.vasm 3
.kernel axpy(n: i32, alpha: f32, x: global f32[n], y: global f32[n])
.warps 4
.grid cdiv(n, 512)
    %i = block.x * 512
    %u = load-global x[%i], [512]
    %v = load-global y[%i], [512]
    store-global y[%i], fma(%u, alpha, %v)
.end
"""

if os.environ.get("TVM_HIDE_TORCH"):
    sys.modules["torch"] = None

try:
    import torch
except ImportError as error:
    torch = None
    NO_TORCH = f"torch cannot be imported: {error}"
else:
    NO_TORCH = ""

needs_torch = pytest.mark.skipif(torch is None, reason=NO_TORCH)
needs_gpu = pytest.mark.skipif(
    torch is None or not torch.cuda.is_available(), reason=NO_TORCH or "there is no GPU that torch can use"
)


def aligned(shape, dtype, fill=0):
    """A numpy array whose first element is at a multiple of 16 bytes, as kernels want it."""
    dtype = numpy.dtype(dtype)
    count = int(numpy.prod(shape))
    memory = numpy.zeros(count * dtype.itemsize + 16, numpy.uint8)
    start = -memory.ctypes.data % 16
    array = memory[start : start + count * dtype.itemsize].view(dtype).reshape(shape)
    array[...] = fill
    return array


def readme_lines(start):
    """The indented lines of the project's README that begin with the line `start`, up to an empty one."""
    text = (pathlib.Path(__file__).parent.parent.parent / "README").read_text()
    block = text[text.index(f"    {start}\n") :].partition("\n\n")[0]
    return textwrap.dedent(block)


@pytest.fixture(scope="session")
def axpy():
    return tilusvm.assemble(AXPY, name="axpy.vasm")["axpy"]


@pytest.fixture
def vectors():
    x = aligned(1000, numpy.float32)
    x[:] = numpy.arange(1000)
    return x, aligned(1000, numpy.float32, 2)


@pytest.fixture(scope="session")
def programs():
    return pathlib.Path(tilusvm.PROGRAMS)

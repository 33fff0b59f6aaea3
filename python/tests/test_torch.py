"""Torch tensors: on the CPU they run on the interpreter, on a GPU on torch's current stream."""

import pytest
from conftest import AXPY, needs_gpu, needs_torch, torch

import tilusvm

pytestmark = needs_torch

COPY = """
.vasm 3
.const TYPE = f32
.kernel copy(x: global TYPE[64], y: global TYPE[64])
.warps 1
.grid 1
    store-global y[0], load-global(x[0], [64])
.end
"""


def test_cpu(axpy):
    x, y = torch.arange(1000.0), torch.full((1000,), 2.0)
    axpy(1000, 3.0, x, y)
    assert torch.equal(y, torch.arange(1000.0) * 3 + 2)


def test_parameters_of_modules(axpy):
    x, y = torch.nn.Parameter(torch.ones(1000)), torch.zeros(1000)
    axpy(1000, 3.0, x, y)
    assert (y == 3).all()


def test_scalar_tensors_are_no_surprise(axpy):
    x, y = torch.ones(1000), torch.zeros(1000)
    axpy(torch.tensor(1000), torch.tensor(3.0), x, y)
    assert (y == 3).all()


@pytest.mark.parametrize(
    "ours, theirs",
    [("f16", "float16"), ("bf16", "bfloat16"), ("f32", "float32"), ("f64", "float64"), ("i8", "int8"), ("u8", "uint8"),
     ("i32", "int32"), ("i64", "int64"), ("bool", "bool"), ("f8_e4m3", "float8_e4m3fn"), ("f8_e5m2", "float8_e5m2"),
     ("e8m0", "float8_e8m0fnu"), ("f8_e4m3", "uint8")],
)  # fmt: skip
def test_types(ours, theirs):
    dtype = getattr(torch, theirs)
    x, y = (torch.arange(64) % 2).to(torch.float32).to(dtype), torch.zeros(64).to(dtype)
    tilusvm.assemble(COPY, TYPE=ours)["copy"](x, y)
    assert torch.equal(x.view(torch.uint8), y.view(torch.uint8))


def test_wrong_tensors(axpy):
    good = torch.zeros(1000)
    for bad, message in [
        (torch.zeros(1000, dtype=torch.float16), "float16"),
        (torch.zeros(2000)[::2], "stride 0"),
        (torch.zeros(999), r"float32\[999\]"),
        (torch.zeros(1000, device="meta"), "gives no DLPack tensor"),
    ]:
        with pytest.raises(tilusvm.ArgumentError, match=message) as error:
            axpy(1000, 1.0, good, bad)
        assert error.value.argument == "y"


@needs_gpu
def test_gpu(axpy):
    x, y = torch.arange(1000.0, device="cuda"), torch.full((1000,), 2.0, device="cuda")
    axpy(1000, 3.0, x, y)
    assert torch.equal(y.cpu(), torch.arange(1000.0) * 3 + 2)
    assert axpy.info("cuda").registers > 0
    assert "sm_" in axpy.program.origin("cuda")


@needs_gpu
def test_the_current_stream(axpy):
    """What runs behind a long kernel of the same stream sees what that wrote."""
    stream = torch.cuda.Stream()
    a = torch.ones(4096, 4096, device="cuda")
    with torch.cuda.stream(stream):
        for _ in range(20):
            a = a @ a * 0.0 + 1.0
        x = a[0, :1000].contiguous()
        y = torch.zeros(1000, device="cuda")
        axpy(1000, 3.0, x, y)
        z = y + 1
    stream.synchronize()
    assert (z == 4).all()
    with torch.cuda.stream(torch.cuda.Stream()):
        axpy(1000, 1.0, x, y, stream=stream)
        axpy(1000, 1.0, x, y, stream=stream.cuda_stream)
    stream.synchronize()
    assert (y == 5).all()


@needs_gpu
def test_a_graph(axpy):
    x, y = torch.ones(1000, device="cuda"), torch.zeros(1000, device="cuda")
    axpy(1000, 0.0, x, y)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        axpy(1000, 1.0, x, y)
    for _ in range(3):
        graph.replay()
    assert (y == 3).all()


@needs_gpu
def test_devices_do_not_mix(axpy):
    here, there = torch.zeros(1000), torch.zeros(1000, device="cuda")
    with pytest.raises(tilusvm.ArgumentError, match="'y' is to be on the CPU, but is on cuda:0"):
        axpy(1000, 1.0, here, there)
    with pytest.raises(tilusvm.ArgumentError, match="'y' is to be on cuda:0, but is on the CPU"):
        axpy(1000, 1.0, there, here)
    with pytest.raises(tilusvm.ArgumentError, match="'x' is to be on cuda:0, but is on the CPU"):
        axpy(1000, 1.0, here, here, device="cuda")


@needs_gpu
def test_a_dropped_program_runs_to_its_end():
    x, y = torch.ones(1 << 24, device="cuda"), torch.zeros(1 << 24, device="cuda")
    for _ in range(10):
        tilusvm.assemble(AXPY)["axpy"](1 << 24, 1.0, x, y)
    assert (y == 10).all()

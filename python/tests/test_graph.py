"""Graphs on the interpreter, with numpy arrays and torch tensors; on a GPU beside the launches themselves."""

import gc

import numpy
import pytest
from conftest import AXPY, aligned, needs_gpu, needs_torch, torch

import tilusvm

MLP = """
.vasm 3
.kernel product(m: i32, n: i32, k: i32, a: global f16[m, k], b: global f16[k, n], c: global f16[m, n])
.warps 4
.grid cdiv(m, 64), cdiv(n, 64)
.assume n % 8 == 0, k % 8 == 0
    %a = alloc-shared f16[64, 64]
    %b = alloc-shared f16[64, 64]
    %c = alloc-register f32[64, 64], init 0.0
    for %k0 = 0 to k step 64 pipeline 2
        copy-async %a, a[block.x * 64, %k0]
        copy-async %b, b[%k0, block.y * 64]
        %c = mma %a, %b, %c, k 64
    end
    store-global c[block.x * 64, block.y * 64], cast(%c, f16)
.end
.kernel relu(n: i32, least: f32, x: global f16[n], y: global f16[n])
.warps 4
.grid cdiv(n, 512)
    %x = cast(load-global(x[block.x * 512], [512]), f32)
    store-global y[block.x * 512], cast(max(%x, least), f16)
.end
"""
M, D, H = 40, 48, 72


@pytest.fixture(scope="module")
def mlp():
    return tilusvm.assemble(MLP, name="mlp.vasm")


def data(seed):
    random = numpy.random.default_rng(seed)
    make = lambda *shape: random.integers(-2, 3, shape).astype(numpy.float16)  # sums are exact
    arrays = [aligned(shape, numpy.float16) for shape in ((M, D), (D, H), (H, D), (M, D))]
    for array in arrays[:3]:
        array[...] = make(*array.shape)
    return arrays


def expected(x, w1, w2, least=0.0):
    h = numpy.maximum(x.astype(numpy.float64) @ w1.astype(numpy.float64), least)
    return h @ w2.astype(numpy.float64)


def build(mlp, x, w1, w2, y, device="cpu", persistent=False):
    graph = tilusvm.Graph("mlp", device=device, persistent=persistent)
    up = graph.temporary("up", (M, H), "f16")
    flat = graph.part("flat", up, (M * H,), "f16")
    h = graph.temporary("h", (M, H), "f16")
    graph.scalar("least", "f32", 0.0)
    graph.launch(mlp.product, M, H, D, graph.input("x", x), graph.input("w1", w1), up)
    graph.launch(mlp.relu, M * H, "least", flat, graph.part("flat_h", h, (M * H,), "f16"), name="act")
    graph.launch(mlp.product, M, D, H, a=h, b=graph.input("w2", w2), c=graph.output("y", y))
    return graph


@pytest.mark.parametrize("persistent", [False, True])
def test_a_graph_computes_what_its_launches_do(mlp, persistent):
    x, w1, w2, y = data(1)
    graph = build(mlp, x, w1, w2, y, persistent=persistent)
    assert graph() is None
    assert numpy.array_equal(y, expected(x, w1, w2))
    assert graph.report().splitlines() == [
        "mlp: 3 launches; memory of its own: 11776 bytes, 11776 unshared",
        "product.0: product, 1 x 2 x 1 blocks",
        "act: relu, 6 x 1 x 1 blocks, after product.0",
        "product.2: product, 1 x 1 x 1 blocks, after act",
    ]


def test_arguments_change_by_their_names(mlp):
    x, w1, w2, y = data(2)
    graph = build(mlp, x, w1, w2, y)
    graph()
    other, _, _, result = data(3)
    graph(x=other, y=result, least=3)
    assert numpy.array_equal(result, expected(other, w1, w2, 3))
    assert numpy.array_equal(y, expected(x, w1, w2))
    graph()
    assert numpy.array_equal(result, expected(other, w1, w2, 3))


def test_the_graph_holds_its_tensors_and_programs():
    program = tilusvm.assemble(AXPY)
    x, y = aligned(1000, numpy.float32, 1), aligned(1000, numpy.float32, 2)
    graph = tilusvm.Graph("g", device="cpu")
    graph.launch(program["axpy"], 1000, 3.0, graph.input("x", x), graph.state("y", y))
    del program, x
    gc.collect()
    graph()
    graph()
    assert (y == 8).all()
    with graph:
        pass
    with pytest.raises(tilusvm.UsageError, match="closed"):
        graph()


def test_what_is_wrong_is_told(axpy, vectors):
    x, y = vectors
    graph = tilusvm.Graph("g", device="cpu")
    graph.input("x", x)
    graph.temporary("t", (1000,), "f32")
    with pytest.raises(tilusvm.ArgumentError, match="graph 'g': launch 'a': kernel 'axpy' writes 'y', which is"):
        graph.launch(axpy, 1000, 1.0, "x", "x", name="a")
    with pytest.raises(tilusvm.ArgumentError, match="reads 'x', the temporary 't', which no launch before it has"):
        graph.launch(axpy, 1000, 1.0, "t", "t")
    with pytest.raises(tilusvm.UsageError, match="there is no tensor or scalar 'z'"):
        graph.launch(axpy, 1000, 1.0, "x", "z")
    with pytest.raises(tilusvm.SignatureError, match="no argument is given for parameter 'y'"):
        graph.launch(axpy, 1000, 1.0, "x")
    with pytest.raises(tilusvm.SignatureError, match="two arguments are given for parameter 'n'"):
        graph.launch(axpy, 1000, 1.0, "x", "t", n=1)
    with pytest.raises(tilusvm.SignatureError, match="there is no parameter 'z'"):
        graph.launch(axpy, 1000, 1.0, "x", "t", z=1)
    with pytest.raises(tilusvm.UsageError, match="'u3' is none of"):
        graph.temporary("u", (8,), "u3")
    with pytest.raises(tilusvm.UsageError, match="there is a 'x' already"):
        graph.output("x", y)
    with pytest.raises(tilusvm.UsageError, match="is of another graph"):
        graph.launch(axpy, 1000, 1.0, tilusvm.Graph("other", device="cpu").input("x", x), "t")
    with pytest.raises(tilusvm.ArgumentError, match="it has no launch"):
        graph()


def test_launches_that_meet_in_memory_need_an_order(axpy, vectors):
    x, y = vectors
    for after in ((), ("one",)):
        graph = tilusvm.Graph("g", device="cpu")
        graph.input("x", x)
        graph.state("y", y)
        graph.state("z", y)
        graph.launch(axpy, 1000, 1.0, "x", "y", name="one")
        graph.launch(axpy, 1000, 1.0, "x", "z", name="two", after=after)
        if after:
            graph()
        else:
            with pytest.raises(tilusvm.ArgumentError, match="launch 'one' writes 'y' and launch 'two' writes 'z'"):
                graph()
    assert numpy.array_equal(y, 2 * numpy.arange(1000, dtype=numpy.float32) + 2)


@needs_torch
def test_tensors_of_torch(mlp):
    arrays = [torch.from_numpy(array) for array in data(4)]
    build(mlp, *arrays)()
    x, w1, w2, y = (array.numpy() for array in arrays)
    assert numpy.array_equal(y, expected(x, w1, w2))


@needs_gpu
@pytest.mark.parametrize("persistent", [False, True])
def test_on_a_gpu(persistent):
    """Of any n and k, as a persistent kernel takes no tensor maps."""
    mlp = tilusvm.assemble(MLP.replace(".assume n % 8 == 0, k % 8 == 0\n", ""), name="mlp.vasm")
    arrays = [torch.from_numpy(array).cuda() for array in data(5)]
    graph = build(mlp, *arrays, device="cuda", persistent=persistent)
    graph()
    other = torch.from_numpy(data(6)[0]).cuda()
    results = [arrays[3].clone()]
    graph(x=other, least=2.0)
    results.append(arrays[3])
    x, w1, w2, _ = (array.cpu().numpy() for array in arrays)
    assert numpy.array_equal(results[0].cpu().numpy(), expected(x, w1, w2))
    assert numpy.array_equal(results[1].cpu().numpy(), expected(other.cpu().numpy(), w1, w2, 2.0))
    graph.close()


# ---- as text


def text_of(tmp_path):
    """The perceptron of MLP as a file that names it."""
    (tmp_path / "mlp.vasm").write_text(MLP)
    path = tmp_path / "two.graph"
    path.write_text("""
.vasm 7
.const ROWS = 40
.program mlp = "mlp.vasm"
.graph two(d: i32, h: i32, least: f32, x: input f16[ROWS, d], w1: input f16[d, h], w2: input f16[h, d],
           y: output f16[ROWS, d])
    %up = alloc-global f16[ROWS, h]
    %flat = view-global %up, [ROWS * h], strides row_major
    %h = alloc-global f16[ROWS, h]
    %hidden = view-global %h, [ROWS * h], strides row_major
    launch mlp.product(ROWS, h, d, x, w1, %up)
    launch mlp.relu(ROWS * h, least, %flat, %hidden)
    launch mlp.product(ROWS, d, h, %h, w2, y)
.end
""")
    return path


def test_a_text_is_a_graph(tmp_path):
    x, w1, w2, y = data(7)
    graph = tilusvm.Graph.load(text_of(tmp_path), "cpu", d=D, h=numpy.int64(H), least=0, x=x, w1=w1, w2=w2)
    graph(y=y)
    assert (y == expected(x, w1, w2)).all()
    other = data(8)[0]
    graph(x=other, least=1.0)
    assert (y == expected(other, w1, w2, 1.0)).all()
    with pytest.raises(tilusvm.UsageError, match="there is no scalar 'd'"):
        graph(d=3)
    with pytest.raises(tilusvm.ArgumentError, match="scalar 'least' is f32"):
        graph._native.scalar("least", None, 0, 2)
    with pytest.raises(tilusvm.UsageError, match="there is no tensor 'v'"):
        graph(v=x)


def test_a_text_is_refused_with_its_place(tmp_path):
    path = text_of(tmp_path)
    with pytest.raises(tilusvm.ArgumentError, match="scalar 'h' is not given"):
        tilusvm.Graph.load(path, "cpu", d=D, least=0.0)
    with pytest.raises(tilusvm.ArgumentError, match="scalar 'd' is i32"):
        tilusvm.Graph.load(path, "cpu", d=float(D), h=H, least=0.0)
    path.write_text(path.read_text().replace("mlp.relu", "mlp.rely"))
    with pytest.raises(tilusvm.AssembleError, match="two.graph:12:16: there is no kernel or entry 'rely'"):
        tilusvm.Graph.load(path, "cpu", d=D, h=H, least=0.0)
    with pytest.raises(tilusvm.FileError):
        tilusvm.Graph.load(tmp_path / "none.graph", "cpu")


def test_a_constant_and_launches_of_python_s(mlp, tmp_path):
    x, w1, w2, y = data(9)
    graph = tilusvm.Graph.load(
        text_of(tmp_path), "cpu", consts={"ROWS": M // 2}, d=D, h=H, least=0.0, x=x[: M // 2], w1=w1, w2=w2
    )
    half = graph.output("z", y[M // 2 :])
    graph.launch(mlp["product"], M // 2, D, H, "%h", "w2", half)
    graph(y=y[: M // 2])
    assert (y[: M // 2] == expected(x[: M // 2], w1, w2)).all()
    assert (y[M // 2 :] == y[: M // 2]).all()


def test_a_shipped_graph_goes_by_its_name():
    rows, d, h = 3, 32, 48
    random = numpy.random.default_rng(3)
    shapes = {"x": (rows, d), "residual": (rows, d), "norm": (d,), "w1": (2 * h, d), "w2": (d, h), "y": (rows, d)}
    arrays = {name: aligned(shape, numpy.float16) for name, shape in shapes.items()}
    for array in arrays.values():
        array[...] = random.uniform(-0.5, 0.5, array.shape)
    wide = {name: array.astype(numpy.float64) for name, array in arrays.items()}
    with tilusvm.Graph.load("llama_mlp", "cpu", m=rows, d=d, h=h, eps=1e-5, **arrays) as layer:
        layer()
    total = wide["x"] + wide["residual"]
    normed = total / numpy.sqrt((total**2).mean(1, keepdims=True) + 1e-5) * wide["norm"]
    gate, up = numpy.split(normed @ wide["w1"].T, 2, axis=1)
    result = total + (gate / (1 + numpy.exp(-gate)) * up) @ wide["w2"].T
    assert numpy.abs(arrays["y"] - result).max() < 4e-3

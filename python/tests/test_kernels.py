"""Calls on the interpreter with numpy arrays."""

import copy
import pathlib
import pickle
import subprocess

import numpy
import pytest
from conftest import AXPY, aligned

import tilusvm


def expected(n, alpha):
    return numpy.arange(n, dtype=numpy.float32) * alpha + 2


def test_by_place(axpy, vectors):
    x, y = vectors
    assert axpy(1000, 3.0, x, y) is None
    assert numpy.array_equal(y, expected(1000, 3))


def test_by_name(axpy, vectors):
    x, y = vectors
    axpy(y=y, x=x, alpha=3, n=1000)
    assert numpy.array_equal(y, expected(1000, 3))


def test_some_by_name(axpy, vectors):
    x, y = vectors
    axpy(1000, 3, y=y, x=x)
    assert numpy.array_equal(y, expected(1000, 3))


def test_scalars_of_numpy(axpy, vectors):
    x, y = vectors
    axpy(numpy.int64(1000), numpy.float32(3), x, y)
    assert numpy.array_equal(y, expected(1000, 3))


def test_an_empty_tensor_may_be_none(axpy):
    axpy(0, 1.0, None, None)


def test_dlpack_objects(axpy, vectors):
    class Wrapped:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **words):
            return self.array.__dlpack__(**words)

    x, y = vectors
    axpy(1000, 3.0, Wrapped(x), Wrapped(y))
    assert numpy.array_equal(y, expected(1000, 3))


def test_what_is_read_may_be_read_only(axpy, vectors):
    x, y = vectors
    x.flags.writeable = False
    axpy(1000, 3.0, x, y)
    assert numpy.array_equal(y, expected(1000, 3))


def test_parameters(axpy):
    assert [p.name for p in axpy.params] == ["n", "alpha", "x", "y"]
    assert [p.type for p in axpy.params] == ["i32", "f32", "f32", "f32"]
    assert [p.is_tensor for p in axpy.params] == [False, False, True, True]
    assert [p.written for p in axpy.params] == [False, False, False, True]
    assert axpy.params[2].shape == "[n]" and axpy.params[2].rank == 1 and axpy.params[2].bits == 32


def test_shapes():
    pack = tilusvm.program("matmul_lowbit", WTYPE="u4")["pack"]
    assert pack.param_shape("p", k=256, n=128) == (2, 2, 128 * 64 * 4 // 8)
    assert pack.param_bytes("w", 256, 128) == 256 * 128 // 2
    with pytest.raises(tilusvm.ArgumentError, match="assumes|not whole bytes"):
        pack.param_shape("w", 256, 127)
    with pytest.raises(tilusvm.SignatureError, match="no parameter 'q'"):
        pack.param_shape("q", 256, 128)


def test_info(axpy):
    info = axpy.info()
    assert info.target == "interpreter" and info.threads == 128


def test_prove(axpy):
    proof = axpy.prove()
    assert proof.races is tilusvm.Verdict.PROVED and proof.deadlocks is tilusvm.Verdict.PROVED
    assert proof.global_races is tilusvm.Verdict.PROVED
    assert proof.report == "axpy: races: proved\naxpy: deadlocks: proved\naxpy: global memory: proved\n"
    racy = tilusvm.assemble(
        ".vasm 7\n.kernel k(y: global f32[64])\n.warps 2\n.grid 1\n%s = alloc-shared f32[64]\n"
        "store-shared %s, alloc-register(f32[64], spatial(64), init 1.0)\n"
        "store-global y, load-shared(%s, flatten(column_spatial(2, 32)))\n.end\n"
    )
    assert racy.k.prove().races is tilusvm.Verdict.FOUND
    common = tilusvm.assemble(
        ".vasm 7\n.kernel k(y: global f32[64])\n.warps 2\n.grid 2\n"
        "store-global y, alloc-register(f32[64], spatial(64), init 1.0)\n.end\n"
    )
    assert common.k.prove().global_races is tilusvm.Verdict.FOUND


def test_check(tmp_path):
    """By certificates, which tvm-as writes: what is assembled here has none, and loops need them."""
    folder = pathlib.Path(tilusvm.__file__).parent
    plain = tilusvm.program("matmul_simple")["matmul_128"]
    assert plain.prove().races is tilusvm.Verdict.PROVED
    assert (plain.check().races, plain.check().deadlocks) == (tilusvm.Verdict.OPEN, tilusvm.Verdict.OPEN)
    source, target = folder / "programs" / "matmul_simple.vasm", tmp_path / "k.vbc"
    command = [folder / "bin" / "tvm-as", "--prove=certificate", source, "-o", target]
    subprocess.run(command, check=True, capture_output=True)
    found = tilusvm.load(target)["matmul_128"].check()
    assert (found.races, found.deadlocks) == (tilusvm.Verdict.PROVED, tilusvm.Verdict.PROVED)
    assert found.global_races is tilusvm.Verdict.OPEN
    assert found.report == "matmul_128: races: confirmed\nmatmul_128: deadlocks: confirmed\n"


def test_variant_of_an_entry():
    entry = tilusvm.program("matmul_lowbit", WTYPE="u4")["matmul_lowbit"]
    assert entry.variant(m=1, n=8192, k=8192, device="cpu") == "matmul_lowbit_mma_8x128x2_sm80"
    assert entry.variant(m=64, n=8192, k=8192) == "matmul_lowbit_mma_64x256x2_sm80"


def test_a_program_is_a_mapping():
    program = tilusvm.assemble(AXPY)
    assert list(program) == ["axpy"] and len(program) == 1 and "axpy" in program
    assert program.axpy is program["axpy"] and program.kernels == (program.axpy,)
    with pytest.raises(AttributeError):
        program.other
    with pytest.raises(tilusvm.NotFoundError, match="it has: axpy"):
        program["other"]


def test_a_kernel_keeps_its_program(vectors):
    x, y = vectors
    kernel = tilusvm.assemble(AXPY)["axpy"]
    kernel(1000, 3.0, x, y)
    assert numpy.array_equal(y, expected(1000, 3))


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda k: pickle.loads(pickle.dumps(k))])
def test_copies(axpy, vectors, again):
    x, y = vectors
    again(axpy)(1000, 3.0, x, y)
    again(axpy.program)["axpy"](1000, 3.0, x, y)
    assert numpy.array_equal(y, expected(1000, 6))


def test_files(tmp_path, axpy, vectors):
    x, y = vectors
    axpy.program.save(tmp_path / "axpy.vbc")
    (tmp_path / "axpy.vasm").write_text(AXPY)
    tilusvm.load(tmp_path / "axpy.vbc").axpy(1000, 3.0, x, y)
    tilusvm.load(str(tmp_path / "axpy.vasm")).axpy(1000, 3.0, x, y)
    assert numpy.array_equal(y, expected(1000, 6))


def test_constants_and_includes(tmp_path):
    (tmp_path / "twice.vasminc").write_text(".macro TWICE(%r, %x)\n%r = %x * FACTOR\n.endmacro\n")
    text = """
.vasm 3
.const FACTOR = 2, TYPE = f32, COPY = true
.include "twice.vasminc"
.kernel scale(n: i32, x: global TYPE[n], y: global TYPE[n] if COPY)
.warps 1
.grid cdiv(n, 32)
    %v = load-global x[block.x * 32], [32]
    TWICE(%r, %v)
    store-global x[block.x * 32], %r
.end
"""
    kernel = tilusvm.assemble(text, include=[tmp_path], FACTOR=5, TYPE="f16", COPY=False)["scale"]
    assert [p.name for p in kernel.params] == ["n", "x"]
    x = aligned(40, numpy.float16, 3)
    kernel(40, x)
    assert (x == 15).all()


def test_shipped_programs_are_assembled_once():
    program = tilusvm.program("matmul_lowbit", WTYPE="u3")
    assert tilusvm.program("matmul_lowbit", WTYPE="u3") is program
    assert tilusvm.program("matmul_lowbit", WTYPE="u4") is not program
    assert tilusvm.program("matmul_lowbit_u3")["pack"].params[2].type == "u3"
    assert "rms_norm" in tilusvm.program_names()
    with pytest.raises(tilusvm.NotFoundError, match="rms_norm"):
        tilusvm.program("rms_nrm")


def unpack_bits(packed, bits, shape):
    flat = numpy.unpackbits(packed.reshape(-1), bitorder="little")[: int(numpy.prod(shape)) * bits]
    return (flat.reshape(-1, bits) << numpy.arange(bits)).sum(1).reshape(shape)


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
def test_a_matmul_of_low_bit_weights(bits):
    rng = numpy.random.default_rng(bits)
    m, n, k, group = 5, 64, 256, 128
    program = tilusvm.program("matmul_lowbit", WTYPE=f"u{bits}", GROUP=group)
    w = aligned((k, n * bits // 8), numpy.uint8)
    w[...] = rng.integers(0, 256, w.shape)
    p = aligned(program.pack.param_shape("p", k, n), numpy.uint8)
    program.pack(k, n, w, p)
    a = aligned((m, k), numpy.float16)
    a[...] = rng.standard_normal((m, k))
    s = aligned((k // group, n), numpy.float16)
    s[...] = rng.uniform(0.01, 0.1, s.shape)
    c = aligned((m, n), numpy.float16)
    program["matmul_lowbit"](m, n, k, a, p, s, c=c)
    codes = unpack_bits(w, bits, (k, n)) - 2.0 ** (bits - 1)
    exact = a.astype(float) @ (codes * numpy.repeat(s.astype(float), group, axis=0))
    assert numpy.abs(c - exact).max() <= 2e-3 * numpy.abs(exact).max()


def test_types_of_numpy():
    text = """
.vasm 3
.const TYPE = f32
.kernel copy(x: global TYPE[32], y: global TYPE[32])
.warps 1
.grid 1
    store-global y[0], load-global(x[0], [32])
.end
"""
    pairs = {"f16": "f2", "f32": "f4", "f64": "f8", "i8": "i1", "i16": "i2", "i32": "i4", "i64": "i8", "u8": "u1",
             "u16": "u2", "u32": "u4", "u64": "u8", "bf16": "u2", "bool": "?", "f8_e4m3": "u1"}  # fmt: skip
    for ours, theirs in pairs.items():
        x, y = aligned(32, theirs), aligned(32, theirs)
        x[...] = numpy.arange(32) % 2
        tilusvm.assemble(text, TYPE=ours)["copy"](x, y)
        assert numpy.array_equal(x, y), ours


def test_bytes_as_bits():
    text = """
.vasm 3
.kernel copy(x: global u4[64], y: global u4[64])
.warps 1
.grid 1
    store-global y[0], load-global(x[0], [64])
.end
"""
    y = aligned(32, numpy.uint8)
    x = aligned(32, numpy.uint8, 0xA5)
    tilusvm.assemble(text)["copy"](memoryview(x), y)
    assert (y == 0xA5).all()


def test_scalar_types():
    text = """
.vasm 3
.kernel tell(b: bool, i: i64, u: u64, f: f64, to: global f64[4])
.warps 1
.grid 1
    store-global to[0], alloc-register(f64[1], init b ? 1.0 : 0.0)
    store-global to[1], alloc-register(f64[1], init f64(i))
    store-global to[2], alloc-register(f64[1], init f64(u))
    store-global to[3], alloc-register(f64[1], init f)
.end
"""
    kernel = tilusvm.assemble(text)["tell"]
    to = aligned(4, numpy.float64)
    kernel(True, -(2**40), 2**64 - 2048, 0.1, to)
    assert to.tolist() == [1.0, -(2.0**40), 2.0**64 - 2048, 0.1]
    kernel(numpy.bool_(False), -1, 0, 3, to)
    assert to.tolist() == [0.0, -1.0, 0.0, 3.0]

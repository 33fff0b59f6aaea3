"""What is wrong is an exception that says what, where, and of which argument."""

import pickle

import numpy
import pytest
from conftest import AXPY, aligned

import tilusvm


def test_classes():
    for name in tilusvm.__all__:
        value = getattr(tilusvm, name)
        if isinstance(value, type) and issubclass(value, Exception):
            assert issubclass(value, tilusvm.Error)
    assert issubclass(tilusvm.ArgumentError, ValueError) and issubclass(tilusvm.SignatureError, TypeError)


def test_text():
    with pytest.raises(tilusvm.AssembleError) as error:
        tilusvm.assemble(AXPY.replace("store-global", "store-globl"), name="axpy.vasm")
    assert (error.value.file, error.value.line, error.value.column) == ("axpy.vasm", 9, 5)
    assert error.value.hint == "did you mean 'store-global'?"
    assert "unknown instruction 'store-globl'" in str(error.value) and error.value.status == 4
    again = pickle.loads(pickle.dumps(error.value))
    assert type(again) is tilusvm.AssembleError and str(again) == str(error.value) and again.line == 9


def test_constants():
    with pytest.raises(tilusvm.AssembleError, match="NOT_THERE"):
        tilusvm.assemble(AXPY, NOT_THERE=1)


def test_files(tmp_path):
    with pytest.raises(tilusvm.FileError, match="No such file"):
        tilusvm.load(tmp_path / "none.vbc")
    (tmp_path / "bad.vbc").write_bytes(b"not bytecode")
    with pytest.raises(tilusvm.FormatError):
        tilusvm.load(tmp_path / "bad.vbc")
    damaged = bytearray(tilusvm.assemble(AXPY).bytecode)
    damaged[len(damaged) // 2] ^= 0x10
    with pytest.raises(tilusvm.Error):
        tilusvm.Program(bytes(damaged))


def strided(x):
    return numpy.repeat(x, 2)[::2]


def misaligned(x):
    other = aligned(1004, x.dtype)[1:1001]
    other[...] = x
    return other


def big_endian(x):
    return x.astype(">f4")


ONES = aligned(1000, numpy.float32, 1)
BAD_TENSORS = {
    "dtype": (ONES.astype(numpy.int32), "is to be f32\\[1000\\], but is int32"),
    "width": (ONES.astype(numpy.float64), "but is float64"),
    "shape": (ONES[:992], "but is float32\\[992\\]"),
    "rank": (ONES.reshape(10, 100), "but is float32\\[10, 100\\]"),
    "stride": (strided(ONES), "stride 0 is to be 1, but is 2"),
    "alignment": (misaligned(ONES), "not 16-byte aligned"),
    "byte order": (big_endian(ONES), "a type that no kernel takes"),
    "complex": (ONES.astype(numpy.complex64), "a type that no kernel takes"),
    "text": ("ones", "is to be a tensor of f32, but is a str"),
    "list": ([1.0] * 1000, "is to be a tensor of f32, but is a list"),
    "number": (1.0, "is to be a tensor of f32, but is a float"),
    "none": (None, "is NULL"),
}


@pytest.mark.parametrize("what", BAD_TENSORS)
def test_tensors(axpy, vectors, what):
    bad, message = BAD_TENSORS[what]
    x, y = vectors
    for arguments, name in [((1000, 3.0, bad, y), "x"), ((1000, 3.0, x, bad), "y")]:
        with pytest.raises(tilusvm.ArgumentError, match=message) as error:
            axpy(*arguments)
        assert error.value.argument == name and "kernel 'axpy'" in str(error.value)
    assert (y == 2).all()


def test_read_only_outputs(axpy, vectors):
    x, y = vectors
    y.flags.writeable = False
    with pytest.raises(tilusvm.ArgumentError, match="'y' is written, but the array is read-only"):
        axpy(1000, 3.0, x, y)
    with pytest.raises(tilusvm.ArgumentError, match="read-only"):
        axpy(1000, 3.0, x, bytes(4000))


@pytest.mark.parametrize("n", [1000.0, "1000", None, 2**31, -(2**40), 2**80])
def test_integers(axpy, vectors, n):
    with pytest.raises(tilusvm.ArgumentError) as error:
        axpy(n, 3.0, *vectors)
    assert error.value.argument == "n"


@pytest.mark.parametrize("alpha", ["3", None, 1j])
def test_floats(axpy, vectors, alpha):
    with pytest.raises(tilusvm.ArgumentError) as error:
        axpy(1000, alpha, *vectors)
    assert error.value.argument == "alpha"


def test_signatures(axpy, vectors):
    x, y = vectors
    for arguments, words, message in [
        ((1000, 3.0, x), {}, "no argument is given for parameter 'y'"),
        ((1000,), {"x": x, "y": y}, "no argument is given for parameter 'alpha'"),
        ((), {}, "no argument is given for parameter 'n'"),
        ((1000, 3.0, x, y, y), {}, "takes 4 arguments, 5 were given"),
        ((1000, 3.0, x, y), {"z": 1}, "there is no parameter 'z'"),
        ((1000, 3.0, x, y), {"n": 1}, "two arguments are given for parameter 'n'"),
    ]:
        with pytest.raises(tilusvm.SignatureError, match=message):
            axpy(*arguments, **words)


def test_assumes():
    text = AXPY.replace(".grid", ".assume n % 8 == 0\n.grid")
    kernel = tilusvm.assemble(text)["axpy"]
    with pytest.raises(tilusvm.ArgumentError, match="assumes n % 8 == 0 \\(n = 12\\)"):
        kernel(12, 1.0, aligned(12, "f4"), aligned(12, "f4"))


def test_devices(axpy, vectors):
    with pytest.raises(tilusvm.UsageError, match='not "gpu"'):
        axpy(1000, 3.0, *vectors, device="gpu")
    with pytest.raises(tilusvm.NotFoundError, match="cuda:99"):
        axpy.prepare(99)
    axpy(1000, 3.0, *vectors, device="cpu")


def test_faults():
    text = """
.vasm 3
.kernel outside(i: i32, x: global f32[32])
.warps 1
.grid 1
    %s = alloc-shared f32[32]
    store-shared %s[0], load-global(x[0], [32])
    sync
    store-global x[0], load-shared(%s[i], [16])
.end
"""
    kernel = tilusvm.assemble(text, name="outside.vasm")["outside"]
    x = aligned(32, numpy.float32)
    kernel(16, x)
    with pytest.raises(tilusvm.FaultError, match="outside.vasm:9"):
        kernel(17, x)


def test_limits(axpy, vectors):
    tilusvm.set_limits(instructions=1)
    try:
        with pytest.raises(tilusvm.LimitError):
            axpy(1000, 3.0, *vectors)
    finally:
        tilusvm.set_limits()
    axpy(1000, 3.0, *vectors)


def test_turns():
    text = """
.vasm 7
.kernel turns(n: i32)
.warps 1
.grid 1
    while n > 0
    end
    for %i = 0 to 5
        %j = %i
    end
.end
"""
    tilusvm.set_limits(turns=5, co_resident=True)
    try:
        kernel = tilusvm.assemble(text, name="turns.vasm")["turns"]
        kernel(0)
        with pytest.raises(tilusvm.LimitError, match="turns.vasm:6.*the budget of 5 turns is used up"):
            kernel(1)
    finally:
        tilusvm.set_limits()


def test_sanitizer():
    text = """
.vasm 3
.kernel race(x: global f32[32])
.warps 2
.grid 1
    %s = alloc-shared f32[64]
    store-global x[0], load-shared(%s[0], [32])
.end
"""
    kernel = tilusvm.assemble(text)["race"]
    x = aligned(32, numpy.float32)
    tilusvm.set_sanitizer("text")
    try:
        with pytest.raises(tilusvm.SanitizerError, match="never written"):
            kernel(x)
    finally:
        tilusvm.set_sanitizer(None)
    with pytest.raises(ValueError):
        tilusvm.set_sanitizer("yes")


def test_the_interpreter_is_set_up_before_it_is_used(axpy):
    with pytest.raises(tilusvm.UsageError, match="in use"):
        tilusvm.interpreter(threads=1)

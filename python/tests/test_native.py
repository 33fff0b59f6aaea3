"""The extension by itself: objects that nobody made right, and foreign objects that answer in their own way."""

import copy
import importlib.util
import operator
import os
import shutil
import subprocess
import sys
import unicodedata
from pathlib import Path

import numpy
import pytest

import tilusvm
from tilusvm import _native

TYPES = [_native.Kernel, _native.Program, tilusvm.Kernel, tilusvm.Program]


def exercise(value, depth=0):
    """Reads every attribute, calls what can be called in several ways; whatever is raised is Python's."""
    for name in dir(value):
        try:
            found = getattr(value, name)
        except Exception:
            continue
        if depth == 0 and name not in ("__class__", "__subclasshook__", "__init_subclass__"):
            for arguments in ((), (0,), ("cpu",), (None, None), (value,), (b"",)):
                try:
                    found(*arguments)
                except Exception:
                    pass


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_objects_that_were_never_initialized(kind, monkeypatch, tmp_path):
    """Of an extension's types there are none; of Python's every attribute gives a value or an exception."""
    monkeypatch.chdir(tmp_path)  # `save` writes a file
    makers = [lambda: kind.__new__(kind), lambda: object.__new__(kind), lambda: copy.copy(kind.__new__(kind))]
    made = []
    for make in makers:
        try:
            made.append(make())
        except (AttributeError, TypeError):
            pass
    if kind is tilusvm.Program:
        assert made
        for value in made:
            for ask in (lambda: value.bytecode, lambda: value.axpy, lambda: value.bytes, lambda: value._native):
                with pytest.raises(AttributeError, match="has no attribute or kernel"):
                    ask()
    else:
        assert not made
    for value in made:
        exercise(value)


@pytest.mark.parametrize("kind", TYPES[:2], ids=lambda kind: kind.__name__)
def test_arguments_that_make_no_object(kind, axpy):
    program = axpy.program._native
    wrong = [(), (None,), (b"",), (b"no program",), (program,), (program, 7), (program, -1), (kind, 0), (0, 0)]
    for arguments in wrong:
        with pytest.raises((TypeError, IndexError, tilusvm.Error)):
            kind(*arguments)


def test_whole_objects_are_whole(axpy):
    """What was made is not made again by __init__, and all of it can be called with anything."""
    for value in (axpy.program._native, _native.Kernel(axpy.program._native, 0)):
        try:
            value.__init__(b"", 5)
        except TypeError:
            pass
        exercise(value)
    assert axpy.program._native.bytes == axpy.program.bytecode and axpy.name == "axpy"
    with pytest.raises(TypeError):
        copy.copy(axpy.program._native)


class Foreign:
    """What has a capsule that holds something else than DLPack's functions."""

    __dlpack_c_exchange_api__ = unicodedata._ucnhash_CAPI


def test_capsules_of_other_names(axpy, vectors):
    with pytest.raises(tilusvm.ArgumentError, match="tensor 'x' is to be a tensor of f32, but is a Foreign"):
        axpy(1000, 1.0, Foreign(), vectors[1])


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, SystemExit])
def test_interruptions_come_through(axpy, vectors, interruption):
    """Whatever of an argument is asked, an error of its own is the cause of ours, and an interruption stays one."""

    def stop(*_, **__):
        raise raised()

    class Meta(type):
        def __getattr__(cls, name):
            return stop()

    x, y = vectors
    objects = [
        (1000, 1.0, type("Tensor", (), {"__dlpack__": stop})(), y),
        (1000, 1.0, type("Tensor", (), {"__dlpack__": property(stop)})(), y),
        (1000, 1.0, Meta("Tensor", (), {})(), y),
        (type("Number", (), {"__index__": stop})(), 1.0, x, y),
        (1000, type("Number", (), {"__float__": stop})(), x, y),
    ]
    for arguments in objects:
        raised = interruption
        with pytest.raises(interruption):
            axpy(*arguments)
        raised = ValueError
        with pytest.raises(tilusvm.ArgumentError):
            axpy(*arguments)
    assert numpy.array_equal(y, numpy.full(1000, 2, numpy.float32))


def python(code, **environment):
    """What a new Python says of some code."""
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, **environment}, timeout=3600)
    return done.returncode, done.stdout + done.stderr


def test_the_folder_of_the_sources(tmp_path):
    """Without the extension beside it the package says what to do."""
    folder = Path(tilusvm.__file__).resolve().parent
    shutil.copytree(folder, tmp_path / "tilusvm", ignore=shutil.ignore_patterns("programs", "*.so", "__pycache__"))
    status, said = python("import tilusvm", PYTHONPATH=str(tmp_path))
    assert status == 1 and said.splitlines()[-1].startswith(f"ImportError: {tmp_path}/tilusvm is the source of tilusvm")
    assert "pip install ./python" in said and "circular" not in said


def test_what_needs_torch_says_so():
    """Each module of the package can be imported without torch, or says what to install."""
    folder = Path(tilusvm.__file__).parent
    names = sorted(path.stem for path in folder.glob("*.py") if path.stem not in ("__init__", "__main__"))
    code = """
import importlib, sys
sys.modules["torch"] = None
for name in sys.argv[1:]:
    try:
        importlib.import_module(f"tilusvm.{name}")
    except ImportError as error:
        print(name, error.name, "pip install torch" in str(error))
"""
    words = [sys.executable, "-c", code, *names, "transformers"]
    said = subprocess.run(words, capture_output=True, text=True, timeout=3600, check=True).stdout
    refused = {line.split()[0]: line.split()[1:] for line in said.splitlines()}
    assert set(refused) >= {"nn", "ops", "quantize", "storage", "experts", "parallel", "checkpoint", "transformers"}
    assert all(row == ["torch", "True"] for row in refused.values()), refused
    assert not {"_load", "_program", "_device", "_errors"} & set(refused)


def test_missing_transformers_says_so():
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch cannot be imported, of which test_what_needs_torch_says_so tells")
    status, said = python("import sys; sys.modules['transformers'] = None; import tilusvm.transformers")
    assert status == 1 and "pip install transformers" in said.splitlines()[-1]


def test_names_of_programs():
    names = tilusvm.program_names()
    assert {"matmul_lowbit", "matmul", "matmul_lowbit_u4", "rms_norm"} <= set(names)
    with pytest.raises(tilusvm.NotFoundError) as caught:
        tilusvm.program("matmul_lowbits")
    text = str(caught.value)
    assert "did you mean 'matmul_lowbit'?" in text and 'WTYPE="u3"' in text and "matmul_lowbit_TYPE" in text
    assert all(operator.contains(text, name) for name in names)

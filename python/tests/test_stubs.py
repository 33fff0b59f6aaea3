"""The stubs of the extension say what it has, and what is public says what it takes."""

import ast
import inspect
import pathlib
import typing

import pytest
from conftest import torch

import tilusvm
from tilusvm import _native

STUBS = ast.parse((pathlib.Path(tilusvm.__file__).parent / "_native.pyi").read_text())


def parameters(function):
    """Of a stub: (name, kind, has a default) of each parameter but self."""
    a, kinds = function.args, inspect.Parameter
    found = [(arg.arg, kinds.POSITIONAL_ONLY, False) for arg in a.posonlyargs]
    found += [(arg.arg, kinds.POSITIONAL_OR_KEYWORD, False) for arg in a.args]
    found += [(a.vararg.arg, kinds.VAR_POSITIONAL, False)] if a.vararg else []
    found += [(arg.arg, kinds.KEYWORD_ONLY, d is not None) for arg, d in zip(a.kwonlyargs, a.kw_defaults)]
    found += [(a.kwarg.arg, kinds.VAR_KEYWORD, False)] if a.kwarg else []
    return [row for row in found if row[0] != "self"]


def signature(value):
    rows = inspect.signature(value).parameters.values()
    return [(p.name, p.kind, p.default is not p.empty) for p in rows if p.name != "self"]


def test_functions():
    stubs = {node.name: node for node in STUBS.body if isinstance(node, ast.FunctionDef)}
    native = {name for name, value in vars(_native).items() if inspect.isbuiltin(value)}
    assert native == stubs.keys()
    for name, stub in stubs.items():
        assert signature(getattr(_native, name)) == parameters(stub), name
    others = {node.target.id for node in STUBS.body if isinstance(node, ast.AnnAssign)}
    assert others == {name for name in vars(_native) if not name.startswith("__")} - native - {"Graph", "Kernel", "Program"}


@pytest.mark.parametrize("name", ["Graph", "Kernel", "Program"])
def test_classes(name):
    value = getattr(_native, name)
    (stub,) = [node for node in STUBS.body if isinstance(node, ast.ClassDef) and node.name == name]
    own = {node.name: node for node in stub.body}
    assert {member for member in vars(value) if not member.startswith("__")} | {"__init__"} == own.keys() - {"__call__"}
    for member, node in own.items():
        if node.decorator_list:
            assert inspect.isgetsetdescriptor(vars(value)[member])
        elif member == "__init__":
            assert signature(value) == parameters(node)
        elif member != "__call__":  # of which Python says no more than *args, **kwargs
            assert signature(vars(value)[member]) == parameters(node), member


def test_kernels_say_what_they_take(axpy):
    text = "(n: 'i32', alpha: 'f32', x: 'f32[n]', y: 'f32[n]', *, stream=None, device=None) -> None"
    assert str(inspect.signature(axpy)) == text
    assert list(inspect.signature(tilusvm.Kernel).parameters) == ["program", "index"]


def public():
    """The functions and classes that modules have in __all__, and the methods of these classes."""
    modules = ["experts", "nn", "ops", "parallel", "quantize", "storage", "checkpoint"] if torch else []
    for module in [tilusvm, *(getattr(tilusvm, name) for name in modules)]:
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isfunction(value) or inspect.isclass(value):
                yield f"{module.__name__}.{name}", value
            if inspect.isclass(value) and not issubclass(value, Exception):
                for member, function in vars(value).items():
                    function = getattr(function, "__func__", function)
                    if not member.startswith("_") and inspect.isfunction(function):
                        yield f"{module.__name__}.{name}.{member}", function


def test_everything_public_is_described():
    bare = [name for name, value in public() if not inspect.getdoc(value)]
    assert bare == []


def test_everything_public_has_types():
    """Each parameter and result, and the names of the types are there."""
    for name, value in public():
        if inspect.isfunction(value):
            hints = typing.get_type_hints(value)
            own = {p for p in inspect.signature(value).parameters if p not in ("self", "cls")} | {"return"}
            assert own <= hints.keys(), name

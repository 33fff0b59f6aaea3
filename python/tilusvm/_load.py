"""From files, from text, and from the programs that ship with the package."""

from __future__ import annotations

import difflib
import os
import re
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Iterable

from . import _native
from ._errors import FileError, NotFoundError
from ._program import Program

#: The folder of the programs that ship: programs("matmul_lowbit") and .include of their parts.
PROGRAMS = Path(__file__).parent / "programs"

#: Programs whose file is named after one type of weights; the others are the same text with another WTYPE.
_OF_A_TYPE = {"matmul_lowbit": "u4", "matmul": "u3"}


def _define(name: str, value: bool | int | float | str) -> str:
    """NAME=VALUE as .const reads it: a text stands for itself, a type for example."""
    if isinstance(value, bool):
        return f"{name}={'true' if value else 'false'}"
    return f"{name}={value!r}" if isinstance(value, float) else f"{name}={value}"


def read_file(path: str) -> bytes:
    """What is in a file; FileError."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise FileError(f"{path}: {error.strerror}", 3) from error


def load(path: str | os.PathLike[str]) -> Program:
    """A program from a file: bytecode, vbc(5), or text, vasm(5), when its name ends in .vasm.

    Raises FileError, FormatError (a damaged file), AssembleError (a broken rule, or the text's errors).
    """
    path = os.fspath(path)
    data = read_file(path)
    if path.endswith(".vasm"):
        return assemble(data.decode(), name=path)
    return Program(data, name=path)


def assemble(
    text: str,
    *,
    name: str = "<text>",
    include: Iterable[str | os.PathLike[str]] = (),
    **consts: bool | int | float | str,
) -> Program:
    """A program from vasm(5) text.

    name: the file that messages name; .include is resolved against its folder, then against those in include, then
    against the programs that ship. consts: values of the text's .const of these names, as with tvm-as -D; a str is
    an expression or a type, "u4".
    Raises AssembleError, with line, column and hint of the first error.
    """
    folders = [os.fspath(folder) for folder in include] + [str(PROGRAMS)]
    defines = [_define(const, value) for const, value in consts.items()]
    return Program(_native.assemble(text, name, defines, folders), name=name)


def _file_of(name: str) -> tuple[str, dict[str, str]]:
    """The file of a shipped program's name and the constants that the name stands for."""
    if (PROGRAMS / f"{name}.vasm").is_file():
        return f"{name}.vasm", {}
    if name in _OF_A_TYPE:
        return f"{name}_{_OF_A_TYPE[name]}.vasm", {}
    found = re.fullmatch(r"(matmul_lowbit|matmul)_([uif]\d(?:_e\dm\d)?)", name)
    if found:
        return f"{found[1]}_{_OF_A_TYPE[found[1]]}.vasm", {"WTYPE": found[2]}
    names = program_names()
    near = difflib.get_close_matches(name, names, 1)
    raise NotFoundError(
        f"no program '{name}' ships{f'; did you mean {near[0]!r}?' if near else ''}\n"
        f"there are: {', '.join(names)}\n"
        f"hint: {' and '.join(_OF_A_TYPE)} are of a type of weights, WTYPE=\"u3\" beside the name, or in it: "
        f"{' and '.join(f'{of}_TYPE' for of in _OF_A_TYPE)} for u1 to u8, i2 to i8, f3_e1m1 to f8_e7m0",
        9,
    )


def program_names() -> list[str]:
    """The names that program() takes. matmul_lowbit and matmul are of the type that WTYPE="u3" says, by itself u4 and
    u3, or that the name has: matmul_lowbit_TYPE, matmul_TYPE."""
    return sorted({*(path.stem for path in PROGRAMS.glob("*.vasm")), *_OF_A_TYPE})


def _shipped(name: str, defines: tuple[str, ...]) -> Program:
    file, implied = _file_of(name)
    path = PROGRAMS / file
    all_defines = [_define(const, value) for const, value in implied.items()] + list(defines)
    return Program(_native.assemble(path.read_text(), str(path), all_defines, []), name=name)


_made: dict[tuple[str, tuple[str, ...]], Future] = {}  # or being made
_lock = threading.Lock()  # of it


def program(name: str, **consts: bool | int | float | str) -> Program:
    """A program that ships with the package (tilusvm(7) lists them), assembled with these constants.

    program("matmul_lowbit", WTYPE="u4"), program("attention_decode", HEAD=128): the same arguments give the same
    object, in all threads. Raises NotFoundError; AssembleError where the constants make no program.
    """
    key = name, tuple(sorted(_define(const, value) for const, value in consts.items()))
    with _lock:
        found = _made.get(key)
        future = found or _made.setdefault(key, Future())
    if found is None:
        try:
            future.set_result(_shipped(*key))
        except BaseException as error:
            del _made[key]
            future.set_exception(error)
    return future.result()

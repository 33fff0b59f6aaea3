"""Graphs: launches of kernels that run as one (tvm_graph(3))."""

from __future__ import annotations

import enum
import numbers
import os
from typing import Any, Iterable, Mapping, Sequence

from . import _native
from ._errors import SignatureError, UsageError
from ._load import PROGRAMS, _define, read_file
from ._program import Kernel

#: DLPack's code and the bits of an element, of the types that a temporary may have.
_TYPES = {
    "bool": (6, 8),
    "f16": (2, 16),
    "bf16": (4, 16),
    "f32": (2, 32),
    "f64": (2, 64),
    "f8_e4m3": (10, 8),
    "f8_e5m2": (12, 8),
    "f8_e8m0": (14, 8),
    **{f"{sign}{bits}": (code, bits) for sign, code in (("i", 0), ("u", 1)) for bits in (8, 16, 32, 64)},
}


class Role(enum.IntEnum):
    """What a graph does with a tensor."""

    INPUT = 0  #: of the caller, only read
    OUTPUT = 1  #: of the caller, wholly written; what it held before is not read
    STATE = 2  #: of the caller, read and written: a cache
    TEMPORARY = 3  #: of the graph, which plans its memory


class Named:
    """A tensor or scalar of a graph, for the arguments of its launches."""

    def __init__(self, graph: Graph, name: str, role: Role | None, type: str = ""):
        self.graph, self.name, self.role, self.type = graph, name, role, type

    def __repr__(self) -> str:
        what = "scalar" if self.role is None else self.role.name.lower()
        return f"<tilusvm.Graph {self.graph.name}: {what} {self.name}>"


class Graph:
    """Launches of kernels, and the tensors that they pass on, as one program.

    ``Graph(name, device="cuda")``: on a GPU a CUDA graph, a replay of which is one call of the driver; on "cpu" the
    launches run one after the other on the interpreter.

        graph = tilusvm.Graph("mlp", device="cuda")
        h = graph.temporary("h", (m, 4 * d), "f16")
        y = graph.output("y", result)
        graph.launch(product_relu, m, 4 * d, d, graph.input("x", x), graph.input("w1", w1), h)
        graph.launch(product, m, d, 4 * d, h, graph.input("w2", w2), y)
        graph()                                # and again, with other activations: graph(x=other)

    What waits for what follows from the tensors that kernels read and write. Tensors are declared as they lie: torch
    tensors, or on the interpreter numpy arrays; the graph holds them. Messages of tilusvm.Error name graph and launch.

    persistent: a GPU runs the graph as one kernel that stays on its multiprocessors; tvm_graph(3) says what the
    launches must be for that. UnsupportedError or LimitError at the first call where they are not.
    """

    def __init__(self, name: str, device: Any = "cuda", *, persistent: bool = False):
        self._begin(name, persistent)
        self._native = _native.Graph(name, device, None)

    def _begin(self, name: str, persistent: bool) -> None:
        self.name = name
        self.persistent = persistent
        self._names: dict[str, Named] = {}
        self._given: dict[str, Any] = {}  # tensors of a text's parameters, until it is finished
        self._is_text = False
        self._launches = 0
        self._finished = False

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        device: Any = "cuda",
        *,
        persistent: bool = False,
        include: Iterable[str | os.PathLike[str]] = (),
        consts: Mapping[str, bool | int | float | str] | None = None,
        **arguments: Any,
    ) -> Graph:
        """A graph from a file, the text of a .graph (vasm(5)); its name alone is one that ships.

        arguments: its parameters by name: all scalars as numbers, and tensors, now or at the first call. consts and
        include are those of assemble. Launches can be added until the first call; finish() checks tensors. Raises
        FileError, AssembleError with line and column, ArgumentError.

            layer = tilusvm.Graph.load("llama_mlp", m=8, d=4096, h=14336, eps=1e-5, norm=norm, w1=w1, w2=w2)
            layer(x=x, residual=residual, y=y)
        """
        path = os.fspath(path)
        shipped = PROGRAMS / f"{path}.graph"
        if not os.path.dirname(path) and not os.path.exists(path) and shipped.is_file():
            path = str(shipped)
        name = os.path.splitext(os.path.basename(path))[0]
        graph = cls.__new__(cls)
        graph._begin(name, persistent)
        graph._is_text = True
        scalars = {key: value for key, value in arguments.items() if isinstance(value, numbers.Number)}
        graph._given = {key: value for key, value in arguments.items() if key not in scalars}
        folders = [os.fspath(folder) for folder in include] + [str(PROGRAMS)]
        defines = [_define(const, value) for const, value in (consts or {}).items()]
        text = read_file(path).decode()
        graph._native = _native.Graph(name, device, (text, path, defines, folders, scalars))
        return graph

    # ---- what it is made of

    def _add(self, name: str, role: Role | None, type: str = "") -> Named:
        self._names[name] = named = Named(self, name, role, type)
        return named

    def input(self, name: str, tensor: Any) -> Named:
        """A tensor that launches only read: activations, weights."""
        self._native.tensor(name, Role.INPUT, tensor)
        return self._add(name, Role.INPUT)

    def output(self, name: str, tensor: Any) -> Named:
        """A tensor that launches write, to its end, and whose contents before do not count."""
        self._native.tensor(name, Role.OUTPUT, tensor)
        return self._add(name, Role.OUTPUT)

    def state(self, name: str, tensor: Any) -> Named:
        """A tensor whose contents launches may read and write: a cache."""
        self._native.tensor(name, Role.STATE, tensor)
        return self._add(name, Role.STATE)

    def temporary(self, name: str, shape: Sequence[int], type: str) -> Named:
        """A tensor that only the graph's launches see, of a type such as "f16" (low-precision types are the "u8" of
        their bits), row-major. Temporaries share memory by the time of their use."""
        code, bits = self._type(type)
        self._native.described(name, None, code, bits, tuple(shape), 0)
        return self._add(name, Role.TEMPORARY)

    def part(self, name: str, whole: Named | str, shape: Sequence[int], type: str, offset: int = 0) -> Named:
        """A part of a tensor: row-major, from `offset` bytes of it on, a multiple of 16."""
        code, bits = self._type(type)
        whole_name = self._name(whole)
        self._native.described(name, whole_name, code, bits, tuple(shape), offset)
        return self._add(name, self._names[whole_name].role)

    def scalar(self, name: str, type: str, value: Any) -> Named:
        """A scalar that launches share and that can be changed, for parameters of that type ("i32", "f32")."""
        self._native.scalar(name, type, type.startswith("f"), value)
        return self._add(name, None, type)

    def launch(
        self, kernel: Kernel, *args: Any, name: str | None = None, after: Sequence[str] = (), **by_name: Any
    ) -> str:
        """Adds a launch of a kernel or entry, and returns its name.

        Arguments, in the kernel's order or by their names, are tensors and scalars of the graph (or their names), or
        the values of scalars; None where a tensor has no elements. A parameter called name or after is given by its
        place. name: the kernel's, with a number, where it is left out. after: earlier launches that it also waits for.
        Raises ArgumentError where an argument is none for its parameter, an input is written, or what no launch before
        it writes is read; SignatureError for arguments that are missing, given twice or unknown.
        """
        if name is None:
            number = f"added.{self._launches}" if self._is_text else self._launches  # a text's own have numbers, too
            name = f"{kernel.name}.{number}"
        given = tuple(self._argument(argument) for argument in self._in_order(kernel, args, by_name))
        self._native.launch(name, kernel, given, tuple(after))
        self._launches += 1
        return name

    def finish(self) -> None:
        """Checks the whole, plans the temporaries' memory and prepares the kernels; else the first call does it."""
        if not self._finished:
            self._native.finish(self.persistent)
            self._finished = True
            for name, tensor in self._given.items():
                self.set(name, tensor)
            self._given.clear()

    # ---- running

    def __call__(self, *, stream: Any = None, **changes: Any) -> None:
        """Runs the graph, on torch's current stream or on `stream` (as of Kernel); on a GPU asynchronously.

        changes: other tensors or scalars by their names, from this launch on; tensors of the same type and shape.
        Raises ArgumentError where arguments do not fit, or launches without an order meet in memory.
        """
        self.finish()
        for name, value in changes.items():
            self.set(name, value)
        self._native.run(getattr(stream, "cuda_stream", stream))

    def set(self, name: str, value: Any) -> None:
        """Gives a tensor of the caller, or a scalar, another value, for launches from now on."""
        self.finish()
        if self._is_text and name not in self._names and isinstance(value, numbers.Number):
            self._native.scalar(name, None, -1, value)
            return
        named = self._find(name)
        if named.role is None:
            self._native.scalar(name, None, named.type.startswith("f"), value)
        else:
            self._native.set_tensor(name, named.role != Role.INPUT, value)

    def report(self) -> str:
        """What it does: memory, and for each launch its kernel, grid, and what it waits for."""
        self.finish()
        return self._native.report()

    def close(self) -> None:
        """Waits for the last launch, whose stream must still be there, and frees the graph's memory. A graph that has
        run on a GPU keeps its memory until then; it can no longer be used."""
        self._native.close()

    def __enter__(self) -> Graph:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    # ---- arguments

    @staticmethod
    def _type(type: str) -> tuple[int, int]:
        if type not in _TYPES:
            raise UsageError(f"'{type}' is none of {', '.join(_TYPES)}")
        return _TYPES[type]

    def _name(self, named: Named | str) -> str:
        if isinstance(named, Named) and named.graph is not self:
            raise UsageError(f"graph '{self.name}': {named!r} is of another graph")
        name = named.name if isinstance(named, Named) else named
        return self._find(name).name

    def _find(self, name: str) -> Named:
        if name in self._names:
            return self._names[name]
        if self._is_text:
            return self._add(name, Role(self._native.role(name)))
        raise UsageError(f"graph '{self.name}': there is no tensor or scalar '{name}'")

    def _argument(self, argument: Any) -> Any:
        return self._name(argument) if isinstance(argument, (Named, str)) else argument

    @staticmethod
    def _in_order(kernel: Kernel, args: tuple[Any, ...], by_name: dict[str, Any]) -> list[Any]:
        names = [param.name for param in kernel.params]
        if len(args) > len(names):
            raise SignatureError(f"kernel '{kernel.name}' takes {len(names)} arguments, {len(args)} were given")
        for name in by_name:
            if name not in names:
                raise SignatureError(f"kernel '{kernel.name}': there is no parameter '{name}'")
            if names.index(name) < len(args):
                raise SignatureError(f"kernel '{kernel.name}': two arguments are given for parameter '{name}'")
        for name in names[len(args) :]:
            if name not in by_name:
                raise SignatureError(f"kernel '{kernel.name}': no argument is given for parameter '{name}'")
        return [*args, *(by_name[name] for name in names[len(args) :])]

    def __repr__(self) -> str:
        added = f"{self._launches} launches{' beside those of its text' if self._is_text else ''}"
        return f"<tilusvm.Graph {self.name}: {added}>"

"""Programs and their kernels."""

from __future__ import annotations

import enum
import inspect
import os
from types import MappingProxyType
from typing import Any, Iterator, Mapping, NamedTuple

from . import _native
from ._errors import NotFoundError, SignatureError


class Param(NamedTuple):
    """A parameter of a kernel."""

    name: str
    type: str  #: "i32", "f16", "u3"
    bits: int  #: of an element or scalar
    is_tensor: bool
    rank: int  #: of a tensor; else 0
    shape: str  #: of a tensor, as declared: "[k / 64, n]"; "" of a scalar, and where an entry's variants differ
    written: bool  #: a tensor that the kernel writes to


class KernelInfo(NamedTuple):
    """What a kernel became on a device."""

    target: str  #: "sm_90a", "interpreter"
    threads: int  #: of a block
    shared_bytes: int  #: of a block
    registers: int  #: of a thread; -1 on the interpreter
    local_bytes: int  #: of a thread: spilled registers, indexed locals


class Verdict(enum.IntEnum):
    """Of a proof, the worst last."""

    PROVED = 0  #: there are none, whatever the arguments of the launch
    CONDITIONAL = 1  #: there are none, if what the report says is so
    OPEN = 2  #: not proved: the report says what is missing
    FOUND = 3  #: every block that runs, and meets no fault before, has what the report says


class Proof(NamedTuple):
    """What is proved of a kernel, without a launch; of an entry, of the worst of its variants."""

    races: Verdict  #: on shared memory
    deadlocks: Verdict
    report: str  #: three lines for each kernel, as tvm-as --prove prints them
    global_races: Verdict  #: races on global memory


def _proof_of(races, deadlocks, global_races, report):
    return Proof(Verdict(races), Verdict(deadlocks), report, Verdict(global_races))


class _Signature:
    """Of a kernel, for help() and editors: its parameters, and the words of a launch."""

    def __get__(self, kernel, owner=None):
        if kernel is None:
            return None
        kind = inspect.Parameter
        own = [kind(p.name, kind.POSITIONAL_OR_KEYWORD, annotation=f"{p.type}{p.shape}") for p in kernel.params]
        words = [kind(name, kind.KEYWORD_ONLY, default=None) for name in ("stream", "device")]
        return inspect.Signature([*own, *words], return_annotation=None)


class Kernel(_native.Kernel):
    """A kernel or an entry of a program: call it.

    ``kernel(*args, stream=None, device=None, **by_name)``: the arguments in the kernel's order, or by their names.

    * A tensor is a torch tensor (taken through DLPack's C functions: no copy, no synchronization), anything with the
      buffer protocol (numpy arrays, on the interpreter) or with ``__dlpack__``; None where it has no elements. Its
      shape is the one declared for the launch's scalars, and it is contiguous, or has the strides declared.
      A low-precision tensor may be given as the uint8 of its bits, the last extent n being n * bits / 8;
      bf16 of numpy as uint16.
    * A scalar is an int, float or bool, or converts to one without loss (``__index__``, ``__float__``).
    * The launch runs where the first tensor lies: on its GPU, on torch's current stream there, asynchronously; or on
      the interpreter, which is done when the call returns.
    * stream: an address, a torch.cuda.Stream, or what has ``__cuda_stream__``.
    * device: "cpu", "cuda:1", a number, a torch.device: refuses tensors that lie elsewhere.

    Raises ArgumentError, which names the argument; SignatureError for arguments that are missing or unknown;
    FaultError and others of tilusvm.Error. Ctrl-C ends a launch on the interpreter.
    """

    __signature__ = _Signature()

    program: Program
    params: tuple[Param, ...]  #: the parameters, in their order

    def __new__(cls, program: Program, index: int):
        self = super().__new__(cls, program._native, index)
        self.program = program
        self.params = tuple(Param(*row) for row in self._parameters)
        return self

    def param_shape(self, param: str | int, *args: Any, device: Any = None, **by_name: Any) -> tuple[int, ...]:
        """The extents of a tensor parameter for these scalars; tensors may be left out.

        Raises ArgumentError where the scalars fit no launch.
        """
        return self._shape(self._index(param), *args, device=device, **by_name)[0]

    def param_bytes(self, param: str | int, *args: Any, device: Any = None, **by_name: Any) -> int:
        """Bytes of a tensor parameter for these scalars; tensors may be left out."""
        return self._shape(self._index(param), *args, device=device, **by_name)[1]

    def info(self, device: Any = "cpu") -> KernelInfo:
        """What the kernel became on a device, for which it is translated and loaded; an entry has no code of its own:
        ask for the kernel that ``variant`` names."""
        return KernelInfo(*self._info(device))

    def prove(self) -> Proof:
        """Looks for races on shared and on global memory and for deadlocks, as tvm-as --prove does; tvm-memory(7) says
        what is proved, and of what."""
        return _proof_of(*self._prove())

    def check(self) -> Proof:
        """The same by the certificates in the bytecode, which ``tvm-as --prove=certificate`` writes and a small checker
        checks: the prover is not asked. A kernel that needs one and has none is OPEN, and races on global memory always
        are. The report has two lines for each kernel."""
        return _proof_of(*self._check())

    def _index(self, param: str | int) -> int:
        if isinstance(param, int):
            return param
        for index, row in enumerate(self.params):
            if row.name == param:
                return index
        raise SignatureError(f"kernel '{self.name}': there is no parameter '{param}'")

    def __reduce__(self):
        return _kernel_of, (self.program, self.name)

    def __repr__(self) -> str:
        params = ", ".join(f"{p.name}: {'global ' if p.is_tensor else ''}{p.type}{p.shape}" for p in self.params)
        return f"<tilusvm.Kernel {self.name}({params})>"


def _kernel_of(program: Program, name: str) -> Kernel:
    return program[name]


class Program(Mapping[str, Kernel]):
    """Verified bytecode: a mapping of names to kernels and entries, which are attributes, too.

    It is loaded on a device when one of its kernels is first called there. Programs can be pickled and copied.
    """

    name: str = ""
    _indices: Mapping[str, int] = MappingProxyType({})  # of one that was not initialized

    def __init__(self, bytecode: bytes, name: str = ""):
        """From the bytes of a vbc(5) file. Raises FormatError, AssembleError (a broken rule)."""
        self._native = _native.Program(bytecode)
        self.name = name
        self._indices = {kernel: index for index, kernel in enumerate(self._native.names)}
        self._kernels: dict[str, Kernel] = {}

    @property
    def bytecode(self) -> bytes:
        """The program as a vbc(5) file has it."""
        return self._native.bytes

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The kernels, then the entries, in the program's order."""
        return tuple(self[name] for name in self._indices)

    def origin(self, device: Any = "cpu") -> str:
        """Where its code on a device comes from: "cubin for sm_90a, from the cache, by nvJitLink 13.0"; "" before
        the first launch there."""
        return self._native.origin(device)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a vbc(5) file, which load() reads, as tvm-run and the C interface do."""
        with open(path, "wb") as file:
            file.write(self.bytecode)

    def __getitem__(self, name: str) -> Kernel:
        kernel = self._kernels.get(name)
        if kernel is None:
            if name not in self._indices:
                raise NotFoundError(f"the program has no kernel '{name}'; it has: {', '.join(self._indices) or 'none'}")
            kernel = self._kernels[name] = Kernel(self, self._indices[name])
        return kernel

    def __getattr__(self, name: str) -> Kernel:
        if name.startswith("_") or name not in self._indices:
            raise AttributeError(f"{self!r} has no attribute or kernel '{name}'")
        return self[name]

    def __contains__(self, name: object) -> bool:
        return name in self._indices

    def __iter__(self) -> Iterator[str]:
        return iter(self._indices)

    def __len__(self) -> int:
        return len(self._indices)

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__

    def __dir__(self):
        return [*super().__dir__(), *self._indices]

    def __reduce__(self):
        return Program, (self.bytecode, self.name)

    def __repr__(self) -> str:
        return f"<tilusvm.Program {self.name or '(unnamed)'}: {', '.join(self._indices)}>"

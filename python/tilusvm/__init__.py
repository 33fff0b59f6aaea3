"""Tilus VM: block-level GPU programs over low-precision types, from Python.

    import tilusvm
    axpy = tilusvm.assemble(open("axpy.vasm").read())["axpy"]
    axpy(n, 3.0, x, y)                      # torch tensors on a GPU, or numpy arrays on the interpreter

Kernels take torch tensors as they are, on torch's current stream; numpy arrays run on the interpreter, which defines
what every instruction does. The language is vasm(5); the programs that ship are program(NAME).
"""

import importlib
import importlib.util
import pathlib

if importlib.util.find_spec("._native", __name__) is None:
    raise ImportError(
        f"{pathlib.Path(__file__).parent} is the source of tilusvm, without its extension, which a build makes: "
        f"pip install ./python, or make python in the build folder and put that one's python/ into PYTHONPATH; "
        f"Python finds this one because it runs in its folder"
    )

from ._errors import (  # noqa: E402
    ArgumentError,
    AssembleError,
    CancelledError,
    CompileError,
    CudaError,
    Error,
    FaultError,
    FileError,
    FormatError,
    LaunchError,
    LimitError,
    NotFoundError,
    OutOfMemoryError,
    SanitizerError,
    SignatureError,
    UnsupportedError,
    UsageError,
)
from ._device import (
    cancel,
    device_name,
    device_report,
    interpreter,
    set_limits,
    set_sanitizer,
    synchronize,
    target_report,
)
from ._graph import Graph
from ._load import PROGRAMS, assemble, load, program, program_names
from ._native import version as __version__
from ._program import Kernel, KernelInfo, Param, Program, Proof, Verdict

#: What needs torch, which is imported when one of these is first named.
_OF_TORCH = ("checkpoint", "experts", "nn", "ops", "parallel", "quantize", "storage", "ternary")


def __getattr__(name):
    if name in _OF_TORCH:
        return importlib.import_module(f".{name}", __name__)
    if name == "quantize_":
        return importlib.import_module(".quantize", __name__).quantize_
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


__all__ = [
    "ArgumentError",
    "AssembleError",
    "CancelledError",
    "CompileError",
    "CudaError",
    "Error",
    "FaultError",
    "FileError",
    "FormatError",
    "Graph",
    "Kernel",
    "KernelInfo",
    "LaunchError",
    "LimitError",
    "NotFoundError",
    "OutOfMemoryError",
    "PROGRAMS",
    "Param",
    "Program",
    "Proof",
    "SanitizerError",
    "SignatureError",
    "UnsupportedError",
    "UsageError",
    "Verdict",
    "assemble",
    "cancel",
    "device_name",
    "device_report",
    "interpreter",
    "load",
    "program",
    "program_names",
    "set_limits",
    "set_sanitizer",
    "synchronize",
    "target_report",
    "__version__",
]

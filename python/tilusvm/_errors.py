"""Exceptions: a class for each kind of status of libtilusvm (tvm_status(3)), with the library's message."""

from __future__ import annotations

import re


class Error(Exception):
    """What went wrong, as libtilusvm says it: lines of cause, place and hint.

    status: the number of tvm_status(3), 0 where the package itself refuses.
    """

    status: int = 0

    def __init__(self, message: str = "", status: int = 0):
        super().__init__(message)
        self.status = status

    def __reduce__(self):
        return type(self), (str(self), self.status)


class UsageError(Error):
    """A function of the package was used in a way that it is not for."""


class FileError(Error, OSError):
    """A file cannot be read or written."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class FormatError(Error, ValueError):
    """Bytecode that is damaged, of an unknown version, or breaks a rule of the language."""


class AssembleError(Error, ValueError):
    """Program text that is malformed or breaks a rule of the language.

    file, line, column: where the first error is, as the message says; None where it names no place.
    hint: what the message proposes, or "".
    """

    def __init__(self, message: str = "", status: int = 0):
        super().__init__(message, status)
        found = re.match(r"(.+?):(\d+)(?::(\d+))?: ", message)
        self.file: str | None = found[1] if found else None
        self.line: int | None = int(found[2]) if found else None
        self.column: int | None = int(found[3]) if found and found[3] else None
        hint = re.search(r"^\s*hint: (.*)$", message, re.MULTILINE)
        self.hint: str = hint[1] if hint else ""


class LaunchError(Error):
    """A launch that was refused, or failed while it ran."""


class ArgumentError(LaunchError, ValueError):
    """An argument that does not fit the kernel, or an .assume that does not hold.

    argument: the name of the parameter, or None where the message blames none.
    """

    def __init__(self, message: str = "", status: int = 0):
        super().__init__(message, status)
        found = re.search(r"(?:tensor|parameter) '([^']+)'", message) or re.search(
            r"(?:extent|stride) \d+ of (\w+)|a row of (\w+),|: (\w+) has more than", message
        )
        self.argument: str | None = next(filter(None, found.groups()), None) if found else None


class SignatureError(ArgumentError, TypeError):
    """Arguments that make no call: too many, missing, given twice, or of an unknown name."""


class FaultError(LaunchError):
    """A kernel faulted while it ran; on a GPU its context is lost."""


class LimitError(LaunchError):
    """A launch beyond the limits that were set (set_limits)."""


class CancelledError(LaunchError):
    """A launch on the interpreter that cancel() ended."""


class SanitizerError(LaunchError):
    """The interpreter's sanitizer has found errors (set_sanitizer)."""


class NotFoundError(Error, LookupError):
    """No such kernel, file or device."""


class UnsupportedError(Error, NotImplementedError):
    """Not supported by this target or build."""


class CompileError(Error):
    """There is no compiler of PTX, or it refused the code."""


class CudaError(Error):
    """The driver or the GPU: none there, too old, lost, or a call that failed."""


class OutOfMemoryError(Error, MemoryError):
    """Out of memory, of the host or of the device."""


_CLASSES = {
    1: UsageError,
    2: OutOfMemoryError,
    3: FileError,
    4: AssembleError,
    5: AssembleError,
    6: FormatError,
    7: FormatError,
    8: ArgumentError,
    9: NotFoundError,
    10: UnsupportedError,
    12: CompileError,
    13: CompileError,
    15: FaultError,
    16: OutOfMemoryError,
    19: CompileError,
    21: FaultError,
    23: LimitError,
    24: CancelledError,
    25: SanitizerError,
    1000: SignatureError,
}


def make(status: int, message: str) -> Error:
    """The exception for a status of the library; 1000: arguments that make no call."""
    return _CLASSES.get(status, CudaError)(message, 0 if status == 1000 else status)

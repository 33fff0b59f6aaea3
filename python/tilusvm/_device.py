"""The devices that kernels run on: the interpreter, and GPUs."""

from __future__ import annotations

from typing import Any

from . import _native


def device_name(device: Any = "cpu") -> str:
    """ "interpreter, 2 threads", "NVIDIA H200 (cuda:0, sm_90a)". Raises CudaError where there is none."""
    return _native.device_name(device)


def device_report(device: Any = "cpu") -> dict[str, str]:
    """What code for the device is made of: its target, products, types, and the capabilities (vasm(5)) that it uses and
    lacks, with what is done instead; where nvJitLink and ptxas are. Raises CudaError where there is none."""
    return dict(line.split(": ", 1) for line in _native.device_report(device).splitlines())


def target_report(target: str) -> dict[str, str]:
    """The same of a target by name, such as "sm_89", for which no GPU need be here; without the compilers, and with the
    compute capabilities whose GPUs run its machine code. Raises UnsupportedError where there is no such target."""
    return dict(line.split(": ", 1) for line in _native.target_report("cpu", target).splitlines())


def multiplies_four(report: dict[str, str]) -> bool:
    """Do the tensor cores of what device_report or target_report tells of multiply elements of 4 bits, with scales of
    blocks, as they are?"""
    uses = report.get("uses", "").split(", ")
    return "tcgen05" in uses or "mma_block_scale" in uses


def synchronize(device: Any = "cuda", stream: int = 0) -> None:
    """Waits for a stream; a kernel that faulted raises FaultError, with its name."""
    _native.synchronize(device, stream)


def interpreter(*, threads: int = 0, multiprocessors: int = 0, target: int = 0) -> None:
    """Sets the interpreter up, before the first program: its threads (0: one a core), and what launches see of the
    device: its multiprocessors (0: 4) and target (80, 89, 90, ...; 0: none), to run a GPU's variant and schedule.

    Raises UsageError once it is in use.
    """
    _native.set_interpreter(threads, multiprocessors, target)


def set_limits(
    device: Any = "cpu",
    *,
    scratch_bytes: int = 0,
    blocks: int = 0,
    instructions: int = 0,
    milliseconds: int = 0,
    turns: int = 0,
    co_resident: bool = False,
) -> None:
    """What launches on a device may take from now on, 0 for no limit: bytes of tensors that they make for themselves,
    blocks, on the interpreter instructions and time, and turns of loops that a warp makes, which code for a GPU counts
    in programs that are loaded from now on; co_resident: on a GPU, blocks that wait for each other must all run at a
    time. One beyond them raises LimitError; on a GPU one that has made all its turns is a FaultError."""
    _native.set_limits(device, scratch_bytes, blocks, instructions, milliseconds, turns, co_resident)


def set_sanitizer(mode: str | None) -> None:
    """Checks what is launched on the interpreter from now on for races, reads of what was never written, deadlocks
    (tvm-memory(7)): mode "text" or "json", the form of SanitizerError's message, or None. Launches are slower."""
    modes = {None: 0, "off": 0, "text": 1, "json": 2}
    if mode not in modes:
        raise ValueError(f'mode is "text", "json" or None, not {mode!r}')
    _native.set_sanitizer(modes[mode])


def cancel() -> None:
    """Ends all launches that run on the interpreter, whose callers get CancelledError; called by another thread."""
    _native.cancel()

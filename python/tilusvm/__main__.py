"""python -m tilusvm: info, what is here; chat and bench, of a folder with a language model."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from importlib import metadata
from pathlib import Path

import tilusvm

_PROBE = """
.vasm 3
.kernel probe(x: global i32[32])
.warps 1
.grid 1
    store-global x[0], iota(i32[32], axis 0)
.end
"""

_COMPILERS = ("nvJitLink", "ptxas")


def _cache() -> str:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    folder = Path(base) / "tilusvm"
    sizes = [file.stat().st_size for file in folder.rglob("*") if file.is_file()] if folder.is_dir() else []
    return f"{folder}: {len(sizes)} files, {sum(sizes) / 1e6:.1f} MB"


def _report(device: int | str) -> list[tuple[str, str]]:
    """What the device gets and misses; where compilers are is the same for all."""
    report = tilusvm.device_report(device)
    return [(f"  {name}", text) for name, text in report.items() if name not in _COMPILERS]


def _gpus() -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    try:
        for ordinal in range(64):
            rows += [("GPU", tilusvm.device_name(ordinal)), *_report(ordinal)]
    except tilusvm.Error as error:
        return rows or [("GPU", str(error).splitlines()[0])]
    return rows


def _compiler() -> str:
    """What makes machine code here, found by making some."""
    program = tilusvm.assemble(_PROBE, name="probe")
    try:
        program["probe"].prepare(0)
    except tilusvm.Error as error:
        ptxas = os.environ.get("TVM_PTXAS") or shutil.which("ptxas")
        return f"ptxas: {ptxas}" if ptxas else str(error).splitlines()[0]
    return program.origin(0)


def _installed(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _paths() -> str:
    """Where commands are: PATH, and beside Python itself, as in a virtual environment that is not activated."""
    return os.pathsep.join([os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)])


def _print(rows: list[tuple[str, str]]) -> None:
    for name, text in rows:
        print(f"{name:12} {text}" if len(name) <= 12 else f"{name}: {text}")


def info(target: str | None = None) -> None:
    """Prints what a target by name has; or, without one, the version, the devices, what compiles, the cache, what goes
    with the package, and the programs that ship."""
    if target is not None:
        _print(list(tilusvm.target_report(target).items()))
        return
    rows = [
        ("tilusvm", tilusvm.__version__),
        ("package", str(Path(tilusvm.__file__).parent)),
        ("interpreter", tilusvm.device_name("cpu")),
        *_report("cpu"),
        *_gpus(),
        ("code", _compiler()),
        *((name, text) for name, text in tilusvm.device_report("cpu").items() if name in _COMPILERS),
        ("cache", _cache()),
        ("torch", _installed("torch")),
        ("transformers", _installed("transformers")),
        ("tvm-pack", shutil.which("tvm-pack", path=_paths()) or "not in PATH"),
        ("programs", ", ".join(tilusvm.program_names())),
    ]
    _print(rows)


def _models(given) -> None:
    """chat, bench and serve, which need torch and transformers."""
    from .transformers import _console

    getattr(_console, given.command)(given)


def _add_models(commands) -> None:
    """The commands for a language model in a folder."""
    chat = commands.add_parser("chat", help="a chat with the language model of a folder")
    bench = commands.add_parser("bench", help="tokens a second of the language model of a folder")
    serve = commands.add_parser("serve", help="transformers' server of the language model of a folder")
    for command in (chat, bench, serve):
        command.set_defaults(run=_models)
        command.add_argument("folder", type=Path, help="of a model of transformers, quantized or not")
        command.add_argument("--device", help="cuda, cuda:1, cpu (a GPU, where there is one)")
        command.add_argument("--type", help="quantizes the linear layers, as u4")
        command.add_argument("--group", type=int, default=128, help="inputs that share a scale (128)")
    for command in (chat, bench):
        command.add_argument("--cache", metavar="TYPE", help="of the cache of keys and values, as u8")
    serve.add_argument("--host", default="localhost", help="where it listens (localhost)")
    serve.add_argument("--port", type=int, default=8000, help="(8000)")
    serve.add_argument("--one-by-one", action="store_true", help="requests are not batched continuously")
    chat.add_argument("--system", metavar="TEXT", help="what the model is told first")
    chat.add_argument("--context", type=int, default=4096, help="tokens of a conversation at most (4096)")
    chat.add_argument("--new", type=int, help="tokens of an answer at most")
    chat.add_argument("--temperature", type=float, help="draws tokens by it (as the model's configuration says)")
    chat.add_argument("--seed", type=int, help="of what is drawn")
    bench.add_argument("--batch", type=int, nargs="+", default=[1, 4, 16], help="sequences at a time (1 4 16)")
    bench.add_argument("--prompt", type=int, default=512, help="tokens of a prompt (512)")
    bench.add_argument("--new", type=int, default=128, help="tokens behind it (128)")
    bench.add_argument("--repeat", type=int, default=3, help="runs, of which the median counts (3)")
    bench.add_argument("--json", action="store_true", help="prints an object of JSON")


def _measures(given) -> None:
    """quality and quantize, which need torch and transformers."""
    from .transformers import _quality

    getattr(_quality, given.command)(given)


def _add_measures(commands) -> None:
    """The commands that quantize a language model, and measure what that does to it."""
    quality = commands.add_parser("quality", help="perplexity and KL divergence of a quantized language model")
    quantize = commands.add_parser("quantize", help="quantizes a language model, by calibration or without")
    for command in (quality, quantize):
        command.set_defaults(run=_measures)
        command.add_argument("folder", type=Path, help="of a model of transformers")
        command.add_argument("--device", help="cuda, cuda:1, cpu (a GPU, where there is one)")
        command.add_argument("--type", help="of the weights, as u4", required=command is quantize)
        command.add_argument("--group", type=int, default=128, help="inputs that share a scale (128)")
        command.add_argument("--zeros", action="store_true", help="gives each group a zero point")
        command.add_argument(
            "--skip", metavar="PATTERN", action="append", help="names of layers to leave alone (lm_head)"
        )
        command.add_argument("--window", type=int, default=2048, help="tokens that the model sees at once (2048)")
    quality.add_argument("--text", metavar="FILE", required=True, help="in UTF-8")
    quality.add_argument("--against", metavar="FOLDER", type=Path, help="of the model to compare with")
    quality.add_argument("--stride", type=int, help="tokens from one window to the next (as many as a window has)")
    quality.add_argument("--tokens", type=int, help="of the text that are taken, at most")
    quality.add_argument("--interpreter", action="store_true", help="multiplies on a CPU as the programs do: slow")
    quality.add_argument("--json", action="store_true", help="prints an object of JSON")
    quantize.add_argument("--to", metavar="FOLDER", type=Path, required=True, help="which must not be there yet")
    quantize.add_argument("--method", choices=("gptq", "awq", "gptq+awq"), help="calibrates the weights, for --text")
    quantize.add_argument("--text", metavar="FILE", help="in UTF-8, such as the model will see")
    quantize.add_argument("--samples", type=int, default=128, help="windows of the text, at most (128)")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tilusvm", description="Tilus VM from Python.")
    commands = parser.add_subparsers(dest="command", required=True)
    shown = commands.add_parser("info", help="version, devices, compilers, cache, programs")
    shown.add_argument("--target", metavar="SM", help="what a target has, as sm_89; no GPU need be here")
    shown.set_defaults(run=lambda given: info(given.target))
    _add_models(commands)
    _add_measures(commands)
    given = parser.parse_args(arguments)
    try:
        given.run(given)
    except (ImportError, OSError, RuntimeError, TypeError, ValueError, tilusvm.Error) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        print(f"{parser.prog} {given.command}: {lines[0]}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

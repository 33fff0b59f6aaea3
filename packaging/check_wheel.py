"""Uses the package as one who has installed it, and has no compiler: a kernel on the interpreter, every tool, weights
that are packed and multiplied with. Run by a Python that has tilusvm and needs nothing else, in a folder that may be
written.
"""

import array
import importlib.metadata
import os
import random
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import tilusvm

AXPY = """
.vasm 3
.kernel axpy(n: i32, alpha: f32, x: global f32[n], y: global f32[n])
.warps 4
.grid cdiv(n, 512)
    %i = block.x * 512
    %r = fma load-global(x[%i], [512]), alpha, load-global(y[%i], [512])
    store-global y[%i], %r
.end
"""
M, K, N = 5, 256, 128


def run(*command):
    made = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if made.returncode != 0:
        sys.exit(f"{command[0]}: status {made.returncode}\n{made.stdout}{made.stderr}")
    return made.stdout


def write_npy(path, values, shape):
    """An array of f16, as numpy's format has it."""
    head = f"{{'descr': '<f2', 'fortran_order': False, 'shape': {shape}, }}"
    head = head.ljust(127 - 10) + "\n"
    data = struct.pack(f"<{len(values)}e", *values)
    Path(path).write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + data)


def read_npy(path, code):
    data = Path(path).read_bytes()
    data = data[10 + struct.unpack_from("<H", data, 8)[0] :]
    return struct.unpack(f"<{len(data) // struct.calcsize(code)}{code}", data)


def check_kernel():
    x, y = array.array("f", range(1000)), array.array("f", [2.0] * 1000)
    tilusvm.assemble(AXPY)["axpy"](1000, 3.0, x, y)
    assert list(y) == [3.0 * i + 2.0 for i in range(1000)]


def check_tools(names):
    for name in names:
        assert run(name, "--version").split()[-1] == tilusvm.__version__, name
        page = Path(sys.prefix) / "share" / "man" / "man1" / f"{name}.1"
        assert "\n.TH " in "\n" + page.read_text(), page


def check_product():
    """The product with packed weights is that with the same weights unpacked, within f16's last place and the sums'."""
    source = Path(tilusvm.PROGRAMS) / "matmul_u3.vasm"
    run("tvm-as", source, "-o", "matmul.vbc")
    assert ".kernel pack" in run("tvm-dis", "matmul.vbc")
    assert ".visible .entry" in run("tvm-cc", "--target", "sm_80", "matmul.vbc", "-o", "-")
    random.seed(3)
    a, w = ([random.uniform(-1, 1) for _ in range(size)] for size in (M * K, K * N))
    write_npy("a.npy", a, (M, K))
    write_npy("w.npy", w, (K, N))
    run("tvm-pack", "--quiet", "--layout", "matmul.vbc", "--group", "128", "w.npy", "-o", "w.tvmw")
    run("tvm-pack", "--quiet", "--unpack", "--layout", "matmul.vbc", "w.tvmw", "-o", "again.npy")
    arguments = [f"m={M}", f"n={N}", f"k={K}", "a=@a.npy", "p=@w.tvmw:packed", "s=@w.tvmw:scales", "c=out:c.npy"]
    run("tvm-run", "matmul.vbc", "--device", "cpu", "--quiet", "--kernel", "matmul", "--args", *arguments)
    a, w, c = read_npy("a.npy", "e"), read_npy("again.npy", "f"), read_npy("c.npy", "e")
    for i in range(M):
        for j in range(N):
            exact = sum(a[i * K + k] * w[k * N + j] for k in range(K))
            assert abs(c[i * N + j] - exact) < 0.02, (i, j, c[i * N + j], exact)
    assert max(map(abs, c)) > 1.0


def main():
    for compiler in ("cc", "gcc", "clang", "as", "ld"):
        assert shutil.which(compiler) is None, f"{compiler} is in PATH: {os.environ['PATH']}"
    assert Path(tilusvm.__file__).is_relative_to(sys.prefix), tilusvm.__file__
    metadata = importlib.metadata.distribution("tilusvm")
    assert metadata.version == tilusvm.__version__
    points = metadata.entry_points
    names = sorted(points.select(group="console_scripts").names)
    assert len(names) == 6, names
    for group in ("vllm.general_plugins", "sglang.srt.plugins"):
        assert points.select(group=group).names == {"tilusvm"}, points
    check_kernel()
    check_tools(names)
    check_product()
    package = Path(tilusvm.__file__).parent
    assert {file.name for file in (package / "include").iterdir()} == {"tvm.h", "tvm_status.h"}
    assert (package / "lib" / "libtilusvm.so.0").is_file()


main()

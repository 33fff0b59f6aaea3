"""The wheel: what pip installs, from a build that was made before, in a folder of its own."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import tilusvm

PYTHON = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    build = Path(tilusvm.__file__).parent.parent.parent
    assert (build / "config.status").exists(), "the tests are run with the package in a build's folder"
    code = f"import backend, sys; print(backend.build_wheel({str(folder)!r}))"
    environment = {**os.environ, "TILUSVM_BUILD": str(build), "PYTHONPATH": str(PYTHON)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    (path,) = folder.glob("tilusvm-*.whl")
    return path


def test_what_is_in_it(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert "abi3" in wheel.name
    for name in ("_native.abi3.so", "__init__.py", "_native.pyi", "py.typed", "programs/matmul_lowbit.vasminc"):
        assert f"tilusvm/{name}" in names
    assert not [name for name in names if "__pycache__" in name]
    recorded = [line.split(",")[0] for line in zipfile.ZipFile(wheel).read(names[-1]).decode().splitlines()]
    assert sorted(recorded) == sorted(names)


def test_it_runs_alone(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path)
    code = "import tilusvm; print(tilusvm.__file__, len(tilusvm.program('matmul_lowbit_u2')))"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    output = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=tmp_path, check=True, capture_output=True, text=True
    ).stdout
    assert output.startswith(str(tmp_path))
    (tool,) = tmp_path.glob("*.data/scripts/tvm-pack")
    tool.chmod(0o755)
    said = subprocess.run([tool, "--version"], check=True, capture_output=True, text=True, cwd=tmp_path).stdout
    assert said.split()[-1] == tilusvm.__version__


def test_the_extension_asks_for_nothing_else():
    native = Path(tilusvm._native.__file__)
    output = subprocess.run(["ldd", native], capture_output=True, text=True, check=True).stdout
    assert "libpython" not in output and "libtilusvm" not in output

"""The wheel: what pip installs, from a build that was made before, in a folder of its own."""

import configparser
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import tilusvm

PYTHON = Path(__file__).parent.parent
TOOLS = ("tvm-as", "tvm-cc", "tvm-dis", "tvm-pack", "tvm-run", "tvm-tune")

setuptools = pytest.importorskip("setuptools", reason="setuptools, which builds the wheel, is not installed")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    build = Path(tilusvm.__file__).parent.parent.parent
    assert (build / "config.status").exists(), "the tests are run with the package in a build's folder"
    code = f"from setuptools import build_meta; print(build_meta.build_wheel({str(folder)!r}))"
    environment = {**os.environ, "TILUSVM_BUILD": str(build)}
    subprocess.run([sys.executable, "-c", code], cwd=PYTHON, env=environment, check=True)
    (path,) = folder.glob("tilusvm-*.whl")
    return path


def test_what_is_in_it(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert "cp311-abi3" in wheel.name
    package = ["_native.abi3.so", "__init__.py", "_native.pyi", "py.typed", "programs/matmul_lowbit.vasminc"]
    package += ["include/tvm.h", "include/tvm_status.h", "lib/libtilusvm.so.0", "lib/pkgconfig/tilusvm.pc"]
    package += ["lib/cmake/tilusvm/tilusvmConfig.cmake", "lib/cmake/tilusvm/tilusvmConfigVersion.cmake"]
    package += [f"bin/{tool}" for tool in TOOLS]
    assert [name for name in package if f"tilusvm/{name}" not in names] == []
    pages = {Path(name).name for name in names if ".data/data/share/man/" in name}
    assert pages > {"tilusvm.7", "vasm.5", "tvm_launch.3", "tvm_launchv.3", *(f"{tool}.1" for tool in TOOLS)}
    assert [name for name in names if name.endswith("COPYING")]
    assert not [name for name in names if "__pycache__" in name]
    (record,) = (name for name in names if name.endswith("/RECORD"))
    recorded = [line.rsplit(",", 2)[0] for line in zipfile.ZipFile(wheel).read(record).decode().splitlines()]
    assert sorted(recorded) == sorted(names)


def test_the_metadata_is_the_project_s(wheel):
    archive = zipfile.ZipFile(wheel)
    info = f"tilusvm-{tilusvm.__version__}.dist-info"
    metadata = archive.read(f"{info}/METADATA").decode()
    for line in (f"Version: {tilusvm.__version__}", "License: Apache-2.0", "Provides-Extra: transformers"):
        assert f"\n{line}\n" in metadata
    points = configparser.ConfigParser(delimiters="=")
    points.read_string(archive.read(f"{info}/entry_points.txt").decode())
    assert sorted(points["console_scripts"]) == sorted(TOOLS)
    for engine in ("vllm.general_plugins", "sglang.srt.plugins"):
        assert list(points[engine]) == ["tilusvm"]


def test_it_runs_alone(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            Path(archive.extract(member, tmp_path)).chmod(member.external_attr >> 16 & 0o777)
    code = "import tilusvm; print(tilusvm.__file__, len(tilusvm.program('matmul_lowbit_u2')))"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PKG_CONFIG_PATH": f"{tmp_path}/tilusvm/lib/pkgconfig"}

    def run(*command):
        return subprocess.run(command, env=environment, cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    assert run(sys.executable, "-c", code).startswith(str(tmp_path))
    for tool in TOOLS:  # as the command that pip writes: it is known by the name under which it was called
        code = f"import sys; sys.argv[0] = '/there/{tool}'; from tilusvm._tools import main; main()"
        assert run(sys.executable, "-c", code, "--version") == f"{tool} (Tilus VM) {tilusvm.__version__}\n"
    # pkg-config's folders are where the package was put
    flags = run("pkg-config", "--cflags", "--libs", "tilusvm").split()
    places = {flag[:2]: Path(flag[2:]).resolve() for flag in flags if flag[:2] in ("-I", "-L")}
    assert places == {"-I": tmp_path / "tilusvm" / "include", "-L": tmp_path / "tilusvm" / "lib"}
    programs = run("pkg-config", "--variable=programs", "tilusvm").strip()
    assert (Path(programs) / "matmul_simple.vasm").is_file()


def test_the_extension_asks_for_nothing_else():
    native = Path(tilusvm._native.__file__)
    output = subprocess.run(["ldd", native], capture_output=True, text=True, check=True).stdout
    assert "libpython" not in output and "libtilusvm" not in output
